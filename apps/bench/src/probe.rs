//! A machine that notes what its drivers do to registers: how often, when last, and for how long.
//!
//! It passes everything on. What it adds to the path it watches is a look at the counter and two
//! stores for each register written.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::Future;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use axon_platform::{
    BarInfo, Bdf, BootStats, Caching, DmaBuf, DmaExhausted, Instant, MapError, MmioWindow,
    ModelControl, PciFunction, Platform, SpawnError,
};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

/// What was noted.
pub(crate) struct Notes {
    reads: AtomicU64,
    writes: AtomicU64,
    last_write: AtomicU64,
    inside_ns: AtomicU64,
    /// Writes are kept from the device.
    is_held: AtomicBool,
    /// Nothing is kept back, nor was since the last write.
    is_plain: AtomicBool,
    held: Mutex<CriticalSectionRawMutex, RefCell<Vec<(u64, u32)>>>,
}

impl Notes {
    fn new() -> Self {
        Notes {
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            last_write: AtomicU64::new(0),
            inside_ns: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
            is_plain: AtomicBool::new(true),
            held: Mutex::new(RefCell::new(Vec::new())),
        }
    }

    /// Registers read.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Relaxed)
    }

    /// Registers written.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Relaxed)
    }

    /// What the machine's counter said when the last register was written.
    pub(crate) fn last_write(&self) -> u64 {
        self.last_write.load(Relaxed)
    }

    /// Keeps register writes from the device from now on, or no longer: then they come, in order, in
    /// front of the next one.
    pub(crate) fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Relaxed);
        self.is_plain.store(false, Relaxed);
    }

    /// Time spent in register writes, where there is a clock: what the model takes.
    pub(crate) fn inside_ns(&self) -> u64 {
        self.inside_ns.load(Relaxed)
    }
}

/// Real time in nanoseconds, where the benchmark runs as a program of its own.
pub(crate) type WallClock = Option<fn() -> u64>;

/// The machine.
#[derive(Clone)]
pub(crate) struct Probe<P: Platform> {
    machine: P,
    notes: Arc<Notes>,
    clock: WallClock,
}

impl<P: Platform> Probe<P> {
    pub(crate) fn new(machine: P, clock: WallClock) -> Self {
        Probe { machine, notes: Arc::new(Notes::new()), clock }
    }

    pub(crate) fn notes(&self) -> &Arc<Notes> {
        &self.notes
    }
}

/// A function of the machine.
#[derive(Clone)]
pub(crate) struct Function<P: Platform> {
    inner: P::Function,
    probe: Probe<P>,
}

/// A window of a function.
#[derive(Clone)]
pub(crate) struct Window<P: Platform> {
    inner: <P::Function as PciFunction>::Window,
    probe: Probe<P>,
}

impl<P: Platform> Window<P> {
    /// Keeps a write from the device where that was asked for, else writes first what was kept.
    #[cold]
    fn keep_back(&self, offset: u64, value: u32) -> bool {
        let notes = &self.probe.notes;
        if notes.is_held.load(Relaxed) {
            notes.held.lock(|held| held.borrow_mut().push((offset, value)));
            return true;
        }
        let late = notes.held.lock(RefCell::take);
        late.into_iter().for_each(|(offset, value)| self.inner.write32(offset, value));
        notes.is_plain.store(true, Relaxed);
        false
    }
}

impl<P: Platform> MmioWindow for Window<P> {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read32(&self, offset: u64) -> u32 {
        self.probe.notes.reads.fetch_add(1, Relaxed);
        self.inner.read32(offset)
    }

    #[inline(always)]
    fn write32(&self, offset: u64, value: u32) {
        let Probe { machine, notes, clock } = &self.probe;
        if !notes.is_plain.load(Relaxed) && self.keep_back(offset, value) {
            return;
        }
        match clock {
            None => self.inner.write32(offset, value),
            Some(clock) => {
                let before = clock();
                self.inner.write32(offset, value);
                notes.inside_ns.fetch_add(clock().saturating_sub(before), Relaxed);
            }
        }
        notes.last_write.store(machine.cycles(), Relaxed);
        notes.writes.store(notes.writes.load(Relaxed) + 1, Relaxed);
    }

    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> bool {
        self.inner.read_bytes(offset, into)
    }

    #[inline(always)]
    fn write_bytes(&self, offset: u64, from: &[u8]) -> bool {
        self.inner.write_bytes(offset, from)
    }
}

impl<P: Platform> PciFunction for Function<P> {
    type Window = Window<P>;

    fn bdf(&self) -> Bdf {
        self.inner.bdf()
    }

    fn config_read32(&self, offset: u16) -> u32 {
        self.inner.config_read32(offset)
    }

    fn config_write32(&self, offset: u16, value: u32) {
        self.inner.config_write32(offset, value);
    }

    fn config_write16(&self, offset: u16, value: u16) {
        self.inner.config_write16(offset, value);
    }

    fn bar(&self, index: u8) -> Option<BarInfo> {
        self.inner.bar(index)
    }

    fn map_bar(&self, index: u8, caching: Caching) -> Result<Window<P>, MapError> {
        let inner = self.inner.map_bar(index, caching)?;
        Ok(Window { inner, probe: self.probe.clone() })
    }
}

impl<P: Platform> Platform for Probe<P> {
    type Function = Function<P>;

    fn now(&self) -> Instant {
        self.machine.now()
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        self.machine.sleep_until(deadline)
    }

    fn alloc_dma(&self, len_bytes: u64, align: u64) -> Result<DmaBuf, DmaExhausted> {
        self.machine.alloc_dma(len_bytes, align)
    }

    fn free_dma_bytes(&self) -> u64 {
        self.machine.free_dma_bytes()
    }

    fn functions(&self) -> Vec<Function<P>> {
        let watched = |inner| Function { inner, probe: self.clone() };
        self.machine.functions().into_iter().map(watched).collect()
    }

    fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), SpawnError> {
        self.machine.spawn(name, task)
    }

    #[inline(always)]
    fn write_barrier(&self) {
        self.machine.write_barrier();
    }

    fn random(&self) -> u64 {
        self.machine.random()
    }

    #[inline(always)]
    fn cycles(&self) -> u64 {
        self.machine.cycles()
    }

    fn boot_stats(&self) -> Option<BootStats> {
        self.machine.boot_stats()
    }

    fn product_name(&self) -> Option<String> {
        self.machine.product_name()
    }

    fn console_write(&self, bytes: &[u8]) {
        self.machine.console_write(bytes);
    }

    fn console_read(&self) -> impl Future<Output = Option<u8>> + Send {
        self.machine.console_read()
    }

    fn console_is_interactive(&self) -> bool {
        self.machine.console_is_interactive()
    }

    fn file(&self, name: &str) -> Option<Vec<u8>> {
        self.machine.file(name)
    }

    fn arguments(&self) -> Vec<String> {
        self.machine.arguments()
    }

    fn model(&self) -> Option<&dyn ModelControl> {
        self.machine.model()
    }
}
