//! The task: messages, snapshot, release without a message, askers that go away.

use core::future::Future;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Context, Poll, Waker};
use std::boxed::Box;
use std::sync::Arc;
use std::task::Wake;
use std::vec::Vec;

use axon_platform::Errno;
use axon_ports::{AllocRequest, Category, Chunk, Lifespan, Location, MemoryError};

use super::rig::*;
use crate::batch::{BATCH_LIMIT, Batch};
use crate::{MemoryClient, MemoryService};

/// The task and two ways to it; the test is the executor.
struct Task {
    /// Sends everything.
    client: MemoryClient,
    /// Does the usual in passing.
    passing: MemoryClient,
    task: Option<Pin<Box<dyn Future<Output = ()>>>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Task {
    fn new() -> Task {
        let (passing, service) = MemoryService::new(v2());
        let client = passing.through_the_channel();
        Task { client, passing, task: Some(Box::pin(service.run())), woken: Arc::default() }
    }

    /// One turn of the task, if anything woke it.
    fn turn(&mut self) -> bool {
        if self.woken.0.swap(0, Ordering::Relaxed) == 0 {
            return false;
        }
        self.force_turn();
        true
    }

    fn force_turn(&mut self) {
        let waker = Waker::from(self.woken.clone());
        if let Some(task) = &mut self.task
            && task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        {
            self.task = None;
        }
    }

    /// Runs until `future` is ready; answers how many turns the task had.
    fn wait<T>(&mut self, future: impl Future<Output = T>) -> (T, u32) {
        let mut future = pin!(future);
        let mut turns = 0;
        self.force_turn();
        loop {
            if let Poll::Ready(value) = poll(future.as_mut()) {
                return (value, turns);
            }
            assert!(self.turn() || self.task.is_none(), "nothing would ever happen again");
            turns += 1;
        }
    }

    fn alloc(&mut self, request: AllocRequest) -> Result<Chunk, MemoryError> {
        let client = self.client.clone();
        self.wait(client.alloc(request)).0
    }

    fn settle(&mut self) {
        self.force_turn();
        while self.turn() {}
    }
}

fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn an_allocation_costs_one_turn_and_its_handle_resolves_at_once() {
    let mut task = Task::new();
    let client = task.client.clone();
    let (chunk, turns) = task.wait(client.alloc(published(device(0x2000))));
    assert_eq!(turns, 1);
    let chunk = chunk.unwrap();
    assert_eq!(chunk.handle(), 1);
    let pin = client.lookup(1).unwrap();
    assert_eq!(pin.facts(), chunk.facts());
    assert_eq!(client.facts(1).unwrap(), chunk.facts());
    assert_eq!(client.lookup(2).unwrap_err(), MemoryError::BadHandle { handle: 2 });
    assert!(client.lookup_mut(super::rig::client(1).0, 1).is_ok());
    let other = client.lookup_mut(super::rig::client(2).0, 1).unwrap_err();
    assert_eq!(other.errno(), Errno::EPERM);
}

#[test]
fn dropping_a_chunk_needs_no_message_and_wakes_the_task() {
    let mut task = Task::new();
    let before = task.client.counters().total(Location::Device);
    let chunk = task.alloc(published(device(0x2000))).unwrap();
    task.settle();
    drop(chunk);
    assert!(task.turn(), "the drop has woken the task");
    assert_eq!(task.client.counters().total(Location::Device), before);
    assert!(task.client.lookup(1).is_err());
}

#[test]
fn mem_e95_an_asker_that_goes_away_leaves_nothing_behind() {
    let mut task = Task::new();
    let client = task.client.clone();
    let before = client.counters().total(Location::Device);
    // Away before the task has seen the request.
    let mut call = Box::pin(client.alloc(published(device(0x2000))));
    assert!(poll(call.as_mut()).is_pending());
    drop(call);
    task.settle();
    assert_eq!(client.counters().total(Location::Device), before);
    // Away after the reply, before looking at it.
    let mut call = Box::pin(client.alloc(published(device(0x2000))));
    assert!(poll(call.as_mut()).is_pending());
    task.force_turn();
    assert_eq!(client.counters().total(Location::Device), before + 0x2000);
    drop(call);
    task.settle();
    assert_eq!(client.counters().total(Location::Device), before);
    assert!(client.lookup(1).is_err());
    assert_eq!(client.counters().live_chunks(), 2, "the carve-outs");
    // Never polled: never sent.
    drop(client.alloc(device(0x2000)));
    assert_eq!(task.alloc(published(device(0x1000))).unwrap().handle(), 1);
}

#[test]
fn waiting_for_a_slot_is_the_back_pressure() {
    let mut task = Task::new();
    let client = task.client.clone();
    let mut calls: Vec<_> = (0..200).map(|_| Box::pin(client.alloc(device(0x1000)))).collect();
    for call in &mut calls {
        assert!(poll(call.as_mut()).is_pending());
    }
    let mut chunks = Vec::new();
    while !calls.is_empty() {
        task.force_turn();
        calls.retain_mut(|call| match poll(call.as_mut()) {
            Poll::Ready(chunk) => {
                chunks.push(chunk.unwrap());
                false
            }
            Poll::Pending => true,
        });
    }
    assert_eq!(client.counters().live_chunks(), 202);
    drop(chunks);
    task.settle();
    assert_eq!(client.counters().live_chunks(), 2);
}

#[test]
fn a_batch_is_all_or_nothing() {
    let mut task = Task::new();
    let client = task.client.clone();
    let mut batch = Batch::new().unwrap();
    for _ in 0..BATCH_LIMIT {
        batch.push_alloc(published(device(0x1000))).unwrap();
    }
    assert!(batch.push_alloc(device(0x1000)).is_err());
    let (count, turns) = task.wait(client.alloc_many(&batch));
    assert_eq!((count, turns), (Ok(BATCH_LIMIT), 1));
    let mut chunks = Vec::new();
    while let Some(chunk) = batch.pop_chunk() {
        chunks.push(chunk);
    }
    assert_eq!(chunks.len(), BATCH_LIMIT);
    batch.push_alloc(device(0x1000)).unwrap();
    batch.push_alloc(AllocRequest { core: 9, ..device(0x1000) }).unwrap();
    let live = client.counters().live_chunks();
    assert_eq!(task.wait(client.alloc_many(&batch)).0.unwrap_err().errno(), Errno::EINVAL);
    task.settle();
    assert_eq!(client.counters().live_chunks(), live);
    batch.clear();
    let owner = Some(super::rig::client(1).0);
    for chunk in &chunks {
        batch.push_free(chunk.handle()).unwrap();
    }
    assert_eq!(task.wait(client.free_many(owner, &batch)).0, Ok(BATCH_LIMIT));
    assert_eq!(client.counters().live_chunks(), 2);
    drop(chunks);
    task.settle();
    assert_eq!(client.counters().live_chunks(), 2, "references of freed chunks are nothing");
}

#[test]
fn messages_answer_and_refuse() {
    let mut task = Task::new();
    let client = task.client.clone();
    let (me, slot) = super::rig::client(1);
    let chunk = task.alloc(device(0x2000)).unwrap();
    let name = chunk.header().name();
    assert_eq!(task.wait(client.publish(name)).0, Ok(1));
    assert_eq!(task.wait(client.publish(name)).0, Ok(1), "the handle stays");
    let again = task.wait(client.retain(name)).0.unwrap();
    drop(chunk);
    task.settle();
    assert_eq!(client.lookup(1).unwrap().pa(), again.facts().pa);
    let start = again.facts().pa.0;
    let inside = task.wait(client.within(start + 0x1000, 0x1000)).0.unwrap();
    assert_eq!(inside.pa().0, start);
    let outside = task.wait(client.within(start + 0x1000, 0x1001)).0.unwrap_err();
    assert!(matches!(outside, MemoryError::OutOfBounds { .. }));
    assert_eq!(task.wait(client.free(Some(me), 1)).0, Ok(()));
    assert!(task.wait(client.free(Some(me), 1)).0.is_err(), "MEM-E48");
    assert!(task.wait(client.publish(name)).0.is_err());
    assert!(task.wait(client.retain(name)).0.is_err());
    assert_eq!(client.counters().draining(), 0x2000, "the pin of `inside`");
    drop(inside);
    task.settle();
    assert_eq!(client.counters().draining(), 0);
    assert_eq!(task.wait(client.usage()).0.unwrap().arenas.len(), 2);
    assert_eq!(task.wait(client.dump(0, 9)).0.unwrap().len(), 1);
    assert!(task.wait(client.attach(super::rig::client(2).0, slot)).0.is_err());
}

#[test]
fn ends_of_several_clients_and_dropped_chunks_take_turns() {
    let mut task = Task::new();
    let client = task.client.clone();
    let [(many, many_slot), (few, few_slot)] = [1, 2].map(super::rig::client);
    task.wait(client.attach(few, few_slot)).0.unwrap();
    for _ in 0..500 {
        task.alloc(published(device(0x1000))).unwrap().into_header();
    }
    let theirs = AllocRequest { client: Some((few, few_slot)), ..published(device(0x1000)) };
    let own = AllocRequest { client: None, lifespan: Lifespan::Device, ..device(0x1000) };
    let dropped: Vec<_> = (0..500).map(|_| task.alloc(own).unwrap()).collect();
    for _ in 0..5 {
        task.alloc(theirs).unwrap().into_header();
    }
    let mut long = Box::pin(client.detach(many, many_slot));
    let mut short = Box::pin(client.detach(few, few_slot));
    assert!(poll(long.as_mut()).is_pending() && poll(short.as_mut()).is_pending());
    drop(dropped);
    let mut turns = 0;
    while poll(short.as_mut()).is_pending() {
        task.force_turn();
        turns += 1;
        assert!(turns < 30, "it waits for others");
    }
    assert!(poll(long.as_mut()).is_pending());
    let before = client.counters().live_chunks();
    for _ in 0..40 {
        task.force_turn();
    }
    let ended = before - client.counters().live_chunks();
    assert!((80..=110).contains(&ended), "{ended} in twenty slices");
    task.settle();
    assert!(poll(long.as_mut()).is_ready());
}

#[test]
fn the_end_of_a_client_lets_others_run_and_resolves_nothing_meanwhile() {
    let mut task = Task::new();
    let client = task.client.clone();
    let (me, slot) = super::rig::client(1);
    let (other, other_slot) = super::rig::client(2);
    task.wait(client.attach(other, other_slot)).0.unwrap();
    for _ in 0..2000 {
        task.alloc(published(device(0x1000))).unwrap().into_header();
    }
    let theirs = AllocRequest { client: Some((other, other_slot)), ..published(device(0x1000)) };
    let kept = task.alloc(theirs).unwrap();
    let mut end = Box::pin(client.detach(me, slot));
    assert!(poll(end.as_mut()).is_pending());
    task.force_turn();
    assert!(client.lookup(1).is_err(), "being dropped");
    assert!(client.lookup(kept.handle()).is_ok());
    let mut turns = 0;
    while poll(end.as_mut()).is_pending() {
        let mut call = Box::pin(client.alloc(theirs));
        assert!(poll(call.as_mut()).is_pending());
        task.force_turn();
        assert!(poll(call.as_mut()).is_ready(), "others are served in between");
        turns += 1;
        assert!(turns < 2000);
    }
    assert!(turns > 800, "in slices, one every other turn");
    task.settle();
    assert_eq!(client.counters().live_chunks(), 3);
    assert_eq!(task.wait(client.detach(me, slot)).0, Err(MemoryError::NotAttached));
    assert_eq!(task.alloc(device(0x1000)).unwrap_err(), MemoryError::NotAttached);
    task.wait(client.attach(me, slot)).0.unwrap();
    task.alloc(device(0x1000)).unwrap();
}

#[test]
fn after_shutdown_everything_answers_gone() {
    let mut task = Task::new();
    let client = task.client.clone();
    let chunk = task.alloc(published(device(0x1000))).unwrap();
    let pin = chunk.pin().unwrap();
    let mut waiting = Box::pin(client.usage());
    let report = {
        let mut end = Box::pin(client.shutdown());
        assert!(poll(end.as_mut()).is_pending());
        assert!(poll(waiting.as_mut()).is_pending());
        task.force_turn();
        match poll(end.as_mut()) {
            Poll::Ready(report) => report.unwrap(),
            Poll::Pending => panic!("not ended"),
        }
    };
    assert_eq!((report.clients, report.left, report.draining), (1, 0, 0x1000));
    assert!(task.task.is_none(), "the task has ended");
    assert!(matches!(poll(waiting.as_mut()), Poll::Ready(Err(MemoryError::Gone))));
    assert_eq!(task.alloc(device(0x1000)).unwrap_err().errno(), Errno::ENODEV);
    assert!(client.lookup(1).is_err());
    drop((pin, chunk));
}

#[test]
fn a_task_that_is_thrown_away_leaves_nobody_waiting() {
    let mut task = Task::new();
    let client = task.client.clone();
    let mut call = Box::pin(client.alloc(device(0x1000)));
    assert!(poll(call.as_mut()).is_pending());
    task.task = None;
    assert!(matches!(poll(call.as_mut()), Poll::Ready(Err(MemoryError::Gone))));
    assert_eq!(task.alloc(device(0x1000)).unwrap_err(), MemoryError::Gone);
}

#[test]
fn short_memory_waits_for_what_was_dropped() {
    let mut task = Task::new();
    let all = AllocRequest { category: Category::TENSORS_DEVICE, ..device(0x3_bf00_0000) };
    for _ in 0..3 {
        let chunk = task.alloc(all).unwrap();
        drop(chunk);
    }
}

/// The answer of a first poll, where there is one.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match poll(pin!(future)) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[test]
fn the_usual_request_is_carried_out_in_passing_while_the_task_sleeps() {
    let mut task = Task::new();
    let client = task.passing.clone();
    let usual = published(device(0x2000));
    assert!(at_once(client.alloc(usual)).is_none(), "the task has not had a turn yet");
    task.settle();
    let chunk = at_once(client.alloc(usual)).unwrap().unwrap();
    assert!(!task.turn(), "nobody was woken");
    assert_eq!(client.lookup(chunk.handle()).unwrap().pa(), chunk.facts().pa);
    let (me, other) = (super::rig::client(1).0, super::rig::client(2).0);
    let handle = chunk.into_header().handle();
    assert!(at_once(client.free(Some(other), handle)).is_none(), "a refusal is the task's");
    task.settle();
    assert!(client.lookup(handle).is_ok());
    assert_eq!(at_once(client.free(Some(me), handle)), Some(Ok(())));
    assert!(client.lookup(handle).is_err());
    assert_eq!(client.counters().live_chunks(), 2);
    // Without a handle, with a wish, of host memory: the task's.
    for request in
        [device(0x1000), AllocRequest { align: 0x4000, ..usual }, published(host(0x1000))]
    {
        assert!(at_once(client.alloc(request)).is_none());
        task.settle();
    }
}

#[test]
fn nobody_is_overtaken_in_passing() {
    let mut task = Task::new();
    let client = task.passing.clone();
    task.settle();
    let usual = published(device(0x1000));
    // Somebody waits in front.
    let mut first = Box::pin(client.usage());
    assert!(poll(first.as_mut()).is_pending());
    let mut second = Box::pin(client.alloc(usual));
    assert!(poll(second.as_mut()).is_pending());
    task.settle();
    assert!(poll(first.as_mut()).is_ready());
    let Poll::Ready(Ok(chunk)) = poll(second.as_mut()) else { panic!("not served") };
    // Something is to be taken back first, and is the lowest again.
    let start = chunk.facts().pa;
    drop(chunk);
    let mut third = Box::pin(client.alloc(usual));
    assert!(poll(third.as_mut()).is_pending());
    task.settle();
    let Poll::Ready(Ok(chunk)) = poll(third.as_mut()) else { panic!("not served") };
    assert_eq!(chunk.facts().pa, start);
    // A client is being dropped, slice by slice.
    let (other, other_slot) = super::rig::client(2);
    task.wait(task.client.clone().attach(other, other_slot)).0.unwrap();
    let theirs = AllocRequest { client: Some((other, other_slot)), ..usual };
    (0..500).for_each(|_| _ = task.alloc(theirs).unwrap().into_header());
    let mut end = Box::pin(client.detach(other, other_slot));
    assert!(poll(end.as_mut()).is_pending());
    task.force_turn();
    assert!(at_once(client.alloc(usual)).is_none());
    task.settle();
    assert!(poll(end.as_mut()).is_ready());
    assert!(at_once(client.alloc(usual)).is_some());
}

#[test]
fn who_never_waits_lets_others_run_all_the_same() {
    let mut task = Task::new();
    let client = task.passing.clone();
    task.settle();
    let usual = published(device(0x1000));
    for _ in 0..3 {
        let before = client.counters().live_chunks();
        let mut done = 0;
        while let Some(chunk) = at_once(client.alloc(usual)) {
            chunk.unwrap().into_header();
            done += 1;
        }
        assert_eq!(done, crate::service::IN_PASSING);
        task.settle();
        let now = client.counters().live_chunks();
        assert_eq!(now, before + done, "the asker of the last one has gone");
    }
}

#[test]
fn nothing_is_done_in_passing_once_the_task_has_gone() {
    let mut task = Task::new();
    let client = task.passing.clone();
    task.settle();
    task.task = None;
    let gone = task.wait(client.alloc(published(device(0x1000)))).0;
    assert_eq!(gone.unwrap_err(), MemoryError::Gone);
    let mut task = Task::new();
    let client = task.passing.clone();
    task.wait(client.shutdown()).0.unwrap();
    assert_eq!(task.wait(client.free(None, 1)).0, Err(MemoryError::Gone));
}

#[test]
fn a_close_that_is_dropped_at_any_point_gives_the_reference_back() {
    let mut task = Task::new();
    let client = task.client.clone();
    let owner = Some(super::rig::client(1).0);
    let live = |task: &mut Task| {
        task.settle();
        client.counters().live_chunks()
    };
    // Never polled.
    let chunk = task.alloc(published(device(0x1000))).unwrap();
    drop(client.close(owner, chunk));
    assert_eq!(live(&mut task), 2);
    // While it waits for a slot.
    let chunk = task.alloc(published(device(0x1000))).unwrap();
    let mut others: Vec<_> = (0..64).map(|_| Box::pin(client.usage())).collect();
    others.iter_mut().for_each(|other| assert!(poll(other.as_mut()).is_pending()));
    let mut close = Box::pin(client.close(owner, chunk));
    assert!(poll(close.as_mut()).is_pending());
    drop(close);
    drop(others);
    assert_eq!(live(&mut task), 2);
    // Once it is sent: the handle ends once, and no other reference with it.
    let chunk = task.alloc(published(device(0x1000))).unwrap();
    let kept = task.wait(client.retain(chunk.header().name())).0.unwrap();
    let mut close = Box::pin(client.close(owner, chunk));
    assert!(poll(close.as_mut()).is_pending());
    drop(close);
    assert_eq!(live(&mut task), 3);
    drop(kept);
    assert_eq!(live(&mut task), 2);
    // Carried out, by message and in passing.
    for way in [client.clone(), task.passing.clone()] {
        let chunk = task.alloc(published(device(0x1000))).unwrap();
        assert_eq!(task.wait(way.close(owner, chunk)).0, Ok(()));
        assert_eq!(live(&mut task), 2);
    }
    // Refused.
    let chunk = task.alloc(published(device(0x1000))).unwrap();
    let refused = task.wait(client.close(Some(super::rig::client(2).0), chunk)).0;
    assert!(matches!(refused, Err(MemoryError::WrongOwner { .. })));
    assert_eq!(live(&mut task), 2);
}
