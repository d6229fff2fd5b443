//! The model servers of a VM: one process a function, reached by QEMU over a socket.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::devices::Function;
use crate::session::{Event, ProcessId, Session};
use crate::{Error, Plan};

/// Time a server gets to listen on its socket.
const START: Duration = Duration::from_secs(10);

/// How often a socket is looked for.
const LOOK: Duration = Duration::from_millis(1);

/// Time a server gets to write its report once the VM is gone.
const REPORT: Duration = Duration::from_secs(5);

/// A running model server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) process: ProcessId,
    pub(crate) socket: PathBuf,
    pub(crate) lacks_bar4: bool,
    report: PathBuf,
}

impl Server {
    /// Starts one server for each function of `plan` and waits until all of them listen.
    ///
    /// # Errors
    /// [`Error::Model`] with the server's own words.
    pub(crate) fn start_all(
        program: &Path,
        plan: &Plan,
        icount: bool,
        session: &mut Session,
    ) -> Result<Vec<Server>, Error> {
        let mut servers = Vec::with_capacity(plan.functions.len());
        for (index, function) in plan.functions.iter().enumerate() {
            let scratch = session.scratch()?;
            let socket = scratch.join(format!("{index}.sock"));
            let report = scratch.join(format!("{index}.json"));
            let mut command = command(program, index, function, &socket, &report);
            // A waiting guest executes a billion instructions a virtual second.
            command.args(["--time", if icount { "reads" } else { "wall" }]);
            // A server that stays awake answers sooner and costs a processor.
            command.args(["--spin", if plan.functions.len() == 1 { "on" } else { "off" }]);
            let (process, _) = session.spawn(&mut command)?;
            servers.push(Server { process, socket, lacks_bar4: function.lacks_bar4(), report });
        }
        let deadline = Instant::now() + START;
        for (index, server) in servers.iter().enumerate() {
            server.wait_until_listening(index, deadline, session)?;
        }
        Ok(servers)
    }

    fn wait_until_listening(
        &self,
        index: usize,
        deadline: Instant,
        session: &mut Session,
    ) -> Result<(), Error> {
        let mut words = Vec::new();
        while !is_listening(&self.socket) {
            match session.next(Some(Instant::now() + LOOK)) {
                Some(Event::ErrorLine(from, line)) if from == self.process => words.push(line),
                Some(Event::Ended(from, status)) if from == self.process => {
                    return Err(Error::Model {
                        index,
                        usage: status.code() == Some(2),
                        words: words.join("\n"),
                    });
                }
                Some(Event::Signal(signal)) => return Err(Error::Interrupted { signal }),
                _ if Instant::now() > deadline => {
                    words.push(format!("it does not listen after {} s", START.as_secs()));
                    return Err(Error::Model { index, usage: false, words: words.join("\n") });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Waits for the server to end, which it does when the VM is gone, and reads its report.
    pub(crate) fn finish(
        &self,
        session: &mut Session,
        mut others: impl FnMut(Event),
    ) -> Option<serde_json::Value> {
        session.stop(self.process, Instant::now() + REPORT, &mut others);
        serde_json::from_slice(&fs::read(&self.report).ok()?).ok()
    }
}

fn command(
    program: &Path,
    index: usize,
    function: &Function,
    socket: &Path,
    report: &Path,
) -> Command {
    let mut command = Command::new(program);
    command.arg("--socket").arg(socket).arg("--report").arg(report);
    command.args(["--device", function.product.name(), "--index", &index.to_string()]);
    if let Some(bytes) = function.bar4_bytes {
        command.args(["--bar4", &bytes.to_string()]);
    }
    for fault in &function.faults {
        command.args(["--fault", fault]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Whether somebody listens on the socket at `path`: to try a connection would take the place of
/// QEMU's.
fn is_listening(path: &Path) -> bool {
    const LISTENING: &str = "00010000";
    let Ok(table) = fs::read_to_string("/proc/net/unix") else { return path.exists() };
    let path = path.to_string_lossy();
    table.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace();
        fields.nth(3) == Some(LISTENING) && fields.nth(3) == Some(&path)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_listening_socket_is_seen() {
        let path = std::env::temp_dir().join(format!("axon-listen-{}", std::process::id()));
        assert!(!is_listening(&path));
        let listener = UnixListener::bind(&path).unwrap();
        assert!(is_listening(&path));
        drop(listener);
        assert!(path.exists() && !is_listening(&path));
        fs::remove_file(path).unwrap();
    }
}
