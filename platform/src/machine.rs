//! The machine as a whole.

use alloc::string::String;
use alloc::sync::Weak;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::time::Duration;

use crate::{DmaBuf, Errno, Instant, PciFunction};

/// No physically contiguous host memory below 4 GiB for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DmaExhausted {
    /// Bytes asked for.
    pub asked: u64,
    /// Longest free contiguous run in bytes, as far as the platform knows.
    pub largest: u64,
}

impl fmt::Display for DmaExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no contiguous host memory for {} bytes (longest free run {})",
            self.asked, self.largest
        )
    }
}

impl core::error::Error for DmaExhausted {}

/// The executor has no room for another task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpawnError;

impl SpawnError {
    /// Always [`Errno::ENOMEM`].
    pub const fn errno(self) -> Errno {
        Errno::ENOMEM
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the executor has no room for another task")
    }
}

impl core::error::Error for SpawnError {}

/// Hands a fault or an event to an emulated function: in the same process, or on the other side of
/// a bus (see [`control`](crate::control())).
pub trait ModelControl: Send + Sync {
    /// Carries out one control line for the function at position `function` of
    /// [`Platform::functions`], for example `fault drop-marker=1 after=3` or `fault clear`.
    ///
    /// # Errors
    /// A sentence that says which word is wrong.
    fn control(&self, function: usize, line: &str) -> Result<String, String>;
}

/// What it took to start, on a machine that boots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BootStats {
    /// [`Platform::cycles`] from the entry point to the application's first instruction, less what
    /// the processor was halted.
    pub entry_to_main_cycles: u64,
    /// [`Platform::cycles`] from the entry point until now, less what the processor was halted.
    pub busy_cycles: u64,
    /// Time from the entry point to the application's first instruction.
    pub entry_to_main: Duration,
    /// Time the processor was halted from the entry point until now.
    pub halted: Duration,
    /// Bytes of the image that are loaded from its file.
    pub image_bytes: u64,
}

/// What one task did since it was spawned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskUse {
    /// Name it was spawned with; several tasks may share one.
    pub name: &'static str,
    /// Times it ran.
    pub polls: u64,
    /// Time it ran for while [`Platform::measure_tasks`] was on.
    pub busy: Duration,
}

/// Something worth printing when the machine cannot go on.
pub trait LastWords: Send + Sync {
    /// Prints it. Runs in any state of the machine: no heap, no lock, no waiting.
    ///
    /// # Errors
    /// Those of the sink.
    fn say(&self, to: &mut dyn fmt::Write) -> fmt::Result;
}

/// A machine: clock, timers, host memory, PCI functions, tasks, console.
///
/// Clones are handles on the same machine.
pub trait Platform: Clone + Send + Sync + 'static {
    /// A PCI function of this machine.
    type Function: PciFunction;

    /// Monotonic time.
    fn now(&self) -> Instant;

    /// Resolves at `deadline`, or soon after.
    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send + 'static;

    /// Resolves when `span` has passed.
    fn sleep(&self, span: Duration) -> impl Future<Output = ()> + Send + 'static {
        self.sleep_until(self.now() + span)
    }

    /// Zeroed, physically contiguous host memory below 4 GiB, at least page-aligned.
    ///
    /// `len_bytes` is rounded up to whole pages; `align` is a power of two. The memory goes back
    /// to the machine when the last clone or slice of the buffer is dropped.
    ///
    /// # Errors
    /// [`DmaExhausted`] where no run is long enough, and for a length of 0.
    fn alloc_dma(&self, len_bytes: u64, align: u64) -> Result<DmaBuf, DmaExhausted>;

    /// Host memory that may still be given out by [`Platform::alloc_dma`], in bytes.
    fn free_dma_bytes(&self) -> u64;

    /// Every PCI function found at start, in bus order.
    fn functions(&self) -> Vec<Self::Function>;

    /// Runs `task` beside the caller until it ends.
    ///
    /// `name` shows in task listings. Tasks never run in parallel with each other today; they
    /// may later.
    ///
    /// # Errors
    /// [`SpawnError`] where the executor is full; the task is dropped.
    fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), SpawnError>;

    /// Hands every task that was spawned and has not ended to `each`; the application's own is not
    /// among them. Nothing where the machine does not count.
    fn tasks(&self, each: &mut dyn FnMut(TaskUse)) {
        let _ = each;
    }

    /// Switches on or off that the time of tasks is taken, which costs two looks at the clock each
    /// time one runs. Off at start.
    fn measure_tasks(&self, on: bool) {
        let _ = on;
    }

    /// Has `words` printed where the machine ends in a panic or a processor exception, as long as
    /// somebody else holds them. Nothing where a panic ends less than a machine.
    fn on_fatal(&self, words: Weak<dyn LastWords>) {
        let _ = words;
    }

    /// Orders earlier stores to host memory and write-combining windows before later register
    /// writes. Needed once before every doorbell (specification 02 §7.3).
    fn write_barrier(&self);

    /// Random bits: seeded and repeatable when hosted.
    fn random(&self) -> u64;

    /// A free-running counter for measurements: instructions under `-icount`, cycles otherwise;
    /// a count of register accesses when hosted.
    fn cycles(&self) -> u64;

    /// What it took to start; `None` where nothing boots (hosted).
    fn boot_stats(&self) -> Option<BootStats> {
        None
    }

    /// SMBIOS system product name (`trn2u.48xlarge`), where there is one.
    fn product_name(&self) -> Option<String> {
        None
    }

    /// Writes to the console; never blocks for longer than the line takes.
    fn console_write(&self, bytes: &[u8]);

    /// Next byte typed on the console; `None` at end of input.
    fn console_read(&self) -> impl Future<Output = Option<u8>> + Send;

    /// Whether a person sits at the console (prompt and echo wanted).
    fn console_is_interactive(&self) -> bool;

    /// Whether the terminal shows what is typed by itself and hands over whole lines.
    fn console_echoes(&self) -> bool {
        false
    }

    /// A named file handed over by the launcher (a script, for instance).
    fn file(&self, name: &str) -> Option<Vec<u8>>;

    /// The words of the command line.
    fn arguments(&self) -> Vec<String>;

    /// Control over the emulated functions; `None` where there are none.
    fn model(&self) -> Option<&dyn ModelControl> {
        None
    }
}
