//! DMA into guest memory as a client maps it: in pieces, with gaps, taken away, moved under a copy.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axon_model::memory::shared::SharedMemory;
use axon_model::server::{Service, ServiceOptions, Time};
use axon_model::{FunctionConfig, Product};
use vfio_user::Client;

const PAGE: u64 = 4096;
const PAGES: u64 = 1024;
/// Rings and marker: the first 16 pages of the file, found by the device here.
const RINGS: u64 = 0x10_0000_0000;
const RING_PAGES: u64 = 16;
const RX: u64 = 0x4000;
const MARKER: u64 = 0x8000;
/// The function's host-base bit.
const HOST: u64 = 1 << 44;
const HBM: u64 = 0x200_0000;
const UNIT: u64 = 0x3060_0000;
const CONFIG: u32 = 7;
const DONE: u32 = 0xabcd_ef01;

struct Guest {
    client: Client,
    memory: SharedMemory,
    file: File,
    service: Option<JoinHandle<()>>,
}

fn socket(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("axon-windows-{}-{name}", std::process::id()))
}

impl Guest {
    fn new(name: &str, inline_dma_bytes: u64, keep: bool) -> Guest {
        let mut config = FunctionConfig::new(Product::Trn1, 0);
        config.inline_dma_bytes = inline_dma_bytes;
        let socket = socket(name);
        let time = Time::Wall;
        let options =
            ServiceOptions { socket: socket.clone(), time, spin: false, watchdog: 100, keep };
        let service = Service::new(config, options).expect("a service");
        let service = std::thread::spawn(move || service.run());
        // With `keep` it never ends.
        Guest::connect(&socket, (!keep).then_some(service))
    }

    fn connect(socket: &Path, service: Option<JoinHandle<()>>) -> Guest {
        let mut client = Client::new(socket).expect("a client");
        client.region_write(CONFIG, 4, &[6, 0]).expect("an answer");
        let memory = SharedMemory::in_file(PAGES * PAGE).expect("memory");
        let file = memory.file().and_then(|file| file.try_clone_to_owned().ok());
        let file = File::from(file.expect("a file"));
        let mut guest = Guest { client, memory, file, service };
        guest.map(0, RINGS, RING_PAGES);
        guest
    }

    /// Maps pages of the file, from `page` on, at a bus address.
    fn map(&mut self, page: u64, address: u64, pages: u64) {
        let file = self.file.as_raw_fd();
        self.client.dma_map(page * PAGE, address, pages * PAGE, file).expect("an answer");
    }

    fn write(&mut self, offset: u64, value: u32) {
        self.client.region_write(0, offset, &value.to_le_bytes()).expect("an answer");
    }

    fn read(&mut self, offset: u64) -> u32 {
        let mut word = [0; 4];
        self.client.region_read(0, offset, &mut word).expect("an answer");
        u32::from_le_bytes(word)
    }

    fn hbm(&mut self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for (at, piece) in (address..).step_by(4096).zip(bytes.chunks_mut(4096)) {
            self.client.region_read(4, at, piece).expect("an answer");
        }
        bytes
    }

    fn row(&self, side: u64, slot: u64, words: [u32; 4]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.memory.write(side + slot * 16, &bytes).expect("memory");
    }

    /// Starts copies in one batch, with a marker behind them.
    fn start(&mut self, copies: &[(u64, u64, u64)]) {
        let host = HOST | RINGS;
        let marker = (host + MARKER, host + MARKER + 4, 4);
        self.memory.store32(MARKER, DONE).expect("memory");
        self.memory.store32(MARKER + 4, 0).expect("memory");
        let count = copies.len() as u32 + 1;
        for (slot, (from, to, len)) in (0..).zip(copies.iter().copied().chain([marker])) {
            let len = (len & 0xffff) as u32;
            self.row(0, slot, [0x0d00_0000 | len, 0x0508_0003, from as u32, (from >> 32) as u32]);
            self.row(RX, slot, [0x0100_0000 | len, 0, to as u32, (to >> 32) as u32]);
        }
        for (window, control, ring) in [(0x1000, 0xb0, host), (0x2_1000, 0x64, host + RX)] {
            self.write(UNIT + window + 0x20, 0x0300_0000);
            self.write(UNIT + window + control, 0x100);
            self.write(UNIT + window + 0x28, ring as u32);
            self.write(UNIT + window + 0x2c, (ring >> 32) as u32);
            self.write(UNIT + window + 0x30, 1024);
            self.write(UNIT + window + 0x20, 0x0303_0000);
        }
        self.write(UNIT + 0x304, 0x1_0041);
        self.write(UNIT + 0x254, 0x010f_ffff);
        self.arm();
        self.write(UNIT + 0x2_1038, count);
        self.write(UNIT + 0x1038, count);
    }

    /// Faults stop the engine, as its initialisation has it.
    fn arm(&mut self) {
        self.write(UNIT + 0x3_a030, 0xf000_0000);
        self.write(UNIT + 0x3_a070, 0x0000_10f8);
    }

    fn is_done(&self) -> bool {
        let mut word = [0; 4];
        self.memory.read(MARKER + 4, &mut word).expect("memory");
        u32::from_le_bytes(word) == DONE
    }

    fn wait(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.is_done() {
            assert!(Instant::now() < deadline, "the marker never came");
            std::thread::yield_now();
        }
    }

    /// Latched causes of the two directions.
    fn causes(&mut self) -> (u32, u32) {
        (self.read(UNIT + 0x3_a000), self.read(UNIT + 0x3_a040))
    }

    fn fill(&self, page: u64, seed: u64, len: usize) -> Vec<u8> {
        let bytes: Vec<u8> =
            (0..len as u64).map(|at| (at.wrapping_mul(seed).wrapping_add(at >> 8)) as u8).collect();
        self.memory.write(page * PAGE, &bytes).expect("memory");
        bytes
    }

    fn leave(mut self) {
        self.client.shutdown().expect("a connection");
        if let Some(service) = self.service.take() {
            service.join().expect("no panic");
        }
    }
}

#[test]
fn a_copy_over_several_regions() {
    let mut guest = Guest::new("several", 1 << 30, false);
    let bytes = guest.fill(100, 7, 4 * PAGE as usize);
    // Four pages in another order and one of them far away in the file.
    for (at, page) in [102, 100, 101, 103].into_iter().enumerate() {
        guest.map(page, 0x4000_0000 + at as u64 * PAGE, 1);
    }
    let (from, len) = (0x4000_0000 + 5, 4 * PAGE - 11);
    guest.start(&[(HOST | from, HBM, len)]);
    guest.wait();
    let order: Vec<u8> = [2, 0, 1, 3]
        .iter()
        .flat_map(|page| bytes[page * 4096..(page + 1) * 4096].to_vec())
        .collect();
    assert_eq!(guest.hbm(HBM, len as usize), order[5..5 + len as usize]);
    // And back over the same regions.
    guest.start(&[(HBM, HOST | (from + 1), 3 * PAGE)]);
    guest.wait();
    let mut back = vec![0; 4096];
    guest.memory.read(102 * PAGE, &mut back).expect("memory");
    assert_eq!(back[6..], order[5..4095]);
    assert_eq!(guest.causes(), (0, 0));
    guest.leave();
}

#[test]
fn a_copy_of_more_than_256_segments() {
    let mut guest = Guest::new("segments", 1 << 30, false);
    let pages = 300;
    let bytes = guest.fill(100, 13, (pages * PAGE) as usize);
    for at in 0..pages {
        guest.map(100 + pages - 1 - at, 0x5000_0000 + at * PAGE, 1);
    }
    guest.map(500, 0x7000_0000, pages);
    let total = pages * PAGE;
    let pieces = |from: u64, to: u64| -> Vec<(u64, u64, u64)> {
        (0..total.div_ceil(65_536))
            .map(|n| (from + n * 65_536, to + n * 65_536, (total - n * 65_536).min(65_536)))
            .collect()
    };
    guest.start(&pieces(HOST | 0x5000_0000, HBM));
    guest.wait();
    guest.start(&pieces(HBM, HOST | 0x7000_0000));
    guest.wait();
    let mut found = vec![0; total as usize];
    guest.memory.read(500 * PAGE, &mut found).expect("memory");
    let expected: Vec<u8> = bytes.chunks(4096).rev().flatten().copied().collect();
    assert!(found == expected);
    guest.leave();
}

#[test]
fn a_copy_over_an_unmapped_gap_stops_and_writes_nothing() {
    for to_host in [false, true] {
        let mut guest = Guest::new(if to_host { "gap-to" } else { "gap-from" }, 1 << 30, false);
        guest.fill(100, 3, 2 * PAGE as usize);
        guest.map(100, 0x4000_0000, 1);
        guest.map(101, 0x4000_0000 + 2 * PAGE, 1);
        let host = HOST | 0x4000_0000;
        let mut before = vec![0; 2 * 4096];
        guest.memory.read(100 * PAGE, &mut before).expect("memory");
        let copy = if to_host { (HBM, host, 3 * PAGE) } else { (host, HBM, 3 * PAGE) };
        guest.start(&[copy]);
        assert!(!guest.is_done());
        assert_eq!(guest.causes(), if to_host { (0, 2) } else { (1 << 8, 0) });
        assert!(guest.hbm(HBM, 3 * 4096).iter().all(|&byte| byte == 0));
        let mut after = vec![0; 2 * 4096];
        guest.memory.read(100 * PAGE, &mut after).expect("memory");
        assert!(after == before, "no byte of the descriptor was written");
        guest.leave();
    }
}

#[test]
fn a_client_that_goes_without_unmapping_leaves_nothing_mapped() {
    let mut guest = Guest::new("gone", 1 << 30, true);
    guest.map(100, 0x4000_0000, 4);
    guest.start(&[(HOST | 0x4000_0000, HBM, PAGE)]);
    guest.wait();
    let old = guest.memory.file().and_then(|file| file.try_clone_to_owned().ok());
    drop(guest);
    // The next client maps its rings only: where the last one's memory was, there is none.
    let mut next = Guest::connect(&socket("gone"), None);
    next.start(&[(HBM, HOST | 0x4000_0000, PAGE)]);
    assert!(!next.is_done());
    assert_eq!(next.causes(), (0, 2));
    assert!(old.is_some());
    drop(next);
    std::fs::remove_file(socket("gone")).expect("the socket");
}

#[test]
fn memory_that_moves_under_a_copy_is_whole_or_gone() {
    // Every descriptor goes to the worker behind the doorbell.
    let mut guest = Guest::new("moves", 1, false);
    let pages = 64;
    let old = guest.fill(100, 5, (pages * PAGE) as usize);
    let new = guest.fill(300, 11, (pages * PAGE) as usize);
    let at = 0x4000_0000;
    let rows: Vec<_> = (0..800).map(|_| (HOST | at, HBM, 65_536)).collect();
    for round in 0..8 {
        guest.map(100, at, pages);
        guest.start(&rows);
        // Somewhere in the middle of 800 copies the memory is another one, or there is none.
        std::thread::sleep(Duration::from_micros(200 * round));
        guest.client.dma_unmap(at, pages * PAGE).expect("an answer");
        guest.memory.write(100 * PAGE, &[0xee; 4096]).expect("memory");
        guest.map(300, at, pages);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !guest.is_done() && guest.causes() == (0, 0) {
            assert!(Instant::now() < deadline, "it neither ends nor stops");
        }
        let found = guest.hbm(HBM, 65_536);
        assert!(found == old[..65_536] || found == new[..65_536], "no copy is half of each");
        guest.memory.write(100 * PAGE, &old[..4096]).expect("memory");
        guest.client.dma_unmap(at, pages * PAGE).expect("an answer");
        if guest.causes() != (0, 0) {
            break;
        }
    }
    guest.leave();
}
