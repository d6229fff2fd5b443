//! Steps over queues of the client itself, and zero-copy.

use axon::{Descriptor, Direction, Error, HostRange, QueueInit, RingAlloc, Side, ZeroCopyRequest};
use axon_platform::{DeviceAddr, Errno};

use crate::life::{Life, Part};

impl Life<'_> {
    fn request(
        &self,
        direction: Direction,
        queue: i32,
        buffer: usize,
        host: usize,
        part: Part,
    ) -> ZeroCopyRequest {
        let range =
            HostRange { handle: self.host[host].handle(), offset: part.offset, len: part.len };
        let device = self.hbm[buffer].handle();
        ZeroCopyRequest::single(direction, queue, device, part.offset, range)
    }

    pub async fn zero_copy(&mut self) {
        let (part, buffer) = (self.part(), self.pick());
        let own = self.queues.as_ref().and_then(|queues| queues.copy_queue(0).ok());
        if own.is_none() {
            // None was taken, or a reset has.
            self.queues = None;
        }
        let queue = own.map_or(-1, |queue| queue.number() as i32);
        match self.below(8) {
            0 => {
                self.fresh(0, part);
                let request = self.request(Direction::ToDevice, -1, buffer, 0, part);
                self.drop_zero_copy(buffer, part, request).await;
            }
            1..5 => {
                let bytes = self.fresh(0, part);
                let request = self.request(Direction::ToDevice, queue, buffer, 0, part);
                let result = self.client.zero_copy(&request).await;
                self.forget_stale_queue(&result);
                self.wrote(buffer, part, &bytes, result).await;
            }
            _ => {
                let request = self.request(Direction::FromDevice, queue, buffer, 1, part);
                let result = self.client.zero_copy(&request).await;
                self.forget_stale_queue(&result);
                self.found(buffer, part, result).await;
            }
        }
    }

    /// Requests that a task of the client carries out one after the other.
    pub async fn zero_copy_queue(&mut self) {
        let (mut submitter, mut completions) = match self.requests.take() {
            Some(both) => both,
            None => self.client.zero_copy_queue().expect("room for a task"),
        };
        let buffer = self.pick();
        let mut sent = Vec::new();
        for slot in 0..1 + self.below(4) {
            let part = self.part_of(slot);
            let bytes = self.fresh(0, part);
            let request = self.request(Direction::ToDevice, -1, buffer, 0, part);
            submitter.submit(slot + 1, &request).expect("the queue takes it");
            sent.push((part, bytes));
        }
        for (number, (part, bytes)) in sent.into_iter().enumerate() {
            let done = completions.next().await.expect("one for each");
            assert_eq!(done.sequence, number as u64 + 1);
            self.wrote(buffer, part, &bytes, done.result).await;
        }
        if self.below(2) == 0 {
            (submitter, completions) = self.client.zero_copy_queue().expect("room for a task");
        }
        self.requests = Some((submitter, completions));
    }

    fn forget_stale_queue(&mut self, result: &Result<(), Error>) {
        if result.as_ref().is_err_and(|error| error.errno() == Errno::ESTALE) {
            self.queues = None;
        }
    }

    /// One copy on a queue of the client itself. Its data descriptors carry no marker: the model
    /// has executed them when the doorbell returns. Now and then the device writes a few bytes too
    /// few, which nobody but a look at the bytes can tell.
    pub async fn own_queue(&mut self) {
        if self.rings.is_none() {
            let ring = async |side| self.client.alloc_ring(RingAlloc::new(side, 64)).await.unwrap();
            self.rings = Some((ring(Side::Tx).await, ring(Side::Rx).await));
        }
        let (part, buffer) = (self.part(), self.pick());
        let part = Part { len: part.len.min(65_536), ..part };
        let mut bytes = self.fresh(0, part);
        // Four bytes of host memory look like a marker, which is never short.
        let missing = match self.world.fault_every != 0 && self.below(4) == 0 && part.len != 4 {
            true => 1 + self.below(part.len),
            false => 0,
        };
        let Some((tx, rx)) = &self.rings else { return };
        let source = self.host[0].device_addr().0 + part.offset;
        let target = self.address(buffer, part);
        let row = |control: u32, word1, address: u64| {
            let address = DeviceAddr(address);
            let control = control | (part.len & 0xffff) as u32;
            [Descriptor([control, word1, address.low(), address.high()])]
        };
        let engine = self.core().number() * 16 + 15;
        let queue = self.world.seat_queue(&self.client);
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
            if missing != 0 {
                self.world.arm(&format!("short-write={missing} times=1"));
            }
            let result = queues.start(engine, queue, 1, 1);
            if missing != 0 {
                self.world.arm("short-write times=0");
            }
            result
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
                self.world.adopt(target, part.len);
            }
            Ok(()) if missing != 0 => {
                // Exactly the bytes at its end are those of before.
                let old = self.world.shadow.borrow_mut().known(target, part.len).expect("known");
                let kept = (part.len - missing) as usize;
                bytes[kept..].copy_from_slice(&old[kept..]);
                assert_eq!(self.world.look(target, part.len), bytes, "a short write");
                self.world.count("short writes");
                self.wrote(buffer, part, &bytes, Ok(())).await;
            }
            result => self.wrote(buffer, part, &bytes, result).await,
        }
    }

    pub async fn claim(&mut self) {
        if self.queues.take().is_some() {
            return;
        }
        match self.client.h2t_queues(self.core(), 1, 1).await {
            Ok(queues) => self.queues = Some(queues),
            Err(error) if error.errno() == Errno::ENOSPC => {}
            Err(error) => self.world.recover(&self.client, error).await,
        }
    }
}
