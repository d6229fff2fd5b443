//! Spans given back that are kept at hand, because the next one asked for mostly has their length.

/// Spans kept at most; what is put off with them is bounded by it.
pub(super) const LIMIT: usize = 64;

/// Record of a kept span, which is nobody's.
pub(super) const NOBODY: u32 = (1 << 31) - 1;

/// Starts of the kept spans, ascending; all have one length.
///
/// The index shows them as used by [`NOBODY`]. The granule before each is used or kept, and no free
/// run of the index that starts below [`Self::below`] is as long as they are. So the lowest of them
/// is the lowest place for that length.
pub(super) struct Kept {
    starts: [u32; LIMIT],
    /// Spans taken out and put in so far; places are these numbers modulo [`LIMIT`].
    first: u32,
    end: u32,
    /// Granules of each; 0 while nothing can be kept.
    count: u32,
    below: u32,
}

impl Kept {
    pub(super) const fn new() -> Self {
        Kept { starts: [0; LIMIT], first: 0, end: 0, count: 0, below: 0 }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// Granules of each span.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Granules of all of them.
    #[inline]
    pub(super) fn granules(&self) -> u32 {
        self.end.wrapping_sub(self.first) * self.count
    }

    /// From now on spans of `count` granules are kept that start below `below`. There are none.
    #[inline]
    pub(super) fn expect(&mut self, count: u32, below: u32) {
        self.count = count;
        self.below = below;
    }

    /// A free run as long as the spans are, or longer, starts at `start` now.
    #[inline]
    pub(super) fn lower(&mut self, start: u32) {
        self.below = self.below.min(start);
    }

    /// Whether nothing as long as the spans fits below `start` but they themselves.
    #[inline]
    pub(super) fn reaches(&self, start: u32) -> bool {
        start < self.below
    }

    #[inline]
    fn place(&mut self, number: u32) -> &mut u32 {
        &mut self.starts[number as usize % LIMIT]
    }

    /// Takes out the lowest span.
    #[inline]
    pub(super) fn take_lowest(&mut self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let start = *self.place(self.first);
        self.first = self.first.wrapping_add(1);
        Some(start)
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.end.wrapping_sub(self.first) as usize == LIMIT
    }

    /// Whether a span can be the new highest one.
    #[inline(always)]
    pub(super) fn is_next(&self, start: u32) -> bool {
        let highest = self.starts[self.end.wrapping_sub(1) as usize % LIMIT];
        (highest < start && !self.is_full()) || self.is_empty()
    }

    /// Adds a new highest span.
    #[inline(always)]
    pub(super) fn append(&mut self, start: u32) {
        *self.place(self.end) = start;
        self.end = self.end.wrapping_add(1);
    }

    /// Adds a span; answers the highest of all where there is no room for it.
    pub(super) fn add(&mut self, start: u32) -> Option<u32> {
        if self.is_next(start) {
            self.append(start);
            return None;
        }
        let mut surplus = None;
        if self.is_full() {
            let highest = *self.place(self.end.wrapping_sub(1));
            if highest < start {
                return Some(start);
            }
            surplus = Some(highest);
            self.end = self.end.wrapping_sub(1);
        }
        let mut at = self.first.wrapping_sub(1);
        if start < *self.place(self.first) {
            self.first = at;
        } else {
            at = self.end;
            self.end = at.wrapping_add(1);
            while *self.place(at.wrapping_sub(1)) > start {
                *self.place(at) = *self.place(at.wrapping_sub(1));
                at = at.wrapping_sub(1);
            }
        }
        *self.place(at) = start;
        surplus
    }

    /// The spans, ascending.
    pub(super) fn starts(&self) -> impl Iterator<Item = u32> {
        let length = self.end.wrapping_sub(self.first);
        (0..length).map(|at| self.starts[self.first.wrapping_add(at) as usize % LIMIT])
    }
}
