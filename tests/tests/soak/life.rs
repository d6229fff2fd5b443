//! One client of the soak while it is attached: what it holds, which step comes next, how a step
//! that failed ends.

use axon::pattern::SplitMix64;
use axon::ports::CoreMap;
use axon::{
    Batch, Client, Completions, DeviceAlloc, DeviceBuffer, Error, H2tQueues, HostAlloc, HostBuffer,
    RingMem, ZeroCopyQueue,
};
use axon_hosted::Machine;
use axon_ports::{CoreId, HbmIndex};

use crate::World;

/// Bytes of a buffer.
pub const BUFFER: u64 = 256 << 10;
/// Device buffers of a client.
pub const BUFFERS: usize = 3;

/// One client while it is attached.
pub struct Life<'a> {
    pub world: &'a World,
    pub client: Client<Machine>,
    pub random: SplitMix64,
    pub hbm: Vec<DeviceBuffer<Machine>>,
    pub host: Vec<HostBuffer<Machine>>,
    pub batch: Option<Batch<Machine>>,
    pub queues: Option<H2tQueues<Machine>>,
    pub rings: Option<(RingMem<Machine>, RingMem<Machine>)>,
    pub requests: Option<(ZeroCopyQueue<Machine>, Completions<Machine>)>,
}

/// A range inside a buffer.
#[derive(Clone, Copy)]
pub struct Part {
    pub offset: u64,
    pub len: u64,
}

impl<'a> Life<'a> {
    pub async fn begin(world: &'a World, number: usize, mut random: SplitMix64) -> Option<Self> {
        let client = world.device.open().await.ok()?;
        let cores = u64::from(world.device.hal().cores());
        let core = CoreId::new((random.next_word() % cores) as u32)?;
        let hbms = u64::from(world.device.hal().memory_geometry().channel_count);
        let hbm = HbmIndex::new((number as u64 % hbms) as u32)?;
        let (mut device, mut host) = (Vec::new(), Vec::new());
        for _ in 0..BUFFERS {
            let wishes = DeviceAlloc { core, hbm, ..DeviceAlloc::new(BUFFER) };
            device.push(client.alloc_device(wishes).await.expect("device memory"));
        }
        for _ in 0..2 {
            host.push(client.alloc_host(HostAlloc::new(BUFFER)).await.expect("host memory"));
        }
        Some(Life {
            world,
            client,
            random,
            hbm: device,
            host,
            batch: None,
            queues: None,
            rings: None,
            requests: None,
        })
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.random.next_word() % limit
    }

    /// Mostly small, now and then large, at any byte.
    pub fn part(&mut self) -> Part {
        let most = match self.below(64) {
            0 => BUFFER,
            1..8 => 16 << 10,
            _ => 2 << 10,
        };
        let len = 1 + self.below(most);
        Part { offset: self.below(BUFFER - len + 1), len }
    }

    /// One of several ranges that share no byte.
    pub fn part_of(&mut self, slot: u64) -> Part {
        Part { offset: slot * 8192 + self.below(100), len: 1 + self.below(4096) }
    }

    pub fn pick(&mut self) -> usize {
        self.below(BUFFERS as u64) as usize
    }

    pub fn core(&self) -> CoreId {
        self.hbm[0].facts().core
    }

    pub fn address(&self, buffer: usize, part: Part) -> u64 {
        self.hbm[buffer].device_addr().0 + part.offset
    }

    /// New bytes in a host buffer.
    pub fn fresh(&mut self, host: usize, part: Part) -> Vec<u8> {
        let mut bytes = vec![0; part.len as usize];
        self.random.fill(&mut bytes);
        self.host[host].memory().expect("host memory").write(part.offset, &bytes).expect("inside");
        bytes
    }

    /// What a host buffer holds.
    pub fn received(&self, host: usize, part: Part) -> Vec<u8> {
        let mut bytes = vec![0; part.len as usize];
        self.host[host]
            .memory()
            .expect("host memory")
            .read(part.offset, &mut bytes)
            .expect("inside");
        bytes
    }

    /// Notes how an operation that writes HBM ended.
    pub async fn wrote(&self, buffer: usize, part: Part, bytes: &[u8], result: Result<(), Error>) {
        match result {
            Ok(()) => self.world.shadow.borrow_mut().set(self.address(buffer, part), bytes),
            Err(error) => self.lost(buffer, &[part], error).await,
        }
    }

    /// An operation has failed, and what its targets hold is undefined: but from now on it is what
    /// they hold now. Nothing may write there any more.
    pub async fn lost(&self, buffer: usize, parts: &[Part], error: Error) {
        for part in parts {
            self.world.shadow.borrow_mut().forget(self.address(buffer, *part), part.len);
        }
        self.world.recover(&self.client, error).await;
        for part in parts {
            self.world.adopt(self.address(buffer, *part), part.len);
        }
    }

    /// Looks at what was copied from the HBM to the second host buffer.
    pub async fn found(&self, buffer: usize, part: Part, result: Result<(), Error>) {
        match result {
            Ok(()) => self.same(buffer, part, &self.received(1, part), "read"),
            Err(error) => self.world.recover(&self.client, error).await,
        }
    }

    pub fn same(&self, buffer: usize, part: Part, bytes: &[u8], what: &str) {
        self.world.shadow.borrow_mut().check(self.address(buffer, part), bytes, what);
    }

    pub async fn step(&mut self) {
        let kind = match self.below(100) {
            0..20 => (self.send().await, "copies to the device"),
            20..40 => (self.fetch().await, "copies from it"),
            40..48 => (self.within().await, "copies inside"),
            48..54 => (self.fill().await, "fills"),
            54..61 => (self.slices().await, "slices"),
            61..66 => (self.inline().await, "window writes"),
            66..71 => (self.burst().await, "bursts"),
            71..76 => (self.batch().await, "batches"),
            76..79 => (self.numbered().await, "numbered copies"),
            79..86 => (self.zero_copy().await, "zero copies"),
            86..88 => (self.zero_copy_queue().await, "queued zero copies"),
            88..91 => (self.drop_half_way().await, "dropped copies"),
            91..94 => (self.own_queue().await, "copies on own queues"),
            94..97 => (self.claim().await, "claims of queues"),
            _ => (self.new_buffer().await, "new buffers"),
        };
        self.world.count(kind.1);
        if self.world.fault_every != 0 && self.below(self.world.fault_every) == 0 {
            self.fault().await;
        }
    }

    async fn new_buffer(&mut self) {
        let at = self.pick();
        let facts = self.hbm[at].facts();
        let hbm = HbmIndex::new(facts.channel.into()).unwrap();
        let wishes = DeviceAlloc { core: facts.core, hbm, ..DeviceAlloc::new(BUFFER) };
        if let Ok(buffer) = self.client.alloc_device(wishes).await {
            self.hbm[at] = buffer;
        }
    }

    async fn fault(&mut self) {
        self.world.faults.set(self.world.faults.get() + 1);
        let core = self.core().number();
        let fault = match self.below(11) {
            0 => "drop-marker=1",
            1 => "late-marker=60ms times=1",
            2 => "late-marker=2ms times=3",
            3 => "wrong-marker",
            4 => "slow=300us times=5",
            5 => "slow=200ms times=1",
            6 => "abort-descriptor=a8",
            7 => "abort-descriptor=b1",
            8 => "jitter=100us times=50",
            9 => {
                let v2 = self.world.device.hal().cores() == 2;
                let engine = if v2 { 32 + core } else { 128 + core / 2 };
                return self.world.arm(&format!("hang-engine={engine} times=1"));
            }
            _ => {
                let map = match self.below(3) {
                    0 => CoreMap::DEVICE,
                    _ => CoreMap(1 << core),
                };
                return self.world.reset(&self.client, map).await;
            }
        };
        self.world.arm(fault);
    }
}
