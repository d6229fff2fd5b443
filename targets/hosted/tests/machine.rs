//! The hosted machine by itself: order from the seed, virtual time, console, functions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axon_hosted::{Input, Machine};
use axon_platform::{Caching, Instant, MapError, MmioWindow, PciFunction, Platform};

/// Order in which eight tasks that yield three times each get their turns.
fn order(seed: u64) -> Vec<usize> {
    let machine = Machine::builder().seed(seed).build().unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    for task in 0..8 {
        let (log, clock) = (log.clone(), machine.clone());
        machine
            .spawn("worker", async move {
                for _ in 0..3 {
                    log.lock().unwrap().push(task);
                    clock.sleep(Duration::from_nanos(1)).await;
                }
            })
            .unwrap();
    }
    machine.run_for(Duration::from_millis(1)).unwrap();
    machine.shut_down();
    log.lock().unwrap().clone()
}

#[test]
fn the_order_of_tasks_is_a_function_of_the_seed() {
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
    assert_eq!(order(3).len(), 24);
}

#[test]
fn time_jumps_to_the_next_timer_and_not_further() {
    let machine = Machine::builder().build().unwrap();
    let dropped = machine.sleep(Duration::from_secs(1));
    drop(dropped);
    machine.run_for(Duration::from_secs(480)).unwrap();
    assert_eq!(machine.now(), Instant::from_nanos(480_000_000_000));
}

#[test]
fn waiting_for_nothing_is_told_with_names() {
    let machine = Machine::builder().build().unwrap();
    machine.spawn("waits for ever", std::future::pending()).unwrap();
    let stalled = machine.run(std::future::pending::<()>()).unwrap_err();
    assert_eq!(stalled.tasks, ["waits for ever"]);
    machine.shut_down();
}

#[test]
fn console_text_comes_byte_by_byte_and_ends() {
    let machine = Machine::builder().input(Input::Text("ab".into())).build().unwrap();
    let read = machine
        .run(async {
            let mut bytes = Vec::new();
            while let Some(byte) = machine.console_read().await {
                bytes.push(byte);
            }
            bytes
        })
        .unwrap();
    assert_eq!(read, b"ab");
    machine.console_write(b"axon-report: {\"ok\":true}\n");
    assert_eq!(machine.report_json(), r#"{"model":[],"ok":true}"#);
}

#[test]
fn functions_have_assigned_bars_that_reach_the_model() {
    let machine = Machine::builder().device("trn1").device("trn2").build().unwrap();
    let functions = machine.functions();
    assert_eq!(functions.len(), 2);
    assert_eq!(functions[0].bdf().to_string(), "00:01.0");
    assert_eq!(functions[1].config_read32(0), 0x7364_1d0f);
    let memory = functions[0].bar(4).unwrap();
    assert_eq!(memory.len_bytes, 32 << 30);
    assert_eq!(memory.address % memory.len_bytes, 0);
    let window = functions[0].map_bar(0, Caching::Uncached).unwrap();
    // Decoding is off until the driver switches it on.
    assert_eq!(window.read32(0x30fa_0000), u32::MAX);
    functions[0].config_write16(4, 0x6);
    assert_eq!(window.read32(0x30fa_0000), 7);
    assert_eq!(window.read32(0x30fa_0002), u32::MAX);
    assert_eq!(window.read32(window.len_bytes() - 2), u32::MAX);
    assert_eq!(functions[0].map_bar(2, Caching::Uncached).err(), Some(MapError::Absent));
}

#[test]
fn an_unassigned_bar_is_seen_as_such() {
    let machine =
        Machine::builder().device("trn1").fault(Some(0), "bar-unassigned").build().unwrap();
    let function = machine.functions().remove(0);
    assert_eq!(function.map_bar(0, Caching::Uncached).err(), Some(MapError::Unassigned));
}

#[test]
fn a_task_with_a_timer_does_not_hide_that_nothing_comes() {
    let machine = Machine::builder().build().unwrap();
    let ticking = machine.clone();
    let tick = async move {
        loop {
            ticking.sleep(Duration::from_secs(3600)).await;
        }
    };
    machine.spawn("tick", tick).unwrap();
    let stalled = machine.run(std::future::pending::<()>()).unwrap_err();
    assert_eq!(stalled.tasks, ["tick"]);
    machine.shut_down();
}

#[test]
fn wrong_descriptions_are_refused() {
    let unknown = Machine::builder().device("trn9").build().err().unwrap();
    assert_eq!(unknown.exit_code(), 2);
    let fault = Machine::builder().device("trn1").fault(None, "no-such-fault").build().err();
    assert_eq!(fault.unwrap().exit_code(), 2);
}
