//! Flavors: the engine charges one of two, and clusters list one or both.
//!
//! `a` and `b` enforce pins, `c` does not. Choices come from a random stream of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::Rng;

use super::{CAPACITY, World};
use crate::capacity::{CapacityReport, FlavorRoom, LocalQueueCapacity, NodeBin};
use crate::tests::{charge, queues};
use crate::{DispatchEvent, FlavorName, Name, PinRules, Uid, WorkloadFacts};

const FLAVORS: [&str; 2] = ["default", "spot"];

/// Whether the cluster can use a pinned flavor: its queue has it, or it ignores pins.
pub(super) fn lists(cluster: &str, flavor: &str) -> bool {
    match cluster {
        "a" => flavor == "default",
        "b" => FLAVORS.contains(&flavor),
        _ => true,
    }
}

/// A cluster's report.
pub(super) fn report(cluster: &str, free: i64) -> CapacityReport {
    let mut queues: BTreeMap<_, LocalQueueCapacity> = queues(free, CAPACITY);
    for queue in queues.values_mut().filter(|_| cluster != "a") {
        let mut spot = queue.flavors[0].clone();
        spot.name = "spot".into();
        queue.flavors.push(spot);
    }
    CapacityReport { queues, enforces_pins: cluster != "c", ..CapacityReport::default() }
}

impl World {
    /// Room on nodes: unknown, none, or some. It decides about no law.
    pub(super) fn rooms(&mut self) -> BTreeMap<Name, FlavorRoom> {
        let nodes = self.pin_dice.random_range(-1..4_i64);
        let bin = |nodes| {
            let free = BTreeMap::from([("cpu".into(), 1_500), ("pods".into(), 110)]);
            NodeBin { nodes, free, taints: Vec::new() }
        };
        let room = FlavorRoom {
            bins: (0..nodes.min(1)).map(|_| bin(nodes)).collect(),
            shared: true,
            coarse: nodes == 1,
        };
        let known = FLAVORS.iter().filter(|_| nodes >= 0);
        known.map(|flavor| (Name::from(*flavor), room.clone())).collect()
    }

    /// The engine charges a flavor. The slices of one job have the same.
    pub(super) fn charge(&mut self, uid: &Uid) -> WorkloadFacts {
        let before = self.api[uid].facts.replaces.clone();
        let is_slice = |it: &WorkloadFacts| {
            Some(&it.uid) == before.as_ref() || it.replaces.as_ref() == Some(uid)
        };
        let facts = || self.api.values().map(|object| &object.facts);
        let own = facts().filter(|it| it.uid == *uid && facts().any(is_slice));
        let mut charged = own.chain(facts().filter(|it| is_slice(it))).map(|it| it.charged.clone());
        let kept = charged.find(|charged| !charged.is_empty());
        let flavor = FLAVORS[self.pin_dice.random_range(0..FLAVORS.len())];
        if let Some(object) = self.api.get_mut(uid) {
            object.facts.charged = kept.unwrap_or_else(|| charge(flavor));
        }
        self.as_seen(self.api[uid].facts.clone())
    }

    /// Only a workload with quota has a charge, in the API or in memory.
    pub(super) fn with_charge(&self, facts: WorkloadFacts) -> WorkloadFacts {
        let held = facts.state.reserved || self.engine.contains(&facts.uid);
        WorkloadFacts { charged: if held { facts.charged } else { Arc::default() }, ..facts }
    }

    /// An administrator sets, changes or removes the pins.
    pub(super) fn configure_pins(&mut self) {
        let spot = |worker_flavor: &str| FlavorName {
            cluster: None,
            flavor: "spot".into(),
            worker_flavor: worker_flavor.into(),
        };
        let rules = match self.pin_dice.random_range(0..4) {
            0 => PinRules { is_off: true, ..PinRules::default() },
            1 => PinRules { mapping: vec![spot("default")], ..PinRules::default() },
            _ => PinRules::default(),
        };
        self.pins_are_off = rules.is_off;
        self.note_unpinned();
        self.apply(DispatchEvent::PinsConfigured { check: "mk".into(), rules });
    }

    /// While nothing is pinned, a hub may commit any copy that is there.
    pub(super) fn note_unpinned(&mut self) {
        if !self.pins_are_off {
            return;
        }
        for (uid, remote) in self.clusters.values().flat_map(|cluster| &cluster.remotes) {
            self.unpinned.insert((uid.clone(), remote.attempt));
        }
    }

    /// Panics if a cluster that enforces pins runs an attempt in another flavor than one that the
    /// charge of that attempt may stand for.
    pub(super) fn check_pins(&self, uid: &Uid) {
        let owner = &self.api[&self.owner(uid)].facts;
        for (name, cluster) in self.clusters.iter().filter(|(name, _)| **name != "c") {
            let Some(remote) = cluster.remotes.get(uid).filter(|_| cluster.runs(uid)) else {
                continue;
            };
            if remote.attempt != owner.state.attempt || !owner.state.reserved || owner.state.evicted
            {
                continue;
            }
            if self.unpinned.contains(&(uid.clone(), remote.attempt)) {
                continue;
            }
            let pin = remote.pin.as_deref().unwrap_or("none");
            let charged = owner.charged.get("main", "cpu").unwrap_or_default();
            // `spot` may be mapped to `default`.
            let is_it = pin == charged || (charged, pin) == ("spot", "default");
            assert!(
                is_it,
                "{uid}/{} runs in {pin} on {name}, charged to {charged}",
                remote.attempt
            );
        }
    }
}
