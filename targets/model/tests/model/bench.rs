//! A guest of bare hands: memory, a clock that stands still, and the writes of specification 02 §4
//! and §5 made one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axon_model::memory::shared::SharedMemory;
use axon_model::{
    Function, FunctionConfig, Generation, HostMemory, ModelClock, Product, Report, Unmapped,
};

/// Bytes of guest memory, from bus address 0.
pub const MEMORY_BYTES: u64 = 16 << 30;

pub struct GuestMemory {
    bytes: SharedMemory,
    /// A page that the function may only read; 0 for none.
    read_only: AtomicU64,
}

impl GuestMemory {
    /// Whether a write of `len` bytes stays off the page that may only be read.
    fn may_write(&self, address: u64, len: u64) -> bool {
        let page = self.read_only.load(Ordering::Relaxed);
        page == 0 || address + len <= page || address >= page + 4096
    }
}

impl HostMemory for GuestMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        let len_bytes = into.len() as u64;
        self.bytes.read(address, into).map_err(|_| Unmapped { address, len_bytes })
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        let len_bytes = from.len() as u64;
        let refused = Unmapped { address, len_bytes };
        if !self.may_write(address, len_bytes) {
            return Err(refused);
        }
        self.bytes.write(address, from).map_err(|_| refused)
    }

    fn store32(&self, address: u64, value: u32) -> Result<(), Unmapped> {
        let refused = Unmapped { address, len_bytes: 4 };
        if !self.may_write(address, 4) {
            return Err(refused);
        }
        self.bytes.store32(address, value).map_err(|_| refused)
    }
}

#[derive(Default)]
pub struct StandingClock(AtomicU64);

impl ModelClock for StandingClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One function on the bench.
pub struct Bench {
    pub function: Function,
    pub memory: Arc<GuestMemory>,
    clock: Arc<StandingClock>,
    register_bar: u8,
    pub generation: Generation,
    writes: u64,
    reads: u64,
    inits: Vec<usize>,
}

impl Bench {
    pub fn new(product: Product) -> Bench {
        Bench::with(FunctionConfig::new(product, 0))
    }

    pub fn with(config: FunctionConfig) -> Bench {
        let memory = SharedMemory::private(MEMORY_BYTES).expect("guest memory");
        let memory = Arc::new(GuestMemory { bytes: memory, read_only: AtomicU64::new(0) });
        let clock = Arc::new(StandingClock::default());
        let generation = config.generation();
        let mut function =
            Function::new(config, memory.clone(), clock.clone()).expect("a function");
        function.config_write(4, &[0x06, 0x00]);
        let register_bar = if function.bars()[0].is_some() { 0 } else { 2 };
        let inits = vec![0; 132];
        Bench { function, memory, clock, register_bar, generation, writes: 0, reads: 0, inits }
    }

    pub fn write(&mut self, offset: u64, value: u32) {
        self.writes += 1;
        self.function.bar_write(self.register_bar, offset, &value.to_le_bytes());
    }

    pub fn read(&mut self, offset: u64) -> u32 {
        self.reads += 1;
        let mut word = [0; 4];
        self.function.bar_read(self.register_bar, offset, &mut word);
        u32::from_le_bytes(word)
    }

    /// Writes and reads made so far.
    pub fn traffic(&self) -> (u64, u64) {
        (self.writes, self.reads)
    }

    pub fn report(&self) -> Report {
        self.function.report()
    }

    pub fn control(&mut self, line: &str) {
        self.function.control(line).expect(line);
    }

    /// Lets time pass and everything that is due happen.
    pub fn pass(&mut self, ns: u64) {
        self.clock.0.fetch_add(ns, Ordering::Relaxed);
        self.settle();
    }

    /// Lets everything happen that is due now.
    pub fn settle(&mut self) {
        while self.function.next_event().is_some_and(|at| at <= self.clock.now_ns()) {
            self.function.advance();
        }
    }

    pub fn poke(&self, address: u64, bytes: &[u8]) {
        self.memory.write(address, bytes).expect("guest memory");
    }

    /// Makes a page one that the function may only read.
    pub fn set_read_only(&self, page: u64) {
        self.memory.read_only.store(page, Ordering::Relaxed);
    }

    pub fn poke32(&self, address: u64, value: u32) {
        self.poke(address, &value.to_le_bytes());
    }

    pub fn peek(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(address, &mut bytes).expect("guest memory");
        bytes
    }

    pub fn peek32(&self, address: u64) -> u32 {
        let bytes = self.peek(address, 4);
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    pub fn hbm(&mut self, bar4_offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.function.bar_read(4, bar4_offset, &mut bytes);
        bytes
    }

    pub fn is_v2(&self) -> bool {
        self.generation == Generation::V2
    }

    pub fn engines(&self) -> usize {
        if self.is_v2() { 34 } else { 132 }
    }

    pub fn misc(&self) -> u64 {
        if self.is_v2() { 0x30fa_0000 } else { 0x06c8_4000 }
    }

    /// The address a device knows host memory under.
    pub fn tagged(&self, address: u64) -> u64 {
        address | if self.is_v2() { 1 << 44 } else { 1 << 46 }
    }

    /// Base of a unit (02 §2).
    pub fn unit(&self, engine: usize) -> u64 {
        let e = engine as u64;
        if self.is_v2() {
            match e {
                0..16 => 0x3000_0000 + e * 0x4_0000,
                16..32 => 0x3070_0000 + (e - 16) * 0x4_0000,
                32 => 0x3060_0000,
                _ => 0x30d0_0000,
            }
        } else {
            match e {
                0..32 => 0x8200_0000 + e * 0x10_0000,
                32..64 => 0x9400_0000 + (e - 32) * 0x10_0000,
                64..96 => 0xa200_0000 + (e - 64) * 0x10_0000,
                96..128 => 0xb400_0000 + (e - 96) * 0x10_0000,
                128 => 0x0680_0000,
                129 => 0x0690_0000,
                130 => 0x4680_0000,
                _ => 0x4690_0000,
            }
        }
    }

    /// Base of an SDMA wrapper (02 §2).
    pub fn wrapper(&self, engine: usize) -> u64 {
        let e = engine as u64;
        if !self.is_v2() {
            return self.unit(engine) + 0x4_0000;
        }
        match e {
            0..16 => 0x3040_0000 + e * 0x7000,
            16..32 => 0x30b0_0000 + (e - 16) * 0x7000,
            32 => 0x3064_0000,
            _ => 0x30d4_0000,
        }
    }

    /// Base of the error triggers of a core unit (02 §2).
    pub fn triggers(&self, engine: usize) -> u64 {
        let place = [0x8c00_0000, 0x9c40_0000, 0xac00_0000, 0xbc40_0000u64][engine / 32];
        place + (engine as u64 % 32) * 0x2_0000
    }

    /// Engine initialisation, write for write (02 §4).
    pub fn init_engine(&mut self, engine: usize) {
        let (u, sdma) = (self.unit(engine), self.wrapper(engine));
        let v2 = self.is_v2();
        let core_unit = engine < if v2 { 32 } else { 128 };
        if v2 && core_unit {
            let n = engine as u32 % 16;
            self.write(sdma + 0x100, 0xffff >> n);
            let last = [0, 3, 6, 9, 15].contains(&n);
            self.write(sdma + 0x104, if last { 0xffff } else { 0 });
        }
        let cached = if self.inits[engine] == 0 { 0 } else { 0x0300_0000 };
        self.inits[engine] += 1;
        for q in 0..16u64 {
            self.write(u + 0x1000 + q * 0x1000 + 0x20, cached | 0x0003_0000);
            self.write(u + 0x2_1000 + q * 0x1000 + 0x20, cached | 0x0003_0000);
        }
        self.write(u + 0x310, if v2 { 0x0100_0400 } else { 0x0100_08f8 });
        self.write(u + 0x124, if v2 { 0x0000_086f } else { 0x2080_8080 });
        self.write(u + 0x3_a300, 0x05f5_e100);
        self.write(u + 0x408, 0);
        self.write(u + 0x254, 0x010f_ffff);
        self.write(u + 0x258, 0x0000_0102);
        (0..16).for_each(|q| self.write(u + 0x3_c400 + q * 0x40, u32::MAX));
        self.write(u + 0x118, 0x0001_0008);
        self.write(u + 0x2_038c, 0);
        for q in 0..16 {
            (1..4).for_each(|word| self.write(u + 0x3_c400 + q * 0x40 + 4 * word, u32::MAX));
        }
        self.write(u + 0x2_0124, if v2 { 0x0040_0008 } else { 0x0040_0080 });
        self.write(u + 0x2_0128, 0x4080_4080);
        if self.generation == Generation::V4 {
            let value = self.read(u + 0x2_012c);
            self.write(u + 0x2_012c, value & !0x3ff | 0x100);
        }
        let value = self.read(u + 0x3_b460);
        self.write(u + 0x3_b460, value & !1);
        self.init_errors(u);
        self.write(u + 0x2_0380, 0x1004);
        self.write(u + 0x304, 0x0001_0041);
        self.write(u + 0x308, 0x4181);
        self.write(u + 0x2_0308, 0x4181);
        self.write(u + 0x11c, 0x0001_0008);
        self.write(u + 0x2_011c, 0x0001_0008);
        self.write(sdma + 0x1c, 1);
        self.write(sdma + 0x20, 1);
        self.write(sdma, 1);
        if !v2 {
            self.write(sdma + 0x800, 0x26);
        }
        if v2 {
            self.abort_on_axi_errors(u);
        } else if core_unit {
            self.ignore_ring_ids(engine);
        }
    }

    /// Steps 16 and 17.
    fn init_errors(&mut self, u: u64) {
        for (offset, value) in [
            (0x3_a028, 0x28),
            (0x3_80e8, 0x28),
            (0x3_a030, 0xf000_0000),
            (0x3_a0b0, 0xffff_ffc0),
            (0x3_a018, 0xf000_0000),
            (0x3_a098, 0xffff_ffc0),
            (0x3_80d8, 0xffff_faff),
            (0x3_a068, 0x28),
            (0x3_80e8, 0x28),
            (0x3_a070, 0x0000_10f8),
            (0x3_a0b0, 0xffff_f03f),
            (0x3_a058, 0x0000_10f8),
            (0x3_a098, 0xffff_f03f),
            (0x3_80d8, 0xffff_f9ff),
        ] {
            self.write(u + offset, value);
        }
    }

    /// 02 §4.2.
    fn abort_on_axi_errors(&mut self, u: u64) {
        for i in 0..6 {
            for word in [0x04, 0x08, 0x0c, 0x24, 0x28, 0x2c] {
                self.write(u + 0x3_a900 + i * 0x40 + word, 0xf);
            }
        }
        for i in 0..6 {
            for q in 0..16u32 {
                self.write(u + 0x3_ab00 + i * 8, q << 3 | 7);
                self.write(u + 0x3_ab04 + i * 8, 0x10);
            }
        }
        for sub in [0x3_ad00, 0x3_ae00, 0x3_af00, 0x3_b000, 0x3_b100, 0x3_b200] {
            self.write(u + sub + 0x28, 0x28);
            self.write(u + sub + 0x30, 0);
            self.write(u + sub + 0x18, 0);
        }
        self.write(u + 0x3_a300, u32::MAX);
    }

    /// 02 §4.3.
    fn ignore_ring_ids(&mut self, engine: usize) {
        let (u, fis) = (self.unit(engine), self.triggers(engine));
        for (read, also, bit) in [(0x3_a010, 0x3_a030, 0x2_0000), (0x3_a050, 0x3_a070, 0x800)] {
            let value = self.read(u + read) | bit;
            self.write(u + read, value);
            self.write(u + also, value);
        }
        for (at, bit) in
            [(fis + 0x90, 0x800), (fis + 0xd0, 4), (u + 0x20c, 0x2_0000), (u + 0x2_020c, 0x800)]
        {
            let value = self.read(at) | bit;
            self.write(at, value);
        }
    }

    /// Windows of a queue: M2S, S2M.
    pub fn windows(&self, engine: usize, queue: u64) -> (u64, u64) {
        let u = self.unit(engine);
        (u + 0x1000 + queue * 0x1000, u + 0x2_1000 + queue * 0x1000)
    }

    /// Queue initialisation, write for write (02 §5.2); bases are bus addresses.
    pub fn init_queue(&mut self, engine: usize, queue: u64, rings: (u64, u64), length: u32) {
        let (tx, rx) = self.windows(engine, queue);
        self.write(tx + 0x74, 0x3);
        for (window, control, completion, ring) in
            [(tx, 0xb0, 0xa0, rings.0), (rx, 0x64, 0x54, rings.1)]
        {
            let base = self.tagged(ring);
            self.write(window + 0x20, 0x0300_0000);
            self.write(window + control, 0x100);
            self.write(window + 0x28, base as u32);
            self.write(window + 0x2c, (base >> 32) as u32);
            self.write(window + 0x30, length);
            self.write(window + completion, 0);
            self.write(window + 0x20, 0x0303_0000);
        }
    }

    pub fn doorbells(&mut self, engine: usize, queue: u64, rx: u32, tx: u32) {
        let (tx_window, rx_window) = self.windows(engine, queue);
        self.write(rx_window + 0x38, rx);
        if tx > 0 {
            self.write(tx_window + 0x38, tx);
        }
    }
}

/// A ring pair in guest memory, filled slot by slot as a driver does.
pub struct Rings {
    pub engine: usize,
    pub queue: u64,
    pub tx: u64,
    pub rx: u64,
    pub length: u32,
    slots: [(u32, u32); 2],
}

pub const COPY: u32 = 0x0108_0003;
pub const BARRIER: u32 = 0x0508_0003;
pub const FIRST: u32 = 0x0400_0000;
pub const LAST: u32 = 0x0800_0000;
pub const MARKER: u32 = 0xabcd_ef01;
/// Bus address of the marker buffer of [`Rings`].
pub const MARKERS: u64 = 0x10_0000;

impl Rings {
    /// A ready engine and a ready queue with rings at 2 GiB and 2 GiB + 64 MiB.
    pub fn ready(bench: &mut Bench, engine: usize, queue: u64, length: u32) -> Rings {
        bench.init_engine(engine);
        Rings::on(bench, engine, queue, length)
    }

    /// A ready queue of an engine that is initialised.
    pub fn on(bench: &mut Bench, engine: usize, queue: u64, length: u32) -> Rings {
        let tx = 0x8000_0000 + engine as u64 * 0x100_0000 + queue * 0x10_0000;
        let rx = 0x1_8000_0000 + engine as u64 * 0x100_0000 + queue * 0x10_0000;
        let mut rings = Rings { engine, queue, tx, rx, length, slots: [(0, 1); 2] };
        rings.restart(bench);
        rings
    }

    /// Initialises the queue again.
    pub fn restart(&mut self, bench: &mut Bench) {
        bench.init_queue(self.engine, self.queue, (self.tx, self.rx), self.length);
        self.slots = [(0, 1); 2];
    }

    fn put(&mut self, bench: &Bench, side: usize, words: [u32; 4]) {
        let (slot, id) = &mut self.slots[side];
        let base = if side == 0 { self.tx } else { self.rx };
        let stamped = [words[0] | *id << 24, words[1], words[2], words[3]];
        let bytes: Vec<u8> = stamped.iter().flat_map(|word| word.to_le_bytes()).collect();
        bench.poke(base + u64::from(*slot) * 16, &bytes);
        *slot += 1;
        if *slot == self.length {
            (*slot, *id) = (0, (*id + 1) % 4);
        }
    }

    /// One Tx descriptor; `word0` without length and lap.
    pub fn tx(&mut self, bench: &Bench, word0: u32, word1: u32, address: u64, len: u32) {
        let words = [word0 | len & 0xffff, word1, address as u32, (address >> 32) as u32];
        self.put(bench, 0, words);
    }

    /// One Rx descriptor.
    pub fn rx(&mut self, bench: &Bench, word0: u32, address: u64, len: u32) {
        self.put(bench, 1, [word0 | len & 0xffff, 0, address as u32, (address >> 32) as u32]);
    }

    /// One pair with device-view addresses.
    pub fn pair(&mut self, bench: &Bench, from: u64, to: u64, len: u32) {
        self.tx(bench, FIRST | LAST, COPY, from, len);
        self.rx(bench, 0, to, len);
    }

    /// Arms the marker and puts its pair.
    pub fn marker(&mut self, bench: &Bench) {
        bench.poke32(MARKERS, MARKER);
        bench.poke32(MARKERS + 4, 0);
        self.pair(bench, bench.tagged(MARKERS), bench.tagged(MARKERS + 4), 4);
    }

    pub fn marker_seen(&self, bench: &Bench) -> bool {
        bench.peek32(MARKERS + 4) == MARKER
    }

    pub fn ring(&self, bench: &mut Bench, rx: u32, tx: u32) {
        bench.doorbells(self.engine, self.queue, rx, tx);
    }
}

/// Repeatable bytes.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}
