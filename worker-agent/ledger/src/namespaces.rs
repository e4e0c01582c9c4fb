//! Which namespaces of the cluster the hub may use.

use std::collections::BTreeSet;

/// Which namespaces the hub may use on this cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedNamespaces {
    /// Every one.
    #[default]
    All,
    /// These only.
    Only(BTreeSet<String>),
}

impl AllowedNamespaces {
    /// Whether the hub may use it.
    pub fn allow(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(namespace),
        }
    }
}
