//! The control task of a device: the ordered end of every client (specification 05 §10.2, §10.3).

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::future::{Future, poll_fn};
use core::task::Poll;
use core::time::Duration;

use axon_ports::ClientSlot;

use crate::DevicePeers;
use crate::open::Shared;
use crate::table::Table;
use crate::table::{Access, Touched};

/// After the queues were parked: what the hardware had fetched before is over.
const AFTER_PARKING: Duration = Duration::from_millis(10);

/// Cleans up after clients that left, all 16 slots side by side: a client whose copies hang holds
/// up nobody else.
pub struct ControlTask<D> {
    shared: Arc<Shared<D>>,
}

impl<D: DevicePeers> ControlTask<D> {
    pub(crate) fn new(shared: Arc<Shared<D>>) -> Self {
        ControlTask { shared }
    }

    /// Runs until the device is removed and the clean-ups under way are over.
    pub async fn run(self) {
        // Whoever wakes the task, only slots that are closing are looked at.
        let mut ends: [_; ClientSlot::COUNT] =
            core::array::from_fn(|at| Box::pin(self.serve(at as u32)));
        let mut late = Box::pin(self.late_closes());
        poll_fn(|cx| {
            self.shared.control.register(cx.waker());
            let _ = late.as_mut().poll(cx);
            let closing = self.shared.look(Table::closing_slots);
            for (at, end) in ends.iter_mut().enumerate() {
                if closing >> at & 1 != 0 {
                    let _ = end.as_mut().poll(cx);
                }
            }
            match self.shared.is_over() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Last closes that no client was left for: an open that waited was the last and was given up.
    async fn late_closes(&self) {
        loop {
            poll_fn(|_| match self.shared.note(Table::begin_late_close) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
            self.shared.peers.last_client_gone().await;
            self.shared.change(Table::end_last_close);
        }
    }

    /// The ends of all clients that one slot ever has; polled while the slot is closing.
    async fn serve(&self, at: u32) {
        let Some(slot) = ClientSlot::new(at) else { return };
        loop {
            let closing =
                poll_fn(|_| match self.shared.look(|table| table.closing(slot).cloned()) {
                    Some(access) => Poll::Ready(access),
                    None => Poll::Pending,
                });
            let access: Arc<Access> = closing.await;
            self.end_of_client(&access).await;
        }
    }

    /// Steps 4 to 12 of specification 05 §10.2, without those that have nothing to end. Windows and
    /// exports (step 10) go with the memory that they show.
    async fn end_of_client(&self, access: &Access) {
        let (client, slot) = (access.client(), access.slot());
        let peers = &self.shared.peers;
        peers.leaving(client);
        if access.has_touched(Touched::Resets) {
            peers.resolve_resets(client).await;
        }
        if access.has_touched(Touched::Transfers) {
            peers.drain(client).await;
            peers.pause(AFTER_PARKING).await;
        }
        if access.has_touched(Touched::Cores) {
            peers.release_cores(client).await;
        }
        if access.has_touched(Touched::Counters) {
            peers.fold_counters(client);
        }
        if access.has_touched(Touched::Transfers) {
            peers.sweep(client, slot).await;
        }
        if access.has_touched(Touched::Transfers) || access.has_touched(Touched::Counters) {
            self.shared.note(Table::leaves_something);
        }
        if self.shared.note(Table::begin_last_close) {
            peers.last_client_gone().await;
        }
        self.shared.change(|table| table.free(slot));
        log::trace!("{client} left {slot}");
    }
}

#[cfg(test)]
mod tests {
    use core::pin::pin;

    use axon_ports::reset::DeviceState;

    use crate::gates::Command;
    use crate::testing::{Bench, client, now, poll};
    use crate::{ClientError, ClientInfo, Touched};

    const EVERYTHING: [Touched; 4] =
        [Touched::Resets, Touched::Transfers, Touched::Cores, Touched::Counters];

    #[test]
    fn st_e09_three_handles_are_cleaned_up_once() {
        let mut bench = Bench::new(DeviceState::Ready);
        let [a, b, c] = [1; 3].map(|n| now(bench.clients.open(client(n))).unwrap());
        let access = a.access().clone();
        EVERYTHING.into_iter().for_each(|what| access.touch(what));
        assert_eq!(bench.peers.calls(), ["entered client1"]);
        drop((a, b));
        bench.turn();
        assert_eq!(bench.peers.calls(), [""; 0]);
        assert_eq!(bench.clients.open_count(), 1);
        assert_eq!(access.check(), Ok(()));

        drop(c);
        assert_eq!(access.check(), Err(ClientError::NotAttached), "at once, before the clean-up");
        bench.turn();
        assert_eq!(
            bench.peers.calls(),
            [
                "leaving client1",
                "resets client1",
                "drain client1",
                "pause 10ms",
                "cores client1",
                "counters client1",
                "sweep client1 slot0",
                "last"
            ]
        );
        assert_eq!(bench.clients.open_count(), 0);
    }

    #[test]
    fn what_a_client_never_touched_is_not_visited() {
        let steps = [
            (Touched::Resets, &["resets client1"][..]),
            (Touched::Transfers, &["drain client1", "pause 10ms", "sweep client1 slot0", "last"]),
            (Touched::Cores, &["cores client1"]),
            (Touched::Counters, &["counters client1", "last"]),
        ];
        for (what, visited) in steps {
            let mut bench = Bench::new(DeviceState::Ready);
            let attachment = now(bench.clients.open(client(1))).unwrap();
            attachment.access().enter(Command::MemAllocV2, what).unwrap();
            drop(attachment);
            bench.turn();
            let expected = [&["entered client1", "leaving client1"], visited].concat();
            assert_eq!(bench.peers.calls(), expected, "{what:?}");
        }
    }

    #[test]
    fn a_client_that_used_nothing_is_gone_with_its_last_handle() {
        let bench = Bench::new(DeviceState::Ready);
        let [a, b] = [1; 2].map(|n| now(bench.clients.open(client(n))).unwrap());
        let access = a.access().clone();
        drop(a);
        assert_eq!(access.check(), Ok(()));
        drop(b);
        // The control task did not run.
        assert_eq!(access.check(), Err(ClientError::NotAttached));
        assert_eq!((bench.clients.open_count(), bench.clients.list(&mut [None; 16])), (0, 0));
        assert_eq!(bench.peers.calls(), ["entered client1", "leaving client1"]);
        now(bench.clients.left(&access));
    }

    #[test]
    fn what_others_left_is_seen_to_by_the_last_one_even_if_that_used_nothing() {
        let mut bench = Bench::new(DeviceState::Ready);
        let [a, b] = [1, 2].map(|n| now(bench.clients.open(client(n))).unwrap());
        a.access().touch(Touched::Transfers);
        drop(a);
        bench.turn();
        bench.peers.calls();
        drop(b);
        assert_eq!(bench.clients.open_count(), 1, "the control task was woken for its end");
        bench.turn();
        assert_eq!(bench.peers.calls(), ["leaving client2", "last"]);
        assert_eq!(bench.clients.open_count(), 0);
    }

    #[test]
    fn the_release_part_comes_also_where_the_last_one_was_an_open_that_gave_up() {
        let mut bench = Bench::new(DeviceState::Ready);
        let attachment = now(bench.clients.open(client(1))).unwrap();
        attachment.access().touch(Touched::Transfers);
        bench.peers.set_state(DeviceState::Reset);
        {
            let clients = bench.clients.clone();
            let mut waiting = pin!(clients.open(client(2)));
            assert!(poll(waiting.as_mut()).is_pending());
            drop(attachment);
            bench.turn();
            assert!(!bench.peers.calls().contains(&"last".into()), "somebody is about to come in");
        }
        bench.turn();
        assert_eq!(bench.peers.calls(), ["last"]);
        bench.turn();
        assert!(bench.peers.calls().is_empty(), "once");
    }

    #[test]
    fn an_end_that_comes_in_between_finds_the_note_of_a_refused_call() {
        let mut bench = Bench::new(DeviceState::Ready);
        let attachment = now(bench.clients.open(client(1))).unwrap();
        let access = attachment.access().clone();
        access.touch(Touched::Cores);
        drop(attachment);
        assert_eq!(
            access.enter(Command::MemAllocV2, Touched::Transfers),
            Err(ClientError::NotAttached)
        );
        bench.turn();
        assert!(bench.peers.calls().contains(&"drain client1".into()));
    }

    #[test]
    fn the_release_part_waits_for_the_last_client() {
        let mut bench = Bench::new(DeviceState::Ready);
        let [a, b] = [1, 2].map(|n| now(bench.clients.open(client(n))).unwrap());
        a.access().touch(Touched::Transfers);
        drop(a);
        bench.turn();
        assert!(!bench.peers.calls().contains(&"last".into()));
        drop(b);
        bench.turn();
        assert!(bench.peers.calls().contains(&"last".into()));
    }

    #[test]
    fn st_d22_a_hanging_client_holds_up_nobody_else() {
        let mut bench = Bench::new(DeviceState::Ready);
        let [a, b] = [1, 2].map(|n| now(bench.clients.open(client(n))).unwrap());
        a.access().touch(Touched::Transfers);
        bench.peers.0.lock().unwrap().hanging.push(client(1));
        drop((a, b));
        bench.turn();
        let mut rows = [None; 16];
        assert_eq!(bench.clients.list(&mut rows), 1);
        let Some(ClientInfo { client: left, handles: 1, closing: true, .. }) = rows[0] else {
            panic!("{rows:?}")
        };
        assert_eq!(left, client(1));

        // The same client comes back: it waits for its own clean-up.
        let clients = bench.clients.clone();
        let mut again = pin!(clients.open(client(1)));
        assert!(poll(again.as_mut()).is_pending());
        bench.peers.0.lock().unwrap().hanging.clear();
        bench.turn();
        assert!(poll(again.as_mut()).is_ready());
    }

    #[test]
    fn who_waits_for_the_end_of_a_client_waits_for_its_slot() {
        let mut bench = Bench::new(DeviceState::Ready);
        let attachment = now(bench.clients.open(client(1))).unwrap();
        let access = attachment.access().clone();
        access.touch(Touched::Cores);
        now(bench.clients.left(&access));
        drop(attachment);
        {
            let mut dropped = pin!(bench.clients.left(&access));
            assert!(poll(dropped.as_mut()).is_pending());
        }
        let clients = bench.clients.clone();
        let mut left = pin!(clients.left(&access));
        assert!(poll(left.as_mut()).is_pending());
        bench.turn();
        assert!(poll(left.as_mut()).is_ready());
        assert_eq!(bench.clients.open_count(), 0);
    }
}
