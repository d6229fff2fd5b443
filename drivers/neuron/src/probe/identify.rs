//! Asking firmware which device this is (specification 01 §10, 05 §4.1).

use core::time::Duration;

use axon_platform::{MmioWindow, Platform};
use axon_ports::RoutingId;

use super::error::ProbeError;
use crate::Hal;
use crate::registers::misc_ram;

/// First pause between two looks; the pause doubles up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// Who the device is among the devices of its host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identified {
    pub routing_id: RoutingId,
    pub server_id: Option<u16>,
}

/// Waits until firmware has named the device, at most `deadline`.
pub(super) async fn identify<P: Platform, W: MmioWindow>(
    platform: &P,
    registers: &W,
    hal: &Hal,
    deadline: Duration,
) -> Result<Identified, ProbeError> {
    let routing_id = match hal.fixed_routing_id() {
        Some(known) => known,
        None => ask(platform, registers, hal, deadline).await?,
    };
    let server_id = if hal.needs_server_id() { Some(server_id(registers, hal)?) } else { None };
    Ok(Identified { routing_id, server_id })
}

async fn ask<P: Platform, W: MmioWindow>(
    platform: &P,
    registers: &W,
    hal: &Hal,
    deadline: Duration,
) -> Result<RoutingId, ProbeError> {
    let until = platform.now() + deadline;
    let mut pause = FIRST_PAUSE;
    loop {
        match registers.read32(hal.tables().map.misc_ram + misc_ram::DEVICE_ID) {
            misc_ram::NOT_READY => {}
            misc_ram::ALL_ONES => return Err(ProbeError::DeviceGone),
            number => return in_range(hal, number),
        }
        if platform.now() >= until {
            let waited_ms = deadline.as_millis() as u64;
            return Err(ProbeError::FirmwareNotReady { waited_ms });
        }
        platform.sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

fn in_range(hal: &Hal, number: u32) -> Result<RoutingId, ProbeError> {
    let limit = hal.routing_id_limit();
    match RoutingId::new(number) {
        Some(routing_id) if number < limit => Ok(routing_id),
        _ => Err(ProbeError::RoutingIdOutOfRange { routing_id: number, limit }),
    }
}

/// 0xdeadbeef has the valid bit set and still is no value (01 §5).
fn server_id<W: MmioWindow>(registers: &W, hal: &Hal) -> Result<u16, ProbeError> {
    let word = registers.read32(hal.tables().map.misc_ram + misc_ram::SERVER_RACK_ID);
    if word == misc_ram::NOT_READY || word == misc_ram::ALL_ONES || word & 0x8000 == 0 {
        return Err(ProbeError::ServerIdInvalid { word });
    }
    Ok(word as u16 & 0x7fff)
}
