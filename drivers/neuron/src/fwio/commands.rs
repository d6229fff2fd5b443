//! What a device can ask its firmware.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use axon_platform::Platform;
use axon_ports::telemetry::counters::MailboxCommand;

use super::register_file::{self, WINDOW_BYTES};
use super::{LEGACY_BYTES, Protocol, Request, codec, exchange};
use crate::hal::identity::Generation;
use crate::shared::Shared;
use crate::{Error, NeuronDevice};

/// Feature of available profiles: HBM at 7200 MT/s. The number is unconfirmed (01 §7).
const HBM_7200: u8 = 5;

/// What is known of it: nothing yet; no, without having asked; then 0 or 1 as firmware said.
pub(super) const UNKNOWN: i8 = -1;
const NOT_ASKED: i8 = -2;

/// Registers that one question can name.
const READ_LIMIT: usize = 8190;

/// Profiles that firmware offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AvailableProfiles {
    /// How many, by firmware's own count.
    pub count: u8,
    /// Bit *n*: profile *n* is there.
    pub bitmap: [u8; 32],
}

impl<P: Platform> NeuronDevice<P> {
    /// Hands 1 to 128 bytes of metrics to firmware; they are not looked at (01 §6, 07 §6). Works
    /// with every firmware.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for none, [`Error::TooBig`] (E2BIG) for more,
    /// [`Error::MailboxTimeout`], [`Error::MailboxRefused`], [`Error::DeviceGone`],
    /// [`Error::Removed`].
    pub async fn post_metric(&self, bytes: &[u8]) -> Result<(), Error> {
        let len = bytes.len() as u64;
        if bytes.is_empty() {
            return Err(Error::InvalidArgument { what: "length of a post", value: 0 });
        }
        if bytes.len() > WINDOW_BYTES {
            let limit = WINDOW_BYTES as u64 + 1;
            return Err(Error::TooBig { what: "length of a post", value: len, limit });
        }
        let command = MailboxCommand::PostMetric;
        let request = Request { command, payload: bytes, in_window: true };
        let mut room = [0; WINDOW_BYTES];
        let room = room.get_mut(..bytes.len()).unwrap_or_default();
        exchange(self.shared(), Protocol::Legacy, request, room).await.map(drop)
    }

    /// Has firmware read registers by their device-view addresses (06 §10): 0 to 8190 of them,
    /// all in the register range of the device.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for too many addresses or one outside, [`Error::NoRecords`],
    /// and those of [`NeuronDevice::post_metric`].
    pub async fn hardware_counters(&self, addresses: &[u64]) -> Result<Vec<u32>, Error> {
        if addresses.len() > READ_LIMIT {
            let value = addresses.len() as u64;
            return Err(Error::InvalidArgument { what: "count of registers", value });
        }
        let registers = self.hal().firmware_readable();
        let outside = |address: &&u64| !registers.contains(address) || !address.is_multiple_of(4);
        if let Some(&value) = addresses.iter().find(outside) {
            return Err(Error::InvalidArgument { what: "address of a register", value });
        }
        if addresses.is_empty() {
            return Ok(Vec::new());
        }
        let mut payload = reserve(8 * addresses.len())?;
        addresses.iter().for_each(|address| payload.extend(address.to_le_bytes()));
        let mut answer = reserve(4 * addresses.len())?;
        answer.resize(4 * addresses.len(), 0);
        let command = MailboxCommand::Read;
        let request = Request { command, payload: &payload, in_window: false };
        let len = exchange(self.shared(), Protocol::Legacy, request, &mut answer).await?;
        if len != answer.len() {
            return Err(Error::MailboxCorrupt { command });
        }
        let mut values = Vec::new();
        values.try_reserve_exact(addresses.len()).map_err(|_| Error::NoRecords)?;
        values.extend(codec::words(&answer));
        Ok(values)
    }

    /// Chooses a performance profile (05 §15.2). V2 accepts every one and does nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for firmware without the command, and those of
    /// [`NeuronDevice::post_metric`].
    pub async fn set_performance_profile(&self, profile: u8) -> Result<(), Error> {
        let shared = self.shared();
        if shared.hal.generation() == Generation::V2 {
            return shared.check_alive();
        }
        let payload = codec::set_profile(profile);
        ask(shared, MailboxCommand::SetPowerProfile, &payload, &mut []).await?;
        shared.mailbox.profile.store(profile, Ordering::Relaxed);
        Ok(())
    }

    /// Profile that was set last; 0 before.
    pub fn performance_profile(&self) -> u8 {
        self.shared().mailbox.profile()
    }

    /// Profile that firmware says is current.
    ///
    /// # Errors
    /// As [`NeuronDevice::set_performance_profile`].
    pub async fn current_profile(&self) -> Result<u8, Error> {
        let mut answer = [0; codec::CURRENT_PROFILE_ANSWER];
        let command = MailboxCommand::GetData;
        let len = ask(self.shared(), command, &codec::CURRENT_PROFILE, &mut answer).await?;
        if len == 0 { Err(Error::MailboxCorrupt { command }) } else { Ok(answer[0]) }
    }

    /// Profiles that firmware offers for a feature; 0 for all.
    ///
    /// # Errors
    /// As [`NeuronDevice::set_performance_profile`].
    pub async fn available_profiles(&self, feature: u8) -> Result<AvailableProfiles, Error> {
        available_profiles(self.shared(), feature).await
    }

    /// Whether HBM can run at 7200 MT/s; `None` until the first reset of the device has ended.
    pub fn hbm_7200(&self) -> Option<bool> {
        let known = self.shared().mailbox.hbm_7200.load(Ordering::Relaxed);
        (known != UNKNOWN).then_some(known > 0)
    }

    /// Switches throttling notifications.
    ///
    /// # Errors
    /// As [`NeuronDevice::set_performance_profile`].
    pub async fn set_throttling_notifications(&self, on: bool) -> Result<(), Error> {
        let payload = codec::set_features(u8::from(on));
        ask(self.shared(), MailboxCommand::SetFeature, &payload, &mut []).await.map(drop)
    }
}

async fn available_profiles<P: Platform>(
    shared: &Shared<P>,
    feature: u8,
) -> Result<AvailableProfiles, Error> {
    let mut answer = [0; codec::AVAILABLE_PROFILES_ANSWER];
    let command = MailboxCommand::GetData;
    let payload = codec::available_profiles(feature);
    let len = ask(shared, command, &payload, &mut answer).await?;
    match (answer.first(), answer.last_chunk()) {
        (Some(count), Some(bitmap)) if len == answer.len() => {
            Ok(AvailableProfiles { count: *count, bitmap: *bitmap })
        }
        _ => Err(Error::MailboxCorrupt { command }),
    }
}

/// Stage 7 of a whole-device reset (05 §11.4): V3 asks once whether HBM can run at 7200 MT/s, the
/// others cannot. Firmware that does not answer well has not got it; no reset fails for that.
///
/// # Errors
/// [`Error::DeviceGone`].
pub(crate) async fn after_device_reset<P: Platform>(
    shared: &Shared<P>,
    ran: bool,
) -> Result<(), Error> {
    let known = &shared.mailbox.hbm_7200;
    let was_asked = known.load(Ordering::Relaxed) >= 0;
    if !ran || shared.hal.generation() != Generation::V3 {
        known.store(if was_asked { 0 } else { NOT_ASKED }, Ordering::Relaxed);
    } else if !was_asked {
        let any = match available_profiles(shared, HBM_7200).await {
            Ok(found) => found.bitmap.iter().any(|bits| *bits != 0),
            Err(Error::DeviceGone) => return Err(Error::DeviceGone),
            Err(_) => false,
        };
        known.store(any.into(), Ordering::Relaxed);
    }
    Ok(())
}

/// A request in the register file.
async fn ask<P: Platform>(
    shared: &Shared<P>,
    command: MailboxCommand,
    payload: &[u8],
    answer: &mut [u8],
) -> Result<usize, Error> {
    register_file::check(shared)?;
    let request = Request { command, payload, in_window: false };
    exchange(shared, Protocol::RegisterFile, request, answer).await
}

fn reserve(len: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len.min(LEGACY_BYTES)).map_err(|_| Error::NoRecords)?;
    Ok(bytes)
}
