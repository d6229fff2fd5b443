//! The bounded channel of the task, with its reply slots built in.
//!
//! A caller takes a slot, writes its request into it and sends the slot's number down a ring; the
//! reply comes back through the same slot. The ring has a place for every slot, so sending never
//! blocks: back-pressure is waiting for a slot. A caller that goes away leaves its slot to the task,
//! which then drops the reply: what the reply carries gives itself back.
//!
//! The task is woken through the waker of the chunk table, which a dropped chunk uses too.
//! Allocations and frees have fields of their own in a slot, so that nothing is moved twice on
//! their way.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::mem::forget;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use core::task::Waker;

use axon_ports::{AllocRequest, Chunk, ChunkName, ChunkTable, ClientId, MemoryError};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use crate::messages::{Reply, Request};

/// Requests that can be under way at once.
pub(crate) const SLOTS: usize = 64;

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// Free, or being served.
    Nothing,
    /// Being served, and its asker has gone.
    Unwanted,
    /// An allocation, in `alloc`.
    Alloc,
    /// The end of a handle, in `free`.
    Free,
    /// Another request, in `request`.
    Request,
    /// Another request, in `request`, whose asker has gone.
    UnwantedRequest,
    /// An allocated chunk, in `chunk`.
    Chunk,
    /// A handle has ended.
    Done,
    /// Another reply, in `reply`.
    Reply,
}

/// Ends a handle of `client` (`None`: of the driver).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FreeRequest {
    pub(crate) client: Option<ClientId>,
    pub(crate) handle: u64,
}

/// What the task finds in a slot.
pub(crate) enum Opened {
    Alloc,
    Free,
    Other,
}

/// One slot; as large as a power of two, so that a number is a place without a multiplication.
#[repr(align(256))]
pub(crate) struct Slot {
    content: Cell<Content>,
    alloc: Cell<AllocRequest>,
    free: Cell<FreeRequest>,
    /// Device memory with a counted reference that whoever takes it out has to wrap.
    chunk: Cell<ChunkName>,
    request: Cell<Request>,
    reply: Cell<Reply>,
    /// Kept from one use to the next, because mostly the same task comes again.
    waker: Cell<Option<Waker>>,
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            content: Cell::new(Content::Nothing),
            alloc: Cell::new(AllocRequest::driver_host(0)),
            free: Cell::new(FreeRequest { client: None, handle: 0 }),
            chunk: Cell::new(ChunkName { slot: 0, generation: 0 }),
            request: Cell::new(Request::Nothing),
            reply: Cell::new(Reply::Nothing),
            waker: Cell::new(None),
        }
    }

    /// Notes whom the reply wakes.
    #[inline(always)]
    fn set_waker(&self, waker: &Waker) {
        let there = match self.waker.take() {
            Some(there) if there.will_wake(waker) => there,
            _ => waker.clone(),
        };
        // Nothing is in the cell that would have to be dropped.
        forget(self.waker.replace(Some(there)));
    }

    #[inline(always)]
    fn wake(&self) {
        let waker = self.waker.take();
        if let Some(waker) = &waker {
            waker.wake_by_ref();
        }
        forget(self.waker.replace(waker));
    }

    /// Caller: the chunk of an answered allocation.
    #[inline(always)]
    fn take_chunk(&self) -> Option<ChunkName> {
        if self.content.get() != Content::Chunk {
            return None;
        }
        self.content.set(Content::Nothing);
        Some(self.chunk.get())
    }

    /// Caller: whether its handle has ended.
    #[inline(always)]
    pub(crate) fn take_done(&self) -> bool {
        let done = self.content.get() == Content::Done;
        if done {
            self.content.set(Content::Nothing);
        }
        done
    }

    /// Caller: a reply of another kind; `None` where there is none yet, and then `waker` is noted.
    #[inline]
    pub(crate) fn take_reply(&self, waker: &Waker) -> Option<Reply> {
        if self.content.get() != Content::Reply {
            self.set_waker(waker);
            return None;
        }
        self.content.set(Content::Nothing);
        Some(self.reply.replace(Reply::Nothing))
    }
}

type Locked<T> = Mutex<CriticalSectionRawMutex, T>;

/// Slots and channel of one memory task.
pub(crate) struct Mailbox {
    /// A set bit is a free slot.
    free: AtomicU64,
    gone: AtomicBool,
    /// Whether anybody waits for a slot.
    crowded: AtomicBool,
    /// Numbers of slots with a request, plus one, oldest first; 0 is an empty place.
    ring: [AtomicU8; SLOTS],
    /// Places filled and places emptied so far.
    filled: AtomicU32,
    emptied: AtomicU32,
    slots: [Locked<Slot>; SLOTS],
    waiting: Locked<RefCell<Vec<Waker>>>,
    table: Arc<ChunkTable>,
}

impl Mailbox {
    pub(crate) fn new(table: Arc<ChunkTable>) -> Self {
        Mailbox {
            free: AtomicU64::new(u64::MAX),
            gone: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
            ring: [const { AtomicU8::new(0) }; SLOTS],
            filled: AtomicU32::new(0),
            emptied: AtomicU32::new(0),
            slots: [const { Mutex::new(Slot::new()) }; SLOTS],
            waiting: Mutex::new(RefCell::new(Vec::new())),
            table,
        }
    }

    #[inline(always)]
    pub(crate) fn slot<R>(&self, number: u8, with: impl FnOnce(&Slot) -> R) -> R {
        self.slots[usize::from(number) % SLOTS].lock(with)
    }

    /// Caller: takes a free slot.
    #[inline(always)]
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

    /// Gives a slot back.
    #[inline(always)]
    pub(crate) fn give(&self, number: u8) {
        self.free.fetch_or(1 << number, Ordering::Release);
        if self.crowded.load(Ordering::Acquire) {
            self.call_waiting();
        }
    }

    #[cold]
    #[inline(never)]
    fn call_waiting(&self) {
        self.crowded.store(false, Ordering::Release);
        let waiting = self.waiting.lock(|list| core::mem::take(&mut *list.borrow_mut()));
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits for a slot, or takes one that has come free meanwhile.
    #[cold]
    #[inline(never)]
    fn wait_for_slot(&self, waker: &Waker) -> Result<Option<u8>, MemoryError> {
        self.waiting.lock(|list| {
            let mut list = list.borrow_mut();
            if !list.iter().any(|there| there.will_wake(waker)) {
                list.try_reserve(1).map_err(|_| MemoryError::NoRecords)?;
                list.push(waker.clone());
            }
            Ok(())
        })?;
        self.crowded.store(true, Ordering::Release);
        Ok(self.take())
    }

    /// Caller: takes a slot, lets `write` fill it and sends it. `None` where there is no slot; the
    /// caller is woken when there is.
    #[inline(always)]
    pub(crate) fn send(
        &self,
        waker: &Waker,
        write: impl FnOnce(&Slot),
    ) -> Result<Option<u8>, MemoryError> {
        let number = match self.take() {
            Some(number) => number,
            None if self.gone.load(Ordering::Acquire) => return Err(MemoryError::Gone),
            None => match self.wait_for_slot(waker)? {
                Some(number) => number,
                None => return Ok(None),
            },
        };
        self.slot(number, |slot| {
            write(slot);
            slot.set_waker(waker);
        });
        // There are as many places as slots, so this one is empty.
        let place = self.filled.fetch_add(1, Ordering::Relaxed) as usize % SLOTS;
        self.ring[place].store(number + 1, Ordering::Release);
        self.table.wake();
        // Looked at last: who sends behind the end of the task answers for it.
        if self.gone.load(Ordering::Acquire) {
            self.close();
        }
        Ok(Some(number))
    }

    /// Caller: the chunk of an answered allocation.
    #[inline(always)]
    pub(crate) fn take_chunk(&self, number: u8) -> Option<Chunk> {
        let name = self.slot(number, Slot::take_chunk)?;
        Some(self.table.device_reference(name))
    }

    /// Whether no request waits.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.filled.load(Ordering::Relaxed) == self.emptied.load(Ordering::Relaxed)
    }

    /// Whether the task has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Task: the next slot with a request.
    #[inline(always)]
    pub(crate) fn receive(&self) -> Option<u8> {
        let emptied = self.emptied.load(Ordering::Relaxed);
        let place = &self.ring[emptied as usize % SLOTS];
        let number = place.load(Ordering::Acquire).checked_sub(1)?;
        place.store(0, Ordering::Relaxed);
        self.emptied.store(emptied.wrapping_add(1), Ordering::Relaxed);
        Some(number)
    }

    /// Task: what a slot holds. An allocation or the end of a handle is taken out by this.
    #[inline(always)]
    pub(crate) fn open(&self, number: u8) -> Opened {
        self.slot(number, |slot| match slot.content.get() {
            Content::Alloc => {
                slot.content.set(Content::Nothing);
                Opened::Alloc
            }
            Content::Free => {
                slot.content.set(Content::Nothing);
                Opened::Free
            }
            _ => Opened::Other,
        })
    }

    /// Task: the allocation of a slot that [`Self::open`] has opened.
    #[inline(always)]
    pub(crate) fn alloc_request(&self, number: u8) -> AllocRequest {
        self.slot(number, |slot| slot.alloc.get())
    }

    /// Task: the handle of a slot that [`Self::open`] has opened.
    #[inline(always)]
    pub(crate) fn free_request(&self, number: u8) -> FreeRequest {
        self.slot(number, |slot| slot.free.get())
    }

    /// Task: another request; `None` where nobody wants it any more.
    pub(crate) fn open_other(&self, number: u8) -> Option<Request> {
        self.slot(number, |slot| {
            let request = slot.request.replace(Request::Nothing);
            match slot.content.get() {
                Content::Request => slot.content.set(Content::Nothing),
                Content::UnwantedRequest if !request.is_allocation() => {
                    slot.content.set(Content::Unwanted);
                }
                _ => {
                    self.reset(number, slot);
                    return None;
                }
            }
            Some(request)
        })
    }

    /// Task: answers an allocation. The chunk of an abandoned slot gives itself back.
    #[inline(always)]
    pub(crate) fn answer_chunk(&self, number: u8, chunk: ChunkName) {
        self.slot(number, |slot| {
            slot.chunk.set(chunk);
            if slot.content.replace(Content::Chunk) == Content::Unwanted {
                self.reset(number, slot);
            } else {
                slot.wake();
            }
        });
    }

    /// Task: a handle has ended.
    #[inline(always)]
    pub(crate) fn answer_done(&self, number: u8) {
        self.slot(number, |slot| {
            if slot.content.replace(Content::Done) == Content::Unwanted {
                self.reset(number, slot);
            } else {
                slot.wake();
            }
        });
    }

    /// Task: answers. The reply of an abandoned slot is dropped.
    #[inline(never)]
    pub(crate) fn answer(&self, number: u8, reply: Reply) {
        self.slot(number, |slot| {
            slot.reply.set(reply);
            if slot.content.replace(Content::Reply) == Content::Unwanted {
                self.reset(number, slot);
            } else {
                slot.wake();
            }
        });
    }

    /// Empties a slot and gives it back; what was in it gives itself back.
    #[cold]
    #[inline(never)]
    fn reset(&self, number: u8, slot: &Slot) {
        drop(slot.take_chunk().map(|name| self.table.device_reference(name)));
        slot.content.set(Content::Nothing);
        slot.waker.set(None);
        slot.request.set(Request::Nothing);
        slot.reply.set(Reply::Nothing);
        self.give(number);
    }

    /// Caller: goes away before it has seen the reply.
    #[cold]
    #[inline(never)]
    pub(crate) fn abandon(&self, number: u8) {
        self.slot(number, |slot| match slot.content.get() {
            Content::Chunk | Content::Done | Content::Reply => self.reset(number, slot),
            Content::Request => slot.content.set(Content::UnwantedRequest),
            // An allocation that was not opened yet becomes a request that is not there.
            Content::Alloc => slot.content.set(Content::UnwantedRequest),
            // A handle ends all the same.
            Content::Free => {
                let FreeRequest { client, handle } = slot.free.get();
                slot.request.set(Request::Free { client, handle });
                slot.content.set(Content::UnwantedRequest);
            }
            _ => slot.content.set(Content::Unwanted),
        });
    }

    /// Task: ends. Every request under way and to come answers "gone".
    pub(crate) fn close(&self) {
        self.gone.store(true, Ordering::Release);
        while let Some(number) = self.receive() {
            if !matches!(self.open(number), Opened::Other) || self.open_other(number).is_some() {
                self.answer(number, Reply::Gone);
            }
        }
        self.call_waiting();
    }
}

impl Slot {
    /// Caller: writes an allocation.
    #[inline(always)]
    pub(crate) fn put_alloc(&self, request: &AllocRequest) {
        self.alloc.set(*request);
        self.content.set(Content::Alloc);
    }

    /// Caller: writes the end of a handle.
    #[inline(always)]
    pub(crate) fn put_free(&self, request: FreeRequest) {
        self.free.set(request);
        self.content.set(Content::Free);
    }

    /// Caller: writes another request.
    pub(crate) fn put_request(&self, request: Request) {
        self.request.set(request);
        self.content.set(Content::Request);
    }
}
