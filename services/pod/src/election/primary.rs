//! The primary: vets its links, then knows all serials of the pod and decides (specification 05
//! §16.5).

use axon_platform::Clock;

use super::Election;
use super::links::Links;
use crate::config::ControlBits;
use crate::decide::{Serials, decide};
use crate::error::ElectionError;
use crate::wires::{DEVICES, NeighbourWords, OwnWords, PodDevice};
use crate::words::{Elected, LinkMask, StatusWord, is_written, join, offset};

const PRIMARY: PodDevice = PodDevice::PRIMARY;

impl<W: OwnWords + NeighbourWords, C: Clock> Election<'_, W, C> {
    /// `good` secondaries have vetted their links.
    pub(super) async fn primary(
        &mut self,
        mask: LinkMask,
        good: u8,
    ) -> Result<Elected, ElectionError> {
        let result = match self.open_links(PRIMARY, mask).await {
            Ok(mut links) => {
                let result = self.negotiate(&mut links, good).await;
                self.close_links(links).await;
                result
            }
            Err(error) => Err(error),
        };
        let result = result.and_then(|elected| self.commit(elected).map(|()| elected));
        if result.is_err() {
            self.commit_failure(PRIMARY);
        }
        result
    }

    async fn negotiate(
        &mut self,
        links: &mut Links<W::Session>,
        good: u8,
    ) -> Result<Elected, ElectionError> {
        let own = self.own_serial()?;
        self.begin(PRIMARY)?;
        if self.control.has(ControlBits::FAIL_PRIMARY) {
            return Err(ElectionError::Injected);
        }
        let near = self.neighbour_serials(links).await?;
        self.tell(PRIMARY, near.left, near.right)?;
        if self.control.has(ControlBits::SKIP_DATA_PHASE) {
            return Err(ElectionError::Injected);
        }
        let told = self.neighbours_told(links).await?;
        if links.mask == LinkMask::BOTH {
            for (side, told) in links.each(told) {
                if told.left < u64::from(DEVICES) {
                    let told = told.left;
                    return Err(ElectionError::Miswired { device: PRIMARY, side, told });
                }
            }
        }
        if good + 1 < DEVICES {
            return Err(ElectionError::Secondaries { good });
        }
        let (left, right, diagonal) = (near.left, near.right, told.left.right);
        let elected = decide(links.mask, Serials { own, left, right, diagonal });
        self.write(PRIMARY, offset::ELECTION_STATUS, StatusWord::VETTED.encode())?;
        self.neighbours_agree(links).await?;
        Ok(elected)
    }

    /// The device must know who it is before it takes part.
    fn own_serial(&self) -> Result<u64, ElectionError> {
        let id = self.read(PRIMARY, offset::DEVICE_ID)?;
        let low = self.read(PRIMARY, offset::SERIAL_LOW)?;
        let high = self.read(PRIMARY, offset::SERIAL_HIGH)?;
        let known = id != crate::words::NOT_READY && is_written(low);
        if known { Ok(join(high, low)) } else { Err(ElectionError::NoSerial) }
    }

    /// The word that a later start believes comes last.
    fn commit(&self, elected: Elected) -> Result<(), ElectionError> {
        self.clear_told(PRIMARY)?;
        self.write_serial(elected.serial)?;
        self.write(PRIMARY, offset::ELECTION_STATUS, elected.status_word().encode())
    }
}
