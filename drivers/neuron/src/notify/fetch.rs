//! Rings in device memory: records are fetched by DMA into a page of host memory, up to its 256
//! records at a time, and read there (specification 06 §7.3 "tail poll", §17.5).

use core::future::Future;
use core::pin::Pin as FuturePin;
use core::task::{Context, Poll, Waker};

use axon_platform::{DeviceAddr, MmioWindow, Platform, WordRing};
use axon_ports::{AllocRequest, Chunk, MemoryPort, Pin};

use super::WhenFull;
use super::entry::Status;
use super::record::{Notification, RECORD_BYTES};
use super::registry::{QueueName, Registry};
use crate::dma::{Copy, Dma, Fill, Target};
use crate::{Error, Window};

/// Bytes of the page that records are fetched into.
const PAGE: u32 = 4096;

/// Records to be fetched: they follow each other in the ring.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Place of the first one.
    start: u32,
    count: u32,
    /// First byte of the first one.
    address: DeviceAddr,
    pin: Pin,
}

/// What a look at the producer pointer gave.
pub(super) enum Ahead {
    Run(Run),
    Nothing,
    /// The ring has drained and is to be cleared: where, how many bytes.
    Clear(DeviceAddr, Pin, u32),
    Lost(Error),
    Ended,
}

/// Where fetched records lie until they are read.
pub(super) struct Staging<P: Platform> {
    _chunk: Chunk,
    pin: Pin,
    words: WordRing,
    at: u32,
    count: u32,
    /// What is under way.
    copy: Option<(Run, Copy<P>)>,
    fill: Option<Fill<P>>,
}

impl<P: Platform> Staging<P> {
    pub(super) async fn new<M: MemoryPort>(memory: &M) -> Result<Self, Error> {
        let chunk = memory.alloc(AllocRequest::driver_host(PAGE.into())).await?;
        let pin = chunk.pin().ok_or(Error::NoRecords)?;
        let page = pin.host().and_then(|memory| memory.slice(0, PAGE.into()).ok());
        let words = page.and_then(|page| page.word_ring().ok()).ok_or(Error::NoRecords)?;
        Ok(Staging { _chunk: chunk, pin, words, at: 0, count: 0, copy: None, fill: None })
    }

    /// Records that are fetched and not read.
    pub(super) fn left(&self) -> u32 {
        self.count - self.at
    }

    /// A fetched record, `ahead` behind the next one.
    pub(super) fn words_of(&self, ahead: u32) -> Option<[u32; 4]> {
        let place = (self.at + ahead) * 4;
        (ahead < self.left()).then(|| [0, 1, 2, 3].map(|word| self.words.load(place + word)))
    }

    /// Leaves fetched records behind.
    pub(super) fn advance(&mut self, count: u32) {
        self.at += count.min(self.left());
    }

    /// Goes on fetching. Ready with `Ok` where something is fetched; `waker` is noted where there
    /// is nothing to fetch.
    pub(super) fn poll_fetch(
        &mut self,
        dma: &Dma<P>,
        name: QueueName,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        while self.left() == 0 {
            if let Some(fill) = &mut self.fill {
                let done = core::task::ready!(FuturePin::new(fill).poll(cx));
                self.fill = None;
                done?;
                dma.0.platform.write_barrier();
                dma.0.notifications.with(|registry| {
                    if registry.entry(name).is_some_and(|entry| entry.status == Status::Drained) {
                        registry.resume(&dma.0.registers, usize::from(name.slot));
                    }
                });
                continue;
            }
            if let Some((run, copy)) = &mut self.copy {
                let done = core::task::ready!(FuturePin::new(copy).poll(cx));
                let run = run.clone();
                self.copy = None;
                done?;
                let shared = &dma.0;
                self.at = 0;
                self.count = shared
                    .notifications
                    .with(|registry| registry.commit(&shared.registers, name, &run, &self.words));
                if self.count == 0 {
                    // The pointer was ahead of its records: the next turn looks again.
                    if !shared.notifications.with(|registry| registry.park(name, cx.waker())) {
                        return Poll::Ready(Ok(()));
                    }
                    shared.notifications.call();
                    return Poll::Pending;
                }
                continue;
            }
            let shared = &dma.0;
            let ahead = shared
                .notifications
                .with(|registry| registry.ahead::<Window<P>>(&shared.registers, name, cx.waker()));
            match ahead {
                Ahead::Run(run) => self.copy = Some((run.clone(), self.fetch(dma, name, run))),
                Ahead::Clear(address, pin, bytes) => {
                    let target = Target { address, pin };
                    let core = self.core(dma, name);
                    self.fill = Some(dma.fill(core, target, 0, bytes.into()));
                }
                Ahead::Nothing => {
                    shared.notifications.call();
                    return match shared.check_alive() {
                        Ok(()) => Poll::Pending,
                        Err(error) => Poll::Ready(Err(error)),
                    };
                }
                Ahead::Lost(error) => {
                    shared.notifications.call();
                    return Poll::Ready(Err(error));
                }
                Ahead::Ended => return Poll::Ready(Ok(())),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn core(&self, dma: &Dma<P>, name: QueueName) -> axon_ports::CoreId {
        let entry_core = dma
            .0
            .notifications
            .with(|registry| registry.entry(name).map(|entry| entry.hardware.core));
        entry_core.unwrap_or(axon_ports::CoreId::ALL[0])
    }

    fn fetch(&self, dma: &Dma<P>, name: QueueName, run: Run) -> Copy<P> {
        let source = Target { address: run.address, pin: run.pin };
        let destination = Target { address: self.pin.pa(), pin: self.pin.clone() };
        dma.copy(self.core(dma, name), source, destination, u64::from(run.count * RECORD_BYTES))
    }
}

impl Registry {
    /// Notes who waits for a queue, for the sweeping task to see; `false` where it has ended.
    pub(super) fn park(&mut self, name: QueueName, waker: &Waker) -> bool {
        let Some(entry) = self.entry(name).filter(|entry| entry.is_kept()) else { return false };
        entry.waiting.register(waker);
        if entry.status == Status::Armed {
            self.set_waiting(usize::from(name.slot), true);
        }
        true
    }

    /// What can be fetched now. The producer pointer counts only where it names a record of the
    /// ring.
    fn ahead<W: MmioWindow>(&mut self, window: &W, name: QueueName, waker: &Waker) -> Ahead {
        let managed = self.managed;
        let Some(entry) = self.entry(name) else { return Ahead::Ended };
        match entry.status {
            Status::Armed => {}
            Status::Drained => {
                let Some(ring) = &entry.ring else { return Ahead::Ended };
                return Ahead::Clear(ring.pin().pa(), ring.pin().clone(), entry.size);
            }
            Status::Suspended { .. } | Status::Creating => {
                self.park(name, waker);
                return Ahead::Nothing;
            }
            _ => return Ahead::Ended,
        }
        let start = entry.cursor.next();
        if entry.gap == Some(start) {
            return Ahead::Lost(self.lost(name));
        }
        let behind = entry.cursor.behind(window.read32(entry.registers().tail())).unwrap_or(0);
        if behind == 0 {
            self.park(name, waker);
            return Ahead::Nothing;
        }
        let full = behind == entry.cursor.capacity() - 1;
        let suspect = managed && full && entry.spec.when_full == WhenFull::Drop;
        let (block, position) = (entry.block, entry.hardware.position);
        if suspect
            && entry.gap.is_none()
            && let Some(block) = self.blocks.get_mut(block)
            && block.take_overflow(window, position)
            && let Some(entry) = self.entry(name)
        {
            entry.gap = Some(entry.cursor.gap());
        }
        let Some(entry) = self.entry(name) else { return Ahead::Ended };
        let Some(ring) = &entry.ring else { return Ahead::Ended };
        let count = behind.min(entry.cursor.capacity() - start).min(PAGE / RECORD_BYTES);
        let Some(address) = ring.pin().pa().checked_add((start * RECORD_BYTES).into()) else {
            return Ahead::Ended;
        };
        Ahead::Run(Run { start, count, address, pin: ring.pin().clone() })
    }

    /// Takes over what was fetched, as far as its phase bits say that it is new; answers how many
    /// records that is.
    fn commit<W: MmioWindow>(
        &mut self,
        window: &W,
        name: QueueName,
        run: &Run,
        words: &WordRing,
    ) -> u32 {
        let managed = self.managed;
        let Some(entry) = self.entry(name).filter(|entry| entry.status == Status::Armed) else {
            return 0;
        };
        if entry.cursor.next() != run.start {
            // Another handle of the queue was faster.
            return 0;
        }
        let mut count = 0;
        while count < run.count && entry.cursor.is_new(words.load(count * 4)) {
            entry.cursor.advance();
            count += 1;
        }
        let (block, position) = (entry.block, entry.hardware.position);
        if count != 0 && managed && entry.gap.is_none() {
            window.write32(entry.registers().head(), entry.cursor.tell());
            if let Some(block) = self.blocks.get_mut(block) {
                block.clear_suspicion(position);
            }
        }
        count
    }

    /// Reads a fetched record; counts what it is.
    pub(super) fn read_fetched(
        &mut self,
        name: QueueName,
        words: [u32; 4],
    ) -> Option<Notification> {
        let entry = self.entry(name)?;
        let notification = entry.reader.read(words);
        match notification {
            Some(_) => entry.counters.consumed += 1,
            None => entry.counters.garbage += 1,
        }
        notification
    }
}
