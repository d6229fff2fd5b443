//! Sets of cores of the host.

use core::fmt;

use axon_ports::GlobalCore;

/// Words of a full-size bitmap.
pub const WORDS: usize = GlobalCore::COUNT / 64;

/// A set of the host's cores; bit *n* of word *w* is core 64·*w* + *n*.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct CoreSet(pub [u64; WORDS]);

impl CoreSet {
    /// No core.
    pub const EMPTY: CoreSet = CoreSet([0; WORDS]);

    /// The cores of a one-word bitmap.
    pub const fn from_word(word: u64) -> Self {
        let mut words = [0; WORDS];
        words[0] = word;
        CoreSet(words)
    }

    /// Adds a core.
    pub fn insert(&mut self, core: GlobalCore) {
        if let Some(word) = self.0.get_mut(core.index() / 64) {
            *word |= 1 << (core.index() % 64);
        }
    }

    /// Takes a core out.
    pub fn remove(&mut self, core: GlobalCore) {
        if let Some(word) = self.0.get_mut(core.index() / 64) {
            *word &= !(1 << (core.index() % 64));
        }
    }

    /// Whether a core is in the set.
    pub fn contains(&self, core: GlobalCore) -> bool {
        self.0.get(core.index() / 64).is_some_and(|word| word >> (core.index() % 64) & 1 != 0)
    }

    /// How many cores.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == CoreSet::EMPTY
    }

    /// The cores, ascending.
    pub fn iter(&self) -> impl Iterator<Item = GlobalCore> + '_ {
        GlobalCore::all().filter(|core| self.contains(*core))
    }

    /// The set as seen from a device whose first core is `base`.
    pub fn relative_to(&self, base: u32) -> CoreSet {
        let lower = |core: GlobalCore| core.number().checked_sub(base).and_then(GlobalCore::new);
        self.iter().filter_map(lower).collect()
    }

    /// The other way round; what would lie behind the last core is ignored.
    pub fn absolute_from(&self, base: u32) -> CoreSet {
        let raise = |core: GlobalCore| core.number().checked_add(base).and_then(GlobalCore::new);
        self.iter().filter_map(raise).collect()
    }
}

impl FromIterator<GlobalCore> for CoreSet {
    fn from_iter<I: IntoIterator<Item = GlobalCore>>(cores: I) -> Self {
        let mut set = CoreSet::EMPTY;
        cores.into_iter().for_each(|core| set.insert(core));
        set
    }
}

impl fmt::Debug for CoreSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(GlobalCore::number)).finish()
    }
}
