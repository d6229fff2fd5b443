//! Asking firmware for a reset, and waiting for it (specification 01 §9, 05 §11.5 to §11.8).

use core::time::Duration;

use axon_platform::{MmioWindow, Platform};
use axon_ports::CoreMap;

use crate::hal::identity::Environment;
use crate::registers::misc_ram;
use crate::shared::Shared;
use crate::{CancelCause, Error, ResetStage};

/// First look at RESET; the interval doubles up to [`LAST_LOOK`].
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(100);
/// A trigger that firmware did not take is written again after this.
const REISSUE_DEVICE: Duration = Duration::from_secs(30);
const REISSUE_CORES: Duration = Duration::from_secs(10);
/// The pause behind completion look *i* is *i* times this.
const COMPLETION_STEP: Duration = Duration::from_millis(100);
/// The functional simulator takes this long to look.
const SIMULATOR_PAUSE: Duration = Duration::from_secs(2);

/// Lets time pass; ends early with an error when the device is stopped.
async fn pause<P: Platform>(shared: &Shared<P>, span: Duration) -> Result<(), Error> {
    let until = shared.platform.now() + span;
    loop {
        if shared.is_stopped() {
            return Err(Error::Cancelled { why: CancelCause::Removal });
        }
        let now = shared.platform.now();
        if now >= until {
            return Ok(());
        }
        shared.platform.sleep_until(until.min(now + LAST_LOOK)).await;
    }
}

/// Stage 3: asks for the reset until firmware has accepted it.
pub(super) async fn initiate<P: Platform>(shared: &Shared<P>, map: CoreMap) -> Result<(), Error> {
    let tables = shared.hal.tables();
    if shared.hal.environment() == Environment::Qemu {
        let value = match tables.reset.simulator_handshake {
            true => 1,
            false => shared.hal.reset_map(map).map_or(0, |words| words.low),
        };
        shared.registers.write32(tables.map.simulator_reset, value);
        if !tables.reset.simulator_handshake {
            return Ok(());
        }
    }

    let reissue = if map.is_device() { REISSUE_DEVICE } else { REISSUE_CORES };
    let started = shared.platform.now();
    let deadline = started + Duration::from_millis(tables.reset.initiate_ms);
    let mut issued = started;
    let mut look = FIRST_LOOK;
    issue(shared, map);
    loop {
        pause(shared, look).await?;
        look = (look * 2).min(LAST_LOOK);
        if shared.misc_ram(misc_ram::RESET)? == 0 {
            return Ok(());
        }
        let now = shared.platform.now();
        if now >= deadline {
            let waited_ms = tables.reset.initiate_ms;
            return Err(Error::ResetTimeout { stage: ResetStage::Initiate, waited_ms });
        }
        if now.since(issued) >= reissue {
            issued = now;
            issue(shared, map);
        }
    }
}

/// Writes the request and rings. The writes reach the device in this order.
fn issue<P: Platform>(shared: &Shared<P>, map: CoreMap) {
    let base = shared.hal.tables().map.misc_ram;
    let write = |offset, value| shared.registers.write32(base + offset, value);
    match shared.hal.reset_map(map) {
        Some(words) => {
            write(misc_ram::RESET_MAP_LOW, words.low);
            if let Some(high) = words.high {
                write(misc_ram::RESET_MAP_HIGH, high);
            }
            write(misc_ram::RESET, misc_ram::RESET_CORES);
        }
        None => write(misc_ram::RESET, misc_ram::RESET_DEVICE),
    }
    shared.platform.write_barrier();
    write(misc_ram::TRIGGER, 1);
    shared.resets.note_trigger(shared.platform.cycles());
}

/// Stage 4: waits until firmware is ready again.
pub(super) async fn complete<P: Platform>(shared: &Shared<P>) -> Result<(), Error> {
    let reset = &shared.hal.tables().reset;
    let (silicon, simulator, emulator) = reset.completion_reads;
    let environment = shared.hal.environment();
    let reads = match environment {
        Environment::Silicon => silicon,
        Environment::Qemu => simulator,
        Environment::Emulator => emulator,
    };
    let started = shared.platform.now();
    for look in 0..reads {
        let ready = if environment == Environment::Qemu {
            let value = shared.registers.read32(shared.hal.tables().map.simulator_reset);
            if value == misc_ram::ALL_ONES {
                // A function that is gone; anything else is judged below.
                shared.misc_ram(misc_ram::DEVICE_ID)?;
            }
            pause(shared, SIMULATOR_PAUSE).await?;
            value == 0
        } else {
            let status = shared.misc_ram(misc_ram::FW_STATUS)?;
            status != misc_ram::NOT_READY && status & misc_ram::FW_STATUS_BUSY == 0
        };
        if ready {
            return Ok(());
        }
        pause(shared, COMPLETION_STEP * look).await?;
    }
    let waited_ms = shared.platform.now().since(started).as_millis() as u64;
    Err(Error::ResetTimeout { stage: ResetStage::Completion, waited_ms })
}
