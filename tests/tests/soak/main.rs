//! Millions of mixed operations of eight clients, with faults from a seed: every byte is right, and
//! in the end nothing is left (specification 02, 03, 05).
//!
//! A shadow of the HBM knows every byte. Whatever an operation that failed has left in its target is
//! looked at when its error is told, and counts from then on: nothing may change it later. At the
//! end the HBM of the model is compared with the shadow, with `AXON_LONG=1` to the last byte, pages
//! that nobody ever touched included; no byte is left out.

mod copies;
mod life;
mod queues;
mod shadow;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use axon::pattern::SplitMix64;
use axon::ports::CoreMap;
use axon::ports::reset::DeviceState;
use axon::{Client, Device, Driver, DriverConfig, Error};
use axon_hosted::Machine;
use axon_neuron::DeviceConfig;
use axon_platform::{Errno, Platform};
use embassy_futures::join::join_array;

use life::Life;
use shadow::{PAGE, Shadow};

const CLIENTS: usize = 8;
/// Bytes of HBM around what was used that are compared in any case.
const AROUND: u64 = 16 << 20;

/// What all clients share.
pub struct World {
    machine: Machine,
    device: Device<Machine>,
    shadow: RefCell<Shadow>,
    left: Cell<u64>,
    done: Cell<u64>,
    failed: Cell<u64>,
    resets: Cell<u64>,
    faults: Cell<u64>,
    /// Bytes that a failed operation has left.
    adopted: Cell<u64>,
    /// Operations of each kind.
    kinds: RefCell<BTreeMap<&'static str, u64>>,
    /// One operation in so many is a fault.
    fault_every: u64,
}

impl World {
    fn new(machine: &Machine, device: Device<Machine>, operations: u64, fault_every: u64) -> Self {
        World {
            machine: machine.clone(),
            device,
            shadow: RefCell::default(),
            left: Cell::new(operations),
            done: Cell::new(0),
            failed: Cell::new(0),
            resets: Cell::new(0),
            faults: Cell::new(0),
            adopted: Cell::new(0),
            kinds: RefCell::default(),
            fault_every,
        }
    }

    /// A queue that no other client of the moment uses.
    fn seat_queue(&self, client: &Client<Machine>) -> u32 {
        let clients = self.device.clients();
        let slot = clients.iter().find(|info| info.client == client.id()).expect("attached").slot;
        slot.number()
    }

    fn count(&self, kind: &'static str) {
        *self.kinds.borrow_mut().entry(kind).or_default() += 1;
    }

    fn arm(&self, fault: &str) {
        let order = format!("fault {fault}");
        self.machine.with_model(0, |model| model.control(&order)).unwrap().unwrap();
    }

    /// What the HBM holds, without a copy.
    fn look(&self, address: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        let looked = self.machine.with_model(0, |model| model.look(address, &mut bytes));
        looked.expect("a model").expect("inside the HBM");
        bytes
    }

    /// What a range holds now is what it has to hold from now on.
    fn adopt(&self, address: u64, len: u64) {
        let bytes = self.look(address, len);
        self.adopted.set(self.adopted.get() + len);
        self.shadow.borrow_mut().set(address, &bytes);
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
            if world.done.get().is_multiple_of(500_000) {
                println!("seed {seed:#x}: {} thousand operations", world.done.get() / 1000);
            }
        }
        let Life { client, hbm, host, batch, queues, rings, requests, .. } = life;
        if random.next_word() & 1 == 0 {
            client.close().await;
            drop((hbm, host, batch, queues, rings, requests));
        } else {
            drop((hbm, host, batch, queues, rings, requests));
            client.close().await;
        }
    }
}

/// Compares the HBM with the shadow: all that was used and what lies around it, or all there is.
fn compare(world: &World, whole: bool) -> u64 {
    let mut shadow = world.shadow.borrow_mut();
    assert_eq!(shadow.unvouched(), 0, "bytes that nobody vouches for");
    let geometry = world.device.hal().memory_geometry();
    let mut compared = 0;
    let mut buffer = vec![0; 1 << 20];
    let step = buffer.len() as u64;
    let channels = &geometry.channels[..usize::from(geometry.channel_count)];
    for channel in channels {
        let (mut from, mut to) = (channel.base.0, channel.base.0 + channel.size);
        if !whole {
            let used = shadow.pages().map(|page| page * PAGE).filter(|at| (from..to).contains(at));
            let (Some(first), Some(last)) = (used.clone().min(), used.max()) else { continue };
            to = (last + AROUND).min(to);
            from = first.saturating_sub(AROUND).max(from);
        }
        from = from / step * step;
        while from < to {
            let looked = world.machine.with_model(0, |model| model.look(from, &mut buffer));
            looked.expect("a model").expect("inside the HBM");
            for (at, bytes) in (from / PAGE..).zip(buffer.chunks(PAGE as usize)) {
                match shadow.has(at) {
                    true => shadow.check(at * PAGE, bytes, "at the end"),
                    false => assert!(bytes == [0; PAGE as usize], "page {at:#x} was written"),
                }
            }
            compared += step;
            from += step;
        }
    }
    compared
}

fn tasks(machine: &Machine) -> Vec<&'static str> {
    let mut tasks = machine.tasks();
    tasks.sort_unstable();
    tasks
}

fn soak(product: &str, seed: u64, operations: u64, fault_every: u64, whole: bool) {
    let machine = axon_tests::machine(&format!("{product} seed={seed}"));
    let config = DeviceConfig { zero_copy_on_v2: true, ..DeviceConfig::default() };
    let config = DriverConfig { device: config, ..DriverConfig::default() };
    let driver = Driver::with_config(machine.clone(), config);
    let device = machine
        .run(async {
            driver.settled().await;
            let device = driver.device(0).unwrap();
            assert_eq!(device.settled().await, DeviceState::Ready);
            device
        })
        .expect("it ends");
    let before = (device.memory_totals(), tasks(&machine));
    let world = World::new(&machine, device, operations, fault_every);
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
    let after = (world.device.memory_totals(), tasks(&machine));
    assert_eq!(after, before, "memory, pins and tasks are back at their baseline");
    assert_eq!(world.device.counters().quarantined, 0);
    assert_eq!(machine.stray_accesses(), 0, "accesses to memory that was not given out");
    let compared = compare(&world, whole);
    tell(&world, &format!("{product} seed {seed}: {operations} operations"), compared);
    let kinds = world.kinds.borrow();
    let expected = 15 + usize::from(fault_every != 0);
    assert_eq!(kinds.len(), expected, "every kind of operation came: {kinds:?}");
    machine.shut_down();
}

fn tell(world: &World, what: &str, compared: u64) {
    let counters = world.device.counters();
    println!(
        "{what}, {} faults armed, {} resets, {} failed; {} batches, {} timeouts, {} aborts, \
         {} cancelled, {} replays; {} bytes of failures looked at, 0 unvouched; {compared} bytes \
         compared; {:?}",
        world.faults.get(),
        world.resets.get(),
        world.failed.get(),
        counters.batches,
        counters.timeouts,
        counters.aborts,
        counters.cancelled,
        counters.replays,
        world.adopted.get(),
        world.kinds.borrow(),
    );
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

/// `AXON_LONG=1`: five million operations (or `AXON_SOAK`), the whole of the HBM compared.
fn long(product: &str, seed: u64) {
    if std::env::var_os("AXON_LONG").is_none() {
        return;
    }
    let all = std::env::var("AXON_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(5_000_000);
    soak(product, seed, all, 1000, true);
}

#[test]
fn five_million_operations_on_trn1() {
    long("trn1", 11);
}

#[test]
fn five_million_operations_on_trn2() {
    long("trn2", 12);
}
