//! The task that owns a [`MemorySet`]: messages one by one, releases in between, long sweeps in
//! slices.

use alloc::sync::Arc;
use core::future::poll_fn;
use core::task::{Context, Poll};

use axon_ports::{AllocRequest, ChunkName, ClientSlot, MemoryError};

use crate::batch::BatchShared;
use crate::client::MemoryClient;
use crate::host::HostSource;
use crate::mailbox::Mailbox;
use crate::messages::{Reply, Request};
use crate::set::{MemorySet, SweepState};

/// Messages served before other tasks get their turn.
const TURN: u32 = 64;

/// The memory task of one device, before it is started.
pub struct MemoryService<S: HostSource> {
    set: MemorySet<S>,
    mailbox: Arc<Mailbox>,
    /// Clients being dropped, by attach slot, and who waits for it.
    sweeps: [Option<(SweepState, u8)>; ClientSlot::COUNT],
    /// Who waits for the end of what lives with all clients.
    last_client: Option<u8>,
}

impl<S: HostSource> MemoryService<S> {
    /// Hands the set over to a task. Run [`Self::run`] to serve the client.
    pub fn new(set: MemorySet<S>) -> (MemoryClient, Self) {
        let mailbox = Arc::new(Mailbox::new());
        let client = MemoryClient::new(&set, mailbox.clone());
        (client, MemoryService { set, mailbox, sweeps: Default::default(), last_client: None })
    }

    /// Serves until [`MemoryClient::shutdown`].
    pub async fn run(mut self) {
        poll_fn(|cx| self.turn(cx)).await;
    }

    /// Serves what is there, at most [`TURN`] messages; ready once the service has shut down.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.set.table().set_waker(cx.waker());
        let mut busy = self.set.collect_released() | self.sweep();
        for _ in 0..TURN {
            let Poll::Ready(number) = self.mailbox.receive(cx) else {
                if busy {
                    cx.waker().wake_by_ref();
                }
                return Poll::Pending;
            };
            let Some(request) = self.mailbox.open(number) else { continue };
            match request {
                Request::Shutdown => {
                    let report = self.set.destroy();
                    self.mailbox.answer(number, Reply::Report(report));
                    return Poll::Ready(());
                }
                request => {
                    if let Some(reply) = self.serve(number, request) {
                        self.mailbox.answer(number, reply);
                    }
                }
            }
            busy |= self.set.collect_released() | self.is_sweeping();
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Carries out one request; `None` where the reply comes later.
    #[inline]
    fn serve(&mut self, number: u8, request: Request) -> Option<Reply> {
        Some(match request {
            Request::Alloc(request) => Reply::Chunk(self.allocate(&request)),
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
            Request::Publish(name) => Reply::Number(
                self.set.live(name).map(drop).and_then(|()| self.set.publish(name)).map(u64::from),
            ),
            Request::SearchPa { pa, publish } => Reply::Info(self.set.search_pa(pa, publish)),
            Request::Within { pa, len } => Reply::Pin(self.set.within(pa, len).and_then(|name| {
                self.set.table().pin_name(name).ok_or(MemoryError::NoSuchAddress { pa })
            })),
            Request::Attach { client, slot } => Reply::Done(self.set.attach(client, slot)),
            Request::Detach { client, slot } => match self.set.begin_detach(client, slot) {
                Ok(state) => {
                    if let Some(sweep) = self.sweeps.get_mut(slot.index()) {
                        *sweep = Some((state, number));
                    }
                    return None;
                }
                Err(error) => Reply::Done(Err(error)),
            },
            Request::LastClientGone => match self.last_client {
                Some(_) => Reply::Done(Err(MemoryError::Busy { what: "the last client's end" })),
                None => {
                    self.last_client = Some(number);
                    return None;
                }
            },
            Request::Dump { channel, capacity } => Reply::Lines(self.set.dump(channel, capacity)),
            Request::DumpHost { capacity } => Reply::Lines(self.set.dump_host(capacity)),
            Request::Usage => Reply::Usage(self.set.usage()),
            Request::Faults(faults) => {
                *self.set.faults_mut() = faults;
                Reply::Done(Ok(()))
            }
            Request::Shutdown => Reply::Gone,
        })
    }

    #[inline]
    fn allocate(&mut self, request: &AllocRequest) -> Result<axon_ports::Chunk, MemoryError> {
        let name = self.set.allocate_or_collect(request)?;
        Ok(self.set.table().reference(name))
    }

    /// All of a batch or nothing.
    fn allocate_many(&mut self, batch: &BatchShared) -> Result<usize, MemoryError> {
        batch.lock(|items| {
            let mut items = items.borrow_mut();
            let items = &mut *items;
            let kept = items.chunks.len();
            for request in &items.requests {
                match self.allocate(request) {
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

    fn is_sweeping(&self) -> bool {
        self.last_client.is_some() || self.sweeps.iter().any(Option::is_some)
    }

    /// One slice of every sweep under way; answers whether any goes on.
    fn sweep(&mut self) -> bool {
        if !self.is_sweeping() {
            return false;
        }
        for sweep in &mut self.sweeps {
            if let Some((state, number)) = *sweep
                && self.set.continue_detach(state)
            {
                *sweep = None;
                self.mailbox.answer(number, Reply::Done(Ok(())));
            }
        }
        if let Some(number) = self.last_client
            && self.set.continue_last_client()
        {
            self.last_client = None;
            self.mailbox.answer(number, Reply::Done(Ok(())));
        }
        self.is_sweeping()
    }
}

impl<S: HostSource> Drop for MemoryService<S> {
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
