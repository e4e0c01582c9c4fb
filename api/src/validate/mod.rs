//! What must hold of an object beyond its schema: Kueue's webhook rules, in Kubernetes' words.
//!
//! Pure functions over whole objects, served by the validating webhook. Rules that the schema can state are in the
//! schema, too, and are met there first.

mod cluster_queue;
mod labels;
mod quota;
mod resource_flavor;
#[cfg(test)]
mod tests;
mod workload;
mod workload_update;

pub use cluster_queue::{cluster_queue, cluster_queue_update};
pub use labels::{
    SUBDOMAIN_MESSAGE, annotations, is_subdomain, label_key_error, label_selector, label_value_error, labels,
    selector_matches,
};
pub use quota::cohort;
pub use resource_flavor::resource_flavor;
pub use workload::{admission_gated_by, on_disconnect, workload};
pub use workload_update::{admission_gated_by_update, workload_update};

/// What is said of a value below zero.
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
/// What is said of a value that changed.
const IMMUTABLE: &str = "field is immutable";
