//! The function: configuration space, two windows, time. Everything else hangs below it.

use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::config::{ConfigError, FunctionConfig};
use crate::dma::Failed;
use crate::faults::Faults;
use crate::host::{HostMemory, ModelClock};
use crate::map::{Map, Target};
use crate::memory::hbm::{Hbm, SHOWN_BYTES};
use crate::memory::pages::Pages;
use crate::memory::shared::SharedMemory;
use crate::miscram::MiscRam;
use crate::notific::Notifications;
use crate::pci::{BarSpec, ConfigSpace};
use crate::pe_counters::PeCounters;
use crate::report::{Event, EventKind, Recorder, Report};
use crate::reset::ResetState;
use crate::sync_bank::SyncBank;
use crate::time::{Agenda, Later};
use crate::udma::unit::Unit;

/// A piece of HBM that shows in the memory window and lies in a file, to be mapped by whoever
/// stands between the guest and the model.
#[derive(Clone, Copy, Debug)]
pub struct HbmSegment<'a> {
    /// The file.
    pub file: BorrowedFd<'a>,
    /// First byte in the file.
    pub file_offset: u64,
    /// First byte in BAR4.
    pub bar_offset: u64,
    /// Length in bytes.
    pub len_bytes: u64,
}

/// What a device reads and writes through its links to other devices (01 §3.1).
pub trait Neighbour: Send + Sync {
    /// Reads at a device address of the neighbour.
    ///
    /// # Errors
    /// [`Unreachable`] where no answer comes.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreachable>;

    /// Writes at a device address of the neighbour.
    ///
    /// # Errors
    /// [`Unreachable`] where it gets nowhere.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unreachable>;
}

/// A device that is reached through a link and answers nothing, or a link that ends nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unreachable;

/// One emulated Neuron function. See the crate documentation.
pub struct Function {
    pub(crate) config: FunctionConfig,
    pub(crate) pci: ConfigSpace,
    pub(crate) map: Map,
    pub(crate) host: Arc<dyn HostMemory>,
    pub(crate) clock: Arc<dyn ModelClock>,
    pub(crate) neighbours: [Option<Arc<dyn Neighbour>>; 4],
    pub(crate) hbm: Hbm,
    pub(crate) onchip: SharedMemory,
    pub(crate) units: Vec<Unit>,
    pub(crate) banks: Vec<SyncBank>,
    pub(crate) notifications: Notifications,
    pub(crate) pe_counters: PeCounters,
    /// Register pages outside units and MiscRAM, by page number of the window.
    pub(crate) storage: HashMap<u64, Pages>,
    pub(crate) misc: MiscRam,
    pub(crate) reset: ResetState,
    /// Power profile that firmware was told.
    pub(crate) profile: u8,
    pub(crate) faults: Faults,
    pub(crate) recorder: Recorder,
    agenda: Agenda,
    /// When the event that is being carried out was due: what follows from it counts from there.
    event_time: Option<u64>,
    /// Queues to service before the access in progress is answered.
    pub(crate) ready: VecDeque<(usize, usize)>,
    /// Queues with more work than one access may do.
    pub(crate) deferred: VecDeque<(usize, usize, u32)>,
    /// Cost of what was executed in this turn.
    pub(crate) moved: u64,
    /// The next abort was ordered by a fault knob.
    pub(crate) injecting: bool,
    /// The function was pulled out: everything reads all-ones.
    pub(crate) gone: bool,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Function").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Function {
    /// A function in its power-on state.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(
        config: FunctionConfig,
        memory: Arc<dyn HostMemory>,
        clock: Arc<dyn ModelClock>,
    ) -> Result<Function, ConfigError> {
        let pci = ConfigSpace::new(&config)?;
        let geometry = config.hbm_geometry()?;
        let map = Map::new(&config, geometry);
        let hbm_bytes =
            (geometry.channels as u64 - 1) * geometry.pitch_bytes + geometry.active_bytes;
        let channels = map.channels().map(|(start, _)| start);
        let hbm = Hbm::new(hbm_bytes, channels).map_err(ConfigError::Memory)?;
        let onchip = SharedMemory::private(map.onchip_bytes).map_err(ConfigError::Memory)?;
        let mut function = Function {
            pci,
            host: memory,
            clock,
            neighbours: [const { None }; 4],
            hbm,
            onchip,
            units: (0..map.engines).map(|_| Unit::new()).collect(),
            banks: vec![SyncBank::new(); map.banks],
            notifications: Notifications::default(),
            pe_counters: PeCounters::default(),
            storage: HashMap::new(),
            misc: MiscRam::new(&config),
            reset: ResetState::default(),
            profile: 0,
            faults: config.faults.clone(),
            recorder: Recorder::new(config.index),
            agenda: Agenda::default(),
            event_time: None,
            ready: VecDeque::new(),
            deferred: VecDeque::new(),
            moved: 0,
            injecting: false,
            gone: false,
            map,
            config,
        };
        function.recorder.traces = function.config.traces;
        function.start_firmware();
        Ok(function)
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &FunctionConfig {
        &self.config
    }

    /// Connects the neighbour behind link `link` (0..3, the SENG number); `None` takes it away.
    pub fn set_neighbour(&mut self, link: usize, neighbour: Option<Arc<dyn Neighbour>>) {
        if let Some(slot) = self.neighbours.get_mut(link) {
            *slot = neighbour;
        }
    }

    /// Reads HBM at a device address as DMA would, without memory being taken for what was never
    /// written.
    ///
    /// # Errors
    /// [`Unreachable`] outside HBM.
    pub fn look(&self, address: u64, into: &mut [u8]) -> Result<(), Unreachable> {
        match self.map.decode(address, into.len() as u64) {
            Some(Target::Hbm(offset)) => self.hbm.look(offset, into).map_err(|_| Unreachable),
            _ => Err(Unreachable),
        }
    }

    /// The first device address in `[start, end)`, inside one channel of HBM, whose byte is not that
    /// of `word` over and over; `None` where all are.
    pub fn first_unlike(&self, start: u64, end: u64, word: u32) -> Option<u64> {
        match self.map.decode(start, end.saturating_sub(start)) {
            Some(Target::Hbm(offset)) => {
                let wrong = self.hbm.first_unlike(offset, offset + (end - start), word);
                wrong.map(|at| start + (at - offset))
            }
            _ => Some(start),
        }
    }

    /// A neighbour reads at a device address of this function (01 §3.1): what its DMA would read.
    ///
    /// # Errors
    /// [`Unreachable`] for an address that leads nowhere, or once the function is gone.
    pub fn peer_read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Unreachable> {
        self.peer_access(|function| function.dma_read(address, into))
    }

    /// A neighbour writes at a device address of this function, with all side effects.
    ///
    /// # Errors
    /// As [`Function::peer_read`].
    pub fn peer_write(&mut self, address: u64, from: &[u8]) -> Result<(), Unreachable> {
        self.peer_access(|function| function.dma_write(address, from))
    }

    fn peer_access(
        &mut self,
        access: impl FnOnce(&mut Function) -> Result<(), Failed>,
    ) -> Result<(), Unreachable> {
        if self.gone {
            return Err(Unreachable);
        }
        self.tick();
        let result = access(self);
        self.turn_over();
        result.map_err(|Failed| Unreachable)
    }

    /// Reads configuration space, any width and alignment.
    pub fn config_read(&mut self, offset: u16, into: &mut [u8]) {
        if self.gone {
            into.fill(0xff);
        } else {
            self.pci.read(offset, into);
        }
    }

    /// Writes configuration space, any width and alignment.
    pub fn config_write(&mut self, offset: u16, from: &[u8]) {
        if self.gone {
            return;
        }
        self.pci.write(offset, from);
        if let Some(line) = self.pci.port.write(offset, from) {
            let result = self.control(&line);
            self.pci.port.finish(result);
        }
    }

    /// The base address registers, by PCI index.
    pub fn bars(&self) -> [Option<BarSpec>; 6] {
        self.pci.bars()
    }

    /// The pieces of HBM that show in BAR4 and may be mapped: the start of each channel. Accesses
    /// to the rest of it come to [`Function::bar_read`] and [`Function::bar_write`].
    pub fn hbm_segments(&self) -> Vec<HbmSegment<'_>> {
        let presented = self.pci.bars()[4].map_or(0, |bar| bar.size_bytes);
        let Some(file) = self.hbm.file() else { return Vec::new() };
        let cut = |(start, size): (u64, u64)| {
            let len_bytes = presented.saturating_sub(start).min(size).min(SHOWN_BYTES);
            (len_bytes > 0).then_some(HbmSegment {
                file,
                file_offset: start,
                bar_offset: start,
                len_bytes,
            })
        };
        self.map.channels().filter_map(cut).collect()
    }

    /// When [`Function::advance`] has something to do; `None` while nothing is pending. A time in
    /// the past means at once.
    pub fn next_event(&self) -> Option<u64> {
        if self.deferred.is_empty() { self.agenda.first() } else { Some(0) }
    }

    /// Does what is due: ends resets, goes on with long DMA (one share of it a call).
    pub fn advance(&mut self) {
        self.run_due();
        self.moved = 0;
        if let Some((engine, queue, epoch)) = self.deferred.pop_front() {
            self.resume(engine, queue, epoch);
        }
        self.drain();
    }

    /// What the function saw so far.
    pub fn report(&self) -> Report {
        Report { notifications: self.queue_states(), ..self.recorder.report() }
    }

    /// Resets the function as the bus does: configuration space, and everything a device reset
    /// covers. Counters and HBM stay.
    pub fn bus_reset(&mut self) {
        self.pci.reset();
        self.power_cycle();
    }

    /// Lets `later` happen `delay_ns` from now; a delay without end never does.
    pub(crate) fn after(&mut self, delay_ns: u64, later: Later) {
        let now = self.event_time.unwrap_or_else(|| self.clock.now_ns());
        if let Some(at) = now.checked_add(delay_ns) {
            self.agenda.add(at, later);
        }
    }

    pub(crate) fn violation(
        &mut self,
        kind: EventKind,
        place: Option<(usize, usize)>,
        detail: u64,
    ) {
        let event = self.event(kind, place, detail);
        self.recorder.violation(event);
    }

    pub(crate) fn expected(&mut self, kind: EventKind, place: Option<(usize, usize)>, detail: u64) {
        let event = self.event(kind, place, detail);
        self.recorder.expected(event);
    }

    fn event(&self, kind: EventKind, place: Option<(usize, usize)>, detail: u64) -> Event {
        Event {
            kind,
            engine: place.map(|(engine, _)| engine as u16),
            queue: place.map(|(_, queue)| queue as u8),
            detail,
            at_ns: self.clock.now_ns(),
        }
    }

    #[inline]
    pub(crate) fn tick(&mut self) {
        if self.agenda.first().is_some() {
            self.run_due();
        }
    }

    fn run_due(&mut self) {
        while let Some((at, later)) = self.agenda.due(self.clock.now_ns()) {
            self.event_time = Some(at);
            match later {
                Later::FirmwareUp { reset } => self.firmware_up(reset),
                Later::ResetDone => self.end_reset(),
                Later::Ready { reset } => self.firmware_ready(reset),
                Later::QemuDoorbellDone => self.qemu_doorbell_done(),
                Later::Mailbox { reset, answer } => {
                    if reset == self.reset_number() {
                        self.answer(answer);
                    }
                }
                Later::Service { engine, queue, epoch } => self.resume(engine, queue, epoch),
                Later::Notifications { number } => {
                    if !self.gone {
                        self.go_on_posting(number);
                    }
                }
                Later::Marker { engine, generation, address, value } => {
                    if self.units[engine].generation == generation && !self.gone {
                        let _ = self.host_write(address, &value.to_le_bytes());
                    }
                }
            }
            self.event_time = None;
        }
    }

    /// A queue that waited may run again, unless it was reset meanwhile.
    fn resume(&mut self, engine: usize, queue: usize, epoch: u32) {
        let pair = &mut self.units[engine].queues[queue];
        if pair.epoch == epoch && !self.gone {
            pair.waiting = false;
            self.ready.push_back((engine, queue));
        }
    }
}
