//! A machine whose executor has room for so many tasks only: what was started is taken down again.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axon::{Context, Error};
use axon_hosted::{HostedFunction, Machine};
use axon_platform::{DmaBuf, DmaExhausted, Instant, PciFunction, Platform, SpawnError};
use axon_tests::machine;

/// The machine, and how many more tasks it takes.
#[derive(Clone)]
struct Cramped(Machine, Arc<AtomicUsize>);

impl Platform for Cramped {
    type Function = HostedFunction;

    fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), SpawnError> {
        self.1
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(1))
            .map_err(|_| SpawnError)?;
        self.0.spawn(name, task)
    }

    fn now(&self) -> Instant {
        self.0.now()
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        self.0.sleep_until(deadline)
    }

    fn alloc_dma(&self, len_bytes: u64, align: u64) -> Result<DmaBuf, DmaExhausted> {
        self.0.alloc_dma(len_bytes, align)
    }

    fn free_dma_bytes(&self) -> u64 {
        self.0.free_dma_bytes()
    }

    fn functions(&self) -> Vec<HostedFunction> {
        self.0.functions()
    }

    fn write_barrier(&self) {
        self.0.write_barrier();
    }

    fn random(&self) -> u64 {
        self.0.random()
    }

    fn cycles(&self) -> u64 {
        self.0.cycles()
    }

    fn console_write(&self, bytes: &[u8]) {
        self.0.console_write(bytes);
    }

    fn console_read(&self) -> impl Future<Output = Option<u8>> + Send {
        self.0.console_read()
    }

    fn console_is_interactive(&self) -> bool {
        false
    }

    fn file(&self, _name: &str) -> Option<Vec<u8>> {
        None
    }

    fn arguments(&self) -> Vec<String> {
        Vec::new()
    }
}

#[test]
fn st_e01_a_task_that_cannot_be_started_leaves_nothing() {
    let machine = machine("trn1");
    let free = machine.free_dma_bytes();
    // Reservation, probe, memory, completion, reset, core sync, control, poster: one of the eight
    // finds no room.
    for room in 0..8 {
        let cramped = Cramped(machine.clone(), Arc::new(AtomicUsize::new(room)));
        let cx = Context::start(cramped);
        machine.run(cx.driver.settled()).expect("it ends");
        assert!(cx.driver.devices().is_empty(), "room for {room}");
        let refusals = cx.driver.refusals();
        assert!(matches!(refusals[0].error, Error::NoRecords { .. }), "room for {room}");
        drop(cx);
        machine.run_for(std::time::Duration::from_secs(1)).expect("it ends");
        assert_eq!(machine.tasks(), [""; 0], "room for {room}");
        assert_eq!(machine.functions()[0].config_read32(4) & 4, 0, "bus mastering, room {room}");
        assert_eq!(machine.free_dma_bytes(), free, "room for {room}");
    }
    let cx = Context::start(machine.clone());
    machine.run(cx.driver.settled()).expect("it ends");
    assert_eq!(cx.driver.devices().len(), 1, "the next bind succeeds");
    machine.shut_down();
}
