//! Locks and init states under virtual time, and the table of locks against the obvious one.

extern crate std;

mod init;
mod lock;
mod oracle;

use alloc::sync::Arc;
use core::future::Future;
use core::time::Duration;

use axon_hosted::Machine;
use axon_platform::{Instant, Platform};
use axon_ports::{ClientSlot, CoreId, CoreMap, ModelUuid};

use super::{CoreSync, Cores};
use crate::Access;
use crate::testing::client;

const CORE: CoreId = CoreId::ALL[0];
const U: ModelUuid = ModelUuid([1; 32]);
const V: ModelUuid = ModelUuid([2; 32]);

fn access(number: u32) -> Arc<Access> {
    Arc::new(Access::new(
        client(number),
        ClientSlot::new(number).unwrap(),
        crate::gates::Grants::ALL,
    ))
}

/// A device with two cores in virtual time.
struct Bench {
    machine: Machine,
    sync: CoreSync,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let machine = Machine::builder().seed(seed).memory(1 << 16).build().unwrap();
        let cores = Cores { count: 2, map: CoreMap(0b11) };
        let (sync, task) = CoreSync::new(cores, machine.clone());
        machine.spawn("core sync", task.run()).unwrap();
        Bench { machine, sync }
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        self.machine.run(future).unwrap()
    }

    /// The result, and how long it took.
    fn timed<F: Future>(&self, future: F) -> (F::Output, Duration) {
        let start = self.now();
        let output = self.run(future);
        (output, self.now() - start)
    }

    fn now(&self) -> Instant {
        Platform::now(&self.machine)
    }

    async fn after(&self, span: Duration) {
        Platform::sleep(&self.machine, span).await;
    }

    /// Ends the access, then the client: the order of a close.
    async fn end(&self, access: &Access) {
        access.close();
        self.sync.client_gone(access.client()).await;
    }
}

/// Each with another order of the tasks that are ready.
fn benches() -> impl Iterator<Item = Bench> {
    (0..8).map(Bench::new)
}

fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}
