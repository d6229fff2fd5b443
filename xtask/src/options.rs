//! The options of commands that start a machine, and the words that are refused.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axon_model::{FaultWord, parse_size};
use axon_qemu::{Accelerator, Error, Plan, Product, Qemu, Session};
use clap::builder::RangedU64ValueParser;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, ValueEnum};

use crate::Arguments;

/// Seconds a machine gets where nobody sits at it.
const PATIENCE: u64 = 300;

/// What may be asked of a machine.
#[derive(Args, Clone, Debug)]
pub struct MachineOptions {
    /// Devices in bus order, separated by commas: trn1, inf2, trn2, trn3; `none` for no device
    #[arg(long, default_value = "trn1", value_parser = parse_devices)]
    pub device: Devices,
    /// Multiplies each entry of --device
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub devices: usize,
    /// Memory of the machine, with K, M or G
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub memory: u64,
    /// What executes guest instructions; auto takes KVM where it works
    #[arg(long, value_enum, default_value = "tcg", conflicts_with = "hosted")]
    pub accel: AcceleratorChoice,
    /// Let the guest's time-stamp counter count instructions
    #[arg(long, conflicts_with = "hosted")]
    pub icount: bool,
    /// Run in a Linux process with the model inside and virtual time, not in a VM
    #[arg(long)]
    pub hosted: bool,
    /// Script for the application; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Seed of task order, delays and random numbers (hosted)
    #[arg(long, value_name = "N", requires = "hosted")]
    pub seed: Option<u64>,
    /// Fault of the model; may be repeated
    #[arg(long, value_name = "NAME[=VALUE][@DEV][,after=N][,times=N]")]
    pub fault: Vec<FaultWord>,
    /// SMBIOS product name of the machine, which says what instance it is
    #[arg(long, value_name = "NAME", value_parser = parse_instance)]
    pub instance: Option<String>,
    /// Write the report into this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// End the machine after so long, with exit code 124; 0 waits for ever [default: 300, none for a person at the console]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// Answers and summary as one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Boot this ELF file instead of building one
    #[arg(long, value_name = "FILE", conflicts_with = "hosted")]
    pub image: Option<PathBuf>,
    /// Words for the application, after `--`
    #[arg(last = true, value_parser = parse_word)]
    pub words: Vec<String>,
}

/// An ordered list of products.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices(Vec<Product>);

/// What `--accel` takes.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceleratorChoice {
    /// Translation
    Tcg,
    /// The processor
    Kvm,
    /// KVM where it works, else TCG
    Auto,
}

impl MachineOptions {
    /// Every product, `--devices` times.
    fn products(&self) -> Vec<Product> {
        self.device.0.iter().flat_map(|product| vec![*product; self.devices]).collect()
    }

    /// The list of products as `--device` takes it.
    pub fn device_list(&self) -> String {
        let names: Vec<&str> = self.products().iter().map(|product| product.name()).collect();
        names.join(",")
    }

    /// The functions of the VM; ends the program where they cannot be had.
    pub fn plan(&self) -> Plan {
        Plan::new(&self.products(), &self.fault)
            .unwrap_or_else(|sentence| refuse(ErrorKind::ValueValidation, &sentence))
    }

    /// Ends the program where options exclude each other in a way clap does not see.
    pub fn refuse_conflicts(&self) {
        if self.icount && self.accel == AcceleratorChoice::Kvm {
            refuse(ErrorKind::ArgumentConflict, "--icount counts what TCG executes, not KVM");
        }
    }

    /// What executes guest instructions.
    ///
    /// # Errors
    /// Those of [`Accelerator::best`].
    pub fn accelerator(&self, qemu: &Qemu, session: &mut Session) -> Result<Accelerator, Error> {
        match self.accel {
            AcceleratorChoice::Kvm => Ok(Accelerator::Kvm),
            AcceleratorChoice::Auto if !self.icount => Accelerator::best(qemu, session),
            AcceleratorChoice::Auto | AcceleratorChoice::Tcg => Ok(Accelerator::Tcg),
        }
    }

    /// The script's text; ends the program where it cannot be read.
    pub fn script_text(&self) -> Option<Vec<u8>> {
        let path = self.script.as_ref()?;
        let mut text = Vec::new();
        let read = match path == Path::new("-") {
            true => std::io::stdin().lock().read_to_end(&mut text).map(|_| ()),
            false => fs::read(path).map(|bytes| text = bytes),
        };
        match read {
            Ok(()) => Some(text),
            Err(error) => {
                refuse(ErrorKind::Io, &format!("cannot read script {}: {error}", path.display()))
            }
        }
    }

    /// Words for the application, those of options included.
    pub fn application_words(&self) -> Vec<String> {
        let json = self.json.then(|| "json".to_string());
        json.into_iter().chain(self.words.iter().cloned()).collect()
    }

    /// Time after which the machine is ended.
    pub fn patience(&self, interactive: bool) -> Option<Duration> {
        let seconds = self.timeout.unwrap_or(if interactive { 0 } else { PATIENCE });
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }
}

/// Ends the program as clap does where an argument is wrong: a sentence, the usage, exit code 2.
pub fn refuse(kind: ErrorKind, sentence: &str) -> ! {
    Arguments::command().error(kind, sentence).exit()
}

fn parse_devices(text: &str) -> Result<Devices, String> {
    if text == "none" {
        return Ok(Devices(Vec::new()));
    }
    text.split(',').map(str::parse).collect::<Result<_, _>>().map(Devices)
}

/// An SMBIOS text.
fn parse_instance(text: &str) -> Result<String, String> {
    match text.is_empty() || text.len() > 64 || text.contains(|c: char| c.is_control()) {
        true => Err("a product name has 1 to 64 bytes and no control characters".to_string()),
        false => Ok(text.to_string()),
    }
}

/// A word reaches the image on a command line that is cut at blanks.
fn parse_word(text: &str) -> Result<String, String> {
    match text.is_empty() || text.contains(char::is_whitespace) || text.starts_with("axon.") {
        true => Err("a word has no blanks and does not start with \"axon.\"".to_string()),
        false => Ok(text.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_lists() {
        assert_eq!(parse_devices("trn1,trn2"), Ok(Devices(vec![Product::Trn1, Product::Trn2])));
        assert_eq!(parse_devices("none"), Ok(Devices(Vec::new())));
        for wrong in ["", "trn1,", "trn9", "none,trn1"] {
            assert!(parse_devices(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_survive_the_command_line() {
        assert!(parse_word("hop").is_ok());
        for wrong in ["", "a b", "axon.icount"] {
            assert!(parse_word(wrong).is_err(), "{wrong}");
        }
        assert!(parse_instance("Standard PC (Q35 + ICH9, 2009)").is_ok());
        assert!(parse_instance("").is_err() && parse_instance(&"x".repeat(65)).is_err());
    }
}
