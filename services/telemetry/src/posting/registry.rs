//! The rows of a post in their order (specification 07 §5.4).
//!
//! The row "dynamic bitmap" of Linux, posted id 0, is left out: it is never to be posted (TEL-D09).

use super::version::Component;
use crate::CoreCounter;

/// Ticks alternate between two bands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Band {
    /// First tick, then every other.
    Zero = 0,
    /// The ticks between.
    One = 1,
}

impl Band {
    /// Both, in order.
    pub const ALL: [Band; 2] = [Band::Zero, Band::One];

    /// The other one.
    pub const fn other(self) -> Band {
        match self {
            Band::Zero => Band::One,
            Band::One => Band::Zero,
        }
    }

    /// 0 or 1.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Fixed texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Constant {
    InstanceId,
    DriverVersion,
    Profile,
}

/// Device counters posted as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    ClusterId = 0,
    NeffId = 1,
}

/// Reset figures, kept for the two scopes of a reset: 0 device, 1 core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ResetFigure {
    Longest(usize),
    Average(usize),
    Failures(usize),
}

/// Where a row's value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    Constant(Constant),
    Version(Component),
    Counter(CoreCounter),
    FirmwareErrors,
    HbmErrors { repairable: bool },
    Utilisation,
    Features,
    Word(Word),
    Reset(ResetFigure),
    PodSupported,
    PodMode,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub id: u8,
    /// `None`: in every tick.
    pub band: Option<Band>,
    pub source: Source,
}

/// How many rows there are.
pub(super) const ROWS: usize = REGISTRY.len();

const fn always(id: u8, source: Source) -> Row {
    Row { id, band: None, source }
}

const fn zero(id: u8, source: Source) -> Row {
    Row { id, band: Some(Band::Zero), source }
}

const fn one(id: u8, source: Source) -> Row {
    Row { id, band: Some(Band::One), source }
}

use Source::{
    Constant as Text, Counter, Features, FirmwareErrors, HbmErrors, PodMode, PodSupported, Reset,
    Utilisation, Version,
};

/// All rows in the order in which they are posted.
pub(super) const REGISTRY: &[Row] = &[
    always(12, Text(Constant::InstanceId)),
    always(13, Text(Constant::DriverVersion)),
    zero(56, Text(Constant::Profile)),
    always(180, Version(Component::Runtime)),
    one(190, Version(Component::Framework)),
    one(195, Version(Component::Fal)),
    zero(200, Counter(CoreCounter::INFER_COMPLETED)),
    zero(201, Counter(CoreCounter::GENERIC_FAIL)),
    zero(205, Counter(CoreCounter::INFER_TIMED_OUT)),
    zero(212, Counter(CoreCounter::INFER_INCORRECT_INPUT)),
    zero(215, Counter(CoreCounter::ERR_NUMERICAL)),
    zero(216, Counter(CoreCounter::ERR_MODEL)),
    zero(217, Counter(CoreCounter::ERR_TRANSIENT)),
    zero(206, Counter(CoreCounter::ERR_HW)),
    zero(218, Counter(CoreCounter::ERR_RT)),
    zero(214, Counter(CoreCounter::INFER_COMPLETED_WITH_ERR)),
    zero(213, Counter(CoreCounter::INFER_COMPLETED_WITH_NUM_ERR)),
    zero(219, Counter(CoreCounter::ERR_GENERIC)),
    zero(204, Counter(CoreCounter::ERR_RESOURCE)),
    zero(208, Counter(CoreCounter::ERR_RESOURCE_NC)),
    zero(207, Counter(CoreCounter::INFER_FAILED_TO_QUEUE)),
    zero(202, Counter(CoreCounter::ERR_INVALID)),
    zero(209, Counter(CoreCounter::ERR_UNSUPPORTED_NEFF_VERSION)),
    zero(11, FirmwareErrors),
    zero(220, Counter(CoreCounter::OOB)),
    one(221, Counter(CoreCounter::HW_ERR_COLLECTIVES)),
    one(222, HbmErrors { repairable: false }),
    one(223, Counter(CoreCounter::HW_ERR_NC_UE)),
    one(224, Counter(CoreCounter::HW_ERR_DMA_ABORT)),
    one(253, Counter(CoreCounter::ERR_SW_NQ_OVERFLOW)),
    one(225, Counter(CoreCounter::ERR_SW_SEMAPHORE_ERROR)),
    one(226, Counter(CoreCounter::ERR_SW_EVENT_ERROR)),
    one(227, Counter(CoreCounter::ERR_SW_PSUM_COLLISION)),
    one(228, Counter(CoreCounter::ERR_SW_SEQUENCER_FATAL)),
    one(229, HbmErrors { repairable: true }),
    one(90, Utilisation),
    one(250, Features),
    one(252, Source::Word(Word::ClusterId)),
    one(80, Source::Word(Word::NeffId)),
    one(50, Reset(ResetFigure::Longest(0))),
    one(51, Reset(ResetFigure::Longest(1))),
    one(52, Reset(ResetFigure::Average(0))),
    one(53, Reset(ResetFigure::Average(1))),
    one(54, Reset(ResetFigure::Failures(0))),
    one(55, Reset(ResetFigure::Failures(1))),
    one(57, PodSupported),
    one(58, PodMode),
];

/// First posted id of every row, in order.
pub const POSTED_IDS: [u8; ROWS] = {
    let mut ids = [0; ROWS];
    let mut at = 0;
    while at < ROWS {
        ids[at] = REGISTRY[at].id;
        at += 1;
    }
    ids
};

/// A set of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct RowSet(u64);

impl RowSet {
    pub(super) fn contains(self, row: usize) -> bool {
        self.0 & 1 << row != 0
    }

    pub(super) fn put(&mut self, row: usize, member: bool) {
        if member {
            self.0 |= 1 << row;
        } else {
            self.0 &= !(1 << row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_47_rows_with_ids_of_their_own() {
        // 48 in 2.27.4, one of which is never posted.
        assert_eq!(ROWS, 47);
        for (at, id) in POSTED_IDS.iter().enumerate() {
            assert!(!POSTED_IDS[..at].contains(id), "{id}");
        }
    }

    #[test]
    fn tel_d09_id_0_and_reserved_ids_are_never_posted() {
        for id in [0, 203, 210, 211, 251] {
            assert!(!POSTED_IDS.contains(&id));
        }
    }

    #[test]
    fn bands_have_the_ids_of_the_specification() {
        let band = |id| REGISTRY.iter().find(|row| row.id == id).map(|row| row.band);
        assert_eq!(band(253), Some(Some(Band::One)));
        assert_eq!(band(220), Some(Some(Band::Zero)));
        assert_eq!(band(180), Some(None));
        let zero = REGISTRY.iter().filter(|row| row.band == Some(Band::Zero)).count();
        assert_eq!(zero, 20);
    }
}
