//! How things are called: interned names and the keys built of them.

use std::fmt;
use std::sync::Arc;

/// A shared, immutable name. Cloning costs a counter, so a million workloads share the text of their queue's name.
pub type Name = Arc<str>;

/// A Workload's place: `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct WorkloadKey {
    /// The namespace.
    pub namespace: Name,
    /// The name within the namespace.
    pub name: Name,
}

/// A LocalQueue's place: `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct LocalQueueKey {
    /// The namespace.
    pub namespace: Name,
    /// The name within the namespace.
    pub name: Name,
}

impl WorkloadKey {
    /// The key of a Workload.
    pub fn new(namespace: impl Into<Name>, name: impl Into<Name>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl LocalQueueKey {
    /// The key of a LocalQueue.
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
