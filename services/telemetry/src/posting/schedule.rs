//! When to post: periods on a grid, two bands, pause and resume (specification 07 §7). Plain data.

use core::time::Duration;

use axon_platform::Instant;

use super::Band;
use crate::Error;

/// Whether periodic posting is on. The numbers are those of the Linux interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostingMode {
    /// Periodic posting on.
    Enabled = 0,
    /// Off; sampling goes on.
    Disabled = 1,
}

impl PostingMode {
    /// The mode with this number.
    ///
    /// # Errors
    /// [`Error::Invalid`] above 1.
    pub const fn from_number(number: u32) -> Result<Self, Error> {
        match number {
            0 => Ok(PostingMode::Enabled),
            1 => Ok(PostingMode::Disabled),
            _ => Err(Error::Invalid { what: "posting mode", value: number as u64 }),
        }
    }
}

/// State of the poster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostingState {
    /// Not started, or ended.
    Stopped = 0,
    /// Posting.
    Running = 1,
    /// Not posting.
    Paused = 2,
    /// Posting again; has not reached a due tick yet.
    Resuming = 3,
}

impl PostingState {
    /// Name on the console.
    pub const fn name(self) -> &'static str {
        match self {
            PostingState::Stopped => "stopped",
            PostingState::Running => "running",
            PostingState::Paused => "paused",
            PostingState::Resuming => "resuming",
        }
    }
}

/// Shortest period.
pub(crate) const SHORTEST_PERIOD: Duration = Duration::from_millis(1000);

/// Counts whole periods since the start and says which ticks are due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Schedule {
    state: PostingState,
    /// What was asked for last; counts when the task begins.
    mode: PostingMode,
    start: Instant,
    period: Duration,
    next_period: Duration,
    /// Whole periods since the start that were dealt with.
    done: u64,
    next_band: Band,
}

impl Schedule {
    pub(crate) fn new(period: Duration) -> Result<Self, Error> {
        Ok(Schedule {
            state: PostingState::Stopped,
            mode: PostingMode::Enabled,
            start: Instant::default(),
            period: valid(period)?,
            next_period: period,
            done: 0,
            next_band: Band::Zero,
        })
    }

    /// The task begins: the grid counts from now.
    pub(crate) fn start(&mut self, now: Instant) {
        self.start = now;
        self.done = 0;
        self.state = match self.mode {
            PostingMode::Enabled => PostingState::Running,
            PostingMode::Disabled => PostingState::Paused,
        };
    }

    /// The task has ended.
    pub(crate) fn stop(&mut self) {
        self.state = PostingState::Stopped;
    }

    /// Switches posting on or off; answers whether that changed anything.
    pub(crate) fn set_mode(&mut self, mode: PostingMode) -> bool {
        use PostingState::{Paused, Resuming, Running};
        self.mode = mode;
        let state = match (self.state, mode) {
            (Paused, PostingMode::Enabled) => Resuming,
            (Running | Resuming, PostingMode::Disabled) => Paused,
            (state, _) => state,
        };
        core::mem::replace(&mut self.state, state) != state
    }

    /// Another period, from the next tick on.
    pub(crate) fn set_period(&mut self, period: Duration) -> Result<(), Error> {
        self.next_period = valid(period)?;
        Ok(())
    }

    pub(crate) fn state(&self) -> PostingState {
        self.state
    }

    pub(crate) fn wanted_period(&self) -> Duration {
        self.next_period
    }

    pub(crate) fn next_band(&self) -> Band {
        self.next_band
    }

    /// When the next tick is due; `None` while nothing is to be posted.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let running = matches!(self.state, PostingState::Running | PostingState::Resuming);
        running.then(|| self.grid(self.done.saturating_add(1)))
    }

    /// The ticks due now, at most two: after a resume one for each period missed, else one however
    /// late it is. Where the device is not ready they are skipped, not kept.
    pub(crate) fn due(&mut self, now: Instant, ready: bool) -> [Option<Band>; 2] {
        let periods = self.periods(now);
        let missed = periods.saturating_sub(self.done);
        if missed == 0 || self.next_due().is_none() {
            return [None; 2];
        }
        let ticks = match self.state {
            _ if !ready => 0,
            PostingState::Resuming => missed.min(2),
            _ => 1,
        };
        self.done = periods;
        if ready {
            self.state = PostingState::Running;
        }
        let bands = [ticks > 0, ticks > 1].map(|due| {
            due.then(|| {
                let band = self.next_band;
                self.next_band = band.other();
                band
            })
        });
        self.adopt_period();
        bands
    }

    fn periods(&self, now: Instant) -> u64 {
        let whole = now.since(self.start).as_nanos() / self.period.as_nanos().max(1);
        u64::try_from(whole).unwrap_or(u64::MAX)
    }

    fn grid(&self, periods: u64) -> Instant {
        let nanos = self.period.as_nanos().saturating_mul(periods.into());
        self.start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn adopt_period(&mut self) {
        if self.next_period != self.period {
            self.start = self.grid(self.done);
            self.done = 0;
            self.period = self.next_period;
        }
    }
}

fn valid(period: Duration) -> Result<Duration, Error> {
    if period < SHORTEST_PERIOD {
        let value = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
        return Err(Error::Invalid { what: "posting period in ms", value });
    }
    Ok(period)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERIOD: Duration = Duration::from_secs(150);

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    fn started() -> Schedule {
        let mut schedule = Schedule::new(PERIOD).unwrap();
        schedule.start(at(0));
        schedule
    }

    const ZERO: [Option<Band>; 2] = [Some(Band::Zero), None];
    const ONE: [Option<Band>; 2] = [Some(Band::One), None];
    const NONE: [Option<Band>; 2] = [None, None];

    #[test]
    fn bands_alternate_on_the_grid_and_lateness_does_not_add_up() {
        let mut schedule = started();
        assert_eq!(schedule.due(at(149), true), NONE);
        assert_eq!(schedule.due(at(151), true), ZERO);
        assert_eq!(schedule.next_due(), Some(at(300)));
        assert_eq!(schedule.due(at(300), true), ONE);
        assert_eq!(schedule.due(at(920), true), ZERO, "one tick however late");
        assert_eq!(schedule.next_due(), Some(at(1050)));
    }

    #[test]
    fn tel_e18_a_pause_of_four_periods_ends_in_two_ticks_at_once() {
        let mut schedule = started();
        schedule.set_mode(PostingMode::Disabled);
        assert_eq!(schedule.next_due(), None);
        assert_eq!(schedule.due(at(600), true), NONE);
        assert!(schedule.set_mode(PostingMode::Enabled));
        assert_eq!(schedule.state(), PostingState::Resuming);
        assert_eq!(schedule.due(at(610), true), [Some(Band::Zero), Some(Band::One)]);
        assert_eq!(schedule.state(), PostingState::Running);
        assert_eq!(schedule.due(at(740), true), NONE);
        assert_eq!(schedule.due(at(750), true), ZERO, "then the normal grid");
    }

    #[test]
    fn tel_e19_tel_d01_a_pause_within_a_period_adds_no_tick_and_no_wake_up() {
        let mut schedule = started();
        schedule.set_mode(PostingMode::Disabled);
        schedule.set_mode(PostingMode::Enabled);
        assert_eq!(schedule.due(at(100), true), NONE);
        assert_eq!(schedule.next_due(), Some(at(150)), "nothing to do before");
        assert_eq!(schedule.due(at(150), true), ZERO);
        assert_eq!(schedule.due(at(151), true), NONE);
    }

    #[test]
    fn tel_e20_tel_d02_enabling_what_runs_changes_nothing() {
        let mut schedule = started();
        let before = schedule;
        assert!(!schedule.set_mode(PostingMode::Enabled));
        assert_eq!(schedule, before);
    }

    #[test]
    fn tel_e21_tel_d24_there_is_no_mode_2() {
        assert_eq!(PostingMode::from_number(1), Ok(PostingMode::Disabled));
        assert_eq!(
            PostingMode::from_number(2),
            Err(Error::Invalid { what: "posting mode", value: 2 })
        );
    }

    #[test]
    fn tel_d03_a_pause_of_256_periods_is_not_forgotten() {
        let mut schedule = started();
        schedule.set_mode(PostingMode::Disabled);
        schedule.set_mode(PostingMode::Enabled);
        assert_eq!(schedule.due(at(256 * 150), true), [Some(Band::Zero), Some(Band::One)]);
    }

    #[test]
    fn tel_d04_a_period_is_at_least_a_second_and_changes_at_the_next_tick() {
        assert!(Schedule::new(Duration::ZERO).is_err());
        let mut schedule = started();
        assert!(schedule.set_period(Duration::from_millis(999)).is_err());
        schedule.set_period(Duration::from_secs(10)).unwrap();
        assert_eq!(schedule.next_due(), Some(at(150)));
        assert_eq!(schedule.due(at(152), true), ZERO);
        assert_eq!(schedule.next_due(), Some(at(160)));
        assert_eq!(schedule.due(at(160), true), ONE);
    }

    #[test]
    fn ticks_of_a_device_that_is_not_ready_are_skipped_not_kept() {
        let mut schedule = started();
        assert_eq!(schedule.due(at(150), false), NONE);
        assert_eq!(schedule.due(at(299), true), NONE);
        assert_eq!(schedule.due(at(300), true), ZERO);
    }

    proptest! {
        /// Whatever happens, bands alternate and there is never more than one tick a period but
        /// for the one that a resume brings back.
        #[test]
        fn bands_always_alternate(
            steps in proptest::collection::vec((0..3_u8, 1..400_u64), 1..60)
        ) {
            let mut schedule = started();
            let (mut now, mut expected, mut ticks, mut resumes) = (0, Band::Zero, 0, 0);
            for (what, seconds) in steps {
                now += seconds;
                match what {
                    0 => { schedule.set_mode(PostingMode::Disabled); }
                    1 => resumes += u64::from(schedule.set_mode(PostingMode::Enabled)),
                    _ => {}
                }
                for band in schedule.due(at(now), true).into_iter().flatten() {
                    prop_assert_eq!(band, expected);
                    expected = band.other();
                    ticks += 1;
                }
            }
            prop_assert!(ticks <= now / 150 + resumes);
        }
    }
}
