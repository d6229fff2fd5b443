//! Console sessions, each kept as a file in `scripts/`.

use axon_tests::PRODUCTS;
use axon_tests::transcript::{check, replay};

#[test]
fn the_language_answers_as_the_manual_says() {
    check("language");
}

#[test]
fn mem_e01_mem_e02_mem_e05_mem_e08_mem_e13_mem_e17_mem_e41_mem_e42_mem_e48_memory() {
    check("memory");
}

#[test]
fn mem_e58_mem_e62_mem_e64_mem_e66_mem_e79_mem_e84_mem_e85_mem_e87_mem_e88_windows() {
    check("windows");
}

#[test]
fn dma_e01_dma_e02_mem_e37_api_e20_api_e21_copies() {
    check("copies");
}

#[test]
fn mem_e51_mem_e52_mem_e60_mem_e63_lifespans() {
    check("lifespans");
}

#[test]
fn api_e08_mem_e60_st_e13_clients() {
    check("clients");
}

#[test]
fn a_late_marker_holds_the_memory_of_a_client_that_left() {
    check("late-marker");
}

#[test]
fn st_e15_st_e27_resets() {
    check("resets");
}

#[test]
fn st_e11_an_invalid_device_and_the_way_back() {
    check("invalid");
}

#[test]
fn faults_are_armed_by_hand() {
    check("faults");
}

#[test]
fn a_function_that_is_pulled_ends_everything_with_an_error() {
    check("gone");
}

#[test]
fn api_e69_api_e70_api_e81_registers() {
    check("registers");
}

#[test]
fn tel_e24_tel_d15_counters_metrics_and_trace_points() {
    check("telemetry");
}

#[test]
fn tel_e16_tel_e18_tel_e20_posts_to_firmware() {
    check("posting");
}

#[test]
fn st_e32_st_e34_st_e35_st_e38_api_e53_api_e56_cores() {
    check("cores");
}

#[test]
fn st_e53_st_e55_st_e56_pod() {
    check("pod");
}

/// What was kept with one product holds on the others.
#[test]
fn every_product_keeps_the_sessions() {
    let sessions = [
        "clients",
        "copies",
        "gone",
        "invalid",
        "late-marker",
        "lifespans",
        "memory",
        "posting",
        "resets",
        "telemetry",
        "windows",
    ];
    for product in PRODUCTS {
        sessions.iter().for_each(|name| replay(name, product));
        replay("batches", product);
    }
    ["cores", "queues"].iter().for_each(|name| replay(name, "trn3"));
}

#[test]
fn dma_e22_dma_e26_dma_e34_dma_e45_queues_and_engines() {
    check("queues");
}

#[test]
fn mem_d08_a_whole_hbm_is_scrubbed() {
    check("scrub");
}

#[test]
fn dma_e38_batches_and_writes_through_the_window() {
    check("batches");
}

#[test]
fn dma_e10_copies_that_are_waited_for_later() {
    check("async");
}

#[test]
fn nq_e32_nq_e33_nq_d16_firmware_reads_registers() {
    check("hwcounters");
}

#[test]
fn nq_e20_nq_e21_nq_e22_notifications() {
    check("notify");
}
