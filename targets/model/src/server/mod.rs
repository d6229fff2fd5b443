//! The function behind a vfio-user socket, for any guest of any machine monitor that speaks it.
//!
//! Everything of vfio-user is in this module. One [`Service`] is one function on one socket: HBM is
//! mapped straight into the guest through BAR4, guest memory straight into the model. Register
//! accesses run the model on the thread that serves the socket; what happens by itself (the end of
//! a reset, the rest of a long DMA) runs on a second thread.

mod awake;
mod backend;
mod clock;
mod regions;
mod timer;
mod watchdog;
mod windows;

use std::fmt;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::{ConfigError, Function, FunctionConfig, Report};

use backend::Backend;
pub use clock::Time;
pub use watchdog::Spin;
use watchdog::Watchdog;
use windows::GuestWindows;

/// How a function is served.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Socket to listen on.
    pub socket: PathBuf,
    /// What time is.
    pub time: Time,
    /// Keep the processor awake for a moment after each request.
    pub spin: bool,
    /// Reads of one register in a row after which the guest counts as spinning.
    pub watchdog: u64,
    /// Serve the next client when one leaves, the function as after power-on.
    pub keep: bool,
}

/// Why a function is not served.
#[derive(Debug)]
pub enum ServiceError {
    /// The function's configuration.
    Config(ConfigError),
    /// The socket.
    Socket(PathBuf, vfio_user::Error),
    /// Somebody serves this socket already.
    InUse(PathBuf),
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServiceError::Config(error) => write!(f, "{error}"),
            ServiceError::Socket(path, error) => write!(f, "socket {}: {error}", path.display()),
            ServiceError::InUse(path) => {
                write!(f, "socket {}: another process serves it", path.display())
            }
        }
    }
}

impl std::error::Error for ServiceError {}

/// What the service adds to the function's own report.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceReport {
    /// The function's report.
    #[serde(flatten)]
    pub function: Report,
    /// Registers that the guest read over and over.
    pub spins: Vec<Spin>,
    /// Windows of guest memory that came without a file, so that DMA cannot reach them.
    pub unreachable_windows: u64,
    /// Requests that were refused because they made no sense.
    pub refused_requests: u64,
}

/// What the two threads of a service share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Wakes the timer thread when the next event moved, or to end.
    changed: Condvar,
}

pub(crate) struct State {
    pub function: Function,
    pub watchdog: Watchdog,
    pub refused: u64,
    pub ended: bool,
}

impl Shared {
    /// The state, also after a thread died with it: every change is whole by itself.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One function on one socket.
pub struct Service {
    shared: Arc<Shared>,
    windows: Arc<GuestWindows>,
    clock: Arc<clock::ServerClock>,
    server: vfio_user::Server,
    options: ServiceOptions,
}

/// Reads the report of a service while it runs.
#[derive(Clone)]
pub struct Observer {
    shared: Arc<Shared>,
    windows: Arc<GuestWindows>,
}

impl Observer {
    /// What was seen so far.
    pub fn report(&self) -> ServiceReport {
        let state = self.shared.lock();
        ServiceReport {
            function: state.function.report(),
            spins: state.watchdog.spins().to_vec(),
            unreachable_windows: self.windows.unreachable(),
            refused_requests: state.refused,
        }
    }
}

impl Service {
    /// Makes the function and listens.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn new(config: FunctionConfig, options: ServiceOptions) -> Result<Service, ServiceError> {
        let windows = Arc::new(GuestWindows::default());
        let clock = Arc::new(clock::ServerClock::new(options.time));
        let function =
            Function::new(config, windows.clone(), clock.clone()).map_err(ServiceError::Config)?;
        let regions = regions::of(&function);
        remove_stale(&options.socket)?;
        let server = vfio_user::Server::new(&options.socket, true, regions::interrupts(), regions)
            .map_err(|error| ServiceError::Socket(options.socket.clone(), error))?;
        let state =
            State { function, watchdog: Watchdog::new(options.watchdog), refused: 0, ended: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        Ok(Service { shared, windows, clock, server, options })
    }

    /// A handle on the report, also for another thread.
    pub fn observer(&self) -> Observer {
        Observer { shared: self.shared.clone(), windows: self.windows.clone() }
    }

    /// Serves one client until it leaves; with `keep` one after the other, for ever.
    pub fn run(&self) {
        std::thread::scope(|scope| {
            scope.spawn(|| timer::run(&self.shared, &self.clock));
            let awake = self.options.spin.then(|| Arc::new(awake::Awake::default()));
            if let Some(awake) = awake.clone() {
                scope.spawn(move || awake.run());
            }
            loop {
                self.serve(awake.clone());
                if !self.options.keep {
                    break;
                }
                self.windows.clear();
                self.shared.lock().function.bus_reset();
            }
            self.shared.lock().ended = true;
            self.shared.changed.notify_all();
            if let Some(awake) = awake {
                awake.end();
            }
        });
    }

    fn serve(&self, awake: Option<Arc<awake::Awake>>) {
        let mut backend = Backend::new(self.shared.clone(), self.windows.clone(), awake);
        // The crate's loop panics on some malformed messages: that ends the client, not the model.
        match catch_unwind(AssertUnwindSafe(|| self.server.run(&mut backend))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => log::warn!("client lost: {error}"),
            Err(_) => log::error!("client dropped: its message made no sense"),
        }
    }
}

/// Removes the socket of a server that is no more.
fn remove_stale(path: &Path) -> Result<(), ServiceError> {
    if !path.exists() {
        return Ok(());
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(ServiceError::InUse(path.to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            // If it cannot be removed, listening says why.
            let _ = std::fs::remove_file(path);
            Ok(())
        }
        Err(_) => Ok(()),
    }
}
