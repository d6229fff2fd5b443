//! The word that decides whether a chunk lives and whether its memory may be reused: generation, pins,
//! dropped references, place in the release chain.

use core::sync::atomic::Ordering;

use super::ChunkRecord;

pub(super) const PIN: u64 = 1;
pub(super) const PINS: u64 = 0xf_ffff;
/// Set only where pins are counted the careful way, because there are so many.
const MANY_PINS: u64 = 1 << 19;
const DROP: u64 = 1 << 20;
const DROPS: u64 = 0x3ff << 20;
/// The chunk is host memory; in this word so that pinning device memory need not look elsewhere.
pub(super) const HOST: u64 = 1 << 30;
const QUEUED: u64 = 1 << 31;
/// The generation is the upper half.
const GENERATION: u32 = 32;
/// Bit of the state: a chunk lives.
pub(super) const ALIVE: u64 = 1 << GENERATION;

/// What the service finds when it sweeps a slot of the release chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collected {
    /// References dropped since the last sweep; 0 for a dead chunk.
    pub dropped: u32,
    /// Whether the chunk lives.
    pub alive: bool,
    /// Pins held now.
    pub pins: u32,
}

/// References one chunk can have, so that the count of dropped ones cannot overflow.
pub const MAX_REFERENCES: u32 = 1000;

impl ChunkRecord {
    /// Service: ends the chunk. No pin can be taken any more; answers how many are left.
    #[inline]
    pub fn close(&self) -> u32 {
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            let new = now.wrapping_add(ALIVE) & !DROPS;
            match self.exchange(now, new) {
                Ok(()) => return pins_of(now),
                Err(seen) => now = seen,
            }
        }
    }

    /// Service: ends a chunk of device memory that has no pin and does not wait in the release
    /// chain; `false` where that is not so, and nothing has changed.
    #[inline(always)]
    pub fn close_quiet(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        let quiet = state & ALIVE != 0 && state as u32 == 0;
        quiet && self.exchange(state, state.wrapping_add(ALIVE)).is_ok()
    }

    /// Service: takes the slot out of the release chain and answers why it was there.
    pub fn collect(&self) -> Collected {
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            match self.exchange(now, now & !(QUEUED | DROPS)) {
                Ok(()) => {
                    return Collected {
                        dropped: ((now & DROPS) >> 20) as u32,
                        alive: now & ALIVE != 0,
                        pins: pins_of(now),
                    };
                }
                Err(seen) => now = seen,
            }
        }
    }

    /// Generation now; odd while a chunk lives.
    #[inline]
    pub fn generation(&self) -> u32 {
        generation_of(self.state.load(Ordering::Acquire))
    }

    /// Generation where a chunk lives.
    #[inline]
    pub fn alive(&self) -> Option<u32> {
        let state = self.state.load(Ordering::Acquire);
        (state & ALIVE != 0).then_some(generation_of(state))
    }

    /// Pins held now.
    #[inline]
    pub fn pins(&self) -> u32 {
        pins_of(self.state.load(Ordering::Acquire))
    }

    /// Takes a pin on a chunk of device memory: its generation. `None` where no chunk lives, or
    /// where [`Self::pin`] has to decide.
    #[inline(always)]
    pub(in crate::chunk) fn pin_device(&self) -> Option<u32> {
        let state = self.state.load(Ordering::Acquire);
        let usual = state & ALIVE != 0 && state & (HOST | MANY_PINS) == 0;
        (usual && self.exchange(state, state + PIN).is_ok()).then_some(generation_of(state))
    }

    /// Takes a pin on the chunk of `generation`; `false` where it is gone.
    pub(in crate::chunk) fn pin(&self, generation: u32) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        while generation_of(now) == generation && generation & 1 != 0 {
            match self.exchange(now, add_pin(now)) {
                Ok(()) => return true,
                Err(seen) => now = seen,
            }
        }
        false
    }

    /// As [`Self::pin`]; one look decides where nothing speaks against it.
    #[inline(always)]
    pub(in crate::chunk) fn pin_live(&self, generation: u32) -> bool {
        self.pin_state(generation).is_some() || self.pin_again(generation)
    }

    /// Takes a pin in one look: the word with it; `None` where [`Self::pin`] has to decide.
    #[inline(always)]
    fn pin_state(&self, generation: u32) -> Option<u64> {
        let now = self.state.load(Ordering::Relaxed);
        if generation_of(now) != generation || generation & 1 == 0 || now & MANY_PINS != 0 {
            return None;
        }
        self.exchange(now, now + PIN).ok().map(|()| now + PIN)
    }

    #[cold]
    #[inline(never)]
    fn pin_again(&self, generation: u32) -> bool {
        self.pin(generation)
    }

    /// Takes a pin for a moment: what [`Self::let_go`] needs, `None` where the chunk is gone.
    #[inline(always)]
    pub(in crate::chunk) fn hold(&self, generation: u32) -> Option<u64> {
        match self.pin_state(generation) {
            None => self.pin_again(generation).then_some(0),
            state => state,
        }
    }

    /// Gives a pin of [`Self::hold`] back, where nothing has happened to the chunk meanwhile; else
    /// `false`, and [`Self::unpin`] decides.
    #[inline(always)]
    pub(in crate::chunk) fn let_go(&self, held: u64) -> bool {
        held != 0 && self.exchange(held, held - PIN).is_ok()
    }

    /// The word, where a chunk lives.
    #[inline(always)]
    pub(in crate::chunk) fn state_alive(&self) -> Option<u64> {
        let state = self.state.load(Ordering::Acquire);
        (state & ALIVE != 0).then_some(state)
    }

    /// Another pin for somebody who holds one; works on a dead chunk too.
    #[inline(always)]
    pub(in crate::chunk) fn pin_held(&self) {
        let now = self.state.load(Ordering::Relaxed);
        if now & MANY_PINS != 0 || self.exchange(now, now + PIN).is_err() {
            self.pin_held_again();
        }
    }

    #[cold]
    #[inline(never)]
    fn pin_held_again(&self) {
        let mut now = self.state.load(Ordering::Relaxed);
        while let Err(seen) = self.exchange(now, add_pin(now)) {
            now = seen;
        }
    }

    /// Gives a pin back, where the chunk lives and nobody has to be told; else `false`, and
    /// [`Self::unpin`] decides.
    #[inline(always)]
    pub(in crate::chunk) fn unpin_live(&self) -> bool {
        let now = self.state.load(Ordering::Relaxed);
        now & ALIVE != 0 && now & MANY_PINS == 0 && self.exchange(now, now - PIN).is_ok()
    }

    /// Gives a pin back; `true` where the caller must put the slot into the release chain.
    pub(in crate::chunk) fn unpin(&self) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            let mut new = if now & PINS == PINS { now } else { now - PIN };
            let tell = new & (PINS | QUEUED | ALIVE) == 0;
            if tell {
                new |= QUEUED;
            }
            match self.exchange(now, new) {
                Ok(()) => return tell,
                Err(seen) => now = seen,
            }
        }
    }

    /// Gives a reference back; `true` where the caller must put the slot into the release chain.
    #[inline]
    pub(in crate::chunk) fn drop_reference(&self, generation: u32) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        while generation_of(now) == generation && generation & 1 != 0 && now & DROPS != DROPS {
            match self.exchange(now, (now + DROP) | QUEUED) {
                Ok(()) => return now & QUEUED == 0,
                Err(seen) => now = seen,
            }
        }
        false
    }

    #[inline(always)]
    fn exchange(&self, now: u64, new: u64) -> Result<(), u64> {
        self.state.compare_exchange(now, new, Ordering::AcqRel, Ordering::Relaxed).map(drop)
    }
}

/// One more pin. A count at its limit stays there for good: such memory is never reused, which is
/// a leak but never a use after free.
fn add_pin(state: u64) -> u64 {
    if state & PINS == PINS { state } else { state + PIN }
}

fn pins_of(state: u64) -> u32 {
    (state & PINS) as u32
}

#[inline(always)]
pub(in crate::chunk) const fn generation_of(state: u64) -> u32 {
    (state >> GENERATION) as u32
}
