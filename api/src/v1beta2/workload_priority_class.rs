//! WorkloadPriorityClass: a priority for queueing that leaves the pods' own priority alone.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// The fields of a WorkloadPriorityClass. They are at its root, because it has no `spec`.
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
    /// Priority of workloads with this class. A change does not affect existing workloads.
    pub value: i32,
    /// A description for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub description: Option<String>,
}
