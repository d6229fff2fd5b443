//! Several machines linked as an UltraServer: nodes of 16 devices that read each other's MiscRAM
//! (specification 05 §16.1, §19.7).
//!
//! The machines share one clock and one executor, so that an election over all of them is as
//! repeatable as anything else. Device *i* of a node is linked to device *i* of its neighbours, left to
//! left and right to right: 0 –L– 1 –R– 2 –L– 3 –R– 0; of two nodes both sides lead to the other one.

use std::sync::{Arc, Weak};

use axon_model::{FunctionConfig, Neighbour, Product, Unreachable};

use crate::function::Slot;
use crate::machine::{BuildError, Machine, MachineBuilder};

/// Devices of a node.
const DEVICES: u32 = 16;
/// Links of each side: the SENG numbers of their engines.
const LEFT: [usize; 2] = [1, 2];
const RIGHT: [usize; 2] = [0, 3];

/// What lies behind a link.
struct Peer(Weak<Slot>);

impl Peer {
    fn with<R>(
        &self,
        access: impl FnOnce(&mut axon_model::Function) -> Result<R, Unreachable>,
    ) -> Result<R, Unreachable> {
        let slot = self.0.upgrade().ok_or(Unreachable)?;
        // Two functions in the middle of an access to each other: neither gets an answer.
        let mut model = slot.try_model().ok_or(Unreachable)?;
        access(&mut model)
    }
}

impl Neighbour for Peer {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreachable> {
        self.with(|function| function.peer_read(address, into))
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unreachable> {
        self.with(|function| function.peer_write(address, from))
    }
}

/// Sides of a node that are linked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sides {
    /// Vertical and horizontal.
    Both,
    /// Vertical only.
    Left,
    /// Horizontal only.
    Right,
}

/// The nodes of an UltraServer of Trainium2 or Trainium3, one for each serial number, which is that of
/// the node's device 0; the numbers behind it are those of its other devices. `change` may do what it
/// likes to the machine of a node before it is made.
///
/// # Errors
/// [`BuildError`].
pub fn ultraserver(
    product: Product,
    serials: &[u64],
    mut change: impl FnMut(usize, MachineBuilder) -> MachineBuilder,
) -> Result<Vec<Machine>, BuildError> {
    let name = match product {
        Product::Trn3 | Product::Trn3Second => "trn3p.48xlarge",
        _ => "trn2u.48xlarge",
    };
    let mut nodes: Vec<Machine> = Vec::new();
    for (number, serial) in serials.iter().enumerate() {
        let mut builder = Machine::builder().product_name(name);
        for index in 0..DEVICES {
            let mut config = FunctionConfig::new(product, index);
            config.serial = serial + u64::from(index) * 1000;
            builder = builder.function(config);
        }
        if let Some(first) = nodes.first() {
            builder = builder.beside(first);
        }
        nodes.push(change(number, builder).build()?);
    }
    Ok(nodes)
}

/// Links two or four nodes. Anything else stays unlinked: there is no such UltraServer.
pub fn connect(nodes: &[Machine], sides: Sides) {
    let pairs: &[(usize, usize, bool)] = match nodes.len() {
        2 => &[(0, 1, true), (0, 1, false)],
        4 => &[(0, 1, true), (1, 2, false), (2, 3, true), (3, 0, false)],
        _ => &[],
    };
    for &(one, other, left) in pairs {
        let wanted = match sides {
            Sides::Both => true,
            Sides::Left => left,
            Sides::Right => !left,
        };
        if wanted && let (Some(one), Some(other)) = (nodes.get(one), nodes.get(other)) {
            let links = if left { LEFT } else { RIGHT };
            join(one, other, links);
            join(other, one, links);
        }
    }
}

/// Devices of `from` see those of `to` behind these links.
fn join(from: &Machine, to: &Machine, links: [usize; 2]) {
    for (one, other) in from.slots().iter().zip(to.slots()) {
        for link in links {
            let peer = Peer(Arc::downgrade(other));
            one.model().set_neighbour(link, Some(Arc::new(peer)));
        }
    }
}
