//! Why pods are not placed, in Kueue's words.

use std::collections::BTreeMap;
use std::fmt;

use crate::{Name, Taint};

/// Why pods are not placed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum Failure {
    /// The request names no level.
    LevelMissing,
    /// The Topology has no such level.
    LevelUnknown {
        /// Its label key.
        level: Name,
    },
    /// The Topology has no such level, which slices ask for.
    SliceLevelUnknown {
        /// Its label key.
        level: Name,
    },
    /// Slices must be in domains above those that all pods must be in.
    SliceAbove {
        /// The level of slices.
        slice: Name,
        /// The level of the pod set.
        level: Name,
    },
    /// The Topology has no such level, which an inner layer of slices asks for.
    LayerLevelUnknown {
        /// Its label key.
        level: Name,
    },
    /// An inner layer is not below the one before.
    LayerNotBelow {
        /// Its level.
        level: Name,
        /// The level that it must be below.
        parent: Name,
    },
    /// An inner layer's size does not divide the one before.
    LayerSize {
        /// Its size.
        size: i32,
        /// The size that it must divide.
        parent: i32,
    },
    /// Slices without a size.
    SliceSizeMissing,
    /// A group of more than a leader and its workers.
    GroupTooLarge {
        /// The group.
        group: Name,
    },
    /// The tree has no leaf.
    NoDomains {
        /// The level that was searched.
        level: Name,
    },
    /// Too little room.
    NoRoom {
        /// The Topology.
        topology: Name,
        /// How many fit.
        fits: i32,
        /// How many were asked for.
        asked: i32,
        /// Slices are counted, not pods.
        slices: bool,
        /// The leaves that were left out.
        excluded: Box<Excluded>,
    },
    /// Too little room for slices of several layers.
    NoRoomInLayers {
        /// The Topology.
        topology: Name,
        /// The layers, of the best domain.
        layers: Vec<LayerRoom>,
        /// The leaves that were left out.
        excluded: Box<Excluded>,
    },
    /// An update of an admission check contradicts the pods.
    BadUpdate {
        /// The pod set.
        pod_set: Name,
        /// What is wrong.
        message: String,
    },
    /// Other pods of the assignment are at places that are not there any more.
    Stale {
        /// One of the places.
        domain: Name,
    },
    /// No place for the pods of a failed node.
    NoReplacement {
        /// The node.
        node: Name,
    },
}

/// How many slices of a layer fit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct LayerRoom {
    /// The level of the layer.
    pub level: Name,
    /// How many fit.
    pub fits: i32,
    /// How many were asked for.
    pub asked: i32,
}

/// Leaves that were not looked at, or take no pod, by why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Excluded {
    /// All leaves.
    pub total: usize,
    /// The labels are not those that the pods select.
    pub node_selector: usize,
    /// The labels are not those of the pods' required affinity.
    pub affinity: usize,
    /// Not in the domain where a failed node must be replaced.
    pub topology_domain: usize,
    /// By taint.
    pub taints: BTreeMap<Taint, usize>,
    /// By the resource of which not even one pod's share is free.
    pub resources: BTreeMap<Name, usize>,
}

impl Excluded {
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

fn written(taint: &Taint) -> String {
    match &*taint.value {
        "" => format!("{}:{}", taint.key, taint.effect),
        value => format!("{}={value}:{}", taint.key, taint.effect),
    }
}

impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reasons() {
            none if none.is_empty() => Ok(()),
            some => write!(f, ". Total nodes: {}; excluded: {}", self.total, some.join(", ")),
        }
    }
}

impl fmt::Display for Failure {
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
                for LayerRoom { level, fits, asked } in layers {
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
