//! What clients of one device agree on about its cores (specification 05 §12, §13): who initialises
//! a core, who loads a model onto it, who runs it. Nothing here touches hardware.
//!
//! ```text
//! CoreSync::model_writer ──call──> owner: table of locks ──> ModelWriter ──downgrade──> ModelReader
//! CoreSync::begin_init   ──call──> owner: init states    ──> InitTicket ──complete──> COMPLETED
//!                                      ▲                          │ drop
//!                                      └───── mark and wake ──────┘
//! ```
//!
//! [`CoreSyncTask`] runs both owners. Waiters stand in a queue per core, each with its own deadline:
//! 500 ms for a reader, 2 s for a writer, 5 s for another's initialisation.
//!
//! Native calls hand out guards; command forms (`reader_enter`, `set_init_state`, …) keep the hold
//! in the client's name until a command or the client's end takes it back. Neither can end what the
//! other holds.

mod cell;
mod commands;
mod error;
mod guards;
mod init;
mod lock;
mod lock_table;
mod owner;
mod per_core;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use axon_platform::{Clock, Errno};
use axon_ports::{ClientId, CoreId, CoreMap, ModelUuid};
use embassy_futures::join::join;

pub use error::SyncError;
pub use guards::{InitTicket, ModelReader, ModelWriter};
pub use init::{InitState, InitView};
pub use lock::{Hold, Key};
pub use lock_table::LockView;

use crate::gates::Command;
use crate::{Access, Touched};
use init::{Begin, InitStep, InitTable};
use lock::Keeper;
use lock_table::{Enter, EnterResult, LockStep, LockTable};
use owner::Owner;

/// Cores that a device has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cores {
    /// Cores of its generation: valid numbers are below this.
    pub count: u32,
    /// Which of them its configuration uses.
    pub map: CoreMap,
}

impl Cores {
    /// The core with this number; `errno` is what the command answers to a number that is too large.
    fn named(self, number: u32, errno: Errno) -> Result<CoreId, SyncError> {
        let core = CoreId::new(number).filter(|_| number < self.count);
        let core =
            core.ok_or(SyncError::CoreOutOfRange { core: number, cores: self.count, errno })?;
        if !self.map.contains(core) {
            return Err(SyncError::CoreAbsent { core });
        }
        Ok(core)
    }
}

/// Answer of [`CoreSync::begin_init`].
pub enum Init {
    /// The caller initialises the core.
    Mine(InitTicket),
    /// The core is initialised already.
    Done,
}

/// Locks and init states of one device. Clones reach the same.
#[derive(Clone)]
pub struct CoreSync {
    cores: Cores,
    locks: Arc<Owner<LockTable>>,
    inits: Arc<Owner<InitTable>>,
}

/// Serves [`CoreSync`]. While it does not run, calls wait; once it is dropped they end.
pub struct CoreSyncTask<C> {
    sync: CoreSync,
    clock: C,
}

impl<C: Clock> CoreSyncTask<C> {
    /// Runs until [`CoreSync::remove`].
    pub async fn run(self) {
        join(self.sync.locks.serve(&self.clock), self.sync.inits.serve(&self.clock)).await;
    }
}

impl<C> Drop for CoreSyncTask<C> {
    fn drop(&mut self) {
        self.sync.remove();
    }
}

impl CoreSync {
    /// All cores free and INVALID, and the task that serves them.
    pub fn new<C: Clock>(cores: Cores, clock: C) -> (Self, CoreSyncTask<C>) {
        let sync = CoreSync { cores, locks: Arc::new(Owner::new()), inits: Arc::new(Owner::new()) };
        (sync.clone(), CoreSyncTask { sync, clock })
    }

    /// Waits while a model is being loaded, at most 500 ms. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`SyncError`]: another model or client (ENOENT), time is over (EBUSY).
    pub async fn model_reader(
        &self,
        access: &Arc<Access>,
        core: CoreId,
        model: ModelUuid,
    ) -> Result<ModelReader, SyncError> {
        let granted = self.enter(access, core.number(), model, false, Keeper::Guard).await?;
        Ok(ModelReader::new(self.locks.clone(), core, granted.entered.generation))
    }

    /// Waits until nobody holds the core, at most 2 s. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`SyncError`]: time is over (EBUSY).
    pub async fn model_writer(
        &self,
        access: &Arc<Access>,
        core: CoreId,
        model: ModelUuid,
    ) -> Result<ModelWriter, SyncError> {
        let granted = self.enter(access, core.number(), model, true, Keeper::Guard).await?;
        Ok(ModelWriter::new(self.locks.clone(), core, granted.entered))
    }

    /// Becomes the initialiser of a core, or waits for whoever is, at most 5 s; takes over where
    /// that one gives up or the core is reset.
    ///
    /// # Errors
    /// [`SyncError`]: time is over (ETIMEDOUT).
    pub async fn begin_init(&self, access: &Arc<Access>, core: CoreId) -> Result<Init, SyncError> {
        access.enter(Command::CinitSetState, Touched::Cores)?;
        let core = self.cores.named(core.number(), Errno::E2BIG)?;
        let begin = Begin { access: access.clone(), core, takes_over: true };
        let begun = self.inits.call(begin).await??;
        Ok(match begun.mine {
            Some(generation) => Init::Mine(InitTicket::new(self.inits.clone(), core, generation)),
            None => Init::Done,
        })
    }

    /// The lock of a core, now.
    pub fn lock(&self, core: CoreId) -> LockView {
        self.locks.view(core)
    }

    /// The init state of a core, now.
    pub fn init(&self, core: CoreId) -> InitView {
        self.inits.view(core)
    }

    /// Models loaded onto a core since its last reset.
    pub fn model_starts(&self, core: CoreId) -> u64 {
        self.lock(core).loads
    }

    /// The model that `client` holds on each core, as a reader or writer, in core order.
    pub fn holders(&self, client: ClientId) -> [Option<ModelUuid>; CoreId::COUNT] {
        CoreId::ALL.map(|core| match self.lock(core) {
            LockView { hold: Hold::Readers(_) | Hold::Writer, key: Some(key), .. } => {
                (key.client == client).then_some(key.model)
            }
            _ => None,
        })
    }

    /// A reset of these cores was submitted (specification 05 §11.2): they are INVALID, whoever
    /// waited for an initialiser is told, their counts of loads start anew. Locks survive. Never
    /// blocks; whoever asks afterwards sees it.
    pub fn core_reset(&self, map: CoreMap) {
        self.inits.reset(map);
        self.locks.reset(map);
    }

    /// Step 8 of a client's end (specification 05 §10.2): its waiting calls are cancelled, every
    /// core that carries its model is free, what it was initialising is INVALID.
    pub async fn client_gone(&self, client: ClientId) {
        let _ = self.locks.step(LockStep::ClientGone(client)).await;
        let _ = self.inits.step(InitStep::ClientGone(client)).await;
    }

    /// The device was removed: waiting calls end, later ones fail, the task ends.
    pub fn remove(&self) {
        self.locks.close();
        self.inits.close();
    }

    async fn enter(
        &self,
        access: &Arc<Access>,
        core: u32,
        model: ModelUuid,
        writer: bool,
        keeper: Keeper,
    ) -> EnterResult {
        let command = if writer { Command::CrwlWriterEnter } else { Command::CrwlReaderEnter };
        access.enter(command, Touched::Cores)?;
        let core = self.cores.named(core, Errno::EINVAL)?;
        self.locks.call(Enter { access: access.clone(), core, model, writer, keeper }).await?
    }
}
