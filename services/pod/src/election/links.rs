//! The open links of one device during one attempt, and the three things that are read over them.

use axon_platform::Clock;

use super::Election;
use crate::config::ControlBits;
use crate::error::ElectionError;
use crate::wires::{Lane, NeighbourWords, OwnWords, PodDevice, Side, WireError};
use crate::words::{LinkMask, NOT_READY, Standing, is_written, join, offset};

/// One value for each side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sides<T> {
    pub(super) left: T,
    pub(super) right: T,
}

impl<T> Sides<T> {
    fn get_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::Left => &mut self.left,
            Side::Right => &mut self.right,
        }
    }

    fn map<U>(self, map: impl Fn(T) -> U) -> Sides<U> {
        Sides { left: map(self.left), right: map(self.right) }
    }
}

/// What a neighbour tells: a primary its own two neighbours, a secondary its number, twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Told {
    pub(super) left: u64,
    pub(super) right: u64,
}

/// Two links of one side.
struct Pair<S> {
    first: Option<S>,
    second: Option<S>,
}

impl<S> Pair<S> {
    const CLOSED: Self = Pair { first: None, second: None };

    fn lane(&mut self, lane: Lane) -> &mut Option<S> {
        match lane {
            Lane::First => &mut self.first,
            Lane::Second => &mut self.second,
        }
    }
}

/// Open links. They are closed by [`Election::close_links`]; dropped, they are given back later.
pub(super) struct Links<S> {
    device: PodDevice,
    pub(super) mask: LinkMask,
    pairs: Sides<Pair<S>>,
}

impl<S> Links<S> {
    /// The active sides.
    pub(super) fn sides(&self) -> impl Iterator<Item = Side> + use<S> {
        let mask = self.mask;
        Side::ALL.into_iter().filter(move |side| mask.contains(side.links()))
    }

    /// The active sides with what the neighbour there told.
    pub(super) fn each(&self, told: Sides<Told>) -> impl Iterator<Item = (Side, Told)> + use<S> {
        self.sides().map(move |side| match side {
            Side::Left => (side, told.left),
            Side::Right => (side, told.right),
        })
    }
}

/// What is read, until every active neighbour shows it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Who the neighbour is; both links must show the same.
    Serial,
    /// What it tells.
    Told,
    /// What it has decided; anything but success ends the attempt.
    Standing,
}

impl Look {
    const fn offset(self) -> u32 {
        match self {
            Look::Serial => offset::SERIAL_LOW,
            Look::Told => offset::NEIGHBOURS,
            Look::Standing => offset::ELECTION_STATUS,
        }
    }

    const fn words(self) -> usize {
        match self {
            Look::Serial => 2,
            Look::Told => 4,
            Look::Standing => 1,
        }
    }

    /// Whether the neighbour is as far as that.
    const fn is_there(self, words: [u32; 4], mask: LinkMask) -> bool {
        let [first, left_low, _, right_low] = words;
        match self {
            Look::Serial => is_written(first),
            // The last word that the neighbour writes; alone on the left it has no right one.
            Look::Told if mask.contains(LinkMask::RIGHT) => is_written(right_low),
            Look::Told => is_written(left_low),
            // The whole word first: what is not ready has no status byte (ST-D49).
            Look::Standing => first != NOT_READY && first as u8 != Standing::Init as u8,
        }
    }
}

impl<W: OwnWords + NeighbourWords, C: Clock> Election<'_, W, C> {
    /// Opens both links of every active side; on failure none stays open.
    ///
    /// assumed: sides that the attempt does not use are left alone.
    pub(super) async fn open_links(
        &self,
        device: PodDevice,
        mask: LinkMask,
    ) -> Result<Links<W::Session>, ElectionError> {
        let pairs = Sides { left: Pair::CLOSED, right: Pair::CLOSED };
        let mut links = Links { device, mask, pairs };
        for side in links.sides() {
            for lane in Lane::ALL {
                match self.words.open(device, side, lane).await {
                    Ok(session) => *links.pairs.get_mut(side).lane(lane) = Some(session),
                    Err(error) => {
                        self.close_links(links).await;
                        return Err(ElectionError::Wire { device, side: Some(side), error });
                    }
                }
            }
        }
        Ok(links)
    }

    pub(super) async fn close_links(&self, links: Links<W::Session>) {
        let Sides { left, right } = links.pairs;
        for session in [left.first, left.second, right.first, right.second].into_iter().flatten() {
            self.words.close(session).await;
        }
    }

    /// Serial phase: the active neighbours' serial numbers.
    pub(super) async fn neighbour_serials(
        &mut self,
        links: &mut Links<W::Session>,
    ) -> Result<Sides<u64>, ElectionError> {
        let words = self.gather(links, Look::Serial).await?;
        Ok(words.map(|[low, high, ..]| join(high, low)))
    }

    /// Data phase: what the active neighbours tell.
    pub(super) async fn neighbours_told(
        &mut self,
        links: &mut Links<W::Session>,
    ) -> Result<Sides<Told>, ElectionError> {
        let words = self.gather(links, Look::Told).await?;
        Ok(words.map(|[left_high, left_low, right_high, right_low]| Told {
            left: join(left_high, left_low),
            right: join(right_high, right_low),
        }))
    }

    /// Status phase: all active neighbours are content.
    pub(super) async fn neighbours_agree(
        &mut self,
        links: &mut Links<W::Session>,
    ) -> Result<(), ElectionError> {
        self.gather(links, Look::Standing).await?;
        Ok(())
    }

    /// Looks at all active neighbours in turn until each has shown it; a failure on any side ends
    /// the wait for the other. Inactive sides give zeros.
    async fn gather(
        &mut self,
        links: &mut Links<W::Session>,
        look: Look,
    ) -> Result<Sides<[u32; 4]>, ElectionError> {
        let mut seen = Sides::<Option<[u32; 4]>>::default();
        loop {
            let mut complete = true;
            for side in links.sides() {
                if seen.get_mut(side).is_none() {
                    *seen.get_mut(side) = self.look_once(links, side, look).await?;
                    complete &= seen.get_mut(side).is_some();
                }
            }
            if complete {
                return Ok(seen.map(Option::unwrap_or_default));
            }
            self.pause().await?;
        }
    }

    /// `None` while the neighbour is not as far as that.
    async fn look_once(
        &self,
        links: &mut Links<W::Session>,
        side: Side,
        look: Look,
    ) -> Result<Option<[u32; 4]>, ElectionError> {
        let first = self.read_link(links, side, Lane::First, look).await?;
        let mut there = look.is_there(first, links.mask);
        if look == Look::Serial {
            let second = self.read_link(links, side, Lane::Second, look).await?;
            there &= look.is_there(second, links.mask);
            if there && first != second {
                return Err(ElectionError::LinksDisagree { device: links.device, side });
            }
        }
        if there && look == Look::Standing && first[0] as u8 != Standing::Success as u8 {
            return Err(ElectionError::NeighbourFailed { side });
        }
        Ok(there.then_some(first))
    }

    async fn read_link(
        &self,
        links: &mut Links<W::Session>,
        side: Side,
        lane: Lane,
        look: Look,
    ) -> Result<[u32; 4], ElectionError> {
        let fault = match side {
            Side::Left => ControlBits::FAIL_LEFT,
            Side::Right => ControlBits::FAIL_RIGHT,
        };
        let mut words = [0; 4];
        let (into, _) = words.split_at_mut(look.words());
        let result = match links.pairs.get_mut(side).lane(lane) {
            Some(session) if !self.control.has(fault) => {
                self.words.read(session, look.offset(), into).await
            }
            _ => Err(WireError::NoAnswer),
        };
        let device = links.device;
        result.map_err(|error| ElectionError::Wire { device, side: Some(side), error })?;
        Ok(words)
    }
}
