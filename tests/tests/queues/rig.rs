//! What the tests of queues have in common.

use std::fmt::Debug;

use axon::{Client, Descriptor, Error, QueueInit, RingAlloc, RingMem, Side};
use axon_hosted::Machine;
use axon_platform::{DeviceAddr, Errno};
use axon_ports::CoreId;

use axon_tests::bench::Bench;

/// One 16-byte descriptor of a copy, lap 1.
pub fn row(side: Side, address: DeviceAddr, len: u32) -> Descriptor {
    let (control, word1) = match side {
        Side::Tx => (0x0d00_0000, 0x0108_0003),
        Side::Rx => (0x0100_0000, 0),
    };
    Descriptor([control | (len & 0xffff), word1, address.low(), address.high()])
}

pub fn errno<T: Debug>(result: Result<T, Error>) -> Errno {
    result.unwrap_err().errno()
}

pub fn core(number: u32) -> CoreId {
    CoreId::new(number).unwrap()
}

pub async fn ring(client: &Client<Machine>, side: Side, count: u32) -> RingMem<Machine> {
    client.alloc_ring(RingAlloc::new(side, count)).await.unwrap()
}

/// Two rings, and the words that bind a queue to them.
pub struct Rings {
    pub tx: RingMem<Machine>,
    pub rx: RingMem<Machine>,
}

impl Rings {
    pub async fn new(client: &Client<Machine>, count: u32) -> Self {
        Rings { tx: ring(client, Side::Tx, count).await, rx: ring(client, Side::Rx, count).await }
    }

    pub fn init(&self, engine: u32, queue: u32) -> QueueInit {
        QueueInit {
            engine,
            queue,
            tx_count: self.tx.count(),
            rx_count: self.rx.count(),
            tx: self.tx.handle(),
            rx: self.rx.handle(),
            ..QueueInit::default()
        }
    }
}

/// Register writes of the model since it was made.
pub fn writes(bench: &Bench) -> u64 {
    bench.report().register_writes
}

/// Bytes of all live host chunks, the driver's own included.
pub async fn host_used(bench: &Bench) -> u64 {
    bench.device.host_chunks().await.unwrap().iter().map(|chunk| chunk.size).sum()
}
