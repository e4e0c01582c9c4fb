//! The quota side of an explanation, as programs read it: amounts are Kubernetes quantities.

use std::collections::BTreeMap;

use serde::Serialize;
use switchyard_scheduler::{
    Amount, Bound, FlavorOutlook, Kept, Name, PodSetOutlook, PreemptionOutlook, ResourceOutlook,
    Victim,
};

/// One pod set's way to quota.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetView {
    /// Its name.
    pub name: String,
    /// Pods still wanted.
    pub count: i32,
    /// How many would do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_count: Option<i32>,
    /// What all of them ask for.
    pub requests: BTreeMap<String, String>,
    /// Why it can never be admitted as it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Requested resources that the ClusterQueue does not cover.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uncovered_resources: Vec<String>,
    /// Every flavor, in the order they are tried.
    pub flavors: Vec<FlavorView>,
}

/// One flavor for one pod set.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlavorView {
    /// The flavor.
    pub name: String,
    /// `Mismatch`, `ExceedsMaxQuota`, `WaitingForQuota`, `NoCandidates`, `Preempt`, `Reclaim` or `Fits`.
    pub verdict: &'static str,
    /// It is the one that would be taken.
    pub chosen: bool,
    /// Why the pods cannot use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<String>,
    /// By resource.
    pub resources: Vec<ResourceView>,
}

/// One resource on one flavor.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceView {
    /// The resource.
    pub name: String,
    /// As of flavors.
    pub verdict: &'static str,
    /// What the pod set asks for.
    pub asked: String,
    /// What the pod sets before it take of the same.
    pub earlier: String,
    /// What could be used now.
    pub free: String,
    /// How much more would have to be free.
    pub missing: String,
    /// How much of `free` would be borrowed.
    pub borrowable: String,
    /// The queue's own quota.
    pub nominal: String,
    /// What the queue uses.
    pub used: String,
    /// What could be used if nobody used anything.
    pub max: String,
    /// The queue's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrowing_limit: Option<String>,
    /// The queue's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lending_limit: Option<String>,
    /// What keeps `free` from being more.
    pub bound: BoundView,
    /// Free quota of others that their lending limits keep back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept_by_lending_limits: Vec<KeptView>,
    /// Who would have to go, and why they need not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<PreemptionView>,
}

/// What keeps free quota from being more.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BoundView {
    /// `NoCohort`, `Cohort` or `BorrowingLimit`.
    pub kind: &'static str,
    /// The Cohort, or whose limit it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// Free quota that a lending limit keeps back.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptView {
    /// Whose limit.
    pub name: String,
    /// How much.
    pub amount: String,
}

/// What preemption could do.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionView {
    /// Who would be preempted.
    pub victims: Vec<VictimView>,
    /// Who holds some of it and stays.
    pub refused: Vec<RefusalView>,
}

/// A workload that would be preempted.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VictimView {
    /// `namespace/name`.
    pub workload: String,
    /// Its ClusterQueue.
    pub cluster_queue: String,
    /// Its priority.
    pub priority: i32,
    /// The reason that its `Preempted` condition would have.
    pub reason: &'static str,
}

/// Workloads that stay for one reason.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusalView {
    /// Their ClusterQueue.
    pub cluster_queue: String,
    /// How many.
    pub workloads: usize,
    /// What they hold together.
    pub holds: String,
    /// One of them, `namespace/name`.
    pub example: String,
    /// `WithinClusterQueueNever`, `ReclaimWithinCohortNever`, `NotBorrowing`, `Priority`, `WhileBorrowing`, `FairShare`,
    /// `QueueInactive` or `NotEnough`.
    pub obstacle: &'static str,
    /// The obstacle in words.
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
            bound: BoundView::new(&outlook.bound, &outlook.resource),
            kept_by_lending_limits: outlook
                .kept
                .iter()
                .map(|kept| KeptView::new(kept, &outlook.resource))
                .collect(),
            preemption: outlook
                .preemption
                .as_ref()
                .map(|found| PreemptionView::new(found, &outlook.resource)),
        }
    }
}

impl BoundView {
    fn new(bound: &Bound, resource: &str) -> Self {
        match bound {
            Bound::NoCohort => Self { kind: "NoCohort", name: None, limit: None },
            Bound::Cohort { name } => {
                Self { kind: "Cohort", name: Some(name.to_string()), limit: None }
            }
            Bound::BorrowingLimit { name, limit } => Self {
                kind: "BorrowingLimit",
                name: Some(name.to_string()),
                limit: Some(limit.format(resource)),
            },
        }
    }
}

impl KeptView {
    fn new(kept: &Kept, resource: &str) -> Self {
        Self { name: kept.name.to_string(), amount: kept.amount.format(resource) }
    }
}

impl PreemptionView {
    fn new(found: &PreemptionOutlook, resource: &str) -> Self {
        let refused = found.refused.iter().map(|refusal| RefusalView {
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
