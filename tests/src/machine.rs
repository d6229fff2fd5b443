//! Machines by a short description, and futures run on them.

use axon::Context;
use axon_hosted::{Machine, MachineBuilder};

/// A machine from words: products separated by commas, then `seed=N`, `name=PRODUCT`,
/// `fault=FAULT[@POSITION][,after=N]`.
///
/// # Panics
/// Where the description cannot be read: the test is wrong.
pub fn machine(description: &str) -> Machine {
    let mut builder = Machine::builder();
    for word in description.split_whitespace() {
        builder = match word.split_once('=') {
            None => word.split(',').filter(|name| !name.is_empty()).fold(builder, with_device),
            Some(("seed", seed)) => builder.seed(seed.parse().expect("a seed is a number")),
            Some(("name", name)) => builder.product_name(name),
            Some(("fault", fault)) => with_fault(builder, fault),
            Some((key, _)) => panic!("no key {key} in a machine's description"),
        };
    }
    builder.build().unwrap_or_else(|error| panic!("{description}: {error}"))
}

fn with_device(builder: MachineBuilder, name: &str) -> MachineBuilder {
    // `none` is a machine without functions.
    if name == "none" { builder } else { builder.device(name) }
}

fn with_fault(builder: MachineBuilder, fault: &str) -> MachineBuilder {
    let (head, after) = fault.split_once(',').unwrap_or((fault, ""));
    let (name, position) = match head.split_once('@') {
        Some((name, at)) => (name, Some(at.parse().expect("a position is a number"))),
        None => (head, None),
    };
    builder.fault(position, format!("{name} {after}").trim())
}

/// The four products.
pub const PRODUCTS: [&str; 4] = ["trn1", "inf2", "trn2", "trn3"];

/// Runs an asynchronous test on one machine after the other: in `description` each product takes
/// the place of every `{}`.
///
/// # Panics
/// As [`on`].
pub fn on_each(description: &str, test: impl AsyncFn(Context<Machine>)) {
    for product in PRODUCTS {
        eprintln!("{product}");
        on(&description.replace("{}", product), &test);
    }
}

/// Whether a device of this context is of the first register map.
pub fn is_v2(cx: &Context<Machine>) -> bool {
    cx.driver.device(0).is_ok_and(|device| device.hal().cores() == 2)
}

/// Runs an asynchronous test on a machine whose devices are being brought up.
///
/// # Panics
/// Where everything waits for something that can never come.
pub fn on<R>(description: &str, test: impl AsyncFnOnce(Context<Machine>) -> R) -> R {
    let machine = machine(description);
    let output = machine.run(test(Context::start(machine.clone())));
    machine.shut_down();
    output.unwrap_or_else(|stalled| panic!("{description}: {stalled}"))
}
