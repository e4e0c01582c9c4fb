//! The namespaces that the hub may use.

use std::collections::BTreeSet;

/// The namespaces of this cluster that the hub may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedNamespaces {
    #[default]
    All,
    Only(BTreeSet<String>),
}

impl AllowedNamespaces {
    pub fn allow(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(namespace),
        }
    }
}
