//! Job kinds: pure functions between a job object and its pod sets.
//!
//! Each kind has a file, an implementation of [`JobKind`] and its facets, and a row in the table
//! ([`kinds`]). Nothing here holds a client or reads a clock. Objects are JSON, so fields of newer
//! API servers survive every edit. Changes are written as merge patches ([`merge_diff`]).
//!
//! # The kinds
//!
//! The most difficult kind is [`batch_job`]. Its API server guards its template, so start and stop
//! take several steps ([`JobKind::before_run`], [`JobKind::stop`]), and it checks status writes.
//! Kinds of CRDs are simpler and alike: `plain` has their common code, and a kind adds its pod
//! templates, its suspend field and how its status is read.
//! `docs/adding-a-job-kind.md` shows how to add a kind.
//!
//! | kind | pod sets | finished | pods ready |
//! |---|---|---|---|
//! | Job | `main` | Complete, Failed | counters |
//! | JobSet | one for each replicated job | Completed, Failed | counters, in Jobs |
//! | Kubeflow's six | one for each replica type | Succeeded, Failed | Running |
//! | RayCluster, RayService | `head`, one for each worker group | never | state `ready`, Ready |
//! | RayJob | those and `submitter` | `jobDeploymentStatus` | its cluster's state |
//! | AppWrapper | one for each wrapped template | phase | PodsReady |
//! | SparkApplication | `driver`, `executor` | state | state and executors' states |
//! | TrainJob | those of its runtime's JobSet | Complete, Failed | counters, in Jobs |
//! | Pod | `main`; for a group, one for each role | phase; all succeeded | Ready |
//! | Deployment | its pods' | never | its pods' |
//! | StatefulSet | `main` | never | its pods' |
//! | LeaderWorkerSet | `leader` and `worker`, or `main` | never | its pods' |
//! | external frameworks | their controller's | with their Workload | their controller's |

#![warn(missing_docs)]

pub mod app_wrapper;
pub mod batch_job;
mod build;
mod by_pods;
mod copy;
pub mod deployment;
pub mod elastic;
mod equivalence;
mod error;
mod external;
mod frameworks;
mod index_set;
pub mod job_set;
mod kind;
pub mod kubeflow;
pub mod leader_worker_set;
pub mod limit_range;
pub mod meta;
mod mirror;
mod number;
mod partial;
mod plain;
pub mod pod;
pub mod pod_requests;
mod pod_set_info;
mod pods_of;
mod priority;
pub mod ray;
mod remote;
pub mod serving;
pub mod spark_application;
mod spec_propagation;
pub mod stateful_set;
mod status;
mod strategic;
mod table;
mod template;
pub mod topology;
pub mod train_job;
mod types;
mod validate;

pub use build::{
    build_group_workload, build_workload, job_pod_sets, owner_annotations, owner_reference,
    pod_sets_with_topology,
};
pub use by_pods::PodOwner;
pub use copy::{copy_of_another, is_copy_of_hub, mark_as_copy, named_job, owner_gvk, same_copy};
pub use equivalence::{is_equivalent, owned_by};
pub use error::JobError;
pub(crate) use kind::suspend_and_restore;
pub use kind::{Dependent, Elastic, Grouped, JobKind, KindProfile, Managed, Remote};
pub use mirror::{merged_status, reset_status};
pub use partial::sized_pod_sets;
pub use pod_set_info::{
    PodSetInfo, is_dns_label, pod_set_infos, restore_template, running_pod_sets,
};
pub use pods_of::{PodSelector, pod_selector};
pub use priority::{Priority, PriorityError, PriorityLookup, resolve_priority};
pub use remote::sent_objects;
pub use spec_propagation::propagated_changes;
pub use switchyard_api::reclaimable::may_reclaim;
pub use switchyard_api::workload_names::{
    limited_name, variant_name, workload_name, workload_name_with_extra,
};
pub use switchyard_syntax::merge_patch::{apply_merge, merge_diff};
pub use table::{
    enabled_kinds, external_kind, framework_of, is_serving_part, kind_for, kind_of_owner, kinds,
};
pub use topology::{TopologyGates, TopologySource};
pub use types::{
    BuildOptions, CountedPods, Dependency, JobEnd, KindId, RemoteMeta, Stop, SuspendMode,
};
pub use validate::{
    UpdateContext, validate_autoscaling, validate_create, validate_elastic, validate_topology,
    validate_update,
};

/// Most pod sets that a Workload can have (`spec.podSets` of its CRD).
const MAX_POD_SETS: usize = 18;

#[cfg(test)]
mod tests;
