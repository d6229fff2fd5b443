//! The memory task, and what its callers do in passing.
//!
//! Whatever changes the set is done by one [`Server`], which lies in its rest between two turns of
//! the task. The task takes it out, serves its channel and puts it back. A caller may take it out
//! too: where the task sleeps, nobody waits in front, nothing is to be taken back and the request is
//! the usual one, it is carried out in the caller's own poll, in the same order and by the same code
//! as if it had been sent. Everything else goes through the channel. After some requests in passing
//! one goes through the channel too, so that others have their turn.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::Cell;
use core::future::Future;
use core::mem::forget;
use core::num::NonZeroU32;
use core::pin::Pin;
use core::task::{Context, Poll};

use axon_ports::AllocRequest;
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use crate::client::MemoryClient;
use crate::host::HostSource;
use crate::mailbox::{FreeRequest, Mailbox};
use crate::service::Server;
use crate::set::MemorySet;

/// What a caller may have done at once. Whatever is refused has to be sent.
pub(crate) trait Passing: Send + Sync {
    /// Slot and generation of a new chunk whose first reference the caller has to wrap.
    fn allocate(&self, request: &AllocRequest) -> Option<(u32, NonZeroU32)>;

    /// Whether the handle has ended.
    fn free(&self, request: FreeRequest) -> bool;
}

/// Sends everything.
pub(crate) struct NeverPassing;

impl Passing for NeverPassing {
    fn allocate(&self, _: &AllocRequest) -> Option<(u32, NonZeroU32)> {
        None
    }

    fn free(&self, _: FreeRequest) -> bool {
        false
    }
}

/// Where the server lies while nobody runs it; empty once the task has ended.
struct Rest<S: HostSource>(Mutex<CriticalSectionRawMutex, Cell<Option<Box<Server<S>>>>>);

impl<S: HostSource> Rest<S> {
    #[inline(always)]
    fn take(&self) -> Option<Box<Server<S>>> {
        self.0.lock(Cell::take)
    }

    #[inline(always)]
    fn put(&self, server: Box<Server<S>>) {
        // There is one server, so nothing is in the cell that would have to be dropped.
        forget(self.0.lock(|cell| cell.replace(Some(server))));
    }
}

impl<S: HostSource> Passing for Rest<S> {
    fn allocate(&self, request: &AllocRequest) -> Option<(u32, NonZeroU32)> {
        let mut server = self.take()?;
        let made = server.allocate_in_passing(request);
        self.put(server);
        made
    }

    fn free(&self, request: FreeRequest) -> bool {
        let Some(mut server) = self.take() else { return false };
        let ended = server.free_in_passing(request);
        self.put(server);
        ended
    }
}

/// The memory task of one device, before it is started.
pub struct MemoryService<S: HostSource> {
    server: Box<Server<S>>,
    rest: Arc<Rest<S>>,
    mailbox: Arc<Mailbox>,
}

impl<S: HostSource> MemoryService<S> {
    /// Hands the set over to a task. Run [`Self::run`] to serve the client.
    pub fn new(set: MemorySet<S>) -> (MemoryClient, Self) {
        let mailbox = Arc::new(Mailbox::new(set.table().clone()));
        let rest = Arc::new(Rest(Mutex::new(Cell::new(None))));
        let client = MemoryClient::new(&set, mailbox.clone(), rest.clone());
        let server = Box::new(Server::new(set, mailbox.clone()));
        (client, MemoryService { server, rest, mailbox })
    }

    /// Serves until [`MemoryClient::shutdown`].
    pub fn run(self) -> impl Future<Output = ()> + Send {
        let MemoryService { server, rest, mailbox } = self;
        rest.put(server);
        Running { rest, mailbox }
    }
}

/// The task as a future.
struct Running<S: HostSource> {
    rest: Arc<Rest<S>>,
    mailbox: Arc<Mailbox>,
}

impl<S: HostSource> Future for Running<S> {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(mut server) = self.rest.take() else { return self.nobody(cx) };
        let polled = server.turn(cx);
        if polled.is_pending() {
            self.rest.put(server);
        }
        polled
    }
}

impl<S: HostSource> Running<S> {
    /// The server is in a caller's hands just now, or has gone.
    #[cold]
    fn nobody(&self, cx: &Context<'_>) -> Poll<()> {
        if self.mailbox.is_gone() {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: HostSource> Drop for Running<S> {
    fn drop(&mut self) {
        drop(self.rest.take());
    }
}
