//! The program as a process: exit codes, standard input, standard error.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn console(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_axon-console-hosted"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn a_script_without_failure_exits_0() {
    for arguments in [&["--script", "-"][..], &[]] {
        let ended = console(arguments, "open 0\nexpect EINVAL copy 1 2 3\n");
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
        let answers: Vec<&str> = text(&ended.stdout).lines().collect();
        assert_eq!(answers, ["ok client=1", "error EINVAL handle 1 names no chunk"]);
    }
}

#[test]
fn a_failure_exits_1_and_is_named_on_standard_error() {
    let ended = console(&["--script", "-"], "devices\nopen 9\ndevices\n");
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(text(&ended.stdout).lines().count(), 5, "the script goes on");
    assert!(
        text(&ended.stderr)
            .contains("line 2: `open 9` answered `error ENODEV there is no device 9`; expected ok")
    );
}

#[test]
fn devices_faults_and_json_come_from_the_command_line() {
    let arguments = [
        "--device",
        "trn1",
        "--devices",
        "2",
        "--fault",
        "bar-unassigned@1",
        "--json",
        "--script",
        "-",
    ];
    let ended = console(&arguments, "devices\n");
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    let last = text(&ended.stdout).lines().next_back().expect("an answer");
    assert_eq!(last, "{\"ok\":true,\"count\":1,\"refused\":1}");
}

#[test]
fn a_wrong_command_line_exits_2() {
    assert_eq!(console(&["--device", "abacus"], "").status.code(), Some(2));
    assert_eq!(console(&["--script", "/nowhere/at/all"], "").status.code(), Some(2));
}
