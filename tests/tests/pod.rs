//! Pods as applications see them.

use std::time::Duration;

use axon::{Context, ControlBits, Driver, DriverConfig, HostConfig, Mode, PodState, PodType};
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
    run(&machine, async |cx| {
        assert_eq!(cx.driver.pod().state, PodState::SingleNode, "nothing is known yet");
        cx.driver.settled().await;
        cx.platform.sleep(Duration::from_millis(1)).await;
        let pod = cx.driver.pod();
        assert_eq!((pod.pod_type, pod.state), (PodType::Switch, PodState::UltraServer));
        assert_eq!((pod.membership.node, pod.membership.size), (Some(2), 4));
        let files = class_files(&cx.driver);
        assert!(files.contains("node_id=2 node_cnt=4 reservation_id=0000000000000001"), "{files}");
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

/// Files of the class as the first device's tree shows them.
fn class_files(driver: &Driver<Machine>) -> String {
    let device = driver.device(0).unwrap();
    let mut files = String::new();
    device.telemetry().unwrap().snapshot().unwrap().walk_tree(&mut |path, text| {
        if !path.contains('/') {
            files.push_str(&format!("{path}={} ", text.to_string().trim_end()));
        }
    });
    files
}

#[test]
fn a_node_of_an_ultraserver_without_its_fifteen_other_devices_gives_up() {
    let machine = node("trn2u.48xlarge", FunctionConfig::new(Product::Trn2, 0));
    run(&machine, async |cx| {
        cx.driver.settled().await;
        cx.platform.sleep(Duration::from_secs(599)).await;
        let pod = cx.driver.pod();
        assert_eq!((pod.pod_type, pod.state), (PodType::PeerToPeer, PodState::InProgress));
        assert!(class_files(&cx.driver).contains("node_id_4=busy"), "{}", class_files(&cx.driver));
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
    run(&machine, async |cx| {
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
        assert_eq!(
            class_files(&cx.driver),
            "hbm_7200_capable=0 current_perf_profile=0 node_id_2=1 node_id_4=-1 \
             server_id_2=000000000000004d server_id_4=0000000000000000 ultraserver_mode=2,4 "
        );
    });
}

#[test]
fn configuration_decides_how_elections_are_held_and_how_many_cores_a_client_gets() {
    let machine = node("trn2u.48xlarge", FunctionConfig::new(Product::Trn2, 0));
    let host = HostConfig { core_quota: 3, pod_control: ControlBits(1), ..HostConfig::default() };
    let driver =
        Driver::with_config(machine.clone(), DriverConfig { host, ..DriverConfig::default() });
    let output = machine.run(async {
        driver.settled().await;
        machine.sleep(Duration::from_millis(1)).await;
        assert_eq!(driver.pod().state, PodState::Failed, "bit 0: no election after a reset");
        let client = driver.device(0).unwrap().open().await.unwrap();
        let claim = client.claim(2, 0..=7).await.unwrap();
        assert_eq!(client.claim(2, 0..=7).await.err().unwrap().errno(), Errno::EBUSY);
        drop((claim, client.claim(1, 0..=7).await.unwrap()));
        driver.shut_down().await;
    });
    machine.shut_down();
    output.unwrap();
}

#[test]
fn st_d45_the_platform_is_decided_once_and_before_anything_is_started() {
    // The name of an UltraServer of the generation before: a table that starts as the older one's
    // must not start its election.
    let machine = node("trn2u.48xlarge", FunctionConfig::new(Product::Trn3, 0));
    run(&machine, |cx| async move {
        cx.driver.settled().await;
        assert_eq!(cx.driver.pod().pod_type, PodType::None);
        let tasks = cx.platform.tasks();
        assert!(tasks.iter().all(|name| !name.starts_with("pod")), "{tasks:?}");
        cx.platform.with_model(0, |function| {
            let mut word = [0; 4];
            function.bar_read(0, MISC_RAM + 0x190, &mut word);
            assert_eq!(word, [0; 4], "its word was not touched");
        });
    });
}

#[test]
fn api_e62_api_e63_hosts_without_pods() {
    on("trn1,trn2", async |cx| {
        cx.driver.settled().await;
        let pod = cx.driver.pod();
        assert_eq!((pod.pod_type, pod.state), (PodType::None, PodState::SingleNode));
        assert_eq!((pod.node_number(), pod.membership.size), (-1, 0));
        cx.driver.pod_elect(Duration::from_secs(1)).await.unwrap();
        cx.driver.pod_set_mode(Mode::X4).await.unwrap();
        assert_eq!(cx.driver.pod(), pod);
        assert_eq!(
            class_files(&cx.driver),
            "hbm_7200_capable=0 current_perf_profile=0 node_id_2=-1 node_id_4=-1 \
             server_id_2=0000000000000000 server_id_4=0000000000000000 ultraserver_mode= "
        );
    });
}

#[test]
fn the_rows_of_a_pod_are_posted_once_it_is_known() {
    let posted = |machine: &Machine, id: u8| {
        let posts = machine.report(0).unwrap().posts;
        let all = posts.iter().flat_map(|post| axon::metrics::posting::records(&post.bytes));
        let of_id = all.filter(|(seen, _)| *seen == id);
        of_id.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect::<Vec<_>>()
    };
    let single = FunctionConfig::new(Product::Trn2, 0);
    let mut switched = single.clone();
    (switched.routing_id, switched.server_rack_id) = (64, 0x8003);
    for (name, config, expected) in [
        ("trn2es.48xlarge", switched, [Some("26"), Some("3")]),
        ("trn2.48xlarge", single, [None; 2]),
    ] {
        let machine = node(name, config);
        run(&machine, |cx| async move {
            cx.driver.settled().await;
            cx.platform.sleep(Duration::from_millis(1)).await;
            let device = cx.driver.device(0).unwrap();
            let client = device.open().await.unwrap();
            let _claim = client.claim(2, 0..=7).await.unwrap();
            if expected[0].is_some() {
                cx.driver.pod_set_mode(Mode::X2V).await.unwrap();
            }
            device.telemetry().unwrap().post_now().await.unwrap();
        });
        for (id, value) in [57, 58].into_iter().zip(expected) {
            assert!(posted(&machine, id).iter().map(String::as_str).eq(value), "{name} {id}");
        }
    }
}
