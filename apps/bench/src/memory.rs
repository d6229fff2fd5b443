//! What the memory service costs its clients: messages that change something, looks that do not.

use alloc::sync::Arc;
use alloc::vec::Vec;

use axon_memory::{MemoryClient, MemoryConfig, MemoryService, MemorySet, PlatformMemory};
use axon_platform::{DeviceAddr, Platform};
use axon_ports::memory::ChannelGeometry;
use axon_ports::{
    AllocRequest, Category, ClientId, ClientSlot, Lifespan, Location, MemoryError, MemoryGeometry,
};
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::signal::Signal;

use crate::Error;
use crate::row::{Row, samples};

const GIB: u64 = 1 << 30;

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

/// A page of device memory with a handle, as a client asks for it (MEM_ALLOC).
fn page(id: ClientId, slot: ClientSlot) -> AllocRequest {
    AllocRequest {
        client: Some((id, slot)),
        lifespan: Lifespan::Client,
        size: 4096,
        align: 0,
        location: Location::Device,
        channel: 0,
        region: 0,
        core: 0,
        category: Category::TENSORS_DEVICE,
        publish: true,
    }
}

type Outcome = Result<Vec<Row>, MemoryError>;

/// Measures every row against a memory service of its own, without a device.
///
/// # Errors
/// Where there is no room for the tasks or no memory for the service.
pub(crate) async fn measure<P: Platform>(machine: &P) -> Result<Vec<Row>, Error> {
    let config = MemoryConfig { host_memory_size: 0, ..MemoryConfig::default() };
    let set = MemorySet::new(config, GEOMETRY, PlatformMemory(machine.clone()))?;
    let (client, service) = MemoryService::new(set);
    machine.spawn("bench-memory", service.run())?;
    let outcome = Arc::new(Signal::<CriticalSectionRawMutex, Outcome>::new());
    let (task_machine, tell) = (machine.clone(), outcome.clone());
    machine.spawn("bench-client", async move {
        tell.signal(ask(task_machine, client).await);
    })?;
    Ok(outcome.wait().await?)
}

/// The task whose operations are counted.
async fn ask<P: Platform>(machine: P, client: MemoryClient) -> Outcome {
    let (id, slot) = (
        ClientId::new(1).ok_or(MemoryError::NotAttached)?,
        ClientSlot::new(0).ok_or(MemoryError::NotAttached)?,
    );
    client.attach(id, slot).await?;
    let page = page(id, slot);
    let chunk = client.alloc(page).await?;
    let handle = chunk.handle();
    let mut rows = Vec::new();
    let looks = samples!(machine, before => {
        let pin = client.lookup(handle)?;
        let took = machine.cycles().wrapping_sub(before);
        drop(pin);
        took
    });
    rows.push(Row::new("looking a handle up, with a pin", Some(30), looks));
    let both = samples!(machine, drop(client.lookup(handle)?));
    rows.push(Row::new("looking a handle up, pin given back", None, both));
    let finds = samples!(machine, {
        client.find(handle)?;
    });
    rows.push(Row::new("looking a handle up, without", None, finds));

    let mut handles = Vec::with_capacity(crate::SAMPLES + crate::WARM_UP);
    // The reference stays with the handle, as for a client that knows numbers only.
    let allocations =
        samples!(machine, handles.push(client.alloc(page).await?.into_header().handle()));
    rows.push(Row::new("allocating 4 KiB of device memory", None, allocations));
    let frees = samples!(machine, {
        client.free(Some(id), handles.pop().unwrap_or_default()).await?;
    });
    rows.push(Row::new("freeing it", None, frees));
    drop(chunk);
    client.shutdown().await?;
    Ok(rows)
}
