//! `devices`, `info`, `bars`, `topology`, `read32`, `write32`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use axon::hal::identity::{Environment, PlatformType};
use axon::ports::DeviceIndex;
use axon::{Device, EccCounts, Identity, PowerSample, Refusal};
use axon_platform::{Errno, PciFunction, Platform};

use crate::answer::{Failure, Fields, Outcome, Value};
use crate::number;
use crate::session::Session;
use crate::words::Words;

/// `devices`: one row a function, refused ones included.
pub(super) fn devices<P: Platform>(
    session: &Session<P>,
    words: &mut Words<'_>,
    rows: &mut dyn FnMut(&Fields),
) -> Outcome {
    words.finish()?;
    let (devices, refusals) = (session.driver.devices(), session.driver.refusals());
    devices.iter().for_each(|device| rows(&device_row(device)));
    refusals.iter().for_each(|refusal| rows(&refusal_row(refusal)));
    Ok(Fields::new().with("count", devices.len()).with("refused", refusals.len()))
}

fn device_row<P: Platform>(device: &Device<P>) -> Fields {
    Fields::new()
        .with("index", device.index().number())
        .with("bdf", device.bdf().to_string())
        .with("pci_id", pci_id(device.pci_id()))
        .with("generation", device.hal().generation().to_string())
        .with("state", device.state().name())
}

fn refusal_row(refusal: &Refusal) -> Fields {
    Fields::new()
        .with("bdf", refusal.bdf.to_string())
        .with("pci_id", pci_id((refusal.vendor_id, refusal.device_id)))
        .with("errno", refusal.error.errno().name())
        .with("error", refusal.error.to_string())
}

fn pci_id((vendor, device): (u16, u16)) -> String {
    format!("{vendor:04x}:{device:04x}")
}

/// `info [DEV]`
pub(super) fn info<P: Platform>(session: &Session<P>, words: &mut Words<'_>) -> Outcome {
    let device = session.device(words, 0)?;
    words.finish()?;
    let hal = device.hal();
    let geometry = hal.memory_geometry();
    let (serial, firmware) = (device.serial_number()?, device.firmware_version()?);
    let fields = device_row(&device)
        .with("product", hal.product().names().device)
        .with("routing_id", device.routing_id().number())
        .with("cores", u32::from(hal.cores()))
        .with("hbm", u32::from(geometry.channel_count))
        .with("hbm_bytes", hal.hbm_size());
    let fields = match serial {
        Some(serial) => fields.address("serial", serial),
        None => fields.with("serial", "none"),
    };
    let fields = match firmware {
        Some(version) => fields.with("firmware_api", version),
        None => fields.with("firmware_api", "none"),
    };
    let fields = fields
        .with("environment", environment(hal.environment()))
        .with("platform", platform_type(hal.platform_type()))
        .address("core_map", hal.core_map().into())
        .with("dice", u32::from(hal.dice()));
    let fields = health(identity(fields, &device.identity()?), &device)?;
    Ok(fields.with("bringup_ns", device.bringup().as_nanos() as u64))
}

fn environment(environment: Environment) -> &'static str {
    match environment {
        Environment::Silicon => "silicon",
        Environment::Qemu => "simulator",
        Environment::Emulator => "emulator",
    }
}

fn platform_type(platform: PlatformType) -> &'static str {
    match platform {
        PlatformType::Standard => "standard",
        PlatformType::UltraServer => "ultraserver",
        PlatformType::Pds => "pds",
    }
}

fn or_none<T: Into<u64>>(number: Option<T>) -> Value {
    number.map_or("none".into(), |number| Value::Number(number.into()))
}

fn identity(fields: Fields, identity: &Identity) -> Fields {
    let reservation = identity.reservation.map_or("none".into(), Value::Address);
    fields
        .with("server", or_none(identity.server))
        .with("rack", or_none(identity.rack))
        .with("instance_size", or_none(identity.instance_size))
        .with("partition_size", or_none(identity.partition_size))
        .with("reservation", reservation)
}

/// Memory errors as corrected/uncorrected, HBM errors as repairable/unrepairable.
fn health<P: Platform>(fields: Fields, device: &Device<P>) -> Result<Fields, Failure> {
    let (health, hal) = (device.health()?, device.hal());
    let ecc = |counts: &Option<EccCounts>| match counts {
        Some(counts) => format!("{}/{}", counts.corrected, counts.uncorrected),
        None => "none".to_string(),
    };
    let list = |texts: &mut dyn Iterator<Item = String>| texts.collect::<Vec<_>>().join(",");
    let channels = usize::from(hal.memory_geometry().channel_count);
    let power = |sample: &Option<PowerSample>| match sample {
        Some(PowerSample { basis_points, .. }) => {
            format!("{}.{:02}%", basis_points / 100, basis_points % 100)
        }
        None => "none".to_string(),
    };
    let errors = health.hbm_errors;
    Ok(fields
        .with("sram_ecc", ecc(&health.sram))
        .with("hbm_ecc", list(&mut health.hbm.iter().take(channels).map(ecc)))
        .with("hbm_errors", format!("{}/{}", errors.repairable, errors.unrepairable))
        .with(
            "repair",
            match health.repair_state {
                Some(0) => "none",
                Some(1) => "pending",
                Some(2) => "failed",
                _ => "unknown",
            },
        )
        .with("power", list(&mut health.power.iter().take(hal.dice().into()).map(power))))
}

/// `bars [DEV]`
pub(super) fn bars<P: Platform>(
    session: &Session<P>,
    words: &mut Words<'_>,
    rows: &mut dyn FnMut(&Fields),
) -> Outcome {
    let device = session.device(words, 0)?;
    words.finish()?;
    let functions = session.platform.functions();
    let function = functions
        .get(device.position())
        .ok_or_else(|| Failure::invalid("the function is gone from the bus"))?;
    let found = (0..6).filter_map(|bar| Some((bar, function.bar(bar)?)));
    let mut count = 0u64;
    for (bar, info) in found {
        rows(
            &Fields::new()
                .with("bar", u32::from(bar))
                .address("address", info.address)
                .with("size", info.len_bytes)
                .with("prefetchable", info.prefetchable)
                .with("bits", if info.is_64bit { 64u32 } else { 32 }),
        );
        count += 1;
    }
    Ok(Fields::new().with("count", count))
}

/// `topology [DEV]`: device indices of the neighbours (specification 08 §8.9.2). `topology all`: a
/// row a device, then a drawing, line by line.
pub(super) fn topology<P: Platform>(
    session: &Session<P>,
    words: &mut Words<'_>,
    rows: &mut dyn FnMut(&Fields),
) -> Outcome {
    if words.peek() == Some("all") {
        words.word("device")?;
        words.finish()?;
        let topology = session.driver.topology();
        for (index, neighbours) in topology.devices() {
            let row = Fields::new().with("index", index.number());
            rows(&row.with("connected", names(neighbours)));
        }
        for line in topology.to_string().lines() {
            rows(&Fields::new().with("drawing", line.to_string()));
        }
        return Ok(Fields::new().with("count", topology.devices().count()));
    }
    let device = session.device(words, 0)?;
    words.finish()?;
    let neighbours = device.neighbours();
    Ok(Fields::new().with("connected", names(&neighbours)).with("count", neighbours.len()))
}

fn names(neighbours: &[DeviceIndex]) -> String {
    if neighbours.is_empty() {
        return "none".into();
    }
    let numbers = neighbours.iter().map(|index| index.number().to_string());
    numbers.collect::<Vec<_>>().join(",")
}

/// `read32 [DEV] bar0+OFF`
pub(super) fn read32<P: Platform>(session: &Session<P>, words: &mut Words<'_>) -> Outcome {
    let device = session.device(words, 1)?;
    let offset = register(words)?;
    words.finish()?;
    Ok(Fields::new().with("value", Value::Word(device.read32(offset)?)))
}

/// `write32 [DEV] bar0+OFF VALUE`, by the current client; registers of the deny list are refused.
pub(super) fn write32<P: Platform>(session: &Session<P>, words: &mut Words<'_>) -> Outcome {
    let device = session.device(words, 2)?;
    let offset = register(words)?;
    let value = words.limited("value", u32::MAX.into())?;
    words.finish()?;
    let client = session.client()?;
    if client.device().index() != device.index() {
        return Err(Failure::new(Errno::EACCES, "the current client is on another device"));
    }
    axon::raw::operator_write32(client, offset, value as u32)?;
    Ok(Fields::new())
}

/// `bar0+OFF`
fn register(words: &mut Words<'_>) -> Result<u64, Failure> {
    let word = words.word("register")?;
    let offset = word.strip_prefix("bar0+").ok_or_else(|| {
        Failure::invalid(format_args!("`{word}` is no register; write bar0+OFFSET"))
    })?;
    number::number("offset", offset)
}
