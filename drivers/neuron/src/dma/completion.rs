//! The completion task of a device: rings doorbells, sweeps markers, looks after rings that make no
//! progress (specification 03 §7.4, §7.5).
//!
//! A turn first announces what was staged since the last one, one pair of writes a ring, then looks
//! at the oldest marker of every ring with work and goes on while they are there. Then the task
//! yields if something ended, or rests: 1 µs, then longer, up to 50 µs, or 1 ms where only a scrub is
//! under way; without work until it is woken. No register is read unless a batch is late.
//!
//! A copy that finds the device idle and no other copy made and not staged yet does the same for its
//! ring in its first poll: nobody is left who could share the doorbells, so that the way over the
//! task would only cost time. Copies that are made together share a pair as before: the last one
//! that is staged rings.

use alloc::sync::Arc;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::sync::atomic::Ordering;
use core::task::{Poll, Waker};
use core::time::Duration;

use axon_platform::Platform;
use axon_ports::telemetry::{TraceEvent, TraceKind};

use super::fault::{Attention, Look};
use super::port::Port;
use super::queues;
use super::ring::{Phase, Ring, RingName};
use crate::Error;
use crate::shared::{Shared, bits};

/// Shortest and longest rest while batches are in flight.
const REST: (Duration, Duration) = (Duration::from_micros(1), Duration::from_micros(50));
/// Shortest and longest rest while nothing but quarantine is left.
const SLOW_REST: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// Rings without progress are looked after this often while others make some.
const ATTENTION_TURNS: u32 = 64;

/// Batches of a ring that may end without a turn of the task between them.
const IN_PASSING: u32 = 8;

/// Runs until the device is stopped: one turn each time the task is polled, whoever woke it.
pub(crate) async fn run<P: Platform>(shared: Arc<Shared<P>>) {
    let mut active = 0;
    let mut turns = 0u32;
    let (mut rest, mut slow_rest) = (REST.0, SLOW_REST.0);
    let mut timer = pin!(None);
    let mut known: Option<Waker> = None;
    poll_fn(|cx| {
        if !known.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            shared.work.register(cx.waker());
            known = Some(cx.waker().clone());
        }
        loop {
            if shared.is_stopped() {
                queues::end_scrubs(&shared);
                return Poll::Ready(());
            }
            turns = turns.wrapping_add(1);
            let attentive = turns.is_multiple_of(ATTENTION_TURNS);
            let progress = turn(&shared, &mut active, attentive);
            let scrubbing =
                shared.queues.scrubbing.load(Ordering::Acquire) && queues::sweep_scrubs(&shared);
            if attentive && active != 0 && shared.quarantine.load(Ordering::Acquire) != 0 {
                // Traffic that never ends must not keep late markers from being seen.
                sweep_quarantine(&shared);
            }
            if active != 0 && progress {
                // Let the tasks that were woken run first.
                cx.waker().wake_by_ref();
                rest = REST.0;
                return Poll::Pending;
            }
            if active != 0 || scrubbing {
                let longest = if active != 0 { REST.1 } else { SLOW_REST.0 };
                timer.set(Some(shared.platform.sleep(rest.min(longest))));
                rest = (rest * 2).min(longest);
                slow_rest = SLOW_REST.0;
            } else if shared.quarantine.load(Ordering::Acquire) != 0 {
                // Queues that drain have a deadline; late markers can wait longer and longer.
                let draining = queues::reap(&shared);
                let kept = sweep_quarantine(&shared);
                let pause = if draining { SLOW_REST.0 } else { slow_rest };
                timer.set((draining || kept).then(|| shared.platform.sleep(pause)));
                slow_rest = (slow_rest * 2).min(SLOW_REST.1);
            } else if queues::reap(&shared) {
                timer.set(Some(shared.platform.sleep(SLOW_REST.0)));
            } else {
                if timer.is_some() {
                    timer.set(None);
                    (rest, slow_rest) = (REST.0, SLOW_REST.0);
                }
                if shared.has_work() {
                    continue;
                }
                return Poll::Pending;
            }
            let over = match timer.as_mut().as_pin_mut() {
                Some(timer) => timer.poll(cx).is_ready(),
                None => false,
            };
            if !over && !shared.has_work() {
                return Poll::Pending;
            }
        }
    })
    .await;
}

/// One turn; answers whether something ended. `active` are the ports with batches in flight; those
/// without progress are looked after where no other has any, or with `attentive`.
#[inline(always)]
fn turn<P: Platform>(shared: &Shared<P>, active: &mut u64, attentive: bool) -> bool {
    let dirty = shared.dirty.swap(0, Ordering::AcqRel);
    if dirty != 0 {
        shared.platform.write_barrier();
    }
    let mut progress = false;
    let mut still_active = 0;
    for number in bits(*active | dirty) {
        let swept = announce_and_sweep(shared, number);
        progress |= swept.progress;
        still_active |= u64::from(swept.active) << number;
    }
    *active = still_active;
    if still_active != 0 && (!progress || attentive) {
        attend(shared, still_active);
    }
    progress
}

/// What a look at one ring gave.
struct Swept {
    /// Batches ended.
    progress: bool,
    /// Batches are in flight, the ring drains, or somebody is called until one comes.
    active: bool,
}

/// Announces what was staged on one ring, then ends what the device has finished.
#[inline(always)]
fn announce_and_sweep<P: Platform>(shared: &Shared<P>, number: usize) -> Swept {
    let nothing = Swept { progress: false, active: false };
    let Some(cell) = shared.ports.get(number) else { return nothing };
    cell.with(|port| {
        let Some(ring) = port.ring() else { return nothing };
        let announced = ring.ring_doorbells(&shared.registers);
        if announced != 0 {
            trace_start(shared, ring.name, announced);
        }
        ring.in_passing = 0;
        let progress = sweep(shared, ring, is_traced(shared));
        let active = ring.is_busy() || matches!(ring.phase, Phase::Draining { .. });
        // Nothing that ends later will call whoever waits for an idle ring.
        let calling = !active && port.is_waited_for();
        if progress || calling {
            port.call();
        }
        Swept { progress, active: active || calling }
    })
}

/// Whether anybody wants to know what the data path does: one look for all of its trace points.
#[inline(always)]
pub(super) fn is_traced<P: Platform>(shared: &Shared<P>) -> bool {
    use TraceKind::{DmaAckCompleted, DmaMemcpy, DmaQueueCopyStart};
    shared.records.trace.is_any_on([DmaAckCompleted, DmaMemcpy, DmaQueueCopyStart])
}

/// Announces what was staged on one ring without waiting for the end of the turn. The caller marks
/// the port dirty, so that the task sees to what does not end at once.
#[inline(always)]
pub(super) fn ring_now<P: Platform>(shared: &Shared<P>, ring: &mut Ring, is_traced: bool) {
    shared.platform.write_barrier();
    let announced = ring.ring_doorbells(&shared.registers);
    if is_traced {
        trace_start(shared, ring.name, announced);
    }
}

/// One look at a ring right behind the doorbells, by whoever rang them: what the device has finished
/// by then needs no turn of the task. After [`IN_PASSING`] of them the task has to have its turn,
/// and with it every other. Answers whether every batch of the ring has ended, and well.
#[inline(always)]
pub(super) fn sweep_in_passing<P: Platform>(
    shared: &Shared<P>,
    port: &mut Port,
    is_traced: bool,
) -> bool {
    let Some(ring) = port.ring() else { return false };
    if ring.in_passing >= IN_PASSING || !sweep(shared, ring, is_traced) {
        return false;
    }
    ring.in_passing += 1;
    let are_over = ring.has_ended_all();
    port.call();
    are_over
}

/// As [`sweep_in_passing`], from where it is rare.
#[inline(never)]
pub(super) fn look_in_passing<P: Platform>(
    shared: &Shared<P>,
    port: &mut Port,
    is_traced: bool,
) -> bool {
    sweep_in_passing(shared, port, is_traced)
}

/// Ends what the device has finished on one ring; answers whether that was anything.
#[inline(always)]
fn sweep<P: Platform>(shared: &Shared<P>, ring: &mut Ring, is_traced: bool) -> bool {
    let retired = ring.sweep();
    if is_traced && retired != 0 {
        trace_end(shared, ring.name, retired);
    }
    shared.release_fill(ring);
    retired != 0
}

/// Descriptors were announced, as many on each side.
#[cold]
fn trace_start<P: Platform>(shared: &Shared<P>, name: RingName, announced: u32) {
    let event = TraceEvent::DmaQueueCopyStart {
        engine: name.engine.number().into(),
        queue: name.queue.number().into(),
        tx_count: announced.into(),
        rx_count: announced.into(),
    };
    shared.records.trace.emit(event, || shared.platform.now());
}

/// Batches ended.
#[cold]
fn trace_end<P: Platform>(shared: &Shared<P>, name: RingName, retired: u32) {
    let event = TraceEvent::DmaAckCompleted {
        engine: name.engine.number().into(),
        queue: name.queue.number().into(),
        count: retired.into(),
    };
    shared.records.trace.emit(event, || shared.platform.now());
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
    cell.with(|port| {
        // What a reset holds is the business of its drive, which has a deadline of its own.
        let held = port.is_held();
        let Some(ring) = port.ring() else { return Attention::Wait };
        if held && !matches!(ring.phase, Phase::Draining { .. }) {
            return Attention::Wait;
        }
        let attention = ring.attend(look);
        shared.release_fill(ring);
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
        attention
    })
}

/// Lets go of what late markers have proven; answers whether anything is left.
fn sweep_quarantine<P: Platform>(shared: &Shared<P>) -> bool {
    let set = shared.quarantine.load(Ordering::Acquire);
    for number in bits(set) {
        let Some(cell) = shared.ports.get(number) else { continue };
        cell.with(|port| {
            let ordered = port.stage_barrier(shared.hal.has_strong_order());
            let Some(ring) = port.ring() else { return };
            if ordered {
                shared.dirty.fetch_or(1 << number, Ordering::AcqRel);
            }
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
