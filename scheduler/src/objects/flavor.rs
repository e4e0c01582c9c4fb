//! ResourceFlavors, taints and tolerations.

use std::collections::BTreeMap;
use std::fmt;

use crate::Name;

/// A kind of node that quota is counted on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct ResourceFlavor {
    /// Its name.
    pub name: Name,
    /// Labels of its nodes; pods' node selectors and required affinity are matched to these keys only.
    pub node_labels: BTreeMap<String, String>,
    /// Taints of its nodes.
    pub node_taints: Vec<Taint>,
    /// Tolerations that every pod admitted to it is given.
    pub tolerations: Vec<Toleration>,
    /// The Topology it belongs to.
    pub topology_name: Option<Name>,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum TaintEffect {
    /// New pods stay away.
    NoSchedule,
    /// New pods prefer other nodes; never a reason to refuse a flavor.
    PreferNoSchedule,
    /// New pods stay away and running ones leave.
    NoExecute,
}

/// A node taint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value; may be empty.
    pub value: String,
    /// What it does.
    pub effect: TaintEffect,
}

/// How a toleration compares its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum TolerationOperator {
    /// Key and value are equal.
    #[default]
    Equal,
    /// The key is equal, or any if the toleration has no key.
    Exists,
}

/// A pod's toleration.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Toleration {
    /// The key; empty with `Exists` tolerates every key.
    pub key: String,
    /// The comparison.
    pub operator: TolerationOperator,
    /// The value for `Equal`.
    pub value: String,
    /// The effect it tolerates; `None` tolerates all.
    pub effect: Option<TaintEffect>,
}

impl Toleration {
    /// Whether this tolerates `taint`, as Kubernetes' scheduler decides it.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        if self.effect.is_some_and(|effect| effect != taint.effect)
            || (!self.key.is_empty() && self.key != taint.key)
        {
            return false;
        }
        match self.operator {
            TolerationOperator::Equal => self.value == taint.value,
            TolerationOperator::Exists => true,
        }
    }
}

impl fmt::Display for TaintEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        })
    }
}
