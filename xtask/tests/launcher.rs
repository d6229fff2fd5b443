//! The launcher seen from outside: exit codes, what it prints, and that nothing is left behind.
//!
//! A script plays QEMU, so no image is built and nothing boots here.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A directory of the test's own; the launcher's temporary directory is inside.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        // Short: sockets have short addresses.
        fs::create_dir_all(path.join("t")).unwrap();
        Place(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// `cargo xtask ARGUMENTS…` with `script` in QEMU's place.
    fn xtask(&self, script: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(arguments).env("TMPDIR", self.file("t")).env("FAKE_QEMU", script);
        command.env("AXON_QEMU", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-qemu.sh"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a VM without devices.
    fn run(&self, script: &str, more: &[&str]) -> Output {
        self.start(script, more).wait_with_output().unwrap()
    }

    fn start(&self, script: &str, more: &[&str]) -> Child {
        let mut arguments = vec!["run", "--image", "/nonexistent", "--device", "none"];
        arguments.extend(more);
        self.xtask(script, &arguments).spawn().unwrap()
    }

    fn assert_nothing_left(&self) {
        let left = || fs::read_dir(self.file("t")).unwrap().count();
        wait_until(|| left() == 0);
        assert_eq!(left(), 0, "files left in the temporary directory");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits for what happens soon; the caller asserts it.
fn wait_until(condition: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !condition() && Instant::now() < patience {
        thread::sleep(Duration::from_millis(2));
    }
}

fn is_running(process: &str) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|text| !text.contains(") Z "))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A VM with a child that prints its process number and never ends.
const HANG: &str = "echo $$; sleep 600 & wait";

/// Starts a hanging VM, hands the launcher to `meddle`, and checks that all of it goes.
fn hang(place: &Place, script: &str, more: &[&str], meddle: impl FnOnce(&Child)) -> Output {
    let mut child = place.start(script, more);
    let mut screen = BufReader::new(child.stdout.take().unwrap());
    let mut process = String::new();
    screen.read_line(&mut process).unwrap();
    let process = process.trim();
    assert!(is_running(process));
    meddle(&child);
    let output = child.wait_with_output().unwrap();
    wait_until(|| !is_running(process));
    assert!(!is_running(process), "the VM is still running");
    place.assert_nothing_left();
    output
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn wrong_words_end_with_usage_and_2() {
    let place = Place::new("words");
    for arguments in [
        &[][..],
        &["fly"],
        &["run", "--app", "nobody"],
        &["run", "--hosted", "--app", "nobody"],
        &["run", "--wings"],
        &["run", "--device", "trn9"],
        &["run", "--devices", "0"],
        &["run", "--devices", "17"],
        &["run", "--memory", "lots"],
        &["run", "--fault", "slow@7"],
        &["run", "--icount", "--accel", "kvm"],
        &["run", "--icount", "--hosted"],
        &["run", "--seed", "1"],
        &["run", "--", "two words"],
        &["console", "--script", "/nonexistent/script"],
    ] {
        let output = place.xtask("exit 33", arguments).output().unwrap();
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        // For a wrong value of an option that is known, clap names the way to the usage.
        let usage = errors.contains("Usage:") || errors.contains("try '--help'");
        assert!(usage, "{arguments:?}: {errors}");
    }
    place.assert_nothing_left();
}

#[test]
fn an_unknown_application_is_told_the_known_ones() {
    let place = Place::new("application");
    let output = place.xtask("", &["run", "--app", "nobody"]).output().unwrap();
    assert!(text(&output.stderr).contains("bringup"), "{}", text(&output.stderr));
}

#[test]
fn the_exit_code_is_the_applications() {
    let place = Place::new("codes");
    for (qemu, code) in [(33, 0), (35, 1), (231, 99), (17, 101), (19, 101), (0, 101), (1, 125)] {
        let output = place.run(&format!("exit {qemu}"), &[]);
        assert_eq!(output.status.code(), Some(code), "QEMU exits with {qemu}");
    }
    place.assert_nothing_left();
}

#[test]
fn the_console_is_shown_and_the_report_is_not() {
    let place = Place::new("console");
    let report = place.file("report.json");
    let script = r#"printf 'hello\r\n'; echo 'axon-report: {"ok":true}'; printf 'bye'; exit 33"#;
    let output = place.run(script, &["--report", report.to_str().unwrap()]);
    assert_eq!(text(&output.stdout), "hello\r\nbye");
    assert!(text(&output.stderr).contains("exit code 0"), "{}", text(&output.stderr));
    let report = fs::read_to_string(report).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["ok"], true);
    assert!(report["model"].as_array().unwrap().is_empty());
}

#[test]
fn as_json_the_summary_is_one_line_of_output() {
    let place = Place::new("json");
    let output = place.run(r#"echo 'axon-report: {"ok":true}'; exit 33"#, &["--json"]);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["ok"], true);
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn script_and_words_reach_the_guest() {
    let place = Place::new("script");
    let script = place.file("script");
    fs::write(&script, "devices\n").unwrap();
    let show = r#"while [ $# -gt 0 ]; do
        case $1 in
            -append) echo "words: $2" ;;
            -fw_cfg) cat "${2##*file=}" ;;
        esac; shift; done; exit 33"#;
    let output = place.run(show, &["--script", script.to_str().unwrap(), "--icount", "--", "hop"]);
    assert_eq!(text(&output.stdout), "devices\nwords: axon.icount unit=instructions hop\n");
    place.assert_nothing_left();
}

#[test]
fn a_vm_that_hangs_is_ended_with_124() {
    let place = Place::new("hang");
    let output =
        hang(&place, &format!("trap '' TERM; {HANG}; sleep 600"), &["--timeout", "3"], |_| {});
    assert_eq!(output.status.code(), Some(124));
    let errors = text(&output.stderr);
    assert!(errors.contains("last lines on the console"), "{errors}");
}

#[test]
fn a_signal_ends_everything() {
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let place = Place::new(&format!("signal-{name}"));
        let output = hang(&place, HANG, &[], |launcher| signal(launcher, name));
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    }
}

#[test]
fn a_killed_launcher_leaves_nothing() {
    let place = Place::new("killed");
    let script = place.file("script");
    fs::write(&script, "quit\n").unwrap();
    let output = hang(&place, HANG, &["--script", script.to_str().unwrap()], |launcher| {
        assert_eq!(fs::read_dir(place.file("t")).unwrap().count(), 1);
        signal(launcher, "KILL");
    });
    assert_eq!(output.status.code(), None);
}

#[test]
fn a_qemu_that_does_not_serve_is_named() {
    let place = Place::new("unsuitable");
    let mut command = place.xtask("", &["qemu"]);
    let output = command.env("AXON_QEMU", "/bin/true").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let errors = text(&output.stderr);
    assert!(errors.contains("AXON_QEMU=/bin/true"), "{errors}");
}
