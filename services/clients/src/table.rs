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

    fn has_touched_nothing(&self) -> bool {
        self.touched.load(Ordering::Acquire) == 0
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

/// One slot. A client that left leaves its access to the next one, unless somebody still holds it.
struct Place {
    access: Option<Arc<Access>>,
    /// Of the client that is in it; the last one counts until the clean-up is over.
    handles: u32,
}

/// What one handle less came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// The client has others.
    Others,
    /// It was the last: the client's clean-up is due.
    Closing,
    /// It was the last, and nothing was to be cleaned up: the slot is free.
    Free,
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
    places: [Place; ClientSlot::COUNT],
    open_count: u32,
    /// Slots with a client, as a mask.
    used: u32,
    /// Those of them whose client has no handle left: the clean-up runs or is about to.
    closing: u32,
    /// Some client that has left since the last last close may have left memory or counters.
    left_something: bool,
    /// All-clients memory is being freed: a client let in now could lose its own to that.
    last_close: bool,
}

impl Table {
    pub(crate) const fn new() -> Self {
        Table {
            places: [const { Place { access: None, handles: 0 } }; ClientSlot::COUNT],
            open_count: 0,
            used: 0,
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
        let known = self.accesses().find(|access| access.client == client).map(|a| a.slot);
        if let Some(slot) = known {
            if self.closing & bit(slot) != 0 {
                return Ok(Attach::Wait);
            }
            let place = self.places.get_mut(slot.index()).ok_or(ClientError::TooManyClients)?;
            place.handles += 1;
            return Ok(place.access.clone().map_or(Attach::Wait, Attach::Again));
        }
        let slot = ClientSlot::new(self.used.trailing_ones());
        let (Some(slot), places) = (slot, &mut self.places) else {
            return Err(ClientError::TooManyClients);
        };
        let place = places.get_mut(slot.index()).ok_or(ClientError::TooManyClients)?;
        let access = renewed(place.access.take(), Access::new(client, slot, grants));
        *place = Place { access: Some(access.clone()), handles: 1 };
        self.used |= bit(slot);
        Ok(Attach::Fresh(access))
    }

    /// One handle less. The last one revokes the access, and frees the slot where nothing is to be
    /// cleaned up.
    pub(crate) fn detach(&mut self, slot: ClientSlot) -> Left {
        let is_last = self.open_count == 1;
        let Some(place) = self.places.get_mut(slot.index()) else { return Left::Others };
        if place.handles > 1 {
            place.handles -= 1;
            self.end_open();
            return Left::Others;
        }
        let Some(access) = &place.access else { return Left::Others };
        access.close();
        // Looked at behind the revocation: what a call notes from now on is refused to it.
        if access.has_touched_nothing() && !(is_last && self.left_something) {
            self.vacate(slot);
            return Left::Free;
        }
        self.closing |= bit(slot);
        Left::Closing
    }

    /// Slots that wait for their clean-up, as a mask.
    pub(crate) fn closing_slots(&self) -> u32 {
        self.closing
    }

    /// The client whose slot waits for its clean-up.
    pub(crate) fn closing(&self, slot: ClientSlot) -> Option<&Arc<Access>> {
        let place = self.places.get(slot.index())?;
        place.access.as_ref().filter(|_| self.closing & bit(slot) != 0)
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

    /// An open that counted was given up; answers whether it was the last thing in the way of a last
    /// close.
    pub(crate) fn give_up_open(&mut self) -> bool {
        self.end_open();
        self.open_count == 0 && self.left_something
    }

    /// As [`Table::begin_last_close`], where nobody is left to do it with; until
    /// [`Table::end_last_close`].
    pub(crate) fn begin_late_close(&mut self) -> bool {
        let is_due = self.open_count == 0 && self.left_something && !self.last_close;
        if is_due {
            (self.left_something, self.last_close) = (false, true);
        }
        is_due
    }

    /// Whoever waited may enter.
    pub(crate) fn end_last_close(&mut self) {
        self.last_close = false;
    }

    /// No clean-up is under way.
    pub(crate) fn is_settled(&self) -> bool {
        self.closing == 0 && !self.last_close
    }

    /// The clean-up is done: the slot is free and the handle counts no more.
    pub(crate) fn free(&mut self, slot: ClientSlot) {
        self.closing &= !bit(slot);
        self.last_close = false;
        self.vacate(slot);
    }

    fn vacate(&mut self, slot: ClientSlot) {
        if let Some(place) = self.places.get_mut(slot.index()) {
            place.handles = 0;
        }
        self.used &= !bit(slot);
        self.end_open();
    }

    /// Whether `access` still occupies its slot.
    pub(crate) fn holds(&self, access: &Arc<Access>) -> bool {
        self.accesses().any(|held| Arc::ptr_eq(held, access))
    }

    /// Every access ends at once (removal).
    pub(crate) fn revoke_all(&mut self) {
        self.accesses().for_each(|access| access.revoke());
    }

    /// Used slots in slot order; answers how many were written.
    pub(crate) fn list(&self, into: &mut [Option<ClientInfo>]) -> usize {
        into.iter_mut()
            .zip(self.used_places())
            .map(|(info, (slot, place))| {
                *info = place.access.as_ref().map(|access| ClientInfo {
                    slot,
                    client: access.client,
                    handles: place.handles,
                    closing: self.closing & bit(slot) != 0,
                });
            })
            .count()
    }

    fn accesses(&self) -> impl Iterator<Item = &Arc<Access>> {
        self.used_places().filter_map(|(_, place)| place.access.as_ref())
    }

    fn used_places(&self) -> impl Iterator<Item = (ClientSlot, &Place)> {
        let mut left = self.used;
        core::iter::from_fn(move || {
            let slot = ClientSlot::new(left.trailing_zeros())?;
            left &= left - 1;
            Some((slot, self.places.get(slot.index())?))
        })
    }
}

fn bit(slot: ClientSlot) -> u32 {
    1 << slot.number()
}

/// `access` in the place of one that nobody holds any more, or in a new one.
fn renewed(spare: Option<Arc<Access>>, access: Access) -> Arc<Access> {
    let Some(mut spare) = spare else { return Arc::new(access) };
    match Arc::get_mut(&mut spare) {
        Some(place) => {
            *place = access;
            spare
        }
        None => Arc::new(access),
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
        assert_eq!(table.detach(first.slot()), Left::Free);
        assert_eq!(enter(&mut table, 3).unwrap().slot().number(), 0);
    }

    #[test]
    fn access_ends_with_the_last_handle() {
        let mut table = Table::new();
        let access = enter(&mut table, 1).unwrap();
        access.touch(Touched::Cores);
        assert!(enter(&mut table, 1).is_some());
        assert_eq!(table.detach(access.slot()), Left::Others);
        assert_eq!(access.check(), Ok(()));
        assert_eq!(table.detach(access.slot()), Left::Closing);
        assert_eq!(access.check(), Err(ClientError::NotAttached));
        assert!(
            matches!(table.attach(client(1), Grants::ALL), Ok(Attach::Wait)),
            "clean-up is not over"
        );
    }

    #[test]
    fn an_access_is_used_again_only_where_nobody_holds_it() {
        let mut table = Table::new();
        let first = enter(&mut table, 1).unwrap();
        table.detach(first.slot());
        let second = enter(&mut table, 2).unwrap();
        assert_eq!(first.check(), Err(ClientError::NotAttached), "held: stays what it was");
        assert_eq!((first.client(), second.client()), (client(1), client(2)));

        let place = Arc::as_ptr(&second);
        table.detach(second.slot());
        drop(second);
        let third = enter(&mut table, 3).unwrap();
        assert_eq!(Arc::as_ptr(&third), place);
        assert_eq!((third.client(), third.check()), (client(3), Ok(())));
        assert!(!third.has_touched(Touched::Transfers));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// A client comes, and uses something or nothing.
        Enter(u32, bool),
        Leave(usize),
        /// Its clean-up is over, and may have left something to all clients.
        Free(usize, bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (1..24_u32, any::<bool>()).prop_map(|(client, uses)| Step::Enter(client, uses)),
            (0..16_usize).prop_map(Step::Leave),
            (0..16_usize, any::<bool>()).prop_map(|(at, leaves)| Step::Free(at, leaves)),
        ];
        proptest::collection::vec(step, 0..200)
    }

    /// A client as the obvious table has it: a row of a list.
    #[derive(Clone, Copy)]
    struct Row {
        client: u32,
        /// 0 while it is cleaned up after.
        handles: u32,
        used_something: bool,
    }

    proptest! {
        /// The table against a list of rows.
        #[test]
        fn it_behaves_like_a_list_of_rows(steps in steps()) {
            let mut table = Table::new();
            let mut rows: Vec<Option<Row>> = alloc::vec![None; 16];
            let mut left_something = false;
            for step in steps {
                // Who is being cleaned up after counts as one.
                let open: u32 = rows.iter().flatten().map(|row| row.handles.max(1)).sum();
                prop_assert_eq!(table.open_count(), open);
                match step {
                    Step::Enter(number, uses) => {
                        let entered = enter(&mut table, number);
                        let known = rows.iter().position(|r| r.is_some_and(|r| r.client == number));
                        let expected = match known {
                            Some(at) => rows[at].filter(|row| row.handles > 0).map(|_| at),
                            None => rows.iter().position(Option::is_none),
                        };
                        prop_assert_eq!(entered.as_ref().map(|a| a.slot().index()), expected);
                        if let (Some(at), Some(access)) = (expected, entered) {
                            prop_assert_eq!(access.client(), client(number));
                            prop_assert_eq!(access.check(), Ok(()));
                            table.begin_open();
                            let new = Row { client: number, handles: 0, used_something: false };
                            let row = rows[at].get_or_insert(new);
                            prop_assert_eq!(access.has_touched_nothing(), !row.used_something);
                            row.handles += 1;
                            if uses {
                                row.used_something = true;
                                access.touch(Touched::Cores);
                            }
                        }
                    }
                    Step::Leave(at) => {
                        let Some(row) = rows[at].as_mut().filter(|row| row.handles > 0) else {
                            continue;
                        };
                        row.handles -= 1;
                        let is_due = row.used_something || (open == 1 && left_something);
                        let expected = match (row.handles, is_due) {
                            (1.., _) => Left::Others,
                            (0, true) => Left::Closing,
                            (0, false) => Left::Free,
                        };
                        if expected == Left::Free {
                            rows[at] = None;
                        }
                        prop_assert_eq!(table.detach(ClientSlot::new(at as u32).unwrap()), expected);
                    }
                    Step::Free(at, leaves) => {
                        if rows[at].is_some_and(|row| row.handles == 0) {
                            rows[at] = None;
                            if leaves {
                                table.leaves_something();
                            }
                            left_something |= leaves;
                            let last = table.begin_last_close();
                            prop_assert_eq!(last, open == 1 && left_something);
                            left_something &= !last;
                            table.free(ClientSlot::new(at as u32).unwrap());
                        }
                    }
                }
                let seen: Vec<_> = ClientSlot::all().map(|s| table.closing(s).is_some()).collect();
                let closing: Vec<_> =
                    rows.iter().map(|row| row.is_some_and(|row| row.handles == 0)).collect();
                prop_assert_eq!(seen, closing);
            }
        }
    }
}
