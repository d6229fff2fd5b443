//! Carries the plan out on one core and looks at every byte.

use alloc::vec;
use alloc::vec::Vec;

use axon::pattern::SplitMix64;
use axon::ports::{CoreId, HbmIndex};
use axon::{Buffer, Client, Counters, DeviceAlloc, DeviceBuffer, Error, HostAlloc, HostBuffer};
use axon_platform::Platform;

use crate::plan::{BUFFER_BYTES, Direction, GUARD, Step, steps};
use crate::report::CopyRow;

/// Bytes made and compared at once; a multiple of 8, so that a sequence goes on in the next piece.
const PIECE: u64 = 64 << 10;
/// What lies around the target before a copy, and after it.
const GUARD_BYTE: u8 = 0xa5;

/// The memory of the tests on one core.
struct Bench<P: Platform> {
    client: Client<P>,
    core: CoreId,
    near: DeviceBuffer<P>,
    far: DeviceBuffer<P>,
    from: HostBuffer<P>,
    to: HostBuffer<P>,
}

/// Runs every step of the plan on one core, in order.
///
/// # Errors
/// [`Error`] of an allocation or a transfer; rows done so far are in `rows`. A byte that is wrong
/// is no error but a row that is not verified.
pub async fn check_core<P: Platform>(
    client: &Client<P>,
    core: CoreId,
    rows: &mut Vec<CopyRow>,
) -> Result<(), Error> {
    let bench = Bench::new(client, core).await?;
    for (step, seed) in steps().zip(1..) {
        rows.push(bench.run(step, seed).await?);
    }
    Ok(())
}

impl<P: Platform> Bench<P> {
    async fn new(client: &Client<P>, core: CoreId) -> Result<Self, Error> {
        let hal = client.device().hal();
        let channels = u32::from(hal.memory_geometry().channel_count);
        let beside = core.number() * channels / u32::from(hal.cores()).max(1);
        let device = DeviceAlloc {
            core,
            hbm: HbmIndex::new(beside).ok_or(Error::TooBig {
                what: "HBM",
                value: beside.into(),
                limit: HbmIndex::COUNT as u64,
            })?,
            ..DeviceAlloc::new(BUFFER_BYTES)
        };
        let host = HostAlloc { core, ..HostAlloc::new(BUFFER_BYTES) };
        Ok(Bench {
            client: client.clone(),
            core,
            near: client.alloc_device(device).await?,
            far: client.alloc_device(device).await?,
            from: client.alloc_host(host).await?,
            to: client.alloc_host(host).await?,
        })
    }

    async fn run(&self, step: Step, seed: u64) -> Result<CopyRow, Error> {
        let (source, target): (&Buffer<P>, &Buffer<P>) = match step.direction {
            Direction::HostToDevice => (&self.from, &self.near),
            Direction::DeviceToDevice => (&self.near, &self.far),
            Direction::DeviceToHost => (&self.far, &self.to),
        };
        prepare(source, target, step, seed).await?;

        let device = self.client.device();
        let before = device.counters();
        let from = source.span(step.source..step.source + step.bytes)?;
        let to = target.span(step.target..step.target + step.bytes)?;
        from.copy_to(to)?.await?;
        let after = device.counters();

        let spent = |count: fn(&Counters) -> u64| count(&after) - count(&before);
        Ok(CopyRow {
            device: device.index().number(),
            core: self.core.number(),
            kind: step.direction.name(),
            bytes: step.bytes,
            verified: is_as_planned(target, step, seed).await?,
            doorbells: spent(|counters| counters.doorbells),
            register_reads: spent(|counters| counters.register_reads),
            descriptors: spent(|counters| counters.descriptors),
        })
    }
}

/// Data into the source; guards around the target, and something else than the data into it.
async fn prepare<P: Platform>(
    source: &Buffer<P>,
    target: &Buffer<P>,
    step: Step,
    seed: u64,
) -> Result<(), Error> {
    let mut sequence = SplitMix64::new(seed);
    let mut data = vec![0; PIECE as usize];
    for (at, size) in pieces(step.bytes) {
        data.truncate(size);
        sequence.fill(&mut data);
        source.write(step.source + at, &data).await?;
    }
    let guard = [GUARD_BYTE; GUARD as usize];
    target.write(step.target - GUARD, &guard).await?;
    target.write(step.target, &[GUARD_BYTE]).await?;
    target.write(step.target + step.bytes - 1, &[GUARD_BYTE]).await?;
    target.write(step.target + step.bytes, &guard).await
}

async fn is_as_planned<P: Platform>(
    target: &Buffer<P>,
    step: Step,
    seed: u64,
) -> Result<bool, Error> {
    let mut guard = [0; GUARD as usize];
    for at in [step.target - GUARD, step.target + step.bytes] {
        target.read(at, &mut guard).await?;
        if guard != [GUARD_BYTE; GUARD as usize] {
            return Ok(false);
        }
    }
    let mut sequence = SplitMix64::new(seed);
    let (mut expected, mut found) = (vec![0; PIECE as usize], vec![0; PIECE as usize]);
    for (at, size) in pieces(step.bytes) {
        expected.truncate(size);
        found.truncate(size);
        sequence.fill(&mut expected);
        target.read(step.target + at, &mut found).await?;
        if found != expected {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Offset and length of each piece of `bytes`.
fn pieces(bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..bytes.div_ceil(PIECE)).map(move |piece| {
        let at = piece * PIECE;
        (at, (bytes - at).min(PIECE) as usize)
    })
}
