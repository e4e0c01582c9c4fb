//! Findings.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use switchyard_api::quantity::format_shortest;

use crate::amounts::Pair;
use crate::cluster::key;

/// Kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Kind {
    /// A pod of a queued owner runs while none of its Workloads is admitted.
    RunsWithoutAdmission,
    /// The pods of one owner ask for more than its Workloads are charged.
    RunsAboveCharge,
    /// A hub's Workload is charged less than its copy on a worker.
    HubChargedLess,
    /// The usage in a queue's status differs from the sum of the charges.
    UsageDiffers,
    /// A ClusterQueue or a Cohort is charged more than it may have.
    ChargedAboveQuota,
}

impl Kind {
    /// All kinds, for a counter of each.
    pub const ALL: [Self; 5] = [
        Self::RunsWithoutAdmission,
        Self::RunsAboveCharge,
        Self::HubChargedLess,
        Self::UsageDiffers,
        Self::ChargedAboveQuota,
    ];

    /// The name, as in JSON.
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

/// An object that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Object {
    /// Such as `Workload`.
    pub kind: String,
    /// Empty for objects of the whole cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// `metadata.name`.
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

/// The amounts of a finding, as quantities. Which there are depends on its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Quantities {
    /// The charge: of the Workloads of an owner, of a queue, or of a copy on a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charged: Option<String>,
    /// The requests of the pods that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<String>,
    /// The charge of the hub's Workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charged_on_hub: Option<String>,
    /// The usage in the status of a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_status: Option<String>,
    /// The most that a queue or a cohort may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The kind of fault.
    pub kind: Kind,
    /// The name of the cluster; the worker's for [`Kind::HubChargedLess`].
    pub cluster: String,
    /// The objects that it is about, the one to look at first before the others.
    pub objects: Vec<Object>,
    /// The flavor, where amounts of one are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flavor: Option<String>,
    /// The resource, where amounts are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The amounts that are compared.
    #[serde(flatten)]
    pub amounts: Quantities,
    /// The fault in a sentence.
    pub message: String,
    /// Distinguishes the fault from others of the same kind, cluster, flavor and resource.
    #[serde(skip)]
    identity: String,
}

impl Finding {
    /// A finding about the first of `objects`. `identity` stays the same as long as the fault does.
    pub(crate) fn new(
        kind: Kind,
        cluster: &str,
        objects: Vec<Object>,
        identity: String,
        message: String,
    ) -> Self {
        let (cluster, amounts) = (cluster.to_owned(), Quantities::default());
        Self { kind, cluster, objects, flavor: None, resource: None, amounts, message, identity }
    }

    /// Adds the pair whose amounts are compared.
    pub(crate) fn about(mut self, (flavor, resource): &Pair, amounts: Quantities) -> Self {
        self.flavor = (!flavor.is_empty()).then(|| flavor.clone());
        self.resource = Some(resource.clone());
        self.amounts = amounts;
        self
    }

    /// The same for the same fault in a later look at the same cluster.
    ///
    /// A fault of a pod, a Workload or a queue is the same while object, flavor and resource are the same, whatever the amounts. A
    /// [`Kind::UsageDiffers`] is the same only while the usage in the status and all charges are the same: the status follows the
    /// charges with a delay, so both change at different moments.
    #[must_use]
    pub fn key(&self) -> String {
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        let (kind, flavor, resource) = (self.kind.name(), text(&self.flavor), text(&self.resource));
        [kind, &self.cluster, &self.identity, &flavor, &resource].join("|")
    }
}

/// The findings of a later look that an earlier look had, too.
#[must_use]
pub fn lasting(earlier: &[Finding], mut later: Vec<Finding>) -> Vec<Finding> {
    let known: BTreeSet<String> = earlier.iter().map(Finding::key).collect();
    later.retain(|finding| known.contains(&finding.key()));
    later
}

/// An amount as a quantity.
pub(crate) fn quantity((_, resource): &Pair, amount: i64) -> Option<String> {
    Some(format_shortest(resource, amount))
}
