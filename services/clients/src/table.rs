//! The attach table of one device as plain data (specification 05 §7.2): no lock, no await.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU8, Ordering};

use axon_ports::{ClientId, ClientSlot};

use crate::ClientError;
use crate::gates::{Command, Gate, Grant, Grants};

/// What a client has used of a device, so that its end visits nothing else.
///
/// Whoever gives a client something that has to end in order notes it first, with
/// [`Access::touch`]: a client that owns nothing is gone at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Touched {
    /// Resets: its end waits for them.
    Resets = 1 << 0,
    /// Memory, copies, queues of any kind: drained, parked, settled for 10 ms.
    Transfers = 1 << 1,
    /// Locks and init states of cores.
    Cores = 1 << 2,
    /// Counters in the datastore.
    Counters = 1 << 3,
}

/// Bit of [`Access::touched`]: the memory service knows the client.
const KNOWN: u8 = 1 << 7;

/// Bits of [`Access::lacks`] above those of [`Grant`]: the client is closing or closed; the device
/// was removed.
const CLOSED: u8 = 1 << 6;
const REMOVED: u8 = 1 << 7;

/// Proof that a client is, or was, attached: shared by everything the client made.
#[derive(Debug)]
pub struct Access {
    client: ClientId,
    slot: ClientSlot,
    /// What the client has not, a bit each: a gate is one look at the bits that it asks for.
    lacks: AtomicU8,
    touched: AtomicU8,
}

/// Bits of [`Access::lacks`] that must not be set for a command on the normal lane.
const fn needs(command: Command) -> u8 {
    let attach = match command.rule().gate {
        Gate::Attached | Gate::EitherAttachedIfNormal | Gate::Absent => CLOSED | REMOVED,
        Gate::Either | Gate::Normal => 0,
    };
    match command.rule().grant {
        Some(grant) => attach | grant as u8,
        None => attach,
    }
}

impl Access {
    pub(crate) fn new(client: ClientId, slot: ClientSlot, grants: Grants) -> Self {
        let lacks = AtomicU8::new(grants.missing());
        Access { client, slot, lacks, touched: AtomicU8::new(0) }
    }

    /// Gates 1 and 2 of specification 05 §8.1 for a command on the normal lane, and the grant: what
    /// [`crate::gates::check`] answers, with one load and one test where the command is known while
    /// compiling.
    ///
    /// # Errors
    /// [`ClientError::NotAttached`], [`ClientError::DeviceGone`], [`ClientError::NoGrant`].
    #[inline(always)]
    pub fn admit(&self, command: Command) -> Result<(), ClientError> {
        self.pass(needs(command))
    }

    /// Notes what the client is about to use, then [`Access::admit`].
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn enter(&self, command: Command, what: Touched) -> Result<(), ClientError> {
        self.touch(what);
        self.admit(command)
    }

    /// Whether the client was given `grant`, for calls that need one by what they name.
    ///
    /// # Errors
    /// [`ClientError::NoGrant`].
    pub fn check_grant(&self, grant: Grant) -> Result<(), ClientError> {
        self.pass(grant as u8)
    }

    #[inline(always)]
    fn pass(&self, needs: u8) -> Result<(), ClientError> {
        match self.lacks.load(Ordering::Acquire) & needs {
            0 => Ok(()),
            missing => Err(Self::refusal(missing)),
        }
    }

    #[cold]
    fn refusal(missing: u8) -> ClientError {
        if missing & REMOVED != 0 {
            return ClientError::DeviceGone;
        }
        match Grant::in_bits(missing) {
            Some(grant) if missing & CLOSED == 0 => ClientError::NoGrant { grant },
            _ => ClientError::NotAttached,
        }
    }

    /// Notes that the client's end has to see to `what`. Before anything is taken, so that an end
    /// that comes between finds the note.
    #[inline]
    pub fn touch(&self, what: Touched) {
        if !self.has_touched(what) {
            self.touched.fetch_or(what as u8, Ordering::AcqRel);
        }
    }

    /// Whether the memory service has been told of the client.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.touched.load(Ordering::Acquire) & KNOWN != 0
    }

    /// The memory service knows the client from now on. A client that never has memory costs it
    /// nothing.
    pub fn set_known(&self) {
        self.touched.fetch_or(KNOWN, Ordering::AcqRel);
    }

    pub(crate) fn has_touched(&self, what: Touched) -> bool {
        self.touched.load(Ordering::Acquire) & what as u8 != 0
    }

    /// Whose access.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Which attach slot.
    pub fn slot(&self) -> ClientSlot {
        self.slot
    }

    /// Whether the client is still attached: for a second look, behind an await.
    ///
    /// # Errors
    /// [`ClientError::NotAttached`], [`ClientError::DeviceGone`] once the device was removed
    /// (05 §5 T4, §17.4).
    #[inline]
    pub fn check(&self) -> Result<(), ClientError> {
        self.pass(CLOSED | REMOVED)
    }

    pub(crate) fn close(&self) {
        self.lacks.fetch_or(CLOSED, Ordering::AcqRel);
    }

    fn revoke(&self) {
        self.lacks.fetch_or(REMOVED, Ordering::AcqRel);
    }
}

/// Where a used slot stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// In use.
    Live,
    /// No handle is left; the clean-up runs or is about to.
    Closing,
}

struct Record {
    access: Arc<Access>,
    handles: u32,
    phase: Phase,
}

/// One attached client, as `clients` lists it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientInfo {
    /// Attach slot.
    pub slot: ClientSlot,
    /// Who.
    pub client: ClientId,
    /// Normal handles of this client on this device; the last one counts until its clean-up is
    /// over (specification 05 §10.2 step 12).
    pub handles: u32,
    /// Whether it is being cleaned up.
    pub closing: bool,
}

/// Outcome of [`Table::attach`].
pub(crate) enum Attach {
    /// The slot was free.
    Fresh(Arc<Access>),
    /// Another handle of a client that is in already.
    Again(Arc<Access>),
    /// The same client is being cleaned up: try again after a change.
    Wait,
}

/// 16 slots and the open count. Every change is one call.
pub(crate) struct Table {
    slots: [Option<Record>; ClientSlot::COUNT],
    open_count: u32,
    /// Slots in [`Phase::Closing`], as a mask.
    closing: u32,
    /// Some client that has left since the last last close may have left memory or counters.
    left_something: bool,
    /// All-clients memory is being freed: a client let in now could lose its own to that.
    last_close: bool,
}

impl Table {
    pub(crate) const fn new() -> Self {
        Table {
            slots: [const { None }; ClientSlot::COUNT],
            open_count: 0,
            closing: 0,
            left_something: false,
            last_close: false,
        }
    }

    /// An open begins: it counts before it waits (specification 05 §7.1).
    pub(crate) fn begin_open(&mut self) {
        self.open_count += 1;
    }

    /// An open failed, or a handle's end is complete.
    pub(crate) fn end_open(&mut self) {
        self.open_count = self.open_count.saturating_sub(1);
    }

    pub(crate) fn open_count(&self) -> u32 {
        self.open_count
    }

    /// One more handle of `client`, in its slot or the lowest free one. A client that is in already
    /// keeps the grants it came with.
    pub(crate) fn attach(
        &mut self,
        client: ClientId,
        grants: Grants,
    ) -> Result<Attach, ClientError> {
        if self.last_close {
            return Ok(Attach::Wait);
        }
        if let Some(record) =
            self.slots.iter_mut().flatten().find(|record| record.access.client == client)
        {
            if record.phase != Phase::Live {
                return Ok(Attach::Wait);
            }
            record.handles += 1;
            return Ok(Attach::Again(record.access.clone()));
        }
        let (slot, free) = ClientSlot::all()
            .zip(&mut self.slots)
            .find(|(_, record)| record.is_none())
            .ok_or(ClientError::TooManyClients)?;
        let access = Arc::new(Access::new(client, slot, grants));
        *free = Some(Record { access: access.clone(), handles: 1, phase: Phase::Live });
        Ok(Attach::Fresh(access))
    }

    /// One handle less; answers whether it was the last, which revokes the access.
    pub(crate) fn detach(&mut self, slot: ClientSlot) -> bool {
        let Some(record) = self.record(slot) else { return false };
        if record.handles > 1 {
            record.handles -= 1;
            return false;
        }
        record.phase = Phase::Closing;
        record.access.close();
        self.closing |= 1 << slot.number();
        true
    }

    /// Slots that wait for their clean-up, as a mask.
    pub(crate) fn closing_slots(&self) -> u32 {
        self.closing
    }

    /// The client whose slot waits for its clean-up.
    pub(crate) fn closing(&self, slot: ClientSlot) -> Option<&Arc<Access>> {
        let record = self.slots.get(slot.index())?.as_ref()?;
        (record.phase == Phase::Closing).then_some(&record.access)
    }

    /// A client that is leaving may have left memory or counters to all clients.
    pub(crate) fn leaves_something(&mut self) {
        self.left_something = true;
    }

    /// The memory of a leaving client is swept; answers whether it was the last one and there may
    /// be something to free, in which case nobody enters before [`Table::free`].
    pub(crate) fn begin_last_close(&mut self) -> bool {
        self.last_close = self.open_count == 1 && core::mem::take(&mut self.left_something);
        self.last_close
    }

    /// The clean-up is done: the slot is free and the handle counts no more.
    pub(crate) fn free(&mut self, slot: ClientSlot) {
        if let Some(record) = self.slots.get_mut(slot.index()) {
            *record = None;
        }
        self.closing &= !(1 << slot.number());
        self.last_close = false;
        self.end_open();
    }

    /// Whether `access` still occupies its slot.
    pub(crate) fn holds(&self, access: &Arc<Access>) -> bool {
        self.slots.iter().flatten().any(|record| Arc::ptr_eq(&record.access, access))
    }

    /// Every access ends at once (removal).
    pub(crate) fn revoke_all(&mut self) {
        self.slots.iter().flatten().for_each(|record| record.access.revoke());
    }

    /// Used slots in slot order; answers how many were written.
    pub(crate) fn list(&self, into: &mut [Option<ClientInfo>]) -> usize {
        let used = self.slots.iter().flatten();
        into.iter_mut()
            .zip(used)
            .map(|(info, record)| {
                *info = Some(ClientInfo {
                    slot: record.access.slot,
                    client: record.access.client,
                    handles: record.handles,
                    closing: record.phase == Phase::Closing,
                });
            })
            .count()
    }

    fn record(&mut self, slot: ClientSlot) -> Option<&mut Record> {
        self.slots.get_mut(slot.index())?.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn client(number: u32) -> ClientId {
        ClientId::new(number).unwrap()
    }

    /// Attaches; `None` where the table is full or the client must wait.
    fn enter(table: &mut Table, number: u32) -> Option<Arc<Access>> {
        match table.attach(client(number), Grants::ALL) {
            Ok(Attach::Fresh(access) | Attach::Again(access)) => Some(access),
            Ok(Attach::Wait) | Err(_) => None,
        }
    }

    #[test]
    fn the_lowest_free_slot_is_taken() {
        let mut table = Table::new();
        let first = enter(&mut table, 1).unwrap();
        let second = enter(&mut table, 2).unwrap();
        assert_eq!((first.slot().number(), second.slot().number()), (0, 1));
        assert!(table.detach(first.slot()));
        table.free(first.slot());
        assert_eq!(enter(&mut table, 3).unwrap().slot().number(), 0);
    }

    #[test]
    fn access_ends_with_the_last_handle() {
        let mut table = Table::new();
        let access = enter(&mut table, 1).unwrap();
        assert!(enter(&mut table, 1).is_some());
        assert!(!table.detach(access.slot()));
        assert_eq!(access.check(), Ok(()));
        assert!(table.detach(access.slot()));
        assert_eq!(access.check(), Err(ClientError::NotAttached));
        assert!(
            matches!(table.attach(client(1), Grants::ALL), Ok(Attach::Wait)),
            "clean-up is not over"
        );
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Enter(u32),
        Leave(usize),
        Free(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (1..24_u32).prop_map(Step::Enter),
            (0..16_usize).prop_map(Step::Leave),
            (0..16_usize).prop_map(Step::Free),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        /// The table against the obvious one: a list of (slot, client, handles, closing).
        #[test]
        fn it_behaves_like_a_list_of_rows(steps in steps()) {
            let mut table = Table::new();
            let mut rows: Vec<Option<(u32, u32)>> = alloc::vec![None; 16];
            for step in steps {
                match step {
                    Step::Enter(number) => {
                        let entered = enter(&mut table, number).map(|a| a.slot().index());
                        let known = rows.iter().position(|r| r.is_some_and(|r| r.0 == number));
                        let expected = match known {
                            Some(at) => rows[at].filter(|r| r.1 > 0).map(|_| at),
                            None => rows.iter().position(Option::is_none),
                        };
                        prop_assert_eq!(entered, expected);
                        if let Some(at) = expected {
                            rows[at].get_or_insert((number, 0)).1 += 1;
                        }
                    }
                    Step::Leave(at) => {
                        if let Some((_, handles @ 1..)) = &mut rows[at] {
                            *handles -= 1;
                            let slot = ClientSlot::new(at as u32).unwrap();
                            prop_assert_eq!(table.detach(slot), *handles == 0);
                        }
                    }
                    Step::Free(at) => {
                        if rows[at].is_some_and(|r| r.1 == 0) {
                            rows[at] = None;
                            table.free(ClientSlot::new(at as u32).unwrap());
                        }
                    }
                }
                let seen: Vec<_> = ClientSlot::all().map(|s| table.closing(s).is_some()).collect();
                let closing: Vec<_> = rows.iter().map(|r| r.is_some_and(|r| r.1 == 0)).collect();
                prop_assert_eq!(seen, closing);
            }
        }
    }
}
