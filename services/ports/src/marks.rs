//! How many cores of the host are reserved: written by the reservation task, watched by the pod
//! task, so that neither needs the other (specification 05 §14.3, §22.1).

use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Context, Poll};

use embassy_sync::waitqueue::AtomicWaker;

/// The count of reserved cores, and how often it has returned to zero.
///
/// A watcher that was away still learns that the count has been zero in between.
pub struct Marks {
    count: AtomicU32,
    emptied: AtomicU32,
    watcher: AtomicWaker,
}

impl Marks {
    /// Nothing is reserved.
    pub const fn new() -> Self {
        Marks { count: AtomicU32::new(0), emptied: AtomicU32::new(0), watcher: AtomicWaker::new() }
    }

    /// Reserved cores now.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Reservation task: cores were reserved; so many are now.
    pub fn reserved(&self, count: u32) {
        self.count.store(count, Ordering::Release);
    }

    /// Reservation task: cores were given back; so many are left.
    pub fn given_back(&self, left: u32) {
        self.count.store(left, Ordering::Release);
        if left == 0 {
            self.emptied.fetch_add(1, Ordering::AcqRel);
            self.watcher.wake();
        }
    }

    /// How often the count has returned to zero.
    pub fn emptied(&self) -> u32 {
        self.emptied.load(Ordering::Acquire)
    }

    /// Watcher: ready once the count has returned to zero since `seen`, which is brought up to date.
    /// There is one watcher.
    pub fn poll_emptied(&self, seen: &mut u32, cx: &Context<'_>) -> Poll<()> {
        self.watcher.register(cx.waker());
        let emptied = self.emptied();
        if emptied == *seen {
            return Poll::Pending;
        }
        *seen = emptied;
        Poll::Ready(())
    }
}

impl Default for Marks {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use core::task::Waker;

    use super::*;

    #[test]
    fn a_watcher_learns_of_every_return_to_zero() {
        let marks = Marks::new();
        let mut seen = marks.emptied();
        let cx = Context::from_waker(Waker::noop());
        marks.reserved(3);
        marks.given_back(1);
        assert!(marks.poll_emptied(&mut seen, &cx).is_pending());
        marks.given_back(0);
        marks.reserved(2);
        assert!(marks.poll_emptied(&mut seen, &cx).is_ready(), "though it is taken again");
        assert!(marks.poll_emptied(&mut seen, &cx).is_pending());
        assert_eq!(marks.count(), 2);
    }
}
