//! What a client holds of a core: a right that ends when it is dropped. Dropping marks and wakes;
//! it never blocks and never fails.

use alloc::sync::Arc;

use axon_ports::CoreId;

use super::SyncError;
use super::cell::ReleaseCell;
use super::init::{InitState, InitStep, InitTable};
use super::lock::Entered;
use super::lock_table::LockTable;
use super::owner::Owner;

/// The right to run inferences of the model on a core.
#[must_use = "the core is free again when the reader is dropped"]
pub struct ModelReader {
    locks: Arc<Owner<LockTable>>,
    core: CoreId,
    generation: u32,
}

/// The right to load a model onto a core. Dropped without [`ModelWriter::downgrade`], the core is
/// free and carries no model.
#[must_use = "the core is free again, without a model, when the writer is dropped"]
pub struct ModelWriter {
    locks: Arc<Owner<LockTable>>,
    core: CoreId,
    entered: Entered,
    /// A reader goes on with the hold.
    handed_over: bool,
}

impl ModelReader {
    pub(super) fn new(locks: Arc<Owner<LockTable>>, core: CoreId, generation: u32) -> Self {
        ModelReader { locks, core, generation }
    }

    /// Which core.
    pub fn core(&self) -> CoreId {
        self.core
    }
}

impl Drop for ModelReader {
    fn drop(&mut self) {
        self.locks.release(self.core, |cell| cell.leave(self.generation));
    }
}

impl ModelWriter {
    pub(super) fn new(locks: Arc<Owner<LockTable>>, core: CoreId, entered: Entered) -> Self {
        ModelWriter { locks, core, entered, handed_over: false }
    }

    /// Which core.
    pub fn core(&self) -> CoreId {
        self.core
    }

    /// The core carries this model of this client already: loading can be skipped.
    pub fn already_loaded(&self) -> bool {
        self.entered.already_loaded
    }

    /// The model is loaded: goes on as its first reader.
    ///
    /// # Errors
    /// [`SyncError::NotAttached`] where the client closed meanwhile.
    pub fn downgrade(mut self) -> Result<ModelReader, SyncError> {
        let generation = self.entered.generation;
        self.handed_over = true;
        match self.locks.release(self.core, |cell| cell.downgrade(generation)) {
            true => Ok(ModelReader::new(self.locks.clone(), self.core, generation)),
            false => Err(SyncError::NotAttached),
        }
    }
}

impl Drop for ModelWriter {
    fn drop(&mut self) {
        if !self.handed_over {
            self.locks.release(self.core, |cell| cell.abandon(self.entered.generation));
        }
    }
}

/// The right, and the duty, to initialise a core. Dropped without [`InitTicket::complete`], the core
/// is INVALID again and the next one in line starts.
#[must_use = "the core is INVALID again when the ticket is dropped"]
pub struct InitTicket {
    inits: Arc<Owner<InitTable>>,
    core: CoreId,
    generation: u32,
}

impl InitTicket {
    pub(super) fn new(inits: Arc<Owner<InitTable>>, core: CoreId, generation: u32) -> Self {
        InitTicket { inits, core, generation }
    }

    /// Which core.
    pub fn core(&self) -> CoreId {
        self.core
    }

    /// The core is initialised.
    ///
    /// # Errors
    /// [`SyncError::InitLost`] where a reset or the client's end intervened: start again.
    pub async fn complete(self) -> Result<(), SyncError> {
        // Dropped half-way, the ticket is dropped too; once COMPLETED, its own drop means nothing.
        let InitState::Completed =
            self.inits.step(InitStep::Complete(self.core, self.generation)).await??
        else {
            return Err(SyncError::Removed);
        };
        Ok(())
    }
}

impl Drop for InitTicket {
    fn drop(&mut self) {
        self.inits.release(self.core, |cell: &ReleaseCell| cell.abandon(self.generation));
    }
}
