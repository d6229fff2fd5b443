//! What clients see of a pod (specification 05 §16.7, §16.10; 08 §8.9.8).

use core::fmt;

use axon_platform::Errno;

use crate::config::PodKind;
use crate::modes::{Membership, Mode, membership, supported};
use crate::words::Elected;

/// State of a pod. The numbers are those of the Linux interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum PodState {
    /// An election is running, or has yet to run.
    InProgress = 1,
    /// The node is part of a pod.
    UltraServer = 2,
    /// The election failed: the node is alone.
    Failed = 3,
    /// The node is alone: by mode, or there are no pods here.
    SingleNode = 4,
}

impl PodState {
    /// The number that the commands report: they do not tell failure from a single node.
    pub const fn command_number(self) -> u32 {
        match self {
            PodState::Failed => PodState::SingleNode as u32,
            other => other as u32,
        }
    }

    /// `IN_PROGRESS`, `ULTRASERVER`, `FAILED` or `SINGLE_NODE`.
    pub const fn name(self) -> &'static str {
        match self {
            PodState::InProgress => "IN_PROGRESS",
            PodState::UltraServer => "ULTRASERVER",
            PodState::Failed => "FAILED",
            PodState::SingleNode => "SINGLE_NODE",
        }
    }
}

impl fmt::Display for PodState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What joins the nodes of a pod. The numbers are those of the Linux interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PodType {
    /// No pods here.
    None = 0,
    /// Links.
    PeerToPeer = 1,
    /// A switch.
    Switch = 2,
}

impl PodType {
    /// `NONE`, `P2P` or `SWITCH`.
    pub const fn name(self) -> &'static str {
        match self {
            PodType::None => "NONE",
            PodType::PeerToPeer => "P2P",
            PodType::Switch => "SWITCH",
        }
    }
}

impl fmt::Display for PodType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Everything that `POD_STATUS` and `POD_INFO` tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PodStatus {
    /// Where the pod stands.
    pub state: PodState,
    /// What joins its nodes.
    pub pod_type: PodType,
    /// What this node is in the mode that is set.
    pub membership: Membership,
    /// The mode that is set.
    pub mode: Mode,
    /// The OR of 1 << mode over the modes that can be set.
    pub modes_supported: u32,
    elected: Option<Elected>,
}

/// How far the pod is: input of [`PodStatus`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Open,
    Elected(Elected),
    Failed,
}

impl PodStatus {
    /// A host without pods: V2, and V3/V4 of standard type.
    pub const SINGLE: PodStatus = PodStatus {
        state: PodState::SingleNode,
        pod_type: PodType::None,
        membership: Membership { node: None, size: 0, serial: 0 },
        mode: Mode::Unset,
        modes_supported: 0,
        elected: None,
    };

    pub(crate) fn new(kind: PodKind, outcome: Outcome, mode: Mode) -> Self {
        let (state, elected) = match outcome {
            Outcome::Open => (PodState::InProgress, None),
            Outcome::Failed => (PodState::Failed, None),
            Outcome::Elected(elected) if mode == Mode::X1 => (PodState::SingleNode, Some(elected)),
            Outcome::Elected(elected) => (PodState::UltraServer, Some(elected)),
        };
        let pod_type = match kind {
            PodKind::Links => PodType::PeerToPeer,
            PodKind::Switch => PodType::Switch,
        };
        PodStatus {
            state,
            pod_type,
            membership: membership(mode, elected.as_ref()),
            mode,
            modes_supported: supported(elected.as_ref()),
            elected,
        }
    }

    /// Result of the status commands: they answer EBUSY during an election, with the record filled.
    pub const fn command_result(&self) -> Result<(), Errno> {
        match self.state {
            PodState::InProgress => Err(Errno::EBUSY),
            _ => Ok(()),
        }
    }

    /// Node id as the commands report it: −1 for none.
    pub const fn node_number(&self) -> i8 {
        match self.membership.node {
            Some(node) => node as i8,
            None => -1,
        }
    }

    /// The 256 bytes that name the pod: its serial, little-endian, then zeros.
    pub fn pod_id(&self) -> [u8; 256] {
        let mut id = [0; 256];
        id.iter_mut()
            .zip(self.membership.serial.to_le_bytes())
            .for_each(|(byte, serial)| *byte = serial);
        id
    }

    /// Whether the core map of this node is mirrored (01 §13.6).
    pub fn flips_dies(&self) -> bool {
        self.pod_type == PodType::PeerToPeer
            && self.state == PodState::UltraServer
            && matches!(self.membership.node, Some(1 | 3))
    }

    /// What class attributes show for pods of `size` nodes: 4, or 2.
    fn attribute_view(&self, size: u8) -> Membership {
        let can = |mode: Mode| self.modes_supported & 1 << mode as u32 != 0;
        let mode = match size {
            4 => Mode::X4,
            _ if can(Mode::X2H) => Mode::X2H,
            _ if can(Mode::X2V) => Mode::X2V,
            _ => Mode::X1,
        };
        membership(mode, self.elected.as_ref())
    }

    /// Class attribute `node_id_2` or `node_id_4`.
    pub fn node_id_attribute(&self, size: u8) -> NodeIdText {
        match self.state {
            PodState::InProgress => NodeIdText::Busy,
            _ => NodeIdText::Id(self.attribute_view(size).node),
        }
    }

    /// Class attribute `server_id_2` or `server_id_4`: printed as 16 hexadecimal digits.
    pub fn server_id_attribute(&self, size: u8) -> u64 {
        match self.state {
            PodState::InProgress => 0,
            _ => self.attribute_view(size).serial,
        }
    }

    /// Class attribute `ultraserver_mode`: the modes that can be set, as `1,3,4`.
    pub fn mode_attribute(&self) -> ModeList {
        match self.state {
            PodState::InProgress => ModeList::Busy,
            _ => ModeList::Modes(self.modes_supported),
        }
    }
}

impl PodStatus {
    /// Name and text of every class attribute of a host of this kind, in order. A host without pods
    /// shows those of one whose nodes are linked.
    pub fn class_attributes(&self, each: &mut dyn FnMut(&'static str, fmt::Arguments<'_>)) {
        let modes = self.mode_attribute();
        if self.pod_type == PodType::Switch {
            // assumed: as it is now, in whatever mode; the server id has 16 digits here too.
            let (node, size) = (self.membership.node, self.membership.size);
            match self.state {
                PodState::InProgress => each("node_id", format_args!("busy")),
                _ => each("node_id", format_args!("{}", NodeIdText::Id(node))),
            }
            match self.state {
                PodState::InProgress => each("node_cnt", format_args!("busy")),
                _ => each("node_cnt", format_args!("{size}")),
            }
            let serial = match self.state {
                PodState::InProgress => 0,
                _ => self.membership.serial,
            };
            each("reservation_id", format_args!("{serial:016x}"));
        } else {
            each("node_id_2", format_args!("{}", self.node_id_attribute(2)));
            each("node_id_4", format_args!("{}", self.node_id_attribute(4)));
            each("server_id_2", format_args!("{:016x}", self.server_id_attribute(2)));
            each("server_id_4", format_args!("{:016x}", self.server_id_attribute(4)));
        }
        each("ultraserver_mode", format_args!("{modes}"));
    }
}

/// Text of a node id attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeIdText {
    /// An election is running.
    Busy,
    /// The id, or none.
    Id(Option<u8>),
}

impl fmt::Display for NodeIdText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeIdText::Busy => f.write_str("busy"),
            NodeIdText::Id(Some(id)) => write!(f, "{id}"),
            NodeIdText::Id(None) => f.write_str("-1"),
        }
    }
}

/// Text of the mode attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModeList {
    /// An election is running.
    Busy,
    /// The OR of 1 << mode.
    Modes(u32),
}

impl fmt::Display for ModeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ModeList::Modes(modes) = self else { return f.write_str("busy") };
        let mut separator = "";
        for mode in Mode::SETTABLE.into_iter().filter(|mode| modes & 1 << *mode as u32 != 0) {
            write!(f, "{separator}{}", mode as u32)?;
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::ToString;

    use super::*;
    use crate::words::LinkMask;

    fn elected(links: LinkMask, node: u8, count: u8) -> Outcome {
        Outcome::Elected(Elected { links, node: Some(node), count, serial: 0xab })
    }

    #[test]
    fn the_columns_of_the_status_table() {
        let open = PodStatus::new(PodKind::Links, Outcome::Open, Mode::Unset);
        assert_eq!((open.state, open.command_result()), (PodState::InProgress, Err(Errno::EBUSY)));
        assert_eq!((open.node_number(), open.membership.size), (-1, 0));
        assert_eq!((open.modes_supported, open.pod_id()), (0x10, [0; 256]));

        let failed = PodStatus::new(PodKind::Links, Outcome::Failed, Mode::Unset);
        assert_eq!((failed.state, failed.state.command_number()), (PodState::Failed, 4));
        assert_eq!((failed.node_number(), failed.modes_supported), (-1, 0x10));

        let four = PodStatus::new(PodKind::Links, elected(LinkMask::BOTH, 2, 4), Mode::Unset);
        assert_eq!((four.state.command_number(), four.command_result()), (2, Ok(())));
        assert_eq!((four.node_number(), four.membership.size), (2, 4));
        assert_eq!((four.pod_id()[0], four.pod_id()[1..] == [0; 255]), (0xab, true));

        let alone = PodStatus::new(PodKind::Links, elected(LinkMask::BOTH, 2, 4), Mode::X1);
        assert_eq!((alone.state.command_number(), alone.node_number()), (4, -1));
    }

    #[test]
    fn api_e62_a_host_without_pods() {
        let single = PodStatus::SINGLE;
        assert_eq!(single.state.command_number(), 4);
        assert_eq!((single.node_number(), single.membership.size), (-1, 0));
        assert_eq!((single.pod_type as u8, single.modes_supported), (0, 0));
        assert_eq!(single.command_result(), Ok(()));
    }

    #[test]
    fn each_kind_of_pod_has_its_class_attributes() {
        let all = |status: &PodStatus| {
            let mut all = std::string::String::new();
            status.class_attributes(&mut |name, text| all.push_str(&format!("{name}={text};")));
            all
        };
        assert_eq!(
            all(&PodStatus::SINGLE),
            "node_id_2=-1;node_id_4=-1;server_id_2=0000000000000000;server_id_4=0000000000000000;\
             ultraserver_mode=;"
        );
        let open = PodStatus::new(PodKind::Links, Outcome::Open, Mode::Unset);
        assert!(all(&open).starts_with("node_id_2=busy;node_id_4=busy;"), "{}", all(&open));
        let four = PodStatus::new(PodKind::Links, elected(LinkMask::BOTH, 2, 4), Mode::Unset);
        assert!(all(&four).ends_with("server_id_4=00000000000000ab;ultraserver_mode=1,3,4;"));
        let switched = PodStatus::new(PodKind::Switch, elected(LinkMask::BOTH, 1, 2), Mode::Unset);
        assert!(
            all(&switched).starts_with("node_id=1;node_cnt=2;reservation_id=00000000000000ab;")
        );
    }

    #[test]
    fn class_attributes() {
        let text = |status: &PodStatus| {
            format!(
                "{} {} {:016x} {:016x} {}",
                status.node_id_attribute(2),
                status.node_id_attribute(4),
                status.server_id_attribute(2),
                status.server_id_attribute(4),
                status.mode_attribute()
            )
        };
        let open = PodStatus::new(PodKind::Links, Outcome::Open, Mode::Unset);
        assert_eq!(text(&open), "busy busy 0000000000000000 0000000000000000 busy");
        let four = PodStatus::new(PodKind::Links, elected(LinkMask::BOTH, 2, 4), Mode::Unset);
        assert_eq!(text(&four), "0 2 00000000000000aa 00000000000000ab 1,3,4");
        let right = PodStatus::new(PodKind::Links, elected(LinkMask::RIGHT, 1, 2), Mode::X1);
        assert_eq!(text(&right), "1 -1 00000000000000ab 0000000000000000 2,4");
        let failed = PodStatus::new(PodKind::Links, Outcome::Failed, Mode::Unset);
        assert_eq!(text(&failed), "-1 -1 0000000000000000 0000000000000000 4");
        assert_eq!(PodStatus::SINGLE.mode_attribute().to_string(), "");
    }

    #[test]
    fn dies_flip_on_odd_nodes_of_an_ultraserver_only() {
        for node in 0..4 {
            let in_mode = |kind, mode| {
                PodStatus::new(kind, elected(LinkMask::BOTH, node, 4), mode).flips_dies()
            };
            assert_eq!(in_mode(PodKind::Links, Mode::Unset), node % 2 == 1);
            assert!(!in_mode(PodKind::Switch, Mode::Unset));
            assert!(!in_mode(PodKind::Links, Mode::X1));
        }
    }
}
