//! What a message between two tasks costs.
//!
//! A peer task serves requests the way every task of axon does: a bounded channel takes the
//! request, a slot made beforehand takes the reply.

use alloc::sync::Arc;
use alloc::vec::Vec;

use axon_platform::{Platform, SpawnError};
use embassy_futures::yield_now;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::channel::Channel;
use embassy_sync::signal::Signal;

use crate::row::Row;
use crate::{SAMPLES, WARM_UP};

/// What a request and its reply may cost in guest instructions.
const ROUND_TRIP_GOAL: u64 = 300;

/// Requests that wait for the peer at most.
const DEPTH: usize = 4;

/// Asks the peer to end.
const QUIT: u64 = u64::MAX;

/// What the two tasks share.
struct Seam {
    requests: Channel<CriticalSectionRawMutex, u64, DEPTH>,
    reply: Signal<CriticalSectionRawMutex, u64>,
    ping: Signal<CriticalSectionRawMutex, u64>,
    woken: Signal<CriticalSectionRawMutex, u64>,
}

impl Seam {
    const fn new() -> Seam {
        Seam {
            requests: Channel::new(),
            reply: Signal::new(),
            ping: Signal::new(),
            woken: Signal::new(),
        }
    }
}

/// Measures every row.
///
/// # Errors
/// [`SpawnError`] where there is no room for the peers.
pub(crate) async fn measure<P: Platform>(machine: &P) -> Result<Vec<Row>, SpawnError> {
    let seam = Arc::new(Seam::new());
    machine.spawn("bench-server", serve(seam.clone()))?;
    machine.spawn("bench-sleeper", sleep_and_tell(machine.clone(), seam.clone()))?;

    let mut rows = Vec::new();
    rows.push(sample(machine, "reading the counter", None, async || {}).await);
    rows.push(sample(machine, "yielding with nothing else to do", None, yield_now).await);
    rows.push(
        sample(machine, "request to a task and its reply", Some(ROUND_TRIP_GOAL), async || {
            seam.requests.send(1).await;
            seam.reply.wait().await;
        })
        .await,
    );
    rows.push(wake_ups(machine, &seam).await);

    seam.requests.send(QUIT).await;
    seam.ping.signal(QUIT);
    Ok(rows)
}

/// Answers requests until told to end.
async fn serve(seam: Arc<Seam>) {
    loop {
        match seam.requests.receive().await {
            QUIT => return,
            request => seam.reply.signal(request),
        }
    }
}

/// Waits to be woken and tells what the counter says then.
async fn sleep_and_tell<P: Platform>(machine: P, seam: Arc<Seam>) {
    while seam.ping.wait().await != QUIT {
        seam.woken.signal(machine.cycles());
    }
}

/// The counter before and after `operation`, over and over.
async fn sample<P: Platform>(
    machine: &P,
    name: &'static str,
    goal: Option<u64>,
    operation: impl AsyncFn(),
) -> Row {
    let mut samples = Vec::with_capacity(WARM_UP + SAMPLES);
    for _ in 0..WARM_UP + SAMPLES {
        let before = machine.cycles();
        operation().await;
        samples.push(machine.cycles().wrapping_sub(before));
    }
    Row::new(name, goal, samples.split_off(WARM_UP))
}

/// From the call that wakes a task until that task runs.
async fn wake_ups<P: Platform>(machine: &P, seam: &Seam) -> Row {
    let mut samples = Vec::with_capacity(WARM_UP + SAMPLES);
    for _ in 0..WARM_UP + SAMPLES {
        let before = machine.cycles();
        seam.ping.signal(1);
        samples.push(seam.woken.wait().await.wrapping_sub(before));
    }
    Row::new("waking a task until it runs", None, samples.split_off(WARM_UP))
}
