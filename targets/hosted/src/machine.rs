//! A hosted machine: what it is made of, and [`Platform`] for it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use axon_model::{ConfigError, FaultError, Function, FunctionConfig, Product, Report};
use axon_platform::{
    Bdf, DmaBuf, DmaExhausted, Instant, ModelControl, Platform, SpawnError, TaskUse,
};

use crate::clock::Clock;
use crate::console::{Console, Input, Output};
use crate::executor::{Executor, Root, Seeded, Stalled};
use crate::function::{BAR_SPACE, HostedFunction, Slot};
use crate::ram::Ram;

/// Host memory of a machine unless asked otherwise: as sparse as the model's.
const DEFAULT_MEMORY: u64 = 1 << 30;
/// Longest virtual time for which nothing is heard of whoever [`Machine::run`] waits for, while tasks
/// with timers of their own go on.
pub const PATIENCE: core::time::Duration = core::time::Duration::from_secs(7 * 24 * 3600);
/// Steps between two looks at the models' events while tasks are ready.
const STEPS_BETWEEN_EVENTS: u32 = 64;

/// Why a machine could not be made.
#[derive(Debug)]
pub enum BuildError {
    /// No product has this name.
    UnknownDevice(String),
    /// The model refused its configuration.
    Config(ConfigError),
    /// The model refused a fault; the sentence names the word.
    Fault(FaultError),
    /// The host gave no memory.
    Memory(std::io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::UnknownDevice(name) => {
                write!(f, "unknown device {name} (known: trn1, inf2, trn2, trn3)")
            }
            BuildError::Config(error) => write!(f, "the model refused: {error}"),
            BuildError::Fault(error) => write!(f, "{error}"),
            BuildError::Memory(error) => write!(f, "no memory for the machine: {error}"),
        }
    }
}

impl std::error::Error for BuildError {}

impl BuildError {
    /// Exit code of a program that cannot go on: 2 for what was asked, 125 for what failed.
    pub fn exit_code(&self) -> u8 {
        match self {
            BuildError::UnknownDevice(_) | BuildError::Config(_) | BuildError::Fault(_) => 2,
            BuildError::Memory(_) => 125,
        }
    }
}

/// Collects what a [`Machine`] is made of.
#[derive(Clone)]
pub struct MachineBuilder {
    devices: Vec<Device>,
    faults: Vec<(Option<usize>, String)>,
    seed: u64,
    memory: u64,
    input: Input,
    output: Output,
    arguments: Vec<String>,
    files: BTreeMap<String, Vec<u8>>,
    product_name: Option<String>,
    site: Option<Arc<Site>>,
}

#[derive(Clone)]
enum Device {
    Named(String),
    Config(Box<FunctionConfig>),
}

impl MachineBuilder {
    /// Adds a function with the default configuration of a product: `trn1`, `inf2`, `trn2`, `trn3`.
    pub fn device(mut self, product: &str) -> Self {
        self.devices.push(Device::Named(product.into()));
        self
    }

    /// Adds a function with this configuration.
    pub fn function(mut self, config: FunctionConfig) -> Self {
        self.devices.push(Device::Config(Box::new(config)));
        self
    }

    /// Arms a fault, for example `drop-marker=1 after=3`, in function `device` or in all.
    pub fn fault(mut self, device: Option<usize>, fault: &str) -> Self {
        self.faults.push((device, fault.into()));
        self
    }

    /// Seed of task order, of [`Platform::random`] and of the models' delays.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Bytes of host memory that devices can reach.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// Where console input comes from; empty unless said otherwise.
    pub fn input(mut self, input: Input) -> Self {
        self.input = input;
        self
    }

    /// Where console output goes; kept unless said otherwise.
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// Appends a word to the command line.
    pub fn argument(mut self, word: &str) -> Self {
        self.arguments.push(word.into());
        self
    }

    /// Hands over a named file.
    pub fn file(mut self, name: &str, content: &[u8]) -> Self {
        self.files.insert(name.into(), content.into());
        self
    }

    /// SMBIOS system product name.
    pub fn product_name(mut self, name: &str) -> Self {
        self.product_name = Some(name.into());
        self
    }

    /// Shares time and executor with another machine: whichever of them runs, all do. The seed of
    /// the first one decides the order of tasks.
    pub fn beside(mut self, other: &Machine) -> Self {
        self.site = Some(other.0.site.clone());
        self
    }

    /// Makes the machine and assigns the BARs of its functions.
    ///
    /// # Errors
    /// [`BuildError`]
    pub fn build(self) -> Result<Machine, BuildError> {
        let ram = Ram::new(self.memory).map_err(BuildError::Memory)?;
        let site = self.site.unwrap_or_else(|| Arc::new(Site::new(self.seed)));
        let clock = site.clock.clone();
        let accesses = Arc::new(AtomicU64::new(0));
        let mut functions = Vec::new();
        let mut next_bar = BAR_SPACE;
        let mut named = 0;
        for (position, device) in self.devices.into_iter().enumerate() {
            let mut config = match device {
                Device::Config(config) => *config,
                Device::Named(name) => {
                    let product = Product::from_name(&name)
                        .ok_or_else(|| BuildError::UnknownDevice(name.clone()))?;
                    let mut config = FunctionConfig::new(product, named);
                    named += 1;
                    config.seed = self.seed.wrapping_add(position as u64);
                    config
                }
            };
            for (only, fault) in &self.faults {
                if only.is_none_or(|only| only == position) {
                    config.fault(fault).map_err(BuildError::Fault)?;
                }
            }
            let model =
                Function::new(config, ram.clone(), clock.clone()).map_err(BuildError::Config)?;
            // One function on each device of bus 0, as the VM launcher places them.
            let at = position + 1;
            let bdf =
                Bdf { segment: 0, bus: (at / 32) as u8, device: (at % 32) as u8, function: 0 };
            let slot = Slot::new(model, bdf, accesses.clone());
            next_bar = slot.assign_bars(next_bar);
            functions.push(slot);
        }
        let console = Console::new(self.input, self.output);
        site.enter(Member { functions: functions.clone(), console: console.clone() });
        Ok(Machine(Arc::new(Inner {
            site,
            ram,
            functions,
            random: Seeded::new(self.seed ^ 0xa0a0_a0a0),
            console,
            accesses,
            arguments: self.arguments,
            files: self.files,
            product_name: self.product_name,
        })))
    }
}

/// A machine in this process. Clones are handles on the same one.
#[derive(Clone)]
pub struct Machine(Arc<Inner>);

/// What machines that stand beside each other share.
struct Site {
    clock: Arc<Clock>,
    executor: Executor,
    members: Mutex<Vec<Member>>,
}

/// What has to be looked at when nobody can run.
#[derive(Clone)]
struct Member {
    functions: Vec<Arc<Slot>>,
    console: Arc<Console>,
}

impl Site {
    fn new(seed: u64) -> Site {
        Site { clock: Clock::new(), executor: Executor::new(seed), members: Mutex::default() }
    }

    fn enter(&self, member: Member) {
        self.members().push(member);
    }

    fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody can run: fetch input for a reader, else move time. `false` where neither helps.
    fn idle(&self) -> bool {
        let members = self.members();
        if members.iter().any(|member| member.console.supply()) {
            return true;
        }
        let functions = members.iter().flat_map(|member| &member.functions);
        let event = functions.filter_map(|slot| slot.model().next_event()).min();
        let event = event.map(Instant::from_nanos);
        let Some(next) = [self.clock.next_timer(), event].into_iter().flatten().min() else {
            return false;
        };
        drop(members);
        self.clock.advance(next);
        self.run_due_events();
        true
    }

    fn run_due_events(&self) {
        let now = self.clock.now().as_nanos();
        for slot in self.members().iter().flat_map(|member| &member.functions) {
            let mut model = slot.model();
            if model.next_event().is_some_and(|at| at <= now) {
                model.advance();
            }
        }
    }
}

struct Inner {
    site: Arc<Site>,
    ram: Arc<Ram>,
    functions: Vec<Arc<Slot>>,
    random: Seeded,
    console: Arc<Console>,
    accesses: Arc<AtomicU64>,
    arguments: Vec<String>,
    files: BTreeMap<String, Vec<u8>>,
    product_name: Option<String>,
}

impl Machine {
    /// Starts to describe a machine: no functions, seed 0, 1 GiB of sparse host memory.
    pub fn builder() -> MachineBuilder {
        MachineBuilder {
            devices: Vec::new(),
            faults: Vec::new(),
            seed: 0,
            memory: DEFAULT_MEMORY,
            input: Input::Text(String::new()),
            output: Output::Kept,
            arguments: Vec::new(),
            files: BTreeMap::new(),
            product_name: None,
            site: None,
        }
    }

    /// Runs tasks until `root` resolves. May be called again; tasks stay.
    ///
    /// # Errors
    /// [`Stalled`] where everything waits for something that can never come, and where `root`
    /// waits for more than [`PATIENCE`] while other tasks go on.
    pub fn run<F: Future>(&self, root: F) -> Result<F::Output, Stalled> {
        let mut root = Root::new(root);
        let mut steps = 0u32;
        let mut waits_since = self.now();
        loop {
            // The root takes part in the draw like any other ready task.
            let root_first = root.is_ready() && self.random_bit();
            if !root_first && self.0.site.executor.step() {
                steps = steps.wrapping_add(1);
                if steps.is_multiple_of(STEPS_BETWEEN_EVENTS) {
                    self.0.site.run_due_events();
                }
            } else if root.is_ready() {
                waits_since = self.now();
                if let Poll::Ready(output) = root.poll() {
                    return Ok(output);
                }
            } else if self.now().since(waits_since) > PATIENCE || !self.0.site.idle() {
                return Err(Stalled { tasks: self.0.site.executor.names() });
            }
        }
    }

    /// Lets time pass until `span` is over, running whatever becomes ready.
    ///
    /// # Errors
    /// Never in practice: a timer is always left to wait for.
    pub fn run_for(&self, span: core::time::Duration) -> Result<(), Stalled> {
        self.run(self.sleep(span))
    }

    /// What was printed so far, where output is kept.
    pub fn output(&self) -> String {
        self.0.console.kept()
    }

    /// What the model of function `position` has seen.
    pub fn report(&self, position: usize) -> Option<Report> {
        self.0.functions.get(position).map(|slot| slot.model().report())
    }

    /// Whether the application printed a report.
    pub(crate) fn has_report(&self) -> bool {
        self.0.console.report().is_some()
    }

    /// The application's report with what the models saw, as JSON.
    ///
    /// Without a report of the application the models stand alone.
    pub fn report_json(&self) -> String {
        let mut report = self
            .0
            .console
            .report()
            .and_then(|text| serde_json::from_str::<serde_json::Map<_, _>>(&text).ok())
            .unwrap_or_default();
        let models = self.0.functions.iter();
        let models =
            models.map(|slot| serde_json::to_value(slot.model().report()).unwrap_or_default());
        report.insert("model".into(), models.collect());
        serde_json::Value::Object(report).to_string()
    }

    /// Calls `with` on the model of function `position`, between two steps of the driver.
    pub fn with_model<R>(
        &self,
        position: usize,
        with: impl FnOnce(&mut Function) -> R,
    ) -> Option<R> {
        self.0.functions.get(position).map(|slot| with(&mut slot.model()))
    }

    /// Device accesses to host memory that was not given out at that moment.
    pub fn stray_accesses(&self) -> u64 {
        self.0.ram.stray()
    }

    /// How often any task was polled.
    pub fn polls(&self) -> u64 {
        self.0.site.executor.polls()
    }

    /// Names of the tasks that have not ended.
    pub fn tasks(&self) -> Vec<&'static str> {
        self.0.site.executor.names()
    }

    /// Drops every task, whatever it holds. Tasks hold handles on the machine, so a machine that
    /// had tasks is only freed after this.
    pub fn shut_down(&self) {
        self.0.ram.close();
        self.0.site.executor.clear();
    }

    fn random_bit(&self) -> bool {
        self.0.random.next() & 1 == 1
    }

    pub(crate) fn slots(&self) -> &[Arc<Slot>] {
        &self.0.functions
    }
}

impl Platform for Machine {
    type Function = HostedFunction;

    fn now(&self) -> Instant {
        self.0.site.clock.now()
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        self.0.site.clock.sleep_until(deadline)
    }

    fn alloc_dma(&self, len_bytes: u64, align: u64) -> Result<DmaBuf, DmaExhausted> {
        self.0.ram.alloc(len_bytes, align)
    }

    fn free_dma_bytes(&self) -> u64 {
        self.0.ram.free_bytes()
    }

    fn functions(&self) -> Vec<HostedFunction> {
        self.0.functions.iter().cloned().map(HostedFunction).collect()
    }

    fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), SpawnError> {
        self.0.site.executor.spawn(name, Box::pin(task));
        Ok(())
    }

    /// Time stands still while a task runs: none of them is ever busy.
    fn tasks(&self, each: &mut dyn FnMut(TaskUse)) {
        for (name, polls) in self.0.site.executor.uses() {
            each(TaskUse { name, polls, busy: core::time::Duration::ZERO });
        }
    }

    fn write_barrier(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    fn random(&self) -> u64 {
        self.0.random.next()
    }

    fn cycles(&self) -> u64 {
        self.0.accesses.load(Ordering::Relaxed)
    }

    fn product_name(&self) -> Option<String> {
        self.0.product_name.clone()
    }

    fn console_write(&self, bytes: &[u8]) {
        self.0.console.write(bytes);
    }

    fn console_read(&self) -> impl Future<Output = Option<u8>> + Send {
        self.0.console.read()
    }

    fn console_is_interactive(&self) -> bool {
        self.0.console.is_interactive()
    }

    fn console_echoes(&self) -> bool {
        self.0.console.is_interactive()
    }

    fn file(&self, name: &str) -> Option<Vec<u8>> {
        self.0.files.get(name).cloned()
    }

    fn arguments(&self) -> Vec<String> {
        self.0.arguments.clone()
    }

    fn model(&self) -> Option<&dyn ModelControl> {
        Some(self)
    }
}

impl ModelControl for Machine {
    fn control(&self, function: usize, line: &str) -> Result<String, String> {
        match self.0.functions.get(function) {
            Some(slot) => slot.model().control(line),
            None => {
                Err(format!("no function {function}: the machine has {}", self.0.functions.len()))
            }
        }
    }
}
