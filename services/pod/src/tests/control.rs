//! Control requests, modes, switched pods.

use axon_clients::reservation::{MarkRequest, Reservations};
use axon_platform::{Errno, Platform};
use axon_ports::ClientId;

use super::*;
use crate::wires::Side;
use crate::words::offset;
use crate::{Control, Mode, Pod, PodError, PodState, PodType};

const SET_MODE: u32 = 3;

/// Two nodes on the right, elected; the first of them.
fn pair(world: &World) -> Node {
    world.join(Side::Right, 0, 1);
    let nodes = [world.node(0, 10), world.node(1, 20)];
    nodes.iter().for_each(Node::all_reset);
    world.pass(secs(30));
    let [first, _] = nodes;
    first
}

fn errno(result: Result<(), PodError>) -> Errno {
    result.unwrap_err().errno()
}

#[test]
fn st_e41_the_mode_ends_with_the_last_mark() {
    let world = World::new(0);
    let node = world.node(0, 10);
    world.set_word(0, 0, offset::ELECTION_STATUS, 0x0402_0303);
    node.all_reset();
    world.run(async {
        node.pod.control(Control::SetMode(Mode::X2V)).await.unwrap();
        assert_eq!(node.pod.status().mode, Mode::X2V);
        node.marks.reserved(4);
        node.marks.given_back(2);
        world.machine.sleep(ms(1)).await;
        assert_eq!(node.pod.status().mode, Mode::X2V);
        node.marks.given_back(0);
        world.machine.sleep(ms(1)).await;
        assert_eq!(node.pod.status().mode, Mode::Unset);
        // A mode that is set right after the last mark went is not lost to it.
        node.marks.reserved(1);
        node.marks.given_back(0);
        node.pod.control(Control::SetMode(Mode::X4)).await.unwrap();
        assert_eq!(node.pod.status().mode, Mode::X4);
    });
}

#[test]
fn st_e53_no_election_while_cores_are_reserved() {
    let world = World::new(0);
    let node = pair(&world);
    node.marks.reserved(1);
    let refused = world.run(node.pod.command(0, 600, None));
    assert_eq!(refused, Err(PodError::Reserved { marks: 1 }));
    assert_eq!(errno(refused), Errno::EAGAIN);
    assert_eq!(node.pod.status().state, PodState::UltraServer);
}

#[test]
fn no_election_before_all_devices_are_reset() {
    let world = World::new(0);
    let node = world.node(0, 10);
    (0..15).for_each(|index| node.pod.device_reset(index, true));
    let refused = world.run(node.pod.control(Control::Elect(secs(600))));
    assert_eq!(refused, Err(PodError::NotAllReset { done: 15 }));
    assert_eq!(errno(refused), Errno::EAGAIN);
}

#[test]
fn st_e54_the_old_form_cannot_set_a_mode() {
    let world = World::new(0);
    let node = pair(&world);
    assert_eq!(errno(world.run(node.pod.command(SET_MODE, 0, None))), Errno::EOPNOTSUPP);
    world.run(node.pod.command(SET_MODE, 0, Some(Mode::X1 as u32))).unwrap();
    assert_eq!(errno(world.run(node.pod.command(SET_MODE, 0, None))), Errno::EEXIST);
}

#[test]
fn st_e55_modes_that_the_pod_has_not_and_a_second_mode() {
    let world = World::new(0);
    let node = pair(&world);
    let set = |mode: u32| world.run(node.pod.command(SET_MODE, 0, Some(mode)));
    assert_eq!(errno(set(Mode::X4 as u32)), Errno::EOPNOTSUPP);
    assert_eq!(errno(set(9)), Errno::EOPNOTSUPP);
    assert_eq!(set(Mode::X1 as u32), Ok(()));
    assert_eq!(node.pod.status().state, PodState::SingleNode);
    assert_eq!(errno(set(Mode::X2V as u32)), Errno::EEXIST);
    assert_eq!(set(Mode::X1 as u32), Ok(()), "the same again");
    assert_eq!(world.run(node.pod.command(1, 0, None)), Ok(()), "single node is mode X1");
    assert_eq!(errno(world.run(node.pod.command(4, 0, None))), Errno::EINVAL);
}

#[test]
fn st_e56_during_an_election() {
    let world = World::new(0);
    world.join(Side::Right, 0, 1);
    let node = world.node(0, 10);
    for electing in [false, true] {
        if electing {
            node.all_reset();
            world.pass(secs(1));
        }
        let status = node.pod.status();
        assert_eq!(status.command_result(), Err(Errno::EBUSY));
        assert_eq!((status.state.command_number(), status.node_number()), (1, -1));
        assert_eq!(errno(world.run(node.pod.command(SET_MODE, 0, Some(4)))), Errno::EBUSY);
    }
    // Cores may be reserved meanwhile; asking again changes nothing.
    assert_eq!(world.run(node.pod.control(Control::Elect(secs(1)))), Ok(()));
    world.pass(secs(10));
    assert_eq!(node.pod.status().state, PodState::InProgress, "the first deadline counts");
}

#[test]
fn a_kill_before_anything_has_begun_is_a_failure_and_later_it_is_nothing() {
    let world = World::new(0);
    let node = world.node(0, 10);
    world.run(node.pod.command(2, 0, None)).unwrap();
    assert_eq!(node.pod.status().state, PodState::Failed);
    let node = pair(&World::new(1));
    node.world.run(node.pod.command(2, 0, None)).unwrap();
    assert_eq!(node.pod.status().state, PodState::UltraServer);
}

#[test]
fn st_d44_hosts_without_pods_answer_for_themselves() {
    let pod = Pod::single();
    let world = World::new(0);
    // api_e63: a number that is none, too.
    for control in [0, 1, 2, 3, 9] {
        assert_eq!(world.run(pod.command(control, 0, None)), Ok(()));
        assert_eq!(pod.status().state.command_number(), 4);
    }
    pod.device_reset(0, true);
    world.run(pod.leave(0, crate::Leaving::Removed));
    pod.stop();
}

#[test]
fn st_e63_a_switched_pod_is_located_not_elected() {
    let world = World::new(0);
    world.set_word(0, 0, offset::SERVER_RACK, 0x8003);
    let node = world.start(0, PodConfig::new(PodKind::Switch));
    assert_eq!(node.pod.status().command_result(), Err(Errno::EBUSY));
    node.pod.device_reset(0, true);
    world.pass(ms(1));
    let status = node.pod.status();
    assert_eq!((status.pod_type, status.state), (PodType::Switch, PodState::UltraServer));
    assert_eq!((status.node_number(), status.membership.size), (2, 4), "by the rule of 2.27");
    assert_eq!((status.membership.serial, status.modes_supported), (1, 0x1a));
    for control in [0, 2] {
        assert_eq!(world.run(node.pod.command(control, 5, None)), Ok(()));
        assert_eq!(node.pod.status(), status);
    }
    assert_eq!(world.state().link_reads, 0);
}

#[test]
fn st_d50_marks_and_elections_do_not_wait_for_each_other() {
    for seed in 0..8 {
        let world = World::new(seed);
        let node = pair(&world);
        let (reservations, task) =
            Reservations::new(Reservations::DEFAULT_QUOTA, node.marks.clone());
        world.machine.spawn("reservation", task.run()).unwrap();
        let request = MarkRequest {
            client: ClientId::new(1).unwrap(),
            base: 0,
            count: 1,
            start: 0,
            end: 7,
            one_word: true,
        };
        world.run(async {
            for _ in 0..50 {
                let (claim, elect) = embassy_futures::join::join(
                    reservations.claim(request),
                    node.pod.control(Control::Elect(secs(1))),
                )
                .await;
                assert!(claim.is_ok(), "reserving is allowed during an election");
                assert!(elect.is_ok() || elect == Err(PodError::Reserved { marks: 1 }));
                node.pod.control(Control::Kill).await.unwrap();
            }
        });
    }
}

#[test]
fn stopping_ends_an_election_properly_and_then_the_task() {
    let world = World::new(0);
    world.join(Side::Right, 0, 1);
    let node = world.node(0, 10);
    node.all_reset();
    world.pass(secs(1));
    node.pod.stop();
    world.pass(ms(100));
    assert!(world.machine.tasks().is_empty());
    assert_eq!(node.pod.status().state, PodState::Failed);
    node.assert_tidy();
    assert_eq!(world.run(node.pod.control(Control::Kill)), Err(PodError::Stopped));
}
