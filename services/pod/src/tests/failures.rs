//! Pods that do not come about.

use std::vec::Vec;

use super::*;
use crate::wires::{Lane, PodDevice, Side};
use crate::words::{NOT_READY, StatusWord, offset};
use crate::{Control, ControlBits, Leaving, PodState};

/// A neighbour that is content and tells what a device of its number has to tell; its serial is
/// large. Device 0 tells large serials.
fn content(device: PodDevice, at: u32) -> u32 {
    match at {
        offset::SERIAL_LOW => 5000 + u32::from(device.index()),
        offset::SERIAL_HIGH => 1,
        offset::ELECTION_STATUS => StatusWord::SECONDARY.encode(),
        0x180 | 0x188 if device.index() == 0 => 1,
        0x184 | 0x18c if device.index() == 0 => 6000 + at,
        0x184 | 0x18c => device.index().into(),
        _ => 0,
    }
}

#[test]
fn content_neighbours_make_a_pod() {
    let world = World::new(0);
    world.stub(|device, _, _, at| Some(content(device, at)));
    let node = world.node(0, 10);
    node.all_reset();
    world.pass(secs(5));
    assert_eq!(node.status_word(), 0x0200_0303, "both sides show the same serial: two nodes");
}

#[test]
fn st_e49_links_of_a_side_that_disagree_take_the_side_away() {
    let world = World::new(0);
    world.stub(|device, side, lane, at| {
        let other = device.index() == 0 && side == Side::Left && lane == Lane::Second;
        Some(content(device, at) + u32::from(other && at == offset::SERIAL_LOW))
    });
    let node = world.node(0, 10);
    node.all_reset();
    world.pass(secs(5));
    assert_eq!(node.status_word(), 0x0200_0203, "right links only");
}

#[test]
fn st_e50_one_bad_secondary_spoils_every_attempt() {
    let world = World::new(0);
    world.stub(|device, _, _, at| match (device.index(), at) {
        (3, 0x184 | 0x18c) => Some(4),
        _ => Some(content(device, at)),
    });
    let node = world.node(0, 10);
    node.all_reset();
    world.pass(secs(5));
    assert_eq!(node.status_word(), 0x00ff_0002);
    assert_eq!(node.pod.status().state, PodState::Failed);
    let log = &world.state().status_log.clone();
    let written =
        |device: u8, word: u32| log.iter().filter(|entry| **entry == (0, device, word)).count();
    assert_eq!(written(3, StatusWord::FAILURE.encode()), 3, "on links 3, 2 and 1");
    for device in (1..16).filter(|device| *device != 3) {
        assert_eq!(written(device, StatusWord::SECONDARY.encode()), 3, "device {device}");
    }
    assert_eq!(written(0, StatusWord::FAILURE.encode()), 3);
    node.assert_tidy();
}

#[test]
fn a_primary_that_is_joined_to_a_secondary_is_mis_wired() {
    let world = World::new(0);
    world.cable(0, Side::Left, End::Device(1, 7));
    world.cable(0, Side::Right, End::Open);
    let node = world.node(0, 10);
    world.set_word(1, 7, offset::SERIAL_LOW, 9);
    for at in [0x184, 0x18c] {
        world.set_word(1, 7, at, 7);
    }
    world.stub(|device, side, _, at| match (device.index(), side) {
        (0, Side::Left) if at == 0x184 || at == 0x18c => Some(7),
        (0, Side::Left) if at == 0x180 || at == 0x188 => Some(0),
        _ => Some(content(device, at)),
    });
    node.all_reset();
    world.pass(secs(5));
    assert_eq!(node.status_word(), 0x0200_0203, "the left side is out");
}

#[test]
fn st_e52_a_kill_ends_everything_within_50_ms() {
    for seed in 0..4 {
        let world = World::new(seed);
        // Joined to a node that never starts: its serial numbers are not there.
        world.join(Side::Left, 0, 1);
        world.join(Side::Right, 0, 1);
        let node = world.node(0, 10);
        node.all_reset();
        world.pass(secs(5));
        assert_eq!(node.pod.status().state, PodState::InProgress);
        world.run(node.pod.control(Control::Kill)).unwrap();
        world.pass(ms(52));
        assert_eq!(node.pod.status().state.command_number(), 4);
        assert_eq!(node.status_word(), 0x00ff_0002);
        let begun = world.state().status_log.iter().filter(|entry| entry.1 == 1).count();
        assert_eq!(begun, 2, "begun and failed once: no second attempt");
        node.assert_tidy();
    }
}

#[test]
fn a_node_that_waits_for_nobody_gives_up_in_steps() {
    let world = World::new(0);
    world.join(Side::Left, 0, 1);
    world.join(Side::Right, 0, 1);
    let node = world.node(0, 10);
    node.all_reset();
    world.pass(secs(599));
    assert_eq!(node.pod.status().state, PodState::InProgress);
    world.pass(secs(119 + 120));
    assert_eq!(node.pod.status().state, PodState::InProgress, "two attempts of 120 s more");
    world.pass(secs(5));
    assert_eq!(node.pod.status().state, PodState::Failed);
    assert_eq!(node.status_word(), 0x00ff_0002);
    node.assert_tidy();
}

#[test]
fn a_node_that_dies_leaves_the_others_with_a_failure_and_a_way_back() {
    let world = World::new(0);
    world.join(Side::Right, 0, 1);
    let nodes = [world.node(0, 10), world.node(1, 20)];
    nodes[0].all_reset();
    world.pass(ms(20));
    nodes[1].all_reset();
    // In the middle of the secondaries, on the right links.
    while !world.state().status_log.contains(&(1, 2, StatusWord::SECONDARY.encode())) {
        world.pass(core::time::Duration::from_micros(50));
    }
    assert_eq!(nodes[1].pod.status().state, PodState::InProgress);
    nodes[1].pod.stop();
    world.pass(secs(1000));
    assert_eq!(nodes[0].pod.status().state, PodState::Failed);
    nodes[0].assert_tidy();

    let again = world.start(1, LINKS);
    again.all_reset();
    world.run(nodes[0].pod.control(Control::Elect(secs(600)))).unwrap();
    world.pass(secs(60));
    assert_eq!(nodes[0].status_word(), 0x0200_0203);
    assert_eq!(again.status_word(), 0x0201_0203);
}

#[test]
fn st_d41_the_status_phase_is_bounded_and_links_are_given_back() {
    let world = World::new(0);
    world.stub(|device, _, _, at| match at {
        // Never decides.
        offset::ELECTION_STATUS => Some(StatusWord::INIT.encode()),
        _ => Some(content(device, at)),
    });
    let node = world.node(0, 10);
    node.all_reset();
    world.pass(secs(600 + 120 + 120 + 5));
    assert_eq!(node.pod.status().state, PodState::Failed);
    node.assert_tidy();
}

#[test]
fn st_d49_a_word_that_is_not_ready_is_no_bad_status() {
    let world = World::new(0);
    let machine = world.machine.clone();
    world.stub(move |device, _, _, at| match at {
        offset::ELECTION_STATUS
            if axon_platform::Platform::now(&machine).as_nanos() < 3_000_000_000 =>
        {
            Some(NOT_READY)
        }
        _ => Some(content(device, at)),
    });
    let node = world.node(0, 10);
    node.all_reset();
    world.pass(secs(8));
    assert_eq!(node.status_word(), 0x0200_0303);
}

#[test]
fn a_neighbour_that_failed_ends_the_attempt() {
    let world = World::new(0);
    world.stub(|device, _, _, at| match at {
        offset::ELECTION_STATUS => Some(StatusWord::FAILURE.encode()),
        _ => Some(content(device, at)),
    });
    let node = world.node(0, 10);
    node.all_reset();
    world.pass(secs(5));
    assert_eq!(node.pod.status().state, PodState::Failed);
}

#[test]
fn st_d43_an_injected_fault_of_the_primary_is_a_failure() {
    for bit in [ControlBits::FAIL_PRIMARY, ControlBits::SKIP_DATA_PHASE] {
        let world = World::new(0);
        world.stub(|device, _, _, at| Some(content(device, at)));
        let node = world.node_with(0, 10, PodConfig { control: ControlBits(bit), ..LINKS });
        node.all_reset();
        world.pass(secs(5));
        assert_eq!(node.status_word(), 0x00ff_0002);
        assert_eq!(node.pod.status().state, PodState::Failed);
    }
}

#[test]
fn control_bits_take_sides_away() {
    for (bits, word) in [
        (ControlBits::FAIL_LEFT, 0x0200_0203),
        (ControlBits::FAIL_RIGHT, 0x0200_0103),
        (ControlBits::FAIL_LEFT | ControlBits::FAIL_RIGHT, 0x00ff_0002),
        (ControlBits::RIGHT_ONLY, 0x0200_0203),
        (ControlBits::LEFT_ONLY, 0x0200_0103),
        // A side that is forced is not given up for the other.
        (ControlBits::RIGHT_ONLY | ControlBits::FAIL_RIGHT, 0x00ff_0002),
        (ControlBits::FAIL_SECONDARIES, 0x00ff_0002),
    ] {
        let world = World::new(0);
        world.stub(|device, _, _, at| Some(content(device, at)));
        let node = world.node_with(0, 10, PodConfig { control: ControlBits(bits), ..LINKS });
        node.all_reset();
        world.pass(secs(10));
        assert_eq!(node.status_word(), word, "bits {bits:#x}");
    }
}

#[test]
fn a_device_without_a_serial_cannot_elect() {
    let world = World::new(0);
    world.stub(|device, _, _, at| Some(content(device, at)));
    let node = world.node(0, 10);
    world.set_word(0, 0, offset::SERIAL_LOW, NOT_READY);
    node.all_reset();
    world.pass(secs(5));
    assert_eq!(node.pod.status().state, PodState::Failed);
}

#[test]
fn st_d40_a_node_that_is_never_complete_does_not_stay_undecided() {
    let world = World::new(0);
    let node = world.node(0, 10);
    (0..15).for_each(|index| node.pod.device_reset(index, true));
    world.pass(secs(599));
    assert_eq!(node.pod.status().state, PodState::InProgress);
    world.pass(secs(2));
    assert_eq!(node.pod.status().state, PodState::Failed);

    let node = world.node(1, 20);
    node.pod.device_reset(4, true);
    node.pod.device_reset(5, false);
    world.pass(ms(1));
    assert_eq!(node.pod.status().state, PodState::Failed);
    assert_eq!(world.state().link_reads, 0);
}

#[test]
fn election_after_the_load_can_be_switched_off() {
    let world = World::new(0);
    world.stub(|device, _, _, at| Some(content(device, at)));
    let skip = PodConfig { control: ControlBits(ControlBits::SKIP), ..LINKS };
    let node = world.node_with(0, 10, skip);
    node.all_reset();
    world.pass(secs(5));
    assert_eq!(node.pod.status().state, PodState::Failed);
    assert_eq!(world.state().link_reads, 0);
    world.run(node.pod.control(Control::Elect(secs(60)))).unwrap();
    world.pass(secs(5));
    assert_eq!(node.status_word(), 0x0200_0303, "but can be asked for");
}

#[test]
fn what_an_earlier_start_left_can_be_wiped() {
    let world = World::new(0);
    world.stub(|device, _, _, at| Some(content(device, at)));
    world.set_word(0, 0, offset::ELECTION_STATUS, 0x0402_0303);
    let config = ControlBits(ControlBits::CLEAR | ControlBits::SKIP);
    let node = world.node_with(0, 10, PodConfig { control: config, ..LINKS });
    node.all_reset();
    world.pass(secs(1));
    assert_eq!(node.status_word(), 0);
    assert_eq!(node.pod.status().state, PodState::Failed);
}

#[test]
fn leaving_waits_for_the_links_whenever_it_comes() {
    for span in (0..40).map(|step| step * 13) {
        let world = World::new(span);
        world.join(Side::Right, 0, 1);
        let nodes: Vec<_> =
            [10, 20].into_iter().enumerate().map(|(at, n)| world.node(at, n)).collect();
        nodes.iter().for_each(Node::all_reset);
        world.pass(ms(span));
        world.run(nodes[0].pod.leave(2, Leaving::CoreReset));
        let mine = world.state().status_log.len();
        world.run(nodes[1].pod.leave(2, Leaving::CoreReset));
        nodes.iter().for_each(Node::assert_tidy);
        assert!(mine > 0 || span == 0);
    }
}
