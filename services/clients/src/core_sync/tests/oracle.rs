//! The table of locks against a list of holds and a list of waiters.

use std::vec::Vec;

use axon_ports::desk::{Desk, Event, Ticket};
use proptest::prelude::*;

use super::*;
use crate::core_sync::SyncError;
use crate::core_sync::cell::Released;
use crate::core_sync::lock::{Hold, Keeper, Key};
use crate::core_sync::lock_table::{Enter, LockStep, LockTable, READER_LIMIT, WRITER_LIMIT};
use crate::core_sync::owner::Table;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Client, model, writer, by command.
    Enter(u32, u8, bool, bool),
    /// By command: client, model.
    Exit(u32, u8),
    Downgrade(u32, u8),
    /// Of the holds by guards, the one at this place ends (a writer is downgraded or dropped).
    Release(usize, bool),
    Cancel(usize),
    ClientGone(u32),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let client = 1..4_u32;
    let model = 0..2_u8;
    let step = prop_oneof![
        6 => (client.clone(), model.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(c, m, w, k)| Step::Enter(c, m, w, k)),
        2 => (client.clone(), model.clone()).prop_map(|(c, m)| Step::Exit(c, m)),
        2 => (client.clone(), model).prop_map(|(c, m)| Step::Downgrade(c, m)),
        4 => (0..8_usize, any::<bool>()).prop_map(|(at, down)| Step::Release(at, down)),
        1 => (0..8_usize).prop_map(Step::Cancel),
        1 => client.prop_map(Step::ClientGone),
        2 => (0..1500_u64).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 0..120)
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Wanted {
    ticket: Ticket,
    key: Key,
    writer: bool,
    command: bool,
    deadline: Instant,
}

/// One core as two lists. Whoever is let in moves from one to the other.
#[derive(Default)]
struct Lists {
    key: Option<Key>,
    /// Writer, by command.
    holds: Vec<(bool, bool)>,
    waiting: Vec<Wanted>,
    answers: Vec<(Ticket, Result<bool, SyncError>)>,
}

impl Lists {
    fn serve(&mut self) {
        while let Some(first) = self.waiting.first().copied() {
            let written = self.holds.iter().any(|hold| hold.0);
            let answer = if first.writer {
                if !self.holds.is_empty() {
                    return;
                }
                Ok(self.key.replace(first.key) == Some(first.key))
            } else if written {
                return;
            } else if self.key == Some(first.key) {
                Ok(true)
            } else {
                Err(SyncError::OtherModel { core: CORE })
            };
            if answer.is_ok() {
                self.holds.push((first.writer, first.command));
            }
            self.answers.push((first.ticket, answer));
            self.waiting.remove(0);
        }
    }

    fn clear(&mut self) {
        self.key = None;
        self.holds.clear();
    }

    fn hold(&self) -> Hold {
        match self.holds.as_slice() {
            [] => Hold::Free,
            [(true, _)] => Hold::Writer,
            readers => Hold::Readers(readers.len() as u32),
        }
    }

    fn exit(&mut self, key: Key) -> Result<(), SyncError> {
        if self.key != Some(key) {
            return Err(SyncError::OtherModel { core: CORE });
        }
        let reader = self.holds.iter().position(|hold| *hold == (false, true));
        self.holds.remove(reader.ok_or(SyncError::NotReading { core: CORE })?);
        Ok(())
    }

    fn downgrade(&mut self, key: Key) -> Result<(), SyncError> {
        match self.holds.as_mut_slice() {
            [(true, _)] if self.key != Some(key) => Err(SyncError::OtherModel { core: CORE }),
            [(writer @ true, true)] => {
                *writer = false;
                Ok(())
            }
            _ => Err(SyncError::NotWriting { core: CORE }),
        }
    }
}

fn key(client_number: u32, model: u8) -> Key {
    Key { client: client(client_number), model: ModelUuid([model; 32]) }
}

fn busy(wanted: &Wanted) -> SyncError {
    let waited = if wanted.writer { WRITER_LIMIT } else { READER_LIMIT };
    SyncError::LockBusy { core: CORE, writer: wanted.writer, waited }
}

/// As many tickets as a desk gives out.
fn tickets() -> Vec<Ticket> {
    let desk: &'static Desk<u32, u32, 64> = std::boxed::Box::leak(std::boxed::Box::default());
    let mut cx = core::task::Context::from_waker(core::task::Waker::noop());
    (0..64)
        .map(|n| {
            let call = std::boxed::Box::leak(std::boxed::Box::new(desk.call(n)));
            assert!(core::pin::Pin::new(call).poll(&mut cx).is_pending());
            match desk.poll_next(&mut cx) {
                core::task::Poll::Ready(Event::Request(ticket, _)) => ticket,
                _ => panic!("no request"),
            }
        })
        .collect()
}

proptest! {
    #[test]
    fn the_table_behaves_like_two_lists(steps in steps()) {
        std::thread_local! {
            static TICKETS: Vec<Ticket> = tickets();
        }
        let mut free: Vec<Ticket> = TICKETS.with(Clone::clone);
        let accesses = [1, 2, 3].map(access);
        let mut table = LockTable::new();
        let mut lists = Lists::default();
        let mut now = Instant::from_nanos(0);
        for step in steps {
            match step {
                Step::Enter(client, model, writer, command) => {
                    let Some(ticket) = free.pop() else { continue };
                    let deadline = now + if writer { WRITER_LIMIT } else { READER_LIMIT };
                    lists.waiting.push(Wanted {
                        ticket, key: key(client, model), writer, command, deadline,
                    });
                    let keeper = if command { Keeper::Command } else { Keeper::Guard };
                    let access = accesses[client as usize - 1].clone();
                    let model = ModelUuid([model; 32]);
                    table.call(ticket, Enter { access, core: CORE, model, writer, keeper }, now);
                }
                Step::Exit(client, model) => {
                    let expected = lists.exit(key(client, model));
                    let step = LockStep::ExitReader(CORE, key(client, model));
                    prop_assert_eq!(table.step(step), expected);
                }
                Step::Downgrade(client, model) => {
                    let expected = lists.downgrade(key(client, model));
                    let step = LockStep::Downgrade(CORE, key(client, model));
                    prop_assert_eq!(table.step(step), expected);
                }
                Step::Release(at, downgraded) => {
                    let guards = lists.holds.iter().enumerate().filter(|(_, hold)| !hold.1);
                    let Some((at, (writer, _))) = guards.map(|(at, hold)| (at, *hold)).nth(at)
                    else { continue };
                    let mut released = Released::default();
                    if !writer {
                        released.readers = 1;
                        lists.holds.remove(at);
                    } else if downgraded {
                        released.downgraded = true;
                        lists.holds[at].0 = false;
                    } else {
                        released.abandoned = true;
                        lists.clear();
                    }
                    table.release(CORE, released);
                }
                Step::Cancel(at) => {
                    if at < lists.waiting.len() {
                        let gone = lists.waiting.remove(at);
                        table.cancel(gone.ticket);
                        free.push(gone.ticket);
                    }
                }
                Step::ClientGone(number) => {
                    let (gone, stay) =
                        lists.waiting.drain(..).partition(|w| w.key.client == client(number));
                    lists.waiting = stay;
                    let gone: Vec<Wanted> = gone;
                    lists.answers.extend(gone.iter().map(|w| (w.ticket, Err(SyncError::Cancelled))));
                    if lists.key.is_some_and(|key| key.client == client(number)) {
                        lists.clear();
                    }
                    prop_assert_eq!(table.step(LockStep::ClientGone(client(number))), Ok(()));
                }
                Step::Pass(span) => {
                    now = now + ms(span);
                    while let Some(at) = lists.waiting.iter().position(|w| w.deadline <= now) {
                        let late = lists.waiting.remove(at);
                        lists.answers.push((late.ticket, Err(busy(&late))));
                        lists.serve();
                    }
                    table.expire(now);
                }
            }
            lists.serve();
            let mut answers: Vec<_> = core::iter::from_fn(|| table.take_answer())
                .map(|(ticket, answer)| (ticket, answer.map(|g| g.entered.already_loaded)))
                .collect();
            prop_assert_eq!(&answers, &lists.answers);
            free.extend(answers.drain(..).map(|answer| answer.0));
            lists.answers.clear();
            let view = table.view(CORE);
            prop_assert_eq!((view.hold, view.key), (lists.hold(), lists.key));
            prop_assert_eq!(view.waiting, lists.waiting.len());
        }
    }
}
