//! Every call in every state, against the rows of the table of gates.

use std::time::Duration;

use axon::Device;
use axon::calls::{CALLS, Call};
use axon::gates::{Admission, Caller, Command, Grants, Lane, check};
use axon::ports::CoreMap;
use axon_hosted::Machine;
use axon_platform::{Errno, Platform};
use axon_ports::reset::{CoreState, DeviceState};
use embassy_futures::select::{Either, select};

use axon_tests::bench::{Bench, Setup, trn1, trn2};

use crate::scene::{PATIENCE, Scene};

/// What became of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// It went on behind the gates: done, or refused for a reason of its own.
    Passed,
    /// It waited, and went on when it could.
    Parked,
    /// A gate, or the state, refused it.
    Refused(Errno),
    /// A reset came over what the call is about.
    Stale,
}

/// Where everything stands.
#[derive(Clone, Copy, Debug)]
struct State {
    attached: bool,
    removed: bool,
    device: DeviceState,
    core: CoreState,
}

impl State {
    const READY: State =
        State { attached: true, removed: false, device: DeviceState::Ready, core: CoreState::Up };
}

/// Numbers that a gate, or the state of the hardware, answers with.
const REFUSALS: [Errno; 4] = [Errno::EACCES, Errno::EAGAIN, Errno::EIO, Errno::ENODEV];

/// Calls that answer at once (08 §8.11, column "Ends").
const INLINE: &[Call] = &[
    Call::ReadRegister,
    Call::WriteRegister,
    Call::WriteInline,
    Call::EngineSetState,
    Call::EngineStatus,
    Call::QueueStatus,
    Call::StartQueue,
    Call::Acknowledge,
    Call::SemaphoreAdd,
    Call::SemaphoreSubtract,
    Call::SemaphoreGet,
    Call::SemaphoreSet,
    Call::EventSet,
    Call::EventGet,
    Call::ReadNotifications,
];

/// Calls on something that carries the epoch of its core (05 §6): behind a reset, whatever the core
/// is now, they may say ESTALE instead, and ending one touches no hardware.
const OF_AN_EPOCH: &[Call] = &[
    Call::ReleaseQueue,
    Call::StartQueue,
    Call::Acknowledge,
    Call::CopyOut,
    Call::ResizeNotifications,
    Call::CloseNotifications,
    Call::ReadNotifications,
    Call::FreeQueues,
];

/// Ends, and waits for what has ended: never refused for what became of the hardware, or of the
/// client (08 §8.10.1 rule 4; 03 §7.8: a copy keeps its result until it is collected).
const ENDS: &[Call] = &[Call::CloseNotifications, Call::WaitNumbered];

/// Calls about the device as a whole: the state of no core matters.
const OF_THE_DEVICE: &[Call] = &[
    Call::ReadRegister,
    Call::WriteRegister,
    Call::PostMetric,
    Call::HardwareCounters,
    Call::SetPowerProfile,
    Call::Throttling,
    Call::PowerProfiles,
    // Rings are memory: those in host memory belong to no core before they are bound.
    Call::Stage,
];

/// What the chapter says.
fn expected(call: Call, state: State) -> Outcome {
    let command: Command = call.command();
    let attached = state.attached && !state.removed;
    let caller = Caller { lane: Lane::Normal, attached, grants: Grants::ALL };
    if let Err(refused) = check(command, &caller) {
        // 05 §5 T4, §17.4: removal is told apart from a client that left.
        return Outcome::Refused(if state.removed { Errno::ENODEV } else { refused.errno() });
    }
    if state.removed && command.rule().hardware {
        return Outcome::Refused(Errno::ENODEV);
    }
    let core = (!OF_THE_DEVICE.contains(&call)).then_some(state.core);
    match command.admit(state.device, core) {
        Ok(Admission::Run) => Outcome::Passed,
        Ok(Admission::Park) if INLINE.contains(&call) => Outcome::Refused(Errno::EAGAIN),
        Ok(Admission::Park) => Outcome::Parked,
        Err(refused) => Outcome::Refused(refused.errno()),
    }
}

/// Whether the chapter allows `seen`.
fn is_right(call: Call, state: State, seen: Outcome) -> bool {
    let was_reset = state.core != CoreState::Up;
    let ends = ENDS.contains(&call) && seen == Outcome::Passed;
    let stale = seen == Outcome::Stale && was_reset && OF_AN_EPOCH.contains(&call);
    // A look at what has gone with the device says so.
    let gone = state.removed && seen == Outcome::Refused(Errno::ENODEV);
    // Firmware takes its time.
    let late = seen == Outcome::Parked
        && OF_THE_DEVICE.contains(&call)
        && expected(call, state) == Outcome::Passed;
    ends || stale || gone || late || seen == expected(call, state)
}

/// Makes the call and sees what becomes of it.
async fn outcome(machine: &Machine, scene: &mut Scene, call: Call) -> Option<Outcome> {
    let (result, parked) = {
        let mut made = std::pin::pin!(scene.make(call));
        match select(made.as_mut(), machine.sleep(PATIENCE)).await {
            Either::First(result) => (result, false),
            Either::Second(()) => (made.await, true),
        }
    };
    Some(match result? {
        Err(error) if error.errno() == Errno::ESTALE => Outcome::Stale,
        Err(error) if REFUSALS.contains(&error.errno()) => Outcome::Refused(error.errno()),
        _ if parked => Outcome::Parked,
        _ => Outcome::Passed,
    })
}

/// Tries every call on one scene; collects what is not as it should be.
async fn all(machine: &Machine, scene: &mut Scene, state: State, skip: &[Call]) -> Vec<String> {
    let mut wrong = Vec::new();
    // What ends a queue comes last.
    let (ends, others): (Vec<Call>, Vec<Call>) =
        CALLS.iter().partition(|call| matches!(call, Call::ReleaseQueue | Call::FreeQueues));
    for call in others.into_iter().chain(ends).filter(|call| !skip.contains(call)) {
        let Some(seen) = outcome(machine, scene, call).await else { continue };
        if !is_right(call, state, seen) {
            wrong.push(format!("{call:?}: {seen:?}, not {:?}", expected(call, state)));
        }
    }
    wrong
}

fn setups() -> [Setup; 2] {
    [trn1(), trn2()].map(|setup| {
        let mut setup = setup.telemetry();
        setup.config.zero_copy_on_v2 = true;
        setup.config.manage_notifications = true;
        setup
    })
}

fn every_core(device: &Device<Machine>) -> CoreMap {
    CoreMap((1 << device.hal().cores()) - 1)
}

/// In a set-up each: a client with one of everything, and `test`.
fn in_scene(test: impl AsyncFn(&Bench, Scene) -> Vec<String>) {
    for setup in setups() {
        let product = setup.function.product;
        let wrong = setup.run(async |bench| {
            let scene = Scene::new(&bench.device).await.unwrap();
            test(&bench, scene).await
        });
        assert!(wrong.is_empty(), "{product:?}: {wrong:#?}");
    }
}

#[test]
fn every_call_passes_on_a_device_that_is_ready() {
    in_scene(async |bench, scene| {
        scene.end().await;
        let mut wrong = Vec::new();
        for &call in CALLS {
            let mut scene = Scene::new(&bench.device).await.unwrap();
            match outcome(&bench.machine, &mut scene, call).await {
                Some(Outcome::Passed) => {}
                seen => wrong.push(format!("{call:?}: {seen:?}")),
            }
            scene.end().await;
        }
        wrong
    });
}

#[test]
fn what_outlives_its_client_is_refused_by_every_call_that_needs_an_attach() {
    in_scene(async |bench, mut scene| {
        scene.close();
        all(&bench.machine, &mut scene, State { attached: false, ..State::READY }, &[]).await
    });
}

#[test]
fn a_core_that_is_down_refuses_what_touches_it() {
    in_scene(async |bench, mut scene| {
        bench.control("fault refuse-core-reset times=1000");
        let _ = bench.client.reset(every_core(&bench.device)).unwrap().await;
        bench.control("fault clear");
        assert_eq!(bench.device.state(), DeviceState::Ready);
        let state = State { core: CoreState::Down, ..State::READY };
        // A reset that succeeds would change the state: it is tried where that does not matter.
        all(&bench.machine, &mut scene, state, &[Call::Reset]).await
    });
}

#[test]
fn a_device_that_is_invalid_refuses_what_touches_hardware() {
    in_scene(async |bench, mut scene| {
        bench.control("fault never-ack");
        let _ = bench.client.reset(CoreMap::DEVICE).unwrap().await;
        assert_eq!(bench.device.state(), DeviceState::Invalid);
        let state = State { device: DeviceState::Invalid, core: CoreState::Down, ..State::READY };
        let wrong = all(&bench.machine, &mut scene, state, &[Call::Reset]).await;
        // A way back is open in every state.
        bench.control("fault clear");
        bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
        wrong
    });
}

#[test]
fn a_device_that_was_removed_refuses_everything_that_is_not_a_look() {
    in_scene(async |bench, mut scene| {
        bench.device.shut_down().await;
        let state = State { removed: true, device: DeviceState::Invalid, ..State::READY };
        all(&bench.machine, &mut scene, state, &[]).await
    });
}

#[test]
fn st_e61_a_core_in_reset_parks_what_may_wait_and_refuses_what_may_not() {
    in_scene(async |bench, scene| {
        scene.end().await;
        let state = State { core: CoreState::Resetting, ..State::READY };
        let mut wrong = Vec::new();
        for &call in CALLS {
            let mut scene = Scene::new(&bench.device).await.unwrap();
            bench.control("fault reset-stuck=500ms times=1");
            let reset = bench.client.reset(every_core(&bench.device)).unwrap();
            bench.pause(Duration::from_micros(100)).await;
            let seen = outcome(&bench.machine, &mut scene, call).await;
            if !seen.is_some_and(|seen| is_right(call, state, seen)) {
                wrong.push(format!("{call:?}: {seen:?}, not {:?}", expected(call, state)));
            }
            reset.await.unwrap();
            scene.end().await;
        }
        wrong
    });
}
