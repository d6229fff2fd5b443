//! Every message of the memory task: request, reply, errors, whether it may be repeated
//! (specification 04 §8.2). No message waits for anything but its turn.
//!
//! | request | reply | errors | repeat |
//! |---|---|---|---|
//! | `Alloc` | chunk | 04 §4.1, no memory, handle table down | makes another |
//! | `AllocMany` | count | of the first that failed; then none is kept | makes more |
//! | `Free` | done | bad handle, wrong owner, forbidden | bad handle |
//! | `FreeMany` | count freed | of the first that failed; earlier ones are freed | bad handle |
//! | `Retain` | chunk | gone, too many references | counts again |
//! | `RetainHandle` | done | bad handle, wrong owner, too many references | counts again |
//! | `PinnedBytes` | bytes | – | same answer |
//! | `Publish` | handle | gone, handle table down | the same handle |
//! | `SearchPa` | facts and handle | no such address, forbidden, table down | same answer |
//! | `Within` | pin | no such address, out of bounds | another pin |
//! | `MapWindow`, `MapSpecial` | window | bad cookie or size, forbidden, no room | another window |
//! | `Placement` | what is there | no window | same answer |
//! | `Export`, `Register` | value | no window, bad size | another one |
//! | `ValidateHost` | pins | not the client's host memory | other pins |
//! | `BeginScrub` | range | bad channel, busy | busy |
//! | `Attach` | done | slot taken | nothing |
//! | `Detach` | done, when all its chunks are swept | not attached | not attached |
//! | `LastClientGone` | done, when swept | – | nothing |
//! | `Dump`, `DumpHost` | lines | room too small | same answer |
//! | `Usage` | figures | – | same answer |
//! | `Faults` | done | – | arms again |
//! | `Shutdown` | report | – | gone |
//!
//! A request whose asker has gone is carried out all the same, except for allocations; whatever its
//! reply carries is given back. Every request answers "gone" once the task has ended.

use alloc::sync::Arc;
use alloc::vec::Vec;

use axon_ports::{Chunk, ChunkName, ClientId, ClientSlot, MemoryError, Pin};

use crate::batch::BatchShared;
use crate::exports::{Export, Peer, Registration};
use crate::faults::Faults;
use crate::set::{ChunkInfo, ChunkLine, ScrubRange, ShutdownReport, Usage};
use crate::windows::{Shown, SpecialBlock, Window};

/// What the task can be asked, besides an allocation, which is an
/// [`AllocRequest`](axon_ports::AllocRequest).
pub(crate) enum Request {
    /// No request; of an empty slot.
    Nothing,
    AllocMany(Arc<BatchShared>),
    Free {
        client: Option<ClientId>,
        handle: u64,
    },
    FreeMany {
        client: Option<ClientId>,
        batch: Arc<BatchShared>,
    },
    Retain(ChunkName),
    RetainHandle {
        client: Option<ClientId>,
        handle: u64,
    },
    PinnedBytes(ClientSlot),
    Publish(ChunkName),
    SearchPa {
        pa: u64,
        publish: bool,
    },
    Within {
        pa: u64,
        len: u64,
    },
    MapWindow {
        client: ClientId,
        cookie: u64,
        size: u64,
    },
    MapSpecial {
        client: ClientId,
        block: SpecialBlock,
    },
    Placement {
        client: ClientId,
        address: u64,
    },
    Export {
        client: ClientId,
        address: u64,
        size: u64,
    },
    Register {
        client: ClientId,
        address: u64,
        size: u64,
        peer: Arc<dyn Peer>,
    },
    ValidateHost {
        client: ClientId,
        ranges: Vec<(u64, u64)>,
    },
    BeginScrub {
        client: ClientId,
        channel: u32,
    },
    Attach {
        client: ClientId,
        slot: ClientSlot,
    },
    Detach {
        client: ClientId,
        slot: ClientSlot,
    },
    LastClientGone,
    Dump {
        channel: u32,
        capacity: usize,
    },
    DumpHost {
        capacity: usize,
    },
    Usage,
    Faults(Faults),
    Shutdown,
}

impl Request {
    /// Whether it is not worth doing for an asker that has gone.
    pub(crate) fn is_allocation(&self) -> bool {
        matches!(self, Request::Nothing | Request::AllocMany(_))
    }
}

/// What it answers.
pub(crate) enum Reply {
    /// No reply yet; of an empty slot.
    Nothing,
    Chunk(Result<Chunk, MemoryError>),
    Done(Result<(), MemoryError>),
    Count(Result<usize, MemoryError>),
    Number(Result<u64, MemoryError>),
    Info(Result<ChunkInfo, MemoryError>),
    Pin(Result<Pin, MemoryError>),
    Lines(Result<Vec<ChunkLine>, MemoryError>),
    Window(Result<Window, MemoryError>),
    Shown(Result<Shown, MemoryError>),
    Export(Result<Export, MemoryError>),
    Registration(Result<Registration, MemoryError>),
    Pins(Result<Vec<Pin>, MemoryError>),
    Scrub(Result<ScrubRange, MemoryError>),
    Usage(Result<Usage, MemoryError>),
    Report(Result<ShutdownReport, MemoryError>),
    Gone,
}

/// A type that one kind of reply carries.
pub(crate) trait FromReply: Sized {
    fn from_reply(reply: Reply) -> Result<Self, MemoryError>;
}

macro_rules! from_reply {
    ($($variant:ident => $kind:ty;)*) => {
        $(impl FromReply for $kind {
            fn from_reply(reply: Reply) -> Result<Self, MemoryError> {
                match reply {
                    Reply::$variant(result) => result,
                    _ => Err(MemoryError::Gone),
                }
            }
        })*
    };
}

from_reply! {
    Chunk => Chunk;
    Done => ();
    Count => usize;
    Number => u64;
    Info => ChunkInfo;
    Pin => Pin;
    Lines => Vec<ChunkLine>;
    Window => Window;
    Shown => Shown;
    Export => Export;
    Registration => Registration;
    Pins => Vec<Pin>;
    Scrub => ScrubRange;
    Usage => Usage;
    Report => ShutdownReport;
}
