//! The MiscRAM words of an election (specification 05 §16.2): where they are and what they say.

/// Offsets from the MiscRAM base.
pub mod offset {
    /// Firmware's number of the device.
    pub const DEVICE_ID: u32 = 0x24;
    /// Sizes of instance and partition (switched pods).
    pub const INSTANCE_PARTITION: u32 = 0x30;
    /// Serial number, low word; the high word follows.
    pub const SERIAL_LOW: u32 = 0x38;
    /// Serial number, high word.
    pub const SERIAL_HIGH: u32 = 0x3c;
    /// Server and rack (switched pods).
    pub const SERVER_RACK: u32 = 0x70;
    /// Reservation id, high word (switched pods).
    pub const RESERVATION_HIGH: u32 = 0x80;
    /// Reservation id, low word (switched pods).
    pub const RESERVATION_LOW: u32 = 0x84;
    /// What the device tells its neighbours: left value high and low, right value high and low.
    pub const NEIGHBOURS: u32 = 0x180;
    /// Status of the election.
    pub const ELECTION_STATUS: u32 = 0x190;
    /// Pod serial, high word.
    pub const POD_SERIAL_HIGH: u32 = 0x194;
    /// Pod serial, low word.
    pub const POD_SERIAL_LOW: u32 = 0x198;
}

/// What firmware shows while it has nothing to say.
pub(crate) const NOT_READY: u32 = 0xdead_beef;

/// Whether a word that is never zero has been written.
pub(crate) const fn is_written(word: u32) -> bool {
    word != 0 && word != NOT_READY
}

/// A 64-bit value out of two words.
pub(crate) const fn join(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// A 64-bit value as its high and low words.
pub(crate) const fn split(value: u64) -> [u32; 2] {
    [(value >> 32) as u32, value as u32]
}

/// The inter-node links that an election uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkMask(u8);

impl LinkMask {
    /// No link.
    pub const NONE: LinkMask = LinkMask(0);
    /// The left, or vertical, links.
    pub const LEFT: LinkMask = LinkMask(1);
    /// The right, or horizontal, links.
    pub const RIGHT: LinkMask = LinkMask(2);
    /// Both: a ring of four.
    pub const BOTH: LinkMask = LinkMask(3);

    /// Whether all links of `other` are among these.
    pub const fn contains(self, other: LinkMask) -> bool {
        self.0 & other.0 == other.0
    }

    /// Bits, as the status word has them.
    pub const fn bits(self) -> u8 {
        self.0
    }
}

/// Status byte of the election word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Standing {
    /// Nothing decided.
    Init = 0,
    /// No pod.
    Failure = 2,
    /// Vetted, or elected.
    Success = 3,
}

/// The election word at 0x190.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusWord {
    /// Where the election stands.
    pub standing: Standing,
    /// Links that were used.
    pub links: LinkMask,
    /// Node id; `None` is written as 0xff.
    pub node: Option<u8>,
    /// Nodes of the pod.
    pub count: u8,
}

impl StatusWord {
    /// An election begins, or there is none.
    pub const INIT: StatusWord = StatusWord::undecided(Standing::Init);
    /// The election failed.
    pub const FAILURE: StatusWord = StatusWord::undecided(Standing::Failure);
    /// The primary has vetted its neighbours; the result is not committed yet.
    pub const VETTED: StatusWord = StatusWord::undecided(Standing::Success);
    /// A secondary has vetted its neighbours.
    pub const SECONDARY: StatusWord =
        StatusWord { standing: Standing::Success, links: LinkMask::NONE, node: Some(0), count: 0 };

    const fn undecided(standing: Standing) -> Self {
        StatusWord { standing, links: LinkMask::NONE, node: None, count: 0 }
    }

    /// As the register has it.
    pub const fn encode(self) -> u32 {
        let node = match self.node {
            Some(node) => node,
            None => 0xff,
        };
        u32::from_le_bytes([self.standing as u8, self.links.0, node, self.count])
    }
}

/// Result of an election.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elected {
    /// Links that hold the pod together.
    pub links: LinkMask,
    /// Number of this node; `None` where a switched pod does not say.
    pub node: Option<u8>,
    /// Nodes of the pod.
    pub count: u8,
    /// Names the pod.
    pub serial: u64,
}

impl Elected {
    /// What the primary commits.
    pub const fn status_word(&self) -> StatusWord {
        StatusWord {
            standing: Standing::Success,
            links: self.links,
            node: self.node,
            count: self.count,
        }
    }

    /// A result that an earlier start has left, where it is coherent: a crash between placeholder
    /// and commit leaves a success without a node (ST-D40).
    pub fn cached(status: u32, serial: u64) -> Option<Elected> {
        let [standing, links, node, count] = status.to_le_bytes();
        let coherent = standing == Standing::Success as u8
            && matches!(count, 2 | 4)
            && node < count
            && matches!(links, 1..=3)
            && (count != 4 || links == 3);
        coherent.then_some(Elected { links: LinkMask(links), node: Some(node), count, serial })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_specification() {
        let elected = Elected { links: LinkMask::BOTH, node: Some(2), count: 4, serial: 10 };
        assert_eq!(elected.status_word().encode(), 0x0402_0303);
        let pair = Elected { links: LinkMask::RIGHT, node: Some(1), count: 2, serial: 10 };
        assert_eq!(pair.status_word().encode(), 0x0201_0203);
        assert_eq!(StatusWord::FAILURE.encode(), 0x00ff_0002);
        assert_eq!(StatusWord::VETTED.encode(), 0x00ff_0003);
        assert_eq!(StatusWord::SECONDARY.encode(), 0x0000_0003);
        assert_eq!(StatusWord::INIT.encode(), 0x00ff_0000);
    }

    #[test]
    fn st_d40_only_a_coherent_result_is_adopted() {
        let pair = Elected { links: LinkMask::RIGHT, node: Some(1), count: 2, serial: 7 };
        assert_eq!(Elected::cached(0x0201_0203, 7), Some(pair));
        assert!(Elected::cached(0x0402_0303, 7).is_some());
        for incoherent in [
            0x00ff_0003, // half-committed
            0x0402_0203, // four nodes on one side
            0x0301_0303, // three nodes
            0x0202_0103, // node 2 of two
            0x0201_0003, // no links
            0x0201_0403, // links that do not exist
            0x0201_0201, // deprecated success
            0x0201_0202,
            NOT_READY,
            u32::MAX,
            0,
        ] {
            assert_eq!(Elected::cached(incoherent, 7), None, "{incoherent:#x}");
        }
    }
}
