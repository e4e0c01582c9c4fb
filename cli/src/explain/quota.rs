//! Quota in an explanation, for programs. Amounts are Kubernetes quantities.

use std::collections::BTreeMap;

use serde::Serialize;
use switchyard_scheduler::{
    Amount, FlavorOutlook, Name, PodSetOutlook, PreemptionOutlook, QuotaBound, ResourceOutlook,
    Victim, WithheldQuota,
};

/// Quota of one pod set.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetView {
    pub name: String,
    /// Pods still to be admitted.
    pub count: i32,
    /// Fewest pods for partial admission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_count: Option<i32>,
    /// Requests of all its pods.
    pub requests: BTreeMap<String, String>,
    /// Why it can never be admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Requested resources that the ClusterQueue does not cover.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uncovered_resources: Vec<String>,
    /// Flavors in the order in which they are tried.
    pub flavors: Vec<FlavorView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlavorView {
    pub name: String,
    /// `Mismatch`, `ExceedsMaxQuota`, `WaitingForQuota`, `NoCandidates`, `Preempt`, `Reclaim` or
    /// `Fits`.
    pub verdict: &'static str,
    /// Whether this flavor would be assigned.
    pub chosen: bool,
    /// Why the pods cannot use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<String>,
    pub resources: Vec<ResourceView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceView {
    pub name: String,
    /// As [`FlavorView::verdict`].
    pub verdict: &'static str,
    /// Requests of the pod set.
    pub asked: String,
    /// Requests of earlier pod sets for the same resource and flavor.
    pub earlier: String,
    /// Available now.
    pub free: String,
    /// Amount by which `free` is too small.
    pub missing: String,
    /// Part of `free` that would be borrowed.
    pub borrowable: String,
    /// Nominal quota of the ClusterQueue.
    pub nominal: String,
    /// Usage of the ClusterQueue.
    pub used: String,
    /// Available if nothing were used.
    pub max: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrowing_limit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lending_limit: Option<String>,
    /// The limit of `free`.
    pub bound: LimitView,
    /// Unused quota of others that lending limits withhold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept_by_lending_limits: Vec<WithheldView>,
    /// Preemption candidates, and why others are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<PreemptionView>,
}

/// The limit of available quota.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitView {
    /// `NoCohort`, `Cohort` or `BorrowingLimit`.
    pub kind: &'static str,
    /// The Cohort, or the queue or Cohort with the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// Unused quota that a lending limit withholds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WithheldView {
    /// The queue or Cohort with the limit.
    pub name: String,
    pub amount: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionView {
    /// Workloads that would be preempted.
    pub victims: Vec<VictimView>,
    /// Workloads that use the resource and would not be preempted.
    pub refused: Vec<RefusalView>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VictimView {
    /// `namespace/name`.
    pub workload: String,
    pub cluster_queue: String,
    pub priority: i32,
    /// Reason of its `Preempted` condition.
    pub reason: &'static str,
}

/// Workloads that would not be preempted for one reason.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusalView {
    pub cluster_queue: String,
    /// Number of workloads.
    pub workloads: usize,
    /// Usage of all of them together.
    pub holds: String,
    /// One of them, `namespace/name`.
    pub example: String,
    /// `WithinClusterQueueNever`, `ReclaimWithinCohortNever`, `NotBorrowing`, `Priority`,
    /// `WhileBorrowing`, `FairShare`, `QueueInactive` or `NotEnough`.
    pub obstacle: &'static str,
    pub message: String,
}

impl PodSetView {
    pub(super) fn new(pod_set: &PodSetOutlook) -> Self {
        let requests =
            pod_set.requests.iter().map(|(name, amount)| (name.to_string(), amount.format(name)));
        Self {
            name: pod_set.name.to_string(),
            count: pod_set.count,
            min_count: pod_set.min_count,
            requests: requests.collect(),
            problem: pod_set.problem.clone(),
            uncovered_resources: pod_set.uncovered.iter().map(Name::to_string).collect(),
            flavors: pod_set.flavors.iter().map(FlavorView::new).collect(),
        }
    }
}

impl FlavorView {
    fn new(flavor: &FlavorOutlook) -> Self {
        Self {
            name: flavor.flavor.to_string(),
            verdict: flavor.verdict.name(),
            chosen: flavor.chosen,
            mismatch: flavor.mismatch.as_ref().map(switchyard_scheduler::Cause::message),
            resources: flavor.resources.iter().map(ResourceView::new).collect(),
        }
    }
}

impl ResourceView {
    fn new(outlook: &ResourceOutlook) -> Self {
        let format = |amount: Amount| amount.format(&outlook.resource);
        Self {
            name: outlook.resource.to_string(),
            verdict: outlook.verdict.name(),
            asked: format(outlook.asked),
            earlier: format(outlook.earlier),
            free: format(outlook.free),
            missing: format(outlook.missing()),
            borrowable: format(outlook.borrowable),
            nominal: format(outlook.nominal),
            used: format(outlook.used),
            max: format(outlook.most),
            borrowing_limit: outlook.borrowing_limit.map(format),
            lending_limit: outlook.lending_limit.map(format),
            bound: LimitView::new(&outlook.bound, &outlook.resource),
            kept_by_lending_limits: outlook
                .withheld
                .iter()
                .map(|kept| WithheldView::new(kept, &outlook.resource))
                .collect(),
            preemption: outlook
                .preemption
                .as_ref()
                .map(|found| PreemptionView::new(found, &outlook.resource)),
        }
    }
}

impl LimitView {
    fn new(bound: &QuotaBound, resource: &str) -> Self {
        match bound {
            QuotaBound::NoCohort => Self { kind: "NoCohort", name: None, limit: None },
            QuotaBound::Cohort { name } => {
                Self { kind: "Cohort", name: Some(name.to_string()), limit: None }
            }
            QuotaBound::BorrowingLimit { name, limit } => Self {
                kind: "BorrowingLimit",
                name: Some(name.to_string()),
                limit: Some(limit.format(resource)),
            },
        }
    }
}

impl WithheldView {
    fn new(kept: &WithheldQuota, resource: &str) -> Self {
        Self { name: kept.name.to_string(), amount: kept.amount.format(resource) }
    }
}

impl PreemptionView {
    fn new(found: &PreemptionOutlook, resource: &str) -> Self {
        let refused = found.non_candidates.iter().map(|refusal| RefusalView {
            cluster_queue: refusal.cluster_queue.to_string(),
            workloads: refusal.workloads,
            holds: refusal.holds.format(resource),
            example: refusal.example.to_string(),
            obstacle: refusal.obstacle.name(),
            message: refusal.obstacle.message(),
        });
        Self {
            victims: found.victims.iter().map(VictimView::new).collect(),
            refused: refused.collect(),
        }
    }
}

impl VictimView {
    pub(super) fn new(victim: &Victim) -> Self {
        Self {
            workload: victim.key.to_string(),
            cluster_queue: victim.cluster_queue.to_string(),
            priority: victim.priority,
            reason: victim.reason,
        }
    }
}
