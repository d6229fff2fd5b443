//! What a copy costs: doorbells, register reads, heap allocations. In a binary of its own, because
//! it counts every allocation of its thread.

use axon::{Batch, Client, DeviceAlloc, DeviceBuffer, Error, HostAlloc, HostBuffer};
use axon_hosted::Machine;
use axon_tests::machine;

struct Bench {
    client: Client<Machine>,
    host: HostBuffer<Machine>,
    hbm: DeviceBuffer<Machine>,
}

async fn bench(machine: &Machine) -> Bench {
    let cx = axon::Context::start(machine.clone());
    cx.driver.settled().await;
    let client = cx.driver.device(0).expect("a device").open().await.expect("a client");
    let host = client.alloc_host(HostAlloc::new(1 << 20)).await.expect("host memory");
    let hbm = client.alloc_device(DeviceAlloc::new(1 << 20)).await.expect("device memory");
    let bench = Bench { client, host, hbm };
    // Memory of the model appears at the first touch.
    bench.copy(1 << 20).await.expect("a copy");
    bench
}

impl Bench {
    async fn copy(&self, len: u64) -> Result<(), Error> {
        self.host.span(..len)?.copy_to(self.hbm.span(..len)?)?.await
    }

    /// 64 copies of 4 KiB, in the other order.
    async fn batch(&self, batch: &mut Batch<Machine>) -> Result<(), Error> {
        for page in 0..64 {
            batch.copy(&self.host, page * 4096, &self.hbm, (63 - page) * 4096, 4096)?;
        }
        batch.await
    }
}

#[test]
fn a_4_kib_copy_rings_two_doorbells_and_reads_no_register() {
    for product in ["trn1", "trn2", "trn3"] {
        let machine = machine(product);
        let bench = machine.run(bench(&machine)).expect("it ends");
        let before = (machine.report(0).unwrap(), bench.client.device().counters());
        machine.run(bench.copy(4096)).expect("it ends").expect("a copy");
        let after = (machine.report(0).unwrap(), bench.client.device().counters());
        assert_eq!(after.0.doorbells - before.0.doorbells, 2, "{product}");
        assert_eq!(after.0.register_reads - before.0.register_reads, 0, "{product}");
        assert_eq!(after.0.register_writes - before.0.register_writes, 2, "{product}");
        assert_eq!(after.1.doorbells - before.1.doorbells, 2, "{product}");
        assert_eq!(after.1.descriptors - before.1.descriptors, 2, "{product}");
        assert_eq!(after.1.batches - before.1.batches, 1, "{product}");
        machine.shut_down();
    }
}

#[test]
fn dma_e48_copies_made_together_share_one_doorbell_pair() {
    let machine = machine("trn1");
    let bench = machine.run(bench(&machine)).expect("it ends");
    let before = machine.report(0).unwrap();
    let copies = async {
        let mut made = Vec::new();
        for at in (0..70u64).map(|k| k * 4096) {
            let from = bench.host.span(at..at + 4096)?;
            made.push(Box::pin(from.copy_to(bench.hbm.span(at..at + 4096)?)?));
        }
        // One poll stages each; the last one rings for all, and has ended by then.
        let mut ended = 0;
        std::future::poll_fn(|cx| {
            made.retain_mut(|copy| copy.as_mut().poll(cx).is_pending());
            ended = 70 - made.len();
            std::task::Poll::Ready(())
        })
        .await;
        assert_eq!(ended, 1);
        for copy in made {
            copy.await?;
        }
        Ok::<(), Error>(())
    };
    machine.run(copies).expect("it ends").expect("70 copies");
    let after = machine.report(0).unwrap();
    assert_eq!(after.doorbells - before.doorbells, 2);
    machine.shut_down();
}

#[test]
fn a_batch_of_64_rings_two_doorbells_and_reads_no_register() {
    for product in ["trn1", "trn2", "trn3"] {
        let machine = machine(product);
        let bench = machine.run(bench(&machine)).expect("it ends");
        let mut batch = bench.client.batch(64).expect("room");
        let before = (machine.report(0).unwrap(), bench.client.device().counters());
        machine.run(bench.batch(&mut batch)).expect("it ends").expect("a batch");
        let after = (machine.report(0).unwrap(), bench.client.device().counters());
        assert_eq!(after.0.doorbells - before.0.doorbells, 2, "{product}");
        assert_eq!(after.0.register_reads - before.0.register_reads, 0, "{product}");
        assert_eq!(after.0.register_writes - before.0.register_writes, 2, "{product}");
        assert_eq!(after.1.descriptors - before.1.descriptors, 65, "{product}");
        machine.shut_down();
    }
}

/// A run that takes the model longer than any other: 1 GiB in 64 futures, more than the ring holds.
#[test]
fn large_copies_that_take_their_time_read_no_register() {
    let machine = machine("trn1");
    let size = 16 << 20;
    let moved = async {
        let cx = axon::Context::start(machine.clone());
        cx.driver.settled().await;
        let client = cx.driver.device(0).expect("a device").open().await?;
        let host = client.alloc_host(HostAlloc::new(size)).await?;
        let hbm = client.alloc_device(DeviceAlloc::new(size)).await?;
        let before = (machine.report(0).unwrap(), client.device().counters());
        let copies = (0..64).map(|_| Ok(Box::pin(host.copy_to(..size, &hbm, 0)?)));
        let mut copies = copies.collect::<Result<Vec<_>, Error>>()?;
        std::future::poll_fn(|cx| {
            copies.retain_mut(|copy| match copy.as_mut().poll(cx) {
                std::task::Poll::Ready(result) => {
                    result.expect("a copy");
                    false
                }
                std::task::Poll::Pending => true,
            });
            if copies.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        Ok::<_, Error>((before, (machine.report(0).unwrap(), client.device().counters())))
    };
    let (before, after) = machine.run(moved).expect("it ends").expect("64 copies");
    assert_eq!(after.1.bytes - before.1.bytes, 64 * size);
    assert_eq!(after.1.register_reads - before.1.register_reads, 0);
    assert_eq!(after.0.register_reads - before.0.register_reads, 0);
    machine.shut_down();
}

/// The driver's share: what happens between the call and the doorbell, and after the marker. The
/// model and the executor, which allocate as they like, take no part in either.
#[test]
fn the_copy_path_does_not_allocate() {
    let machine = machine("trn1");
    let bench = machine.run(bench(&machine)).expect("it ends");
    for _ in 0..3 {
        machine.run(bench.copy(4096)).expect("it ends").expect("a copy");
    }
    let idle = allocation_counter::measure(|| machine.run(async {}).expect("it ends"));
    let busy = allocation_counter::measure(|| {
        machine.run(bench.copy(4096)).expect("it ends").expect("a copy");
    });
    assert_eq!(busy.count_total, idle.count_total, "{busy:?}, idle {idle:?}");
    machine.shut_down();
}

#[test]
fn batches_fills_and_started_copies_do_not_allocate() {
    let machine = machine("trn1");
    let bench = machine.run(bench(&machine)).expect("it ends");
    let mut batch = bench.client.batch(64).expect("room");
    let mut batched = async |bench: &Bench| bench.batch(&mut batch).await;
    let started = async |bench: &Bench| bench.host.copy_to(..4096, &bench.hbm, 0)?.start().await;
    let filled = async |bench: &Bench| bench.hbm.fill(..4096, 1)?.start().await;
    let written = async |bench: &Bench| bench.hbm.write(0, &[1; 100]).await;
    for _ in 0..3 {
        machine.run(batched(&bench)).expect("it ends").expect("a batch");
        machine.run(started(&bench)).expect("it ends").expect("a copy");
        machine.run(filled(&bench)).expect("it ends").expect("a fill");
        machine.run(written(&bench)).expect("it ends").expect("a write");
    }
    let count = |run: &mut dyn FnMut()| allocation_counter::measure(run).count_total;
    let idle = count(&mut || machine.run(async {}).expect("it ends"));
    let batch = count(&mut || drop(machine.run(batched(&bench))));
    let copy = count(&mut || drop(machine.run(started(&bench))));
    let fill = count(&mut || drop(machine.run(filled(&bench))));
    let write = count(&mut || drop(machine.run(written(&bench))));
    assert_eq!([batch, copy, fill, write], [idle; 4]);
    machine.shut_down();
}
