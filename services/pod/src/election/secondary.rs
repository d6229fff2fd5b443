//! A secondary: vets its links, decides nothing (specification 05 §16.6).

use axon_platform::Clock;

use super::Election;
use super::links::Links;
use crate::config::ControlBits;
use crate::error::ElectionError;
use crate::wires::{NeighbourWords, OwnWords, PodDevice};
use crate::words::{LinkMask, StatusWord, offset};

impl<W: OwnWords + NeighbourWords, C: Clock> Election<'_, W, C> {
    /// All links of `device` lead to the device of the same number in a neighbour that says the
    /// same.
    pub(super) async fn secondary(
        &mut self,
        device: PodDevice,
        mask: LinkMask,
    ) -> Result<(), ElectionError> {
        let result = match self.open_links(device, mask).await {
            Ok(mut links) => {
                let result = self.vet(device, &mut links).await;
                self.close_links(links).await;
                result
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => self.clear_told(device),
            Err(_) => {
                self.commit_failure(device);
                result
            }
        }
    }

    async fn vet(
        &mut self,
        device: PodDevice,
        links: &mut Links<W::Session>,
    ) -> Result<(), ElectionError> {
        self.begin(device)?;
        self.neighbour_serials(links).await?;
        let number = u64::from(device.index());
        self.tell(device, number, number)?;
        let told = self.neighbours_told(links).await?;
        for (side, told) in links.each(told) {
            if told.left != number {
                return Err(ElectionError::Miswired { device, side, told: told.left });
            }
        }
        if self.control.has(ControlBits::FAIL_SECONDARIES) {
            return Err(ElectionError::Injected);
        }
        self.write(device, offset::ELECTION_STATUS, StatusWord::SECONDARY.encode())?;
        self.neighbours_agree(links).await
    }
}
