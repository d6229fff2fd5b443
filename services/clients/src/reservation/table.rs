//! Who owns which core of the host, as plain data (specification 05 §14).

use axon_ports::{ClientId, GlobalCore};

use super::{CoreSet, ReservationError};

/// What a client asks for. Core numbers count from the first core of the device it asks on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkRequest {
    /// Who asks.
    pub client: ClientId,
    /// First core of the device, of the host.
    pub base: u32,
    /// Cores wanted, in a row.
    pub count: u32,
    /// First core of the range to search.
    pub start: u32,
    /// Last core of the range to search.
    pub end: u32,
    /// The caller can only be told of cores below 64 (one-word form).
    pub one_word: bool,
}

pub(super) struct Table {
    owners: [Option<ClientId>; GlobalCore::COUNT],
    /// Most cores that a client may own.
    quota: u32,
}

impl Table {
    pub(super) const fn new(quota: u32) -> Self {
        Table { owners: [None; GlobalCore::COUNT], quota }
    }

    pub(super) fn count(&self) -> u32 {
        self.owners.iter().flatten().count() as u32
    }

    /// Owns the first run of free cores that is long enough.
    pub(super) fn mark(&mut self, request: &MarkRequest) -> Result<CoreSet, ReservationError> {
        let range = range(request)?;
        let owned = self.owned_by(request.client).count();
        let left = self.quota.saturating_sub(owned);
        if request.count > left {
            return Err(ReservationError::Quota { asked: request.count, left });
        }
        let run = self.find_run(range, request.count)?;
        run.iter().for_each(|core| self.set(core, Some(request.client)));
        Ok(run)
    }

    /// These cores belong to nobody.
    pub(super) fn free(&mut self, cores: &CoreSet) {
        cores.iter().for_each(|core| self.set(core, None));
    }

    pub(super) fn owned_by(&self, client: ClientId) -> CoreSet {
        let slots = GlobalCore::all().zip(&self.owners);
        slots.filter(|(_, owner)| **owner == Some(client)).map(|(core, _)| core).collect()
    }

    fn find_run(
        &self,
        range: core::ops::RangeInclusive<u32>,
        count: u32,
    ) -> Result<CoreSet, ReservationError> {
        let (mut run, mut longest) = (CoreSet::EMPTY, 0);
        for (core, owner) in GlobalCore::all().zip(&self.owners) {
            if !range.contains(&core.number()) {
                continue;
            }
            match owner {
                Some(_) => run = CoreSet::EMPTY,
                None => run.insert(core),
            }
            longest = longest.max(run.count());
            if longest == count {
                return Ok(run);
            }
        }
        Err(ReservationError::NoRun { asked: count, longest })
    }

    fn set(&mut self, core: GlobalCore, owner: Option<ClientId>) {
        if let Some(slot) = self.owners.get_mut(core.index()) {
            *slot = owner;
        }
    }
}

/// The range of a request, in cores of the host.
fn range(request: &MarkRequest) -> Result<core::ops::RangeInclusive<u32>, ReservationError> {
    let MarkRequest { base, count, start, end, one_word, .. } = *request;
    if count == 0 {
        return Err(ReservationError::NoCores);
    }
    let slot = |core: u32| core.checked_add(base).filter(|at| (*at as usize) < GlobalCore::COUNT);
    match (slot(start), slot(end)) {
        (Some(first), Some(last)) if first <= last && !(one_word && end >= 64) => Ok(first..=last),
        _ => Err(ReservationError::BadRange { start, end }),
    }
}
