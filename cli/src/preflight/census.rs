//! Examines the objects of `kueue.x-k8s.io` one by one, and keeps only counts, and the names that a
//! finding is about.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use serde_json::Value;
use switchyard_api::names;

use super::report::{Effect, Finding};
use super::schema::{self, Misfit};

/// Annotations of later releases without an effect here.
const LATER_ANNOTATIONS: [&str; 3] = [
    names::WAIT_FOR_PODS_READY,
    names::POD_GROUP_MAX_NOT_READY_COUNT,
    names::PODSET_TOPOLOGY_SPREADING,
];

/// A MultiKueueCluster and the place of its kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterLink {
    pub(super) name: String,
    /// `Secret`, `Path` or `ClusterProfile`.
    pub(super) kind: String,
    pub(super) location: String,
}

/// Findings and counts of all objects.
pub(super) struct Census {
    /// Switchyard's CRDs.
    crds: Vec<CustomResourceDefinition>,
    /// By effect, subject, field and message.
    findings: BTreeMap<(Effect, String, Option<String>, String), Finding>,
    /// Objects of each kind.
    pub(super) counts: BTreeMap<String, usize>,
    pub(super) running: usize,
    pub(super) waiting: usize,
    pub(super) links: Vec<ClusterLink>,
    /// Whether an AdmissionCheck of MultiKueue or a MultiKueueCluster exists.
    pub(super) is_hub: bool,
}

impl Default for Census {
    fn default() -> Self {
        Self {
            crds: switchyard_api::crds(),
            findings: BTreeMap::new(),
            counts: BTreeMap::new(),
            running: 0,
            waiting: 0,
            links: Vec::new(),
            is_hub: false,
        }
    }
}

impl Census {
    /// Examines an object of one of the CRDs.
    pub(super) fn record(&mut self, kind: &str, object: &Value) {
        *self.counts.entry(kind.to_owned()).or_default() += 1;
        let name = object_name(object);
        self.compare(kind, object, &name);
        match kind {
            "Workload" => self.workload(object, &name),
            "ClusterQueue" | "Cohort" => self.effective_quotas(kind, object, &name),
            "ResourceFlavor" => self.resource_flavor(object, &name),
            "MultiKueueCluster" => self.cluster(object, &name),
            "AdmissionCheck" => self.admission_check(object, &name),
            _ => {}
        }
    }

    pub(super) fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.values()
    }

    pub(super) fn total(&self) -> usize {
        self.counts.values().sum()
    }

    /// Adds an object to an equal finding, or adds the finding.
    fn add(&mut self, finding: Finding, name: &str) {
        let key = (
            finding.effect,
            finding.subject.clone(),
            finding.field.clone(),
            finding.message.clone(),
        );
        let known = self.findings.entry(key).or_insert(finding);
        known.count += 1;
        known.objects.push(name.to_owned());
    }

    /// Compares it with Switchyard's schema.
    fn compare(&mut self, kind: &str, object: &Value, name: &str) {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let version = version.rsplit('/').next().unwrap_or_default();
        let crd = self.crds.iter().find(|crd| crd.spec.names.kind == kind);
        let Some(schema) = crd.and_then(|crd| schema::of_version(crd, version)) else { return };
        for (path, misfit) in schema::misfits(schema, object) {
            let finding = match misfit {
                Misfit::Unknown => Finding::new(
                    Effect::NotSupported,
                    kind,
                    "the CRD lacks the field: it is dropped at the next write",
                )
                .mend(
                    "docs/compatibility.md lists the fields of later releases, and what replaces them",
                ),
                Misfit::Forbidden(why) => Finding::new(
                    Effect::Refused,
                    kind,
                    format!("{why}: the CRD refuses the value, and later writes of the object"),
                )
                .mend("change the value, or end the job, before the takeover"),
            };
            self.add(finding.field(path), name);
        }
    }

    fn workload(&mut self, object: &Value, name: &str) {
        let holds = |type_: &str| {
            let conditions = object["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|it| it["type"] == type_ && it["status"] == "True")
        };
        if holds("Finished") {
            return;
        }
        if holds("QuotaReserved") {
            self.running += 1;
        } else {
            self.waiting += 1;
        }
        let kind = "Workload";
        if holds("Evicted") && holds("QuotaReserved") {
            let finding = Finding::new(
                Effect::Differs,
                kind,
                "it is being evicted, and no test takes such a Workload over",
            )
            .mend("begin once it no longer has quota: kubectl get workloads -A");
            self.add(finding, name);
        }
        let assignments = object["status"]["admission"]["podSetAssignments"].as_array();
        if assignments.into_iter().flatten().any(|it| !it["topologyAssignment"].is_null()) {
            let finding = Finding::new(
                Effect::Same,
                kind,
                "it keeps its topology assignment, as a test of Jobs shows in both directions",
            );
            self.add(finding, name);
        }
        let annotations = &object["metadata"]["annotations"];
        if annotations[names::ELASTIC_JOB] == "true" && holds("QuotaReserved") {
            let finding = Finding::new(
                Effect::Refused,
                kind,
                "it is elastic and has quota: pods that its job starts later wait for Kueue to release them",
            )
            .mend(
                "let the job end, or stop and start it after the takeover: spec.active false, then true",
            );
            self.add(finding, name);
        }
        self.later_annotations(object, name);
        self.owner(object, name);
    }

    /// Annotations of Kueue 0.20, on the Workload or on a pod template.
    fn later_annotations(&mut self, object: &Value, name: &str) {
        let templates = object["spec"]["podSets"].as_array();
        let templates = templates.into_iter().flatten().map(|it| &it["template"]["metadata"]);
        let places: Vec<&Value> =
            templates.chain([&object["metadata"]]).map(|it| &it["annotations"]).collect();
        for annotation in LATER_ANNOTATIONS {
            if places.iter().any(|place| !place[annotation].is_null()) {
                let message = "the annotation of Kueue 0.20 has no effect";
                let finding =
                    Finding::new(Effect::NotSupported, "Workload", message).field(annotation);
                self.add(finding, name);
            }
        }
    }

    /// The job's kind.
    fn owner(&mut self, object: &Value, name: &str) {
        let owners = object["metadata"]["ownerReferences"].as_array();
        let Some(owner) = owners.into_iter().flatten().find(|it| it["controller"] == true) else {
            return;
        };
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        // Variants of concurrent admission belong to a Workload.
        if kind == "Workload" || switchyard_jobs::kind_of_owner(api_version, kind).is_some() {
            return;
        }
        let finding = Finding::new(
            Effect::Differs,
            "Workload",
            format!("{kind} of {api_version} is managed by another controller: keep it running"),
        )
        .mend("name the kind in integrations.externalFrameworks, as for Kueue");
        self.add(finding, name);
    }

    fn effective_quotas(&mut self, kind: &str, object: &Value, name: &str) {
        let effective = object["status"]["effectiveQuotas"].as_array();
        if effective.is_some_and(|quotas| !quotas.is_empty()) {
            let finding = Finding::new(
                Effect::Refused,
                kind,
                "its quota follows a DynamicQuotaOrchestrator; afterwards that of the spec counts",
            )
            .field("status.effectiveQuotas")
            .mend(
                "write the amounts into spec.resourceGroups, and delete the orchestrator, before the takeover",
            );
            self.add(finding, name);
        }
    }

    fn resource_flavor(&mut self, object: &Value, name: &str) {
        if object["spec"]["topologyName"].is_string() {
            let finding = Finding::new(
                Effect::Same,
                "ResourceFlavor",
                "Workloads keep their topology assignments; docs/topology.md says how later ones are placed",
            )
            .field("spec.topologyName");
            self.add(finding, name);
        }
    }

    fn cluster(&mut self, object: &Value, name: &str) {
        self.is_hub = true;
        let source = &object["spec"]["clusterSource"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let config = &source["kubeConfig"];
        let (kind, location) = match config["location"].as_str() {
            Some(location) => (
                config["locationType"].as_str().unwrap_or("Secret").to_owned(),
                location.to_owned(),
            ),
            None => ("ClusterProfile".to_owned(), text(&source["clusterProfileRef"]["name"])),
        };
        self.links.push(ClusterLink { name: name.to_owned(), kind, location });
    }

    fn admission_check(&mut self, object: &Value, name: &str) {
        let finding = match object["spec"]["controllerName"].as_str().unwrap_or_default() {
            names::MULTIKUEUE_CONTROLLER => {
                self.is_hub = true;
                return;
            }
            names::PROVISIONING_REQUEST_CONTROLLER => return,
            other => Finding::new(
                Effect::Same,
                "AdmissionCheck",
                format!("{other} keeps deciding: its controller is a separate program"),
            ),
        };
        self.add(finding, name);
    }

    /// Objects of a kind that Switchyard does not have: one page of their names.
    pub(super) fn record_unknown(&mut self, plural: &str, kind: &str, names: &[String]) {
        let known = super::release::LATER_KINDS.iter().find(|(of, ..)| *of == plural);
        let (message, mend) = match known {
            Some((_, message, mend)) => (*message, *mend),
            None => (
                "the kind is unknown here: nothing reads its objects",
                "docs/compatibility.md lists the kinds of later releases",
            ),
        };
        for name in names {
            self.add(Finding::new(Effect::NotSupported, kind, message).mend(mend), name);
        }
    }

    /// Whether Switchyard has the CRD.
    pub(super) fn knows(&self, crd: &str) -> bool {
        self.crds.iter().any(|it| it.name_any() == crd)
    }
}

/// `namespace/name`, or the name alone.
fn object_name(object: &Value) -> String {
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    full_name(text("namespace"), text("name"))
}

/// `namespace/name`, or the name alone.
pub(super) fn full_name(namespace: &str, name: &str) -> String {
    match namespace {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}
