//! `cargo xtask size`: what an image weighs, and the limit that CI enforces.

use std::fs;
use std::process::{Command, ExitCode};

use axon_qemu::Error;

use crate::build::{self, Target};

/// Most bytes of a stripped image.
const LIMIT: u64 = 1 << 20;

/// Builds the image of each of `applications`, of all for none, and compares them with the limit.
///
/// # Errors
/// Where one cannot be built or stripped.
pub fn size(applications: &[String]) -> Result<ExitCode, Error> {
    let known = build::applications(Target::Vm);
    let applications: Vec<String> = match applications {
        [] => known.into_iter().collect(),
        named => named.iter().map(|name| build::known(name, Target::Vm)).collect(),
    };
    let mut session = crate::begin(false)?;
    let mut fits = true;
    for application in &applications {
        let image = build::image(application, &mut session)?;
        let stripped = session.scratch()?.join("stripped");
        let mut strip = Command::new("strip");
        strip.arg("--strip-all").arg("-o").arg(&stripped).arg(&image);
        session.run_checked(strip, "strip")?;
        let bytes = fs::metadata(&stripped)
            .map_err(|source| Error::File { action: "read", path: stripped, source })?
            .len();
        let verdict = if bytes <= LIMIT { "" } else { "  too large" };
        println!("{application:12} {bytes:>9} bytes of {LIMIT}{verdict}");
        fits &= bytes <= LIMIT;
    }
    Ok(if fits { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
