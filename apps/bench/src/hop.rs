//! What a message between two tasks costs, and its parts.
//!
//! Each side is a flat task, so that what is counted is the message and not the nesting of the
//! benchmark's own futures.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::task::Poll;

use axon_platform::{Platform, SpawnError};
use axon_ports::desk::{Desk, Event};
use embassy_futures::yield_now;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::channel::Channel;
use embassy_sync::signal::Signal;

use crate::row::{Row, samples};

/// What a request and its reply may cost in guest instructions.
const ROUND_TRIP_GOAL: u64 = 300;

/// Requests that wait for the peer at most.
const DEPTH: usize = 4;

/// Asks the peer to end.
const QUIT: u64 = u64::MAX;

type Slot<T> = Signal<CriticalSectionRawMutex, T>;

/// What the tasks share.
struct Seam {
    requests: Channel<CriticalSectionRawMutex, u64, DEPTH>,
    reply: Slot<u64>,
    desk: Desk<u64, u64, DEPTH>,
    ping: Slot<u64>,
    woken: Slot<u64>,
    rows: Slot<Vec<Row>>,
}

/// Measures every row.
///
/// # Errors
/// [`SpawnError`] where there is no room for the tasks.
pub(crate) async fn measure<P: Platform>(machine: &P) -> Result<Vec<Row>, SpawnError> {
    let seam = Arc::new(Seam {
        requests: Channel::new(),
        reply: Signal::new(),
        desk: Desk::new(),
        ping: Signal::new(),
        woken: Signal::new(),
        rows: Signal::new(),
    });
    machine.spawn("bench-server", serve_channel(seam.clone()))?;
    machine.spawn("bench-desk", serve_desk(seam.clone()))?;
    machine.spawn("bench-sleeper", tell_wake_ups(machine.clone(), seam.clone()))?;
    machine.spawn("bench-client", ask(machine.clone(), seam.clone()))?;
    let rows = seam.rows.wait().await;
    seam.requests.send(QUIT).await;
    seam.desk.close();
    seam.ping.signal(QUIT);
    Ok(rows)
}

/// The task whose operations are counted.
async fn ask<P: Platform>(machine: P, seam: Arc<Seam>) {
    let mut rows = Vec::new();
    rows.push(Row::new("reading the counter", None, samples!(machine, {})));
    rows.push(Row::new("yielding to no other task", None, samples!(machine, yield_now().await)));
    let round_trips = samples!(machine, {
        // Slots are taken beforehand, so there is always a place.
        let _ = seam.requests.try_send(1);
        seam.reply.wait().await;
    });
    rows.push(Row::new("request and reply: channel and slot", Some(ROUND_TRIP_GOAL), round_trips));
    let calls = samples!(machine, {
        let _ = seam.desk.call(1).await;
    });
    rows.push(Row::new("request and reply: desk", Some(ROUND_TRIP_GOAL), calls));
    let wake_ups = samples!(machine, before => {
        seam.ping.signal(1);
        seam.woken.wait().await.wrapping_sub(before)
    });
    rows.push(Row::new("waking a task until it runs", None, wake_ups));
    seam.rows.signal(rows);
}

/// Answers what comes through the channel.
async fn serve_channel(seam: Arc<Seam>) {
    poll_fn(|cx| {
        while let Poll::Ready(request) = seam.requests.poll_receive(cx) {
            if request == QUIT {
                return Poll::Ready(());
            }
            seam.reply.signal(request);
        }
        Poll::Pending
    })
    .await;
}

/// Answers what is left on the desk.
async fn serve_desk(seam: Arc<Seam>) {
    while !seam.desk.is_closed() {
        if let Event::Request(ticket, request) = seam.desk.next().await {
            seam.desk.answer(ticket, request);
        }
    }
}

/// Waits to be woken and tells what the counter says then.
async fn tell_wake_ups<P: Platform>(machine: P, seam: Arc<Seam>) {
    while seam.ping.wait().await != QUIT {
        seam.woken.signal(machine.cycles());
    }
}
