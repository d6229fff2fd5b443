//! Two or four nodes of 16 devices in one process, linked as an UltraServer: they elect, one of them
//! starts again, and what each believes is printed (specification 05 §16).
//!
//! Every node runs a driver of its own against devices of its own. What joins them is what joins
//! UltraServers: engines that read the neighbour's MiscRAM through their windows.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use axon::{Context, PodState, PodStatus};
use axon_hosted::Machine;
use axon_hosted::pod::{Sides, connect, ultraserver};
use axon_model::Product;
use axon_platform::Platform;
use clap::Parser;

/// Serial numbers of the nodes' devices 0, around the ring: neighbours are in no order.
const SERIALS: [u64; 4] = [1000, 2000, 4000, 3000];
/// An election gives up by itself before that.
const PATIENCE: Duration = Duration::from_secs(1200);
const LOOK: Duration = Duration::from_millis(10);

/// An UltraServer of hosted nodes.
#[derive(Parser)]
struct Options {
    /// Nodes: 2 or 4
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=4))]
    nodes: u8,
    /// What they are made of: trn2 or trn3
    #[arg(long, default_value = "trn2", value_parser = ["trn2", "trn3"])]
    device: String,
    /// Seed of task order, delays and random numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A node whose devices are dead from the start; may be repeated
    #[arg(long, value_name = "NODE")]
    dead: Vec<usize>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.nodes == 3 {
        eprintln!("an UltraServer has 2 or 4 nodes");
        return ExitCode::from(2);
    }
    let product = Product::from_name(&options.device).unwrap_or(Product::Trn2);
    let count = usize::from(options.nodes);
    let serials = SERIALS.get(..count).unwrap_or(&SERIALS);
    let nodes = ultraserver(product, serials, |number, builder| {
        let dead = options.dead.contains(&number);
        let builder = builder.seed(options.seed);
        if dead { builder.fault(None, "all-ones") } else { builder }
    });
    let nodes = match nodes {
        Ok(nodes) => nodes,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(error.exit_code());
        }
    };
    connect(&nodes, Sides::Both);
    let Some(first) = nodes.first() else { return ExitCode::from(125) };
    let agreed = first.run(elect(&nodes));
    first.shut_down();
    match agreed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(stalled) => {
            eprintln!("{stalled}");
            ExitCode::from(125)
        }
    }
}

/// Brings every node up, waits for the election, starts one node again; answers whether all agreed.
async fn elect(nodes: &[Machine]) -> bool {
    let since = nodes.first().map(Platform::now);
    let contexts: Vec<_> = nodes.iter().map(|node| Context::start(node.clone())).collect();
    let mut pods = Vec::new();
    for (number, cx) in contexts.iter().enumerate() {
        cx.driver.settled().await;
        let pod = settled(cx).await;
        println!("node {number}: {} devices, {}", cx.driver.devices().len(), describe(&pod));
        pods.push(pod);
    }
    if let (Some(since), Some(node)) = (since, nodes.first()) {
        println!("after {:?} of virtual time", node.now().since(since));
    }
    if let (Some(cx), Some(node)) = (contexts.last(), nodes.last()) {
        cx.driver.shut_down().await;
        let again = Context::start(node.clone());
        again.driver.settled().await;
        let pod = settled(&again).await;
        println!("node {} started again: {}", contexts.len() - 1, describe(&pod));
        pods.push(pod);
        again.driver.shut_down().await;
    }
    for cx in &contexts {
        cx.driver.shut_down().await;
    }
    let size = contexts.len();
    pods.iter()
        .all(|pod| pod.state == PodState::UltraServer && usize::from(pod.membership.size) == size)
}

/// The pod of a node once its election is over.
async fn settled(cx: &Context<Machine>) -> PodStatus {
    let deadline = cx.platform.now() + PATIENCE;
    while cx.driver.pod().state == PodState::InProgress && cx.platform.now() < deadline {
        cx.platform.sleep(LOOK).await;
    }
    cx.driver.pod()
}

fn describe(pod: &PodStatus) -> String {
    let membership = pod.membership;
    let node = membership.node.map_or("none".into(), |node| node.to_string());
    format!(
        "state {:?}, node {node} of {}, pod serial {:#x}, modes {:#x}",
        pod.state, membership.size, membership.serial, pod.modes_supported
    )
}
