//! The command forms (08 §8.6.6): numbers in, holds that last until a command or the client's end.

use alloc::sync::Arc;

use axon_platform::Errno;
use axon_ports::{CoreId, ModelUuid};

use super::init::{Begin, InitStep};
use super::lock::{Keeper, Key};
use super::lock_table::LockStep;
use super::{CoreSync, InitState, SyncError};
use crate::gates::Command;
use crate::{Access, Touched};

impl CoreSync {
    /// `CRWL_READER_ENTER`.
    ///
    /// # Errors
    /// As [`CoreSync::model_reader`]; EINVAL for a core that the device does not have.
    pub async fn reader_enter(
        &self,
        access: &Arc<Access>,
        core: u32,
        model: ModelUuid,
    ) -> Result<(), SyncError> {
        self.enter(access, core, model, false, Keeper::Command).await?;
        Ok(())
    }

    /// `CRWL_READER_EXIT`.
    ///
    /// # Errors
    /// ENOENT for another model or client, EINVAL where there is no reader to leave.
    pub async fn reader_exit(
        &self,
        access: &Arc<Access>,
        core: u32,
        model: ModelUuid,
    ) -> Result<(), SyncError> {
        let (core, key) = self.key(access, Command::CrwlReaderExit, core, model)?;
        self.locks.step(LockStep::ExitReader(core, key)).await?
    }

    /// `CRWL_WRITER_ENTER`; answers whether the model is on the core already, which Linux says with
    /// EALREADY. Both answers oblige the caller to downgrade.
    ///
    /// # Errors
    /// As [`CoreSync::model_writer`]; EINVAL for a core that the device does not have.
    pub async fn writer_enter(
        &self,
        access: &Arc<Access>,
        core: u32,
        model: ModelUuid,
    ) -> Result<bool, SyncError> {
        let granted = self.enter(access, core, model, true, Keeper::Command).await?;
        Ok(granted.entered.already_loaded)
    }

    /// `CRWL_WRITER_DOWNGRADE`.
    ///
    /// # Errors
    /// EINVAL where there is no writer, ENOENT for another model or client.
    pub async fn writer_downgrade(
        &self,
        access: &Arc<Access>,
        core: u32,
        model: ModelUuid,
    ) -> Result<(), SyncError> {
        let (core, key) = self.key(access, Command::CrwlWriterDowngrade, core, model)?;
        self.locks.step(LockStep::Downgrade(core, key)).await?
    }

    /// `CINIT_SET_STATE`; answers the state afterwards. STARTED answered to STARTED makes the caller
    /// the initialiser; other values than STARTED and COMPLETED change nothing.
    ///
    /// # Errors
    /// E2BIG for a core that the device does not have, ETIMEDOUT (with the state) after 5 s of
    /// waiting for another initialiser.
    pub async fn set_init_state(
        &self,
        access: &Arc<Access>,
        core: u32,
        value: u32,
    ) -> Result<InitState, SyncError> {
        access.enter(Command::CinitSetState, Touched::Cores)?;
        let core = self.cores.named(core, Errno::E2BIG)?;
        if value == InitState::Started as u32 {
            let begin = Begin { access: access.clone(), core, takes_over: false };
            return Ok(self.inits.call(begin).await??.state);
        }
        self.inits.step(InitStep::Set(core, access.client(), value)).await?
    }

    fn key(
        &self,
        access: &Access,
        command: Command,
        core: u32,
        model: ModelUuid,
    ) -> Result<(CoreId, Key), SyncError> {
        access.enter(command, Touched::Cores)?;
        let core = self.cores.named(core, Errno::EINVAL)?;
        Ok((core, Key { client: access.client(), model }))
    }
}
