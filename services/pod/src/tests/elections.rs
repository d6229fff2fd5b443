//! Pods that come about.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::wires::Side;
use crate::words::offset;
use crate::{Control, Leaving, Membership, PodState};

/// The ring of the specification, joined 0 –L– 1 –R– 2 –L– 3 –R– 0, by name.
fn ring(world: &World, names: [u32; 4]) -> Vec<Node> {
    world.join(Side::Left, 0, 1);
    world.join(Side::Right, 1, 2);
    world.join(Side::Left, 2, 3);
    world.join(Side::Right, 3, 0);
    names.into_iter().enumerate().map(|(at, name)| world.node(at, name)).collect()
}

fn memberships(nodes: &[Node]) -> Vec<(Option<u8>, u8, u64)> {
    nodes
        .iter()
        .map(|node| node.pod.status().membership)
        .map(|Membership { node, size, serial }| (node, size, serial))
        .collect()
}

#[test]
fn st_e47_a_ring_of_four() {
    for seed in 0..4 {
        let world = World::new(seed);
        let nodes = ring(&world, [10, 20, 40, 30]);
        nodes.iter().for_each(Node::all_reset);
        world.pass(secs(20));
        let expected: Vec<_> = (0..4).map(|id| (Some(id), 4, serial(10))).collect();
        assert_eq!(memberships(&nodes), expected);
        assert_eq!(nodes[2].status_word(), 0x0402_0303);
        for node in &nodes {
            assert_eq!(node.pod.status().state, PodState::UltraServer);
            assert_eq!(node.word(0, offset::POD_SERIAL_HIGH), 1);
            assert_eq!(node.word(0, offset::POD_SERIAL_LOW), 10);
            assert_eq!(node.word(7, offset::ELECTION_STATUS), 0x0000_0003);
            node.assert_tidy();
        }
    }
}

#[test]
fn nodes_may_start_minutes_apart() {
    for seed in 0..4 {
        let world = World::new(seed);
        let nodes = ring(&world, [44, 33, 22, 99]);
        for node in &nodes {
            node.all_reset();
            world.pass(secs(100));
        }
        let ids: Vec<_> = memberships(&nodes).into_iter().map(|(id, ..)| id).collect();
        assert_eq!(ids, [Some(2), Some(3), Some(0), Some(1)], "22 is 0, its left partner 99 is 1");
        assert!(memberships(&nodes).iter().all(|m| m.2 == serial(22)));
        nodes.iter().for_each(Node::assert_tidy);
    }
}

#[test]
fn st_e48_two_nodes_joined_on_the_right_only() {
    for seed in 0..4 {
        let world = World::new(seed);
        world.join(Side::Right, 0, 1);
        let nodes = [world.node(0, 10), world.node(1, 20)];
        nodes.iter().for_each(Node::all_reset);
        world.pass(secs(30));
        assert_eq!(nodes[0].status_word(), 0x0200_0203);
        assert_eq!(nodes[1].status_word(), 0x0201_0203);
        let expected = [(Some(0), 2, serial(10)), (Some(1), 2, serial(10))];
        assert_eq!(memberships(&nodes), expected);
        nodes.iter().for_each(Node::assert_tidy);
    }
}

#[test]
fn two_nodes_joined_on_the_left_need_the_last_attempt() {
    let world = World::new(0);
    world.join(Side::Left, 0, 1);
    let nodes = [world.node(0, 20), world.node(1, 10)];
    nodes.iter().for_each(Node::all_reset);
    world.pass(secs(30));
    assert_eq!(nodes[0].status_word(), 0x0201_0103);
    assert_eq!(nodes[1].status_word(), 0x0200_0103);
}

#[test]
fn two_nodes_joined_on_both_sides() {
    let world = World::new(0);
    world.join(Side::Left, 0, 1);
    world.join(Side::Right, 0, 1);
    let nodes = [world.node(0, 20), world.node(1, 10)];
    nodes.iter().for_each(Node::all_reset);
    world.pass(secs(30));
    assert_eq!(nodes[0].status_word(), 0x0201_0303);
    assert_eq!(nodes[0].pod.status().modes_supported, 0x1c);
}

#[test]
fn st_e51_a_cached_result_is_adopted_without_touching_a_link() {
    let world = World::new(0);
    world.set_word(0, 0, offset::ELECTION_STATUS, 0x0201_0203);
    world.set_word(0, 0, offset::POD_SERIAL_LOW, 77);
    let node = world.node(0, 20);
    node.all_reset();
    world.pass(secs(1));
    let expected = Membership { node: Some(1), size: 2, serial: 77 };
    assert_eq!(node.pod.status().membership, expected);
    assert_eq!(world.state().link_reads, 0);
}

#[test]
fn st_e51_a_half_committed_result_leads_to_a_new_election() {
    let world = World::new(0);
    world.join(Side::Left, 0, 1);
    world.join(Side::Right, 0, 1);
    world.set_word(0, 0, offset::ELECTION_STATUS, 0x00ff_0003);
    let nodes = [world.node(0, 20), world.node(1, 10)];
    nodes.iter().for_each(Node::all_reset);
    world.pass(secs(30));
    assert_eq!(nodes[0].status_word(), 0x0201_0303);
}

#[test]
fn a_driver_that_starts_again_finds_its_pod() {
    let world = World::new(0);
    world.join(Side::Right, 0, 1);
    let nodes = [world.node(0, 10), world.node(1, 20)];
    nodes.iter().for_each(Node::all_reset);
    world.pass(secs(30));
    let (reads, before) = (world.state().link_reads, nodes[1].pod.status().membership);
    nodes[1].pod.stop();
    let again = world.start(1, LINKS);
    again.all_reset();
    world.pass(secs(1));
    assert_eq!(again.pod.status().membership, before);
    assert_eq!(world.state().link_reads, reads);
}

#[test]
fn a_pod_can_be_elected_again() {
    for seed in 0..4 {
        let world = World::new(seed);
        let nodes = ring(&world, [10, 20, 40, 30]);
        nodes.iter().for_each(Node::all_reset);
        world.pass(secs(20));
        let before = memberships(&nodes);
        for node in &nodes {
            world.run(node.pod.control(Control::Elect(secs(60)))).unwrap();
            world.pass(ms(700));
            assert_eq!(node.pod.status().state, PodState::InProgress);
        }
        world.pass(secs(20));
        assert_eq!(memberships(&nodes), before);
        nodes.iter().for_each(Node::assert_tidy);
    }
}

#[test]
fn st_d14_a_device_that_is_removed_ends_one_election_but_not_the_task() {
    let world = World::new(0);
    world.join(Side::Right, 0, 1);
    let nodes = [world.node(0, 10), world.node(1, 20)];
    nodes[0].all_reset();
    world.pass(secs(1));
    assert_eq!(nodes[0].pod.status().state, PodState::InProgress);
    let start = world.nanos();
    world.run(nodes[0].pod.leave(5, Leaving::Removed));
    assert!(world.nanos() - start < 1_000_000_000, "within the second of T3");
    nodes[0].assert_tidy();
    assert_eq!(nodes[0].pod.status().state, PodState::Failed);
    // The device is bound again and its reset succeeds: an election can be asked for.
    nodes[0].pod.device_reset(5, true);
    nodes[1].all_reset();
    world.run(nodes[0].pod.control(Control::Elect(secs(60)))).unwrap();
    world.pass(secs(30));
    assert_eq!(nodes[0].status_word(), 0x0200_0203);
}

#[test]
fn a_reset_of_a_device_ends_the_election_first_and_its_result_stays_a_failure() {
    let world = World::new(0);
    world.join(Side::Right, 0, 1);
    let node = world.node(0, 10);
    node.all_reset();
    world.pass(secs(1));
    world.run(node.pod.leave(0, Leaving::DeviceReset));
    assert_eq!(node.status_word(), 0x00ff_0002);
    node.assert_tidy();
    node.pod.device_reset(0, true);
    world.pass(secs(1));
    assert_eq!(node.pod.status().state, PodState::Failed, "nobody has asked for another one");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// Whatever the serials, the order of starts and the order of tasks: one pod.
    #[test]
    fn a_ring_elects_one_pod_however_it_starts(
        names in proptest::collection::hash_set(1..1000_u32, 4),
        starts in proptest::collection::vec(0..100_u64, 4),
        seed in any::<u64>(),
    ) {
        let names: Vec<u32> = names.into_iter().collect();
        let world = World::new(seed);
        let nodes = ring(&world, [names[0], names[1], names[2], names[3]]);
        let mut order: Vec<usize> = (0..4).collect();
        order.sort_by_key(|at| starts[*at]);
        for at in order {
            nodes[at].all_reset();
            world.pass(secs(starts[at]));
        }
        world.pass(secs(20));
        let least = serial(*names.iter().min().unwrap());
        prop_assert!(memberships(&nodes).iter().all(|m| (m.1, m.2) == (4, least)));
        let mut ids: Vec<_> = memberships(&nodes).into_iter().filter_map(|m| m.0).collect();
        ids.sort_unstable();
        prop_assert_eq!(ids, [0, 1, 2, 3]);
        nodes.iter().for_each(Node::assert_tidy);
    }
}
