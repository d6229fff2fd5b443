//! How fast the time-stamp counter and the local APIC timer run.
//!
//! Asked of the processor or the hypervisor where they know, measured else: against the HPET, or
//! the PIT where there is none. A measurement ends as soon as it is good to a thousandth, at the
//! latest after a millisecond: under instruction counting that is a few thousand instructions.

use axon_platform::MapError;
use x86_64::instructions::port::Port;

use crate::interrupts::local::LocalApic;
use crate::memory::paging::Rights;
use crate::memory::windows::Mapping;
use crate::processor::{self, time_stamp};

/// Rate of both counters under instruction counting.
pub const INSTRUCTIONS: u64 = 1_000_000_000;

/// Longest measurement, in nanoseconds of the reference.
const LIMIT_NANOS: u64 = 1_000_000;

/// A counter to compare the time-stamp counter with.
trait Counter {
    /// Its value.
    fn read(&mut self) -> u64;
    /// Ticks between two of its values, the first of them earlier.
    fn elapsed(&self, from: u64, to: u64) -> u64;
}

/// The time-stamp counter's rate in hertz as processor or hypervisor state it.
pub fn stated() -> Option<u64> {
    // Leaf 0x15: crystal frequency and the ratio of the counter to it.
    let crystal = processor::leaf(0x15)
        .filter(|leaf| leaf.eax != 0 && leaf.ecx != 0)
        .map(|leaf| u64::from(leaf.ecx) * u64::from(leaf.ebx) / u64::from(leaf.eax));
    // Hypervisors state it in kHz.
    let hypervisor = || processor::leaf(0x4000_0010).map(|leaf| u64::from(leaf.eax) * 1000);
    crystal.or_else(hypervisor).filter(|&hertz| hertz != 0)
}

/// Measures the time-stamp counter against the HPET at `hpet`, or the PIT.
///
/// # Errors
/// [`MapError`] where the HPET cannot be mapped.
pub fn measure(hpet: Option<u64>) -> Result<u64, MapError> {
    let hpet = match hpet {
        Some(address) => Hpet::new(address)?,
        None => None,
    };
    Ok(match hpet {
        Some(mut hpet) => {
            let femtoseconds = hpet.femtoseconds;
            let limit = LIMIT_NANOS * 1_000_000 / femtoseconds;
            let (ticks, reference) = compare(&mut hpet, |_, counts| counts >= limit);
            hertz(ticks, u128::from(reference) * u128::from(femtoseconds))
        }
        None => {
            let mut pit = Pit::new();
            let limit = LIMIT_NANOS * Pit::HERTZ / 1_000_000_000;
            let (ticks, reference) = compare(&mut pit, |_, counts| counts >= limit);
            hertz(ticks, u128::from(reference) * 1_000_000_000_000_000 / u128::from(Pit::HERTZ))
        }
    })
}

/// Measures the local APIC timer against the time-stamp counter, which runs at `hertz`.
pub fn measure_timer(apic: &LocalApic, hertz: u64) -> u64 {
    apic.arm_count(u32::MAX);
    let limit = (u128::from(hertz) * u128::from(LIMIT_NANOS) / 1_000_000_000) as u64;
    let (ticks, counts) = compare(&mut Countdown(apic), |ticks, _| ticks >= limit);
    apic.arm_count(0);
    (u128::from(counts) * u128::from(hertz) / u128::from(ticks.max(1))) as u64
}

fn hertz(ticks: u64, femtoseconds: u128) -> u64 {
    (u128::from(ticks) * 1_000_000_000_000_000 / femtoseconds.max(1)) as u64
}

/// Lets both counters run until their ratio is known to a thousandth, or `late` says that it must do:
/// ticks of the time-stamp counter, counts of the other one.
fn compare(counter: &mut impl Counter, late: impl Fn(u64, u64) -> bool) -> (u64, u64) {
    let start = Sample::take(counter);
    // A counter that stands still must not hold the boot up.
    for _ in 0..10_000_000u32 {
        let now = Sample::take(counter);
        let ticks = now.time_stamp.wrapping_sub(start.time_stamp);
        let counts = counter.elapsed(start.value, now.value);
        // Uncertain are the time that reading took at both ends, and one count.
        let precise = (start.width + now.width) * 1000 <= ticks && counts >= 1000;
        if precise || late(ticks, counts) {
            return (ticks, counts);
        }
    }
    (0, 0)
}

struct Sample {
    time_stamp: u64,
    value: u64,
    width: u64,
}

impl Sample {
    /// Reads the counter between two looks at the time-stamp counter; the best of three.
    fn take(counter: &mut impl Counter) -> Sample {
        let mut best = Sample { time_stamp: 0, value: 0, width: u64::MAX };
        for _ in 0..3 {
            let before = time_stamp();
            let value = counter.read();
            let width = time_stamp().wrapping_sub(before);
            if width < best.width {
                best = Sample { time_stamp: before + width / 2, value, width };
            }
        }
        best
    }
}

/// The high precision event timer's main counter.
struct Hpet {
    mapping: alloc::sync::Arc<Mapping>,
    femtoseconds: u64,
}

impl Hpet {
    /// `None` where it states an impossible period.
    fn new(address: u64) -> Result<Option<Self>, MapError> {
        let mapping = Mapping::new(address, 1024, Rights::Uncached)?;
        let mut hpet = Hpet { mapping, femtoseconds: 0 };
        hpet.femtoseconds = u64::from(hpet.register(4));
        // At most 100 ns, as its specification says.
        if hpet.femtoseconds == 0 || hpet.femtoseconds > 100_000_000 {
            return Ok(None);
        }
        let configuration = hpet.register(0x10) | 1;
        // SAFETY: a register of the HPET; the bit makes its counter run.
        unsafe { hpet.at(0x10).write_volatile(configuration) };
        Ok(Some(hpet))
    }

    fn register(&self, offset: u64) -> u32 {
        // SAFETY: a register of the HPET, whose block is mapped whole.
        unsafe { self.at(offset).read_volatile() }
    }

    fn at(&self, offset: u64) -> *mut u32 {
        (self.mapping.start() + offset) as *mut u32
    }
}

impl Counter for Hpet {
    fn read(&mut self) -> u64 {
        u64::from(self.register(0xf0))
    }

    fn elapsed(&self, from: u64, to: u64) -> u64 {
        u64::from((to as u32).wrapping_sub(from as u32))
    }
}

/// Channel 2 of the programmable interval timer, which drives nothing but the speaker.
struct Pit;

impl Pit {
    const HERTZ: u64 = 1_193_182;

    fn new() -> Self {
        // SAFETY: gate and speaker bits, mode 0, count 65,536: no interrupt, no sound.
        unsafe {
            let mut gate = Port::<u8>::new(0x61);
            let state = gate.read();
            gate.write(state & !2 | 1);
            Port::new(0x43).write(0b1011_0000u8);
            Port::new(0x42).write(0u8);
            Port::new(0x42).write(0u8);
        }
        Pit
    }
}

impl Counter for Pit {
    fn read(&mut self) -> u64 {
        // SAFETY: latches and reads the count of channel 2.
        let bytes: [u8; 2] = unsafe {
            Port::new(0x43).write(0b1000_0000u8);
            [Port::new(0x42).read(), Port::new(0x42).read()]
        };
        u64::from(u16::from_le_bytes(bytes))
    }

    fn elapsed(&self, from: u64, to: u64) -> u64 {
        u64::from((from as u16).wrapping_sub(to as u16))
    }
}

/// The local APIC timer, counting down from all-ones.
struct Countdown<'a>(&'a LocalApic);

impl Counter for Countdown<'_> {
    fn read(&mut self) -> u64 {
        u64::from(self.0.count())
    }

    fn elapsed(&self, from: u64, to: u64) -> u64 {
        from.saturating_sub(to)
    }
}
