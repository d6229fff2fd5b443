//! What departed clients counted, and how it adds up with the living (specification 07 §16.2).

use alloc::boxed::Box;

use axon_ports::CoreId;

use crate::datastore::{SlabView, Slots};
use crate::posting::Departed;
use crate::{CORE_COUNTERS, CoreCounter, DeviceCounter, DeviceFacts};

/// One counter of one core: all that was counted, and the size of the last departing client's
/// share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CoreTotal {
    /// Retired and live together.
    pub total: u64,
    /// What the client that departed last brought in, if that was not 0.
    pub present: u64,
}

/// Counters of one core by number.
pub type CoreTotals = [CoreTotal; CORE_COUNTERS];

/// What departed clients counted.
pub(crate) struct Retired(Box<[CoreTotals; CoreId::COUNT]>);

impl Retired {
    pub(crate) fn new() -> Self {
        Retired(Box::new([[CoreTotal::default(); CORE_COUNTERS]; CoreId::COUNT]))
    }

    /// Takes over what a departing client counted on the cores that are there.
    pub(crate) fn fold(&mut self, facts: &DeviceFacts, slab: &SlabView<'_>) {
        for core in facts.core_ids() {
            let Some(totals) = self.0.get_mut(core.index()) else { continue };
            for (cell, counted) in totals.iter_mut().zip(slab.core_counters(core)) {
                if counted != 0 {
                    cell.total = cell.total.wrapping_add(counted);
                    cell.present = counted;
                }
            }
        }
    }

    /// Retired and live counters of one core.
    pub(crate) fn with_live(&self, core: CoreId, slots: &Slots) -> CoreTotals {
        let mut totals =
            self.0.get(core.index()).copied().unwrap_or([CoreTotal::default(); CORE_COUNTERS]);
        for slab in slots.walk() {
            for (cell, counted) in totals.iter_mut().zip(slab.core_counters(core)) {
                cell.total = cell.total.wrapping_add(counted);
            }
        }
        totals
    }
}

/// Everything a post needs from the datastore, taken in one turn.
pub(crate) struct Survey {
    /// Counters summed over the cores that are there.
    pub totals: [u64; CORE_COUNTERS],
    /// What live clients say, on top of what departed ones left.
    pub clients: Departed,
}

impl Survey {
    pub(crate) fn take(
        facts: &DeviceFacts,
        slots: &Slots,
        retired: &Retired,
        departed: &Departed,
    ) -> Survey {
        let mut totals = [0_u64; CORE_COUNTERS];
        for core in facts.core_ids() {
            for (sum, cell) in totals.iter_mut().zip(retired.with_live(core, slots)) {
                *sum = sum.wrapping_add(cell.total);
            }
        }
        let mut clients = departed.clone();
        let mut words = [0; 2];
        for slab in slots.walk() {
            clients.meet(&slab);
            words = [DeviceCounter::DEVICE_CLUSTER_ID, DeviceCounter::AGG_NEFF_ID]
                .map(|counter| slab.device_counter(counter));
        }
        // A live word wins over a departed one; the client walked last wins among the living.
        for ((word, live), left) in clients.words.iter_mut().zip(words).zip(departed.words) {
            *word = if live != 0 { live } else { left };
        }
        Survey { totals, clients }
    }

    pub(crate) fn total(&self, counter: CoreCounter) -> u64 {
        self.totals.get(counter.number() as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::datastore::Datastore;
    use crate::testing::{client, core, facts_v2, slabs};

    struct Bench {
        slots: Slots,
        retired: Retired,
    }

    impl Bench {
        fn new() -> Self {
            Bench { slots: Slots::new(slabs()).unwrap(), retired: Retired::new() }
        }

        fn own(&mut self, number: u32) -> Datastore {
            let (slab, tenancy) = self.slots.acquire(client(number)).unwrap();
            Datastore::new(client(number), slab, tenancy)
        }

        fn drop_client(&mut self, number: u32) {
            let facts = facts_v2();
            let retired = &mut self.retired;
            self.slots.release(client(number), |slab| retired.fold(&facts, &slab));
        }

        fn cell(&self, at: u32, counter: CoreCounter) -> CoreTotal {
            self.retired.with_live(core(at), &self.slots)[counter.number() as usize]
        }
    }

    #[test]
    fn tel_d15_totals_do_not_dip_when_a_client_departs() {
        let mut bench = Bench::new();
        bench.own(1).add(core(1), CoreCounter::OOB, 40).unwrap();
        bench.own(2).add(core(1), CoreCounter::OOB, 2).unwrap();
        assert_eq!(bench.cell(1, CoreCounter::OOB), CoreTotal { total: 42, present: 0 });
        bench.drop_client(1);
        assert_eq!(bench.cell(1, CoreCounter::OOB), CoreTotal { total: 42, present: 40 });
        bench.drop_client(2);
        assert_eq!(bench.cell(1, CoreCounter::OOB), CoreTotal { total: 42, present: 2 });
        assert_eq!(bench.cell(0, CoreCounter::OOB), CoreTotal::default());
    }

    #[test]
    fn cores_that_are_not_there_do_not_count() {
        let mut bench = Bench::new();
        bench.own(1).add(core(2), CoreCounter::OOB, 1).unwrap();
        let survey = Survey::take(&facts_v2(), &bench.slots, &bench.retired, &Departed::default());
        assert_eq!(survey.total(CoreCounter::OOB), 0);
        bench.drop_client(1);
        assert_eq!(bench.cell(2, CoreCounter::OOB), CoreTotal::default());
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Count(u32, u32, u32, u64),
        Drop(u32),
    }

    fn steps() -> impl Strategy<Value = alloc::vec::Vec<Step>> {
        let step = prop_oneof![
            4 => (1..20_u32, 0..2_u32, 0..41_u32, 0..1000_u64)
                .prop_map(|(who, core, counter, amount)| Step::Count(who, core, counter, amount)),
            1 => (1..20_u32).prop_map(Step::Drop),
        ];
        proptest::collection::vec(step, 0..80)
    }

    proptest! {
        /// Whoever comes and goes, a counter is the sum of all that was ever added to it.
        #[test]
        fn totals_are_the_sum_of_all_that_was_ever_counted(steps in steps()) {
            let mut bench = Bench::new();
            let mut sums = [[0; CORE_COUNTERS]; 2];
            for step in steps {
                match step {
                    Step::Count(who, at, counter, amount) => {
                        if bench.slots.find(client(who)).is_none() && bench.slots.walk().count() == 16 {
                            continue;
                        }
                        let id = CoreCounter::new(counter).unwrap();
                        bench.own(who).add(core(at), id, amount).unwrap();
                        sums[at as usize][counter as usize] += amount;
                    }
                    Step::Drop(who) => bench.drop_client(who),
                }
            }
            for at in 0..2 {
                let totals = bench.retired.with_live(core(at), &bench.slots);
                prop_assert_eq!(totals.map(|cell| cell.total), sums[at as usize]);
            }
        }
    }
}
