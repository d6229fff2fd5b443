//! One client with one of everything, and every call made once with arguments that are right.

use std::time::Duration;

use axon::calls::Call;
use axon::ports::{CoreMap, ModelUuid};
use axon::{
    Client, CoreClaim, Descriptor, Device, DeviceAlloc, DeviceBuffer, Direction, DmaQueue, Error,
    Event, H2tQueues, HostAlloc, HostBuffer, HostRange, NeuronCore, NotificationQueue, QueueInit,
    QueueSpec, RingAlloc, RingMem, Segment, Semaphore, Side, ZeroCopyQueue, ZeroCopyRequest,
};
use axon_hosted::Machine;
use axon_platform::DeviceAddr;
use axon_ports::{CoreId, HbmIndex};

const MODEL: ModelUuid = ModelUuid([7; 32]);
const CORE: CoreId = CoreId::new(0).unwrap();
/// Where the scene has no memory.
const HBM_1: HbmIndex = HbmIndex::new(1).unwrap();
const ENGINE: u32 = 5;
const BYTES: u64 = 4096;

type Result<T = ()> = std::result::Result<T, Error>;

/// What a client may own, made while everything was well.
pub struct Scene {
    pub device: Device<Machine>,
    /// `None` once it was closed: its own methods are gone with it.
    pub client: Option<Client<Machine>>,
    core: NeuronCore<Machine>,
    claim: Option<CoreClaim>,
    host: HostBuffer<Machine>,
    hbm: DeviceBuffer<Machine>,
    tx: RingMem<Machine>,
    rx: RingMem<Machine>,
    queue: Option<DmaQueue<Machine>>,
    taken: Option<H2tQueues<Machine>>,
    notifications: Option<NotificationQueue<Machine>>,
    semaphore: Semaphore<Machine>,
    event: Event<Machine>,
    submit: ZeroCopyQueue<Machine>,
}

fn row(side: Side, address: DeviceAddr) -> Descriptor {
    let (control, word1) = match side {
        Side::Tx => (0x0d00_0000, 0x0108_0003),
        Side::Rx => (0x0100_0000, 0),
    };
    Descriptor([control | BYTES as u32, word1, address.low(), address.high()])
}

impl Scene {
    pub async fn new(device: &Device<Machine>) -> Result<Scene> {
        let client = device.open().await?;
        let core = client.core(0)?;
        let claim = client.claim(1, 0..=0).await?;
        let host = client.alloc_host(HostAlloc::new(BYTES)).await?;
        let hbm = client.alloc_device(DeviceAlloc::new(BYTES)).await?;
        let tx = client.alloc_ring(RingAlloc::new(Side::Tx, 64)).await?;
        let rx = client.alloc_ring(RingAlloc::new(Side::Rx, 64)).await?;
        tx.stage(0, &[row(Side::Tx, host.device_addr()); 8]).await?;
        rx.stage(0, &[row(Side::Rx, hbm.device_addr()); 8]).await?;
        let queue = client.bind_queue(ENGINE, 3, &tx, &rx).await?;
        let taken = client.h2t_queues(CORE, 1, 0).await?;
        let notifications = client.notifications(QueueSpec::new(0, 4, 4096)).await?;
        let (semaphore, event) = (core.semaphore(1)?, core.event(1)?);
        let (submit, _) = client.zero_copy_queue()?;
        client.datastore()?;
        Ok(Scene {
            device: device.clone(),
            client: Some(client),
            core,
            claim: Some(claim),
            host,
            hbm,
            tx,
            rx,
            queue: Some(queue),
            taken: Some(taken),
            notifications: Some(notifications),
            semaphore,
            event,
            submit,
        })
    }

    /// The last handle goes; what it made stays.
    pub fn close(&mut self) {
        self.client = None;
        self.claim = None;
    }

    /// The end of the scene, so that the next one finds its queues free.
    pub async fn end(self) {
        let Scene { client, queue, taken, notifications, submit, .. } = self;
        drop((queue, taken, notifications, submit));
        if let Some(client) = client {
            client.close().await;
        }
    }

    fn init(&self) -> QueueInit {
        QueueInit {
            engine: ENGINE,
            queue: 4,
            tx_count: 64,
            rx_count: 64,
            tx: self.tx.handle(),
            rx: self.rx.handle(),
            ..QueueInit::default()
        }
    }

    fn zero_copy_request(&self) -> ZeroCopyRequest {
        let piece = HostRange { handle: self.host.handle(), offset: 0, len: BYTES };
        ZeroCopyRequest::single(Direction::ToDevice, -1, self.hbm.handle(), 0, piece)
    }

    /// Makes the call; `None` where nobody is left to make it: the method belongs to a client that
    /// was closed. A call has as many ways as methods that reach hardware differently.
    pub async fn make(&mut self, call: Call) -> Option<Result> {
        match self.with_client(call).await {
            Some(result) => Some(result),
            None => self.without_client(call).await,
        }
    }

    /// Methods of the client itself.
    async fn with_client(&mut self, call: Call) -> Option<Result> {
        let client = self.client.clone()?;
        let queues = client.queues();
        let commands = client.core_commands();
        Some(match call {
            Call::WriteRegister => axon::raw::operator_write32(&client, self.scratch(), 0),
            Call::PostMetric => client.post_metric(b"x").await,
            Call::Alloc => client.alloc_host(HostAlloc::new(BYTES)).await.map(drop),
            Call::Free => {
                let spare = client.alloc_host(HostAlloc::new(BYTES)).await;
                match spare {
                    Ok(spare) => client.free(spare.into_handle()).await,
                    Err(_) => client.free(1).await,
                }
            }
            Call::Name => client.by_handle(self.host.handle()).map(drop),
            Call::Map => client.window(self.host.device_addr(), BYTES).await.map(drop),
            Call::Find => client.search(self.host.device_addr()).await.map(drop),
            Call::EngineInit => queues.engine_init(ENGINE),
            Call::EngineSetState => queues.engine_set_state(ENGINE, 2),
            Call::BindQueue => queues.init(&self.init()).await,
            Call::BindQueues => {
                queues.init_batch(&[self.init()]).await.map_err(|failed| failed.error)
            }
            Call::CopyOut => queues.copy_out(ENGINE, 3, 0, 0, 1).await.map(drop),
            Call::Notifications => client.notifications(QueueSpec::new(0, 3, 4096)).await.map(drop),
            Call::Datastore => client.datastore().map(drop),
            Call::ReleaseDatastore => client.release_datastore(),
            Call::ReaderExit => commands.reader_exit(0, MODEL).await,
            Call::WriterDowngrade => commands.writer_downgrade(0, MODEL).await,
            Call::Claim => client.claim(1, 1..=1).await.map(drop),
            Call::Reset => client.reset(CoreMap(2)).map(drop),
            Call::Program => client.program_engine(CORE, self.target(), b"data").await,
            Call::Copy => {
                let of = |handle| Segment { handle, offset: 0, len: BYTES };
                let (host, hbm) = (of(self.host.handle()), of(self.hbm.handle()));
                let list = match client.gather(&[host], hbm) {
                    Ok(list) => list.await,
                    Err(refused) => Err(refused),
                };
                // Then the copy of one buffer.
                list.map_err(|failed| failed.error).err().map(Err)?
            }
            Call::CopyNumbered => {
                let (from, to) = match (self.host.span(..), self.hbm.span(..)) {
                    (Ok(from), Ok(to)) => (from, to),
                    (Err(error), _) | (_, Err(error)) => return Some(Err(error)),
                };
                client.async_copies(CORE).submit(0, from, to).await.map(drop)
            }
            Call::WaitNumbered => client.async_copies(CORE).wait(1).await,
            Call::PodControl => client.pod_control().map(drop),
            Call::ZeroCopy => client.zero_copy(&self.zero_copy_request()).await,
            Call::Completions => client.zero_copy_queue().map(drop),
            Call::TakeQueues => client.h2t_queues(CORE, 1, 0).await.map(drop),
            Call::SetPowerProfile => client.set_power_profile(1).await,
            Call::Scrub => client.scrub(HBM_1, 0).await.map(drop),
            Call::PeriodicMetrics => client.periodic_metrics(true),
            Call::Throttling => client.throttle_notifications(true).await,
            _ => return None,
        })
    }

    /// Methods of objects that outlive their client, and of the device.
    async fn without_client(&mut self, call: Call) -> Option<Result> {
        let device = self.device.clone();
        Some(match call {
            Call::ReadRegister => device.read32(self.scratch()).map(drop),
            Call::Copy => match self.host.copy_to(.., &self.hbm, 0) {
                Ok(copy) => copy.await,
                Err(error) => Err(error),
            },
            Call::Move => self.hbm.write_by_dma(0, &[1; 64]).await,
            Call::WriteInline => self.hbm.write_inline(0, &[1; 64]),
            Call::Name => self.host.span(..).map(drop),
            Call::Map => self.host.window().await.map(drop),
            Call::Fill => match self.hbm.fill(.., 1) {
                Ok(fill) => fill.await,
                Err(error) => Err(error),
            },
            Call::EngineStatus => device.engine_status(ENGINE).map(drop),
            Call::ReleaseQueue => self.queue.take()?.close().await,
            Call::StartQueue => self.queue.as_mut()?.start(1, 1),
            Call::Acknowledge => {
                let queue = self.queue.as_mut()?;
                // Something to acknowledge, where that is possible.
                let _ = queue.start(1, 1);
                queue.acknowledge(1)
            }
            Call::QueueStatus => device.queue_status(ENGINE, 3).map(drop),
            Call::Stage => self.tx.stage(0, &[row(Side::Tx, self.host.device_addr())]).await,
            Call::SemaphoreAdd => self.semaphore.add(1),
            Call::SemaphoreSubtract => self.semaphore.sub(1),
            Call::SemaphoreGet => self.semaphore.get().map(drop),
            Call::SemaphoreSet => self.semaphore.set(1),
            Call::EventSet => self.event.set(true),
            Call::EventGet => self.event.get().map(drop),
            Call::ResizeNotifications => self.notifications.as_mut()?.resize(8192).await,
            Call::CloseNotifications => {
                self.notifications.take()?.close().await;
                Ok(())
            }
            Call::ReadNotifications => self.notifications.as_mut()?.try_next().map(drop),
            Call::HardwareCounters => {
                device.hardware_counters(&[self.firmware_word()]).await.map(drop)
            }
            Call::ReaderEnter => {
                // A model that nobody has loaded: ENOENT, behind the gate.
                self.core.model_reader(MODEL).await.map(drop)
            }
            Call::WriterEnter => self.core.model_writer(MODEL).await.map(drop),
            Call::InitCore => self.core.begin_init().await.map(drop),
            Call::ModelStarts => {
                self.core.model_starts();
                Ok(())
            }
            Call::Clients => {
                device.clients();
                Ok(())
            }
            Call::Chunks => device.chunks(0).await.map(drop),
            // These hang on the driver, which no state of a device reaches.
            Call::Pod | Call::Log => Ok(()),
            Call::ZeroCopy => self.submit.submit(1, &self.zero_copy_request()),
            Call::FreeQueues => self.taken.take()?.close().await,
            Call::PowerProfileNow => {
                device.power_profile();
                Ok(())
            }
            Call::PowerProfiles => device.power_profiles(0).await.map(drop),
            _ => return None,
        })
    }

    /// A register that may be written with what it holds: a general-purpose word of MiscRAM.
    fn scratch(&self) -> u64 {
        if self.is_v2() { 0x30fa_0000 + 0x1c8 } else { 0x06c8_4000 + 0x1c8 }
    }

    /// What may be programmed: the memory of core 0's engines, or a chunk of one's own.
    fn target(&self) -> DeviceAddr {
        if self.is_v2() { DeviceAddr(0xfff_c3ff_fff0) } else { self.hbm.device_addr() }
    }

    /// A word of MiscRAM as the device sees it.
    fn firmware_word(&self) -> u64 {
        0x1c8 + if self.is_v2() { 0xfff_f0fa_0000 } else { 0x80_06c8_4000 }
    }

    fn is_v2(&self) -> bool {
        self.device.hal().cores() == 2
    }
}

/// How long a call that parks may seem to hang: virtual time passes when nothing else can.
pub const PATIENCE: Duration = Duration::from_millis(20);
