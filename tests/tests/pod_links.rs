//! UltraServers: nodes of 16 emulated devices that elect over their links.

use std::time::Duration;

use axon::ports::{CoreMap, DeviceIndex};
use axon::{Context, Mode, PodState, PodStatus, QueueInit, RingAlloc, Side};
use axon_hosted::Machine;
use axon_hosted::pod::{Sides, connect, ultraserver};
use axon_model::Product;
use axon_model::report::EventKind;
use axon_platform::{Errno, Platform};
use futures::{on_all, until};

mod futures {
    use super::*;

    /// Runs a test on nodes that are being brought up, in their order, and takes them down.
    pub fn on_all<F: Future>(nodes: &[Machine], test: impl FnOnce(Vec<Context<Machine>>) -> F) {
        let contexts: Vec<_> = nodes.iter().map(|node| Context::start(node.clone())).collect();
        let drivers: Vec<_> = contexts.iter().map(|cx| cx.driver.clone()).collect();
        nodes[0].run(test(contexts)).expect("it ends");
        for (node, driver) in nodes.iter().zip(drivers) {
            nodes[0].run(driver.shut_down()).expect("it ends");
            for position in 0..node.functions().len() {
                let report = node.report(position).unwrap();
                // A link that leads nowhere stops its engine (01 §14.12): that is the case tried.
                let unexpected = report.violations.iter().find(|event| {
                    event.kind != EventKind::Abort || event.engine.is_none_or(|e| e >= 128)
                });
                assert_eq!(unexpected, None, "device {position}");
            }
            assert_eq!(node.stray_accesses(), 0);
        }
        nodes[0].shut_down();
    }

    /// The pod of a node once it is as wanted; after 20 minutes as it is then.
    pub async fn until(cx: &Context<Machine>, wanted: impl Fn(&PodStatus) -> bool) -> PodStatus {
        for _ in 0..12_000 {
            if wanted(&cx.driver.pod()) {
                break;
            }
            cx.platform.sleep(Duration::from_millis(100)).await;
        }
        cx.driver.pod()
    }
}

fn settled(pod: &PodStatus) -> bool {
    pod.state != PodState::InProgress
}

async fn elected(contexts: &[Context<Machine>]) -> Vec<PodStatus> {
    let mut pods = Vec::new();
    for cx in contexts {
        cx.driver.settled().await;
        pods.push(until(cx, |pod| pod.state == PodState::UltraServer).await);
    }
    pods
}

/// The status word of a node's device 0.
fn word(node: &Machine, offset: u64) -> u32 {
    node.with_model(0, |function| {
        let mut word = [0; 4];
        function.bar_read(0, 0x06c8_4000 + offset, &mut word);
        u32::from_le_bytes(word)
    })
    .unwrap()
}

#[test]
fn st_e48_two_nodes_with_horizontal_links_agree_use_modes_and_restart() {
    let nodes = ultraserver(Product::Trn2, &[10, 20], |_, builder| builder).unwrap();
    connect(&nodes, Sides::Right);
    on_all(&nodes, async |contexts: Vec<Context<Machine>>| {
        let pods = elected(&contexts).await;
        let ids: Vec<_> =
            pods.iter().map(|pod| (pod.membership.node, pod.membership.size)).collect();
        assert_eq!(ids, [(Some(0), 2), (Some(1), 2)]);
        assert!(pods.iter().all(|pod| pod.membership.serial == 10));
        assert_eq!(
            nodes.iter().map(|node| word(node, 0x190)).collect::<Vec<_>>(),
            [0x0200_0203, 0x0201_0203]
        );
        assert!((0x180..0x190).step_by(4).all(|at| word(&nodes[0], at) == 0), "taken back");

        // Modes last as long as cores are claimed; nobody elects meanwhile.
        let cx = &contexts[0];
        let client = cx.driver.device(0).unwrap().open().await.unwrap();
        let claim = client.claim(1, 0..=7).await.unwrap();
        let refused = cx.driver.pod_elect(Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(refused.errno(), Errno::EAGAIN);
        cx.driver.pod_set_mode(Mode::X1).await.unwrap();
        assert_eq!(cx.driver.pod().state, PodState::SingleNode);
        assert_eq!(cx.driver.pod_set_mode(Mode::X2H).await.unwrap_err().errno(), Errno::EEXIST);
        drop(claim);
        cx.platform.sleep(Duration::from_millis(1)).await;
        assert_eq!(cx.driver.pod(), pods[0]);

        // A driver that is started again finds what was agreed; nobody is asked.
        contexts[1].driver.shut_down().await;
        let again = Context::start(nodes[1].clone());
        again.driver.settled().await;
        let pod = until(&again, settled).await;
        assert_eq!((pod.membership.node, pod.membership.serial), (Some(1), 10));
        again.driver.shut_down().await;
    });
}

#[test]
fn st_e52_requests_and_resets_in_the_middle_of_an_election() {
    // Nobody answers: the links lead nowhere.
    let nodes = ultraserver(Product::Trn3, &[7], |_, builder| builder).unwrap();
    on_all(&nodes, async |contexts: Vec<Context<Machine>>| {
        let cx = &contexts[0];
        cx.driver.settled().await;
        let pod = until(cx, settled).await;
        assert_eq!(pod.state, PodState::Failed, "no neighbour on any side");
        assert_eq!(word(&nodes[0], 0x190), 0x00ff_0002);
        assert_eq!(contexts[0].driver.device(3).unwrap().memory_totals().draining, 0);
    });

    // Two nodes, one of which does not elect: the other one waits until somebody ends it.
    let nodes = ultraserver(Product::Trn2, &[10, 20], |_, builder| builder).unwrap();
    connect(&nodes, Sides::Both);
    let silent = nodes[1].clone();
    on_all(&nodes[..1], async |contexts: Vec<Context<Machine>>| {
        let cx = &contexts[0];
        cx.driver.settled().await;
        cx.platform.sleep(Duration::from_secs(1)).await;
        assert_eq!(cx.driver.pod().state, PodState::InProgress);
        // The election holds queue 0 of a link engine: it reads with device 1 first.
        let device = cx.driver.device(1).unwrap();
        let client = device.open().await.unwrap();
        let tx = client.alloc_ring(RingAlloc::new(Side::Tx, 64)).await.unwrap();
        let rx = client.alloc_ring(RingAlloc::new(Side::Rx, 64)).await.unwrap();
        let init = QueueInit {
            engine: 36,
            queue: 0,
            tx_count: 64,
            rx_count: 64,
            tx: tx.handle(),
            rx: rx.handle(),
            ..QueueInit::default()
        };
        assert_eq!(client.queues().init(&init).await.unwrap_err().errno(), Errno::EBUSY);
        // A reset of some cores of a device that takes part ends it first.
        let since = cx.platform.now();
        client.reset(CoreMap(1)).unwrap().await.unwrap();
        assert!(cx.platform.now().since(since) < Duration::from_secs(1));
        assert_eq!(cx.driver.pod().state, PodState::Failed);
        client.queues().init(&init).await.unwrap();
        client.queues().release(36, 0).await.unwrap();

        // Asked for again, ended by request.
        cx.driver.pod_elect(Duration::from_secs(600)).await.unwrap();
        cx.platform.sleep(Duration::from_millis(500)).await;
        let since = cx.platform.now();
        cx.driver.pod_cancel().await.unwrap();
        let pod = until(cx, settled).await;
        assert_eq!(pod.state, PodState::Failed);
        assert!(cx.platform.now().since(since) <= Duration::from_millis(150));

        // And once more, to the time-out.
        cx.driver.pod_elect(Duration::from_secs(5)).await.unwrap();
        let pod = until(cx, settled).await;
        assert_eq!(pod.state, PodState::Failed);
        let index = DeviceIndex::new(1).unwrap();
        assert_eq!((device.index(), device.memory_totals().draining), (index, 0));
        client.close().await;
    });
    drop(silent);
}

/// Four nodes of 16 devices each take their time; `AXON_LONG` has it. Serial numbers up to 15 are taken
/// for numbers of secondaries (05 §16.5 step 6): the example's are multiplied.
#[test]
fn st_e47_four_nodes_in_a_ring_and_one_that_dies() {
    if std::env::var_os("AXON_LONG").is_none() {
        return;
    }
    let nodes =
        ultraserver(Product::Trn2, &[1000, 2000, 4000, 3000], |_, builder| builder).unwrap();
    connect(&nodes, Sides::Both);
    on_all(&nodes, async |contexts: Vec<Context<Machine>>| {
        let pods = elected(&contexts).await;
        let ids: Vec<_> = pods.iter().map(|pod| pod.membership.node).collect();
        assert_eq!(ids, [Some(0), Some(1), Some(2), Some(3)]);
        assert!(pods.iter().all(|pod| (pod.membership.serial, pod.membership.size) == (1000, 4)));
        assert_eq!(word(&nodes[2], 0x190), 0x0402_0303);
        // A node dies; the others elect anew, and degrade to the pairs that are left.
        contexts[2].driver.shut_down().await;
        for position in 0..16 {
            nodes[2].with_model(position, |function| drop(function.control("fault all-ones")));
        }
        for cx in [&contexts[0], &contexts[1], &contexts[3]] {
            cx.driver.pod_elect(Duration::from_secs(60)).await.unwrap();
        }
        for cx in [&contexts[0], &contexts[1], &contexts[3]] {
            let pod = until(cx, settled).await;
            assert!(pod.membership.size <= 2, "{pod:?}");
        }
    });
}
