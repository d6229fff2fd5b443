//! Live hardware sources as they were read last (specification 07 §16.2): a snapshot shows the
//! cache, so that it never touches a device that is being reset.

use alloc::vec::Vec;

use axon_platform::{Instant, Platform};
use axon_ports::reset::DeviceState;
use embassy_futures::yield_now;

use crate::sensors::{EccReadings, PeRow, ROW_GROUPS, api_version, serial_number};
use crate::service::Shared;
use crate::{DeviceFacts, DeviceSensors, Error};

/// The cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Readings {
    /// When it was filled last; `None` for never.
    pub at: Option<Instant>,
    /// Firmware API version.
    pub api_version: Option<u32>,
    /// Serial number.
    pub serial: Option<u64>,
    /// Memory errors.
    pub ecc: EccReadings,
    /// Activity of the PE array by core number; `None` for a core that is not there or could not
    /// be read.
    pub pe: Vec<Option<[PeRow; ROW_GROUPS]>>,
    odd_repair_told: bool,
}

impl Readings {
    pub(crate) fn new(facts: &DeviceFacts) -> Result<Self, Error> {
        let cores = facts.pe.areas.len();
        let mut pe = Vec::new();
        pe.try_reserve_exact(cores).map_err(|_| Error::NoRoom)?;
        pe.resize(cores, None);
        Ok(Readings {
            at: None,
            api_version: None,
            serial: None,
            ecc: EccReadings::default(),
            pe,
            odd_repair_told: false,
        })
    }

    /// A repair without errors is told once.
    pub(crate) fn note_odd_repair(&mut self, odd: bool) {
        if odd && !self.odd_repair_told {
            self.odd_repair_told = true;
            log::warn!("HBM has a repair state, but no uncorrected errors");
        }
    }

    /// A copy for a snapshot.
    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        let mut pe = Vec::new();
        pe.try_reserve_exact(self.pe.len()).map_err(|_| Error::NoRoom)?;
        pe.extend_from_slice(&self.pe);
        Ok(Readings { pe, ..*self })
    }

    /// Reads everything anew: some hundred registers on a device with many cores, so it lets others
    /// run between two cores, and stops where a reset begins.
    pub(crate) async fn refresh<P: Platform, D: DeviceSensors>(shared: &Shared<P, D>) {
        let (device, facts) = (&shared.device, &shared.facts);
        let quiet = || device.state() == DeviceState::Ready && !device.reset_running();
        if !quiet() {
            return;
        }
        let ecc = EccReadings::read(device, facts.hbm_channels);
        let (version, serial) = (api_version(device), serial_number(device));
        let (_, odd) = ecc.hbm_errors(facts.knows_repair);
        shared.turn(|state| {
            let readings = &mut state.readings;
            readings.note_odd_repair(odd);
            (readings.api_version, readings.serial, readings.ecc) = (version, serial, ecc);
            readings.at = Some(shared.platform.now());
        });
        for core in facts.core_ids() {
            yield_now().await;
            if !quiet() {
                return;
            }
            let rows = read_core(shared, core.index());
            shared.turn(|state| {
                if let Some(slot) = state.readings.pe.get_mut(core.index()) {
                    *slot = rows;
                }
            });
        }
    }
}

fn read_core<P, D: DeviceSensors>(
    shared: &Shared<P, D>,
    core: usize,
) -> Option<[PeRow; ROW_GROUPS]> {
    let mut rows = [PeRow::default(); ROW_GROUPS];
    for (number, row) in (0..).zip(&mut rows) {
        *row = shared.facts.pe.read_row(&shared.device, core, number)?;
    }
    Some(rows)
}
