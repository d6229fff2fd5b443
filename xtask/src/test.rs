//! `cargo xtask test`: the unit, property and hosted tests, then boots in QEMU, then a summary.

use std::process::ExitCode;
use std::time::Instant;

use axon_qemu::{Error, Session};

use crate::boots::{self, Boot};
use crate::build;

/// Property tests try so many cases with `--long`, instead of 256.
const LONG_CASES: &str = "4096";

/// Runs every test, or only the boots; `long` adds what takes minutes.
///
/// # Errors
/// Where a tool cannot be started; a failing test is an exit code.
pub fn test(long: bool, only_boots: bool) -> Result<ExitCode, Error> {
    let mut session = crate::begin(false)?;
    if !only_boots {
        let mut command = build::cargo("test");
        if long {
            // Tests of the suite read this to go on for longer.
            command.env("AXON_LONG", "1").env("PROPTEST_CASES", LONG_CASES);
        }
        let code = session.run_for(command, None)?;
        if code != 0 {
            eprintln!("axon: cargo test failed ({code}); no VM was started");
            return Ok(ExitCode::FAILURE);
        }
    }

    let (mut passed, mut failed) = (0, Vec::new());
    for boot in boots::BOOTS.iter().filter(|boot| long || !boot.long) {
        match run_one(boot, &mut session)? {
            true => passed += 1,
            false => failed.push(boot.name),
        }
    }
    for name in &failed {
        eprintln!("axon: failed: {name}");
    }
    println!("boots: {passed} passed, {} failed", failed.len());
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Boots once and says how it went; a failure shows the console.
fn run_one(boot: &Boot, session: &mut Session) -> Result<bool, Error> {
    let started = Instant::now();
    let mut screen = Vec::new();
    let verdict = boots::run(boot, session, &mut screen)?;
    let took = started.elapsed().as_secs_f64();
    match &verdict {
        Ok(()) => println!("boot {} ... ok ({took:.1} s)", boot.name),
        Err(sentence) => {
            println!("boot {} ... FAILED ({took:.1} s): {sentence}", boot.name);
            println!("---- console\n{}\n----", String::from_utf8_lossy(&screen));
        }
    }
    Ok(verdict.is_ok())
}
