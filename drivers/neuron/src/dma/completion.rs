//! The completion task of a device: rings doorbells, sweeps markers, looks after rings that make no
//! progress (specification 03 §7.4, §7.5).
//!
//! A turn first announces what was staged since the last one, one pair of writes a ring, then looks
//! at the oldest marker of every ring with work and goes on while they are there. Then the task
//! yields if something ended, or rests: 1 µs, then longer, up to 50 µs; without work until it is
//! woken. No register is read unless a batch is late.

use alloc::sync::Arc;
use core::future::poll_fn;
use core::pin::pin;
use core::sync::atomic::Ordering;
use core::task::Poll;
use core::time::Duration;

use axon_platform::{Instant, Platform};
use axon_ports::telemetry::TraceEvent;

use super::fault::{Attention, Look};
use super::ring::{Phase, RingName};
use crate::Error;
use crate::shared::{Shared, bits};
use crate::wake::yield_now;

/// Shortest and longest rest while batches are in flight.
const REST: (Duration, Duration) = (Duration::from_micros(1), Duration::from_micros(50));
/// Shortest and longest rest while nothing but quarantine is left.
const SLOW_REST: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// Rings without progress are looked after this often while others make some.
const ATTENTION_TURNS: u32 = 64;

/// Runs until the device is stopped.
pub(crate) async fn run<P: Platform>(shared: Arc<Shared<P>>) {
    let mut active = 0;
    let mut turns = 0u32;
    let mut rest = REST.0;
    let mut slow_rest = SLOW_REST.0;
    while !shared.is_stopped() {
        turns = turns.wrapping_add(1);
        let progress = turn(&shared, &mut active, turns.is_multiple_of(ATTENTION_TURNS));
        if active != 0 {
            slow_rest = SLOW_REST.0;
            if progress {
                rest = REST.0;
                yield_now().await;
            } else {
                sleep(&shared, Some(shared.platform.now() + rest)).await;
                rest = (rest * 2).min(REST.1);
            }
            continue;
        }
        rest = REST.0;
        let quarantine = sweep_quarantine(&shared);
        let until = quarantine.then(|| shared.platform.now() + slow_rest);
        slow_rest = if quarantine { (slow_rest * 2).min(SLOW_REST.1) } else { SLOW_REST.0 };
        sleep(&shared, until).await;
    }
}

/// One turn; answers whether something ended. `active` are the ports with batches in flight; those
/// without progress are looked after where no other has any, or with `attentive`.
#[inline]
fn turn<P: Platform>(shared: &Shared<P>, active: &mut u64, attentive: bool) -> bool {
    let dirty = shared.dirty.swap(0, Ordering::AcqRel);
    if dirty != 0 {
        *active |= dirty;
        shared.platform.write_barrier();
        for number in bits(dirty) {
            announce(shared, number);
        }
    }
    let mut progress = false;
    let mut idle = 0;
    let mut stuck = 0;
    for number in bits(*active) {
        match sweep(shared, number) {
            Swept::Idle { retired } => {
                idle |= 1 << number;
                progress |= retired;
            }
            Swept::Progress => progress = true,
            Swept::Nothing => stuck |= 1 << number,
        }
    }
    *active &= !idle;
    if stuck != 0 && (!progress || attentive) {
        attend(shared, stuck);
    }
    progress
}

#[inline]
fn announce<P: Platform>(shared: &Shared<P>, number: usize) {
    if let Some(cell) = shared.ports.get(number) {
        cell.with(|port| {
            if let Some(ring) = port.ring() {
                let announced = ring.ring_doorbells(&shared.registers);
                trace_start(shared, ring.name, announced);
            }
        });
    }
}

/// Descriptors were announced, as many on each side.
#[inline(always)]
pub(super) fn trace_start<P: Platform>(shared: &Shared<P>, name: RingName, announced: u32) {
    let event = TraceEvent::DmaQueueCopyStart {
        engine: name.engine.number().into(),
        queue: name.queue.number().into(),
        tx_count: announced.into(),
        rx_count: announced.into(),
    };
    shared.records.trace.emit(event, || shared.platform.now());
}

/// What a look at the markers of one ring gave.
enum Swept {
    /// Nothing is in flight any more.
    Idle { retired: bool },
    /// Some batches ended.
    Progress,
    /// None ended.
    Nothing,
}

#[inline]
fn sweep<P: Platform>(shared: &Shared<P>, number: usize) -> Swept {
    let Some(cell) = shared.ports.get(number) else { return Swept::Idle { retired: false } };
    let (swept, fill_reads_over) = cell.with(|port| {
        let Some(ring) = port.ring() else { return (Swept::Idle { retired: false }, 0) };
        let retired = ring.sweep();
        if retired != 0 {
            let event = TraceEvent::DmaAckCompleted {
                engine: ring.name.engine.number().into(),
                queue: ring.name.queue.number().into(),
                count: retired.into(),
            };
            shared.records.trace.emit(event, || shared.platform.now());
        }
        let retired = retired != 0;
        let over = core::mem::take(&mut ring.fill_reads_over);
        let idle = ring.in_flight.len() == 0 && !matches!(ring.phase, Phase::Draining { .. });
        if retired {
            port.call();
        }
        let swept = match (idle, retired) {
            (true, retired) => Swept::Idle { retired },
            (false, true) => Swept::Progress,
            (false, false) => Swept::Nothing,
        };
        (swept, over)
    });
    if fill_reads_over != 0 {
        shared.fill.release(fill_reads_over);
    }
    swept
}

/// Looks after rings on which nothing has ended.
#[cold]
fn attend<P: Platform>(shared: &Shared<P>, stuck: u64) {
    let mut look = Look {
        registers: &shared.registers,
        hal: &shared.hal,
        now: shared.platform.now(),
        reads: 0,
    };
    let mut gone = false;
    for number in bits(stuck) {
        gone |= attend_one(shared, number, &mut look) == Attention::Gone;
    }
    if look.reads != 0 {
        shared.data_path_reads.fetch_add(look.reads, Ordering::Relaxed);
    }
    if gone {
        shared.device_gone();
    }
}

fn attend_one<P: Platform>(
    shared: &Shared<P>,
    number: usize,
    look: &mut Look<'_, crate::Window<P>>,
) -> Attention {
    let Some(cell) = shared.ports.get(number) else { return Attention::Wait };
    let (attention, fill_reads_over) = cell.with(|port| {
        // What a reset holds is the business of its drive, which has a deadline of its own.
        let held = port.is_held();
        let Some(ring) = port.ring() else { return (Attention::Wait, 0) };
        if held && !matches!(ring.phase, Phase::Draining { .. }) {
            return (Attention::Wait, 0);
        }
        let attention = ring.attend(look);
        let over = core::mem::take(&mut ring.fill_reads_over);
        if ring.quarantined() > 0 {
            shared.quarantine.fetch_or(1 << number, Ordering::AcqRel);
        }
        let (engine, queue) = (ring.name.engine, ring.name.queue);
        match attention {
            Attention::Wait | Attention::Gone => {}
            Attention::Draining => port.set_draining(true),
            Attention::Recovered => {
                port.set_draining(false);
                // Replayed batches have to be announced.
                shared.dirty.fetch_or(1 << number, Ordering::AcqRel);
            }
            Attention::Faulted => {
                port.set_draining(false);
                if port.refused().is_none() {
                    port.set_refused(Some(Error::RingFaulted { engine, queue }));
                }
            }
        }
        (attention, over)
    });
    if fill_reads_over != 0 {
        shared.fill.release(fill_reads_over);
    }
    attention
}

/// Lets go of what late markers have proven; answers whether anything is left.
fn sweep_quarantine<P: Platform>(shared: &Shared<P>) -> bool {
    let set = shared.quarantine.load(Ordering::Acquire);
    for number in bits(set) {
        let Some(cell) = shared.ports.get(number) else { continue };
        cell.with(|port| {
            let Some(ring) = port.ring() else { return };
            let proven = ring.sweep_quarantine() != 0;
            if ring.quarantined() == 0 {
                shared.quarantine.fetch_and(!(1 << number), Ordering::AcqRel);
            }
            if proven {
                port.call();
            }
        });
    }
    shared.quarantine.load(Ordering::Acquire) != 0
}

/// Rests until there is work, the device stops, or `until`.
async fn sleep<P: Platform>(shared: &Shared<P>, until: Option<Instant>) {
    let mut timer = pin!(until.map(|until| shared.platform.sleep_until(until)));
    poll_fn(|cx| {
        shared.work.register(cx.waker());
        if shared.dirty.load(Ordering::Acquire) != 0 || shared.is_stopped() {
            return Poll::Ready(());
        }
        match timer.as_mut().as_pin_mut() {
            Some(timer) => timer.poll(cx),
            None => Poll::Pending,
        }
    })
    .await;
}
