//! The owner's handle of a notification queue: a stream of records, a look at them in place, an end
//! (specification 06 §17.5, 08 §8.11).

use alloc::sync::Arc;
use core::future::{Future, poll_fn};
use core::pin::Pin as FuturePin;
use core::task::{Context, Poll};

use axon_platform::{DmaBuf, Platform, WordRing};
use axon_ports::CoreId;

use super::cursor::Cursor;
use super::entry::{Entry, Ring, Status};
use super::fetch::Staging;
use super::record::{Notification, Reader};
use super::registry::{QueueName, Registry, Take};
use super::{QueueInfo, teardown};
use crate::dma::Dma;
use crate::shared::Shared;
use crate::{CancelCause, Error};

/// Records that one look shows at most.
const PEEKED: u32 = 64;

/// What a stream has said about its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Nothing,
    /// That the wait has ended.
    Cancelled,
    /// Why there will never be anything again.
    Over,
}

/// One notification queue. The last handle to be dropped switches it off; its memory goes back when
/// it has drained.
pub struct NotificationQueue<P: Platform> {
    shared: Arc<Shared<P>>,
    name: QueueName,
    core: CoreId,
    /// Epoch of the core when the handle was made.
    epoch: u32,
    told: Told,
    /// Of a ring in device memory.
    staging: Option<Staging<P>>,
}

impl<P: Platform> NotificationQueue<P> {
    /// A handle that was counted already.
    pub(super) fn new(shared: Arc<Shared<P>>, name: QueueName, core: CoreId, epoch: u32) -> Self {
        NotificationQueue { shared, name, core, epoch, told: Told::Nothing, staging: None }
    }

    pub(super) fn with_staging(mut self, staging: Option<Staging<P>>) -> Self {
        self.staging = staging;
        self
    }

    /// The next notification: a stream that goes on after [`Error::NotificationsLost`] and is over,
    /// `None`, once it has said why it has ended.
    ///
    /// Dropping the future loses nothing.
    #[allow(clippy::should_implement_trait)] // its asynchronous sister
    pub fn next(&mut self) -> Next<'_, P> {
        Next { queue: self, round: None }
    }

    /// The next notification, if it is there. Of a ring in device memory this is what an earlier
    /// call has fetched.
    ///
    /// # Errors
    /// [`Error::NotificationsLost`], once for each loss; [`Error::Stale`] behind a reset of the
    /// core; [`Error::Cancelled`] where the queue was closed; [`Error::DeviceGone`],
    /// [`Error::Removed`].
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<Notification>, Error> {
        match self.take_at_once() {
            Some(notification) => Ok(Some(notification)),
            None => self.try_otherwise(),
        }
    }

    /// The next notification, where nothing else has to be said first.
    #[inline(always)]
    fn take_at_once(&mut self) -> Option<Notification> {
        if self.staging.is_some() {
            return self.next_fetched();
        }
        let shared = &self.shared;
        let record =
            |registry: &mut Registry| registry.take_record(&shared.registers, self.name, None);
        shared.notifications.with(record)
    }

    /// No record is there to be taken at once.
    fn try_otherwise(&mut self) -> Result<Option<Notification>, Error> {
        if self.staging.is_some() {
            return Ok(None);
        }
        let shared = &self.shared;
        let take =
            |registry: &mut Registry| registry.take(&shared.registers, self.name, None, None);
        let (take, call) = shared.notifications.with(take);
        if call {
            shared.notifications.call();
        }
        match take {
            Take::Record(notification) => Ok(Some(notification)),
            Take::Nothing => shared.check_alive().map(|()| None),
            Take::Lost(error) => Err(error),
            Take::Ended | Take::Changed { .. } => Err(self.over()),
        }
    }

    /// Fills `into` with notifications that are there, in order; answers how many.
    ///
    /// # Errors
    /// As [`NotificationQueue::try_next`], where that is met first.
    pub fn read(&mut self, into: &mut [Option<Notification>]) -> Result<usize, Error> {
        let mut count = 0;
        for place in into {
            // What else is to be said, a loss for example, is left to the next call.
            let taken = if count == 0 { self.try_next()? } else { self.take_at_once() };
            if taken.is_none() {
                break;
            }
            *place = taken;
            count += 1;
        }
        Ok(count)
    }

    /// Shows the notifications that are there where they lie, without taking them: at most 64, as
    /// far as they follow each other in memory. Fetches some of a ring in device memory where none
    /// are.
    ///
    /// # Errors
    /// As [`NotificationQueue::try_next`]; [`Error::DmaTimeout`] and its like of a ring in device
    /// memory.
    pub async fn peek(&mut self) -> Result<Peek<'_, P>, Error> {
        if self.staging.as_ref().is_some_and(|staging| staging.left() == 0) {
            self.fetch_now().await?;
        }
        let shared = self.shared.clone();
        let seen = shared.notifications.with(|registry| {
            let entry = registry.entry(self.name).filter(|entry| entry.is_live())?;
            let words = entry.ring.as_ref().and_then(Ring::words).cloned();
            Some((entry.cursor, entry.reader, words))
        });
        let Some((cursor, reader, words)) = seen else { return Err(self.over()) };
        let count = match (&words, &self.staging) {
            (Some(words), _) => count_new(&cursor, words),
            (None, Some(staging)) => staging.left().min(PEEKED),
            (None, None) => 0,
        };
        Ok(Peek { queue: self, words, start: cursor.next(), count, reader })
    }

    /// Head, tail, phase, counters (NQ-D17); one register is read.
    ///
    /// # Errors
    /// As [`NotificationQueue::try_next`].
    pub fn info(&self) -> Result<QueueInfo, Error> {
        self.shared.check_alive()?;
        let shared = &self.shared;
        let info =
            shared.notifications.with(|registry| registry.info(&shared.registers, self.name));
        info.ok_or_else(|| self.over())
    }

    /// The ring as it lies in host memory; `None` for one in device memory, and behind the end.
    pub fn memory(&self) -> Option<DmaBuf> {
        self.shared.notifications.with(|registry| {
            let entry = registry.entry(self.name).filter(|entry| entry.is_live())?;
            entry.ring.as_ref()?.pin().host().cloned()
        })
    }

    /// Core whose reset ends the queue.
    pub fn core(&self) -> CoreId {
        self.core
    }

    /// Gives the handle up; where it is the last one, resolves when the queue is off and has
    /// drained. Dropping the future does not stop that.
    pub async fn close(self) {
        let (shared, name) = (self.shared.clone(), self.name);
        let last = shared.notifications.with(|registry| {
            registry.entry(name).is_some_and(|entry| entry.handles == 1 && entry.is_live())
        });
        drop(self);
        if last {
            teardown::end_queue(&shared, name).await;
        }
    }

    /// Why the queue is no more, for somebody who was not waiting.
    fn over(&self) -> Error {
        if let Err(error) = self.shared.check_alive() {
            return error;
        }
        match self.shared.states.epoch(self.core) == self.epoch {
            true => Error::Cancelled { why: CancelCause::Closed },
            false => Error::Stale { core: self.core },
        }
    }

    /// The same for somebody who was.
    fn interrupted(&self) -> Error {
        match self.over() {
            Error::Stale { .. } => Error::Cancelled { why: CancelCause::Reset },
            other => other,
        }
    }

    fn next_fetched(&mut self) -> Option<Notification> {
        let staging = self.staging.as_mut()?;
        while let Some(words) = staging.words_of(0) {
            staging.advance(1);
            let read = |registry: &mut Registry| registry.read_fetched(self.name, words);
            if let Some(notification) = self.shared.notifications.with(read) {
                return Some(notification);
            }
        }
        None
    }

    /// Fetches what is there now, without waiting for more.
    async fn fetch_now(&mut self) -> Result<(), Error> {
        let shared = self.shared.clone();
        let ahead = shared.notifications.with(|registry| {
            let entry = registry.entry(self.name)?;
            let tail =
                axon_platform::MmioWindow::read32(&shared.registers, entry.registers().tail());
            let unready = entry.status != Status::Armed;
            Some(!unready && entry.cursor.behind(tail).is_some_and(|records| records != 0))
        });
        match ahead {
            None => Err(self.over()),
            Some(false) => Ok(()),
            Some(true) => poll_fn(|cx| self.poll_fetch(cx)).await,
        }
    }

    fn poll_fetch(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let dma = Dma(self.shared.clone());
        match &mut self.staging {
            Some(staging) => staging.poll_fetch(&dma, self.name, cx),
            None => Poll::Ready(Ok(())),
        }
    }

    /// One step of the stream; `round` is the queue's when the caller was parked.
    #[inline(always)]
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        round: Option<u32>,
    ) -> Poll<Option<Result<Notification, Error>>> {
        if self.staging.is_some() {
            return self.poll_next_fetched(cx, round);
        }
        let shared = &self.shared;
        let record =
            |registry: &mut Registry| registry.take_record(&shared.registers, self.name, round);
        match shared.notifications.with(record) {
            Some(notification) => Poll::Ready(Some(Ok(notification))),
            None => self.poll_otherwise(cx, round),
        }
    }

    /// No record is there to be taken at once.
    fn poll_otherwise(
        &mut self,
        cx: &mut Context<'_>,
        round: Option<u32>,
    ) -> Poll<Option<Result<Notification, Error>>> {
        let waited = round.is_some();
        let shared = &self.shared;
        let (take, call) = shared
            .notifications
            .with(|registry| registry.take(&shared.registers, self.name, round, Some(cx.waker())));
        match take {
            Take::Record(notification) => Poll::Ready(Some(Ok(notification))),
            Take::Nothing => {
                if call {
                    shared.notifications.call();
                }
                match shared.check_alive() {
                    Ok(()) => Poll::Pending,
                    Err(error) => Poll::Ready(self.end(error)),
                }
            }
            Take::Lost(error) => {
                shared.notifications.call();
                Poll::Ready(Some(Err(error)))
            }
            Take::Changed { goes_on } => Poll::Ready(self.tell_change(goes_on)),
            Take::Ended => Poll::Ready(self.tell_end(waited)),
        }
    }

    /// The same for a ring in device memory.
    fn poll_next_fetched(
        &mut self,
        cx: &mut Context<'_>,
        round: Option<u32>,
    ) -> Poll<Option<Result<Notification, Error>>> {
        let waited = round.is_some();
        if let Some(before) = round
            && let Some((now, goes_on)) = self.round()
            && now != before
        {
            return Poll::Ready(self.tell_change(goes_on));
        }
        loop {
            if let Some(notification) = self.next_fetched() {
                return Poll::Ready(Some(Ok(notification)));
            }
            match core::task::ready!(self.poll_fetch(cx)) {
                Ok(()) if self.staging.as_ref().is_some_and(|staging| staging.left() != 0) => {}
                Ok(()) => return Poll::Ready(self.tell_end(waited)),
                Err(Error::Cancelled { why: CancelCause::Reset }) => {
                    return Poll::Ready(self.tell_end(true));
                }
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    /// Round of the queue, and whether it goes on; `None` where it is no more.
    fn round(&self) -> Option<(u32, bool)> {
        let round = |entry: &mut Entry| (entry.round, entry.is_kept());
        self.shared.notifications.with(|registry| registry.entry(self.name).map(round))
    }

    /// Another ring takes the place of the one that was waited for, or the queue ends.
    #[cold]
    fn tell_change(&mut self, goes_on: bool) -> Option<Result<Notification, Error>> {
        match goes_on {
            true => Some(Err(self.interrupted())),
            false => self.tell_end(true),
        }
    }

    #[cold]
    fn tell_end(&mut self, waited: bool) -> Option<Result<Notification, Error>> {
        let error = match waited && self.told == Told::Nothing {
            true => self.interrupted(),
            false => self.over(),
        };
        self.end(error)
    }

    fn end(&mut self, error: Error) -> Option<Result<Notification, Error>> {
        if self.told == Told::Over {
            return None;
        }
        // Behind the word that the wait was cancelled comes what the queue is from now on.
        self.told = match error {
            Error::Cancelled { why: CancelCause::Reset } => Told::Cancelled,
            _ => Told::Over,
        };
        Some(Err(error))
    }
}

impl<P: Platform> Drop for NotificationQueue<P> {
    fn drop(&mut self) {
        let notifications = &self.shared.notifications;
        if notifications.with(|registry| registry.release_handle(self.name)) {
            notifications.call();
        }
    }
}

/// Records that are new and follow each other in memory.
fn count_new(cursor: &Cursor, words: &WordRing) -> u32 {
    let limit = PEEKED.min(cursor.capacity() - cursor.next());
    let new = |ahead: &u32| cursor.is_new(words.load((cursor.next() + ahead) * 4));
    (0..limit).take_while(new).count() as u32
}

/// The next notification of a queue; see [`NotificationQueue::next`].
#[must_use = "futures do nothing unless they are polled"]
pub struct Next<'a, P: Platform> {
    queue: &'a mut NotificationQueue<P>,
    /// Round of the queue when it was parked.
    round: Option<u32>,
}

impl<P: Platform> Future for Next<'_, P> {
    type Output = Option<Result<Notification, Error>>;

    #[inline(always)]
    fn poll(mut self: FuturePin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let round = self.round;
        let polled = self.queue.poll_next(cx, round);
        if polled.is_ready() {
            self.round = None;
        } else if round.is_none() {
            self.round = self.queue.round().map(|(round, _)| round);
        }
        polled
    }
}

impl<P: Platform> Drop for Next<'_, P> {
    fn drop(&mut self) {
        if self.round.is_none() {
            return;
        }
        // Nobody polls for somebody who has left; others who wait for the queue come again.
        let name = self.queue.name;
        self.queue.shared.notifications.with(|registry| {
            registry.set_waiting(usize::from(name.slot), false);
            if let Some(entry) = registry.entry(name) {
                entry.wake();
            }
        });
    }
}

/// Notifications where they lie. The device goes on writing: what it changes is seen.
pub struct Peek<'a, P: Platform> {
    queue: &'a mut NotificationQueue<P>,
    words: Option<WordRing>,
    start: u32,
    count: u32,
    reader: Reader,
}

impl<P: Platform> Peek<'_, P> {
    /// Records that are there.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The record `index`; `None` behind the last one, and for one that is no notification.
    pub fn get(&self, index: usize) -> Option<Notification> {
        let index = u32::try_from(index).ok().filter(|index| *index < self.count)?;
        let words = match (&self.words, &self.queue.staging) {
            (Some(words), _) => {
                let place = (self.start + index) * 4;
                [0, 1, 2, 3].map(|word| words.load(place + word))
            }
            (None, staging) => staging.as_ref()?.words_of(index)?,
        };
        self.reader.read(words)
    }

    /// Takes the first `count` records; answers how many of them were notifications.
    pub fn consume(self, count: usize) -> usize {
        let mut taken = 0;
        for _ in 0..count.min(self.len()) {
            match self.queue.try_next() {
                Ok(Some(_)) => taken += 1,
                _ => break,
            }
        }
        taken
    }
}
