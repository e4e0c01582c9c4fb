//! What was found.

use std::fmt;

use serde::Serialize;
use switchyard_api::quantity::format_shortest;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Kind {
    /// A pod of a queued owner runs, and no Workload of it is admitted.
    RunsWithoutAdmission,
    /// The pods of an owner ask for more than its Workloads are charged.
    RunsAboveCharge,
    /// A hub's Workload is charged less than the copy of it on a worker.
    HubChargedLess,
    /// What a queue's status says is used is not the sum of what its Workloads are charged.
    UsageDiffers,
    /// A queue or a cohort is charged more than it may have.
    ChargedAboveQuota,
}

impl Kind {
    /// All kinds, for counters of each.
    pub const ALL: [Self; 5] = [
        Self::RunsWithoutAdmission,
        Self::RunsAboveCharge,
        Self::HubChargedLess,
        Self::UsageDiffers,
        Self::ChargedAboveQuota,
    ];

    /// Its name, as JSON has it.
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
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty where it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Object {
    pub(crate) fn new(kind: &str, namespace: &str, name: &str) -> Self {
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

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// On which cluster.
    pub cluster: String,
    /// The objects that it is about, the one to look at first before the others.
    pub objects: Vec<Object>,
    /// The flavor, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flavor: Option<String>,
    /// The resource, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// How much there is, as a quantity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is: Option<String>,
    /// How much there should be, or may be at most, as a quantity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub should_be: Option<String>,
    /// All that in a sentence.
    pub message: String,
}

impl Finding {
    pub(crate) fn new(kind: Kind, cluster: &str, objects: Vec<Object>, message: String) -> Self {
        let cluster = cluster.to_owned();
        Self { kind, cluster, objects, flavor: None, resource: None, is: None, should_be: None, message }
    }

    /// About an amount of a resource.
    pub(crate) fn of_amounts(mut self, flavor: &str, resource: &str, is: i64, should_be: i64) -> Self {
        self.flavor = (!flavor.is_empty()).then(|| flavor.to_owned());
        self.resource = Some(resource.to_owned());
        self.is = Some(format_shortest(resource, is));
        self.should_be = Some(format_shortest(resource, should_be));
        self
    }

    /// By what it is known again in a later look. The amounts count where they change with each Workload that comes or goes: sums
    /// that differ in another way the next time were only read at different moments.
    #[must_use]
    pub fn key(&self) -> String {
        let first = self.objects.first().map(Object::to_string).unwrap_or_default();
        let (flavor, resource) =
            (self.flavor.as_deref().unwrap_or_default(), self.resource.as_deref().unwrap_or_default());
        let amounts = match self.kind {
            Kind::UsageDiffers => format!("{:?} {:?}", self.is, self.should_be),
            _ => String::new(),
        };
        format!("{} {} {first} {flavor} {resource} {amounts}", self.kind.name(), self.cluster)
    }
}
