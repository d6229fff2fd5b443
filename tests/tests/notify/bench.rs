//! What a test wants to know about notification queues, on top of the bench that all tests share.

use axon::{Error, Notification, NotificationQueue, QueueSpec};
use axon_hosted::Machine;
use axon_model::report::RegisterRecord;
use axon_model::{NotificationBlock, Product, QueueState};
pub use axon_tests::bench::{Bench, Setup};

pub fn trn1() -> Setup {
    managed(Product::Trn1)
}

pub fn trn2() -> Setup {
    managed(Product::Trn2)
}

/// The driver manages the queues.
pub fn managed(product: Product) -> Setup {
    let mut setup = unmanaged(product);
    setup.config.manage_notifications = true;
    setup
}

/// Somebody else manages the queues: the driver only programs rings.
pub fn unmanaged(product: Product) -> Setup {
    let mut setup = Setup::of(product);
    setup.config.manage_notifications = false;
    setup.controls = vec!["trace registers on", "trace clear"];
    setup
}

pub trait Queues {
    /// Register writes since the last call.
    fn writes(&self) -> Vec<(u64, u32)>;

    async fn queue(&self, spec: QueueSpec) -> NotificationQueue<Machine>;

    fn state(&self, core: u8, index: u8) -> QueueState {
        self.state_of(NotificationBlock::Core(core), index)
    }

    fn state_of(&self, block: NotificationBlock, index: u8) -> QueueState;

    /// Resets the whole device and waits for its end.
    async fn reset(&self);
}

impl Queues for Bench {
    fn writes(&self) -> Vec<(u64, u32)> {
        let trace = self.report().register_trace;
        self.control("trace clear");
        trace.into_iter().map(|RegisterRecord { offset, value, .. }| (offset, value)).collect()
    }

    async fn queue(&self, spec: QueueSpec) -> NotificationQueue<Machine> {
        self.client.notifications(spec).await.unwrap()
    }

    fn state_of(&self, block: NotificationBlock, index: u8) -> QueueState {
        self.machine.with_model(0, |model| model.queue_state(block, index)).unwrap().unwrap()
    }

    async fn reset(&self) {
        self.client.reset(axon::ports::CoreMap::DEVICE).unwrap().await.unwrap();
    }
}

/// `size` bytes of queue 4 of core 0.
pub fn spec(size: u64) -> QueueSpec {
    QueueSpec::new(0, 4, size)
}

/// Everything that is there, by time stamp.
pub fn drain(queue: &mut NotificationQueue<Machine>) -> Vec<u64> {
    let take = || queue.try_next().unwrap().map(|notification| notification.timestamp());
    std::iter::from_fn(take).collect()
}

/// The next notification's time stamp; a notification is expected.
pub async fn next(queue: &mut NotificationQueue<Machine>) -> Result<u64, Error> {
    let told: Option<Result<Notification, Error>> = queue.next().await;
    told.expect("the stream goes on").map(|notification| notification.timestamp())
}
