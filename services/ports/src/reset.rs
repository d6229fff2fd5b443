//! Requests to the reset task of a device (specification 05 §11.1).

use crate::{ClientId, CoreMap};

/// Who wants a reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requester {
    /// The driver itself: bring-up, or the `reset` control. Decides the device state.
    Internal,
    /// A client, which will collect the result.
    Client(ClientId),
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResetRequest {
    /// Cores, or the whole device.
    pub map: CoreMap,
    /// Who asks.
    pub requester: Requester,
}

/// State of a device as observers see it (specification 05 §6). The numbers are those of the Linux
/// interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DeviceState {
    /// A driver-internal reset is queued or running.
    Reset = 0,
    /// Usable.
    Ready = 1,
    /// The last whole-device reset failed, or the device is gone.
    Invalid = 2,
}

impl DeviceState {
    /// `RESET`, `READY` or `INVALID`.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceState::Reset => "RESET",
            DeviceState::Ready => "READY",
            DeviceState::Invalid => "INVALID",
        }
    }
}

/// State of one core (specification 05 §6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CoreState {
    /// Usable.
    Up = 0,
    /// A reset that covers it is queued or running.
    Resetting = 1,
    /// The last reset that covered it failed.
    Down = 2,
}

impl CoreState {
    /// `UP`, `RESETTING` or `DOWN`.
    pub const fn name(self) -> &'static str {
        match self {
            CoreState::Up => "UP",
            CoreState::Resetting => "RESETTING",
            CoreState::Down => "DOWN",
        }
    }
}
