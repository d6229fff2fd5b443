//! What the memory service costs its clients: messages that change something, looks that do not,
//! direct calls of the set behind it; empty, with many live chunks, with holes in the way.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use axon_memory::batch::BATCH_LIMIT;
use axon_memory::{Batch, MemoryClient, MemoryConfig, MemoryService, MemorySet, PlatformMemory};
use axon_platform::{DeviceAddr, Platform};
use axon_ports::memory::ChannelGeometry;
use axon_ports::{
    AllocRequest, Category, ClientId, ClientSlot, Lifespan, Location, MemoryError, MemoryGeometry,
    Pools,
};
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::signal::Signal;

use crate::Error;
use crate::row::{Row, samples};

const GIB: u64 = 1 << 30;
const PAGE: u64 = 4096;

/// Goals in guest instructions, from call to resumed caller.
const ALLOCATE: u64 = 550;
const FREE: u64 = 400;
const DIRECT: u64 = 250;
const PIN: u64 = 30;
const FIND: u64 = 15;
const END_OF_CLIENT: u64 = 15_000_000;

/// Single-page holes below the first run of two pages.
const HOLES: usize = 50_000;
/// Chunks of the client whose end is measured.
const CLIENT_CHUNKS: usize = 50_000;

/// Device memory as a Trn1 has it (specification 04 §2.1).
const GEOMETRY: MemoryGeometry = MemoryGeometry {
    channels: [
        ChannelGeometry { base: DeviceAddr(0), size: 16 * GIB },
        ChannelGeometry { base: DeviceAddr(0x10_0000_0000), size: 16 * GIB },
        ChannelGeometry { base: DeviceAddr(0), size: 0 },
        ChannelGeometry { base: DeviceAddr(0), size: 0 },
    ],
    channel_count: 2,
    regions_per_channel: 1,
    host_base: 1 << 44,
    cores: 2,
    small_arena: true,
};

/// Somebody attached to the device.
#[derive(Clone, Copy)]
struct Somebody {
    id: ClientId,
    slot: ClientSlot,
}

impl Somebody {
    fn new() -> Result<Somebody, MemoryError> {
        let (id, slot) = (ClientId::new(1), ClientSlot::new(0));
        match (id, slot) {
            (Some(id), Some(slot)) => Ok(Somebody { id, slot }),
            _ => Err(MemoryError::NotAttached),
        }
    }

    /// Device memory with a handle, as MEM_ALLOC asks for it.
    fn request(self, size: u64) -> AllocRequest {
        AllocRequest {
            client: Some((self.id, self.slot)),
            lifespan: Lifespan::Client,
            size,
            align: 0,
            location: Location::Device,
            channel: 0,
            region: 0,
            core: 0,
            category: Category::TENSORS_DEVICE,
            publish: true,
        }
    }
}

type Outcome = Result<Vec<Row>, MemoryError>;

/// The rows of an empty service, without a device.
///
/// # Errors
/// Where there is no room for the tasks or no memory for the service.
pub(crate) async fn measure<P: Platform>(machine: &P) -> Result<Vec<Row>, Error> {
    let mut rows = with_service(machine, set(machine, true)?, look).await?;
    for load in [EMPTY, SENT] {
        rows.extend(under(machine, load).await?);
    }
    Ok(rows)
}

/// Every row: empty, loaded, fragmented, direct, and the end of a client.
///
/// # Errors
/// As [`measure`].
pub(crate) async fn measure_all<P: Platform>(machine: &P) -> Result<Vec<Row>, Error> {
    let mut rows = with_service(machine, set(machine, true)?, look).await?;
    for load in [LOADED, SENT_LOADED, BEHIND_HOLES, INTO_HOLES, FULL] {
        rows.extend(under(machine, load).await?);
    }
    rows.extend(direct(machine, set(machine, true)?)?);
    rows.extend(with_service(machine, set(machine, true)?, end_of_client).await?);
    Ok(rows)
}

async fn under<P: Platform>(machine: &P, load: Load) -> Result<Vec<Row>, Error> {
    let set = set(machine, load.small_arena)?;
    with_service(machine, set, |machine, client, somebody, tell| {
        turn_over(load, machine, client, somebody, tell)
    })
    .await
}

fn set<P: Platform>(
    machine: &P,
    small_arena: bool,
) -> Result<MemorySet<PlatformMemory<P>>, MemoryError> {
    let config = MemoryConfig { host_memory_size: 0, ..MemoryConfig::default() };
    let geometry = MemoryGeometry { small_arena, ..GEOMETRY };
    MemorySet::new(config, geometry, PlatformMemory(machine.clone()))
}

/// Where a measuring task leaves its rows.
type Tell = Arc<Signal<CriticalSectionRawMutex, Outcome>>;

/// The value of a result; an error is told and ends the task. Measuring tasks are flat, so that
/// what is counted is the message and not the nesting of the benchmark's own futures.
macro_rules! or_tell {
    ($tell:expr, $result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return $tell.signal(Err(error)),
        }
    };
}

/// Starts a service of its own and a task that measures it.
async fn with_service<P, F>(
    machine: &P,
    set: MemorySet<PlatformMemory<P>>,
    measure: impl FnOnce(P, MemoryClient, Somebody, Tell) -> F,
) -> Result<Vec<Row>, Error>
where
    P: Platform,
    F: Future<Output = ()> + Send + 'static,
{
    let (client, service) = MemoryService::new(set);
    machine.spawn("bench-memory", service.run())?;
    let somebody = Somebody::new()?;
    client.attach(somebody.id, somebody.slot).await?;
    let tell = Tell::default();
    machine
        .spawn("bench-client", measure(machine.clone(), client.clone(), somebody, tell.clone()))?;
    let rows = tell.wait().await?;
    client.detach(somebody.id, somebody.slot).await?;
    client.shutdown().await?;
    Ok(rows)
}

/// Looking a handle up.
async fn look<P: Platform>(machine: P, client: MemoryClient, somebody: Somebody, tell: Tell) {
    let chunk = or_tell!(tell, client.alloc(somebody.request(PAGE)).await);
    let handle = chunk.handle();
    let pins = samples!(machine, before => {
        let pin = or_tell!(tell, client.lookup(handle));
        let took = machine.cycles().wrapping_sub(before);
        drop(pin);
        took
    });
    let both = samples!(machine, drop(or_tell!(tell, client.lookup(handle))));
    let finds = samples!(machine, {
        or_tell!(tell, client.find(handle));
    });
    drop(chunk);
    tell.signal(Ok(Vec::from([
        Row::new("look a handle up, with a pin", Some(PIN), pins),
        Row::new("look a handle up, pin given back", None, both),
        Row::new("look a handle up, without", Some(FIND), finds),
    ])));
}

/// What is there before a row is taken.
#[derive(Clone, Copy)]
struct Load {
    /// Chunks of 4 KiB; each row adds to those of the row before.
    live: &'static [usize],
    /// Whether every second chunk goes then: below the last one only holes of one page are free.
    holes: bool,
    /// Bytes of the measured chunks.
    size: u64,
    /// Whether small chunks have an arena of their own.
    small_arena: bool,
    /// Whether every request goes to the task, as while it is busy.
    sent: bool,
}

const EMPTY: Load = Load { live: &[0], holes: false, size: PAGE, small_arena: true, sent: false };
/// As [`EMPTY`], with the hops to the task and back.
const SENT: Load = Load { sent: true, ..EMPTY };
const LOADED: Load = Load { live: &[0, 1000, 10_000, 100_000], ..EMPTY };
const SENT_LOADED: Load = Load { sent: true, ..LOADED };
const BEHIND_HOLES: Load = Load { live: &[2 * HOLES], holes: true, size: 2 * PAGE, ..EMPTY };
const INTO_HOLES: Load = Load { size: PAGE, ..BEHIND_HOLES };
/// More than the small arena holds, so that one arena has them all.
const FULL: Load = Load { live: &[1000, 1_000_000], small_arena: false, ..EMPTY };

/// Allocating and freeing under a load.
async fn turn_over<P: Platform>(
    load: Load,
    machine: P,
    client: MemoryClient,
    somebody: Somebody,
    tell: Tell,
) {
    let mut rows = Vec::new();
    let client = if load.sent { client.through_the_channel() } else { client };
    let mut batch = or_tell!(tell, Batch::new());
    let mut live_handles = Vec::new();
    let mut handles = Vec::with_capacity(crate::SAMPLES + crate::WARM_UP);
    let request = somebody.request(load.size);
    for &live in load.live {
        let more = live - live_handles.len();
        or_tell!(tell, fill(&client, &mut batch, somebody, more, &mut live_handles).await);
        let arena = if load.small_arena { "" } else { " of one arena" };
        let mut what = format!("{live} live chunks{arena}");
        if load.holes {
            for &handle in live_handles.iter().skip(1).step_by(2) {
                or_tell!(tell, client.free(Some(somebody.id), handle).await);
            }
            what = format!("{} holes of 4 KiB", live / 2);
        }
        let allocations = samples!(machine, before => {
            let chunk = or_tell!(tell, client.alloc(request).await);
            let took = machine.cycles().wrapping_sub(before);
            // The reference stays with the handle, as for a client that knows numbers only.
            handles.push(chunk.into_header().handle());
            took
        });
        let frees = samples!(machine, {
            let handle = handles.pop().unwrap_or_default();
            or_tell!(tell, client.free(Some(somebody.id), handle).await);
        });
        let way = if load.sent { " by message" } else { "" };
        let name = |verb| format!("{verb} {} KiB{way}, {what}", load.size / 1024);
        rows.push(Row::new(name("allocate"), Some(ALLOCATE), allocations));
        rows.push(Row::new(name("free"), Some(FREE), frees));
    }
    tell.signal(Ok(rows));
}

/// From the request that a client ends to the answer that all its chunks have.
async fn end_of_client<P: Platform>(
    machine: P,
    client: MemoryClient,
    somebody: Somebody,
    tell: Tell,
) {
    let mut batch = or_tell!(tell, Batch::new());
    let mut took = Vec::new();
    for _ in 0..3 {
        let handles = &mut Vec::new();
        or_tell!(tell, fill(&client, &mut batch, somebody, CLIENT_CHUNKS, handles).await);
        let before = machine.cycles();
        or_tell!(tell, client.detach(somebody.id, somebody.slot).await);
        took.push(machine.cycles().wrapping_sub(before));
        or_tell!(tell, client.attach(somebody.id, somebody.slot).await);
    }
    let name = format!("end of a client with {CLIENT_CHUNKS} chunks");
    tell.signal(Ok(Vec::from([Row::new(name, Some(END_OF_CLIENT), took)])));
}

/// Allocates `count` chunks of 4 KiB and notes their handles.
async fn fill(
    client: &MemoryClient,
    batch: &mut Batch,
    somebody: Somebody,
    count: usize,
    handles: &mut Vec<u64>,
) -> Result<(), MemoryError> {
    let end = handles.len() + count;
    while handles.len() < end {
        let at_once = BATCH_LIMIT.min(end - handles.len());
        for _ in 0..at_once {
            batch.push_alloc(somebody.request(PAGE))?;
        }
        client.alloc_many(batch).await?;
        let first = handles.len();
        while let Some(chunk) = batch.pop_chunk() {
            handles.push(chunk.into_header().handle());
        }
        // They come last one first.
        if let Some(new) = handles.get_mut(first..) {
            new.reverse();
        }
    }
    Ok(())
}

/// The set behind the service, called by its owner.
fn direct<P: Platform>(machine: &P, mut set: MemorySet<PlatformMemory<P>>) -> Outcome {
    let somebody = Somebody::new()?;
    set.attach(somebody.id, somebody.slot)?;
    let request = somebody.request(PAGE);
    let mut handles = Vec::with_capacity(crate::SAMPLES + crate::WARM_UP);
    let allocations = samples!(machine, before => {
        let chunk = set.alloc(&request)?;
        let took = machine.cycles().wrapping_sub(before);
        handles.push(chunk.into_header().handle());
        took
    });
    let frees = samples!(machine, {
        set.free(Some(somebody.id), handles.pop().unwrap_or_default())?;
    });
    set.destroy();
    Ok(Vec::from([
        Row::new("allocate 4 KiB, direct call", Some(DIRECT), allocations),
        Row::new("free 4 KiB, direct call", Some(DIRECT), frees),
    ]))
}
