//! axon in a Linux process: the emulated function inside, a seeded executor, virtual time.
//!
//! The same driver, services and applications that make the image run here against
//! [`axon_model`]. Nothing depends on the speed of the host: time stands still while tasks run
//! and jumps to the next timer or event of a model when all of them wait. The order in which
//! ready tasks run comes from a seed, so that a run can be repeated exactly and another seed
//! tries another interleaving.
//!
//! ```no_run
//! use axon_hosted::Machine;
//! use axon_platform::Platform;
//!
//! let machine = Machine::builder().device("trn1").seed(7).build().unwrap();
//! let functions = machine.run(async { machine.functions().len() }).unwrap();
//! assert_eq!(functions, 1);
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | [`machine`] | [`Machine`], its builder, the [`axon_platform::Platform`] implementation |
//! | `executor` | tasks, the seeded choice among ready ones |
//! | `clock` | virtual time and timers |
//! | `ram` | the host memory that devices reach, and who reached outside of what was given out |
//! | `function` | PCI functions and BAR windows over the model |
//! | [`Options`] | the command line of a hosted program; [`run`] is its whole `main` |
//! | [`pod`] | machines linked as an UltraServer |
//! | `console` | standard input and output, or text given by a test |

#![deny(unsafe_code)]

mod clock;
mod console;
mod executor;
mod function;
mod logger;
pub mod machine;
mod options;
pub mod pod;
mod ram;

pub use console::{Input, Output};
pub use executor::Stalled;
pub use function::{HostedFunction, HostedWindow};
pub use machine::{BuildError, Machine, MachineBuilder};
pub use options::{Options, UsageError, run, split_devices};
