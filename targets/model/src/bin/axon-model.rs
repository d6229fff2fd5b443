//! Serves emulated Neuron functions over vfio-user, one socket each.

#![forbid(unsafe_code)]

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use axon_model::server::{Observer, Service, ServiceError, ServiceOptions, Time};
use axon_model::{Bar4, FunctionConfig, Product};
use clap::{Parser, ValueEnum};

/// Emulates AWS Neuron PCI functions behind vfio-user sockets.
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    /// Socket to listen on; once for each function.
    #[arg(long, required = true)]
    socket: Vec<PathBuf>,
    /// trn1, inf2, trn2, trn3 or trn3-7565.
    #[arg(long, value_parser = parse_product)]
    device: Product,
    /// Index of the first function; further ones count up.
    #[arg(long, default_value_t = 0)]
    index: u32,
    /// Memory window: full, absent, or bytes (a power of two).
    #[arg(long, default_value = "full", value_parser = parse_bar4)]
    bar4: Bar4,
    /// PCI revision: 0xff is the simulator, 0xf0 the emulator.
    #[arg(long, value_parser = parse_u32)]
    revision: Option<u32>,
    /// Firmware's API version.
    #[arg(long, value_parser = parse_u32)]
    api_version: Option<u32>,
    /// Routing id instead of the one that belongs to the index.
    #[arg(long, value_parser = parse_u32)]
    routing_id: Option<u32>,
    /// Server and rack id; bit 15 makes the server id valid.
    #[arg(long, value_parser = parse_u32)]
    server_rack_id: Option<u32>,
    /// Length of a reset in milliseconds.
    #[arg(long)]
    reset_ms: Option<u64>,
    /// Fault: NAME[=VALUE][,after=N][,times=N]; may be repeated.
    #[arg(long)]
    fault: Vec<String>,
    /// Trace to record: doorbells, descriptors, registers or all; may be repeated.
    #[arg(long)]
    trace: Vec<String>,
    /// Doorbells on queues without a ring are violations even right after a reset.
    #[arg(long)]
    strict: bool,
    /// What time is: wall time, or a number of register reads.
    #[arg(long, value_enum, default_value_t = TimeChoice::Wall)]
    time: TimeChoice,
    /// Keep a processor awake between requests: auto is on for a single function.
    #[arg(long, value_enum, default_value_t = SpinChoice::Auto)]
    spin: SpinChoice,
    /// Reads of one register in a row after which it is named.
    #[arg(long, default_value_t = 10_000)]
    watchdog: u64,
    /// Serve the next client when one leaves.
    #[arg(long)]
    keep: bool,
    /// File for the report (JSON), written when the last client left or on SIGTERM.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Say more on standard error.
    #[arg(long, short)]
    verbose: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TimeChoice {
    Wall,
    Reads,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SpinChoice {
    Auto,
    On,
    Off,
}

fn parse_product(text: &str) -> Result<Product, String> {
    Product::from_name(text).ok_or_else(|| "trn1, inf2, trn2, trn3 or trn3-7565".to_owned())
}

fn parse_bar4(text: &str) -> Result<Bar4, String> {
    match text {
        "full" => Ok(Bar4::Full),
        "absent" => Ok(Bar4::Absent),
        bytes => parse_number(bytes).map(Bar4::Size),
    }
}

fn parse_u32(text: &str) -> Result<u32, String> {
    u32::try_from(parse_number(text)?).map_err(|_| "above 32 bits".to_owned())
}

fn parse_number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a number, decimal or 0x…".to_owned())
}

impl Arguments {
    fn config(&self, place: u32) -> Result<FunctionConfig, String> {
        let mut config = FunctionConfig::new(self.device, self.index + place);
        config.bar4 = self.bar4;
        config.strict = self.strict;
        config.revision = self.revision.map_or(config.revision, |value| value as u8);
        config.api_version = self.api_version.unwrap_or(config.api_version);
        config.routing_id = self.routing_id.unwrap_or(config.routing_id);
        config.server_rack_id = self.server_rack_id.unwrap_or(config.server_rack_id);
        if let Some(length) = self.reset_ms {
            config.reset_ns = length.saturating_mul(1_000_000);
        }
        for fault in &self.fault {
            config.fault(fault).map_err(|error| error.to_string())?;
        }
        for trace in &self.trace {
            config.trace(trace)?;
        }
        Ok(config)
    }

    fn options(&self, socket: &std::path::Path) -> ServiceOptions {
        ServiceOptions {
            socket: socket.to_owned(),
            time: match self.time {
                TimeChoice::Wall => Time::Wall,
                TimeChoice::Reads => Time::Reads,
            },
            spin: match self.spin {
                SpinChoice::Auto => self.socket.len() == 1,
                SpinChoice::On => true,
                SpinChoice::Off => false,
            },
            watchdog: self.watchdog,
            keep: self.keep,
        }
    }

    fn services(&self) -> Result<Vec<Service>, Failure> {
        let mut services = Vec::new();
        for (place, socket) in self.socket.iter().enumerate() {
            let config = self.config(place as u32).map_err(Failure::Usage)?;
            let service = Service::new(config, self.options(socket)).map_err(|error| {
                let words = error.to_string();
                match error {
                    ServiceError::Config(_) => Failure::Usage(words),
                    _ => Failure::Running(words),
                }
            })?;
            services.push(service);
        }
        Ok(services)
    }

    fn write_report(&self, observers: &[Observer]) -> Result<(), String> {
        let Some(path) = &self.report else { return Ok(()) };
        let reports: Vec<_> = observers.iter().map(Observer::report).collect();
        let json = match reports.as_slice() {
            [report] => serde_json::to_vec_pretty(report),
            several => serde_json::to_vec_pretty(several),
        }
        .map_err(|error| error.to_string())?;
        std::fs::write(path, json).map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// Why the program ends without having served.
enum Failure {
    /// What was asked makes no sense: exit code 2.
    Usage(String),
    /// It could not be done: exit code 1.
    Running(String),
}

/// What ends the program.
enum End {
    Served,
    Signal,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    StandardError::install(arguments.verbose);
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(words)) => {
            eprintln!("axon-model: {words}");
            ExitCode::from(2)
        }
        Err(Failure::Running(words)) => {
            eprintln!("axon-model: {words}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let services = arguments.services()?;
    let observers: Vec<Observer> = services.iter().map(Service::observer).collect();
    let (sender, ends) = mpsc::channel();
    watch_signals(sender.clone()).map_err(|error| Failure::Running(error.to_string()))?;
    for service in services {
        let sender = sender.clone();
        std::thread::spawn(move || {
            service.run();
            let _ = sender.send(End::Served);
        });
    }
    wait(arguments.socket.len(), &ends);
    // A service that still runs is ended with the process: its socket goes first.
    for socket in &arguments.socket {
        let _ = std::fs::remove_file(socket);
    }
    arguments.write_report(&observers).map_err(Failure::Running)
}

/// Waits until all functions were served, a signal came, or whoever started the program is gone.
fn wait(functions: usize, ends: &mpsc::Receiver<End>) {
    let parent = rustix::process::getppid();
    let mut served = 0;
    while served < functions && rustix::process::getppid() == parent {
        match ends.recv_timeout(Duration::from_secs(1)) {
            Ok(End::Served) => served += 1,
            Ok(End::Signal) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn watch_signals(sender: mpsc::Sender<End>) -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            let _ = sender.send(End::Signal);
        }
    });
    Ok(())
}

/// The text log on standard error.
struct StandardError;

impl StandardError {
    fn install(verbose: bool) {
        if log::set_logger(&StandardError).is_ok() {
            let level = if verbose { log::LevelFilter::Debug } else { log::LevelFilter::Warn };
            log::set_max_level(level);
        }
    }
}

impl log::Log for StandardError {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        // Standard error may be closed; nobody is left to be told.
        let _ = writeln!(std::io::stderr(), "axon-model: {}", record.args());
    }

    fn flush(&self) {}
}
