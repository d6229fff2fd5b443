//! Host-transfer rings around a reset: fence, close, release, re-initialise (specification 05 §11.4
//! stages 0, 2, 5 and 6).

use alloc::boxed::Box;
use core::sync::atomic::Ordering;
use core::time::Duration;

use axon_platform::Platform;
use axon_ports::telemetry::TraceEvent;
use axon_ports::{CoreId, CoreMap, MemoryPort};

use super::drive::cores_of;
use crate::dma::{DRAIN, Ring, RingMemory, RingName, engine, queues};
use crate::hal::Engine;
use crate::shared::{Shared, bits};
use crate::state::CoreState;
use crate::wake::yield_now;
use crate::{CancelCause, Error};

/// Most time that transfers get before a reset.
const GRACE: Duration = Duration::from_secs(1);
/// How often a fence looks whether the rings are empty.
const FENCE_LOOK: Duration = Duration::from_millis(1);
const DRAIN_LOOK: Duration = Duration::from_micros(50);

/// Ports that a reset of the map concerns, as a mask: default ports of its cores, and those that a
/// client has a ring on. A stage asks once.
fn ports<P: Platform>(shared: &Shared<P>, map: CoreMap) -> u64 {
    let claimed = queues::claimed_ports(shared, map);
    let bound = |&number: &usize| {
        shared.ports.get(number).is_some_and(|cell| cell.with(|port| port.ring().is_some()))
    };
    let others = bits(claimed).filter(bound);
    others.fold(defaults(shared, map), |mask, number| mask | 1 << number)
}

/// Default ports of the cores in the map, as a mask.
fn defaults<P: Platform>(shared: &Shared<P>, map: CoreMap) -> u64 {
    cores_of(&shared.hal, map).fold(0, |mask, core| mask | 1 << (shared.default_port(core) % 64))
}

/// Stage 0: new work waits; what runs gets its budget, at most 1 s.
pub(super) async fn fence<P: Platform>(shared: &Shared<P>, map: CoreMap) {
    let concerned = ports(shared, map);
    let now = shared.platform.now();
    let mut grace = Duration::ZERO;
    for number in bits(concerned) {
        if let Some(cell) = shared.ports.get(number) {
            cell.with(|port| {
                port.set_held(true);
                if let Some(ring) = port.ring() {
                    grace = grace.max(ring.remaining_budget(&shared.hal, now));
                }
            });
        }
    }
    let deadline = now + grace.min(GRACE);
    while !shared.is_stopped() && shared.platform.now() < deadline {
        let busy = bits(concerned).any(|number| {
            shared.ports.get(number).is_some_and(|cell| {
                cell.with(|port| port.ring().is_some_and(|ring| ring.is_busy()))
            })
        });
        if !busy {
            return;
        }
        let next = shared.platform.now() + FENCE_LOOK;
        shared.platform.sleep_until(next.min(deadline)).await;
    }
}

/// Stage 2: pauses the rings and waits until nothing is under way, at most 10 ms for all of them.
/// What has not ended is caught: suspended where it will be issued again, else cancelled.
pub(super) async fn close<P: Platform>(shared: &Shared<P>, map: CoreMap) {
    // Once more: a queue may have been taken just before the fence.
    let concerned = ports(shared, map);
    for number in bits(concerned) {
        if let Some(cell) = shared.ports.get(number) {
            cell.with(|port| {
                if let Some(ring) = port.ring() {
                    ring.pause(&shared.registers);
                }
            });
        }
    }
    queues::begin_close(shared, map);
    let deadline = shared.platform.now() + DRAIN;
    // Only what the driver itself has is issued again.
    let replay = shared.hal.tables().host_transfer.replay;
    let defaults = defaults(shared, map);
    // What the drive re-initialises whatever it was need not be asked how it is. One that fails leaves
    // the device INVALID: only another reset of all of it lets anybody in again.
    let covers_all = map.is_device() && !shared.hal.no_reset();
    loop {
        let last = shared.platform.now() >= deadline || shared.is_stopped();
        let mut open = false;
        for number in bits(concerned) {
            if let Some(cell) = shared.ports.get(number) {
                open |= cell.with(|port| {
                    let Some(ring) = port.ring() else { return false };
                    let replay = replay && defaults & 1 << number != 0;
                    let open = ring.close(&shared.registers, last, replay, covers_all);
                    if ring.quarantined() > 0 {
                        shared.quarantine.fetch_or(1 << number, Ordering::AcqRel);
                    }
                    shared.release_fill(ring);
                    port.set_draining(false);
                    open
                });
            }
        }
        if !open {
            break;
        }
        shared.platform.sleep(DRAIN_LOOK).await;
    }
    queues::close(shared, map).await;
}

/// Stage 5: what was in quarantine under a covered engine can no longer be written.
pub(super) fn release<P: Platform>(shared: &Shared<P>, map: CoreMap) {
    queues::release(shared, map);
    shared.links.release(&shared.hal, map);
    for cell in &shared.ports {
        cell.with(|port| {
            let Some(ring) = port.ring() else { return };
            if shared.hal.reset_covers(map, ring.name.engine) {
                ring.release_quarantine();
            }
            if shared.hal.reset_cures(map, ring.name.engine) {
                ring.needs_reset = false;
            }
        });
    }
}

/// Stage 6: engines and default rings of the cores in the map, then what has to be issued again.
pub(super) async fn initialise<P: Platform, M: MemoryPort>(
    shared: &Shared<P>,
    memory: &M,
    map: CoreMap,
) -> Result<(), Error> {
    for core in cores_of(&shared.hal, map) {
        for engine in shared.hal.engines_of(core) {
            initialise_engine(shared, &engine);
            // Thousands of register writes: let others run in between.
            yield_now().await;
        }
        let Some((engine, queue)) = shared.hal.host_transfer(core) else { continue };
        // A shared engine is initialised once, with its first core.
        if queue.number() == 0 && shared.hal.reset_initialises(map, engine.id) {
            initialise_engine(shared, &engine);
        }
        let name = RingName { engine: engine.id, queue, core, unit: engine.unit };
        ensure_ring(shared, memory, name).await?;
        program(shared, core);
    }
    // An engine that answers all-ones was not initialised.
    shared.misc_ram(crate::registers::misc_ram::DEVICE_ID).map(drop)
}

fn initialise_engine<P: Platform>(shared: &Shared<P>, engine: &Engine) {
    engine::initialise(&shared.registers, engine, &shared.hal.tables().engine);
    let event = TraceEvent::DmaEngineInit { engine: engine.id.number().into() };
    shared.records.trace.emit(event, || shared.platform.now());
}

/// Makes the ring of a port at its first initialisation; later ones keep its memory, so that no
/// reset can fail for lack of it (03 §3.7).
async fn ensure_ring<P: Platform, M: MemoryPort>(
    shared: &Shared<P>,
    memory: &M,
    name: RingName,
) -> Result<(), Error> {
    let number = usize::from(shared.default_port(name.core));
    let Some(cell) = shared.ports.get(number) else { return Ok(()) };
    if cell.with(|port| port.ring().is_some()) {
        return Ok(());
    }
    let rings = RingMemory::allocate(memory, &shared.hal).await?;
    let ring = Box::new(Ring::new(name, rings)?);
    cell.with(|port| port.bind(ring));
    Ok(())
}

/// Programs the default ring of a core, unless its engine still waits for a reset that covers it.
fn program<P: Platform>(shared: &Shared<P>, core: CoreId) {
    let number = usize::from(shared.default_port(core));
    let Some(cell) = shared.ports.get(number) else { return };
    cell.with(|port| {
        let Some(ring) = port.ring() else { return };
        if ring.needs_reset {
            ring.cancel_suspended(CancelCause::Reset);
            return;
        }
        ring.program(&shared.registers);
        shared.records.trace.emit(ring.trace_init(), || shared.platform.now());
        ring.replay();
        if ring.quarantined() > 0 {
            shared.quarantine.fetch_or(1 << number, Ordering::AcqRel);
        }
    });
}

/// Stage 8: lets new work in again, or says why not.
pub(super) fn reopen<P: Platform>(shared: &Shared<P>, map: CoreMap, device_failed: bool) {
    for core in cores_of(&shared.hal, map) {
        let number = usize::from(shared.default_port(core));
        let Some(cell) = shared.ports.get(number) else { continue };
        cell.with(|port| {
            let mut refused = None;
            if let Some(ring) = port.ring() {
                if ring.needs_reset {
                    let (engine, queue) = (ring.name.engine, ring.name.queue);
                    refused = Some(Error::RingFaulted { engine, queue });
                }
                if device_failed || shared.states.core(core) == CoreState::Down {
                    ring.cancel_suspended(CancelCause::Reset);
                }
                shared.release_fill(ring);
            }
            if shared.states.core(core) == CoreState::Down {
                refused = Some(Error::CoreDown { core });
            }
            if device_failed {
                refused = Some(Error::DeviceFailed);
            }
            port.set_refused(refused);
            port.set_held(false);
            if port.ring().is_some_and(|ring| ring.is_busy()) {
                shared.mark_dirty(number as u8);
            }
        });
    }
    queues::settle_reset(shared);
    if shared.quarantine.load(Ordering::Acquire) != 0 || shared.queues.are_waiting() {
        shared.work.wake();
    }
}
