//! Topologies, capacity leaves and topology requests. Kueue KEP-2724.

use std::collections::BTreeMap;

use crate::{Amount, Name, Taint};

/// The level of single hosts.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Topology {
    pub name: Name,
    /// Label keys, highest level first.
    pub levels: Vec<Name>,
}

/// The capacity of a node, or of a domain that a cluster reports. The labels give its position in
/// the topology.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct CapacityLeaf {
    pub name: Name,
    /// Flavors, levels, node selectors and affinities refer to these labels.
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// Includes `pods`.
    pub capacity: BTreeMap<Name, Amount>,
}

/// A pod outside topology-aware scheduling, and the capacity that it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct NonTasPod {
    pub key: Name,
    /// The [`CapacityLeaf`] where it runs.
    pub leaf: Name,
    /// Without `pods`.
    pub requests: BTreeMap<Name, Amount>,
}

/// Pods that share one domain in multiples of `size`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct SliceLayer {
    /// The level whose domains hold whole multiples.
    pub topology: Name,
    /// In pods.
    pub size: i32,
}

/// `podSets[].topologyRequest`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct TopologyRequest {
    /// All pods in one domain of this level.
    pub required: Option<Name>,
    /// As few domains of this level as possible.
    pub preferred: Option<Name>,
    /// No level is requested; any capacity will do.
    pub unconstrained: Option<bool>,
    /// `podSetSliceRequiredTopology`, the form with one layer.
    pub slice_topology: Option<Name>,
    /// `podSetSliceSize`, the form with one layer.
    pub slice_size: Option<i32>,
    /// From coarse to fine. Takes precedence over the form with one layer.
    pub slice_layers: Vec<SliceLayer>,
    /// Pod sets of one group are placed together: a leader and its workers.
    pub group: Option<Name>,
    /// Placement does not read it.
    pub pod_index_label: Option<Name>,
    /// Placement does not read it.
    pub sub_group_index_label: Option<Name>,
    /// Placement does not read it.
    pub sub_group_count: Option<i32>,
}

/// The topology assignment of a pod set, as in the Workload's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct TopologyAssignment {
    /// Label keys of the values: all levels, or the hostname alone if it is the lowest level.
    pub levels: Vec<Name>,
    /// In the order in which pods take them.
    pub domains: Vec<AssignedDomain>,
}

/// Pods of one pod set in one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct AssignedDomain {
    /// Label values.
    pub values: Vec<Name>,
    /// In pods.
    pub count: i32,
}

/// `delayedTopologyRequest`: placement after the reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum DelayedTopology {
    Pending,
    /// Placed by this engine or by the worker cluster.
    Ready,
}

impl TopologyRequest {
    /// Requests a level, slices or any capacity. A request that only names rank labels is not
    /// explicit.
    pub fn is_explicit(&self) -> bool {
        self.unconstrained.is_some()
            || self.required.is_some()
            || self.preferred.is_some()
            || self.slice_topology.is_some()
            || self.slice_size.is_some()
            || !self.slice_layers.is_empty()
    }

    /// From coarse to fine. A missing size is 0.
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
    pub fn pods(&self) -> i32 {
        self.domains.iter().fold(0, |sum: i32, domain| sum.saturating_add(domain.count))
    }

    /// Whether pods are in the domain with this lowest value.
    pub fn uses(&self, lowest: &str) -> bool {
        self.domains
            .iter()
            .any(|domain| domain.values.last().is_some_and(|value| &**value == lowest))
    }
}
