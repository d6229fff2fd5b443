//! Pre-allocated reply slots in front of the task's channel.
//!
//! A caller takes a slot, writes its request into it and sends the slot's number through the
//! channel; the reply comes back through the same slot. There are as many slots as the channel has
//! places, so sending never blocks: back-pressure is waiting for a slot. A caller that goes away
//! leaves its slot to the task, which then drops the reply: what the reply carries gives itself
//! back.

use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::task::{Context, Poll, Waker};

use axon_ports::MemoryError;
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::channel::Channel;

use crate::messages::{FromReply, Reply, Request};

/// Requests that can be under way at once.
pub(crate) const SLOTS: usize = 64;

enum Content {
    Nothing,
    Request(Request),
    Reply(Reply),
}

struct Slot {
    content: Content,
    waker: Option<Waker>,
    abandoned: bool,
}

type Shared<T> = Mutex<CriticalSectionRawMutex, RefCell<T>>;

/// Slots and channel of one memory task.
pub(crate) struct Mailbox {
    /// A set bit is a free slot.
    free: AtomicU64,
    gone: AtomicBool,
    /// Whether anybody waits for a slot.
    crowded: AtomicBool,
    channel: Channel<CriticalSectionRawMutex, u8, SLOTS>,
    slots: [Shared<Slot>; SLOTS],
    waiting: Shared<Vec<Waker>>,
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        Mailbox {
            free: AtomicU64::new(u64::MAX),
            gone: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
            channel: Channel::new(),
            slots: [const {
                Mutex::new(RefCell::new(Slot {
                    content: Content::Nothing,
                    waker: None,
                    abandoned: false,
                }))
            }; SLOTS],
            waiting: Mutex::new(RefCell::new(Vec::new())),
        }
    }

    #[inline]
    fn slot<R>(&self, number: u8, with: impl FnOnce(&mut Slot) -> R) -> R {
        self.slots[usize::from(number) % SLOTS].lock(|slot| with(&mut slot.borrow_mut()))
    }

    /// Takes a free slot.
    #[inline]
    fn take(&self) -> Option<u8> {
        let mut free = self.free.load(Ordering::Relaxed);
        while free != 0 {
            let rest = free & (free - 1);
            match self.free.compare_exchange(free, rest, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(free.trailing_zeros() as u8),
                Err(seen) => free = seen,
            }
        }
        None
    }

    #[inline]
    fn give(&self, number: u8) {
        self.free.fetch_or(1 << number, Ordering::Release);
        if self.crowded.load(Ordering::Acquire) {
            self.call_waiting();
        }
    }

    #[cold]
    fn call_waiting(&self) {
        self.crowded.store(false, Ordering::Release);
        let waiting = self.waiting.lock(|list| core::mem::take(&mut *list.borrow_mut()));
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits for a slot; fails only where the list of waiters cannot grow.
    #[cold]
    fn wait_for_slot(&self, waker: &Waker) -> Result<(), MemoryError> {
        self.waiting.lock(|list| {
            let mut list = list.borrow_mut();
            if !list.iter().any(|there| there.will_wake(waker)) {
                list.try_reserve(1).map_err(|_| MemoryError::NoRecords)?;
                list.push(waker.clone());
            }
            Ok(())
        })?;
        self.crowded.store(true, Ordering::Release);
        Ok(())
    }

    /// Task: the next slot with a request.
    #[inline]
    pub(crate) fn receive(&self, cx: &mut Context<'_>) -> Poll<u8> {
        self.channel.poll_receive(cx)
    }

    /// Task: the request in a slot; `None` where nobody wants it any more.
    #[inline]
    pub(crate) fn open(&self, number: u8) -> Option<Request> {
        let (request, wanted) = self.slot(number, |slot| {
            let request = match core::mem::replace(&mut slot.content, Content::Nothing) {
                Content::Request(request) => Some(request),
                _ => None,
            };
            (request, !slot.abandoned)
        });
        match request {
            Some(request) if wanted || !request.is_allocation() => Some(request),
            _ => {
                self.clear(number);
                None
            }
        }
    }

    /// Task: answers. The reply of an abandoned slot is dropped.
    #[inline]
    pub(crate) fn answer(&self, number: u8, reply: Reply) {
        let unwanted = self.slot(number, |slot| {
            if slot.abandoned {
                return Some(reply);
            }
            slot.content = Content::Reply(reply);
            if let Some(waker) = &slot.waker {
                waker.wake_by_ref();
            }
            None
        });
        if let Some(reply) = unwanted {
            drop(reply);
            self.clear(number);
        }
    }

    fn clear(&self, number: u8) {
        let content = self.slot(number, |slot| {
            slot.waker = None;
            slot.abandoned = false;
            core::mem::replace(&mut slot.content, Content::Nothing)
        });
        drop(content);
        self.give(number);
    }

    /// Whether the task has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Task: ends. Every request under way and to come answers "gone".
    pub(crate) fn close(&self) {
        self.gone.store(true, Ordering::Release);
        while let Ok(number) = self.channel.try_receive() {
            if self.open(number).is_some() {
                self.answer(number, Reply::Gone);
            }
        }
        self.call_waiting();
    }
}

enum Stage {
    /// Not yet sent.
    New(Option<Request>),
    /// In this slot.
    Sent(u8),
    Over,
}

/// A request under way. Dropping it gives back whatever its reply carries.
#[must_use = "nothing is sent before the first poll"]
pub struct Call<'a, T> {
    mailbox: &'a Mailbox,
    stage: Stage,
    kind: PhantomData<fn() -> T>,
}

impl<'a, T> Call<'a, T> {
    #[inline]
    pub(crate) fn new(mailbox: &'a Mailbox, request: Request) -> Self {
        Call { mailbox, stage: Stage::New(Some(request)), kind: PhantomData }
    }

    #[inline]
    fn post(&self, number: u8, request: Request, waker: Option<Waker>) {
        self.mailbox.slot(number, |slot| {
            slot.content = Content::Request(request);
            slot.waker = waker;
        });
        // There are as many places as slots.
        let sent = self.mailbox.channel.try_send(number);
        debug_assert!(sent.is_ok(), "the channel has a place for every slot");
    }

    fn start(&mut self, cx: &Context<'_>) -> Poll<MemoryError> {
        let Stage::New(request) = &mut self.stage else { return Poll::Pending };
        if self.mailbox.is_gone() {
            return Poll::Ready(MemoryError::Gone);
        }
        let Some(number) = self.mailbox.take().or_else(|| {
            // Once more behind the registration: a slot may have come free in between.
            self.mailbox.wait_for_slot(cx.waker()).ok();
            self.mailbox.take()
        }) else {
            return Poll::Pending;
        };
        let Some(request) = request.take() else { return Poll::Ready(MemoryError::Gone) };
        self.stage = Stage::Sent(number);
        self.post(number, request, Some(cx.waker().clone()));
        if self.mailbox.is_gone() {
            self.mailbox.close();
        }
        Poll::Pending
    }
}

impl<T: FromReply> Future for Call<'_, T> {
    type Output = Result<T, MemoryError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let number = match self.stage {
            Stage::Sent(number) => number,
            Stage::New(_) => {
                if let Poll::Ready(error) = self.start(cx) {
                    self.stage = Stage::Over;
                    return Poll::Ready(Err(error));
                }
                return Poll::Pending;
            }
            Stage::Over => return Poll::Ready(Err(MemoryError::Gone)),
        };
        let reply = self.mailbox.slot(number, |slot| {
            match core::mem::replace(&mut slot.content, Content::Nothing) {
                Content::Reply(reply) => Some(reply),
                other => {
                    slot.content = other;
                    if !slot.waker.as_ref().is_some_and(|there| there.will_wake(cx.waker())) {
                        slot.waker = Some(cx.waker().clone());
                    }
                    None
                }
            }
        });
        let Some(reply) = reply else { return Poll::Pending };
        self.stage = Stage::Over;
        self.mailbox.give(number);
        Poll::Ready(T::from_reply(reply))
    }
}

impl<T> Drop for Call<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Stage::Sent(number) = self.stage {
            let answered = self.mailbox.slot(number, |slot| {
                slot.abandoned = !matches!(slot.content, Content::Reply(_));
                !slot.abandoned
            });
            if answered {
                self.mailbox.clear(number);
            }
        }
    }
}
