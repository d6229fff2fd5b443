//! Desks whose callers and owners leave at every point.

extern crate std;

use core::pin::pin;
use core::task::Waker;
use std::sync::Arc;
use std::vec::Vec;

use super::*;

type Small = Desk<u32, u32, 2>;

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn event<Q, R, const N: usize>(desk: &Desk<Q, R, N>) -> Option<Event<Q, R>> {
    match desk.poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(event) => Some(event),
        Poll::Pending => None,
    }
}

fn take(desk: &Small) -> (Ticket, u32) {
    match event(desk) {
        Some(Event::Request(ticket, request)) => (ticket, request),
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_arrive_in_order_and_are_answered_in_any() {
    let desk = Small::new();
    let (mut a, mut b) = (pin!(desk.call(1)), pin!(desk.call(2)));
    assert!(poll(a.as_mut()).is_pending());
    assert!(poll(b.as_mut()).is_pending());
    let (first, second) = (take(&desk), take(&desk));
    assert_eq!((first.1, second.1), (1, 2));
    desk.answer(second.0, 20);
    assert!(poll(a.as_mut()).is_pending());
    assert_eq!(poll(b.as_mut()), Poll::Ready(Ok(20)));
    desk.answer(first.0, 10);
    assert_eq!(poll(a.as_mut()), Poll::Ready(Ok(10)));
}

#[test]
fn a_full_desk_makes_callers_wait() {
    let desk = Small::new();
    let mut calls: Vec<_> = (0..3).map(|n| desk.call(n)).collect();
    for call in &mut calls {
        assert!(poll(Pin::new(call)).is_pending());
    }
    let (ticket, _) = take(&desk);
    take(&desk);
    assert_eq!(event(&desk), None, "the third has no slot");
    desk.answer(ticket, 0);
    assert!(poll(Pin::new(&mut calls[2])).is_pending());
    assert_eq!(event(&desk), None, "an answer that is not picked up keeps its slot");
    assert!(poll(Pin::new(&mut calls[0])).is_ready());
    assert!(poll(Pin::new(&mut calls[2])).is_pending());
    assert_eq!(take(&desk).1, 2);
}

#[test]
fn a_dropped_call_is_withdrawn_cancelled_or_uncollected() {
    let desk = Small::new();
    drop(desk.call(0));
    let ask = || {
        let mut call = desk.call(7);
        assert!(poll(Pin::new(&mut call)).is_pending());
        call
    };
    drop(ask());
    assert_eq!(event(&desk), None, "never seen by the owner");

    let call = ask();
    let (ticket, _) = take(&desk);
    drop(call);
    assert_eq!(event(&desk), Some(Event::Cancelled(ticket)));

    let call = ask();
    desk.answer(take(&desk).0, 70);
    drop(call);
    assert_eq!(event(&desk), Some(Event::Uncollected(70)));

    // The owner answers before it learns that the caller has gone.
    let call = ask();
    let (ticket, _) = take(&desk);
    drop(call);
    desk.answer(ticket, 71);
    assert_eq!(event(&desk), Some(Event::Uncollected(71)));
    assert_eq!(event(&desk), None);

    // All slots are free again.
    let both = (ask(), ask());
    assert_eq!((take(&desk).1, take(&desk).1), (7, 7));
    drop(both);
}

#[test]
fn closing_ends_every_call_and_drops_what_they_carry() {
    let desk = Desk::<Arc<()>, Arc<()>, 4>::new();
    let thing = Arc::new(());
    let ask = || {
        let mut call = desk.call(thing.clone());
        assert!(poll(Pin::new(&mut call)).is_pending());
        call
    };
    let (mut answered, mut in_hand) = (ask(), ask());
    let Some(Event::Request(ticket, one)) = event(&desk) else { panic!("no request") };
    desk.answer(ticket, one);
    let Some(Event::Request(ticket, two)) = event(&desk) else { panic!("no request") };
    let mut unseen = ask();
    drop(two);
    desk.close();
    assert_eq!(poll(Pin::new(&mut unseen)), Poll::Ready(Err(Closed)));
    assert_eq!(poll(Pin::new(&mut in_hand)), Poll::Ready(Err(Closed)));
    assert!(matches!(poll(Pin::new(&mut answered)), Poll::Ready(Ok(_))));
    let mut late = desk.call(thing.clone());
    assert_eq!(poll(Pin::new(&mut late)), Poll::Ready(Err(Closed)));
    drop((answered, in_hand, unseen, late));
    // An answer to what was in hand goes nowhere, and leaves with the desk.
    desk.answer(ticket, thing.clone());
    drop(desk);
    assert_eq!(Arc::strong_count(&thing), 1);
}

#[test]
fn an_answer_for_nobody_changes_nothing() {
    let desk = Small::new();
    let mut call = pin!(desk.call(1));
    assert!(poll(call.as_mut()).is_pending());
    let (ticket, _) = take(&desk);
    desk.answer(ticket, 1);
    desk.answer(ticket, 2);
    assert_eq!(poll(call.as_mut()), Poll::Ready(Ok(1)));
    desk.answer(ticket, 3);
    assert_eq!(event(&desk), None);
}
