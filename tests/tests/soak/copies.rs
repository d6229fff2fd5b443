//! Steps over the default ring of a core, and through the memory window.

use std::time::Duration;

use axon_platform::{Errno, Platform};

use crate::life::{BUFFERS, Life, Part};

impl Life<'_> {
    pub async fn send(&mut self) {
        let (part, buffer) = (self.part(), self.pick());
        let bytes = self.fresh(0, part);
        let range = part.offset..part.offset + part.len;
        let (source, target) = (self.host[0].span(range.clone()), self.hbm[buffer].span(range));
        let result = source.unwrap().copy_to(target.unwrap()).unwrap().await;
        self.wrote(buffer, part, &bytes, result).await;
    }

    pub async fn fetch(&mut self) {
        let (part, buffer) = (self.part(), self.pick());
        let range = part.offset..part.offset + part.len;
        let (source, target) = (self.hbm[buffer].span(range.clone()), self.host[1].span(range));
        let result = source.unwrap().copy_to(target.unwrap()).unwrap().await;
        self.found(buffer, part, result).await;
    }

    /// HBM to HBM, of two buffers.
    pub async fn within(&mut self) {
        let (part, from) = (self.part(), self.pick());
        let to = (from + 1) % BUFFERS;
        let range = part.offset..part.offset + part.len;
        let (source, target) = (self.hbm[from].span(range.clone()), self.hbm[to].span(range));
        let result = source.unwrap().copy_to(target.unwrap()).unwrap().await;
        let (source, target) = (self.address(from, part), self.address(to, part));
        match result {
            Ok(()) => self.world.shadow.borrow_mut().copy(source, target, part.len),
            Err(error) => self.lost(to, &[part], error).await,
        }
    }

    pub async fn fill(&mut self) {
        let (part, buffer) = (self.part(), self.pick());
        self.fill_over(buffer, part).await;
    }

    async fn fill_over(&mut self, buffer: usize, part: Part) {
        let byte = self.below(256) as u8;
        let range = part.offset..part.offset + part.len;
        let result = self.hbm[buffer].fill(range, byte).unwrap().await;
        self.wrote(buffer, part, &vec![byte; part.len as usize], result).await;
    }

    /// Plain slices, through the window or through the bounce.
    pub async fn slices(&mut self) {
        let (part, buffer) = (self.part(), self.pick());
        let mut bytes = vec![0; part.len as usize];
        if self.below(2) == 0 {
            self.random.fill(&mut bytes);
            let result = self.hbm[buffer].write(part.offset, &bytes).await;
            self.wrote(buffer, part, &bytes, result).await;
            return;
        }
        match self.hbm[buffer].read(part.offset, &mut bytes).await {
            Ok(()) => self.same(buffer, part, &bytes, "slice"),
            Err(error) => self.world.recover(&self.client, error).await,
        }
    }

    /// Words written or filled through the memory window: at once, or in a reset not at all.
    pub async fn inline(&mut self) {
        let (buffer, len) = (self.pick(), 4 * (1 + self.below(2048)));
        let part = Part { offset: 4 * self.below((crate::life::BUFFER - len) / 4 + 1), len };
        let mut bytes = vec![self.below(256) as u8; len as usize];
        if self.below(2) == 0 {
            self.random.fill(&mut bytes);
        }
        match self.hbm[buffer].write_inline(part.offset, &bytes) {
            Ok(()) => self.world.shadow.borrow_mut().set(self.address(buffer, part), &bytes),
            Err(error) => assert_eq!(error.errno(), Errno::EAGAIN, "{error}"),
        }
    }

    /// Many copies at once, waited for in any order.
    pub async fn burst(&mut self) {
        let buffer = self.pick();
        let mut copies = Vec::new();
        for slot in 0..8 {
            let part = self.part_of(slot);
            let bytes = self.fresh(0, part);
            let range = part.offset..part.offset + part.len;
            let (source, target) = (self.host[0].span(range.clone()), self.hbm[buffer].span(range));
            copies.push((part, bytes, source.unwrap().copy_to(target.unwrap()).unwrap().start()));
        }
        if self.below(2) == 0 {
            copies.reverse();
        }
        for (part, bytes, copy) in copies {
            let result = copy.await;
            self.wrote(buffer, part, &bytes, result).await;
        }
    }

    /// Copies both ways as one batch that is used again and again: awaited, started and awaited, or
    /// left alone in flight.
    pub async fn batch(&mut self) {
        let mut batch = match self.batch.take() {
            Some(batch) => batch,
            None => self.client.batch(16).expect("room"),
        };
        let (target, count) = (self.pick(), 1 + self.below(16));
        let source = (target + 1) % BUFFERS;
        let (mut sent, mut wanted) = (Vec::new(), Vec::new());
        for slot in 0..count {
            let part = self.part_of(slot);
            let Part { offset, len } = part;
            if self.below(2) == 0 {
                sent.push((part, self.fresh(0, part)));
                batch.copy(&self.host[0], offset, &self.hbm[target], offset, len).unwrap();
            } else {
                wanted.push(part);
                batch.copy(&self.hbm[source], offset, &self.host[1], offset, len).unwrap();
            }
        }
        let how = self.below(8);
        if how < 3 {
            // Where there is no room now, or the ring takes no work, the future says so.
            let _ = batch.try_start();
        }
        let targets: Vec<Part> = sent.iter().map(|(part, _)| *part).collect();
        if how == 0 {
            batch.clear();
            self.batch = Some(batch);
            let whole = Part { offset: 0, len: count * 8192 };
            self.world.shadow.borrow_mut().forget(self.address(target, whole), whole.len);
            // The same ring carries it, so this comes later.
            return self.fill_over(target, whole).await;
        }
        let result = (&mut batch).await;
        self.batch = Some(batch);
        if let Err(error) = result {
            return self.lost(target, &targets, error).await;
        }
        for (part, bytes) in sent {
            self.wrote(target, part, &bytes, Ok(())).await;
        }
        for part in wanted {
            self.same(source, part, &self.received(1, part), "read by a batch");
        }
    }

    /// Two copies with wait handles, the second waiting for the first.
    pub async fn numbered(&mut self) {
        let (first, second, buffer) = (self.part_of(0), self.part_of(1), self.pick());
        let bytes = [self.fresh(0, first), self.fresh(0, second)];
        let core = self.core();
        let copies = self.client.async_copies(core);
        let submit = async |before: i32, part: Part| {
            let range = part.offset..part.offset + part.len;
            let source = self.host[0].span(range.clone()).unwrap();
            copies.submit(before, source, self.hbm[buffer].span(range).unwrap()).await
        };
        let handle = match submit(-1, first).await {
            Ok(handle) => handle,
            Err(error) => return self.lost(buffer, &[first], error).await,
        };
        let next = match submit(handle, second).await {
            Ok(next) => next,
            Err(error) => {
                // Whatever is under the handle is over, unless it was waited for already.
                let _ = copies.wait(handle).await;
                return self.lost(buffer, &[first, second], error).await;
            }
        };
        self.wrote(buffer, first, &bytes[0], Ok(())).await;
        let result = copies.wait(next).await;
        self.wrote(buffer, second, &bytes[1], result).await;
    }

    /// A copy whose future goes: nobody vouches for its target until it is written anew.
    pub async fn drop_half_way(&mut self) {
        let (part, buffer) = (self.part(), self.pick());
        let range = part.offset..part.offset + part.len;
        let (source, target) = (self.host[0].span(range.clone()), self.hbm[buffer].span(range));
        let copy = source.unwrap().copy_to(target.unwrap()).unwrap();
        let copy = if self.below(2) == 0 { copy.start() } else { copy };
        self.world.shadow.borrow_mut().forget(self.address(buffer, part), part.len);
        drop(copy);
        self.rest().await;
        // The same ring carries it, so this comes later.
        self.fill_over(buffer, part).await;
    }

    /// A zero copy whose future goes after a few polls.
    pub async fn drop_zero_copy(
        &mut self,
        buffer: usize,
        part: Part,
        request: axon::ZeroCopyRequest,
    ) {
        let polls = self.below(5);
        self.world.shadow.borrow_mut().forget(self.address(buffer, part), part.len);
        let client = self.client.clone();
        let mut copy = Box::pin(client.zero_copy(&request));
        for _ in 0..polls {
            if embassy_futures::poll_once(copy.as_mut()).is_ready() {
                break;
            }
            self.world.machine.sleep(Duration::from_micros(1)).await;
        }
        drop(copy);
        self.rest().await;
        self.fill_over(buffer, part).await;
    }

    async fn rest(&mut self) {
        if self.below(2) == 0 {
            let span = Duration::from_micros(self.below(20));
            self.world.machine.sleep(span).await;
        }
    }
}
