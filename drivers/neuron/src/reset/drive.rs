//! The reset task: takes what waits into one drive and goes through the stages (specification 05
//! §11.3, §11.4).

use alloc::sync::Arc;
use core::future::poll_fn;
use core::task::Poll;

use axon_platform::Platform;
use axon_ports::reset::DeviceState;
use axon_ports::telemetry::EventKind;
use axon_ports::{CoreId, CoreMap, MemoryPort};

use super::queue::Batch;
use super::watch::ResetWatch;
use super::{handshake, rings};
use crate::shared::Shared;
use crate::state::CoreState;
use crate::{Error, Hal, fwio, notify};

/// Cores of the device that are in the map, in ascending order.
pub(super) fn cores_of(hal: &Hal, map: CoreMap) -> impl Iterator<Item = CoreId> + use<> {
    hal.core_ids().filter(move |&core| map.contains(core))
}

/// Runs until the device is stopped, then ends every request.
pub(crate) async fn run<P: Platform, M: MemoryPort>(shared: Arc<Shared<P>>, memory: M) {
    while let Some(batch) = next(&shared).await {
        let result = drive(&shared, &memory, batch).await;
        if result.is_err() && batch.map.is_device() {
            let _ = fwio::after_device_reset(&shared, false).await;
        }
        if shared.is_stopped() {
            break;
        }
        conclude(&shared, batch, result);
    }
    shared.states.set_device(DeviceState::Invalid);
    shared.resets.close();
}

/// The next drive; `None` when the device is stopped.
async fn next<P: Platform>(shared: &Shared<P>) -> Option<Batch> {
    poll_fn(|cx| {
        let batch = shared.resets.take_batch(cx.waker());
        if shared.is_stopped() {
            return Poll::Ready(None);
        }
        match batch {
            Some(batch) => Poll::Ready(Some(batch)),
            None => Poll::Pending,
        }
    })
    .await
}

/// Stages 0 to 7. Nothing is freed or touched before its stage.
async fn drive<P: Platform, M: MemoryPort>(
    shared: &Shared<P>,
    memory: &M,
    batch: Batch,
) -> Result<(), Error> {
    let no_reset = shared.hal.no_reset();
    let map = if no_reset { CoreMap::DEVICE } else { batch.map };
    ResetWatch::ask(shared, map).await;
    cores_of(&shared.hal, map).for_each(|core| shared.states.raise_epoch(core));
    shared.states.set_cores(cores_of(&shared.hal, map), CoreState::Resetting);
    rings::fence(shared, map).await;
    notify::before_reset(shared, map).await;
    rings::close(shared, map).await;
    if !no_reset {
        // No request to firmware may come between: its doorbell would start the reset.
        let _turn = shared.mailbox.enter_for_reset(shared).await;
        let started = shared.platform.now();
        handshake::initiate(shared, map).await?;
        let took = shared.platform.now().since(started);
        shared.records.counters.resets.finished(map, took);
        handshake::complete(shared).await?;
        rings::release(shared, map);
    }
    notify::after_reset(shared, map, !no_reset);
    rings::initialise(shared, memory, map).await?;
    if map.is_device() {
        // The pod learns of it from the state that follows.
        fwio::after_device_reset(shared, !no_reset).await?;
    }
    Ok(())
}

/// 0, or the error number.
fn number_of(result: &Result<(), Error>) -> u64 {
    result.as_ref().err().map_or(0, |error| error.errno().number().into())
}

/// Stage 8: states, rings, results.
fn conclude<P: Platform>(shared: &Shared<P>, batch: Batch, result: Result<(), Error>) {
    let map = if shared.hal.no_reset() { CoreMap::DEVICE } else { batch.map };
    let core_state = if result.is_ok() { CoreState::Up } else { CoreState::Down };
    shared.states.set_cores(cores_of(&shared.hal, map), core_state);
    if let Err(error) = &result {
        log::error!("{}: reset of core map {:#x} failed: {error}", shared.index, map.0);
    }
    shared.note(None, EventKind::ResetFinished, number_of(&result));
    if result.is_err() {
        shared.records.counters.resets.failed(map);
    }
    if map.is_device() {
        shared.states.set_failure(result.err());
    }
    let gone = result == Err(Error::DeviceGone);
    let state = match (map.is_device(), &result) {
        (true, Ok(())) => DeviceState::Ready,
        (true, Err(_)) => DeviceState::Invalid,
        (false, _) => shared.states.device(),
    };
    if !gone {
        rings::reopen(shared, map, state == DeviceState::Invalid);
    }
    shared.states.set_device(state);
    shared.reset_watch.tell(map, result.is_ok());
    shared.resets.resolve(result);
}
