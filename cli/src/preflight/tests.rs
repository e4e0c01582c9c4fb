//! A manager as it is read, and what is found of it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionStatus;
use rstest::rstest;
use serde_json::{Value, json};

use super::assess::{FleetFacts, Installation, assess};
use super::census::{Census, ClusterLink};
use super::release::Release;
use super::report::{Effect, Finding, Report};
use super::settings::Settings;
use super::workers::{Right, Unread, Worker, WorkerFacts};

const FILE: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";

fn objects() -> Vec<(&'static str, Value)> {
    let object = |kind: &str, mut rest: Value| {
        rest["apiVersion"] = json!("kueue.x-k8s.io/v1beta2");
        rest["kind"] = json!(kind);
        rest
    };
    let conditions = |types: &[&str]| -> Value {
        types.iter().map(|it| json!({"type": it, "status": "True"})).collect()
    };
    let workload = |name: &str, held: &[&str]| {
        object(
            "Workload",
            json!({
                "metadata": {"name": name, "namespace": "team", "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "1", "controller": true}]},
                "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]},
                "status": {"conditions": conditions(held)},
            }),
        )
    };
    vec![
        ("ClusterQueue", object("ClusterQueue", json!({"metadata": {"name": "all"}, "spec": {}}))),
        ("Workload", workload("runs", &["QuotaReserved", "Admitted"])),
        ("Workload", workload("waits", &[])),
        ("Workload", workload("ended", &["QuotaReserved", "Admitted", "Finished"])),
    ]
}

fn facts(release: Release, file: &str, objects: &[(&str, Value)]) -> FleetFacts {
    let mut census = Census::default();
    for (kind, object) in objects {
        census.record(kind, object);
    }
    FleetFacts {
        kubernetes: "v1.36.3".to_owned(),
        uid: Some("hub".to_owned()),
        kueue: Installation {
            namespace: "kueue-system".to_owned(),
            is_there: true,
            release: Some(release),
            is_of_helm: false,
        },
        settings: Settings { file: Some(format!("{FILE}{file}")), gates: String::new() },
        crds: Some(switchyard_api::crds()),
        census,
        workers: Vec::new(),
        unread: Vec::new(),
    }
}

/// Findings as `effect subject field: message`.
fn texts(report: &Report, is_wanted: impl Fn(&Finding) -> bool) -> Vec<String> {
    let wanted = report.findings.iter().filter(|finding| is_wanted(finding));
    wanted
        .map(|it| {
            let field = it.field.as_ref().map(|field| format!(" {field}")).unwrap_or_default();
            format!("{:?} {}{field}: {}", it.effect, it.subject, it.message)
        })
        .collect()
}

fn not_same(report: &Report) -> Vec<String> {
    texts(report, |finding| finding.effect != Effect::Same)
}

#[test]
fn plain_cluster_of_tested_release_is_accepted() {
    let report = assess(&facts(Release::TESTED, "", &objects()));
    assert!(!report.is_refused);
    assert_eq!((report.running, report.waiting, report.mode), (1, 1, "single"));
    let report = Report { version: "0.0.0", ..report };
    insta::assert_snapshot!(report.text());
}

#[test]
fn manager_of_next_release_lists_what_is_lost() {
    let mut all = objects();
    let v = "kueue.x-k8s.io/v1beta2";
    all.push((
        "MultiKueueCluster",
        json!({"apiVersion": v, "metadata": {"name": "east"},
        "spec": {"clusterSource": {"kubeConfig": {"location": "east", "locationType": "Secret"}}}}),
    ));
    all.push((
        "MultiKueueCluster",
        json!({"apiVersion": v, "metadata": {"name": "west"},
        "spec": {"clusterSource": {"kubeConfig": {"location": "/west", "locationType": "Path"}}}}),
    ));
    all.push((
        "ClusterQueue",
        json!({"apiVersion": v, "metadata": {"name": "dynamic"}, "spec": {},
        "status": {"effectiveQuotas": [{"name": "a"}]}}),
    ));
    for name in ["small", "smaller"] {
        all.push((
            "Workload",
            json!({"apiVersion": v, "metadata": {"name": name, "namespace": "team",
            "annotations": {"kueue.x-k8s.io/wait-for-pods-ready": "{}"}},
            "spec": {"podSets": [{"name": "main", "count": 2, "minCount": 0, "template": {}}]}}),
        ));
    }
    let file =
        "featureGates: {DynamicQuotaOrchestration: true, WorkloadPriorityClassDefaulting: true}\n";
    let mut facts = facts(Release::NEXT, file, &all);
    let names: Vec<String> = (1..=7).map(|at| format!("rules-{at}")).collect();
    let (first, second) = names.split_at(4);
    for page in [first, second] {
        facts.census.record_unknown("preemptionconfigs", "PreemptionConfig", page);
    }
    facts.workers = vec![
        Worker {
            link: ClusterLink {
                name: "east".into(),
                kind: "Secret".into(),
                location: "east".into(),
            },
            facts: Ok(WorkerFacts {
                uid: Some("w".into()),
                kueue: Some(Release::TESTED),
                missing: vec![
                    right("patch jobs.batch", "jobs"),
                    right("list events", "events"),
                    right("create rayjobs.ray.io", "rayjobs"),
                ],
            }),
        },
        Worker {
            link: ClusterLink {
                name: "west".into(),
                kind: "Path".into(),
                location: "/west".into(),
            },
            facts: Err(Unread::Skipped("only the manager's pods have its Path /west".into())),
        },
    ];
    let report = Report { version: "0.0.0", ..assess(&facts) };
    assert!(report.is_refused);
    insta::assert_snapshot!(report.text());
    let json = serde_json::to_value(&report).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let finding = findings.iter().find(|it| it["subject"] == "PreemptionConfig").unwrap();
    assert_eq!((&finding["objects"], &finding["count"]), (&json!(names), &json!(7)));
}

#[test]
fn json_names_each_object_where_text_has_five() {
    let old = || {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": "x", "namespace": "team",
            "annotations": {"kueue.x-k8s.io/wait-for-pods-ready": "{}"}}, "spec": {"podSets": []}})
    };
    let objects: Vec<(&str, Value)> = (0..1_200)
        .map(|at| {
            let mut object = old();
            object["metadata"]["name"] = json!(format!("w-{at}"));
            ("Workload", object)
        })
        .collect();
    let report = assess(&facts(Release::NEXT, "", &objects));
    let finding = report.findings.iter().find(|it| it.subject == "Workload").unwrap();
    assert_eq!((finding.objects.len(), finding.count), (1_200, 1_200));
    assert!(
        report.text().contains("(team/w-0, team/w-1, team/w-2, team/w-3, team/w-4 and 1195 more)")
    );
}

/// The gates that the report says to be the same.
fn same_gates(release: Release, file: &str, flag: &str) -> Vec<String> {
    let mut facts = facts(release, file, &[]);
    facts.settings.gates = flag.to_owned();
    let findings = assess(&facts).findings;
    let same =
        findings.into_iter().find(|it| it.effect == Effect::Same && it.subject == "feature gate");
    same.map(|it| it.objects).unwrap_or_default()
}

#[test]
fn gates_that_stay_the_same_are_listed() {
    let all = switchyard_config::gates::names().count();
    let file = "featureGates: {PriorityBoost: true, ShortWorkloadNames: true}";
    let tested = same_gates(Release::TESTED, file, "");
    assert_eq!(tested[0], "PriorityBoost", "those of the file come first");
    // Without ShortWorkloadNames, which has no effect, and the gate with another default.
    assert_eq!(tested.len(), all - 2);
    assert!(!tested.iter().any(|it| it == "ShortWorkloadNames"), "{tested:?}");

    let next = same_gates(Release::NEXT, file, "");
    assert!(!next.iter().any(|it| it == "UnadmittedWorkloadsObservability"), "{next:?}");
    assert_eq!(same_gates(Release::new(0, 18, 0), file, ""), ["PriorityBoost"]);
    let by_flag = same_gates(Release::TESTED, "", "PriorityBoost=true");
    assert!(!by_flag.iter().any(|it| it == "PriorityBoost"), "the file lacks it");
}

fn right(text: &str, resource: &str) -> Right {
    Right { text: text.into(), resource: resource.into() }
}

#[rstest]
#[case::tested(Release::TESTED, None)]
#[case::later_patch(Release::new(0, 19, 7), None)]
#[case::next(Release::new(0, 20, 1), Some(Effect::Differs))]
#[case::unknown(Release::new(0, 21, 0), Some(Effect::NotSupported))]
#[case::older(Release::new(0, 18, 3), Some(Effect::NotSupported))]
fn release_of_kueue_has_an_effect(#[case] release: Release, #[case] effect: Option<Effect>) {
    let report = assess(&facts(release, "", &[]));
    let found = report.findings.iter().find(|it| it.subject == "Kueue").unwrap();
    assert_eq!(Some(found.effect).filter(|it| *it != Effect::Same), effect, "{found:?}");
    assert_eq!(found.mend.is_some(), effect.is_some(), "{found:?}");
}

#[rstest]
#[case::unknown_gate("featureGates: {Unheard: true}", &["Refused configuration featureGates"])]
#[case::gate_without_effect("featureGates: {ShortWorkloadNames: true}", &["NotSupported feature gate featureGates.ShortWorkloadNames: without effect"])]
#[case::field_without_effect("clientConnection: {qps: 5}", &["Differs configuration clientConnection: without effect"])]
#[case::later_field("waitForPodsReady: {unscheduledTimeout: 5m}", &["NotSupported configuration waitForPodsReady.unscheduledTimeout: without effect"])]
#[case::no_yaml("a: [", &["Refused configuration: the configuration file is not valid YAML"])]
#[case::plain("integrations: {frameworks: [batch/job, pod]}", &[])]
fn field_of_the_file_has_an_effect(#[case] file: &str, #[case] expected: &[&str]) {
    let report = assess(&facts(Release::TESTED, file, &[]));
    let found = not_same(&report);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn dispatcher_of_a_manager_changes_unless_named() {
    let check = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": "mk"},
        "spec": {"controllerName": "kueue.x-k8s.io/multikueue"}});
    let of = |file: &str| {
        let report = assess(&facts(Release::TESTED, file, &[("AdmissionCheck", check.clone())]));
        assert_eq!(report.mode, "hub");
        not_same(&report)
    };
    let changed = of("");
    assert!(
        changed[0].starts_with("Differs configuration multiKueue.dispatcherName: a job is offered"),
        "{changed:?}"
    );
    let kept = "multiKueue: {dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-all-at-once}";
    assert_eq!(of(kept), [""; 0]);
}

#[rstest]
#[case::elastic(
    json!({"metadata": {"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}}),
    "Refused Workload: it is elastic"
)]
#[case::evicted(
    json!({"status": {"conditions": [{"type": "QuotaReserved", "status": "True"}, {"type": "Evicted", "status": "True"}]}}),
    "Differs Workload: it is being evicted"
)]
#[case::topology(
    json!({"status": {"admission": {"podSetAssignments": [{"topologyAssignment": {"levels": []}}]}}}),
    "Same Workload: it keeps its topology assignment"
)]
#[case::foreign_owner(
    json!({"metadata": {"ownerReferences": [{"apiVersion": "x.io/v1", "kind": "Own", "controller": true}]}}),
    "Differs Workload: Own of x.io/v1 is managed by another controller"
)]
fn state_of_a_workload_has_an_effect(#[case] patch: Value, #[case] expected: &str) {
    let (_, mut workload) = objects().remove(1);
    for (section, fields) in patch.as_object().unwrap() {
        for (name, value) in fields.as_object().unwrap() {
            workload[section][name] = value.clone();
        }
    }
    let report = assess(&facts(Release::TESTED, "", &[("Workload", workload)]));
    let found = texts(&report, |_| true);
    assert!(found.iter().any(|it| it.starts_with(expected)), "{found:#?}");
}

#[test]
fn stored_v1beta1_adds_a_step() {
    let mut facts = facts(Release::TESTED, "", &objects());
    let before = assess(&facts).steps.len();
    let stored = Some(vec!["v1beta1".to_owned(), "v1beta2".to_owned()]);
    let workloads =
        facts.crds.iter_mut().flatten().find(|it| it.spec.names.kind == "Workload").unwrap();
    workloads.status = Some(CustomResourceDefinitionStatus {
        stored_versions: stored,
        ..CustomResourceDefinitionStatus::default()
    });
    let report = assess(&facts);
    assert_eq!(report.steps.len(), before + 1);
    assert_eq!(report.steps[0].minutes, 2, "three Workloads");
    let found = not_same(&report);
    assert!(found[0].contains("objects may be stored in v1beta1"), "{found:?}");
}

#[test]
fn stored_version_without_a_schema_is_refused() {
    let mut facts = facts(Release::TESTED, "", &[]);
    let clusters = facts
        .crds
        .iter_mut()
        .flatten()
        .find(|it| it.spec.names.kind == "MultiKueueCluster")
        .unwrap();
    clusters.status = Some(CustomResourceDefinitionStatus {
        stored_versions: Some(vec!["v1alpha1".to_owned(), "v1beta2".to_owned()]),
        ..CustomResourceDefinitionStatus::default()
    });
    let report = assess(&facts);
    let refused = texts(&report, |finding| finding.effect == Effect::Refused);
    assert!(refused[0].contains("stored in v1alpha1, which Switchyard's CRD lacks"), "{refused:?}");
}

#[test]
fn two_ways_to_one_cluster_are_refused() {
    let worker = |name: &str, uid: &str| Worker {
        link: ClusterLink { name: name.into(), kind: "Secret".into(), location: name.into() },
        facts: Ok(WorkerFacts { uid: Some(uid.into()), ..WorkerFacts::default() }),
    };
    let mut facts = facts(Release::TESTED, "", &[]);
    facts.workers = vec![worker("a", "1"), worker("b", "1"), worker("c", "hub")];
    let report = assess(&facts);
    let refused = texts(&report, |finding| finding.effect == Effect::Refused);
    assert_eq!(
        refused,
        [
            "Refused worker: it is the same cluster as a (DuplicateCluster)",
            "Refused worker: it is the hub's own cluster (OwnCluster)",
        ]
    );
}

#[test]
fn cluster_without_kueue_is_refused() {
    let mut facts = facts(Release::TESTED, "", &[]);
    facts.crds = Some(Vec::new());
    let report = assess(&facts);
    assert!(report.is_refused);
    assert!(not_same(&report)[0].contains("there is nothing to take over"));
}

#[test]
fn unread_objects_make_the_report_incomplete() {
    let mut facts = facts(Release::TESTED, "", &objects());
    assert!(assess(&facts).is_complete);
    facts.unread.push("workloads: forbidden".to_owned());
    let report = assess(&facts);
    assert!(!report.is_refused && !report.is_complete);
    assert!(report.text().contains("but not everything was read"));
    facts.crds = None;
    assert!(not_same(&assess(&facts))[0].contains("its CRDs could not be read"));
}
