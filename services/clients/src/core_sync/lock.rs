//! The reader/writer lock of one core as plain data (specification 05 §13.1, §13.2): no waiting, no
//! time.

use axon_ports::{ClientId, CoreId, ModelUuid};

use super::SyncError;
use super::cell::MOST_READERS;

/// Who may read a core: the client that loaded this model onto it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// Who stamped the core last.
    pub client: ClientId,
    /// With which model.
    pub model: ModelUuid,
}

/// What holds a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Nobody. The key may still name the last model.
    Free,
    /// So many inferences of the keyed model, at least one.
    Readers(u32),
    /// A model is being loaded.
    Writer,
}

/// How a hold ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keeper {
    /// A guard gives it up when it is dropped.
    Guard,
    /// A command form: by command, or when its client goes.
    Command,
}

/// A lock was entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entered {
    /// For the guard's release cell.
    pub(super) generation: u32,
    /// The writer found its own model on the core: loading can be skipped (EALREADY).
    pub(super) already_loaded: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CoreLock {
    core: CoreId,
    key: Option<Key>,
    hold: Hold,
    /// Of the holds, those of command forms: only these end by command.
    commands: u32,
    /// Raised whenever all earlier guards lose their hold.
    generation: u32,
    /// Models loaded since the last reset of the core: writers that were downgraded.
    loads: u64,
}

impl CoreLock {
    pub(super) const fn new(core: CoreId) -> Self {
        CoreLock { core, key: None, hold: Hold::Free, commands: 0, generation: 0, loads: 0 }
    }

    pub(super) fn key(&self) -> Option<Key> {
        self.key
    }

    pub(super) fn hold(&self) -> Hold {
        self.hold
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    pub(super) fn loads(&self) -> u64 {
        self.loads
    }

    /// A reset of the core was submitted: only the count of loads goes, the lock stays.
    pub(super) fn reset(&mut self) {
        self.loads = 0;
    }

    /// One more reader; `None` where the caller has to wait.
    pub(super) fn enter_reader(
        &mut self,
        key: Key,
        keeper: Keeper,
    ) -> Option<Result<Entered, SyncError>> {
        let readers = match self.hold {
            Hold::Writer => return None,
            Hold::Free => 0,
            Hold::Readers(readers) => readers,
        };
        if let Err(error) = self.check_key(key) {
            return Some(Err(error));
        }
        if readers == MOST_READERS {
            return None;
        }
        self.hold = Hold::Readers(readers + 1);
        self.commands += u32::from(keeper == Keeper::Command);
        Some(Ok(Entered { generation: self.generation, already_loaded: true }))
    }

    /// The one writer; `None` where the caller has to wait.
    pub(super) fn enter_writer(&mut self, key: Key, keeper: Keeper) -> Option<Entered> {
        if self.hold != Hold::Free {
            return None;
        }
        let already_loaded = self.key == Some(key);
        self.key = Some(key);
        self.hold = Hold::Writer;
        self.commands = u32::from(keeper == Keeper::Command);
        self.generation = self.generation.wrapping_add(1);
        Some(Entered { generation: self.generation, already_loaded })
    }

    /// Command form: one reader less.
    pub(super) fn exit_reader(&mut self, key: Key) -> Result<(), SyncError> {
        self.check_key(key)?;
        match self.hold {
            Hold::Readers(_) if self.commands > 0 => {
                self.commands -= 1;
                self.leave(1);
                Ok(())
            }
            _ => Err(SyncError::NotReading { core: self.core }),
        }
    }

    /// Command form: the writer becomes the only reader.
    pub(super) fn downgrade(&mut self, key: Key) -> Result<(), SyncError> {
        if self.hold != Hold::Writer {
            return Err(SyncError::NotWriting { core: self.core });
        }
        self.check_key(key)?;
        if self.commands == 0 {
            return Err(SyncError::NotWriting { core: self.core });
        }
        self.downgraded();
        Ok(())
    }

    /// Guard: the writer became the only reader.
    pub(super) fn downgraded(&mut self) {
        if self.hold == Hold::Writer {
            self.hold = Hold::Readers(1);
            self.loads += 1;
        }
    }

    /// Guard: the writer left without downgrading.
    pub(super) fn abandoned(&mut self) {
        if self.hold == Hold::Writer {
            self.clear();
        }
    }

    /// Guards: `count` readers left. The key stays.
    pub(super) fn leave(&mut self, count: u32) {
        if let Hold::Readers(readers) = self.hold {
            self.hold = match readers.saturating_sub(count) {
                0 => Hold::Free,
                left => Hold::Readers(left),
            };
        }
    }

    /// The caller left before it knew that it was in.
    pub(super) fn undo(&mut self, entered: Entered, keeper: Keeper) {
        if entered.generation != self.generation {
            return;
        }
        match self.hold {
            Hold::Writer => self.clear(),
            _ => {
                self.commands -= u32::from(keeper == Keeper::Command && self.commands > 0);
                self.leave(1);
            }
        }
    }

    /// Nothing is left of what was loaded: free, without a key, and every guard has lost its hold.
    pub(super) fn clear(&mut self) {
        self.key = None;
        self.hold = Hold::Free;
        self.commands = 0;
        self.generation = self.generation.wrapping_add(1);
    }

    fn check_key(&self, key: Key) -> Result<(), SyncError> {
        match self.key {
            Some(stamped) if stamped == key => Ok(()),
            _ => Err(SyncError::OtherModel { core: self.core }),
        }
    }
}
