//! WorkloadPriorityClass: a priority for queueing that leaves the pods' own priority alone.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// The fields of a WorkloadPriorityClass, which lie at its root: it has no `spec`.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "WorkloadPriorityClass",
    plural = "workloadpriorityclasses",
    doc = "WorkloadPriorityClass is a priority for queueing that leaves the pods' own priority alone.",
    no_spec,
    shortname = "wpc",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(
        name = "Value",
        type_ = "integer",
        json_path = ".value",
        description = "The priority"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPriorityClassFields {
    /// The priority of workloads that name this class. A change does not reach workloads that exist.
    pub value: i32,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub description: Option<String>,
}
