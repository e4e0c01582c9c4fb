use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use switchyard_api::quantity::format_shortest;

use crate::amounts::Pair;
use crate::cluster::key;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum FindingKind {
    /// A pod of a queued owner runs, and none of its Workloads is admitted.
    RunsWithoutAdmission,
    /// The pods of one owner request more than its Workloads charge.
    RunsAboveCharge,
    /// A hub's Workload charges less than its copy on a worker.
    HubChargedLess,
    /// The usage in a queue's status differs from the sum of the charges.
    UsageDiffers,
    /// A ClusterQueue or a Cohort charges more than it may use.
    ChargedAboveQuota,
}

impl FindingKind {
    pub const ALL: [Self; 5] = [
        Self::RunsWithoutAdmission,
        Self::RunsAboveCharge,
        Self::HubChargedLess,
        Self::UsageDiffers,
        Self::ChargedAboveQuota,
    ];

    /// As in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RunsWithoutAdmission => "RunsWithoutAdmission",
            Self::RunsAboveCharge => "RunsAboveCharge",
            Self::HubChargedLess => "HubChargedLess",
            Self::UsageDiffers => "UsageDiffers",
            Self::ChargedAboveQuota => "ChargedAboveQuota",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Object {
    pub kind: String,
    /// Empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

impl Object {
    pub(crate) fn new(kind: &str, metadata: &ObjectMeta) -> Self {
        let (namespace, name) = key(metadata);
        Self { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// The amounts of a finding, as quantities. The kind determines which are set.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Quantities {
    /// The charge of an owner's Workloads, of a queue, or of a copy on a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charged: Option<String>,
    /// The requests of the running pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<String>,
    /// The charge of the hub's Workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charged_on_hub: Option<String>,
    /// The usage in a queue's status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_status: Option<String>,
    /// The most that a queue or a Cohort may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub kind: FindingKind,
    /// For [`FindingKind::HubChargedLess`], the worker.
    pub cluster: String,
    /// The first object is the one to look at first.
    pub objects: Vec<Object>,
    /// Set if the amounts are of one flavor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flavor: Option<String>,
    /// Set if the finding compares amounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    #[serde(flatten)]
    pub amounts: Quantities,
    /// The finding as a sentence.
    pub message: String,
    /// Distinguishes findings of the same kind, cluster, flavor and resource.
    #[serde(skip)]
    identity: String,
}

impl Finding {
    /// `identity` must stay the same as long as the fault lasts.
    pub(crate) fn new(
        kind: FindingKind,
        cluster: &str,
        objects: Vec<Object>,
        identity: String,
        message: String,
    ) -> Self {
        let (cluster, amounts) = (cluster.to_owned(), Quantities::default());
        Self { kind, cluster, objects, flavor: None, resource: None, amounts, message, identity }
    }

    /// Adds the compared amounts of a pair.
    pub(crate) fn about(mut self, (flavor, resource): &Pair, amounts: Quantities) -> Self {
        self.flavor = (!flavor.is_empty()).then(|| flavor.clone());
        self.resource = Some(resource.clone());
        self.amounts = amounts;
        self
    }

    /// Equal for the same fault in a later audit of the same cluster.
    ///
    /// A fault of a pod, a Workload or a queue keeps its key while object, flavor and resource stay
    /// the same, whatever the amounts. A [`FindingKind::UsageDiffers`] also needs the same usage in
    /// the status and the same charges: the status follows the charges with a delay, so both change
    /// at different times.
    #[must_use]
    pub fn key(&self) -> String {
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        let (kind, flavor, resource) = (self.kind.name(), text(&self.flavor), text(&self.resource));
        [kind, &self.cluster, &self.identity, &flavor, &resource].join("|")
    }
}

/// The findings of a later audit that an earlier one had too.
#[must_use]
pub fn lasting(earlier: &[Finding], mut later: Vec<Finding>) -> Vec<Finding> {
    let known: BTreeSet<String> = earlier.iter().map(Finding::key).collect();
    later.retain(|finding| known.contains(&finding.key()));
    later
}

pub(crate) fn quantity((_, resource): &Pair, amount: i64) -> Option<String> {
    Some(format_shortest(resource, amount))
}
