//! Functions and requests that cannot work: each ends with an error of its own, soon, and with
//! nothing moved.

use std::collections::BTreeSet;
use std::time::Duration;

use axon::ports::reset::DeviceState;
use axon::{Error, ProbeError};
use axon_hosted::Machine;
use axon_platform::{MmioWindow, ModelControl, PciFunction, Platform};
use axon_tests::{PRODUCTS, machine, on};

/// Why the only function of a machine was refused, and the virtual time that took.
fn refusal(description: &str) -> (Error, Duration) {
    on(description, async |cx| {
        cx.driver.settled().await;
        assert!(cx.driver.devices().is_empty(), "{description}");
        let refusals = cx.driver.refusals();
        assert_eq!(refusals.len(), 1, "{description}");
        (refusals[0].error, refusals[0].bringup)
    })
}

#[test]
fn four_broken_functions_end_in_four_errors() {
    type IsRight = fn(&ProbeError) -> bool;
    let broken: [(&str, IsRight); 4] = [
        ("trn1 fault=bar-unassigned", |e| matches!(e, ProbeError::BarUnassigned { bar: 0 })),
        ("trn1 fault=bad-device-id", |e| {
            matches!(e, ProbeError::WrongId { .. } | ProbeError::Configuration(_))
        }),
        ("trn1 fault=dead-reads", |e| matches!(e, ProbeError::FirmwareNotReady { .. })),
        ("trn1 fault=all-ones", |e| matches!(e, ProbeError::DeviceGone)),
    ];
    let mut sentences = BTreeSet::new();
    for (description, is_right) in broken {
        let (error, took) = refusal(description);
        let Error::Refused(reason) = error else { panic!("{description}: {error}") };
        assert!(is_right(&reason), "{description}: {reason:?}");
        assert!(took <= Duration::from_secs(61), "{description} took {took:?}");
        sentences.insert(error.to_string());
    }
    assert_eq!(sentences.len(), 4, "{sentences:#?}");
}

#[test]
fn a_broken_function_does_not_disturb_its_neighbour() {
    on("trn1,trn1 fault=bar-unassigned@0", async |cx| {
        cx.driver.settled().await;
        assert_eq!(cx.driver.refusals().len(), 1);
        let devices = cx.driver.devices();
        assert_eq!(devices.len(), 1);
        assert_eq!(devices[0].state(), DeviceState::Ready);
    });
}

#[test]
fn bringup_without_a_function_says_so_and_fails_at_once() {
    let machine = machine("none");
    let code = run_bringup(&machine);
    assert_eq!(code, 1);
    assert!(machine.now().as_nanos() < 1_000_000_000);
    assert!(machine.output().starts_with("no Neuron function"), "{}", machine.output());
}

#[test]
fn bringup_names_a_refused_function_and_fails() {
    let machine = machine("trn1 fault=bar-unassigned");
    assert_eq!(run_bringup(&machine), 1);
    assert!(machine.output().contains("firmware assigned no address to BAR 0"));
    assert!(machine.output().contains("\"ok\":false"));
}

#[test]
fn bringup_sees_a_single_byte_that_did_not_arrive() {
    for after in [0, 7, 100] {
        let machine = machine(&format!("trn1 fault=short-write,after={after}"));
        assert_eq!(run_bringup(&machine), 1, "after {after}");
        assert!(machine.output().contains("\nWRONG nd0.nc"), "{}", machine.output());
        assert!(machine.output().contains("\"verified\":false"));
    }
}

fn run_bringup(machine: &Machine) -> u8 {
    let main = axon_bringup::main(axon::Context::start(machine.clone()));
    let code = machine.run(main).expect("it ends");
    machine.shut_down();
    code.into()
}

/// What a guest in a VM does, with a hosted function: the model is reached through its own
/// configuration space, and through nothing else.
#[test]
fn the_control_line_is_in_configuration_space() {
    for product in PRODUCTS {
        let machine = machine(product);
        let function = machine.functions().remove(0);
        assert!(axon_platform::is_emulated(&function));
        let control = |line: &str| axon_platform::control(&function, line);
        assert_eq!(control("fault slow=1ms").as_deref(), Ok("armed"));
        assert_eq!(control("poke 0x40 7").as_deref(), Ok("MiscRAM 0x40 = 0x7"));
        let refused = control("fault nonsense").unwrap_err();
        assert!(refused.contains("nonsense") && refused.ends_with("fw-late"), "{refused}");
        assert_eq!(machine.control(0, "fault nonsense").unwrap_err(), refused);
        assert_eq!(control("fault all-ones").as_deref(), Ok("armed"));
        function.config_write16(4, 2);
        let window = function.map_bar(0, axon_platform::Caching::Uncached).unwrap();
        assert_eq!(window.read32(0), u32::MAX);
        assert!(!axon_platform::is_emulated(&function), "who is gone tells nothing");
        assert!(control("fault clear").is_err());
        machine.shut_down();
    }
}
