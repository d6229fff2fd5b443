//! What an application starts and ends with.

use core::future::Future;

use axon_platform::Platform;

use crate::Driver;

/// The machine and the driver: the argument of an application's `main`.
pub struct Context<P: Platform> {
    /// Clock, console, files, arguments.
    pub platform: P,
    /// The devices.
    pub driver: Driver<P>,
}

impl<P: Platform> Context<P> {
    /// Starts to bring every function up and answers at once.
    pub fn start(platform: P) -> Self {
        Context { driver: Driver::start(platform.clone()), platform }
    }
}

/// Runs an application on a machine: brings the devices up beside it, and takes them down when it
/// has ended, so that none can write to memory any more (specification 05 §5).
///
/// ```text
/// axon_boot::entry!(|machine| axon::run(machine, axon_bringup::main));
/// ```
pub async fn run<P, F>(platform: P, application: impl FnOnce(Context<P>) -> F) -> ExitCode
where
    P: Platform,
    F: Future<Output = ExitCode>,
{
    let context = Context::start(platform);
    let driver = context.driver.clone();
    let code = application(context).await;
    driver.shut_down().await;
    code
}

/// How an application ends: 0 for success, 1 to 99 for its own failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExitCode(pub u8);

impl ExitCode {
    /// All is well.
    pub const SUCCESS: ExitCode = ExitCode(0);
    /// Something is not as it has to be.
    pub const FAILURE: ExitCode = ExitCode(1);
    /// The command line or the script cannot be read.
    pub const USAGE: ExitCode = ExitCode(2);
}

impl From<ExitCode> for u8 {
    fn from(code: ExitCode) -> u8 {
        code.0
    }
}
