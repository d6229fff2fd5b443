//! Execution of descriptors: fetch, gather the packet, deliver it (specification 02 §13.4).

use super::QUEUES;
use super::descriptor::Descriptor;
use super::iofic::Cause;
use super::registers as reg;
use super::ring::Rung;
use super::unit::{Effect, Hang};
use crate::dma::Failed;
use crate::faults::Fault;
use crate::function::Function;
use crate::map::Target;
use crate::memory::hbm::lay_out;
use crate::report::{DescriptorRecord, DoorbellRecord, EventKind, Side};
use crate::time::Later;

/// What a descriptor costs beside its bytes, so that tiny ones come to an end too.
const DESCRIPTOR_COST: u64 = 1024;

fn side(s2m: bool) -> Side {
    if s2m { Side::Rx } else { Side::Tx }
}

impl Function {
    /// Carries out what a register write of a unit asks for; queues run in [`Function::drain`].
    pub(crate) fn apply(&mut self, engine: usize, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Service(queue) => self.ready.push_back((engine, queue)),
            Effect::ServiceAll => self.ready.extend((0..QUEUES).map(|queue| (engine, queue))),
            Effect::Doorbell { queue, s2m, value, rung, fresh } => {
                let record = DoorbellRecord {
                    engine: engine as u16,
                    queue: queue as u8,
                    side: side(s2m),
                    value,
                };
                self.recorder.doorbell(record);
                if self.take_doorbell(engine, queue, value, rung, fresh) {
                    if !s2m {
                        self.doorbell_faults(engine, queue);
                    }
                    self.ready.push_back((engine, queue));
                }
            }
            Effect::RingChanged(queue) => {
                self.violation(EventKind::RingChangedUnderWay, Some((engine, queue)), 0);
            }
            Effect::Stopped(cause) => {
                self.expected(EventKind::Abort, Some((engine, 0)), cause.number());
            }
        }
    }

    /// Whether the queue is to be serviced after this doorbell.
    fn take_doorbell(
        &mut self,
        engine: usize,
        queue: usize,
        value: u32,
        rung: Rung,
        fresh: bool,
    ) -> bool {
        let place = Some((engine, queue));
        match rung {
            Rung::Taken => {}
            Rung::Overrun => self.violation(EventKind::RingOverrun, place, u64::from(value)),
            Rung::Zero => {
                self.violation(EventKind::DoorbellZero, place, 0);
                return false;
            }
            Rung::NoRing => {
                let kind = EventKind::DoorbellWithoutRing;
                if fresh && !self.config.strict {
                    self.expected(kind, place, u64::from(value));
                } else {
                    self.violation(kind, place, u64::from(value));
                }
                return false;
            }
        }
        true
    }

    /// Every Tx doorbell is an occasion.
    fn doorbell_faults(&mut self, engine: usize, queue: usize) {
        if let Some(wanted) = self.faults.armed(Fault::HangEngine) {
            let hang = match wanted {
                u64::MAX if self.reset_is_running() => Hang::UntilQueueReset,
                _ if wanted == engine as u64 => Hang::UntilUnitReset,
                _ => Hang::No,
            };
            if hang != Hang::No && self.faults.strike(Fault::HangEngine).is_some() {
                self.units[engine].queues[queue].hang = hang;
            }
        }
        if !self.units[engine].queues[queue].waiting
            && let Some(delay) = self.faults.delay()
        {
            let pair = &mut self.units[engine].queues[queue];
            pair.waiting = true;
            let later = Later::Service { engine, queue, epoch: pair.epoch };
            self.after(delay, later);
        }
    }

    /// Runs every queue that became runnable.
    pub(crate) fn drain(&mut self) {
        while let Some((engine, queue)) = self.ready.pop_front() {
            self.service(engine, queue);
        }
    }

    /// Runs one queue until nothing changes or the turn's share of work is done.
    fn service(&mut self, engine: usize, queue: usize) {
        if self.units[engine].queues[queue].waiting {
            return;
        }
        loop {
            let mut progress = self.fetch(engine, queue, false);
            progress |= self.fetch(engine, queue, true);
            if self.moved >= self.config.inline_dma_bytes {
                let pair = &mut self.units[engine].queues[queue];
                pair.waiting = true;
                let epoch = pair.epoch;
                self.deferred.push_back((engine, queue, epoch));
                return;
            }
            progress |= self.gather(engine, queue);
            progress |= self.deliver(engine, queue);
            if !progress {
                return;
            }
        }
    }

    /// Fetches descriptors of one direction; `true` where anything was.
    fn fetch(&mut self, engine: usize, queue: usize, s2m: bool) -> bool {
        let mut progress = false;
        while self.units[engine].may_fetch(s2m, queue) {
            let ring = &self.units[engine].queues[queue].rings[usize::from(s2m)];
            let Some((address, count)) = ring.fetchable() else { break };
            let mut bytes = [0; 128 * Descriptor::BYTES];
            progress = true;
            let mut count = count as usize;
            if self.dma_read(address, &mut bytes[..count * Descriptor::BYTES]).is_err() {
                // The burst as a whole failed: find the slot that does.
                count = 1;
                if self.dma_read(address, &mut bytes[..Descriptor::BYTES]).is_err() {
                    let cause = if s2m { Cause::PREFETCH_S2M } else { Cause::PREFETCH_M2S };
                    if !self.fault(engine, queue, cause, None) {
                        let pair = &mut self.units[engine].queues[queue];
                        pair.rings[usize::from(s2m)].skip_fetch();
                    }
                    continue;
                }
            }
            for bytes in bytes.as_chunks::<{ Descriptor::BYTES }>().0.iter().take(count) {
                if !self.take_fetched(engine, queue, s2m, Descriptor::from_bytes(bytes)) {
                    break;
                }
            }
        }
        progress
    }

    /// Checks the lap of a fetched descriptor and keeps it; `false` where that stopped fetching.
    fn take_fetched(&mut self, engine: usize, queue: usize, s2m: bool, got: Descriptor) -> bool {
        let ring = &self.units[engine].queues[queue].rings[usize::from(s2m)];
        if got.ring_id() != ring.head.id && !got.is_meta() {
            let cause = if s2m { Cause::RING_ID_S2M } else { Cause::RING_ID_M2S };
            if self.fault(engine, queue, cause, Some(got)) {
                return false;
            }
            let word = u64::from(got.0[0]);
            self.expected(EventKind::RingIdIgnored, Some((engine, queue)), word);
        }
        self.units[engine].queues[queue].rings[usize::from(s2m)].push(got);
        true
    }

    /// M2S: reads sources until the packet is complete; `true` where anything was done.
    fn gather(&mut self, engine: usize, queue: usize) -> bool {
        let mut progress = false;
        loop {
            let unit = &self.units[engine];
            let pair = &unit.queues[queue];
            if pair.packet.complete || !unit.may_execute(false, queue) {
                return progress;
            }
            let Some(descriptor) = pair.rings[0].next() else { return progress };
            progress = true;
            if let Err(cause) = self.take_source(engine, queue, descriptor) {
                if self.fault(engine, queue, cause, Some(descriptor)) {
                    return progress;
                }
                // Masked: the descriptor is passed over, and with its last one the packet.
                let pair = &mut self.units[engine].queues[queue];
                pair.rings[0].consume();
                if descriptor.is_last() {
                    pair.packet.clear();
                }
            }
        }
    }

    fn take_source(
        &mut self,
        engine: usize,
        queue: usize,
        descriptor: Descriptor,
    ) -> Result<(), Cause> {
        if let Some(cause) = self.injected(false) {
            return Err(cause);
        }
        let length = self.check_packet(engine, queue, descriptor)?;
        if let Some(word) = descriptor.unsupported_word() {
            let place = Some((engine, queue));
            self.violation(EventKind::UnsupportedDescriptor, place, u64::from(word));
            return Err(Cause::UNSUPPORTED);
        }
        let address = descriptor.address();
        let packet = &self.units[engine].queues[queue].packet;
        let (start, end) = (packet.used, packet.used + length);
        let packet_is_open = packet.descriptors > 0;
        let is_whole = !packet_is_open && descriptor.is_last();
        let run = if is_whole { self.run_at(address, length) } else { None };
        let packet = &mut self.units[engine].queues[queue].packet;
        packet.run = run;
        if run.is_none() {
            let mut bytes = std::mem::take(&mut packet.bytes);
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            let result = self.dma_read(address, &mut bytes[start..end]);
            self.units[engine].queues[queue].packet.bytes = bytes;
            result.map_err(|Failed| Cause::SOURCE_READ)?;
        }

        let pair = &mut self.units[engine].queues[queue];
        let packet = &mut pair.packet;
        if packet.descriptors == 0 {
            packet.source = address;
        }
        packet.used = end;
        packet.descriptors += 1;
        packet.complete = descriptor.is_last();
        packet.interrupt |= descriptor.wants_interrupt();
        // A run is not looked at, so that it costs no more than its descriptor.
        self.moved += if run.is_some() { 0 } else { length as u64 } + DESCRIPTOR_COST;
        self.consume(engine, queue, false, descriptor);
        Ok(())
    }

    /// The rules of a packet; gives the descriptor's length in bytes.
    fn check_packet(
        &self,
        engine: usize,
        queue: usize,
        descriptor: Descriptor,
    ) -> Result<usize, Cause> {
        let unit = &self.units[engine];
        let packet = &unit.queues[queue].packet;
        let open = packet.descriptors > 0;
        if open && descriptor.is_first() {
            return Err(Cause::FIRST_WRONG);
        }
        if !open && !descriptor.is_first() {
            let last = descriptor.is_last();
            return Err(if last { Cause::LAST_WRONG } else { Cause::FIRST_WRONG });
        }
        if packet.descriptors >= unit.stored(reg::PACKET_LIMIT) & 0xfff {
            return Err(Cause::TOO_MANY_DESCRIPTORS);
        }
        let length = self.length(engine, descriptor);
        if packet.used + length > (unit.stored(reg::CFG_LEN) & 0xf_ffff) as usize {
            return Err(Cause::PACKET_TOO_LONG);
        }
        Ok(length)
    }

    /// Bytes of a descriptor: what 0 means is up to `cfg_len` bit 24.
    fn length(&self, engine: usize, descriptor: Descriptor) -> usize {
        match descriptor.length_field() {
            0 if self.units[engine].stored(reg::CFG_LEN) & 1 << 24 != 0 => 0x1_0000,
            length => length as usize,
        }
    }

    /// S2M: writes a complete packet to destinations; `true` where anything was done.
    fn deliver(&mut self, engine: usize, queue: usize) -> bool {
        let mut progress = false;
        loop {
            let unit = &self.units[engine];
            let pair = &unit.queues[queue];
            if !pair.packet.complete || !unit.may_execute(true, queue) {
                return progress;
            }
            let Some(descriptor) = pair.rings[1].next() else { return progress };
            progress = true;
            let room = self.length(engine, descriptor);
            let (used, start, epoch) = (pair.packet.used, pair.packet.written, pair.epoch);
            let end = used.min(start + room);
            if let Err(cause) = self.put(engine, queue, descriptor, start, end)
                && self.fault(engine, queue, cause, Some(descriptor))
            {
                return progress;
            }
            let pair = &mut self.units[engine].queues[queue];
            if pair.epoch != epoch {
                // The write reset this very queue.
                return progress;
            }
            pair.packet.written = end;
            self.consume(engine, queue, true, descriptor);
            if end == used {
                self.close_packet(engine, queue, descriptor.wants_interrupt());
                return progress;
            }
        }
    }

    /// Writes bytes `start..end` of the packet where the descriptor says.
    fn put(
        &mut self,
        engine: usize,
        queue: usize,
        descriptor: Descriptor,
        start: usize,
        mut end: usize,
    ) -> Result<(), Cause> {
        if let Some(cause) = self.injected(true) {
            return Err(cause);
        }
        let packet = &mut self.units[engine].queues[queue].packet;
        let (used, source, run) = (packet.used, packet.source, packet.run.take());
        let mut bytes = std::mem::take(&mut packet.bytes);
        if let Some(word) = run {
            // Behind a short write or another phase of the word it takes its bytes after all.
            let is_whole =
                (start, end) == (0, used) && self.faults.armed(Fault::ShortWrite).is_none();
            if is_whole && self.put_run(descriptor.address(), end as u64, source, word) {
                self.units[engine].queues[queue].packet.bytes = bytes;
                self.recorder.totals.bytes += end as u64;
                return Ok(());
            }
            bytes.resize(bytes.len().max(used), 0);
            lay_out(word, source, &mut bytes[..used]);
        }
        let result = if used == 4 && end - start == 4 && self.is_host(source) {
            self.put_marker(engine, descriptor.address(), &bytes[..4])
        } else {
            if let Some(missing) = self.faults.strike(Fault::ShortWrite) {
                end -= (end - start).min(missing as usize);
            }
            self.dma_write(descriptor.address(), &bytes[start..end])
        };
        self.units[engine].queues[queue].packet.bytes = bytes;
        self.recorder.totals.bytes += (end - start) as u64;
        result.map_err(|Failed| Cause::DESTINATION_WRITE)
    }

    /// A packet of 4 bytes from host memory: with a host destination it is a marker.
    fn put_marker(&mut self, engine: usize, address: u64, bytes: &[u8]) -> Result<(), Failed> {
        let Some(Target::Host(host)) = self.map.decode(address, 4) else {
            return self.dma_write(address, bytes);
        };
        if self.faults.strike(Fault::DropMarker).is_some() {
            return Ok(());
        }
        let mut word = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if let Some(value) = self.faults.strike(Fault::WrongMarker) {
            word = (value as u32).to_le_bytes();
        }
        self.recorder.totals.markers += 1;
        if let Some(delay) = self.faults.strike(Fault::LateMarker) {
            let generation = self.units[engine].generation;
            let value = u32::from_le_bytes(word);
            self.after(delay, Later::Marker { engine, generation, address: host, value });
            return Ok(());
        }
        self.host_write(host, &word)
    }

    fn is_host(&self, address: u64) -> bool {
        matches!(self.map.decode(address, 4), Some(Target::Host(_)))
    }

    fn close_packet(&mut self, engine: usize, queue: usize, rx_interrupt: bool) {
        let unit = &mut self.units[engine];
        let pair = &mut unit.queues[queue];
        let tx_interrupt = pair.packet.interrupt;
        pair.packet.clear();
        for ring in &mut pair.rings {
            ring.packets = ring.packets.wrapping_add(1);
        }
        if rx_interrupt {
            unit.latch_primary(1, 1 << queue);
        }
        if tx_interrupt {
            unit.latch_primary(2, 1 << queue);
        }
    }

    fn consume(&mut self, engine: usize, queue: usize, s2m: bool, descriptor: Descriptor) {
        let ring = &mut self.units[engine].queues[queue].rings[usize::from(s2m)];
        let slot = ring.current.index;
        ring.consume();
        self.recorder.descriptor(DescriptorRecord {
            engine: engine as u16,
            queue: queue as u8,
            side: side(s2m),
            slot,
            words: descriptor.0,
        });
    }

    /// The cause that the fault knob puts on this descriptor, if it is about this direction.
    fn injected(&mut self, s2m: bool) -> Option<Cause> {
        let cause = Cause::from_number(self.faults.armed(Fault::AbortDescriptor)?);
        if cause.is_s2m() != s2m {
            return None;
        }
        self.faults.strike(Fault::AbortDescriptor).map(|_| {
            self.injecting = true;
            cause
        })
    }

    /// Latches a cause; `true` where it stopped its direction.
    fn fault(
        &mut self,
        engine: usize,
        queue: usize,
        cause: Cause,
        descriptor: Option<Descriptor>,
    ) -> bool {
        let stopped = self.units[engine].fault(cause, descriptor);
        if stopped {
            let place = Some((engine, queue));
            if std::mem::take(&mut self.injecting) {
                self.expected(EventKind::Abort, place, cause.number());
            } else {
                self.violation(EventKind::Abort, place, cause.number());
            }
        }
        stopped
    }
}
