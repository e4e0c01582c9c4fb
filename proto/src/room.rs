//! The bounds of what an agent reports about room on nodes.
//!
//! The agent keeps to them, and the hub checks them: an agent is a program on machines of another
//! team.

use crate::MAX_NAME;
use crate::v1::{Capacity, NodeBin, Taint};

/// The most flavors of a report.
pub const MAX_FLAVORS: usize = 64;

/// The most bins of a flavor.
pub const MAX_BINS: usize = 32;

/// The most bins of all flavors together.
pub const MAX_ALL_BINS: usize = 512;

/// The most resources of a bin.
pub const MAX_RESOURCES: usize = 16;

/// The most taints of a bin.
pub const MAX_TAINTS: usize = 8;

/// The most nodes of a bin.
pub const MAX_NODES: u32 = 1_000_000;

/// The largest amount of a bin: 1 EiB of memory, or 10^15 CPUs.
pub const MAX_AMOUNT: i64 = 1 << 60;

/// The longest name of a resource, and of a taint's key: a DNS subdomain, a slash, and 63 characters.
const MAX_QUALIFIED: usize = 253 + 1 + 63;

/// Enforces the bounds. Flavors and bins beyond them are dropped, amounts and numbers of nodes are
/// clamped. A flavor with dropped bins is coarse. Returns the number of dropped flavors, dropped bins, and clamped bins.
pub fn check(capacity: &mut Capacity) -> usize {
    let rooms = &mut capacity.rooms;
    let mut wrong = rooms.len().saturating_sub(MAX_FLAVORS);
    rooms.truncate(MAX_FLAVORS);
    let mut left = MAX_ALL_BINS;
    rooms.retain_mut(|room| {
        if room.flavor.len() > MAX_NAME {
            wrong += 1;
            return false;
        }
        let before = room.bins.len();
        room.bins.truncate(MAX_BINS.min(left));
        room.bins.retain(is_within_bounds);
        left -= room.bins.len();
        room.coarse |= room.bins.len() < before;
        wrong += before - room.bins.len();
        wrong += room.bins.iter_mut().filter_map(|bin| clamp(bin).then_some(())).count();
        true
    });
    wrong
}

fn is_within_bounds(bin: &NodeBin) -> bool {
    let is_taint = |taint: &Taint| {
        taint.key.len() <= MAX_QUALIFIED && taint.value.len() <= 63 && taint.effect.len() <= 63
    };
    bin.nodes > 0
        && bin.free.len() <= MAX_RESOURCES
        && bin.free.keys().all(|name| name.len() <= MAX_QUALIFIED)
        && bin.taints.len() <= MAX_TAINTS
        && bin.taints.iter().all(is_taint)
}

/// Returns whether a number was out of bounds.
fn clamp(bin: &mut NodeBin) -> bool {
    let mut is_clamped = bin.nodes > MAX_NODES;
    bin.nodes = bin.nodes.min(MAX_NODES);
    for amount in bin.free.values_mut() {
        let within = (*amount).clamp(0, MAX_AMOUNT);
        is_clamped |= within != *amount;
        *amount = within;
    }
    is_clamped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::FlavorRoom;

    fn bin(nodes: u32, cpu: i64) -> NodeBin {
        NodeBin { nodes, free: [("cpu".to_owned(), cpu)].into(), taints: Vec::new() }
    }

    fn room(flavor: &str, bins: Vec<NodeBin>) -> FlavorRoom {
        FlavorRoom { flavor: flavor.into(), bins, ..FlavorRoom::default() }
    }

    fn checked(rooms: Vec<FlavorRoom>) -> (Vec<FlavorRoom>, usize) {
        let mut capacity = Capacity { rooms, ..Capacity::default() };
        let wrong = check(&mut capacity);
        (capacity.rooms, wrong)
    }

    #[test]
    fn report_within_bounds_is_unchanged() {
        let rooms = vec![room("a", vec![bin(1, 1); MAX_BINS]), room("b", Vec::new())];
        assert_eq!(checked(rooms.clone()), (rooms, 0));
    }

    #[test]
    fn amounts_out_of_bounds_are_clamped() {
        let absurd = vec![bin(u32::MAX, i64::MAX), bin(1, -1), bin(1, i64::MIN), bin(1, 1)];
        let clamped = vec![bin(MAX_NODES, MAX_AMOUNT), bin(1, 0), bin(1, 0), bin(1, 1)];
        assert_eq!(checked(vec![room("f", absurd)]), (vec![room("f", clamped)], 3));
    }

    #[test]
    fn entries_beyond_the_bounds_are_dropped() {
        let many = |count: usize| -> Vec<FlavorRoom> {
            (0..count).map(|index| room(&index.to_string(), vec![bin(1, 1); MAX_BINS])).collect()
        };
        let (rooms, wrong) = checked(many(MAX_FLAVORS + 1));
        let bins: usize = rooms.iter().map(|room| room.bins.len()).sum();
        assert_eq!((rooms.len(), bins), (MAX_FLAVORS, MAX_ALL_BINS));
        assert_eq!(wrong, 1 + MAX_FLAVORS * MAX_BINS - MAX_ALL_BINS);

        let names = |count: usize| (0..count).map(|name| (name.to_string(), 1)).collect();
        let taint = |key: String| Taint { key, ..Taint::default() };
        let bad = vec![
            bin(0, 1),
            NodeBin { free: names(MAX_RESOURCES + 1), ..bin(1, 1) },
            NodeBin { free: [("n".repeat(MAX_QUALIFIED + 1), 1)].into(), ..bin(1, 1) },
            NodeBin { taints: vec![taint("k".into()); MAX_TAINTS + 1], ..bin(1, 1) },
            NodeBin { taints: vec![taint("k".repeat(MAX_QUALIFIED + 1))], ..bin(1, 1) },
            bin(1, 1),
        ];
        let rest = FlavorRoom { coarse: true, ..room("f", vec![bin(1, 1)]) };
        assert_eq!(checked(vec![room("f", bad)]), (vec![rest], 5));
        assert_eq!(checked(vec![room(&"f".repeat(MAX_NAME + 1), Vec::new())]), (Vec::new(), 1));
        assert_eq!(checked(vec![room("f", vec![bin(1, 1); MAX_BINS + 2])]).1, 2);
    }
}
