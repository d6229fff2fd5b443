//! Notification queues of a client (specification 06 §17).
//!
//! ```no_run
//! # async fn watch<P: axon_platform::Platform>(client: axon::Client<P>) -> Result<(), axon::Error> {
//! let mut queue = client.notifications(axon::QueueSpec::new(0, 4, 16 << 10)).await?;
//! while let Some(notification) = queue.next().await {
//!     log::info!("{:?}", notification?);
//! }
//! # Ok(())
//! # }
//! ```

use alloc::sync::Arc;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use axon_neuron::notify::{self, Notification, Peek, QueueInfo, QueueSpec};
use axon_platform::{DmaBuf, Platform};
use axon_ports::telemetry::EventKind;

use crate::calls::Call;
use crate::client::Shared;
use crate::{Client, Device, Error};

/// One notification queue. Dropping it switches it off; its memory goes back when it has drained.
pub struct NotificationQueue<P: Platform> {
    queue: notify::NotificationQueue<P>,
    client: Arc<Shared<P>>,
    /// The stream has said that the client is closed.
    over: bool,
}

/// The next notification of a queue; see [`NotificationQueue::next`].
#[must_use = "futures do nothing unless they are polled"]
pub struct NextNotification<'a, P: Platform> {
    next: notify::Next<'a, P>,
    client: &'a Shared<P>,
    over: &'a mut bool,
    /// The gate was passed.
    begun: bool,
}

impl<P: Platform> Future for NextNotification<'_, P> {
    type Output = Option<Result<Notification, Error>>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.begun {
            self.begun = true;
            if let Err(closed) = Call::ReadNotifications.admit(&self.client.access) {
                let first = !core::mem::replace(self.over, true);
                return Poll::Ready(first.then_some(Err(closed)));
            }
        }
        let told = ready!(Pin::new(&mut self.next).poll(cx));
        Poll::Ready(told.map(|result| result.map_err(Error::from)))
    }
}

impl<P: Platform> Client<P> {
    /// Makes a notification queue; where this client has it with the same size and placement
    /// already, another handle of it. Waits while the core is in reset.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a producer, index or size that cannot be; [`Error::Busy`]
    /// where another client or another type holds the hardware queue; [`Error::Exists`] where the
    /// queue has another ring; [`Error::NoMemory`]; [`Error::Cancelled`] by a reset in between;
    /// [`Error::NotAttached`]. Nothing has changed.
    pub async fn notifications(&self, spec: QueueSpec) -> Result<NotificationQueue<P>, Error> {
        let client = self.shared().clone();
        let queue = make(&client, Call::Notifications, &spec).await?;
        Ok(NotificationQueue { queue, client, over: false })
    }
}

async fn make<P: Platform>(
    client: &Shared<P>,
    call: Call,
    spec: &QueueSpec,
) -> Result<notify::NotificationQueue<P>, Error> {
    client.enter_memory(call).await?;
    let who = (client.access.client(), client.access.slot());
    let device = &client.device;
    let queue = device.neuron().notifications(device.memory(), who, spec).await?;
    // A client that left meanwhile has no queues: dropping this one ends it.
    client.access.check()?;
    Ok(queue)
}

impl<P: Platform> NotificationQueue<P> {
    /// The next notification. The stream goes on after [`Error::NotificationsLost`]; once it has
    /// said why it has ended it is over: `None`. Dropping the future loses nothing.
    #[allow(clippy::should_implement_trait)] // its asynchronous sister
    #[inline]
    pub fn next(&mut self) -> NextNotification<'_, P> {
        let NotificationQueue { queue, client, over } = self;
        NextNotification { next: queue.next(), client, over, begun: false }
    }

    /// The next notification, if it is there. Of a ring in device memory this is what an earlier
    /// call has fetched.
    ///
    /// # Errors
    /// [`Error::NotificationsLost`], once for each loss; [`Error::Stale`] behind a reset of the
    /// core; [`Error::Cancelled`] where the queue was closed; [`Error::NotAttached`],
    /// [`Error::DeviceGone`], [`Error::Removed`].
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<Notification>, Error> {
        Call::ReadNotifications.admit(&self.client.access)?;
        Ok(self.queue.try_next()?)
    }

    /// Fills `into` with notifications that are there, in order; answers how many.
    ///
    /// # Errors
    /// As [`NotificationQueue::try_next`].
    pub fn read(&mut self, into: &mut [Option<Notification>]) -> Result<usize, Error> {
        Call::ReadNotifications.admit(&self.client.access)?;
        Ok(self.queue.read(into)?)
    }

    /// Shows the notifications that are there where they lie, without taking them: at most 64.
    ///
    /// # Errors
    /// As [`NotificationQueue::try_next`].
    pub async fn peek(&mut self) -> Result<Peek<'_, P>, Error> {
        Call::ReadNotifications.admit(&self.client.access)?;
        Ok(self.queue.peek().await?)
    }

    /// Head, tail, phase, counters.
    ///
    /// # Errors
    /// As [`NotificationQueue::try_next`].
    pub fn info(&self) -> Result<QueueInfo, Error> {
        Call::ReadNotifications.admit(&self.client.access)?;
        Ok(self.queue.info()?)
    }

    /// The ring as it lies in host memory; `None` for one in device memory, and behind the end.
    pub fn memory(&self) -> Option<DmaBuf> {
        let memory = self.queue.memory()?;
        let (device, client) = (&self.client.device, self.client.access.client());
        device.note(client, EventKind::BufferExposed, memory.bus().0);
        Some(memory)
    }

    /// Number under which [`Client::by_handle`] finds the memory of the ring.
    ///
    /// # Errors
    /// As [`NotificationQueue::try_next`].
    pub fn handle(&self) -> Result<u64, Error> {
        Ok(self.info()?.handle)
    }

    /// Gives the queue a ring of another size: the old one goes off and drains first. What was not
    /// read is lost. On an error the old ring still serves.
    ///
    /// # Errors
    /// As [`Client::notifications`].
    pub async fn resize(&mut self, size: u64) -> Result<(), Error> {
        Call::ResizeNotifications.admit(&self.client.access)?;
        let spec = QueueSpec { size, replace: true, ..self.info()?.spec };
        self.queue = make(&self.client, Call::ResizeNotifications, &spec).await?;
        Ok(())
    }

    /// Switches the queue off and waits until it has drained. Dropping the future does not stop
    /// that.
    pub async fn close(self) {
        self.queue.close().await;
    }
}

impl<P: Platform> Device<P> {
    /// What became of notifications since the device came up.
    pub fn notification_counters(&self) -> notify::NotificationCounters {
        self.neuron().notification_counters()
    }

    /// Looks for notifications, semaphores and events at once, instead of at the end of a rest: for
    /// somebody who knows that something has come.
    #[inline]
    pub fn look_for_notifications(&self) {
        self.neuron().look_for_notifications();
    }
}
