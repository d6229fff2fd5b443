//! `cargo xtask run` and `cargo xtask console`: one application on one machine, to its end.

use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use axon_qemu::{Error, Input, Launch, Outcome, Qemu, Session};

use crate::build::{self, Target};
use crate::options::MachineOptions;
use crate::workspace;

/// The application that talks to a person.
pub const CONSOLE: &str = "console";

/// Time a hosted program gets beyond its own.
const HOSTED_GRACE: Duration = Duration::from_secs(5);

/// Runs `application` as `options` say.
pub fn run(application: &str, options: &MachineOptions) -> Result<ExitCode, Error> {
    let target = if options.hosted { Target::Hosted } else { Target::Vm };
    if options.image.is_none() {
        build::known(application, target);
    }
    if options.hosted {
        return hosted(application, options);
    }
    let mut session = crate::begin(options.json)?;
    let outcome = boot(application, options, &mut session, &mut std::io::stdout())?;
    conclude(&outcome, options)
}

/// Builds the application's image and runs it in a VM; its console goes to `screen`.
pub fn boot(
    application: &str,
    options: &MachineOptions,
    session: &mut Session,
    screen: &mut dyn Write,
) -> Result<Outcome, Error> {
    options.refuse_conflicts();
    let plan = options.plan();
    let script = options.script_text();
    let qemu = Qemu::find(&workspace::target_dir(), session)?;
    let accelerator = options.accelerator(&qemu, session)?;
    let image = match &options.image {
        Some(image) => image.clone(),
        None => build::image(application, session)?,
    };
    let model_server = match plan.is_empty() {
        true => Default::default(),
        false => build::model_server(session)?,
    };
    let input = match (application, &script) {
        (CONSOLE, None) => Input::Standard,
        _ => Input::None,
    };
    let launch = Launch {
        image,
        memory_bytes: options.memory,
        accelerator,
        icount: options.icount,
        instance: options.instance.clone(),
        words: options.application_words(),
        script,
        plan,
        model_server,
        input,
        timeout: options.patience(input == Input::Standard && std::io::stdin().is_terminal()),
    };
    let devices = match options.device_list() {
        list if list.is_empty() => "no device".to_string(),
        list => list,
    };
    let version = qemu.version();
    let accelerator = accelerator.name();
    session.progress.step(&format!(
        "starting {application} in QEMU {version} ({accelerator}), {devices}; Ctrl-C ends it"
    ));
    launch.run(&qemu, session, screen)
}

/// Report, summary, exit code.
fn conclude(outcome: &Outcome, options: &MachineOptions) -> Result<ExitCode, Error> {
    if let Some(path) = &options.report {
        write_report(path, outcome)?;
    }
    if outcome.ending == axon_qemu::Ending::TimedOut {
        eprintln!("axon: the last lines on the console:");
        for line in &outcome.last_lines {
            eprintln!("    {line}");
        }
    }
    match options.json {
        true => println!("{}", outcome.report),
        false => eprintln!("axon: {}", outcome.summary()),
    }
    Ok(ExitCode::from(outcome.ending.exit_code()))
}

/// Writes the report, readable.
pub fn write_report(path: &Path, outcome: &Outcome) -> Result<(), Error> {
    fs::write(path, format!("{:#}\n", outcome.report)).map_err(|source| Error::File {
        action: "write",
        path: path.to_path_buf(),
        source,
    })
}

/// Runs nodes of an UltraServer in one process. Words after `--` are its own options.
///
/// # Errors
/// Where it cannot be built or started.
pub fn pod(nodes: u8, options: &MachineOptions) -> Result<ExitCode, Error> {
    let mut session = crate::begin(options.json)?;
    let program = build::hosted("ultraserver", &mut session)?;
    let mut command = Command::new(&program);
    command.args(["--nodes", &nodes.to_string()]);
    // A machine has Trainium1 unless asked otherwise; those have no links.
    match options.device_list().as_str() {
        "trn1" => {}
        device => drop(command.args(["--device", device])),
    }
    if let Some(seed) = options.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    command.args(&options.words);
    drop(session);
    let source = command.exec();
    Err(Error::Start { program: program.display().to_string(), source })
}

/// Builds the application as a Linux program and runs it.
fn hosted(application: &str, options: &MachineOptions) -> Result<ExitCode, Error> {
    let script = options.script_text();
    let mut session = crate::begin(options.json)?;
    let program = build::hosted(application, &mut session)?;
    let mut command = Command::new(&program);
    command.args(["--device", &options.device_list()]);
    command.args(["--memory", &options.memory.to_string()]);
    for fault in &options.fault {
        command.args(["--fault", &fault.to_string()]);
    }
    if let Some(name) = &options.instance {
        command.args(["--instance", name]);
    }
    if let Some(seed) = options.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    if options.json {
        command.arg("--json");
    }
    if let Some(report) = &options.report {
        // The program runs where this one was started, but be sure of it.
        command.arg("--report").arg(std::path::absolute(report).unwrap_or(report.clone()));
    }
    // Who waits for a person waits for ever unless told otherwise.
    let patience = options.patience(script.is_none() && std::io::stdin().is_terminal());
    if let Some(span) = patience {
        command.args(["--timeout", &span.as_secs().to_string()]);
    }
    let Some(script) = script else {
        command.arg("--").args(&options.words);
        // A person may sit there: the program takes the place of this one, terminal and all.
        drop(session);
        let source = command.exec();
        return Err(Error::Start { program: program.display().to_string(), source });
    };
    let path = session.scratch()?.join("script");
    fs::write(&path, script).map_err(|source| Error::File {
        action: "write",
        path: path.clone(),
        source,
    })?;
    command.arg("--script").arg(path).arg("--").args(&options.words);
    // The program ends itself; this is for one that cannot.
    let ended = session.run_for(command, patience.map(|span| span + HOSTED_GRACE))?;
    Ok(ExitCode::from(ended))
}
