//! Checks of executor, timers and idling.

use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use core::time::Duration;

use axon_kernel::Machine;
use axon_kernel::time::idle;
use axon_platform::{Instant, Platform};
use embassy_futures::join::join;
use embassy_futures::yield_now;

use crate::checks::{Outcome, equal, holds};

pub async fn spawning(machine: Machine) -> Outcome {
    let done = Arc::new(AtomicU32::new(0));
    for round in 1..=3 {
        for _ in 0..100 {
            let done = done.clone();
            let task = async move {
                yield_now().await;
                done.fetch_add(1, Relaxed);
            };
            machine.spawn("count", task).map_err(|error| format!("{error}"))?;
        }
        while done.load(Relaxed) < 100 * round {
            yield_now().await;
        }
        // The tasks are gone, and what they held with them.
        yield_now().await;
        equal("owners", Arc::strong_count(&done), 1)?;
    }
    Ok(())
}

pub async fn sleeping(machine: Machine) -> Outcome {
    let mut latest = Duration::ZERO;
    for micros in [1, 10, 50, 1000, 20_000] {
        let deadline = machine.now() + Duration::from_micros(micros);
        machine.sleep_until(deadline).await;
        let now = machine.now();
        holds("not early", now >= deadline)?;
        latest = latest.max(now - deadline);
    }
    log::info!("latest wake-up: {latest:?} after its time");
    let past = machine.now();
    machine.sleep_until(Instant::from_nanos(0)).await;
    holds("a deadline in the past passes", machine.now() >= past)?;
    // Several sleeps of one task: the queue knows the task, the sleeps know their times.
    let early = AtomicU32::new(0);
    let sleeper = |millis| {
        let (early, deadline) = (&early, machine.now() + Duration::from_millis(millis));
        async move {
            machine.sleep_until(deadline).await;
            early.fetch_add(u32::from(machine.now() < deadline), Relaxed);
        }
    };
    join(sleeper(8), join(sleeper(2), sleeper(4))).await;
    equal("early ones among three", early.load(Relaxed), 0)
}

pub async fn busy(machine: Machine) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let spinner = async move {
        while !seen.load(Relaxed) {
            yield_now().await;
        }
    };
    machine.spawn("spinner", spinner).map_err(|error| format!("{error}"))?;
    let halted = idle::halted();
    machine.sleep(Duration::from_millis(2)).await;
    let slept = idle::halted() - halted;
    stop.store(true, Relaxed);
    equal("time halted beside a busy task", slept, 0)
}

pub async fn idling(machine: Machine) -> Outcome {
    let before = (machine.now(), machine.boot_stats().map(|stats| stats.halted));
    machine.sleep(Duration::from_millis(20)).await;
    let after = (machine.now(), machine.boot_stats().map(|stats| stats.halted));
    let halted = after.1.zip(before.1).map_or(Duration::ZERO, |(after, before)| after - before);
    log::info!("halted {halted:?} of {:?}", after.0 - before.0);
    holds("half of the time at least", halted * 2 > after.0 - before.0)
}
