//! A machine on which the n-th request for a resource is refused, and which counts what is held.
//!
//! A rung of the bring-up ladder takes tasks, windows, host memory, or a bit of the command register.
//! Here each of these requests has a number: a test refuses them one after the other and compares what
//! is left with what there was.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axon_hosted::{HostedFunction, HostedWindow, Machine};
use axon_platform::{
    BarInfo, Bdf, Caching, DmaBuf, DmaExhausted, Instant, MapError, MmioWindow, PciFunction,
    Platform, SpawnError,
};

const COMMAND: u16 = 0x04;
/// Where the list of capabilities begins.
const CAPABILITIES: u16 = 0x34;

/// Which request is refused, and what was asked for so far.
#[derive(Default)]
struct Ledger {
    /// Requests that are granted; the next one is refused.
    granted: AtomicUsize,
    asked: AtomicUsize,
    /// All later ones are refused too.
    for_good: bool,
    /// A function that does not say that it is emulated, by position.
    mute: Option<usize>,
    windows: AtomicUsize,
    /// Register accesses that are still answered, where somebody counts.
    answered: AtomicUsize,
    accesses: AtomicUsize,
}

/// The machine. Clones share the count.
#[derive(Clone)]
pub struct Frail {
    machine: Machine,
    ledger: Arc<Ledger>,
}

impl Frail {
    /// Request number `refused`, from 0, is refused; none where that is never reached.
    pub fn new(machine: &Machine, refused: usize) -> Self {
        let ledger = Ledger { granted: AtomicUsize::new(refused), ..Ledger::default() };
        Frail { machine: machine.clone(), ledger: Arc::new(ledger) }
    }

    /// Every request from number `first` on is refused.
    pub fn from(machine: &Machine, first: usize) -> Self {
        let granted = AtomicUsize::new(first);
        let ledger = Ledger { granted, for_good: true, ..Ledger::default() };
        Frail { machine: machine.clone(), ledger: Arc::new(ledger) }
    }

    /// Refuses nothing; the function at position `mute` looks like hardware.
    pub fn with_hardware(machine: &Machine, mute: usize) -> Self {
        let granted = AtomicUsize::new(usize::MAX);
        let ledger = Ledger { granted, mute: Some(mute), ..Ledger::default() };
        Frail { machine: machine.clone(), ledger: Arc::new(ledger) }
    }

    /// Whether the request that was to be refused has been made.
    pub fn has_refused(&self) -> bool {
        self.ledger.asked.load(Ordering::Relaxed) > self.ledger.granted.load(Ordering::Relaxed)
    }

    /// From now on counts accesses to registers; after `answered` of them, at least 1, the functions
    /// read all-ones and take no writes.
    pub fn fall_silent_after(&self, answered: usize) {
        self.ledger.accesses.store(0, Ordering::Relaxed);
        self.ledger.answered.store(answered, Ordering::Relaxed);
    }

    /// Accesses to registers since then.
    pub fn accesses(&self) -> usize {
        self.ledger.accesses.load(Ordering::Relaxed)
    }

    /// Windows onto BARs that are mapped now, clones included.
    pub fn windows(&self) -> usize {
        self.ledger.windows.load(Ordering::Relaxed)
    }
}

impl Ledger {
    /// Counts an access to a register; answers whether the function still answers.
    fn answers(&self) -> bool {
        let number = self.accesses.fetch_add(1, Ordering::Relaxed);
        match self.answered.load(Ordering::Relaxed) {
            0 => true,
            answered => number < answered,
        }
    }

    fn refuses(&self) -> bool {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let granted = self.granted.load(Ordering::Relaxed);
        if self.for_good { number >= granted } else { number == granted }
    }
}

impl Platform for Frail {
    type Function = FrailFunction;

    fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), SpawnError> {
        if self.ledger.refuses() { Err(SpawnError) } else { self.machine.spawn(name, task) }
    }

    fn alloc_dma(&self, len_bytes: u64, align: u64) -> Result<DmaBuf, DmaExhausted> {
        if self.ledger.refuses() {
            return Err(DmaExhausted { asked: len_bytes, largest: 0 });
        }
        self.machine.alloc_dma(len_bytes, align)
    }

    fn functions(&self) -> Vec<FrailFunction> {
        let functions = self.machine.functions().into_iter();
        let frail = |(position, inner)| FrailFunction {
            inner,
            mute: self.ledger.mute == Some(position),
            ledger: self.ledger.clone(),
        };
        functions.enumerate().map(frail).collect()
    }

    fn now(&self) -> Instant {
        self.machine.now()
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        self.machine.sleep_until(deadline)
    }

    fn free_dma_bytes(&self) -> u64 {
        self.machine.free_dma_bytes()
    }

    fn write_barrier(&self) {
        self.machine.write_barrier();
    }

    fn random(&self) -> u64 {
        self.machine.random()
    }

    fn cycles(&self) -> u64 {
        self.machine.cycles()
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
        false
    }

    fn file(&self, _name: &str) -> Option<Vec<u8>> {
        None
    }

    fn arguments(&self) -> Vec<String> {
        Vec::new()
    }
}

/// One function of a [`Frail`] machine.
#[derive(Clone)]
pub struct FrailFunction {
    inner: HostedFunction,
    mute: bool,
    ledger: Arc<Ledger>,
}

impl PciFunction for FrailFunction {
    type Window = FrailWindow;

    fn bdf(&self) -> Bdf {
        self.inner.bdf()
    }

    fn config_read32(&self, offset: u16) -> u32 {
        if self.mute && offset == CAPABILITIES {
            return 0;
        }
        self.inner.config_read32(offset)
    }

    fn config_write32(&self, offset: u16, value: u32) {
        self.inner.config_write32(offset, value);
    }

    /// Bits of the command register that are being set are a request: a refused one does not stick.
    fn config_write16(&self, offset: u16, value: u16) {
        let sets = offset == COMMAND && value & !(self.config_read32(COMMAND) as u16) != 0;
        if !(sets && self.ledger.refuses()) {
            self.inner.config_write16(offset, value);
        }
    }

    fn bar(&self, index: u8) -> Option<BarInfo> {
        self.inner.bar(index)
    }

    fn map_bar(&self, index: u8, caching: Caching) -> Result<FrailWindow, MapError> {
        if self.ledger.refuses() {
            return Err(MapError::Absent);
        }
        Ok(FrailWindow::new(self.inner.map_bar(index, caching)?, &self.ledger))
    }
}

/// A mapped BAR of a [`Frail`] machine, counted as long as it lives.
pub struct FrailWindow {
    inner: HostedWindow,
    ledger: Arc<Ledger>,
}

impl FrailWindow {
    fn new(inner: HostedWindow, ledger: &Arc<Ledger>) -> Self {
        ledger.windows.fetch_add(1, Ordering::Relaxed);
        FrailWindow { inner, ledger: ledger.clone() }
    }
}

impl Clone for FrailWindow {
    fn clone(&self) -> Self {
        FrailWindow::new(self.inner.clone(), &self.ledger)
    }
}

impl Drop for FrailWindow {
    fn drop(&mut self) {
        self.ledger.windows.fetch_sub(1, Ordering::Relaxed);
    }
}

impl MmioWindow for FrailWindow {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read32(&self, offset: u64) -> u32 {
        if self.ledger.answers() { self.inner.read32(offset) } else { u32::MAX }
    }

    fn write32(&self, offset: u64, value: u32) {
        if self.ledger.answers() {
            self.inner.write32(offset, value);
        }
    }

    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> bool {
        self.inner.read_bytes(offset, into)
    }

    fn write_bytes(&self, offset: u64, from: &[u8]) -> bool {
        self.inner.write_bytes(offset, from)
    }
}
