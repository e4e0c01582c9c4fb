//! `kueue.x-k8s.io/v1beta2`. Each kind has a file, and so have shapes that kinds share.
//!
//! Fields, defaults, limits and validation rules are Kueue's, so a manifest for Kueue has the same
//! meaning here. Switchyard's additions are optional: [`WorkloadStatus::dispatch`],
//! [`ClusterSource::agent`], [`MultiKueueClusterSpec::on_disconnect`] and
//! [`MultiKueueClusterStatus::agent`].
//!
//! Some rules are stricter, only for objects without a meaning in Kueue:
//! - An AdmissionCheck, Topology, ProvisioningRequestConfig, MultiKueueCluster or MultiKueueConfig
//!   needs a `spec`.
//! - A quota or weight has at most 64 characters, a resource name 317. This bounds the cost of CEL
//!   rules.
//! - A LocalQueue's weight obeys the rules of a ClusterQueue's.
//!
//! Rules of Kueue's webhook are in the schema if it can express them, so they hold without a
//! webhook. The pod template is the opposite: it is kept whole and checked lightly, see
//! [`PodTemplate`].

// KubeSchema copies each type into a function body with its `pub`, and the lint then points here.
#![allow(unreachable_pub)]
// Arguments of different printer columns differ only in their parentheses.
#![allow(clippy::duplicated_attributes)]

mod admission_check;
mod cluster_queue;
mod cohort;
mod fair_sharing;
mod local_queue;
mod multi_kueue_cluster;
mod multi_kueue_config;
mod on_disconnect;
mod on_stuck;
mod pod_template;
mod preemption;
mod provisioning_request_config;
mod quota;
mod resource_flavor;
mod topology;
mod topology_assignment;
mod workload;
mod workload_checks;
mod workload_priority_class;
mod workload_status;

pub use admission_check::*;
pub use cluster_queue::*;
pub use cohort::*;
pub use fair_sharing::*;
pub use local_queue::*;
pub use multi_kueue_cluster::*;
pub use multi_kueue_config::*;
pub use on_disconnect::*;
pub use on_stuck::*;
pub use pod_template::*;
pub use preemption::*;
pub use provisioning_request_config::*;
pub use quota::*;
pub use resource_flavor::*;
pub use switchyard_syntax::affinity::{ClusterAffinity, ClusterRule};
pub use topology::*;
pub use topology_assignment::*;
pub use workload::*;
pub use workload_checks::*;
pub use workload_priority_class::*;
pub use workload_status::*;

/// The API group of every kind here.
pub const GROUP: &str = "kueue.x-k8s.io";
/// The version, stored and served.
pub const VERSION: &str = "v1beta2";
/// Group and version as in `apiVersion`.
pub const API_VERSION: &str = "kueue.x-k8s.io/v1beta2";
/// Name of the pod set of jobs with only one.
pub const DEFAULT_POD_SET_NAME: &str = "main";
