//! Init states.

use axon_platform::Errno;
use embassy_futures::join::{join, join3};
use embassy_futures::select::{Either, select};

use super::*;
use crate::core_sync::{Init, InitState, InitTicket, SyncError};

const STARTED: u32 = InitState::Started as u32;
const COMPLETED: u32 = InitState::Completed as u32;

fn mine(init: Result<Init, SyncError>) -> InitTicket {
    match init.unwrap() {
        Init::Mine(ticket) => ticket,
        Init::Done => panic!("done already"),
    }
}

#[test]
fn st_e31_a_waiter_wakes_when_the_initialiser_is_done() {
    for bench in benches() {
        let sync = &bench.sync;
        let (a, b) = (&access(1), &access(2));
        assert_eq!(bench.run(sync.set_init_state(a, 0, STARTED)), Ok(InitState::Started));
        let ((seen, span), done) = bench.run(join(
            async {
                let start = bench.now();
                (sync.set_init_state(b, 0, STARTED).await, bench.now() - start)
            },
            async {
                bench.after(ms(2000)).await;
                sync.set_init_state(a, 0, COMPLETED).await
            },
        ));
        assert_eq!((seen, span), (Ok(InitState::Completed), ms(2000)));
        assert_eq!(done, Ok(InitState::Completed));
    }
}

#[test]
fn st_e32_a_silent_initialiser_ends_in_a_time_out() {
    for bench in benches() {
        let sync = &bench.sync;
        let (a, b) = (&access(1), &access(2));
        assert_eq!(bench.run(sync.set_init_state(a, 0, STARTED)), Ok(InitState::Started));
        let (waited, span) = bench.timed(sync.set_init_state(b, 0, STARTED));
        let timed_out = SyncError::InitTimeout { core: CORE, state: InitState::Started };
        assert_eq!((waited, span), (Err(timed_out), ms(5000)));
        assert_eq!(timed_out.errno(), Errno::ETIMEDOUT);
        // The native form cannot take its time-out for a start either.
        let (waited, span) = bench.timed(sync.begin_init(b, CORE));
        assert_eq!((waited.err(), span), (Some(timed_out), ms(5000)));
    }
}

#[test]
fn st_e33_the_end_of_the_initialiser_wakes_command_and_native_waiters() {
    for bench in benches() {
        let sync = &bench.sync;
        let (a, b, c) = (&access(1), &access(2), &access(3));
        bench.run(async {
            assert_eq!(sync.set_init_state(a, 0, STARTED).await, Ok(InitState::Started));
            let command = async {
                assert_eq!(sync.set_init_state(b, 0, STARTED).await, Ok(InitState::Invalid));
                assert_eq!(bench.now().as_nanos(), 1_000_000_000);
            };
            let native = async {
                let ticket = mine(sync.begin_init(c, CORE).await);
                assert_eq!(bench.now().as_nanos(), 1_000_000_000);
                assert_eq!(sync.init(CORE).initialiser, Some(c.client()));
                ticket.complete().await.unwrap();
            };
            let end = async {
                bench.after(ms(1000)).await;
                bench.end(a).await;
            };
            join3(command, native, end).await;
            assert_eq!(sync.init(CORE).state, InitState::Completed);
        });
    }
}

#[test]
fn st_e34_what_may_not_be_set_changes_nothing() {
    let bench = Bench::new(0);
    let sync = &bench.sync;
    let (a, b) = (&access(1), &access(2));
    bench.run(async {
        assert_eq!(sync.set_init_state(a, 0, COMPLETED).await, Ok(InitState::Invalid));
        assert_eq!(sync.set_init_state(a, 0, 7).await, Ok(InitState::Invalid));
        assert_eq!(sync.set_init_state(a, 8, STARTED).await.unwrap_err().errno(), Errno::E2BIG);
        assert_eq!(sync.set_init_state(a, 0, STARTED).await, Ok(InitState::Started));
        assert_eq!(sync.set_init_state(a, 0, 7).await, Ok(InitState::Started));
        assert_eq!(sync.set_init_state(a, 0, 3).await, Ok(InitState::Started), "only a reset does");
        let foreign = sync.set_init_state(b, 0, COMPLETED).await;
        assert_eq!(foreign, Ok(InitState::Started), "not the initialiser");
        assert_eq!(sync.set_init_state(a, 0, COMPLETED).await, Ok(InitState::Completed));
        assert_eq!(sync.set_init_state(a, 0, COMPLETED).await, Ok(InitState::Completed));
        assert_eq!(sync.set_init_state(b, 0, STARTED).await, Ok(InitState::Completed));
        assert_eq!(sync.set_init_state(b, 0, 0).await, Ok(InitState::Completed));
    });
}

#[test]
fn st_d35_a_dead_initialiser_blocks_nobody_and_a_timed_out_waiter_is_no_initialiser() {
    for bench in benches() {
        let sync = &bench.sync;
        let (a, b) = (&access(1), &access(2));
        bench.run(async {
            assert_eq!(sync.set_init_state(a, 0, STARTED).await, Ok(InitState::Started));
            assert!(sync.set_init_state(b, 0, STARTED).await.is_err());
            // b must not be able to finish what it never started.
            assert_eq!(sync.set_init_state(b, 0, COMPLETED).await, Ok(InitState::Started));
            bench.end(a).await;
            assert_eq!(sync.set_init_state(b, 0, STARTED).await, Ok(InitState::Started));
            assert_eq!(sync.set_init_state(b, 0, COMPLETED).await, Ok(InitState::Completed));
        });
    }
}

#[test]
fn api_e58_a_dropped_ticket_makes_the_next_in_line_the_initialiser() {
    for bench in benches() {
        let sync = &bench.sync;
        let (a, b, c) = (&access(1), &access(2), &access(3));
        bench.run(async {
            let first = mine(sync.begin_init(a, CORE).await);
            let second = async {
                let ticket = mine(sync.begin_init(b, CORE).await);
                assert_eq!(bench.now().as_nanos(), 10_000_000);
                bench.after(ms(20)).await;
                ticket.complete().await.unwrap();
            };
            let third = async {
                bench.after(ms(1)).await;
                assert!(matches!(sync.begin_init(c, CORE).await, Ok(Init::Done)));
                assert_eq!(bench.now().as_nanos(), 30_000_000);
            };
            let drop_first = async {
                bench.after(ms(10)).await;
                drop(first);
            };
            join3(second, third, drop_first).await;
        });
    }
}

#[test]
fn a_reset_makes_a_ticket_stale_and_hands_the_core_to_the_next() {
    for bench in benches() {
        let sync = &bench.sync;
        let (a, b) = (&access(1), &access(2));
        bench.run(async {
            let first = mine(sync.begin_init(a, CORE).await);
            let (second, ()) = join(sync.begin_init(b, CORE), async {
                bench.after(ms(10)).await;
                sync.core_reset(CoreMap::DEVICE);
                bench.after(ms(1)).await;
            })
            .await;
            let second = mine(second);
            assert_eq!(first.complete().await.unwrap_err().errno(), Errno::ESTALE);
            // The stale ticket is gone by now and has not disturbed the one that counts.
            assert_eq!(sync.init(CORE).initialiser, Some(b.client()));
            second.complete().await.unwrap();
            sync.core_reset(CoreMap(0b10));
            bench.after(ms(1)).await;
            assert_eq!(sync.init(CORE).state, InitState::Completed);
            sync.core_reset(CoreMap(0b01));
            bench.after(ms(1)).await;
            assert_eq!(sync.init(CORE).state, InitState::Invalid);
        });
    }
}

#[test]
fn begin_init_dropped_at_any_point_blocks_nobody() {
    for bench in benches() {
        let sync = &bench.sync;
        let (a, b) = (&access(1), &access(2));
        bench.run(async {
            for _ in 0..20 {
                let mut polled = core::pin::pin!(sync.begin_init(a, CORE));
                let now = embassy_futures::poll_once(polled.as_mut());
                embassy_futures::yield_now().await;
                drop(now);
            }
            let start = bench.now();
            let ticket = mine(sync.begin_init(b, CORE).await);
            assert_eq!(bench.now(), start);
            {
                // Waiting, then given up: the initialiser is not disturbed.
                let wait = sync.begin_init(a, CORE);
                let Either::Second(()) = select(wait, bench.after(ms(1))).await else {
                    panic!("two initialisers")
                };
            }
            bench.after(ms(1)).await;
            assert_eq!(sync.init(CORE).waiting, 0);
            ticket.complete().await.unwrap();
        });
    }
}

#[test]
fn the_end_of_a_client_cancels_its_waiting_calls() {
    for bench in benches() {
        let sync = &bench.sync;
        let (a, b) = (&access(1), &access(2));
        bench.run(async {
            let ticket = mine(sync.begin_init(a, CORE).await);
            let (waiting, ()) = join(sync.begin_init(b, CORE), async {
                bench.after(ms(1)).await;
                bench.end(b).await;
            })
            .await;
            assert_eq!(waiting.err().unwrap().errno(), Errno::ECANCELED);
            ticket.complete().await.unwrap();
        });
    }
}
