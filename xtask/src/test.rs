//! `cargo xtask test`: the unit, property and hosted tests, then boots in QEMU, then a summary.

use std::process::ExitCode;
use std::time::Instant;

use axon_qemu::Error;

use crate::boots::{self, Verdict};
use crate::{build, sessions};

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

    let mut tally = Tally::default();
    for boot in boots::BOOTS.iter().filter(|boot| long || !boot.long) {
        tally.count(boot.name, |screen| boots::run(boot, &mut session, screen))?;
    }
    for console in sessions::all()? {
        let name = format!("console session {}", console.name);
        tally.count(&name, |screen| boots::play(&console, &mut session, screen))?;
    }
    for name in &tally.failed {
        eprintln!("axon: failed: {name}");
    }
    println!("boots: {} passed, {} failed", tally.passed, tally.failed.len());
    Ok(if tally.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: Vec<String>,
}

impl Tally {
    /// Boots and says how it went; a failure shows the console.
    fn count(
        &mut self,
        name: &str,
        boot: impl FnOnce(&mut Vec<u8>) -> Result<Verdict, Error>,
    ) -> Result<(), Error> {
        let started = Instant::now();
        let mut screen = Vec::new();
        let verdict = boot(&mut screen)?;
        let took = started.elapsed().as_secs_f64();
        match verdict {
            Ok(()) => {
                println!("boot {name} ... ok ({took:.1} s)");
                self.passed += 1;
            }
            Err(sentence) => {
                println!("boot {name} ... FAILED ({took:.1} s): {sentence}");
                println!("---- console\n{}\n----", String::from_utf8_lossy(&screen));
                self.failed.push(name.to_string());
            }
        }
        Ok(())
    }
}
