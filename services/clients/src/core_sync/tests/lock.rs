//! The reader/writer lock.

use std::vec::Vec;

use axon_platform::Errno;
use embassy_futures::join::{join, join3};
use embassy_futures::select::{Either, select};

use super::*;
use crate::core_sync::{Hold, Key, SyncError};

fn errno<T>(result: Result<T, SyncError>) -> Errno {
    match result {
        Ok(_) => panic!("succeeded"),
        Err(error) => error.errno(),
    }
}

#[test]
fn st_e35_the_worked_example() {
    for bench in benches() {
        let sync = &bench.sync;
        let (a, b) = (&access(1), &access(2));
        let is = |hold, model| {
            let lock = sync.lock(CORE);
            let key = Some(Key { client: a.client(), model });
            assert_eq!((lock.hold, lock.key), (hold, key));
        };
        // 1
        assert_eq!(bench.run(sync.writer_enter(a, 0, U)), Ok(false));
        is(Hold::Writer, U);
        // 2
        let (waited, span) = bench.timed(sync.reader_enter(a, 0, U));
        assert_eq!((errno(waited), span), (Errno::EBUSY, ms(500)));
        is(Hold::Writer, U);
        // 3, 4
        assert_eq!(bench.run(sync.writer_downgrade(a, 0, U)), Ok(()));
        is(Hold::Readers(1), U);
        assert_eq!(bench.run(sync.reader_enter(a, 0, U)), Ok(()));
        is(Hold::Readers(2), U);
        // 5, 6
        assert_eq!(errno(bench.run(sync.reader_enter(b, 0, U))), Errno::ENOENT);
        assert_eq!(errno(bench.run(sync.reader_enter(a, 0, V))), Errno::ENOENT);
        is(Hold::Readers(2), U);
        // 7
        let (waited, span) = bench.timed(sync.writer_enter(b, 0, V));
        assert_eq!((errno(waited), span), (Errno::EBUSY, ms(2000)));
        is(Hold::Readers(2), U);
        // 8
        assert_eq!(bench.run(sync.reader_exit(a, 0, U)), Ok(()));
        assert_eq!(bench.run(sync.reader_exit(a, 0, U)), Ok(()));
        is(Hold::Free, U);
        // 9, 10
        assert_eq!(bench.run(sync.writer_enter(a, 0, U)), Ok(true), "EALREADY, lock held");
        assert_eq!(errno(bench.run(sync.writer_downgrade(a, 0, V))), Errno::ENOENT);
        is(Hold::Writer, U);
        // 11, 12
        bench.run(bench.end(a));
        assert_eq!((sync.lock(CORE).hold, sync.lock(CORE).key), (Hold::Free, None));
        let next = &access(3);
        assert_eq!(errno(bench.run(sync.reader_exit(next, 0, U))), Errno::ENOENT);
        assert_eq!(sync.lock(CORE).hold, Hold::Free);
    }
}

#[test]
fn st_e35_a_waiting_writer_wins_when_the_readers_leave() {
    for bench in benches() {
        let sync = &bench.sync;
        let (a, b) = (&access(1), &access(2));
        bench.run(async {
            let reader = sync.model_writer(a, CORE, U).await.unwrap().downgrade().unwrap();
            let (writer, ()) = join(sync.model_writer(b, CORE, V), async {
                bench.after(ms(1500)).await;
                drop(reader);
            })
            .await;
            assert!(!writer.unwrap().already_loaded());
            assert_eq!(bench.now().as_nanos(), 1_500_000_000);
        });
    }
}

#[test]
fn st_e36_a_dropped_writer_sends_the_waiting_reader_away_at_once() {
    for bench in benches() {
        let sync = &bench.sync;
        let a = &access(1);
        bench.run(async {
            let writer = sync.model_writer(a, CORE, U).await.unwrap();
            let (reader, ()) = join(sync.model_reader(a, CORE, U), async {
                bench.after(ms(100)).await;
                drop(writer);
            })
            .await;
            assert_eq!(errno(reader), Errno::ENOENT);
            assert_eq!(bench.now().as_nanos(), 100_000_000);
            assert_eq!(sync.lock(CORE).hold, Hold::Free);
        });
    }
}

#[test]
fn st_e36_so_does_a_writer_whose_client_goes() {
    for bench in benches() {
        let sync = &bench.sync;
        let (a, b) = (&access(1), &access(2));
        bench.run(async {
            let writer = sync.model_writer(a, CORE, U).await.unwrap();
            let (reader, ()) = join(sync.model_reader(b, CORE, U), bench.end(a)).await;
            assert_eq!(errno(reader), Errno::ENOENT);
            // The guard has lost its hold: it can neither go on nor free what others hold now.
            let other = sync.model_writer(b, CORE, V).await.unwrap();
            assert_eq!(errno(writer.downgrade()), Errno::EACCES);
            assert_eq!(sync.lock(CORE).hold, Hold::Writer);
            drop(other);
        });
    }
}

#[test]
fn st_e37_leaving_without_a_reader_is_refused() {
    let bench = Bench::new(0);
    let sync = &bench.sync;
    let a = &access(1);
    bench.run(async {
        assert_eq!(sync.writer_enter(a, 0, U).await, Ok(false));
        assert_eq!(errno(sync.reader_exit(a, 0, U).await), Errno::EINVAL, "a writer is no reader");
        assert_eq!(sync.writer_downgrade(a, 0, U).await, Ok(()));
        assert_eq!(errno(sync.writer_downgrade(a, 0, U).await), Errno::EINVAL);
        assert_eq!(sync.reader_exit(a, 0, U).await, Ok(()));
        assert_eq!(errno(sync.reader_exit(a, 0, U).await), Errno::EINVAL);
    });
}

#[test]
fn st_d36_waiters_are_served_in_order_of_arrival() {
    for bench in benches() {
        let sync = &bench.sync;
        let (a, b) = (&access(1), &access(2));
        let order = core::cell::RefCell::new(Vec::new());
        bench.run(async {
            let reader = sync.model_writer(a, CORE, U).await.unwrap().downgrade().unwrap();
            let behind = async {
                bench.after(ms(1)).await;
                // Would get in at once, but a writer is waiting: it would be delayed.
                let refused = sync.model_reader(a, CORE, U).await;
                order.borrow_mut().push("reader");
                assert_eq!(errno(refused), Errno::ENOENT, "by then it is another's core");
            };
            let writer = async {
                let writer = sync.model_writer(b, CORE, V).await.unwrap();
                order.borrow_mut().push("writer");
                drop(writer.downgrade());
            };
            let leave = async {
                bench.after(ms(2)).await;
                assert_eq!(sync.lock(CORE).waiting, 2);
                drop(reader);
            };
            join3(behind, writer, leave).await;
        });
        assert_eq!(*order.borrow(), ["writer", "reader"]);
    }
}

#[test]
fn a_writer_that_gives_up_lets_those_behind_it_in() {
    for bench in benches() {
        let sync = &bench.sync;
        let (a, b) = (&access(1), &access(2));
        bench.run(async {
            let first = sync.model_writer(a, CORE, U).await.unwrap().downgrade().unwrap();
            let give_up = async {
                let wait = sync.model_writer(b, CORE, V);
                let Either::Second(()) = select(wait, bench.after(ms(300))).await else {
                    panic!("got in")
                };
            };
            let behind = async {
                bench.after(ms(1)).await;
                sync.model_reader(a, CORE, U).await.unwrap()
            };
            let ((), second) = join(give_up, behind).await;
            assert_eq!(bench.now().as_nanos(), 300_000_000);
            drop((first, second));
            // What is dropped is free for whoever asks next, without waiting.
            assert!(sync.model_writer(b, CORE, V).await.is_ok());
            assert_eq!(bench.now().as_nanos(), 300_000_000);
        });
    }
}

#[test]
fn a_call_dropped_after_it_was_granted_leaves_the_core_free() {
    for bench in benches() {
        let sync = &bench.sync;
        let a = &access(1);
        bench.run(async {
            for _ in 0..20 {
                // Whether the answer is there already is up to the seed; either way it is lost.
                let once = core::future::ready(());
                drop(select(once, sync.model_writer(a, CORE, U)).await);
                let mut polled = core::pin::pin!(sync.model_writer(a, CORE, U));
                let now = embassy_futures::poll_once(polled.as_mut());
                embassy_futures::yield_now().await;
                drop(now);
            }
        });
        let (writer, span) = bench.timed(sync.model_writer(&access(2), CORE, V));
        assert!(writer.is_ok());
        assert_eq!(span, ms(0));
    }
}

#[test]
fn commands_and_guards_do_not_end_each_others_holds() {
    let bench = Bench::new(0);
    let sync = &bench.sync;
    let a = &access(1);
    bench.run(async {
        let writer = sync.model_writer(a, CORE, U).await.unwrap();
        assert_eq!(errno(sync.writer_downgrade(a, 0, U).await), Errno::EINVAL);
        let guard = writer.downgrade().unwrap();
        assert_eq!(errno(sync.reader_exit(a, 0, U).await), Errno::EINVAL);
        assert_eq!(sync.reader_enter(a, 0, U).await, Ok(()));
        drop(guard);
        assert_eq!(sync.reader_exit(a, 0, U).await, Ok(()));
        assert_eq!(errno(sync.reader_exit(a, 0, U).await), Errno::EINVAL);
        assert_eq!(sync.lock(CORE).hold, Hold::Free);
    });
}

#[test]
fn the_end_of_a_client_cancels_its_calls_and_frees_its_cores_only() {
    for bench in benches() {
        let sync = &bench.sync;
        let (a, b) = (&access(1), &access(2));
        bench.run(async {
            let held = sync.model_writer(b, CORE, V).await.unwrap();
            sync.writer_enter(a, 1, U).await.unwrap();
            let waiting = async {
                assert_eq!(errno(sync.model_writer(a, CORE, U).await), Errno::ECANCELED);
            };
            let end = async {
                bench.after(ms(1)).await;
                bench.end(a).await;
            };
            join(waiting, end).await;
            assert_eq!(sync.holders(a.client()), [None; 8]);
            let mut cores = [None; 8];
            cores[0] = Some(V);
            assert_eq!(sync.holders(b.client()), cores);
            assert_eq!(errno(sync.model_reader(a, CORE, U).await), Errno::EACCES);
            drop(held);
        });
    }
}

#[test]
fn a_reset_leaves_locks_alone_but_counts_loads_anew() {
    let bench = Bench::new(0);
    let sync = &bench.sync;
    let a = &access(1);
    bench.run(async {
        let reader = sync.model_writer(a, CORE, U).await.unwrap().downgrade().unwrap();
        assert_eq!(sync.writer_enter(a, 1, U).await, Ok(false));
        assert_eq!(sync.writer_downgrade(a, 1, U).await, Ok(()));
        assert_eq!([sync.model_starts(CORE), sync.model_starts(CoreId::ALL[1])], [1, 1]);
        sync.core_reset(CoreMap(0b01));
        bench.after(ms(1)).await;
        assert_eq!([sync.model_starts(CORE), sync.model_starts(CoreId::ALL[1])], [0, 1]);
        assert_eq!(sync.lock(CORE).hold, Hold::Readers(1));
        drop(reader);
    });
}

#[test]
fn a_core_that_is_not_there_is_refused() {
    let machine = Machine::builder().memory(1 << 16).build().unwrap();
    let cores = Cores { count: 8, map: CoreMap(0b0000_0101) };
    let (sync, task) = CoreSync::new(cores, machine.clone());
    machine.spawn("core sync", task.run()).unwrap();
    let a = access(1);
    machine
        .run(async {
            assert_eq!(errno(sync.reader_enter(&a, 8, U).await), Errno::EINVAL);
            assert_eq!(errno(sync.writer_enter(&a, u32::MAX, U).await), Errno::EINVAL);
            let absent = sync.writer_enter(&a, 1, U).await.unwrap_err();
            assert_eq!(absent, SyncError::CoreAbsent { core: CoreId::ALL[1] });
            assert_eq!(errno(sync.set_init_state(&a, 8, 1).await), Errno::E2BIG);
            assert_eq!(errno(sync.set_init_state(&a, 1, 1).await), Errno::EINVAL);
            assert!(sync.writer_enter(&a, 2, U).await.is_ok());
        })
        .unwrap();
}

#[test]
fn removal_ends_every_call_and_the_task() {
    for bench in benches() {
        let sync = &bench.sync;
        let (a, b) = (&access(1), &access(2));
        bench.run(async {
            let held = sync.model_writer(a, CORE, U).await.unwrap();
            let (waiting, ()) = join(sync.model_writer(b, CORE, V), async {
                bench.after(ms(5)).await;
                sync.remove();
            })
            .await;
            assert_eq!(errno(waiting), Errno::ENODEV);
            assert_eq!(errno(sync.model_reader(a, CORE, U).await), Errno::ENODEV);
            assert_eq!(errno(sync.set_init_state(a, 0, 2).await), Errno::ENODEV);
            drop(held);
            bench.after(ms(1)).await;
        });
        assert!(bench.machine.tasks().is_empty());
    }
}

#[test]
fn api_e53_the_same_model_again_is_already_loaded() {
    let bench = Bench::new(0);
    let sync = &bench.sync;
    let a = &access(1);
    bench.run(async {
        drop(sync.model_writer(a, CORE, U).await.unwrap().downgrade());
        let again = sync.model_writer(a, CORE, U).await.unwrap();
        assert!(again.already_loaded());
        drop(again);
        assert!(!sync.model_writer(a, CORE, U).await.unwrap().already_loaded(), "cleared");
    });
}
