//! Millions of mixed operations of eight clients, with faults from a seed: every byte that an
//! operation has vouched for is right, and in the end nothing is left (specification 02, 03, 05).
//!
//! A shadow of the HBM, page by page, knows every byte and which bytes nobody has vouched for: the
//! target of a copy that failed or was dropped. At the end the HBM of the model is compared with it,
//! with `AXON_LONG=1` to the last byte, pages that nobody ever touched included.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use axon::pattern::SplitMix64;
use axon::ports::CoreMap;
use axon::ports::reset::DeviceState;
use axon::{
    Client, Context, Descriptor, Device, DeviceAlloc, DeviceBuffer, Direction, Error, H2tQueues,
    HostAlloc, HostBuffer, HostRange, QueueInit, RingAlloc, RingMem, Side, ZeroCopyRequest,
};
use axon_hosted::Machine;
use axon_platform::{DeviceAddr, Errno, Platform};
use axon_ports::{CoreId, HbmIndex};
use embassy_futures::join::join_array;

const CLIENTS: usize = 8;
const PAGE: u64 = 4096;
/// Bytes of a buffer.
const BUFFER: u64 = 256 << 10;
/// Device buffers of a client.
const BUFFERS: usize = 3;
/// Bytes of HBM around what was used that are compared in any case.
const AROUND: u64 = 16 << 20;

/// What the HBM has to hold.
#[derive(Default)]
struct Shadow(HashMap<u64, Page>);

struct Page {
    bytes: Box<[u8; PAGE as usize]>,
    /// Bytes that nobody has vouched for.
    unknown: Option<Box<[bool; PAGE as usize]>>,
}

impl Default for Page {
    fn default() -> Self {
        Page { bytes: Box::new([0; PAGE as usize]), unknown: None }
    }
}

impl Shadow {
    /// The pages of a range: each with the range in it and the position in the whole.
    fn each(
        &mut self,
        address: u64,
        len: u64,
        mut with: impl FnMut(&mut Page, Range<usize>, usize),
    ) {
        let mut at = address;
        while at < address + len {
            let inside = (at % PAGE) as usize;
            let count = (PAGE as usize - inside).min((address + len - at) as usize);
            let page = self.0.entry(at / PAGE).or_default();
            with(page, inside..inside + count, (at - address) as usize);
            at += count as u64;
        }
    }

    fn set(&mut self, address: u64, bytes: &[u8]) {
        self.each(address, bytes.len() as u64, |page, range, from| {
            page.bytes[range.clone()].copy_from_slice(&bytes[from..from + range.len()]);
            if let Some(unknown) = &mut page.unknown {
                unknown[range].fill(false);
                if unknown.iter().all(|unknown| !unknown) {
                    page.unknown = None;
                }
            }
        });
    }

    fn forget(&mut self, address: u64, len: u64) {
        self.each(address, len, |page, range, _| {
            let unknown = page.unknown.get_or_insert_with(|| Box::new([false; PAGE as usize]));
            unknown[range].fill(true);
        });
    }

    /// A copy inside the HBM that went well.
    fn copy(&mut self, source: u64, target: u64, len: u64) {
        let mut bytes = Vec::with_capacity(len as usize);
        let mut holes = Vec::new();
        self.each(source, len, |page, range, from| {
            bytes.extend_from_slice(&page.bytes[range.clone()]);
            if let Some(unknown) = &page.unknown {
                let unknown = unknown[range].iter().zip(from..).filter(|(unknown, _)| **unknown);
                holes.extend(unknown.map(|(_, at)| at as u64));
            }
        });
        self.set(target, &bytes);
        holes.iter().for_each(|at| self.forget(target + at, 1));
    }

    #[track_caller]
    fn check(&mut self, address: u64, found: &[u8], what: &str) {
        self.each(address, found.len() as u64, |page, range, from| {
            let found = &found[from..from + range.len()];
            if page.bytes[range.clone()] == *found {
                return;
            }
            for (at, &byte) in range.zip(found) {
                let known = page.unknown.as_ref().is_none_or(|unknown| !unknown[at]);
                let right = page.bytes[at] == byte;
                assert!(right || !known, "{what}: byte {at:#x} from {address:#x} is {byte:#x}");
            }
        });
    }
}

/// What all clients share.
struct World {
    machine: Machine,
    device: Device<Machine>,
    shadow: RefCell<Shadow>,
    left: Cell<u64>,
    done: Cell<u64>,
    failed: Cell<u64>,
    resets: Cell<u64>,
    faults: Cell<u64>,
    /// One operation in so many is a fault.
    fault_every: u64,
    zero_copy: bool,
}

/// One client while it is attached.
struct Life<'a> {
    world: &'a World,
    client: Client<Machine>,
    random: SplitMix64,
    hbm: Vec<DeviceBuffer<Machine>>,
    host: Vec<HostBuffer<Machine>>,
    queues: Option<H2tQueues<Machine>>,
    rings: Option<(RingMem<Machine>, RingMem<Machine>)>,
}

/// A range inside a buffer.
#[derive(Clone, Copy)]
struct Part {
    offset: u64,
    len: u64,
}

impl World {
    /// A queue that no other client of the moment uses.
    fn seat_queue(&self, client: &Client<Machine>) -> u32 {
        let clients = self.device.clients();
        let slot = clients.iter().find(|info| info.client == client.id()).expect("attached").slot;
        slot.number()
    }

    /// An operation failed: what was in its way is cleared where only a reset does that.
    async fn recover(&self, client: &Client<Machine>, error: Error) {
        self.failed.set(self.failed.get() + 1);
        match error.errno() {
            // The ring waits for a reset of the device.
            Errno::EIO => self.reset(client, CoreMap::DEVICE).await,
            Errno::ETIMEDOUT | Errno::ECANCELED | Errno::ESTALE | Errno::EAGAIN => {}
            _ => panic!("{error}"),
        }
    }

    async fn reset(&self, client: &Client<Machine>, map: CoreMap) {
        self.resets.set(self.resets.get() + 1);
        if let Ok(ticket) = client.reset(map) {
            ticket.await.expect("the reset works");
        }
    }
}

impl<'a> Life<'a> {
    async fn begin(world: &'a World, number: usize, mut random: SplitMix64) -> Option<Self> {
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
        Some(Life { world, client, random, hbm: device, host, queues: None, rings: None })
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_word() % limit
    }

    /// Mostly small, now and then large, at any byte.
    fn part(&mut self) -> Part {
        let most = match self.below(64) {
            0 => BUFFER,
            1..8 => 16 << 10,
            _ => 2 << 10,
        };
        let len = 1 + self.below(most);
        Part { offset: self.below(BUFFER - len + 1), len }
    }

    fn pick(&mut self) -> usize {
        self.below(BUFFERS as u64) as usize
    }

    fn address(&self, buffer: usize, part: Part) -> u64 {
        self.hbm[buffer].device_addr().0 + part.offset
    }

    /// New bytes in a host buffer.
    fn fresh(&mut self, host: usize, part: Part) -> Vec<u8> {
        let mut bytes = vec![0; part.len as usize];
        self.random.fill(&mut bytes);
        self.host[host].memory().expect("host memory").write(part.offset, &bytes).expect("inside");
        bytes
    }

    /// Notes how an operation that writes HBM ended.
    async fn wrote(&self, buffer: usize, part: Part, bytes: &[u8], result: Result<(), Error>) {
        let address = self.address(buffer, part);
        match result {
            Ok(()) => self.world.shadow.borrow_mut().set(address, bytes),
            Err(error) => {
                self.world.shadow.borrow_mut().forget(address, part.len);
                self.world.recover(&self.client, error).await;
            }
        }
    }

    async fn step(&mut self) {
        let kind = self.below(100);
        match kind {
            0..25 => self.send().await,
            25..50 => self.fetch().await,
            50..60 => self.within().await,
            60..68 => self.fill().await,
            68..76 => self.slices().await,
            76..82 => self.burst().await,
            82..90 => self.zero_copy().await,
            90..93 => self.drop_half_way().await,
            93..96 => self.own_queue().await,
            96..98 => self.claim().await,
            _ => self.new_buffer().await,
        }
        if self.world.fault_every != 0 && self.below(self.world.fault_every) == 0 {
            self.fault().await;
        }
    }

    async fn send(&mut self) {
        let (part, buffer) = (self.part(), self.pick());
        let bytes = self.fresh(0, part);
        let range = part.offset..part.offset + part.len;
        let (source, target) = (self.host[0].span(range.clone()), self.hbm[buffer].span(range));
        let result = source.unwrap().copy_to(target.unwrap()).unwrap().await;
        self.wrote(buffer, part, &bytes, result).await;
    }

    async fn fetch(&mut self) {
        let (part, buffer) = (self.part(), self.pick());
        let range = part.offset..part.offset + part.len;
        let (source, target) = (self.hbm[buffer].span(range.clone()), self.host[1].span(range));
        let result = source.unwrap().copy_to(target.unwrap()).unwrap().await;
        self.found(buffer, part, result).await;
    }

    /// Looks at what was copied to the second host buffer.
    async fn found(&mut self, buffer: usize, part: Part, result: Result<(), Error>) {
        if let Err(error) = result {
            return self.world.recover(&self.client, error).await;
        }
        let mut bytes = vec![0; part.len as usize];
        self.host[1].memory().unwrap().read(part.offset, &mut bytes).unwrap();
        let address = self.address(buffer, part);
        self.world.shadow.borrow_mut().check(address, &bytes, "read");
    }

    /// HBM to HBM, of two buffers.
    async fn within(&mut self) {
        let (part, from) = (self.part(), self.pick());
        let to = (from + 1) % BUFFERS;
        let range = part.offset..part.offset + part.len;
        let (source, target) = (self.hbm[from].span(range.clone()), self.hbm[to].span(range));
        let result = source.unwrap().copy_to(target.unwrap()).unwrap().await;
        let (source, target) = (self.address(from, part), self.address(to, part));
        match result {
            Ok(()) => self.world.shadow.borrow_mut().copy(source, target, part.len),
            Err(error) => {
                self.world.shadow.borrow_mut().forget(target, part.len);
                self.world.recover(&self.client, error).await;
            }
        }
    }

    async fn fill(&mut self) {
        let (part, buffer, byte) = (self.part(), self.pick(), self.below(256) as u8);
        let range = part.offset..part.offset + part.len;
        let result = self.hbm[buffer].fill(range, byte).unwrap().await;
        self.wrote(buffer, part, &vec![byte; part.len as usize], result).await;
    }

    /// Plain slices through the bounce.
    async fn slices(&mut self) {
        let (part, buffer) = (self.part(), self.pick());
        let mut bytes = vec![0; part.len as usize];
        if self.below(2) == 0 {
            self.random.fill(&mut bytes);
            let result = self.hbm[buffer].write(part.offset, &bytes).await;
            self.wrote(buffer, part, &bytes, result).await;
            return;
        }
        match self.hbm[buffer].read(part.offset, &mut bytes).await {
            Ok(()) => {
                let address = self.address(buffer, part);
                self.world.shadow.borrow_mut().check(address, &bytes, "slice");
            }
            Err(error) => self.world.recover(&self.client, error).await,
        }
    }

    /// Many copies at once, waited for in any order: the last of those to one place wins.
    async fn burst(&mut self) {
        let buffer = self.pick();
        let mut copies = Vec::new();
        for slot in 0..8 {
            let part = Part { offset: slot * 8192 + self.below(100), len: 1 + self.below(4096) };
            let bytes = self.fresh(0, part);
            let range = part.offset..part.offset + part.len;
            let (source, target) = (self.host[0].span(range.clone()), self.hbm[buffer].span(range));
            copies.push((part, bytes, source.unwrap().copy_to(target.unwrap()).unwrap().start()));
        }
        if self.below(2) == 0 {
            copies.reverse();
        }
        for (part, bytes, copy) in copies {
            let result = copy.await;
            self.wrote(buffer, part, &bytes, result).await;
        }
    }

    async fn zero_copy(&mut self) {
        if !self.world.zero_copy {
            return;
        }
        let (part, buffer) = (self.part(), self.pick());
        let own = self.queues.as_ref().and_then(|queues| queues.copy_queue(0).ok());
        if own.is_none() {
            // None was taken, or a reset has.
            self.queues = None;
        }
        let queue = own.map_or(-1, |queue| queue.number() as i32);
        let device = self.hbm[buffer].handle();
        let range = |host: &HostBuffer<_>| HostRange {
            handle: host.handle(),
            offset: part.offset,
            len: part.len,
        };
        if self.below(2) == 0 {
            let bytes = self.fresh(0, part);
            let host = range(&self.host[0]);
            let request =
                ZeroCopyRequest::single(Direction::ToDevice, queue, device, part.offset, host);
            let result = self.client.zero_copy(&request).await;
            self.forget_stale_queue(&result);
            self.wrote(buffer, part, &bytes, result).await;
        } else {
            let host = range(&self.host[1]);
            let request =
                ZeroCopyRequest::single(Direction::FromDevice, queue, device, part.offset, host);
            let result = self.client.zero_copy(&request).await;
            self.forget_stale_queue(&result);
            self.found(buffer, part, result).await;
        }
    }

    fn forget_stale_queue(&mut self, result: &Result<(), Error>) {
        if result.as_ref().is_err_and(|error| error.errno() == Errno::ESTALE) {
            self.queues = None;
        }
    }

    /// A copy whose future goes: nobody vouches for its target until it is written anew.
    async fn drop_half_way(&mut self) {
        let (part, buffer) = (self.part(), self.pick());
        let range = part.offset..part.offset + part.len;
        let (source, target) = (self.host[0].span(range.clone()), self.hbm[buffer].span(range));
        let copy = source.unwrap().copy_to(target.unwrap()).unwrap();
        let copy = if self.below(2) == 0 { copy.start() } else { copy };
        self.world.shadow.borrow_mut().forget(self.address(buffer, part), part.len);
        drop(copy);
        if self.below(2) == 0 {
            self.world.machine.sleep(Duration::from_micros(self.below(20))).await;
        }
        // The same ring carries it, so this comes later.
        let byte = self.below(256) as u8;
        let range = part.offset..part.offset + part.len;
        let result = self.hbm[buffer].fill(range, byte).unwrap().await;
        self.wrote(buffer, part, &vec![byte; part.len as usize], result).await;
    }

    /// One copy on a queue of the client itself. Its data descriptors carry no marker: the model
    /// has executed them when the doorbell returns.
    async fn own_queue(&mut self) {
        if self.rings.is_none() {
            let ring = async |side| self.client.alloc_ring(RingAlloc::new(side, 64)).await.unwrap();
            self.rings = Some((ring(Side::Tx).await, ring(Side::Rx).await));
        }
        let (part, buffer) = (self.part(), self.pick());
        let part = Part { len: part.len.min(65_536), ..part };
        let bytes = self.fresh(0, part);
        let Some((tx, rx)) = &self.rings else { return };
        let source = self.host[0].device_addr().0 + part.offset;
        let target = self.address(buffer, part);
        let row = |control: u32, word1, address: u64| {
            let address = DeviceAddr(address);
            let control = control | (part.len & 0xffff) as u32;
            [Descriptor([control, word1, address.low(), address.high()])]
        };
        let (engine, queue) =
            (self.hbm[buffer].facts().core.number() * 16 + 15, self.world.seat_queue(&self.client));
        let init = QueueInit {
            engine,
            queue,
            tx_count: 64,
            rx_count: 64,
            tx: tx.handle(),
            rx: rx.handle(),
            ..QueueInit::default()
        };
        let queues = self.client.queues();
        let result = async {
            tx.stage(0, &row(0x0d00_0000, 0x0108_0003, source)).await?;
            rx.stage(0, &row(0x0100_0000, 0, target)).await?;
            queues.init(&init).await?;
            queues.start(engine, queue, 1, 1)
        };
        let result: Result<(), Error> = result.await;
        let executed = result.is_ok()
            && self.world.device.queue_status(engine, queue).is_ok_and(|s| {
                s.tx.head == 1 && s.rx.head == 1 && s.rx.sw_status == 2 && s.tx.sw_status == 2
            });
        if let Err(error) = queues.release(engine, queue).await {
            assert!(matches!(error.errno(), Errno::ESTALE | Errno::ENODEV), "{error}");
        }
        match result {
            Ok(()) if !executed => {
                self.world.shadow.borrow_mut().forget(target, part.len);
            }
            result => self.wrote(buffer, part, &bytes, result).await,
        }
    }

    async fn claim(&mut self) {
        if self.queues.take().is_some() {
            return;
        }
        let core = self.hbm[0].facts().core;
        match self.client.h2t_queues(core, 1, 1).await {
            Ok(queues) => self.queues = Some(queues),
            Err(error) if error.errno() == Errno::ENOSPC => {}
            Err(error) => self.world.recover(&self.client, error).await,
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
        let fault = match self.below(10) {
            0 => "drop-marker=1",
            1 => "late-marker=60ms times=1",
            2 => "late-marker=2ms times=3",
            3 => "wrong-marker",
            4 => "slow=300us times=5",
            5 => "slow=200ms times=1",
            6 => "abort-descriptor=a8",
            7 => "abort-descriptor=b1",
            8 => "jitter=100us times=50",
            _ => {
                let map = match self.below(3) {
                    0 => CoreMap::DEVICE,
                    _ => CoreMap(1 << self.hbm[0].facts().core.number()),
                };
                return self.world.reset(&self.client, map).await;
            }
        };
        let order = format!("fault {fault}");
        self.world.machine.with_model(0, |model| model.control(&order)).unwrap().unwrap();
    }
}

/// One client after another in the same seat.
async fn seat(world: &World, number: usize, seed: u64) {
    let mut random = SplitMix64::new(seed ^ (number as u64) << 32);
    while world.left.get() > 0 {
        let seed = random.next_word();
        let Some(mut life) = Life::begin(world, number, SplitMix64::new(seed)).await else {
            panic!("no client {number}");
        };
        let steps = 100 + life.below(2000);
        for _ in 0..steps {
            let left = world.left.get();
            if left == 0 {
                break;
            }
            world.left.set(left - 1);
            life.step().await;
            world.done.set(world.done.get() + 1);
            if world.done.get().is_multiple_of(1_000_000) {
                println!("{} million operations", world.done.get() / 1_000_000);
            }
        }
        let Life { client, hbm, host, queues, rings, .. } = life;
        if random.next_word() & 1 == 0 {
            client.close().await;
            drop((hbm, host, queues, rings));
        } else {
            drop((hbm, host, queues, rings));
            client.close().await;
        }
    }
}

/// Compares the HBM with the shadow: all that was used and what lies around it, or all there is.
fn compare(world: &World, whole: bool) -> u64 {
    let mut shadow = world.shadow.borrow_mut();
    let geometry = world.device.hal().memory_geometry();
    let mut compared = 0;
    let mut buffer = vec![0; 1 << 20];
    let step = buffer.len() as u64;
    let channels = &geometry.channels[..usize::from(geometry.channel_count)];
    for channel in channels {
        let (mut from, mut to) = (channel.base.0, channel.base.0 + channel.size);
        if !whole {
            let used = shadow.0.keys().map(|page| page * PAGE).filter(|at| (from..to).contains(at));
            let (Some(first), Some(last)) = (used.clone().min(), used.max()) else { continue };
            to = (last + AROUND).min(to);
            from = first.saturating_sub(AROUND).max(from);
        }
        from = from / step * step;
        while from < to {
            let looked = world.machine.with_model(0, |model| model.look(from, &mut buffer));
            looked.expect("a model").expect("inside the HBM");
            for (at, bytes) in (from / PAGE..).zip(buffer.chunks(PAGE as usize)) {
                match shadow.0.contains_key(&at) {
                    true => shadow.check(at * PAGE, bytes, "at the end"),
                    false => assert!(bytes.iter().all(|&b| b == 0), "page {at:#x} was written"),
                }
            }
            compared += step;
            from += step;
        }
    }
    compared
}

fn soak(product: &str, seed: u64, operations: u64, fault_every: u64, whole: bool) {
    let machine = axon_tests::machine(&format!("{product} seed={seed}"));
    let cx = Context::start(machine.clone());
    let device = machine
        .run(async {
            cx.driver.settled().await;
            let device = cx.driver.device(0).unwrap();
            assert_eq!(device.settled().await, DeviceState::Ready);
            device
        })
        .expect("it ends");
    let before = device.memory_totals();
    let zero_copy = device.hal().zero_copy();
    let world = World {
        machine: machine.clone(),
        device,
        shadow: RefCell::default(),
        left: Cell::new(operations),
        done: Cell::new(0),
        failed: Cell::new(0),
        resets: Cell::new(0),
        faults: Cell::new(0),
        fault_every,
        zero_copy,
    };
    let seats = std::array::from_fn::<_, CLIENTS, _>(|number| seat(&world, number, seed));
    machine.run(join_array(seats)).unwrap_or_else(|stalled| panic!("{product} {seed}: {stalled}"));
    machine.with_model(0, |model| model.control("fault clear")).unwrap().unwrap();

    // What hardware may still reach is let go by a reset that works, and only by it.
    machine
        .run(async {
            let client = world.device.open().await.unwrap();
            client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
            client.close().await;
            machine.sleep(Duration::from_millis(20)).await;
        })
        .expect("it ends");
    assert_eq!(world.done.get(), operations);
    assert!(world.device.clients().is_empty());
    assert_eq!(world.device.memory_totals(), before, "memory is back at its baseline");
    assert_eq!(world.device.counters().quarantined, 0);
    assert_eq!(machine.stray_accesses(), 0, "accesses to memory that was not given out");
    let compared = compare(&world, whole);
    let counters = world.device.counters();
    println!(
        "{product} seed {seed}: {operations} operations, {} faults armed, {} resets, {} failed; \
         {} batches, {} timeouts, {} aborts, {} cancelled, {} replays; {compared} bytes compared",
        world.faults.get(),
        world.resets.get(),
        world.failed.get(),
        counters.batches,
        counters.timeouts,
        counters.aborts,
        counters.cancelled,
        counters.replays,
    );
    machine.shut_down();
}

#[test]
fn eight_clients_without_faults() {
    for product in ["trn1", "trn2"] {
        soak(product, 1, 2_000, 0, false);
    }
}

#[test]
fn eight_clients_and_faults_from_a_seed() {
    for (product, seed) in [("trn1", 2), ("inf2", 3), ("trn2", 4), ("trn3", 5)] {
        soak(product, seed, 2_000, 50, false);
    }
}

/// `AXON_LONG=1`: ten million operations in all, the whole of the HBM compared.
#[test]
fn ten_million_operations() {
    if std::env::var_os("AXON_LONG").is_none() {
        return;
    }
    let each = std::env::var("AXON_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000_000);
    soak("trn1", 11, each / 2, 1000, true);
    soak("trn2", 12, each / 2, 1000, true);
}
