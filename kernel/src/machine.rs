//! [`Machine`]: the kernel as the rest of axon sees it.

use alloc::string::String;
use alloc::sync::Weak;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::future::Future;
use core::time::Duration;

use axon_platform::{
    BootStats, DmaBuf, DmaExhausted, Instant, LastWords, ModelControl, Platform, SpawnError,
    TaskUse, control, is_emulated,
};
use critical_section::Mutex;
use embassy_time::Timer;

use crate::memory::{frames, layout};
use crate::options::Options;
use crate::pci::Function;
use crate::time::{clock, idle};
use crate::{console, executor, fatal, files, processor, smbios};

/// The machine this image runs on. Copies are handles on the same one.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    _private: (),
}

struct State {
    options: Options,
    functions: Vec<Function>,
}

static STATE: Mutex<OnceCell<State>> = Mutex::new(OnceCell::new());

impl Machine {
    /// The machine, once it is up.
    pub(crate) fn new(options: Options, functions: Vec<Function>) -> Machine {
        critical_section::with(|section| {
            let _ = STATE.borrow(section).set(State { options, functions });
        });
        Machine { _private: () }
    }

    fn state<R: Default>(&self, look: impl FnOnce(&State) -> R) -> R {
        critical_section::with(|section| STATE.borrow(section).get().map(look).unwrap_or_default())
    }
}

impl Platform for Machine {
    type Function = Function;

    #[inline]
    fn now(&self) -> Instant {
        clock::now()
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        Timer::at(embassy_time::Instant::from_ticks(deadline.as_nanos()))
    }

    fn alloc_dma(&self, len_bytes: u64, align: u64) -> Result<DmaBuf, DmaExhausted> {
        frames::alloc_dma(len_bytes, align)
    }

    fn free_dma_bytes(&self) -> u64 {
        frames::free_bytes()
    }

    fn functions(&self) -> Vec<Function> {
        self.state(|state| state.functions.clone())
    }

    fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), SpawnError> {
        log::trace!("spawning {name}");
        executor::spawn(name, task)
    }

    fn tasks(&self, each: &mut dyn FnMut(TaskUse)) {
        executor::tasks(each);
    }

    fn on_fatal(&self, words: Weak<dyn LastWords>) {
        fatal::add_last_words(words);
    }

    fn measure_tasks(&self, on: bool) {
        executor::measure(on);
    }

    #[inline(always)]
    fn write_barrier(&self) {
        processor::store_fence();
    }

    fn random(&self) -> u64 {
        processor::random().unwrap_or_else(|| mix(processor::time_stamp()))
    }

    #[inline(always)]
    fn cycles(&self) -> u64 {
        processor::time_stamp()
    }

    fn boot_stats(&self) -> Option<BootStats> {
        let image = layout::image();
        let ticks = clock::entry_to_main();
        Some(BootStats {
            entry_to_main_cycles: ticks,
            busy_cycles: clock::since_entry().saturating_sub(idle::halted()),
            entry_to_main: Duration::from_nanos(clock::nanos(ticks)),
            halted: Duration::from_nanos(clock::nanos(idle::halted())),
            image_bytes: image.loaded_end - image.text,
        })
    }

    fn product_name(&self) -> Option<String> {
        smbios::product_name()
    }

    fn console_write(&self, bytes: &[u8]) {
        console::write(bytes);
    }

    fn console_read(&self) -> impl Future<Output = Option<u8>> + Send {
        console::input::read()
    }

    fn console_is_interactive(&self) -> bool {
        self.state(|state| state.options.interactive)
    }

    fn file(&self, name: &str) -> Option<Vec<u8>> {
        files::read(name)
    }

    fn arguments(&self) -> Vec<String> {
        self.state(|state| state.options.arguments.clone())
    }

    /// Functions say themselves that they are emulated; on hardware none does.
    fn model(&self) -> Option<&dyn ModelControl> {
        self.functions().iter().any(is_emulated).then_some(self as &dyn ModelControl)
    }
}

impl ModelControl for Machine {
    fn control(&self, function: usize, line: &str) -> Result<String, String> {
        match self.functions().get(function) {
            Some(function) => control(function, line),
            None => Err(alloc::format!("there is no function {function}")),
        }
    }
}

/// Spreads the bits of a number that only counts (SplitMix64).
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
