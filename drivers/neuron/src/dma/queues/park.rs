//! The ends of queues: release, client drop, reset, removal (specification 03 §15, 05 §11.4).

use axon_platform::{MmioWindow, Platform};
use axon_ports::{ClientId, CoreMap};
use core::mem::forget;
use core::sync::atomic::Ordering;
use core::time::Duration;

use super::table::{Entry, Holding, Leaving, Place, Table, Then};
use super::{Dma, claims};
use crate::CancelCause;
use crate::Error;
use crate::dma::DRAIN;
use crate::shared::Shared;

/// Pause between two looks at queues that drain.
const DRAIN_LOOK: Duration = Duration::from_micros(50);

/// Pauses the bound queues that `which` names. A ring of sequencers is not touched.
pub(super) fn begin<P: Platform>(
    shared: &Shared<P>,
    table: &mut Table,
    which: impl Fn(&Entry) -> bool,
    then: impl Fn(&Entry) -> Then,
) {
    let until = shared.platform.now() + DRAIN;
    for entry in table.entries.iter_mut().filter(|entry| which(entry)) {
        let after = then_of(entry, then(entry));
        let Some(bound) = entry.bound() else { continue };
        if !bound.sequencer {
            bound.hardware.pause(&shared.registers);
        }
        let until = entry.leaving.map_or(until, |leaving| leaving.until);
        entry.leaving = Some(Leaving { then: after, until });
    }
}

/// What a queue becomes: one that was to be free has nobody left to be told anything, and a scrub is
/// told by other means.
fn then_of(entry: &Entry, then: Then) -> Then {
    match entry.leaving {
        _ if entry.is_any_scrub() => Then::Free,
        Some(Leaving { then: Then::Free, .. }) => Then::Free,
        _ => then,
    }
}

/// Settles the queues that have drained or have had their time; answers whether any is left.
pub(super) fn look<P: Platform>(shared: &Shared<P>, which: impl Fn(&Entry) -> bool) -> bool {
    let gone = shared.check_alive().is_err();
    let (now, dummy) = (shared.platform.now(), shared.dummy());
    shared.queues.with(|table| {
        let mut at = 0;
        let mut left = false;
        while let Some(entry) = table.entries.get_mut(at) {
            let place = entry.place;
            let leaving = entry.leaving.filter(|_| which(entry));
            let (Some(Leaving { until, .. }), Some(bound)) = (leaving, entry.bound()) else {
                at += 1;
                continue;
            };
            let drained = !gone && !bound.sequencer && is_drained(bound, &shared.registers);
            if drained || gone || bound.sequencer || now >= until {
                let before = table.entries.len();
                table.settle(place, drained, &shared.registers, dummy);
                at += usize::from(table.entries.len() == before);
            } else {
                left = true;
                at += 1;
            }
        }
        left
    })
}

fn is_drained<W: MmioWindow>(bound: &super::table::Bound, registers: &W) -> bool {
    bound.hardware.is_drained(registers)
}

/// Somebody looks after queues that drain. Once that ends, the completion task does.
struct Attended<'a, P: Platform>(&'a Shared<P>);

impl<P: Platform> Drop for Attended<'_, P> {
    fn drop(&mut self) {
        self.0.queues.leaving.store(true, Ordering::Release);
        self.0.work.wake();
    }
}

impl<P: Platform> Dma<P> {
    /// Pauses, drains and parks the bound queues that `which` names: at most 10 ms for all. Where
    /// the future is dropped, the completion task carries on.
    pub(super) async fn unbind(
        &self,
        which: impl Fn(&Entry) -> bool,
        then: impl Fn(&Entry) -> Then,
    ) {
        self.0.queues.with(|table| begin(&self.0, table, &which, then));
        let attended = Attended(&self.0);
        while look(&self.0, &which) {
            self.0.platform.sleep(DRAIN_LOOK).await;
        }
        forget(attended);
    }

    /// As [`Dma::release`], for an owner that does not wait: what has not drained now is looked at
    /// by the completion task.
    pub fn let_go(&self, client: ClientId, engine: u32, queue: u32) {
        let Ok(place) = Place::new(engine, queue) else { return };
        let ours =
            |entry: &Entry| entry.client == client && entry.place == place && !entry.is_any_scrub();
        self.0.queues.with(|table| begin(&self.0, table, ours, Then::after_release));
        if look(&self.0, ours) {
            drop(Attended(&self.0));
        }
    }

    /// Takes everything from a client that is gone: its queues are parked, what it claimed is free
    /// (specification 03 §15 steps 3 and 4).
    pub async fn park(&self, client: ClientId) {
        self.unbind(|entry| entry.client == client, |_| Then::Free).await;
        self.0.queues.with(|table| {
            let until = self.0.platform.now();
            table.entries.retain_mut(|entry| {
                let copies = matches!(entry.holding, Holding::Copy);
                if entry.client == client && copies {
                    entry.leaving = Some(Leaving { then: Then::Free, until });
                    claims::refuse(
                        &self.0,
                        entry.place,
                        Error::Cancelled { why: CancelCause::Closed },
                    );
                }
                entry.client != client || copies
            });
            table.forget_rings_of(client);
        });
        claims::reap(&self.0);
    }
}

/// Ports of the cores in the map that clients have, as a mask.
pub(crate) fn claimed_ports<P: Platform>(shared: &Shared<P>, map: CoreMap) -> u64 {
    shared.queues.with(|table| {
        let copies = table
            .entries
            .iter()
            .filter(|entry| matches!(entry.holding, Holding::Copy) && map.contains(entry.core));
        let numbers = copies.filter_map(|entry| claims::port_of(shared, entry.place));
        numbers.fold(0, |mask, number| mask | 1 << (number % 64))
    })
}

/// Stage 2 of a reset, first half: the queues of the cores are paused, what was claimed is gone.
pub(crate) fn begin_close<P: Platform>(shared: &Shared<P>, map: CoreMap) {
    shared.queues.with(|table| {
        let covered = |entry: &Entry| map.contains(entry.core);
        begin(shared, table, covered, |_| Then::Stale);
        let until = shared.platform.now();
        for entry in table.entries.iter_mut().filter(|entry| covered(entry)) {
            match entry.holding {
                Holding::Copy => {
                    entry.leaving = Some(Leaving { then: then_of(entry, Then::Stale), until });
                }
                Holding::Service(None) => entry.holding = Holding::Stale,
                _ => {}
            }
        }
    });
}

/// Stage 2, second half: parked where drained, else in quarantine. What is left is called for
/// again, at most 10 ms after the first half.
pub(crate) async fn close<P: Platform>(shared: &Shared<P>, map: CoreMap) {
    while look(shared, |entry| map.contains(entry.core)) {
        shared.platform.sleep(DRAIN_LOOK).await;
    }
}

/// Stage 5: engines that the reset covers are quiet.
pub(crate) fn release<P: Platform>(shared: &Shared<P>, map: CoreMap) {
    shared.queues.with(|table| {
        table.release_quarantine(|engine| shared.hal.reset_covers(map, engine));
    });
}

/// Stage 8: who still waits for a ring that the reset took is told, and the ring goes.
pub(crate) fn settle_reset<P: Platform>(shared: &Shared<P>) {
    shared.queues.with(|table| {
        for entry in &table.entries {
            if !matches!(entry.holding, Holding::Copy) || entry.leaving.is_none() {
                continue;
            }
            claims::refuse(shared, entry.place, Error::Stale { core: entry.core });
            claims::let_go_of(shared, entry.place);
        }
    });
    claims::reap(shared);
}
