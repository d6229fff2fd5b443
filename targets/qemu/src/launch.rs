//! One VM from its start to its end, with the model servers of its functions.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use axon_model::FaultWord;

use crate::console::Console;
use crate::devices::{Function, Product, plan};
use crate::model::Server;
use crate::session::{Event, ProcessId, Session};
use crate::terminal::{EachKey, forward_input};
use crate::vm::{Socket, Vm};
use crate::{Accelerator, Ending, Error, Outcome, Qemu};

/// Time the VM has to end after one of its model servers did.
const WITHOUT_MODEL: Duration = Duration::from_secs(2);

/// Time for the rest of the console's output to arrive after QEMU ended.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// Which functions a VM gets, checked.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub(crate) functions: Vec<Function>,
    note: Option<String>,
}

impl Plan {
    /// Functions for these products, in this order, with these faults.
    ///
    /// # Errors
    /// A sentence: too many functions, or a fault for a device that is not there.
    pub fn new(products: &[Product], faults: &[FaultWord]) -> Result<Plan, String> {
        let (functions, note) = plan(products, faults)?;
        Ok(Plan { functions, note })
    }

    /// Number of functions.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether there is no function.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }
}

/// What is typed on the VM's console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Nothing.
    None,
    /// What the launcher reads from its standard input; a terminal is switched to single keys.
    Standard,
}

/// A VM to run.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The image, an ELF file.
    pub image: PathBuf,
    /// Memory of the VM.
    pub memory_bytes: u64,
    /// What executes guest instructions.
    pub accelerator: Accelerator,
    /// Count guest instructions; needs [`Accelerator::Tcg`].
    pub icount: bool,
    /// SMBIOS product name; QEMU's own where there is none.
    pub instance: Option<String>,
    /// Words for the application.
    pub words: Vec<String>,
    /// The script for the application, where there is one.
    pub script: Option<Vec<u8>>,
    /// The emulated functions.
    pub plan: Plan,
    /// The program that emulates a function.
    pub model_server: PathBuf,
    /// What is typed on the console.
    pub input: Input,
    /// Time after which the VM is ended.
    pub timeout: Option<Duration>,
}

impl Launch {
    /// Runs the VM to its end; its console goes to `screen` as it comes.
    ///
    /// # Errors
    /// Where the VM could not be started or its model did not stay; a VM that ends badly is no
    /// error but an [`Ending`].
    pub fn run(
        &self,
        qemu: &Qemu,
        session: &mut Session,
        screen: &mut dyn Write,
    ) -> Result<Outcome, Error> {
        if let Some(note) = &self.plan.note {
            session.progress.step(note);
        }
        let servers = Server::start_all(&self.model_server, &self.plan, self.icount, session)?;
        let keys = match self.input {
            Input::Standard => EachKey::begin(),
            Input::None => None,
        };
        let started = Instant::now();
        let (input_starts, started_input) = channel();
        let vm = self.start(qemu, &servers, keys.is_some(), started_input, session)?;
        let deadline = self.timeout.map(|span| started + span);
        let mut watch = Watch {
            vm,
            servers: &servers,
            console: Console::default(),
            screen,
            input_starts,
            closed: false,
        };
        let ending = watch.until_end(deadline, session)?;
        session.stop(vm, Instant::now(), |event| watch.show(event));
        watch.finish();
        if keys.is_some() {
            // The prompt's line is over.
            watch.print(b"\n");
        }
        drop(keys);

        let elapsed = started.elapsed();
        let models = servers.iter().map(|server| server.finish(session, drop)).collect();
        Ok(Outcome::new(ending, elapsed, &watch.console, models))
    }

    fn start(
        &self,
        qemu: &Qemu,
        servers: &[Server],
        interactive: bool,
        input_starts: Receiver<()>,
        session: &mut Session,
    ) -> Result<ProcessId, Error> {
        let mut files = Vec::new();
        if let Some(text) = &self.script {
            let path = session.scratch()?.join("script");
            fs::write(&path, text).map_err(Error::file("write", &path))?;
            files.push(("script", path));
        }
        let own_words = [
            (interactive, "axon.interactive"),
            (self.icount, "axon.icount"),
            (self.icount, "unit=instructions"),
        ];
        let own_words = own_words.iter().filter(|(wanted, _)| *wanted);
        let words = own_words.map(|(_, word)| word.to_string());
        let vm = Vm {
            image: &self.image,
            memory_bytes: self.memory_bytes,
            accelerator: self.accelerator,
            icount: self.icount,
            instance: self.instance.as_deref(),
            words: words.chain(self.words.iter().cloned()).collect(),
            files,
            functions: servers
                .iter()
                .map(|server| Socket { path: server.socket.clone(), lacks_bar4: server.lacks_bar4 })
                .collect(),
        };
        let mut command = qemu.command();
        command.args(vm.arguments()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(match self.input {
            Input::Standard => Stdio::piped(),
            Input::None => Stdio::null(),
        });
        let (process, input) = session.spawn(&mut command)?;
        if let Some(input) = input {
            forward_input(input, input_starts);
        }
        Ok(process)
    }
}

/// A VM that is running.
struct Watch<'a> {
    vm: ProcessId,
    servers: &'a [Server],
    console: Console,
    screen: &'a mut dyn Write,
    /// Told when the VM takes input.
    input_starts: Sender<()>,
    /// Everything the VM printed has arrived.
    closed: bool,
}

impl Watch<'_> {
    fn until_end(
        &mut self,
        deadline: Option<Instant>,
        session: &mut Session,
    ) -> Result<Ending, Error> {
        let mut deadline = deadline;
        let mut lost_model = None;
        loop {
            let Some(event) = session.next(deadline) else {
                return match lost_model {
                    None => Ok(Ending::TimedOut),
                    Some(index) => Err(Error::ModelLost { index }),
                };
            };
            match event {
                Event::Signal(signal) => return Ok(Ending::Interrupted(signal)),
                Event::Ended(from, status) if from == self.vm => {
                    self.rest_of_output(session);
                    return Ok(Ending::of_qemu(status));
                }
                Event::Ended(from, _) => {
                    // When the VM ends its models do too, and may be seen to end first.
                    lost_model = self.servers.iter().position(|server| server.process == from);
                    let soon = Instant::now() + WITHOUT_MODEL;
                    deadline = Some(deadline.map_or(soon, |deadline| deadline.min(soon)));
                }
                Event::ErrorLine(from, line) => {
                    self.tell(from, &line, session);
                    // QEMU then holds the machine for a debugger.
                    if from == self.vm && line.starts_with("KVM internal error") {
                        return Err(Error::Kvm);
                    }
                }
                event => self.show(event),
            }
        }
    }

    /// Shows what the VM printed before it ended.
    fn rest_of_output(&mut self, session: &mut Session) {
        let deadline = Instant::now() + LAST_OUTPUT;
        while !self.closed {
            match session.next(Some(deadline)) {
                Some(Event::ErrorLine(from, line)) => self.tell(from, &line, session),
                Some(event) => self.show(event),
                None => return,
            }
        }
    }

    fn show(&mut self, event: Event) {
        match event {
            Event::Output(from, bytes) if from == self.vm => {
                // Told every time, heard once; nobody listens where there is no input.
                let _ = self.input_starts.send(());
                let shown = self.console.take(&bytes);
                self.print(&shown);
            }
            Event::Closed(from) if from == self.vm => self.closed = true,
            _ => {}
        }
    }

    fn finish(&mut self) {
        let rest = self.console.finish();
        self.print(&rest);
    }

    fn print(&mut self, bytes: &[u8]) {
        // A screen that is gone is no reason to leave the VM half run.
        let _ = self.screen.write_all(bytes).and_then(|()| self.screen.flush());
    }

    /// Passes on what QEMU or a model server complains of.
    fn tell(&self, from: ProcessId, line: &str, session: &mut Session) {
        // Every function without interrupts gets this one; axon uses no interrupt of the device.
        if line.contains("Could not enable error recovery for the device") {
            return;
        }
        let name = match self.servers.iter().position(|server| server.process == from) {
            Some(index) => format!("model {index}"),
            None => "qemu".to_string(),
        };
        session.progress.step(&format!("{name}: {line}"));
    }
}
