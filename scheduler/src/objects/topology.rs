//! Topologies, the capacity in them, and what pods ask of them.

use std::collections::BTreeMap;

use crate::{Amount, Name, Taint};

/// The label of the level that is a single host.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// A hierarchy of places.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Topology {
    /// Its name.
    pub name: Name,
    /// The label keys of its levels, the highest first.
    pub levels: Vec<Name>,
}

/// Capacity at one place: a node, or what a cluster reports of one of its places. Labels say where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct CapacityLeaf {
    /// Its name.
    pub name: Name,
    /// Labels that flavors, levels, node selectors and affinities refer to.
    pub labels: BTreeMap<String, String>,
    /// Taints that pods must tolerate.
    pub taints: Vec<Taint>,
    /// What pods may use, `pods` included.
    pub capacity: BTreeMap<Name, Amount>,
}

/// What a pod outside of topology-aware scheduling uses of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct OutsidePod {
    /// Tells pods apart.
    pub key: Name,
    /// The [`CapacityLeaf`] that it runs on.
    pub leaf: Name,
    /// What it asks for, without `pods`.
    pub requests: BTreeMap<Name, Amount>,
}

/// Pods that must be together in multiples of `size`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct SliceLayer {
    /// The level in one domain of which each multiple must be.
    pub topology: Name,
    /// How many pods.
    pub size: i32,
}

/// `podSets[].topologyRequest`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct TopologyRequest {
    /// All pods in one domain of this level.
    pub required: Option<Name>,
    /// In as few domains of this level as can be.
    pub preferred: Option<Name>,
    /// Capacity anywhere.
    pub unconstrained: Option<bool>,
    /// The level of slices, in the older form of one layer.
    pub slice_topology: Option<Name>,
    /// The pods of a slice, in the older form of one layer.
    pub slice_size: Option<i32>,
    /// Layers of slices, coarse to fine. They go before the older form.
    pub slice_layers: Vec<SliceLayer>,
    /// Pod sets of one group are placed together: a leader and its workers.
    pub group: Option<Name>,
    /// The label that holds a pod's rank. Placement does not read it.
    pub pod_index_label: Option<Name>,
    /// The label that holds a pod's subgroup. Placement does not read it.
    pub sub_group_index_label: Option<Name>,
    /// How many subgroups there are. Placement does not read it.
    pub sub_group_count: Option<i32>,
}

/// Where the pods of a pod set run, as its Workload's status tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct TopologyAssignment {
    /// The label keys that the values belong to: all levels, or only the hostname if it is the lowest.
    pub levels: Vec<Name>,
    /// The places, in the order in which pods take them.
    pub domains: Vec<AssignedDomain>,
}

/// Pods of one pod set at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct AssignedDomain {
    /// The label values.
    pub values: Vec<Name>,
    /// How many pods.
    pub count: i32,
}

/// `delayedTopologyRequest`: placement that comes after the reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum DelayedTopology {
    /// Not placed yet.
    Pending,
    /// Placed, here or on the worker cluster.
    Ready,
}

impl TopologyRequest {
    /// It asks for a topology by itself. One that only names rank labels does not.
    pub fn is_explicit(&self) -> bool {
        self.unconstrained.is_some()
            || self.required.is_some()
            || self.preferred.is_some()
            || self.slice_topology.is_some()
            || self.slice_size.is_some()
            || !self.slice_layers.is_empty()
    }

    /// The layers of slices, coarse to fine. A size that is not given is 0.
    pub fn layers(&self) -> Vec<SliceLayer> {
        if !self.slice_layers.is_empty() {
            return self.slice_layers.clone();
        }
        let older = self.slice_topology.iter();
        older
            .map(|topology| SliceLayer {
                topology: topology.clone(),
                size: self.slice_size.unwrap_or(0),
            })
            .collect()
    }
}

impl TopologyAssignment {
    /// How many pods it places.
    pub fn pods(&self) -> i32 {
        self.domains.iter().fold(0, |sum: i32, domain| sum.saturating_add(domain.count))
    }

    /// Whether some pods are at the place with this lowest value.
    pub fn uses(&self, lowest: &str) -> bool {
        self.domains
            .iter()
            .any(|domain| domain.values.last().is_some_and(|value| &**value == lowest))
    }
}
