//! The function over its socket: regions, mapped memory, odd requests, report, ends.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axon_model::memory::shared::SharedMemory;
use axon_model::server::{Observer, Service, ServiceError, ServiceOptions, Time};
use axon_model::{Bar4, FunctionConfig, Product};
use vfio_user::Client;

const CONFIG: u32 = 7;
const MISC: u64 = 0x30fa_0000;
const MEMORY_BYTES: u64 = 1 << 20;

fn socket(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("axon-model-{}-{name}", std::process::id()))
}

struct Served {
    client: Option<Client>,
    observer: Observer,
    thread: Option<JoinHandle<()>>,
    memory: SharedMemory,
    file: File,
}

impl Served {
    fn start(name: &str, config: FunctionConfig, time: Time) -> Served {
        let options =
            ServiceOptions { socket: socket(name), time, spin: false, watchdog: 100, keep: false };
        let path = options.socket.clone();
        let service = Service::new(config, options).expect("a service");
        let observer = service.observer();
        let thread = std::thread::spawn(move || service.run());
        let client = Client::new(&path).expect("a client");
        let memory = SharedMemory::in_file(MEMORY_BYTES).expect("memory");
        let file = memory.file().and_then(|file| file.try_clone_to_owned().ok());
        let file = File::from(file.expect("a file"));
        Served { client: Some(client), observer, thread: Some(thread), memory, file }
    }

    fn trn1(name: &str) -> Served {
        let mut served = Served::start(name, FunctionConfig::new(Product::Trn1, 0), Time::Wall);
        served.enable();
        served
    }

    fn client(&mut self) -> &mut Client {
        self.client.as_mut().expect("a client")
    }

    fn enable(&mut self) {
        self.client().region_write(CONFIG, 4, &[6, 0]).expect("an answer");
    }

    fn read(&mut self, offset: u64) -> u32 {
        let mut word = [0; 4];
        self.client().region_read(0, offset, &mut word).expect("an answer");
        u32::from_le_bytes(word)
    }

    fn write(&mut self, offset: u64, value: u32) {
        self.client().region_write(0, offset, &value.to_le_bytes()).expect("an answer");
    }

    fn map(&mut self, offset: u64, address: u64, size: u64) {
        let file = self.file.as_raw_fd();
        self.client().dma_map(offset, address, size, file).expect("an answer");
    }

    /// Puts a marker pair into a ring at `bus` (which is `offset` of the file) and rings it.
    fn marker(&mut self, bus: u64, offset: u64) -> u32 {
        let host = 1u64 << 44 | bus;
        let words = |words: [u64; 4]| -> Vec<u8> {
            words.iter().flat_map(|word| (*word as u32).to_le_bytes()).collect()
        };
        let tx = words([0x0d00_0004, 0x0108_0003, host + 0x400, host >> 32]);
        let rx = words([0x0100_0004, 0, host + 0x404, host >> 32]);
        self.memory.write(offset, &tx).expect("memory");
        self.memory.write(offset + 0x200, &rx).expect("memory");
        self.memory.store32(offset + 0x400, 0xabcd_ef01).expect("memory");
        for (window, control, ring) in
            [(0x3060_1000, 0xb0, host), (0x3062_1000, 0x64, host + 0x200)]
        {
            self.write(window + 0x20, 0x0300_0000);
            self.write(window + control, 0x100);
            self.write(window + 0x28, ring as u32);
            self.write(window + 0x2c, (ring >> 32) as u32);
            self.write(window + 0x30, 32);
            self.write(window + 0x20, 0x0303_0000);
        }
        self.write(0x3062_1038, 1);
        self.write(0x3060_1038, 1);
        let mut word = [0; 4];
        self.memory.read(offset + 0x404, &mut word).expect("memory");
        u32::from_le_bytes(word)
    }

    fn leave(&mut self) {
        if let Some(client) = self.client.take() {
            client.shutdown().expect("a connection");
        }
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.leave();
        }
    }
}

#[test]
fn regions_are_those_of_the_function() {
    let config = FunctionConfig::new(Product::Trn2, 0);
    let mut served = Served::start("regions", config, Time::Wall);
    let region = |served: &mut Served, index| {
        let region = served.client().region(index).expect("a region");
        let areas: Vec<(u64, u64)> =
            region.sparse_areas.iter().map(|area| (area.offset, area.size)).collect();
        (region.size, region.file_offset.is_some(), areas)
    };
    assert_eq!(region(&mut served, 0), (4 << 30, false, vec![]));
    assert_eq!(region(&mut served, 1), (0, false, vec![]));
    let channels = (0..4).map(|channel| (channel * (64 << 30), 64 << 20)).collect();
    assert_eq!(region(&mut served, 4), (256 << 30, true, channels));
    assert_eq!(region(&mut served, CONFIG), (256, false, vec![]));
    let mut id = [0; 4];
    served.client().region_read(CONFIG, 0, &mut id).expect("an answer");
    assert_eq!(id, [0x0f, 0x1d, 0x64, 0x73]);
}

#[test]
fn hbm_is_the_same_memory_on_both_sides() {
    let mut served = Served::trn1("hbm");
    let region = served.client().region(4).expect("a region");
    let (offset, file) = {
        let file = region.file_offset.as_ref().expect("a file");
        (file.start(), file.file().try_clone().expect("a file"))
    };
    let area = region.sparse_areas[1];
    // HBM 1 of Trn1 is at device address 0x1000000000 and in BAR4 behind HBM 0.
    assert_eq!((area.offset, area.size), (16 << 30, 64 << 20));
    let window = SharedMemory::window(&file, offset + area.offset, 0x1000, true).expect("a map");
    window.write(8, b"from the guest").expect("memory");
    let mut bytes = [0; 14];
    served.client().region_read(4, area.offset + 8, &mut bytes).expect("an answer");
    assert_eq!(&bytes, b"from the guest");
    served.client().region_write(4, area.offset + 3, b"model").expect("an answer");
    window.read(3, &mut bytes[..5]).expect("memory");
    assert_eq!(&bytes[..5], b"model");
    // What lies behind cannot be mapped, and answers all the same.
    let behind = area.offset + area.size + 12;
    served.client().region_write(4, behind, b"far away").expect("an answer");
    served.client().region_read(4, behind, &mut bytes[..8]).expect("an answer");
    assert_eq!(&bytes[..8], b"far away");
}

#[test]
fn guest_memory_is_mapped_moved_and_taken_away() {
    let mut served = Served::trn1("guest");
    served.map(0, 0, 0x8_0000);
    served.map(0x8_0000, 0x1_0000_0000, 0x8_0000);
    assert_eq!(served.marker(0x1000, 0x1000), 0xabcd_ef01);
    assert_eq!(served.marker(0x1_0000_2000, 0x8_2000), 0xabcd_ef01);
    served.client().dma_unmap(0x1_0000_0000, 0x8_0000).expect("an answer");
    served.memory.store32(0x8_2404, 0).expect("memory");
    assert_eq!(served.marker(0x1_0000_2000, 0x8_2000), 0);
    let report = served.observer.report();
    assert_eq!((report.function.markers, report.unreachable_windows), (2, 0));
    assert!(report.function.unmodelled.is_empty());
    assert_eq!(report.function.register_reads, 0);
}

#[test]
fn odd_accesses_get_what_a_bus_would_give() {
    let mut served = Served::trn1("odd");
    for (region, offset, len) in
        [(0, MISC + 1, 4), (0, MISC, 2), (0, 1 << 30, 4), (0, u64::MAX, 8), (1, 0, 4), (5, 0, 4)]
    {
        let mut bytes = vec![0; len];
        served.client().region_read(region, offset, &mut bytes).expect("an answer");
        assert_eq!(bytes, vec![0xff; len], "region {region} {offset:#x}");
        served.client().region_write(region, offset, &bytes).expect("an answer");
    }
    let mut bytes = [0; 4];
    served.client().region_read(CONFIG, 254, &mut bytes).expect("an answer");
    assert_eq!(bytes, [0; 4]);
    served.client().region_read(CONFIG, 4096, &mut bytes).expect("an answer");
    assert_eq!(bytes, [0xff; 4]);
    served.client().region_write(CONFIG, u64::MAX, &bytes).expect("an answer");
    assert_eq!(served.read(MISC), 7);
}

#[test]
fn a_reset_ends_by_itself() {
    let mut config = FunctionConfig::new(Product::Trn1, 0);
    config.reset_ns = 1_000_000;
    let mut served = Served::start("reset", config, Time::Wall);
    served.enable();
    served.write(MISC + 0x1ec, 1);
    served.write(MISC + 0x800, 1);
    let deadline = Instant::now() + Duration::from_secs(5);
    while served.observer.report().function.device_resets == 0 {
        assert!(Instant::now() < deadline, "nobody touched a register, and it never ended");
        std::thread::yield_now();
    }
    assert_eq!(served.read(MISC + 0x1ec), 0);
}

#[test]
fn time_can_be_a_number_of_reads() {
    let config = FunctionConfig::new(Product::Trn1, 0);
    let mut served = Served::start("reads", config, Time::Reads);
    served.enable();
    served.write(MISC + 0x1ec, 1);
    served.write(MISC + 0x800, 1);
    let reads: Vec<u32> = (0..4).map(|_| served.read(MISC + 0x1ec)).collect();
    assert_eq!(reads, [0xdead_beef, 0xdead_beef, 0xdead_beef, 0]);
}

#[test]
fn a_long_doorbell_is_answered_first_and_finished_behind() {
    let mut config = FunctionConfig::new(Product::Trn1, 0);
    config.inline_dma_bytes = 1;
    let mut served = Served::start("long", config, Time::Wall);
    served.enable();
    served.map(0, 0, MEMORY_BYTES);
    served.marker(0x1000, 0x1000);
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut word = [0; 4];
    while word != 0xabcd_ef01u32.to_le_bytes() {
        assert!(Instant::now() < deadline, "the rest was never executed");
        served.memory.read(0x1404, &mut word).expect("memory");
    }
}

#[test]
fn the_watchdog_names_the_register() {
    let mut served = Served::trn1("watchdog");
    for _ in 0..100 {
        served.read(MISC + 0x808);
    }
    let spins = served.observer.report().spins;
    assert_eq!(spins.len(), 1);
    assert_eq!((spins[0].offset, spins[0].reads), (MISC + 0x808, 100));
    assert_eq!(spins[0].name, "MiscRAM +0x808 FW_STATUS");
}

#[test]
fn a_device_reset_of_the_client_is_a_power_on() {
    let mut served = Served::trn1("bus-reset");
    served.write(MISC + 0x190, 5);
    served.client().reset().expect("an answer");
    assert_eq!(served.read(MISC + 0x190), u32::MAX);
    served.enable();
    assert_eq!(served.read(MISC + 0x190), 0);
}

#[test]
fn a_client_that_talks_nonsense_does_not_end_the_next() {
    let path = socket("nonsense");
    let options = ServiceOptions {
        socket: path.clone(),
        time: Time::Wall,
        spin: true,
        watchdog: 100,
        keep: true,
    };
    let config = FunctionConfig::new(Product::Trn1, 0);
    let service = Service::new(config, options).expect("a service");
    // It is left running: with `keep` it never ends.
    std::thread::spawn(move || service.run());
    let header = |command: u8, size: u32| -> Vec<u8> {
        let mut bytes = vec![1, 0, command, 0];
        bytes.extend(size.to_le_bytes());
        bytes.extend([0; 8]);
        bytes
    };
    // A version message shorter than itself; one without its terminator; an unknown command; a
    // read of 4 GiB.
    let mut huge_read = header(9, 32);
    huge_read.extend([0; 12]);
    huge_read.extend(u32::MAX.to_le_bytes());
    let unterminated = [header(1, 24), vec![0, 0, 1, 0], b"{}xx".to_vec()].concat();
    for message in [header(1, 4), unterminated, header(99, 16), huge_read] {
        let mut stream = UnixStream::connect(&path).expect("a connection");
        stream.write_all(&message).expect("a connection");
        stream.shutdown(std::net::Shutdown::Write).expect("a connection");
        let mut answer = Vec::new();
        // Whatever comes back, the connection ends.
        let _ = stream.read_to_end(&mut answer);
    }
    let mut client = Client::new(&path).expect("a client");
    let mut id = [0; 4];
    client.region_read(CONFIG, 0, &mut id).expect("an answer");
    assert_eq!(id, [0x0f, 0x1d, 0x64, 0x71]);
    client.shutdown().expect("a connection");
    std::fs::remove_file(&path).expect("the socket");
}

#[test]
fn a_socket_in_use_is_refused_and_a_stale_one_replaced() {
    let path = socket("stale");
    let options = |path: &Path| ServiceOptions {
        socket: path.to_owned(),
        time: Time::Wall,
        spin: false,
        watchdog: 100,
        keep: false,
    };
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    let config = FunctionConfig::new(Product::Trn1, 0);
    let first =
        Service::new(config.clone(), options(&path)).expect("a stale socket is no obstacle");
    let second = Service::new(config.clone(), options(&path));
    assert!(matches!(second, Err(ServiceError::InUse(_))));
    drop(first);
    assert!(!path.exists(), "the socket goes with its service");
    let mut wrong = config;
    wrong.bar4 = Bar4::Size(3);
    assert!(matches!(Service::new(wrong, options(&path)), Err(ServiceError::Config(_))));
}

fn program(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_axon-model"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program")
}

fn connect(path: &Path) -> Client {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match Client::new(path) {
            Ok(client) => return client,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn the_program_ends_with_its_client_and_leaves_a_report() {
    let (path, report) = (socket("program"), socket("report"));
    let names = [path.to_str().expect("a name"), report.to_str().expect("a name")];
    let mut child = program(&[
        "--socket",
        names[0],
        "--report",
        names[1],
        "--device",
        "trn2",
        "--index",
        "3",
        "--bar4",
        "68719476736",
        "--fault",
        "dup-routing-id",
        "--trace",
        "all",
    ]);
    let mut client = connect(&path);
    assert_eq!(client.region(4).map(|region| region.size), Some(64 << 30));
    client.region_write(CONFIG, 4, &[6, 0]).expect("an answer");
    let mut word = [0; 4];
    client.region_read(0, 0x06c8_4024, &mut word).expect("an answer");
    assert_eq!(word, [0; 4]);
    client.region_write(0, 0x0700_0000, &word).expect("an answer");
    client.shutdown().expect("a connection");
    assert!(child.wait().expect("a status").success());
    let text = std::fs::read(&report).expect("a report");
    let json: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!((&json["device"], &json["register_reads"]), (&3.into(), &1.into()));
    assert_eq!(json["unmodelled"][0]["offset"], 0x0700_0000);
    assert_eq!(json["register_trace"][0]["offset"], 0x0700_0000);
    assert!(!path.exists());
    std::fs::remove_file(&report).expect("a report");
}

#[test]
fn the_program_serves_several_and_ends_on_a_signal() {
    let paths = [socket("first"), socket("second")];
    let report = socket("both");
    let names: Vec<&str> = paths.iter().chain([&report]).filter_map(|path| path.to_str()).collect();
    let mut child = program(&[
        "--socket", names[0], "--socket", names[1], "--report", names[2], "--device", "trn1",
    ]);
    let clients = paths.each_ref().map(|path| connect(path));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
    assert!(child.wait().expect("a status").success());
    drop(clients);
    let text = std::fs::read(&report).expect("a report");
    let json: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!((&json[0]["device"], &json[1]["device"]), (&0.into(), &1.into()));
    assert!(paths.iter().all(|path| !path.exists()));
    std::fs::remove_file(&report).expect("a report");
}

#[test]
fn the_program_says_what_is_wrong_and_exits_2() {
    for arguments in [
        ["--socket", "/nowhere", "--device", "trn9"],
        ["--socket", "/nowhere", "--bar4", "3"],
        ["--socket", "/nowhere", "--fault", "no-such"],
    ] {
        let mut all = arguments.to_vec();
        if !all.contains(&"--device") {
            all.extend(["--device", "trn1"]);
        }
        let output = program(&all).wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(2), "{all:?}");
        assert!(!output.stderr.is_empty());
    }
}
