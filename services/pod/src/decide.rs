//! Which node is which: a pure function of four serial numbers (specification 05 §16.5).

use crate::words::{Elected, LinkMask};

/// What the primary knows when everybody is vetted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Serials {
    pub(crate) own: u64,
    pub(crate) left: u64,
    pub(crate) right: u64,
    /// The right neighbour of the left neighbour.
    pub(crate) diagonal: u64,
}

/// Node id, count and pod serial; all nodes of a pod come to the same conclusion.
pub(crate) fn decide(links: LinkMask, serials: Serials) -> Elected {
    let Serials { own, left, right, diagonal } = serials;
    let elect = |node, count, serial| Elected { links, node: Some(node), count, serial };
    if links != LinkMask::BOTH || left == right {
        let neighbour = if links == LinkMask::RIGHT { right } else { left };
        return if own < neighbour { elect(0, 2, own) } else { elect(1, 2, neighbour) };
    }
    let smallest_side = left.min(right);
    if own < diagonal && own < smallest_side {
        elect(0, 4, own)
    } else if own >= diagonal && diagonal < smallest_side {
        elect(2, 4, diagonal)
    } else if left < right {
        elect(1, 4, left)
    } else {
        elect(3, 4, right)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;

    /// Around a ring that is joined L, R, L, R: neighbours of the node at `at`.
    fn around(ring: [u64; 4], at: usize) -> Serials {
        let (next, previous) = (ring[(at + 1) % 4], ring[(at + 3) % 4]);
        let (left, right) = if at.is_multiple_of(2) { (next, previous) } else { (previous, next) };
        Serials { own: ring[at], left, right, diagonal: ring[(at + 2) % 4] }
    }

    #[test]
    fn the_example_ring() {
        let ring = [10, 20, 40, 30];
        let elected: Vec<_> = (0..4).map(|at| decide(LinkMask::BOTH, around(ring, at))).collect();
        assert_eq!(elected.iter().map(|e| e.node.unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(elected.iter().all(|e| (e.count, e.serial) == (4, 10)));
    }

    #[test]
    fn two_nodes_on_one_side_or_both() {
        let serials = |own, other| Serials { own, left: other, right: other, diagonal: own };
        for links in [LinkMask::LEFT, LinkMask::RIGHT, LinkMask::BOTH] {
            let [low, high] = [serials(10, 20), serials(20, 10)].map(|s| decide(links, s));
            assert_eq!((low.node, low.count, low.serial), (Some(0), 2, 10));
            assert_eq!((high.node, high.count, high.serial), (Some(1), 2, 10));
        }
    }

    proptest! {
        #[test]
        fn a_ring_of_four_always_gets_four_ids_and_one_serial(
            ring in proptest::collection::hash_set(16..u64::MAX, 4)
        ) {
            let ring: Vec<u64> = ring.into_iter().collect();
            let ring = [ring[0], ring[1], ring[2], ring[3]];
            let elected: Vec<_> =
                (0..4).map(|at| decide(LinkMask::BOTH, around(ring, at))).collect();
            let mut ids: Vec<_> = elected.iter().map(|e| e.node.unwrap()).collect();
            // Ids go round the ring: 0 and 1 are joined on the left, 1 and 2 on the right.
            for at in 0..4_usize {
                let partner = if at.is_multiple_of(2) { (at + 1) % 4 } else { (at + 3) % 4 };
                prop_assert_eq!(ids[at] ^ 1, ids[partner], "left partners are 0-1 and 2-3");
            }
            ids.sort_unstable();
            prop_assert_eq!(ids, [0, 1, 2, 3]);
            let least = *ring.iter().min().unwrap();
            prop_assert!(elected.iter().all(|e| (e.count, e.serial) == (4, least)));
        }
    }
}
