//! Requests under way, as futures. Nothing is done or sent before the first poll; dropping one gives
//! back whatever its reply carries.

use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};

use axon_ports::{AllocRequest, Chunk, ChunkName, ClientId, MemoryError};

use crate::client::MemoryClient;
use crate::mailbox::{FreeRequest, Mailbox, SLOTS};
use crate::messages::{FromReply, Reply, Request};

/// Not sent yet; smaller numbers are slots.
const NEW: u8 = SLOTS as u8;
/// Resolved.
const OVER: u8 = NEW + 1;

/// An allocation under way.
#[must_use = "nothing is sent before the first poll"]
pub(crate) struct AllocCall<'a> {
    client: &'a MemoryClient,
    request: AllocRequest,
    stage: u8,
}

impl<'a> AllocCall<'a> {
    #[inline(always)]
    pub(crate) fn new(client: &'a MemoryClient, request: AllocRequest) -> Self {
        AllocCall { client, request, stage: NEW }
    }
}

impl Future for AllocCall<'_> {
    type Output = Result<Chunk, MemoryError>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.stage == NEW {
            if let Some((slot, generation)) = this.client.passing.allocate(&this.request) {
                this.stage = OVER;
                let name = ChunkName { slot, generation: generation.get() };
                return Poll::Ready(Ok(this.client.table().device_reference(name)));
            }
            return match this.client.mailbox.send(cx.waker(), |slot| slot.put_alloc(&this.request))
            {
                Ok(Some(number)) => {
                    this.stage = number;
                    Poll::Pending
                }
                Ok(None) => Poll::Pending,
                Err(error) => {
                    this.stage = OVER;
                    Poll::Ready(Err(error))
                }
            };
        }
        if this.stage == OVER {
            return Poll::Ready(Err(MemoryError::Gone));
        }
        let number = this.stage;
        if let Some(chunk) = this.client.mailbox.take_chunk(number) {
            this.stage = OVER;
            this.client.mailbox.give(number);
            return Poll::Ready(Ok(chunk));
        }
        let reply = take(&this.client.mailbox, &mut this.stage, cx);
        reply.map(|reply| match reply {
            Reply::Chunk(result) => result,
            _ => Err(MemoryError::Gone),
        })
    }
}

impl Drop for AllocCall<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.stage < NEW {
            self.client.mailbox.abandon(self.stage);
        }
    }
}

/// The end of a handle under way.
#[must_use = "nothing is sent before the first poll"]
pub(crate) struct FreeCall<'a> {
    client: &'a MemoryClient,
    request: FreeRequest,
    stage: u8,
}

impl<'a> FreeCall<'a> {
    #[inline(always)]
    pub(crate) fn new(client: &'a MemoryClient, request: FreeRequest) -> Self {
        FreeCall { client, request, stage: NEW }
    }
}

impl Future for FreeCall<'_> {
    type Output = Result<(), MemoryError>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.stage == NEW {
            if this.client.passing.free(this.request) {
                this.stage = OVER;
                return Poll::Ready(Ok(()));
            }
            return match this.client.mailbox.send(cx.waker(), |slot| slot.put_free(this.request)) {
                Ok(Some(number)) => {
                    this.stage = number;
                    Poll::Pending
                }
                Ok(None) => Poll::Pending,
                Err(error) => {
                    this.stage = OVER;
                    Poll::Ready(Err(error))
                }
            };
        }
        if this.stage == OVER {
            return Poll::Ready(Err(MemoryError::Gone));
        }
        let number = this.stage;
        if this.client.mailbox.slot(number, |slot| slot.take_done()) {
            this.stage = OVER;
            this.client.mailbox.give(number);
            return Poll::Ready(Ok(()));
        }
        take(&this.client.mailbox, &mut this.stage, cx).map(<()>::from_reply)
    }
}

impl Drop for FreeCall<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.stage < NEW {
            self.client.mailbox.abandon(self.stage);
        }
    }
}

/// The end of a handle together with the reference that it gives back.
///
/// The reference is let go with the request and not before: who drops this while it has not been
/// sent drops the reference, as by dropping the chunk.
#[must_use = "nothing is sent before the first poll"]
pub(crate) struct CloseCall<'a> {
    free: FreeCall<'a>,
    chunk: Option<Chunk>,
}

impl<'a> CloseCall<'a> {
    pub(crate) fn new(client: &'a MemoryClient, owner: Option<ClientId>, chunk: Chunk) -> Self {
        let request = FreeRequest { client: owner, handle: chunk.handle() };
        CloseCall { free: FreeCall::new(client, request), chunk: Some(chunk) }
    }

    /// The service gives the reference back.
    fn let_go(&mut self) {
        self.chunk.take().map(Chunk::into_header);
    }
}

impl Future for CloseCall<'_> {
    type Output = Result<(), MemoryError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.free).poll(cx);
        match &polled {
            Poll::Ready(Ok(())) => self.let_go(),
            // Refused: the reference is given back all the same.
            Poll::Ready(Err(_)) => self.chunk = None,
            Poll::Pending => {}
        }
        polled
    }
}

impl Drop for CloseCall<'_> {
    fn drop(&mut self) {
        if self.free.stage < NEW {
            self.let_go();
        }
    }
}

/// Any other request under way.
#[must_use = "nothing is sent before the first poll"]
pub(crate) struct Call<'a, T> {
    mailbox: &'a Mailbox,
    request: Request,
    stage: u8,
    kind: PhantomData<fn() -> T>,
}

impl<'a, T> Call<'a, T> {
    #[inline]
    pub(crate) fn new(mailbox: &'a Mailbox, request: Request) -> Self {
        Call { mailbox, request, stage: NEW, kind: PhantomData }
    }

    fn start(&mut self, cx: &Context<'_>) -> Result<(), MemoryError> {
        let request = &mut self.request;
        let sent = self.mailbox.send(cx.waker(), |slot| {
            slot.put_request(core::mem::replace(request, Request::Nothing));
        });
        match sent {
            Ok(Some(number)) => self.stage = number,
            Ok(None) => {}
            Err(error) => {
                self.stage = OVER;
                return Err(error);
            }
        }
        Ok(())
    }
}

impl<T: FromReply> Future for Call<'_, T> {
    type Output = Result<T, MemoryError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match this.stage {
            NEW => match this.start(cx) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
            OVER => Poll::Ready(Err(MemoryError::Gone)),
            _ => take(this.mailbox, &mut this.stage, cx).map(T::from_reply),
        }
    }
}

impl<T> Drop for Call<'_, T> {
    fn drop(&mut self) {
        if self.stage < NEW {
            self.mailbox.abandon(self.stage);
        }
    }
}

#[inline(never)]
fn take(mailbox: &Mailbox, stage: &mut u8, cx: &Context<'_>) -> Poll<Reply> {
    let number = *stage;
    match mailbox.slot(number, |slot| slot.take_reply(cx.waker())) {
        Some(reply) => {
            *stage = OVER;
            mailbox.give(number);
            Poll::Ready(reply)
        }
        None => Poll::Pending,
    }
}
