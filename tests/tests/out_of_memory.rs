//! What the driver does where the heap is at its end. In a binary of its own, because it limits the
//! heap of the whole process.

use std::alloc::System;
use std::sync::{Mutex, PoisonError};

use axon::{RingAlloc, Side};
use axon_platform::Errno;
use axon_tests::machine;
use cap::Cap;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// The limit is that of the process: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Room for whatever the machine itself allocates meanwhile.
const SLACK: usize = 16 << 10;

#[test]
fn nq_d15_a_counter_read_without_memory_is_no_success() {
    const COUNT: usize = 8190;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let machine = machine("trn1");
    machine
        .run(async {
            let cx = axon::Context::start(machine.clone());
            cx.driver.settled().await;
            let device = cx.driver.device(0).unwrap();
            let address = device.hal().register_address(0x30fa_0000, 4).unwrap().0;
            let addresses = vec![address; COUNT];
            // No memory for the request, then none for the answer. Behind that the model, which is in
            // the same process, would need some.
            for room in [0, 8 * COUNT] {
                HEAP.set_limit(HEAP.allocated() + room + SLACK).unwrap();
                let told = device.hardware_counters(&addresses).await;
                HEAP.set_limit(usize::MAX).unwrap();
                let error = told.expect_err("no memory");
                assert_eq!(error.errno(), Errno::ENOMEM, "{room}: {error}");
            }
            assert_eq!(device.hardware_counters(&addresses).await, Ok(vec![7; COUNT]));
        })
        .expect("it ends");
    machine.shut_down();
}

#[test]
fn descriptors_of_a_long_ring_are_no_reason_to_end() {
    const COUNT: u32 = 1 << 16;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let machine = machine("trn1");
    machine
        .run(async {
            let cx = axon::Context::start(machine.clone());
            cx.driver.settled().await;
            let client = cx.driver.device(0).unwrap().open().await.unwrap();
            let ring = async |side| client.alloc_ring(RingAlloc::new(side, COUNT)).await.unwrap();
            let (tx, rx) = (ring(Side::Tx).await, ring(Side::Rx).await);
            let _queue = client.bind_queue(5, 0, &tx, &rx).await.unwrap();
            let queues = client.queues();
            HEAP.set_limit(HEAP.allocated() + SLACK).unwrap();
            let told = queues.copy_out(5, 0, 0, 0, COUNT).await;
            HEAP.set_limit(usize::MAX).unwrap();
            assert_eq!(told.expect_err("no memory").errno(), Errno::ENOMEM);
            assert_eq!(queues.copy_out(5, 0, 0, 0, COUNT).await.unwrap().len(), COUNT as usize);
        })
        .expect("it ends");
    machine.shut_down();
}
