//! Why pods are not placed, in Kueue's words.

use std::collections::BTreeMap;
use std::fmt;

use crate::{Name, Taint};

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum PlacementFailure {
    /// The request names no level.
    LevelMissing,
    /// The Topology lacks the requested level.
    LevelUnknown {
        /// The label key.
        level: Name,
    },
    /// The Topology lacks the level of the slices.
    SliceLevelUnknown {
        /// The label key.
        level: Name,
    },
    /// The slice level is above the level of the pod set.
    SliceAbove {
        slice: Name,
        /// The pod set's level.
        level: Name,
    },
    /// The Topology lacks the level of an inner slice layer.
    LayerLevelUnknown {
        /// The label key.
        level: Name,
    },
    /// The level of an inner layer is not below the previous one.
    LayerNotBelow {
        level: Name,
        /// The level of the previous layer.
        parent: Name,
    },
    /// The size of an inner layer does not divide the previous one.
    LayerSize {
        size: i32,
        /// The size of the previous layer.
        parent: i32,
    },
    SliceSizeMissing,
    /// A group with more pod sets than a leader and its workers.
    GroupTooLarge {
        group: Name,
    },
    /// The topology has no leaves.
    NoDomains {
        /// The searched level.
        level: Name,
    },
    /// Too little capacity.
    NoRoom {
        topology: Name,
        fits: i32,
        asked: i32,
        /// The counts are slices, not pods.
        slices: bool,
        excluded: Box<ExcludedLeaves>,
    },
    /// Too little capacity for slices of several layers.
    NoRoomInLayers {
        topology: Name,
        /// The layers within the best domain.
        layers: Vec<LayerCapacity>,
        excluded: Box<ExcludedLeaves>,
    },
    /// A `podSetUpdate` of an admission check contradicts the pods.
    BadUpdate {
        pod_set: Name,
        message: String,
    },
    /// Other pods of the assignment are in a domain that no longer exists.
    Stale {
        /// One such domain.
        domain: Name,
    },
    /// No domain fits the pods of a failed node.
    NoReplacement {
        node: Name,
    },
}

/// The slices of one layer that fit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct LayerCapacity {
    pub level: Name,
    pub fits: i32,
    pub asked: i32,
}

/// Leaves that were excluded or take no pod, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct ExcludedLeaves {
    /// All leaves, excluded or not.
    pub total: usize,
    /// Excluded by the pods' node selector.
    pub node_selector: usize,
    /// Excluded by the pods' required affinity.
    pub affinity: usize,
    /// Outside the domain where a failed node must be replaced.
    pub topology_domain: usize,
    pub taints: BTreeMap<Taint, usize>,
    /// By the resource that cannot fit a single pod.
    pub resources: BTreeMap<Name, usize>,
}

impl ExcludedLeaves {
    fn reasons(&self) -> Vec<String> {
        let single = [
            ("nodeSelector", self.node_selector),
            ("affinity", self.affinity),
            ("topologyDomain", self.topology_domain),
        ];
        let single = single
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{name}: {count}"));
        let taints =
            self.taints.iter().map(|(taint, count)| format!("taint {:?}: {count}", written(taint)));
        let resources =
            self.resources.iter().map(|(name, count)| format!("resource {name:?}: {count}"));
        let mut all: Vec<_> = single.chain(taints).chain(resources).collect();
        all.sort_unstable();
        all
    }
}

pub(super) fn written(taint: &Taint) -> String {
    match &*taint.value {
        "" => format!("{}:{}", taint.key, taint.effect),
        value => format!("{}={value}:{}", taint.key, taint.effect),
    }
}

impl fmt::Display for ExcludedLeaves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reasons() {
            none if none.is_empty() => Ok(()),
            some => write!(f, ". Total nodes: {}; excluded: {}", self.total, some.join(", ")),
        }
    }
}

impl fmt::Display for PlacementFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LevelMissing => f.write_str("topology level not specified"),
            Self::LevelUnknown { level } => write!(f, "no requested topology level: {level}"),
            Self::SliceLevelUnknown { level } => {
                write!(f, "no requested topology level for slices: {level}")
            }
            Self::SliceAbove { slice, level } => {
                write!(f, "podset slice topology {slice} is above the podset topology {level}")
            }
            Self::LayerLevelUnknown { level } => {
                write!(f, "no requested topology level for additional slice layer: {level}")
            }
            Self::LayerNotBelow { level, parent } => {
                write!(
                    f,
                    "additional slice layer topology {level} must be at a lower level than {parent}"
                )
            }
            Self::LayerSize { size, parent } => {
                write!(
                    f,
                    "additional slice layer size {size} must evenly divide parent layer size {parent}"
                )
            }
            Self::SliceSizeMissing => {
                f.write_str("slice topology requested, but slice size not provided")
            }
            Self::GroupTooLarge { group } => {
                write!(f, "podset group {group} has more than two pod sets")
            }
            Self::NoDomains { level } => write!(f, "no topology domains at level: {level}"),
            Self::NoRoom { topology, fits, asked, slices, excluded } => {
                let unit = if *slices { "slice" } else { "pod" };
                match fits {
                    0 => write!(
                        f,
                        "topology {topology:?} doesn't allow to fit any of {asked} {unit}(s){excluded}"
                    ),
                    _ => {
                        write!(
                            f,
                            "topology {topology:?} allows to fit only {fits} out of {asked} {unit}(s){excluded}"
                        )
                    }
                }
            }
            Self::NoRoomInLayers { topology, layers, excluded } => {
                write!(f, "topology {topology:?} doesn't allow to fit")?;
                for LayerCapacity { level, fits, asked } in layers {
                    write!(f, "; {fits}/{asked} slice(s) fit on level {level}")?;
                }
                write!(f, "{excluded}")
            }
            Self::BadUpdate { pod_set, message } => {
                write!(f, "invalid podSetUpdate for PodSet {pod_set}, error: {message}")
            }
            Self::Stale { domain } => write!(
                f,
                "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale \
                 domain {domain}"
            ),
            Self::NoReplacement { node } => {
                write!(f, "cannot find replacement assignment for unhealthy node: {node}")
            }
        }
    }
}
