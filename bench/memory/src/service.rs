//! The whole service: called by its owner, and through its channel without an executor, that is by
//! polling caller, task and caller again.

use std::future::Future;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use axon_memory::{MemoryClient, MemoryService};
use axon_ports::Pools;

use crate::measure::{Row, median};
use crate::setup::{Random, client, full_region, request};

const AT_ONCE: usize = 64;
const ROUNDS: usize = 50;

/// The rows of the service.
pub fn rows(loads: &[usize]) -> Vec<Row> {
    loads.iter().map(|&live| at(live)).collect()
}

fn at(live: usize) -> Row {
    let (id, slot) = client();
    let mut set = full_region();
    set.attach(id, slot).expect("the slot is free");
    // Twice as many as shall live, of which half go at random.
    let mut handles: Vec<u64> = (0..2 * live)
        .map(|_| set.alloc(&request(4096)).expect("there is room").into_header().handle())
        .collect();
    let mut random = Random(live as u64);
    while handles.len() > live {
        let at = random.below(handles.len());
        set.free(Some(id), handles.swap_remove(at)).expect("it lives");
    }
    let mut new = Vec::with_capacity(AT_ONCE);
    let direct = median(ROUNDS * AT_ONCE, || {
        for _ in 0..ROUNDS {
            for _ in 0..AT_ONCE {
                let chunk = black_box(set.alloc(black_box(&request(4096))));
                new.push(chunk.expect("there is room").into_header().handle());
            }
            new.drain(..).for_each(|handle| set.free(Some(id), handle).expect("it lives"));
        }
    });
    let (client, service) = MemoryService::new(set);
    let client = client.through_the_channel();
    let mut service = pin!(service.run());
    let channel = median(ROUNDS * AT_ONCE, || {
        for _ in 0..ROUNDS {
            for _ in 0..AT_ONCE {
                let chunk = served(service.as_mut(), client.alloc(black_box(request(4096))));
                new.push(chunk.expect("there is room").into_header().handle());
            }
            for handle in new.drain(..) {
                served(service.as_mut(), client.free(Some(id), handle)).expect("it lives");
            }
        }
    });
    end(service, &client);
    Row {
        what: "service: allocate and free 4 KiB".to_string(),
        live,
        ours: direct,
        channel: Some(channel),
        peers: Default::default(),
    }
}

/// The answer to a call, which the task gives at once.
fn served<T>(mut service: Pin<&mut impl Future<Output = ()>>, call: impl Future<Output = T>) -> T {
    let mut call = pin!(call);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(answer) = call.as_mut().poll(&mut cx) {
            return answer;
        }
        let _ = service.as_mut().poll(&mut cx);
    }
}

fn end(service: Pin<&mut impl Future<Output = ()>>, client: &MemoryClient) {
    let report = served(service, client.shutdown()).expect("it runs");
    assert_eq!(report.left, 0);
}
