//! The list of checks, and the little that they share.

use alloc::format;
use alloc::string::String;
use core::fmt::Debug;

use axon_kernel::Machine;
use axon_platform::Platform;

use crate::{devices, memory, tasks};

/// What a check found: nothing, or what is wrong.
pub type Outcome = Result<(), String>;

/// Runs every check; the exit code says whether all passed.
pub async fn run(machine: Machine) -> u8 {
    let outcomes = [
        ("no page is writable and executable", memory::rights()),
        ("null and guard pages are not mapped", memory::holes()),
        ("the heap grows and takes back", memory::heap()),
        ("more than there is is refused", memory::refusals(machine)),
        ("DMA memory is zeroed, aligned, low and returned", memory::dma(machine)),
        ("functions are found in bus order", devices::functions(machine)),
        ("a test device answers through its BAR", devices::edu(machine)),
        ("a large BAR costs a few tables", devices::shared_memory(machine)),
        ("files, arguments and names", devices::launcher(machine)),
        ("tasks run, end, and leave room for others", tasks::spawning(machine).await),
        ("sleeping is never early", tasks::sleeping(machine).await),
        ("a busy task does not hold a sleeper up", tasks::busy(machine).await),
        ("an idle processor halts", tasks::idling(machine).await),
        ("random numbers differ", random(machine)),
        ("starting was counted", statistics(machine)),
    ];
    let mut code = 0;
    for (name, outcome) in outcomes {
        let line = match outcome {
            Ok(()) => format!("ok {name}\n"),
            Err(why) => {
                code = 1;
                format!("FAILED {name}: {why}\n")
            }
        };
        machine.console_write(line.as_bytes());
    }
    code
}

/// An outcome from a comparison.
pub fn equal<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: found {found:x?}, expected {expected:x?}"))
}

/// An outcome from a condition.
pub fn holds(what: &str, condition: bool) -> Outcome {
    equal(what, condition, true)
}

fn random(machine: Machine) -> Outcome {
    holds("two numbers differ", machine.random() != machine.random())
}

fn statistics(machine: Machine) -> Outcome {
    let stats = machine.boot_stats().ok_or("no statistics")?;
    let line = format!(
        "entry to main: {} cycles, {:?}; halted {:?}; image {} bytes\n",
        stats.entry_to_main_cycles, stats.entry_to_main, stats.halted, stats.image_bytes
    );
    machine.console_write(line.as_bytes());
    holds("the image has a size", stats.image_bytes > 4096)
}
