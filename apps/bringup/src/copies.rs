//! Carries the plan out on one core and looks at every byte.
//!
//! Nothing moves that is not a row of the report: the CPU fills and reads host memory only, and
//! device memory is set and read back by fills and copies that are rows themselves. So the sum of
//! the rows' doorbells is all that the device ever saw.

use alloc::vec;
use alloc::vec::Vec;
use core::future::Future;

use axon::pattern::SplitMix64;
use axon::ports::{CoreId, HbmIndex};
use axon::{Client, Counters, DeviceAlloc, DeviceBuffer, Error, HostAlloc, HostBuffer};
use axon_platform::{DmaBuf, Platform};

use crate::plan::{BUFFER_BYTES, GUARD, Step, steps};
use crate::report::CopyRow;

/// Bytes made and compared at once; a multiple of 8, so that a sequence goes on in the next piece.
const PIECE: usize = 64 << 10;
/// What lies around a target in device memory.
const DEVICE_GUARD: u8 = 0xa5;
/// What lies around a target in host memory.
const HOST_GUARD: u8 = 0x5a;

/// The memory of the tests on one core, and what came of them.
struct Bench<'a, P: Platform> {
    client: &'a Client<P>,
    core: CoreId,
    near: DeviceBuffer<P>,
    far: DeviceBuffer<P>,
    from: HostBuffer<P>,
    to: HostBuffer<P>,
    rows: &'a mut Vec<CopyRow>,
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
    let mut bench = Bench::new(client, core, rows).await?;
    for step in steps() {
        bench.run(step).await?;
    }
    Ok(())
}

impl<'a, P: Platform> Bench<'a, P> {
    async fn new(
        client: &'a Client<P>,
        core: CoreId,
        rows: &'a mut Vec<CopyRow>,
    ) -> Result<Self, Error> {
        let hal = client.device().hal();
        let channels = u32::from(hal.memory_geometry().channel_count);
        let beside = core.number() * channels / u32::from(hal.cores()).max(1);
        let limit = HbmIndex::COUNT as u64;
        let hbm = HbmIndex::new(beside).ok_or(Error::TooBig {
            what: "HBM",
            value: beside.into(),
            limit,
        })?;
        let device = DeviceAlloc { core, hbm, ..DeviceAlloc::new(BUFFER_BYTES) };
        let host = HostAlloc { core, ..HostAlloc::new(BUFFER_BYTES) };
        Ok(Bench {
            client,
            core,
            near: client.alloc_device(device).await?,
            far: client.alloc_device(device).await?,
            from: client.alloc_host(host).await?,
            to: client.alloc_host(host).await?,
            rows,
        })
    }

    /// Data goes from host to near to far to host; after each stop it is looked at.
    async fn run(&mut self, step: Step) -> Result<(), Error> {
        let Step { bytes, from, near, far, to, .. } = step;
        put(memory_of(&self.from)?, from, step)?;

        let set = self.set(&self.near, near, bytes).await?;
        let source = self.from.span(from..from + bytes)?;
        let copy = source.copy_to(self.near.span(near..near + bytes)?)?;
        let copied = self.measure("h2d", bytes, copy).await?;
        let back = self.read_back(&self.near, near, step).await?;
        self.judge([set, copied, back], to, GUARD, step)?;

        let set = self.set(&self.far, far, bytes).await?;
        let source = self.near.span(near..near + bytes)?;
        let copy = source.copy_to(self.far.span(far..far + bytes)?)?;
        let copied = self.measure("d2d", bytes, copy).await?;
        let back = self.read_back(&self.far, far, step).await?;
        self.judge([set, copied, back], to, GUARD, step)?;

        clear(memory_of(&self.to)?, to, bytes)?;
        let source = self.far.span(far..far + bytes)?;
        let copy = source.copy_to(self.to.span(to..to + bytes)?)?;
        let copied = self.measure("d2h", bytes, copy).await?;
        self.judge([copied], to, 0, step)
    }

    /// Makes a target and its guards of device memory say something else than the data.
    async fn set(
        &self,
        buffer: &DeviceBuffer<P>,
        target: u64,
        bytes: u64,
    ) -> Result<CopyRow, Error> {
        let fill = buffer.fill(target - GUARD..target + bytes + GUARD, DEVICE_GUARD)?;
        self.measure("memset", bytes + 2 * GUARD, fill).await
    }

    /// Brings a target of device memory with its guards to where the CPU can look at it.
    async fn read_back(
        &self,
        buffer: &DeviceBuffer<P>,
        target: u64,
        step: Step,
    ) -> Result<CopyRow, Error> {
        let (to, bytes) = (step.to - GUARD, step.bytes + 2 * GUARD);
        clear(memory_of(&self.to)?, to, bytes)?;
        let source = buffer.span(target - GUARD..target - GUARD + bytes)?;
        let copy = source.copy_to(self.to.span(to..to + bytes)?)?;
        self.measure("d2h", bytes, copy).await
    }

    /// Runs one transfer and notes what it took.
    async fn measure(
        &self,
        kind: &'static str,
        bytes: u64,
        transfer: impl Future<Output = Result<(), Error>>,
    ) -> Result<CopyRow, Error> {
        let device = self.client.device();
        let before = device.counters();
        transfer.await?;
        let after = device.counters();
        let spent = |count: fn(&Counters) -> u64| count(&after) - count(&before);
        Ok(CopyRow {
            device: device.index().number(),
            core: self.core.number(),
            kind,
            bytes,
            verified: false,
            doorbells: spent(|counters| counters.doorbells),
            register_reads: spent(|counters| counters.register_reads),
            descriptors: spent(|counters| counters.descriptors),
        })
    }

    /// The rows are right where the data arrived, `margin` bytes of device guard on each side of
    /// it did, and the host's guards beside those are untouched.
    fn judge<const N: usize>(
        &mut self,
        rows: [CopyRow; N],
        to: u64,
        margin: u64,
        step: Step,
    ) -> Result<(), Error> {
        let memory = memory_of(&self.to)?;
        let (start, end) = (to - margin, to + step.bytes + margin);
        let verified = is_all(memory, start - GUARD, GUARD, HOST_GUARD)?
            && is_all(memory, start, margin, DEVICE_GUARD)?
            && is_data(memory, to, step)?
            && is_all(memory, to + step.bytes, margin, DEVICE_GUARD)?
            && is_all(memory, end, GUARD, HOST_GUARD)?;
        self.rows.extend(rows.map(|row| CopyRow { verified, ..row }));
        Ok(())
    }
}

fn memory_of<P: Platform>(buffer: &HostBuffer<P>) -> Result<&DmaBuf, Error> {
    buffer.memory().ok_or(Error::BadHandle { handle: buffer.handle() })
}

/// Writes the data of a step.
fn put(memory: &DmaBuf, at: u64, step: Step) -> Result<(), Error> {
    let mut sequence = SplitMix64::new(step.seed);
    let mut data = vec![0; PIECE];
    for (offset, size) in pieces(step.bytes) {
        data.truncate(size);
        sequence.fill(&mut data);
        memory.write(at + offset, &data)?;
    }
    Ok(())
}

/// Puts guards where a target is going to be, and around it.
fn clear(memory: &DmaBuf, at: u64, bytes: u64) -> Result<(), Error> {
    Ok(memory.fill(at - GUARD, bytes + 2 * GUARD, HOST_GUARD)?)
}

/// Whether the data of a step is there.
fn is_data(memory: &DmaBuf, at: u64, step: Step) -> Result<bool, Error> {
    let mut sequence = SplitMix64::new(step.seed);
    let (mut expected, mut found) = (vec![0; PIECE], vec![0; PIECE]);
    for (offset, size) in pieces(step.bytes) {
        expected.truncate(size);
        found.truncate(size);
        sequence.fill(&mut expected);
        memory.read(at + offset, &mut found)?;
        if found != expected {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether at most [`GUARD`] bytes are all `byte`.
fn is_all(memory: &DmaBuf, at: u64, bytes: u64, byte: u8) -> Result<bool, Error> {
    let mut found = [0; GUARD as usize];
    let found = found.get_mut(..bytes as usize).ok_or(Error::TooBig {
        what: "guard",
        value: bytes,
        limit: GUARD + 1,
    })?;
    memory.read(at, found)?;
    Ok(found.iter().all(|found| *found == byte))
}

/// Offset and length of each piece of `bytes`.
fn pieces(bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    let piece = PIECE as u64;
    (0..bytes.div_ceil(piece)).map(move |at| (at * piece, (bytes - at * piece).min(piece) as usize))
}
