//! Waiting for a semaphore or an event: the sweeping task reads their registers, nobody else
//! (specification 06 §17.6).

use alloc::vec::Vec;
use core::task::Waker;

use axon_platform::MmioWindow;
use axon_ports::{CoreId, CoreMap};

use crate::registers::misc_ram;
use crate::{CancelCause, Error};

/// What a register is to become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// As a signed number, at least this.
    AtLeast(i32),
    /// Not 0.
    Set,
}

impl Until {
    pub(crate) fn holds(self, value: u32) -> bool {
        match self {
            Until::AtLeast(least) => value as i32 >= least,
            Until::Set => value != 0,
        }
    }
}

/// Somebody who waits for a register.
struct Watch {
    id: u64,
    core: CoreId,
    register: u64,
    until: Until,
    waker: Waker,
    result: Option<Result<u32, Error>>,
}

/// What a sweep came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Swept {
    /// Waits that are over.
    pub over: u32,
    /// A wait would be over if all-ones can be trusted.
    pub all_ones: bool,
}

/// Everybody who waits for a register.
pub(super) struct Watches {
    list: Vec<Watch>,
    last: u64,
    /// Somebody may wait whose register has to be read.
    open: bool,
}

impl Watches {
    pub(super) const fn new() -> Self {
        Watches { list: Vec::new(), last: 0, open: false }
    }

    /// Whether somebody waits whose register has to be read.
    #[inline]
    pub(super) const fn are_open(&self) -> bool {
        self.open
    }

    /// Begins to wait; answers the number under which the result is collected.
    pub(super) fn begin(
        &mut self,
        core: CoreId,
        register: u64,
        until: Until,
        waker: &Waker,
    ) -> Result<u64, Error> {
        self.list.try_reserve(1).map_err(|_| Error::NoRecords)?;
        self.last += 1;
        let id = self.last;
        let waker = waker.clone();
        self.open = true;
        self.list.push(Watch { id, core, register, until, waker, result: None });
        Ok(id)
    }

    /// The result, once; notes the waker where there is none yet.
    pub(super) fn collect(&mut self, id: u64, waker: &Waker) -> Option<Result<u32, Error>> {
        let Some(place) = self.list.iter().position(|watch| watch.id == id) else {
            return Some(Err(Error::Removed));
        };
        let watch = self.list.get_mut(place)?;
        if watch.result.is_none() {
            watch.waker.clone_from(waker);
            return None;
        }
        self.list.swap_remove(place).result
    }

    /// Nobody will collect.
    pub(super) fn forget(&mut self, id: u64) {
        self.list.retain(|watch| watch.id != id);
    }

    /// Reads every register once. All-ones ends a wait only where `trusted`: a device that is gone
    /// answers that everywhere.
    pub(super) fn sweep<W: MmioWindow>(&mut self, window: &W, trusted: bool) -> Swept {
        let mut swept = Swept::default();
        self.open = false;
        for watch in self.list.iter_mut().filter(|watch| watch.result.is_none()) {
            let value = window.read32(watch.register);
            let doubtful = value == misc_ram::ALL_ONES && !trusted;
            if !watch.until.holds(value) || doubtful {
                swept.all_ones |= doubtful;
                self.open = true;
                continue;
            }
            watch.result = Some(Ok(value));
            watch.waker.wake_by_ref();
            swept.over += 1;
        }
        swept
    }

    /// A reset covers these cores.
    pub(super) fn cancel(&mut self, map: CoreMap) {
        let why = CancelCause::Reset;
        self.end(|watch| map.is_device() || map.contains(watch.core), Error::Cancelled { why });
    }

    /// Nothing can be read any more.
    pub(super) fn end_all(&mut self, error: Error) {
        self.end(|_| true, error);
    }

    fn end(&mut self, which: impl Fn(&Watch) -> bool, error: Error) {
        for watch in self.list.iter_mut().filter(|watch| watch.result.is_none() && which(watch)) {
            watch.result = Some(Err(error));
            watch.waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeWindow;

    fn core(number: u32) -> CoreId {
        CoreId::new(number).unwrap()
    }

    #[test]
    fn a_register_is_read_once_a_sweep_until_it_holds() {
        let (window, mut watches) = (FakeWindow::new(), Watches::new());
        let waker = Waker::noop();
        let at_least = watches.begin(core(0), 0x10, Until::AtLeast(-1), waker).unwrap();
        let set = watches.begin(core(0), 0x20, Until::Set, waker).unwrap();
        window.set(0x10, i32::MIN as u32);
        assert_eq!((watches.sweep(&window, false).over, window.take_reads().len()), (0, 2));
        window.set(0x10, u32::MAX);
        // −1, unless the device is gone.
        let doubted = watches.sweep(&window, false);
        assert_eq!(doubted, Swept { over: 0, all_ones: true });
        assert_eq!(watches.sweep(&window, true).over, 1);
        assert_eq!(watches.collect(set, waker), None);
        assert_eq!(watches.collect(at_least, waker), Some(Ok(u32::MAX)));
        window.take_reads();
        watches.sweep(&window, false);
        assert_eq!(window.take_reads(), [0x20]);
        watches.forget(set);
        assert!(watches.are_open(), "until the next sweep");
        watches.sweep(&window, false);
        assert!(!watches.are_open());
    }

    #[test]
    fn a_reset_ends_the_waits_of_its_cores() {
        let mut watches = Watches::new();
        let waker = Waker::noop();
        let [a, b] = [0, 1].map(|n| watches.begin(core(n), 0, Until::Set, waker).unwrap());
        watches.cancel(CoreMap(0b10));
        assert_eq!(watches.collect(a, waker), None);
        let why = CancelCause::Reset;
        assert_eq!(watches.collect(b, waker), Some(Err(Error::Cancelled { why })));
        watches.end_all(Error::DeviceGone);
        assert_eq!(watches.collect(a, waker), Some(Err(Error::DeviceGone)));
    }
}
