//! Names that programs, clusters and tests share.

use std::sync::atomic::{AtomicU32, Ordering};

/// The namespace of the programs, in every cluster.
pub const NAMESPACE: &str = "switchyard-system";
/// The hub's cluster.
pub const HUB: &str = "hub";

/// A name that begins with `stem` and that no other test on this machine uses, for namespaces and cluster-scoped objects.
pub fn unique(stem: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{stem}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
