//! What a VM is made of, as arguments for QEMU.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::Accelerator;
use crate::guest::EXIT_PORT;

/// Everything QEMU has to know of one VM.
#[derive(Debug)]
pub(crate) struct Vm<'a> {
    pub(crate) image: &'a Path,
    pub(crate) memory_bytes: u64,
    pub(crate) accelerator: Accelerator,
    /// The time-stamp counter counts guest instructions.
    pub(crate) icount: bool,
    /// SMBIOS product name.
    pub(crate) instance: Option<&'a str>,
    /// The command line.
    pub(crate) words: Vec<String>,
    /// Files handed over, by name.
    pub(crate) files: Vec<(&'static str, PathBuf)>,
    pub(crate) functions: Vec<Socket>,
}

/// An emulated function as QEMU sees it.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) path: PathBuf,
    pub(crate) lacks_bar4: bool,
}

impl Vm<'_> {
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments = Arguments::default();
        arguments.flag("-nodefaults").flag("-no-user-config").flag("-no-reboot");
        arguments.option("-display", "none");
        arguments.option("-machine", "q35,memory-backend=memory,usb=off,smm=off,vmport=off");
        // The model reaches guest memory through the shared file behind it.
        let memory = format!("memory-backend-memfd,id=memory,size={}B,share=on", self.memory_bytes);
        arguments.option("-object", memory);
        arguments.option("-m", format!("{}B", self.memory_bytes));
        arguments.option("-smp", "1");
        arguments.option("-accel", self.accelerator.name());
        if self.icount {
            // Without the fast string flags a copy counts its instructions, not its bytes.
            arguments.option("-cpu", "max,-erms,-fsrm");
            arguments.option("-icount", "shift=0,sleep=off");
        } else {
            arguments.option("-cpu", "max");
        }
        arguments.option("-chardev", "stdio,id=console,signal=off");
        arguments.option("-serial", "chardev:console");
        let exit = format!("isa-debug-exit,iobase={EXIT_PORT:#x},iosize=0x04");
        arguments.option("-device", exit);
        for (name, path) in &self.files {
            let mut item = OsString::from(format!("name=opt/axon/{name},file="));
            item.push(escaped(path));
            arguments.option("-fw_cfg", item);
        }
        for (index, function) in self.functions.iter().enumerate() {
            arguments.option("-device", function.device(index + 1));
        }
        if let Some(name) = self.instance {
            arguments.option("-smbios", format!("type=1,product={}", name.replace(',', ",,")));
        }
        arguments.option("-kernel", self.image);
        if !self.words.is_empty() {
            arguments.option("-append", self.words.join(" "));
        }
        arguments.0
    }
}

impl Socket {
    /// The function at device number `slot` of bus 0.
    fn device(&self, slot: usize) -> String {
        let mut device = serde_json::json!({
            "driver": "vfio-user-pci",
            "addr": format!("{slot:#x}.0"),
            "socket": { "type": "unix", "path": self.path },
        });
        if self.lacks_bar4 {
            // With no BAR that can be mapped QEMU would post register writes.
            device["x-no-posted-writes"] = true.into();
        }
        device.to_string()
    }
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn flag(&mut self, name: &str) -> &mut Self {
        self.0.push(name.into());
        self
    }

    fn option(&mut self, name: &str, value: impl Into<OsString>) -> &mut Self {
        self.0.push(name.into());
        self.0.push(value.into());
        self
    }
}

/// A path inside a list of options: a comma is written twice.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(icount: bool) -> Vm<'static> {
        Vm {
            image: Path::new("/images/a b"),
            memory_bytes: 1 << 30,
            accelerator: Accelerator::Tcg,
            icount,
            instance: Some("trn2u.48xlarge"),
            words: vec!["axon.icount".into(), "json".into()],
            files: vec![("script", "/x,y".into())],
            functions: vec![
                Socket { path: "/s/0".into(), lacks_bar4: false },
                Socket { path: "/s/1".into(), lacks_bar4: true },
            ],
        }
    }

    /// The values of every occurrence of an option.
    fn values(arguments: &[OsString], name: &str) -> Vec<String> {
        let pairs = arguments.windows(2).filter(|pair| pair[0] == name);
        pairs.map(|pair| pair[1].to_str().unwrap().to_string()).collect()
    }

    #[test]
    fn memory_is_shared_with_the_model() {
        let arguments = vm(false).arguments();
        let object = &values(&arguments, "-object")[0];
        assert_eq!(object, "memory-backend-memfd,id=memory,size=1073741824B,share=on");
        assert_eq!(values(&arguments, "-m"), ["1073741824B"]);
        assert!(values(&arguments, "-machine")[0].contains("memory-backend=memory"));
    }

    #[test]
    fn counting_instructions_leaves_fast_strings_out() {
        assert_eq!(values(&vm(true).arguments(), "-cpu"), ["max,-erms,-fsrm"]);
        assert_eq!(values(&vm(true).arguments(), "-icount"), ["shift=0,sleep=off"]);
        assert_eq!(values(&vm(false).arguments(), "-cpu"), ["max"]);
        assert!(values(&vm(false).arguments(), "-icount").is_empty());
    }

    #[test]
    fn functions_have_fixed_addresses() {
        let devices = values(&vm(false).arguments(), "-device");
        let functions: Vec<serde_json::Value> =
            devices.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
        assert_eq!(functions.len(), 2);
        assert_eq!(functions[0]["addr"], "0x1.0");
        assert_eq!(functions[0]["socket"]["path"], "/s/0");
        assert!(functions[0].get("x-no-posted-writes").is_none());
        assert_eq!(functions[1]["addr"], "0x2.0");
        assert_eq!(functions[1]["x-no-posted-writes"], true);
    }

    #[test]
    fn paths_and_words_arrive_whole() {
        let arguments = vm(false).arguments();
        assert_eq!(values(&arguments, "-fw_cfg"), ["name=opt/axon/script,file=/x,,y"]);
        assert_eq!(values(&arguments, "-kernel"), ["/images/a b"]);
        assert_eq!(values(&arguments, "-append"), ["axon.icount json"]);
        assert_eq!(values(&arguments, "-smbios"), ["type=1,product=trn2u.48xlarge"]);
    }
}
