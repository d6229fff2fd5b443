//! One of something for each core.

use core::ops::{Index, IndexMut};

use axon_ports::CoreId;

/// As many as a device can have cores; a [`CoreId`] always finds its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct PerCore<T>([T; CoreId::COUNT]);

impl<T> PerCore<T> {
    pub(super) fn new(make: impl FnMut(CoreId) -> T) -> Self {
        PerCore(CoreId::ALL.map(make))
    }
}

impl<T> Index<CoreId> for PerCore<T> {
    type Output = T;

    fn index(&self, core: CoreId) -> &T {
        // A core id is below the length by construction.
        &self.0[core.index()]
    }
}

impl<T> IndexMut<CoreId> for PerCore<T> {
    fn index_mut(&mut self, core: CoreId) -> &mut T {
        &mut self.0[core.index()]
    }
}
