//! Lists of tasks that wait for something: woken all at once, or one after another in order.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::future::{Future, poll_fn};
use core::task::{Poll, Waker};

use crate::Error;

/// Lets every other task that is ready run first.
pub(crate) fn yield_now() -> impl Future<Output = ()> {
    let mut yielded = false;
    poll_fn(move |cx| {
        if core::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Tasks that are all woken when something changes.
#[derive(Default)]
pub(crate) struct WakerList(Vec<Waker>);

impl WakerList {
    pub(crate) const fn new() -> Self {
        WakerList(Vec::new())
    }

    /// Notes a task once. Without memory for it the task is woken at once and asks again, which is
    /// slow but loses nobody.
    pub(crate) fn register(&mut self, waker: &Waker) {
        if self.0.iter().any(|known| known.will_wake(waker)) {
            return;
        }
        if self.0.try_reserve(1).is_err() {
            waker.wake_by_ref();
            return;
        }
        self.0.push(waker.clone());
    }

    /// Wakes and forgets every task.
    pub(crate) fn wake_all(&mut self) {
        while let Some(waker) = self.0.pop() {
            waker.wake();
        }
    }
}

/// Place in a [`Queue`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket(u64);

struct Waiting {
    ticket: u64,
    waker: Waker,
    /// Woken since it came to the front.
    called: bool,
}

/// Tasks that take turns, first come first served.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Waiting>,
    next: u64,
}

impl Queue {
    /// Whether it is the turn of the holder of `ticket`, or of a newcomer.
    #[inline]
    pub(crate) fn is_turn(&self, ticket: Option<Ticket>) -> bool {
        match self.waiting.front() {
            None => true,
            Some(front) => ticket == Some(Ticket(front.ticket)),
        }
    }

    /// Queues a task, or renews the waker of one that has a place.
    pub(crate) fn wait(&mut self, ticket: Option<Ticket>, waker: &Waker) -> Result<Ticket, Error> {
        if let Some(Ticket(ticket)) = ticket
            && let Some(place) = self.waiting.iter_mut().find(|place| place.ticket == ticket)
        {
            place.waker.clone_from(waker);
            place.called = false;
            return Ok(Ticket(ticket));
        }
        self.waiting.try_reserve(1).map_err(|_| Error::NoRecords)?;
        let ticket = self.next;
        self.next = self.next.wrapping_add(1);
        self.waiting.push_back(Waiting { ticket, waker: waker.clone(), called: false });
        Ok(Ticket(ticket))
    }

    /// Gives a place up, because its turn came or its holder is gone.
    pub(crate) fn leave(&mut self, Ticket(ticket): Ticket) {
        self.waiting.retain(|place| place.ticket != ticket);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Wakes the task whose turn it is. One that was woken before and did not come loses its place:
    /// whoever calls until somebody comes gets past futures that nobody polls.
    pub(crate) fn call(&mut self) {
        while self.waiting.front().is_some_and(|front| front.called) {
            self.waiting.pop_front();
        }
        if let Some(front) = self.waiting.front_mut() {
            front.called = true;
            front.waker.wake_by_ref();
        }
    }

    /// Wakes every task; they keep their places.
    pub(crate) fn call_all(&mut self) {
        for place in &self.waiting {
            place.waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::task::Wake;
    use core::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn waker() -> (Waker, Arc<Count>) {
        let count = Arc::new(Count::default());
        (Waker::from(count.clone()), count)
    }

    #[test]
    fn turns_are_taken_in_order() {
        let mut queue = Queue::default();
        let (first, woken) = waker();
        let (second, _) = waker();
        assert!(queue.is_turn(None));
        let a = queue.wait(None, &first).unwrap();
        let b = queue.wait(None, &second).unwrap();
        assert!(queue.is_turn(Some(a)) && !queue.is_turn(Some(b)) && !queue.is_turn(None));
        queue.call();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        queue.leave(a);
        assert!(queue.is_turn(Some(b)));
        queue.leave(b);
        assert!(queue.is_turn(None) && queue.is_empty());
    }

    #[test]
    fn who_does_not_come_loses_the_turn() {
        let mut queue = Queue::default();
        let (first, _) = waker();
        let (second, woken) = waker();
        let a = queue.wait(None, &first).unwrap();
        let b = queue.wait(None, &second).unwrap();
        queue.call();
        assert_eq!(queue.wait(Some(a), &first).unwrap(), a, "still there, not ready yet");
        queue.call();
        queue.call();
        assert!(queue.is_turn(Some(b)));
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_ne!(queue.wait(Some(a), &first).unwrap(), a, "back at the end");
    }

    #[test]
    fn a_list_knows_each_task_once() {
        let mut list = WakerList::new();
        let (waker, woken) = waker();
        list.register(&waker);
        list.register(&waker);
        list.wake_all();
        list.wake_all();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    }
}
