//! Pods as applications see them.

use std::time::Duration;

use axon::{Context, Mode, PodState, PodType};
use axon_hosted::Machine;
use axon_model::{FunctionConfig, Product};
use axon_platform::{Errno, Platform};
use axon_tests::on;

/// MiscRAM of a Trn2 in its register window.
const MISC_RAM: u64 = 0x06c8_4000;

/// One function of a node with this name.
fn node(name: &str, config: FunctionConfig) -> Machine {
    Machine::builder().function(config).product_name(name).build().unwrap()
}

fn run<F: Future>(machine: &Machine, test: impl FnOnce(Context<Machine>) -> F) -> F::Output {
    let output = machine.run(test(Context::start(machine.clone())));
    machine.shut_down();
    output.unwrap()
}

#[test]
fn api_e83_st_e63_a_node_of_a_switched_pod() {
    let mut config = FunctionConfig::new(Product::Trn2, 0);
    config.routing_id = 64;
    config.server_rack_id = 0x8003;
    let machine = node("trn2es.48xlarge", config);
    run(&machine, |cx| async move {
        assert_eq!(cx.driver.pod().state, PodState::SingleNode, "nothing is known yet");
        cx.driver.settled().await;
        cx.platform.sleep(Duration::from_millis(1)).await;
        let pod = cx.driver.pod();
        assert_eq!((pod.pod_type, pod.state), (PodType::Switch, PodState::UltraServer));
        assert_eq!((pod.membership.node, pod.membership.size), (Some(2), 4));
        cx.driver.pod_elect(Duration::from_secs(1)).await.unwrap();
        assert_eq!(cx.driver.pod(), pod);

        // A mode lasts as long as cores are claimed.
        let client = cx.driver.device(0).unwrap().open().await.unwrap();
        let claim = client.claim(2, 0..=7).await.unwrap();
        cx.driver.pod_set_mode(Mode::X2V).await.unwrap();
        assert_eq!(cx.driver.pod().membership.size, 2);
        let refused = cx.driver.pod_set_mode(Mode::X1).await.unwrap_err();
        assert_eq!(refused.errno(), Errno::EEXIST);
        drop(claim);
        cx.platform.sleep(Duration::from_millis(1)).await;
        assert_eq!(cx.driver.pod(), pod);
    });
}

#[test]
fn a_node_of_an_ultraserver_without_its_fifteen_other_devices_gives_up() {
    let machine = node("trn2u.48xlarge", FunctionConfig::new(Product::Trn2, 0));
    run(&machine, |cx| async move {
        cx.driver.settled().await;
        cx.platform.sleep(Duration::from_secs(599)).await;
        let pod = cx.driver.pod();
        assert_eq!((pod.pod_type, pod.state), (PodType::PeerToPeer, PodState::InProgress));
        assert_eq!(pod.command_result(), Err(Errno::EBUSY));
        let refused = cx.driver.pod_elect(Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(refused.errno(), Errno::EAGAIN);
        cx.platform.sleep(Duration::from_secs(2)).await;
        assert_eq!(cx.driver.pod().state, PodState::Failed);
        cx.driver.pod_set_mode(Mode::X1).await.unwrap();
    });
}

#[test]
fn st_e51_a_node_finds_its_earlier_election_after_a_reset() {
    let machine = node("trn2u.48xlarge", FunctionConfig::new(Product::Trn2, 0));
    run(&machine, |cx| async move {
        cx.driver.settled().await;
        // What an earlier start left in MiscRAM, which survives resets.
        cx.platform.with_model(0, |function| {
            function.bar_write(0, MISC_RAM + 0x190, &0x0201_0203_u32.to_le_bytes());
            function.bar_write(0, MISC_RAM + 0x198, &77_u32.to_le_bytes());
        });
        assert_eq!(cx.driver.pod().state, PodState::InProgress);
        cx.driver.device(0).unwrap().reset().unwrap().await.unwrap();
        cx.platform.sleep(Duration::from_millis(1)).await;
        let pod = cx.driver.pod();
        assert_eq!(pod.state, PodState::UltraServer);
        assert_eq!((pod.membership.node, pod.membership.serial), (Some(1), 77));
        assert!(pod.flips_dies());
    });
}

#[test]
fn api_e62_api_e63_hosts_without_pods() {
    on("trn1,trn2", |cx| async move {
        cx.driver.settled().await;
        let pod = cx.driver.pod();
        assert_eq!((pod.pod_type, pod.state), (PodType::None, PodState::SingleNode));
        assert_eq!((pod.node_number(), pod.membership.size), (-1, 0));
        cx.driver.pod_elect(Duration::from_secs(1)).await.unwrap();
        cx.driver.pod_set_mode(Mode::X4).await.unwrap();
        assert_eq!(cx.driver.pod(), pod);
    });
}
