//! The memory service of a device as this crate uses it.

use axon_platform::{DeviceAddr, Platform};
use axon_ports::{
    AllocRequest, Chunk, ChunkFacts, ClientId, ClientSlot, MemoryError, MemoryGeometry, MemoryPort,
    Pin, Pools,
};

const MISSING: MemoryError = MemoryError::Unsupported { what: "the memory service" };

pub(crate) struct NoPools;
impl Pools for NoPools {
    fn alloc(&mut self, _request: &AllocRequest) -> Result<Chunk, MemoryError> {
        Err(MISSING)
    }
}

pub(crate) fn make_pools<P: Platform>(
    _platform: &P,
    _geometry: &MemoryGeometry,
) -> Result<NoPools, MemoryError> {
    Err(MISSING)
}

pub(crate) fn start(
    _pools: NoPools,
) -> Result<(Memory, impl Future<Output = ()> + Send + 'static), MemoryError> {
    Ok((Memory, async {}))
}

/// Totals
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryTotals {
    /// Bytes of live host chunks.
    pub host: u64,
    /// Bytes of live device chunks.
    pub device: u64,
    /// Bytes released but still reachable by hardware.
    pub draining: u64,
}

#[derive(Clone)]
pub(crate) struct Memory;

impl MemoryPort for Memory {
    async fn alloc(&self, _request: AllocRequest) -> Result<Chunk, MemoryError> {
        Err(MISSING)
    }
}
impl Memory {
    pub(crate) fn port(&self) -> Memory {
        Memory
    }
    pub(crate) fn pin(&self, _handle: u64) -> Option<Pin> {
        None
    }
    pub(crate) async fn free(&self, _client: ClientId, _handle: u64) -> Result<(), MemoryError> {
        Err(MISSING)
    }
    pub(crate) async fn retain(&self, _client: ClientId, _handle: u64) -> Result<(), MemoryError> {
        Err(MISSING)
    }
    pub(crate) async fn search(&self, _address: DeviceAddr) -> Result<ChunkFacts, MemoryError> {
        Err(MISSING)
    }
    pub(crate) async fn attach(
        &self,
        _client: ClientId,
        _slot: ClientSlot,
    ) -> Result<(), MemoryError> {
        Err(MISSING)
    }
    pub(crate) async fn sweep(&self, _client: ClientId, _slot: ClientSlot) {}
    pub(crate) async fn last_client_gone(&self) {}
    pub(crate) fn pinned_bytes(&self, _client: ClientId) -> u64 {
        0
    }
    pub(crate) fn client_totals(&self, _client: ClientId) -> MemoryTotals {
        MemoryTotals::default()
    }
    pub(crate) fn totals(&self) -> MemoryTotals {
        MemoryTotals::default()
    }
}
