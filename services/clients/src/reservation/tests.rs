//! Reservations against the rules of specification 05 §14, their task included.

extern crate std;

use std::vec::Vec;

use axon_hosted::Machine;
use axon_platform::{Errno, Platform};
use proptest::prelude::*;

use super::*;
use crate::testing::client;

struct Bench {
    machine: Machine,
    reservations: Reservations,
    marks: Arc<Marks>,
}

impl Bench {
    fn new(seed: u64) -> Self {
        Bench::with_quota(seed, Reservations::DEFAULT_QUOTA)
    }

    fn with_quota(seed: u64, quota: u32) -> Self {
        let machine = Machine::builder().seed(seed).memory(1 << 16).build().unwrap();
        let marks = Arc::new(Marks::new());
        let (reservations, task) = Reservations::new(quota, marks.clone());
        machine.spawn("reservation", task.run()).unwrap();
        Bench { machine, reservations, marks }
    }

    fn run<F: core::future::Future>(&self, future: F) -> F::Output {
        self.machine.run(future).unwrap()
    }

    /// Makes the first slots look like a row of the specification: `.` free, letters owned.
    fn prepare(&self, row: &str) {
        for (at, letter) in row.bytes().enumerate().filter(|(_, letter)| *letter != b'.') {
            let at = at as u32;
            let request = request(u32::from(letter - b'A') + 1, 1, at, at);
            self.run(self.reservations.mark(request)).unwrap();
        }
    }

    fn mark(&self, request: MarkRequest) -> Result<u64, (Errno, u32)> {
        match self.run(self.reservations.mark(request)) {
            Ok(cores) => {
                assert_eq!(cores.0[1..], [0; WORDS - 1]);
                Ok(cores.0[0])
            }
            Err(error) => Err((error.errno(), error.available())),
        }
    }

    fn owner(&self, core: u32) -> Option<u32> {
        let core = GlobalCore::new(core).unwrap();
        self.reservations.owner(core).map(ClientId::number)
    }
}

fn request(number: u32, count: u32, start: u32, end: u32) -> MarkRequest {
    MarkRequest { client: client(number), base: 0, count, start, end, one_word: true }
}

#[test]
fn st_e38_the_table_of_the_specification() {
    let rows = [
        ("........", request(1, 2, 0, 7), Ok(0x03)),
        ("AA......", request(2, 4, 0, 7), Ok(0x3c)),
        ("..A.....", request(2, 4, 0, 7), Ok(0x78)),
        (".A......", request(2, 2, 0, 3), Ok(0x0c)),
        (".A.A.A.A", request(2, 2, 0, 7), Err((Errno::EBUSY, 1))),
        ("AAAABBBB", request(3, 1, 0, 7), Err((Errno::EBUSY, 0))),
        ("........", request(1, 9, 0, 7), Err((Errno::EBUSY, 8))),
        ("........", request(1, 2, 5, 4), Err((Errno::EINVAL, 0))),
        ("........", MarkRequest { base: 8, ..request(1, 1, 0, 0) }, Ok(0x01)),
    ];
    for (row, request, expected) in rows {
        let bench = Bench::new(0);
        bench.prepare(row);
        let before = bench.reservations.count();
        assert_eq!(bench.mark(request), expected, "{row} {request:?}");
        let owned = expected.map_or(0, |cores: u64| cores.count_ones());
        assert_eq!(bench.reservations.count(), before + owned, "nothing more, nothing less");
        if request.base == 8 {
            assert_eq!((bench.owner(0), bench.owner(8)), (None, Some(1)));
        }
    }
}

#[test]
fn st_d37_no_run_is_skipped_no_count_of_zero_no_wrap_no_lost_core() {
    let bench = Bench::new(0);
    bench.prepare("..A.....");
    assert_eq!(bench.mark(request(2, 4, 0, 7)), Ok(0x78), "begins right after the taken one");
    assert_eq!(bench.mark(request(2, 0, 0, 7)), Err((Errno::EINVAL, 0)));
    assert_eq!(bench.mark(request(2, 1, 0, 64)), Err((Errno::EINVAL, 0)), "one word has 64 cores");
    let wide = MarkRequest { one_word: false, ..request(2, 1, 64, 64) };
    let cores = bench.run(bench.reservations.mark(wide)).unwrap();
    assert_eq!(cores.iter().map(GlobalCore::number).collect::<Vec<_>>(), [64]);
}

#[test]
fn st_e39_an_index_that_would_wrap_is_refused() {
    let bench = Bench::new(0);
    for (start, end) in [(u32::MAX, u32::MAX), (0, u32::MAX), (u32::MAX, 0), (0, 504)] {
        let request = MarkRequest { base: 8, one_word: false, ..request(1, 1, start, end) };
        assert_eq!(bench.mark(request), Err((Errno::EINVAL, 0)), "{start} {end}");
    }
    let last = MarkRequest { base: 8, one_word: false, ..request(1, 1, 503, 503) };
    assert!(bench.run(bench.reservations.mark(last)).is_ok());
    assert_eq!(bench.owner(511), Some(1));
}

#[test]
fn st_e40_cores_of_others_are_not_unmarked_and_nobody_is_told() {
    let bench = Bench::new(0);
    let all = CoreSet([u64::MAX; WORDS]);
    let unmark = |number| bench.run(bench.reservations.unmark(client(number), 0, &all)).unwrap();
    unmark(2);
    assert_eq!(bench.marks.emptied(), 0, "the count is zero, but did not become so");
    bench.prepare("AA.B");
    unmark(3);
    assert_eq!((bench.reservations.count(), bench.marks.emptied()), (3, 0));
    unmark(1);
    assert_eq!([0, 1, 3].map(|core| bench.owner(core)), [None, None, Some(2)]);
    assert_eq!(bench.marks.emptied(), 0);
    unmark(2);
    assert_eq!((bench.reservations.count(), bench.marks.emptied()), (0, 1));
}

#[test]
fn st_d38_many_cores_given_back_are_one_notice() {
    for seed in 0..8 {
        let bench = Bench::new(seed);
        bench.run(async {
            let claim = bench.reservations.claim(request(1, 16, 0, 63)).await.unwrap();
            drop(claim);
            let (left, right) = (request(1, 8, 0, 63), request(2, 8, 0, 63));
            let left = bench.reservations.claim(left).await.unwrap();
            let right = bench.reservations.claim(right).await.unwrap();
            drop((left, right));
            bench.machine.sleep(core::time::Duration::from_millis(1)).await;
        });
        assert_eq!((bench.marks.emptied(), bench.marks.count()), (2, 0));
    }
}

#[test]
fn st_d39_marks_of_a_client_that_ends_do_not_leak() {
    let bench = Bench::new(0);
    bench.prepare("AABA");
    bench.run(bench.reservations.client_gone(client(1)));
    assert_eq!([0, 1, 2, 3].map(|core| bench.owner(core)), [None, None, Some(2), None]);
}

#[test]
fn st_d39_reservations_end_with_the_last_handle_that_counts() {
    use Lane::{Info, Normal};
    let owned = |handles: &[Lane], dropped: usize| {
        let bench = Bench::new(0);
        bench.run(async {
            let reservations = &bench.reservations;
            let mut held: Vec<_> =
                handles.iter().map(|lane| reservations.enter(client(1), *lane).unwrap()).collect();
            let _claim = reservations.claim(request(1, 2, 0, 7)).await.unwrap();
            reservations.mark(request(1, 1, 0, 7)).await.unwrap();
            held.drain(..dropped);
            bench.machine.sleep(core::time::Duration::from_millis(1)).await;
            reservations.count()
        })
    };
    assert_eq!(owned(&[Normal, Normal], 1), 3);
    assert_eq!(owned(&[Normal, Normal], 2), 0, "no info handle was ever there");
    assert_eq!(owned(&[Info, Info, Normal], 1), 3);
    assert_eq!(owned(&[Info, Info, Normal], 2), 0, "the last info handle counts");
    assert_eq!(owned(&[Normal, Info], 1), 3, "an info handle is left");
}

#[test]
fn a_client_that_comes_back_does_not_lose_what_it_reserves_then() {
    for seed in 0..8 {
        let bench = Bench::new(seed);
        bench.run(async {
            let reservations = &bench.reservations;
            let first = reservations.enter(client(1), Lane::Normal).unwrap();
            reservations.mark(request(1, 2, 0, 7)).await.unwrap();
            drop(first);
            let _again = reservations.enter(client(1), Lane::Normal).unwrap();
            let cores = reservations.mark(request(1, 4, 0, 7)).await.unwrap();
            assert_eq!(cores, CoreSet::from_word(0xf), "the first two were free again");
            bench.machine.sleep(core::time::Duration::from_millis(1)).await;
            assert_eq!(reservations.count(), 4);
        });
    }
}

#[test]
fn st_d51_a_client_cannot_take_more_than_its_quota() {
    let bench = Bench::with_quota(0, 5);
    assert_eq!(bench.mark(request(1, 6, 0, 63)), Err((Errno::EBUSY, 5)));
    assert_eq!(bench.mark(request(1, 3, 0, 63)), Ok(0b111));
    assert_eq!(bench.mark(request(1, 3, 0, 63)), Err((Errno::EBUSY, 2)));
    assert_eq!(bench.mark(request(2, 3, 0, 63)), Ok(0b111_000));
    assert_eq!(bench.mark(request(1, 2, 0, 63)), Ok(0b1100_0000));
}

#[test]
fn api_e56_a_run_starts_right_behind_the_core_that_is_taken() {
    let bench = Bench::new(0);
    bench.prepare("..A");
    let claim = bench.run(bench.reservations.claim(request(2, 4, 0, 7))).unwrap();
    assert_eq!(claim.cores().iter().map(GlobalCore::number).collect::<Vec<_>>(), [3, 4, 5, 6]);
}

#[test]
fn api_e57_too_many_cores_says_how_many_there_are() {
    let bench = Bench::new(0);
    let refused = bench.run(bench.reservations.claim(request(2, 9, 0, 7))).err().unwrap();
    assert_eq!(refused, ReservationError::NoRun { asked: 9, longest: 8 });
}

#[test]
fn a_claim_counts_until_it_is_dropped_and_not_a_moment_longer() {
    for seed in 0..8 {
        let bench = Bench::new(seed);
        let reservations = &bench.reservations;
        bench.run(async {
            let mut claim = reservations.claim(request(1, 4, 0, 7)).await.unwrap();
            let mut half = CoreSet::from_word(0b11);
            half.insert(GlobalCore::new(40).unwrap());
            claim.release(&half);
            assert_eq!([0, 1, 2, 40].map(|core| bench.owner(core)), [None, None, Some(1), None]);
            let next = reservations.claim(request(2, 2, 0, 7)).await.unwrap();
            assert_eq!(next.cores(), &CoreSet::from_word(0b11));
            drop(claim);
            assert_eq!([0, 1, 2, 3].map(|core| bench.owner(core)), [Some(2), Some(2), None, None]);
            let all = reservations.claim(request(3, 6, 0, 7)).await.unwrap();
            assert_eq!(all.cores(), &CoreSet::from_word(0b1111_1100));
        });
    }
}

#[test]
fn a_late_claim_frees_nothing_that_was_reserved_since() {
    let bench = Bench::new(0);
    let reservations = &bench.reservations;
    bench.run(async {
        let old = reservations.claim(request(1, 2, 0, 7)).await.unwrap();
        reservations.client_gone(client(1)).await;
        let new = reservations.claim(request(1, 2, 0, 7)).await.unwrap();
        drop(old);
        assert_eq!(bench.owner(0), Some(1), "the same client, another claim");
        assert!(reservations.claim(request(2, 8, 0, 7)).await.is_err());
        drop(new);
        assert!(reservations.claim(request(2, 8, 0, 7)).await.is_ok());
    });
}

#[test]
fn a_call_that_is_dropped_reserves_nothing() {
    for seed in 0..8 {
        let bench = Bench::new(seed);
        bench.run(async {
            for _ in 0..20 {
                let mut polled = core::pin::pin!(bench.reservations.mark(request(1, 8, 0, 7)));
                let now = embassy_futures::poll_once(polled.as_mut());
                assert!(now.is_pending());
                embassy_futures::yield_now().await;
            }
        });
        assert_eq!(bench.mark(request(2, 8, 0, 7)), Ok(0xff));
    }
}

#[test]
fn stopping_ends_calls_and_the_task() {
    let bench = Bench::new(0);
    bench.reservations.stop();
    assert_eq!(bench.mark(request(1, 1, 0, 0)), Err((Errno::ECANCELED, 0)));
    bench.run(bench.machine.sleep(core::time::Duration::from_millis(1)));
    assert!(bench.machine.tasks().is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Mark(MarkRequest),
    Unmark(u32, u32, [u64; WORDS]),
    Gone(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = || prop_oneof![4 => 0..20_u32, 1 => 0..600_u32, 1 => Just(u32::MAX)];
    let mark = (1..5_u32, 0..64_u32, number(), number(), number(), any::<bool>()).prop_map(
        |(owner, device, count, start, end, one_word)| {
            Step::Mark(MarkRequest {
                base: device * 8,
                one_word,
                ..request(owner, count, start, end)
            })
        },
    );
    let unmark = (1..5_u32, 0..64_u32, any::<[u64; WORDS]>())
        .prop_map(|(owner, device, bits)| Step::Unmark(owner, device * 8, bits));
    let step = prop_oneof![6 => mark, 2 => unmark, 1 => (1..5_u32).prop_map(Step::Gone)];
    proptest::collection::vec(step, 0..60)
}

/// The slow way: every start is tried.
fn oracle_mark(slots: &mut [u32], request: &MarkRequest) -> Result<Vec<usize>, (Errno, u32)> {
    let (start, end) = (u64::from(request.start), u64::from(request.end));
    let base = u64::from(request.base);
    let bad =
        request.count == 0 || start > end || base + end >= 512 || request.one_word && end >= 64;
    if bad {
        return Err((Errno::EINVAL, 0));
    }
    let (first, last) = ((base + start) as usize, (base + end) as usize);
    let owned = slots.iter().filter(|owner| **owner == request.client.number()).count() as u32;
    if request.count > 40 - owned {
        return Err((Errno::EBUSY, 40 - owned));
    }
    let run_at = |at: usize| slots[at..=last].iter().take_while(|owner| **owner == 0).count();
    let runs: Vec<usize> = (first..=last).map(run_at).collect();
    let Some(at) = runs.iter().position(|run| *run >= request.count as usize) else {
        return Err((Errno::EBUSY, runs.into_iter().max().unwrap_or(0) as u32));
    };
    let cores: Vec<usize> = (first + at..first + at + request.count as usize).collect();
    cores.iter().for_each(|core| slots[*core] = request.client.number());
    Ok(cores)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn the_task_behaves_like_512_numbers(steps in steps(), seed in any::<u64>()) {
        let bench = Bench::with_quota(seed, 40);
        let mut slots = [0_u32; 512];
        for step in steps {
            match step {
                Step::Mark(request) => {
                    let expected = oracle_mark(&mut slots, &request);
                    let seen = bench.run(bench.reservations.mark(request));
                    let seen = seen.map_err(|error| (error.errno(), error.available())).map(|set| {
                        set.iter().map(|core| core.index() + request.base as usize).collect()
                    });
                    prop_assert_eq!(seen, expected);
                }
                Step::Unmark(owner, base, bits) => {
                    for bit in 0..512 - base as usize {
                        let slot = &mut slots[base as usize + bit];
                        if bits[bit / 64] >> (bit % 64) & 1 == 1 && *slot == owner {
                            *slot = 0;
                        }
                    }
                    bench.run(bench.reservations.unmark(client(owner), base, &CoreSet(bits))).unwrap();
                }
                Step::Gone(owner) => {
                    slots.iter_mut().filter(|slot| **slot == owner).for_each(|slot| *slot = 0);
                    bench.run(bench.reservations.client_gone(client(owner)));
                }
            }
            let owners: Vec<u32> = (0..512).map(|core| bench.owner(core).unwrap_or(0)).collect();
            prop_assert_eq!(&owners[..], &slots[..]);
            let count = slots.iter().filter(|slot| **slot != 0).count() as u32;
            prop_assert_eq!(bench.reservations.count(), count);
        }
    }
}
