//! Interned names, and keys of namespaced objects.

use std::fmt;
use std::sync::Arc;

/// A shared, immutable name. A clone costs one counter, so that a million workloads share the text
/// of their queue's name.
pub type Name = Arc<str>;

/// `namespace/name` of a Workload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct WorkloadKey {
    pub namespace: Name,
    pub name: Name,
}

/// `namespace/name` of a LocalQueue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct LocalQueueKey {
    pub namespace: Name,
    pub name: Name,
}

impl WorkloadKey {
    pub fn new(namespace: impl Into<Name>, name: impl Into<Name>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl LocalQueueKey {
    pub fn new(namespace: impl Into<Name>, name: impl Into<Name>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for WorkloadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for LocalQueueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
