//! Workload: a job as the queues see it.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DEFAULT_POD_SET_NAME, PodTemplate, WorkloadStatus};
use crate::schema;

/// The pods that start together, and their queue.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "Workload",
    doc = "Workload is a job as the queues see it: pods that start together.",
    namespaced,
    status = "WorkloadStatus",
    shortname = "kwl",
    shortname = "kueueworkload",
    shortname = "kueueworkloads",
    selectable = ".status.admission.clusterQueue",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "Queue", type_ = "string", json_path = ".spec.queueName", description = "LocalQueue it was submitted to"),
    printcolumn(name = "Reserved in", type_ = "string", json_path = ".status.admission.clusterQueue", description = "ClusterQueue in which it holds quota"),
    printcolumn(name = "Admitted", type_ = "string", json_path = ".status.conditions[?(@.type=='Admitted')].status", description = "Whether it is admitted"),
    printcolumn(name = "Finished", type_ = "string", json_path = ".status.conditions[?(@.type=='Finished')].status", description = "Whether it has finished"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", description = "When it was created"),
    validation = Rule::new("has(self.status) && has(self.status.conditions) && self.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True') && has(self.status.admission) ? size(self.spec.podSets) == size(self.status.admission.podSetAssignments) : true")
        .message("podSetAssignments must have the same number of podSets as the spec"),
    validation = Rule::new("(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')) ? (!has(oldSelf.spec.priorityClassRef) && !has(self.spec.priorityClassRef)) || (has(oldSelf.spec.priorityClassRef) && has(self.spec.priorityClassRef)) : true")
        .message("priorityClassRef is immutable while workload quota reserved"),
    validation = Rule::new("(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True') && has(oldSelf.spec.priorityClassRef) && has(self.spec.priorityClassRef)) ? oldSelf.spec.priorityClassRef.group == self.spec.priorityClassRef.group : true")
        .message("priorityClassRef.group is immutable while workload quota reserved"),
    validation = Rule::new("(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True') && has(oldSelf.spec.priorityClassRef) && has(self.spec.priorityClassRef)) ? oldSelf.spec.priorityClassRef.kind == self.spec.priorityClassRef.kind : true")
        .message("priorityClassRef.kind is immutable while workload quota reserved"),
    validation = Rule::new("(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True') && has(oldSelf.spec.priorityClassRef) && has(self.spec.priorityClassRef) && self.spec.priorityClassRef.group == 'scheduling.k8s.io' && self.spec.priorityClassRef.kind == 'PriorityClass') ? oldSelf.spec.priorityClassRef.name == self.spec.priorityClassRef.name : true")
        .message("priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved"),
    validation = Rule::new("((has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')) && (has(self.status) && has(self.status.conditions) && self.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True'))) ? ((has(oldSelf.spec.queueName) == has(self.spec.queueName)) && (!has(oldSelf.spec.queueName) || oldSelf.spec.queueName == self.spec.queueName)) : true")
        .message("queueName is immutable while workload quota reserved"),
    validation = Rule::new("((has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Admitted' && c.status == 'True')) && (has(self.status) && has(self.status.conditions) && self.status.conditions.exists(c, c.type == 'Admitted' && c.status == 'True')))?((has(oldSelf.spec.maximumExecutionTimeSeconds)?oldSelf.spec.maximumExecutionTimeSeconds:0) ==  (has(self.spec.maximumExecutionTimeSeconds)?self.spec.maximumExecutionTimeSeconds:0)):true")
        .message("maximumExecutionTimeSeconds is immutable while workload quota reserved")
)]
#[x_kube(
    validation = Rule::new("!has(self.priorityClassRef) || has(self.priority)")
        .message("priority should not be nil when priorityClassRef is set"),
    validation = Rule::new("!has(self.podSets) || self.podSets.filter(p, has(p.minCount)).size() <= 1")
        .message("at most one podSet can use minCount")
)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSpec {
    /// Sets of equal pods. Immutable while quota is reserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 18),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pod_sets: Vec<PodSet>,
    /// The LocalQueue. Immutable while quota is reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub queue_name: Option<String>,
    /// The source of the priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_ref: Option<PriorityClassRef>,
    /// Workloads of higher priority come first. Must be set with `priorityClassRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Whether the workload may be admitted. Setting it to false evicts it. See
    /// [`WorkloadSpec::is_active`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub active: Option<bool>,
    /// Seconds that it may be admitted before it is deactivated. Unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub maximum_execution_time_seconds: Option<i32>,
    /// Gates that keep the workload from preempting until they open in its status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub preemption_gates: Vec<PreemptionGate>,
}

impl WorkloadSpec {
    /// Whether the workload may be admitted. Defaults to true.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.active.unwrap_or(true)
    }
}

/// Reference to the class that the priority comes from.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("(self.group == 'scheduling.k8s.io') ? self.kind == 'PriorityClass' : true")
        .message("only the PriorityClass kind is allowed for the scheduling.k8s.io group"),
    validation = Rule::new("(self.group == 'kueue.x-k8s.io') ? self.kind == 'WorkloadPriorityClass' : true")
        .message("only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group")
)]
#[serde(rename_all = "camelCase")]
pub struct PriorityClassRef {
    /// The class's API group.
    pub group: PriorityClassGroup,
    /// The class's kind.
    pub kind: PriorityClassKind,
    /// The class's name.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::SUBDOMAIN))]
    pub name: String,
}

/// The API group of a priority class.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[schemars(inline)]
pub enum PriorityClassGroup {
    /// Group of WorkloadPriorityClass.
    #[serde(rename = "kueue.x-k8s.io")]
    Kueue,
    /// Group of PriorityClass.
    #[serde(rename = "scheduling.k8s.io")]
    Scheduling,
}

/// The kind of a priority class.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[schemars(inline)]
pub enum PriorityClassKind {
    /// For queueing only.
    WorkloadPriorityClass,
    /// The pods' own class.
    PriorityClass,
}

impl PriorityClassRef {
    /// Refers to a WorkloadPriorityClass.
    pub fn workload(name: impl Into<String>) -> Self {
        Self {
            group: PriorityClassGroup::Kueue,
            kind: PriorityClassKind::WorkloadPriorityClass,
            name: name.into(),
        }
    }

    /// Refers to a PriorityClass.
    pub fn pod(name: impl Into<String>) -> Self {
        Self {
            group: PriorityClassGroup::Scheduling,
            kind: PriorityClassKind::PriorityClass,
            name: name.into(),
        }
    }
}

/// A number of equal pods.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new("has(self.minCount) ? self.minCount <= self.count : true")
        .message("minCount should be positive and less or equal to count")
)]
#[serde(rename_all = "camelCase")]
pub struct PodSet {
    /// Name of the pod set, unique in the workload.
    #[serde(default = "main")]
    #[schemars(schema_with = "schema::pod_set_name_or_main")]
    pub name: String,
    /// Template of each pod.
    pub template: PodTemplate,
    /// Number of pods.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub count: i32,
    /// Least number of pods that the job accepts. The full count if absent. One pod set of a
    /// workload may set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_count: Option<i32>,
    /// How near to each other the pods must run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_request: Option<PodSetTopologyRequest>,
}

impl Default for PodSet {
    fn default() -> Self {
        Self {
            name: main(),
            template: PodTemplate::default(),
            count: 1,
            min_count: None,
            topology_request: None,
        }
    }
}

pub(super) fn main() -> String {
    DEFAULT_POD_SET_NAME.to_owned()
}

fn one() -> i32 {
    1
}

/// How near to each other the pods of a pod set must run.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("!has(self.podSetSliceRequiredTopology) || has(self.podSetSliceSize)")
        .message("podSetSliceSize must be set when podSetSliceRequiredTopology is specified"),
    validation = Rule::new("has(self.podSetSliceRequiredTopology) || !has(self.podSetSliceSize)")
        .message("podSetSliceSize may not be set when podSetSliceRequiredTopology is not specified"),
    validation = Rule::new("!has(self.podSetSliceSize) || self.podSetSliceSize > 0")
        .message("podSetSliceSize must be greater than 0")
)]
#[serde(rename_all = "camelCase")]
pub struct PodSetTopologyRequest {
    /// All pods must run in one domain of this level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub required: Option<String>,
    /// All pods run in one domain of this level if possible, else in one of a wider level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub preferred: Option<String>,
    /// Pods may run in any domains, but only where nodes have room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconstrained: Option<bool>,
    /// Label with the index of a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub pod_index_label: Option<String>,
    /// Label with the index of a pod's replicated job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub sub_group_index_label: Option<String>,
    /// Number of replicated jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_group_count: Option<i32>,
    /// Pod sets of one group get the same flavor and the same domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub pod_set_group_name: Option<String>,
    /// Each slice must run in one domain of this level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub pod_set_slice_required_topology: Option<String>,
    /// Pods per slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_slice_size: Option<i32>,
    /// Nested slices, the widest first. Replaces the two fields above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "atomic"))]
    pub podset_slice_required_topology_constraints: Vec<PodsetSliceRequiredTopologyConstraint>,
}

/// One layer of slices.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct PodsetSliceRequiredTopologyConstraint {
    /// The level.
    #[schemars(length(min = 1, max = 63))]
    pub topology: String,
    /// Pods per slice.
    #[schemars(range(min = 1))]
    pub size: i32,
}

/// Keeps a workload from preempting while closed.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGate {
    /// The gate.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}
