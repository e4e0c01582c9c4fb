//! Makes the report from the facts. Pure: it reads and writes nothing.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;

use super::census::Census;
use super::release::Release;
use super::report::{Effect, Finding, Report};
use super::settings::Settings;
use super::steps::{Size, steps};
use super::workers::{self, Unread, Worker};

/// The old API version, in which objects may be stored.
const V1BETA1: &str = "v1beta1";

/// The inputs of [`assess`]: a cluster and its workers.
pub(super) struct FleetFacts {
    /// Version of the API server, such as v1.36.3.
    pub(super) kubernetes: String,
    /// Uid of the namespace kube-system.
    pub(super) uid: Option<String>,
    pub(super) kueue: Installation,
    pub(super) settings: Settings,
    /// CRDs of the group `kueue.x-k8s.io`; none if they could not be read.
    pub(super) crds: Option<Vec<CustomResourceDefinition>>,
    pub(super) census: Census,
    pub(super) workers: Vec<Worker>,
    /// Reads that failed, with the reason.
    pub(super) unread: Vec<String>,
}

/// Kueue's Deployment.
#[derive(Clone, Debug, Default)]
pub(super) struct Installation {
    pub(super) namespace: String,
    pub(super) is_there: bool,
    pub(super) release: Option<Release>,
    /// Whether Helm manages it.
    pub(super) is_of_helm: bool,
}

/// All findings and the steps.
pub(super) fn assess(facts: &FleetFacts) -> Report {
    let FleetFacts { census, kueue, settings, .. } = facts;
    let mut findings = vec![kubernetes(&facts.kubernetes)];
    let crds = facts.crds.as_deref().unwrap_or_default();
    match facts.crds {
        Some(_) => findings.extend(installation(kueue, !crds.is_empty())),
        None => findings.push(
            Finding::new(
                Effect::Refused,
                "Kueue",
                "its CRDs could not be read, so nothing was compared",
            )
            .mend("run this as an administrator of the cluster"),
        ),
    }
    findings.extend(settings.assess(kueue.release, census.is_hub));
    findings.extend(refused_crds(crds));
    findings.extend(stored(crds));
    findings.extend(census.findings().cloned());
    findings.extend(same_kinds(census));
    let enabled = switchyard_jobs::enabled_kinds(&settings.read().all_frameworks());
    let kinds: Vec<&str> = enabled.iter().map(|kind| kind.id().plural).collect();
    findings.extend(workers::assess(facts.uid.as_deref(), &facts.workers, &kinds));
    findings.extend(links(census));
    findings.extend(facts.unread.iter().map(|why| {
        Finding::new(Effect::Differs, "Kubernetes", format!("not read: {why}"))
            .mend("run this as an administrator of the cluster")
    }));
    // Stable: findings of one effect keep their order.
    findings.sort_by_key(|finding| finding.effect);
    let stored_in_v1beta1: usize = crds
        .iter()
        .filter(|crd| stores_v1beta1(crd))
        .map(|crd| census.counts.get(&crd.spec.names.kind).copied().unwrap_or_default())
        .sum();
    Report {
        version: switchyard_api::build::VERSION,
        kueue: kueue.release.map(|release| release.to_string()),
        mode: if census.is_hub { "hub" } else { "single" },
        is_complete: facts.crds.is_some()
            && facts.unread.is_empty()
            && !facts.workers.iter().any(|worker| matches!(worker.facts, Err(Unread::Failed(_)))),
        is_refused: findings.iter().any(|finding| finding.effect == Effect::Refused),
        running: census.running,
        waiting: census.waiting,
        findings,
        steps: steps(&Size {
            objects: census.total(),
            stored_in_v1beta1,
            secrets: census.links.iter().filter(|link| link.kind == "Secret").count(),
            is_hub: census.is_hub,
            is_of_helm: kueue.is_of_helm,
        }),
    }
}

fn kubernetes(version: &str) -> Finding {
    let subject = "Kubernetes";
    match crate::check::kubernetes_minor(version) {
        Some(minor) if minor < crate::check::MIN_MINOR => Finding::new(
            Effect::Refused,
            subject,
            format!("{version} is older than 1.{}", crate::check::MIN_MINOR),
        )
        .mend("upgrade the cluster first"),
        _ => Finding::new(Effect::Same, subject, format!("{version} is supported")),
    }
}

fn installation(kueue: &Installation, has_crds: bool) -> Vec<Finding> {
    let subject = "Kueue";
    if !has_crds {
        return vec![
            Finding::new(
                Effect::Refused,
                subject,
                "the cluster has no CRDs of kueue.x-k8s.io: there is nothing to take over",
            )
            .mend("docs/install.md installs Switchyard on an empty cluster"),
        ];
    }
    let mut findings = Vec::new();
    if !kueue.is_there {
        findings.push(
            Finding::new(
                Effect::Differs,
                subject,
                format!("there is no Deployment kueue-controller-manager in {}", kueue.namespace),
            )
            .mend("name its namespace with --kueue-namespace; the commands of the guide expect kueue-system"),
        );
    }
    findings.push(match kueue.release {
        None => Finding::new(Effect::Differs, subject, "its version is unknown")
            .mend("name it with --kueue-version"),
        Some(release) if release == Release::TESTED => {
            Finding::new(Effect::Same, subject, format!("{release} is the version of the tests"))
        }
        Some(release) if release.is_unknown() => Finding::new(
            Effect::NotSupported,
            subject,
            format!(
                "{release} is newer than {}, the newest known here: fields and kinds are compared by the CRDs, other changes are not known",
                Release::NEWEST_KNOWN
            ),
        )
        .mend("try it on a copy of the cluster first"),
        Some(release) if release.is_tested_minor() => Finding::new(
            Effect::Same,
            subject,
            format!("{release}: fixes beside v0.19.2 are listed in docs/compatibility.md"),
        ),
        Some(release) if release < Release::TESTED => Finding::new(
            Effect::NotSupported,
            subject,
            format!("{release} is older than v0.19, and no test takes it over"),
        )
        .mend("upgrade Kueue to v0.19 first"),
        Some(release) => Finding::new(
            Effect::Differs,
            subject,
            format!("no test takes {release} over; its new fields, kinds and defaults are listed here"),
        )
        .mend("read 'Fixes of later releases' in docs/compatibility.md"),
    });
    if kueue.is_of_helm {
        findings.push(
            Finding::new(
                Effect::Differs,
                subject,
                "Helm manages it: helm uninstall would delete the CRDs with all queues and Workloads",
            )
            .mend("never run it; docs/migrate.md#removing-kueue says what to delete instead"),
        );
    }
    findings
}

/// Versions in which objects of a CRD may be stored.
fn stored_versions(crd: &CustomResourceDefinition) -> &[String] {
    let stored = crd.status.as_ref().and_then(|status| status.stored_versions.as_deref());
    stored.unwrap_or_default()
}

fn stores_v1beta1(crd: &CustomResourceDefinition) -> bool {
    stored_versions(crd).iter().any(|version| version == V1BETA1)
}

/// The API server refuses a CRD without a version in which objects may be stored.
fn refused_crds(crds: &[CustomResourceDefinition]) -> Vec<Finding> {
    let own = switchyard_api::crds();
    let mut findings = Vec::new();
    for crd in crds {
        let name = crd.name_any();
        let Some(own) = own.iter().find(|own| own.name_any() == name) else { continue };
        let has = |version: &String| own.spec.versions.iter().any(|it| it.name == *version);
        for version in stored_versions(crd).iter().filter(|version| !has(version)) {
            findings.push(
                Finding::new(
                    Effect::Refused,
                    "CustomResourceDefinition",
                    format!(
                        "objects may be stored in {version}, which Switchyard's CRD lacks: the API server refuses the CRD"
                    ),
                )
                .object(&name)
                .field("status.storedVersions")
                .mend("store them in v1beta2 while Kueue runs: docs/migrate.md#before"),
            );
        }
    }
    findings
}

fn stored(crds: &[CustomResourceDefinition]) -> Option<Finding> {
    let old: Vec<String> =
        crds.iter().filter(|crd| stores_v1beta1(crd)).map(kube::ResourceExt::name_any).collect();
    (!old.is_empty()).then(|| {
        Finding::new(
            Effect::Differs,
            "CustomResourceDefinition",
            "objects may be stored in v1beta1, and cannot be read until Switchyard's webhooks answer",
        )
        .field("status.storedVersions")
        .mend("store them in v1beta2 while Kueue runs: docs/migrate.md#before")
        .objects(old)
    })
}

/// Findings about kubeconfigs in files, which Switchyard's pods do not have.
fn links(census: &Census) -> Vec<Finding> {
    census
        .links
        .iter()
        .filter(|link| link.kind == "Path")
        .map(|link| {
            Finding::new(
                Effect::Differs,
                "MultiKueueCluster",
                format!(
                    "its kubeconfig is the file {}, which Switchyard's pods lack",
                    link.location
                ),
            )
            .object(&link.name)
            .mend("mount the file there, or move it into a Secret")
        })
        .collect()
}

/// Kinds whose objects all stay as they are.
fn same_kinds(census: &Census) -> Vec<Finding> {
    let has_finding =
        |kind: &str| census.findings().any(|it| it.subject == kind && it.effect != Effect::Same);
    census
        .counts
        .iter()
        .filter(|(kind, _)| !has_finding(kind))
        .map(|(kind, count)| {
            let finding = Finding::new(Effect::Same, kind, "they stay as they are");
            Finding { count: *count, ..finding }
        })
        .collect()
}
