//! What serves the requests to a [`MemorySet`]: messages one by one, releases in between, long
//! sweeps in slices. The task and, in passing, its callers run it; see `task`.

use alloc::sync::Arc;
use core::num::NonZeroU32;
use core::task::{Context, Poll, Waker};

use axon_ports::{AllocRequest, ChunkName, ClientId, ClientSlot, MemoryError};

use crate::batch::BatchShared;
use crate::host::HostSource;
use crate::mailbox::{FreeRequest, Mailbox, Opened};
use crate::messages::{Reply, Request};
use crate::set::{MemorySet, SweepState};

/// Messages served before other tasks get their turn.
const TURN: u32 = 64;

/// Requests carried out in passing before one goes through the channel, so that a caller who never
/// waits lets others run.
pub(crate) const IN_PASSING: u32 = 16;

/// Bit of [`MemoryService::sweeping`] behind those of the attach slots.
const LAST_CLIENT: u32 = ClientSlot::COUNT as u32;

/// The set of one device, and what is under way.
pub(crate) struct Server<S: HostSource> {
    set: MemorySet<S>,
    mailbox: Arc<Mailbox>,
    /// Clients being dropped, by attach slot, and who waits for it.
    sweeps: [Option<(SweepState, u8)>; ClientSlot::COUNT],
    /// Who waits for the end of what lives with all clients.
    last_client: Option<u8>,
    /// Sweeps under way: a bit for each attach slot, and [`LAST_CLIENT`].
    sweeping: u32,
    /// Those of them that had a slice since all others had one.
    swept: u32,
    /// The next slice is one of a sweep; else of the release chain, where there is one.
    sweeps_next: bool,
    /// The last turn did a slice and left more: this one does none, so that a task which both have
    /// kept waiting meets one slice and not two.
    rests: bool,
    /// The waker that the table has.
    waker: Option<Waker>,
    /// Requests that may still be carried out in passing before the task has another turn.
    passing: u32,
}

impl<S: HostSource> Server<S> {
    pub(crate) fn new(set: MemorySet<S>, mailbox: Arc<Mailbox>) -> Self {
        Server {
            set,
            mailbox,
            sweeps: Default::default(),
            last_client: None,
            sweeping: 0,
            swept: 0,
            sweeps_next: false,
            rests: false,
            waker: None,
            passing: 0,
        }
    }

    /// Whether a request may be carried out at once: the task has slept since its last turn, so that
    /// nobody is in front and nothing is to be taken back first.
    #[inline(always)]
    fn is_at_rest(&mut self) -> bool {
        if self.passing == 0 || !self.mailbox.is_empty() || self.set.has_released() {
            return false;
        }
        self.passing -= 1;
        true
    }

    /// Caller: the usual allocation, in passing; slot and generation of the chunk.
    #[inline(always)]
    pub(crate) fn allocate_in_passing(
        &mut self,
        request: &AllocRequest,
    ) -> Option<(u32, NonZeroU32)> {
        if self.is_at_rest() { self.set.allocate_at(request) } else { None }
    }

    /// Caller: the usual end of a handle, in passing.
    #[inline(always)]
    pub(crate) fn free_in_passing(&mut self, request: FreeRequest) -> bool {
        self.is_at_rest() && self.set.free_hot(request.client, request.handle)
    }

    /// Serves what is there, at most [`TURN`] messages; ready once the service has shut down.
    #[inline(always)]
    pub(crate) fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.waker.as_ref().is_some_and(|there| there.will_wake(cx.waker())) {
            self.register(cx.waker());
        }
        let mut busy = false;
        if self.sweeping != 0 || self.set.has_released() {
            busy = self.tidy();
        }
        for _ in 0..TURN {
            let Some(number) = self.mailbox.receive() else {
                if busy {
                    cx.waker().wake_by_ref();
                }
                self.passing = if self.sweeping == 0 { IN_PASSING } else { 0 };
                return Poll::Pending;
            };
            match self.mailbox.open(number) {
                Opened::Alloc => {
                    let request = self.mailbox.alloc_request(number);
                    match self.set.allocate_hot(&request) {
                        Some(name) => self.mailbox.answer_chunk(number, name),
                        None => self.allocate(number, &request),
                    }
                }
                Opened::Free => {
                    let FreeRequest { client, handle } = self.mailbox.free_request(number);
                    match self.set.free_hot(client, handle) {
                        true => self.mailbox.answer_done(number),
                        false => self.free(number, client, handle),
                    }
                }
                Opened::Other => {
                    if self.serve(number) {
                        return Poll::Ready(());
                    }
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    #[cold]
    #[inline(never)]
    fn register(&mut self, waker: &Waker) {
        self.set.table().set_waker(waker);
        self.waker = Some(waker.clone());
    }

    /// Does a slice of what takes long, every other turn: taking back what was dropped, or a sweep.
    /// Answers whether more is to do.
    #[inline(never)]
    fn tidy(&mut self) -> bool {
        if core::mem::take(&mut self.rests) {
            return true;
        }
        if self.sweeping != 0 && (self.sweeps_next || !self.set.has_released()) {
            self.sweeps_next = false;
            self.sweep();
        } else {
            self.sweeps_next = true;
            self.set.collect_released();
        }
        self.rests = self.sweeping != 0 || self.set.has_released();
        self.rests
    }

    #[inline(never)]
    fn allocate(&mut self, number: u8, request: &AllocRequest) {
        self.mailbox.answer(number, Reply::Chunk(self.set.allocate_chunk(request)));
    }

    #[inline(never)]
    fn free(&mut self, number: u8, client: Option<ClientId>, handle: u64) {
        self.mailbox.answer(number, Reply::Done(self.set.free(client, handle)));
    }

    /// Serves a request other than an allocation; answers whether it was the last.
    #[inline(never)]
    fn serve(&mut self, number: u8) -> bool {
        let Some(request) = self.mailbox.open_other(number) else { return false };
        if matches!(request, Request::Shutdown) {
            let report = self.set.destroy();
            self.mailbox.answer(number, Reply::Report(Ok(report)));
            return true;
        }
        if let Some(reply) = self.carry_out(number, request) {
            self.mailbox.answer(number, reply);
        } else if let Some(waker) = &self.waker {
            // A sweep begins.
            waker.wake_by_ref();
        }
        false
    }

    /// Carries out one request; `None` where the reply comes later.
    fn carry_out(&mut self, number: u8, request: Request) -> Option<Reply> {
        Some(match request {
            Request::Nothing => return None,
            Request::AllocMany(batch) => Reply::Count(self.allocate_many(&batch)),
            Request::Free { client, handle } => Reply::Done(self.set.free(client, handle)),
            Request::FreeMany { client, batch } => Reply::Count(batch.lock(|items| {
                let mut items = items.borrow_mut();
                let handles = core::mem::take(&mut items.handles);
                let freed = handles.iter().try_for_each(|&handle| self.set.free(client, handle));
                let count = handles.len();
                items.handles = handles;
                items.handles.clear();
                freed.map(|()| count)
            })),
            Request::Retain(name) => Reply::Chunk(self.retain(name)),
            Request::RetainHandle { client, handle } => {
                Reply::Done(self.set.retain_handle(client, handle))
            }
            Request::PinnedBytes(slot) => Reply::Number(Ok(self.set.pinned_bytes(slot))),
            Request::Publish(name) => Reply::Number(self.set.publish(name).map(u64::from)),
            Request::SearchPa { pa, publish } => Reply::Info(self.set.search_pa(pa, publish)),
            Request::Within { pa, len } => Reply::Pin(self.set.within(pa, len).and_then(|name| {
                self.set.table().pin_name(name).ok_or(MemoryError::NoSuchAddress { pa })
            })),
            Request::MapWindow { client, cookie, size } => {
                Reply::Window(self.set.map_window(client, cookie, size))
            }
            Request::MapSpecial { client, block } => {
                Reply::Window(self.set.map_special(client, block))
            }
            Request::Placement { client, address } => {
                Reply::Shown(self.set.placement(client, address))
            }
            Request::Export { client, address, size } => {
                Reply::Export(self.set.export(client, address, size))
            }
            Request::Register { client, address, size, peer } => {
                Reply::Registration(self.set.register(client, address, size, peer))
            }
            Request::ValidateHost { client, ranges } => {
                Reply::Pins(self.set.validate_host(client, &ranges))
            }
            Request::BeginScrub { client, channel } => {
                Reply::Scrub(self.set.begin_scrub(client, channel))
            }
            Request::Attach { client, slot } => Reply::Done(self.set.attach(client, slot)),
            Request::Detach { client, slot } => match self.set.begin_detach(client, slot) {
                Ok(state) => {
                    if let Some(sweep) = self.sweeps.get_mut(slot.index()) {
                        *sweep = Some((state, number));
                        self.sweeping |= 1 << slot.number();
                    }
                    return None;
                }
                Err(error) => Reply::Done(Err(error)),
            },
            Request::LastClientGone => match self.last_client {
                Some(_) => Reply::Done(Err(MemoryError::Busy { what: "the last client's end" })),
                None => {
                    self.last_client = Some(number);
                    self.sweeping |= 1 << LAST_CLIENT;
                    return None;
                }
            },
            Request::Dump { channel, capacity } => Reply::Lines(self.set.dump(channel, capacity)),
            Request::DumpHost { capacity } => Reply::Lines(self.set.dump_host(capacity)),
            Request::Usage => Reply::Usage(Ok(self.set.usage())),
            Request::Faults(faults) => {
                self.set.arm(faults);
                Reply::Done(Ok(()))
            }
            Request::Shutdown => Reply::Gone,
        })
    }

    /// All of a batch or nothing.
    fn allocate_many(&mut self, batch: &BatchShared) -> Result<usize, MemoryError> {
        batch.lock(|items| {
            let mut items = items.borrow_mut();
            let items = &mut *items;
            let kept = items.chunks.len();
            for request in &items.requests {
                match self.set.allocate_chunk(request) {
                    Ok(chunk) => items.chunks.push(chunk),
                    Err(error) => {
                        items.chunks.truncate(kept);
                        return Err(error);
                    }
                }
            }
            let count = items.requests.len();
            items.requests.clear();
            Ok(count)
        })
    }

    fn retain(&mut self, name: ChunkName) -> Result<axon_ports::Chunk, MemoryError> {
        self.set.retain(name)?;
        Ok(self.set.table().reference(name))
    }

    /// One slice of the sweeps under way; whoever had the last one comes last.
    fn sweep(&mut self) {
        let others = self.sweeping & !self.swept;
        let candidates = if others != 0 { others } else { self.sweeping };
        let at = candidates.trailing_zeros();
        self.swept = if others != 0 { self.swept | 1 << at } else { 1 << at };
        let asker = if at == LAST_CLIENT {
            self.set.continue_last_client().then(|| self.last_client.take())
        } else if let Some(sweep) = self.sweeps.get_mut(at as usize)
            && let Some((state, number)) = *sweep
        {
            self.set.continue_detach(state).then(|| sweep.take().map(|_| number))
        } else {
            Some(None)
        };
        if let Some(asker) = asker {
            self.sweeping &= !(1 << at);
            if let Some(number) = asker {
                self.mailbox.answer(number, Reply::Done(Ok(())));
            }
        }
    }
}

impl<S: HostSource> Drop for Server<S> {
    fn drop(&mut self) {
        for (_, number) in self.sweeps.iter_mut().filter_map(Option::take) {
            self.mailbox.answer(number, Reply::Gone);
        }
        if let Some(number) = self.last_client.take() {
            self.mailbox.answer(number, Reply::Gone);
        }
        self.mailbox.close();
    }
}
