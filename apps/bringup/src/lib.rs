//! Brings every device up, copies in every direction, checks every byte, arms a notification queue of
//! every core, reports.
//!
//! The default application: what a new machine runs first. It prints a table of functions, one
//! line for each core, and one line of JSON (`axon-report: …`) for whoever started it. The exit
//! code is 0 only where every function of the vendor is READY and every byte is right.
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | sizes and offsets |
//! | [`copies`] | the plan carried out on one core |
//! | [`queues`] | a notification queue of one core |
//! | [`metrics`] | what the driver counted meanwhile |
//! | [`report`] | the JSON line |
//! | [`table`] | what a person reads |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod copies;
pub mod metrics;
pub mod plan;
pub mod queues;
pub mod report;
pub mod table;

use alloc::format;
use alloc::string::{String, ToString};

use axon::hal::identity::Product;
use axon::ports::reset::DeviceState;
use axon::{Context, Device, Error, ExitCode, Refusal, Rung};
use axon_platform::{Errno, Platform};

use crate::report::{Boot, DeviceRow, Report};

/// Word of the command line that ends everything in a panic, to see what is printed then.
const PANIC: &str = "panic";

/// Runs to the end.
pub async fn main<P: Platform>(cx: Context<P>) -> ExitCode {
    let Context { platform, driver } = cx;
    let mut boot = Boot::of(&platform);
    driver.settled().await;
    if let Some(boot) = &mut boot {
        boot.settled(&platform);
    }
    let (devices, refusals) = (driver.devices(), driver.refusals());
    let mut report = Report { boot, ..Report::default() };
    report.devices.extend(devices.iter().map(device_row));
    report.devices.extend(refusals.iter().map(refusal_row));
    report.devices.sort_by(|a, b| a.bdf.cmp(&b.bdf));
    let print = |text: &str| platform.console_write(text.as_bytes());

    if report.devices.is_empty() {
        print("no Neuron function (PCI vendor 1d0f) on the bus\n");
    } else {
        print(&table::devices(&report.devices));
        print(&driver.topology().to_string());
    }
    let mut complete = !report.devices.is_empty();
    complete &= report.devices.iter().all(|row| row.error.is_none());
    for device in devices.iter().filter(|device| device.state() == DeviceState::Ready) {
        if let Err(error) = check_device(&platform, device, &mut report).await {
            print(&format!("{}: {error}\n", device.index()));
            complete = false;
        }
    }
    if !report.copies.is_empty() {
        print(&table::copies(&report.copies));
    }
    report.ok = complete && report.copies.iter().all(|row| row.verified);
    print(&format!("{}\n", report.line()));
    assert!(!platform.arguments().iter().any(|word| word == PANIC), "asked for by {PANIC:?}");
    if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every copy of the plan and a queue on every core of one device.
async fn check_device<P: Platform>(
    platform: &P,
    device: &Device<P>,
    report: &mut Report,
) -> Result<(), Error> {
    let client = device.open().await?;
    let mut result = Ok(());
    for core in device.hal().core_ids() {
        result = copies::check_core(&client, core, &mut report.copies).await;
        if result.is_ok() {
            result = queues::check_core(&client, core).await;
        }
        if result.is_err() {
            break;
        }
    }
    client.close().await;
    result.and(metrics::collect(platform, device, &mut report.metrics).await)
}

fn device_row<P: Platform>(device: &Device<P>) -> DeviceRow {
    let (vendor, id) = device.pci_id();
    let state = device.state();
    DeviceRow {
        bdf: device.bdf().to_string(),
        pci_id: format!("{vendor:04x}:{id:04x}"),
        generation: Some(device.hal().generation().to_string()),
        index: Some(device.index().number()),
        state: state.name(),
        bringup_ns: device.bringup().as_nanos() as u64,
        error: (state != DeviceState::Ready).then(|| failure(device)),
    }
}

/// Why a device is there and not READY.
fn failure<P: Platform>(device: &Device<P>) -> String {
    let why = device.failure().unwrap_or(Error::DeviceFailed { errno: Errno::EIO });
    format!("bring-up failed at {}: {why}", Rung::FIRST_RESET)
}

fn refusal_row(refusal: &Refusal) -> DeviceRow {
    DeviceRow {
        bdf: refusal.bdf.to_string(),
        pci_id: format!("{:04x}:{:04x}", refusal.vendor_id, refusal.device_id),
        generation: Product::from_device_id(refusal.device_id)
            .map(|product| product.generation().to_string()),
        index: None,
        state: DeviceState::Invalid.name(),
        bringup_ns: refusal.bringup.as_nanos() as u64,
        error: Some(refusal.error.to_string()),
    }
}
