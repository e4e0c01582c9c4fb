//! A complete hub as objects, and the lines when a part is missing.

use clap::Parser as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::{Value, json};

use super::agent_proxy::AgentProxy;
use super::dry_run::DryRun;
use super::facts::{ClusterFacts, Server};
use super::mode::Mode;
use super::report::{Line, Outcome, Report, Section};
use super::{Args, CheckName, cluster, fleet};
use crate::Command;

pub(super) fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A running hub with a worker `east`, and a queue `team/main` that dispatches to it.
pub(super) fn facts() -> ClusterFacts {
    let now = jiff::Timestamp::now();
    let hub = Mode::Hub.name();
    let spec = json!({"replicas": 2, "selector": {}, "template": {"spec": {"containers": [
        {"name": "manager", "image": format!("registry:5000/switchyard-hub:{}@sha256:00", env!("CARGO_PKG_VERSION"))},
    ]}}});
    let deployment: Deployment =
        object(json!({"metadata": {"name": hub}, "spec": spec, "status": {"readyReplicas": 2}}));
    let lease: Lease = object(json!({"spec": {
        "holderIdentity": "hub-1", "leaseDurationSeconds": 3, "renewTime": format!("{now:.6}"),
    }}));
    let config = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations:\n  frameworks: [batch/job, pod]\n";
    let map: ConfigMap = object(json!({
        "metadata": {"name": format!("{hub}-config")}, "data": {"controller_manager_config.yaml": config},
    }));
    let check = json!({"metadata": {"name": "mk"}, "spec": {
        "controllerName": "kueue.x-k8s.io/multikueue",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "mk"},
    }});
    let queue = json!({"metadata": {"name": "cq"}, "spec": {
        "admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]},
    }});
    ClusterFacts {
        namespace: "switchyard-system".to_owned(),
        server: Ok(Server { version: "v1.36.3".to_owned(), ahead: Some(0), now }),
        crds: Ok(Vec::new()),
        deployments: Ok(vec![deployment]),
        pods: Ok(Vec::new()),
        lease: Ok(Some(lease)),
        mutating: Ok(None),
        validating: Ok(None),
        certificate: Ok(None),
        authority: Ok(None),
        identity: Ok(None),
        join: Ok(None),
        join_secret: "switchyard-agent-join".to_owned(),
        proxy: Ok(AgentProxy::new([("SWITCHYARD_PROXY", "none".to_owned())].into(), false)),
        services: Ok(Vec::new()),
        endpoints: Ok(Vec::new()),
        configs: Ok(vec![map]),
        namespaces: Ok(vec![object(json!({"metadata": {"name": "team"}}))]),
        clusters: Ok(vec![east(env!("CARGO_PKG_VERSION"), "True", "team/main")]),
        multikueue_configs: Ok(vec![object(
            json!({"metadata": {"name": "mk"}, "spec": {"clusters": ["east"]}}),
        )]),
        checks: Ok(vec![object(check)]),
        cluster_queues: Ok(vec![object(queue)]),
        local_queues: Ok(vec![object(json!({
            "metadata": {"namespace": "team", "name": "main"}, "spec": {"clusterQueue": "cq"},
        }))]),
        denied: Ok(Vec::new()),
        dry_run: DryRun::default(),
    }
}

fn east(software: &str, active: &str, queue: &str) -> switchyard_api::v1beta2::MultiKueueCluster {
    object(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": "east"},
        "spec": {"clusterSource": {"agent": {}}},
        "status": {
            "conditions": [{"type": "Active", "status": active, "reason": "NotConnected", "message": "no session",
                "lastTransitionTime": "2026-11-21T10:00:00Z"}],
            "agent": {"software": software, "capacity": [{"localQueue": queue, "clusterQueue": "cq", "flavor": "f",
                "resource": "cpu", "nominal": "1", "used": "0", "available": "1"}]},
        },
    }))
}

/// Lines that are not ok, as `outcome check: message`.
fn faults(lines: Vec<Line>) -> Vec<String> {
    let faults = lines.into_iter().filter(|line| line.outcome != Outcome::Ok);
    faults.map(|line| format!("{:?} {}: {}", line.outcome, line.check, line.message)).collect()
}

fn fleet_faults(facts: &ClusterFacts) -> Vec<String> {
    faults([fleet::check_links(facts, &[]), fleet::check_queues(facts, &[])].concat())
}

#[test]
fn complete_hub_has_no_fault() {
    let facts = facts();
    assert_eq!(faults(cluster::check_server(&facts)), [""; 0]);
    assert_eq!(faults(cluster::check_program(&facts, Mode::Hub)), [""; 0]);
    assert_eq!(fleet_faults(&facts), [""; 0]);
    assert_eq!(faults(fleet::compare_worker(&facts, &facts, "east")), [""; 0]);
}

type Break = fn(&mut ClusterFacts);

/// A pod of the hub.
fn pod(status: &Value) -> Pod {
    object(json!({"metadata": {"name": "switchyard-hub-1"}, "status": status}))
}

/// A pod's status with one container that is not ready.
fn container(list: &str, state: &Value) -> Value {
    json!({list: [{"name": "c", "ready": false, "image": "", "imageID": "", "restartCount": 0, "state": state}]})
}

/// Refuses the pods of the Deployment.
fn replica_failure(facts: &mut ClusterFacts, message: &str) {
    let deployment = &mut facts.deployments.as_mut().unwrap()[0];
    let condition = json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message});
    deployment.status = object(json!({"readyReplicas": 2, "conditions": [condition]}));
}

#[test]
fn each_fault_of_a_hub_is_reported() {
    let cases: [(&str, Break, &str); 12] = [
        (
            "no replica",
            |it| it.deployments.as_mut().unwrap()[0].status = None,
            "Failure deployment: 0 of 2 replicas",
        ),
        (
            "an old image",
            |it| {
                let spec = it.deployments.as_mut().unwrap()[0].spec.as_mut().unwrap();
                spec.template.spec.as_mut().unwrap().containers[0].image =
                    Some("switchyard-hub:0.0.9".into());
            },
            "Warning version: switchyard-hub is of version 0.0.9",
        ),
        (
            "a wrong registry",
            |it| {
                let waiting = json!({"reason": "ImagePullBackOff", "message": "no such host"});
                it.pods =
                    Ok(vec![pod(&container("containerStatuses", &json!({"waiting": waiting})))]);
            },
            "Failure pods: pod switchyard-hub-1: ImagePullBackOff: no such host",
        ),
        (
            "no room on the nodes",
            |it| {
                it.pods = Ok(vec![pod(
                    &json!({"conditions": [{"type": "PodScheduled", "status": "False",
                    "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient cpu."}]}),
                )]);
            },
            "Failure pods: pod switchyard-hub-1 has no node: Unschedulable: 0/3 nodes are available",
        ),
        (
            "a container that ended",
            |it| {
                let ended = json!({"exitCode": 1, "reason": "Error", "message": "--advertise hub: write it as https://HOST[:PORT]"});
                it.pods =
                    Ok(vec![pod(&container("containerStatuses", &json!({"terminated": ended})))]);
            },
            "Failure pods: pod switchyard-hub-1: Error: --advertise hub",
        ),
        (
            "an init container that cannot start",
            |it| {
                let waiting = json!({"reason": "ErrImagePull", "message": "no such host"});
                let mut status = container("initContainerStatuses", &json!({"waiting": waiting}));
                let main = container(
                    "containerStatuses",
                    &json!({"waiting": {"reason": "PodInitializing"}}),
                );
                status["containerStatuses"] = main["containerStatuses"].clone();
                it.pods = Ok(vec![pod(&status)]);
            },
            "Failure pods: pod switchyard-hub-1: ErrImagePull: no such host",
        ),
        (
            "a quota of the namespace",
            |it| {
                replica_failure(
                    it,
                    "pods \"switchyard-hub-1\" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=0, limited: pods=0",
                )
            },
            "Failure pods: pods of switchyard-hub are not created: pods \"switchyard-hub-1\" is forbidden: exceeded quota",
        ),
        (
            "a level of Pod Security",
            |it| {
                replica_failure(
                    it,
                    "pods \"switchyard-hub-1\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces",
                )
            },
            "Failure pods: pods of switchyard-hub are not created: pods \"switchyard-hub-1\" is forbidden: violates PodSecurity",
        ),
        (
            "no leader",
            |it| it.server.as_mut().unwrap().now += jiff::SignedDuration::from_hours(1),
            "Failure leader: no replica leads: hub-1 renewed its Lease",
        ),
        (
            "a missing right",
            |it| it.denied = Ok(vec!["get nodes".into()]),
            "Failure rights: switchyard-hub may not: get nodes",
        ),
        (
            "what may not be read",
            |it| it.denied = Err("forbidden".into()),
            "Warning rights: not checked: forbidden",
        ),
        (
            "an old cluster",
            |it| it.server.as_mut().unwrap().version = "v1.29.1".into(),
            "Failure kubernetes-version",
        ),
    ];
    for (case, change, expected) in cases {
        let mut facts = facts();
        change(&mut facts);
        let lines = faults(
            [cluster::check_server(&facts), cluster::check_program(&facts, Mode::Hub)].concat(),
        );
        assert_eq!(lines.len(), 1, "{case}: {lines:?}");
        assert!(lines[0].starts_with(expected), "{case}: {lines:?}");
    }
}

#[test]
fn each_fault_of_a_fleet_is_reported() {
    let cases: [(&str, Break, &str); 6] = [
        (
            "not connected",
            |it| it.clusters = Ok(vec![east(env!("CARGO_PKG_VERSION"), "False", "team/main")]),
            "Failure clusters: east is not connected: NotConnected: no session",
        ),
        (
            "an old agent",
            |it| it.clusters = Ok(vec![east("0.9.0", "True", "team/main")]),
            "Failure agent-version: east has",
        ),
        (
            "a queue that is not there",
            |it| it.clusters = Ok(vec![east(env!("CARGO_PKG_VERSION"), "True", "team/other")]),
            "Failure queues: LocalQueue team/main is not on east, the only workers",
        ),
        (
            "listed nowhere",
            |it| it.multikueue_configs = Ok(Vec::new()),
            "Warning clusters: no MultiKueueConfig lists east",
        ),
        (
            "no ClusterQueue",
            |it| it.cluster_queues = Ok(Vec::new()),
            "Failure queues: LocalQueue team/main: there is no",
        ),
        (
            "no workers",
            |it| it.clusters = Ok(Vec::new()),
            "Warning clusters: the hub has no workers",
        ),
    ];
    for (case, change, expected) in cases {
        let mut facts = facts();
        change(&mut facts);
        let lines = fleet_faults(&facts);
        assert!(lines.iter().any(|line| line.starts_with(expected)), "{case}: {lines:?}");
    }
}

#[test]
fn other_workers_count_when_one_is_named() {
    let mut facts = facts();
    let mut west = east(env!("CARGO_PKG_VERSION"), "True", "team/other");
    west.metadata.name = Some("west".to_owned());
    facts.clusters.as_mut().unwrap().push(west);
    facts.multikueue_configs.as_mut().unwrap()[0].spec.clusters.push("west".to_owned());
    let named = |name: &str| faults(fleet::check_queues(&facts, &[name.to_owned()]));
    assert_eq!(named("east"), [""; 0]);
    let lacks = "Warning queues: LocalQueue team/main is not on west: its jobs go to the others";
    assert_eq!(named("west"), [lacks]);
    assert_eq!(faults(fleet::check_queues(&facts, &[])), [lacks]);
}

#[test]
fn kinds_of_a_named_cluster_are_said_to_be_unknown() {
    let kinds = |clusters: &[&str], workers: &[&str]| {
        let mut args = Args::of_namespace("switchyard-system");
        args.clusters = clusters.iter().map(|name| (*name).to_owned()).collect();
        args.workers = workers.iter().map(|name| ((*name).to_owned(), "file".into())).collect();
        fleet::check_kinds(&facts(), &args)
    };
    let line = kinds(&["east", "nowhere"], &[]).unwrap();
    assert_eq!(
        faults(vec![line.clone()]),
        ["Warning kinds: not compared with east: the hub's objects do not name its kinds of jobs"]
    );
    assert_eq!(
        line.mend.unwrap(),
        "switchyard check --worker east=KUBECONFIG compares both configurations"
    );
    assert_eq!(kinds(&[], &[]), None);
    assert_eq!(kinds(&["east"], &["east"]), None, "it is compared");
}

#[test]
fn unknown_check_is_answered_with_the_names() {
    let parse = |words: &[&str]| {
        let words = ["switchyard", "check"].iter().chain(words);
        crate::Args::try_parse_from(words).map(|args| args.command)
    };
    let Ok(Command::Check(args)) = parse(&["--explain", "agents-door"]) else {
        panic!("it is a name")
    };
    assert_eq!(args.explain, Some(CheckName::AgentsDoor));
    let error = parse(&["--explain", "queue"]).unwrap_err().to_string();
    assert!(error.contains("'queue'") && error.contains("freshness, clusters"), "{error}");
    assert!(parse(&["--explain", "queues", "--cluster", "east"]).is_err());
}

#[test]
fn report_names_the_command_behind_each_finding() {
    let section = Section {
        name: "Cluster: hub".to_owned(),
        lines: vec![
            Line::ok(CheckName::Crds, "all are there"),
            Line::warning(CheckName::Queues, "one is missing", "make it"),
        ],
    };
    let report = Report::new(vec![section]);
    insta::assert_snapshot!(report.text());
    insta::assert_snapshot!(serde_json::to_string_pretty(&report.sections).unwrap());
}

#[test]
fn each_hub_worker_mismatch_is_reported() {
    let cases: [(&str, Break, &str); 3] = [
        (
            "clocks",
            |it| it.server.as_mut().unwrap().ahead = Some(-3600),
            "Failure clocks: the clock of east is 3600 s behind",
        ),
        (
            "kinds",
            |it| {
                let config = it.configs.as_mut().unwrap()[0].data.as_mut().unwrap();
                let text = config.get_mut("controller_manager_config.yaml").unwrap();
                *text = text.replace(", pod]", "]");
            },
            "Failure kinds: east does not run pod, which the hub sends",
        ),
        (
            "namespaces",
            |it| it.namespaces = Ok(Vec::new()),
            "Failure namespaces: east lacks namespace team",
        ),
    ];
    for (case, change, expected) in cases {
        let mut worker = facts();
        change(&mut worker);
        let lines = faults(fleet::compare_worker(&facts(), &worker, "east"));
        assert_eq!(lines.len(), 1, "{case}: {lines:?}");
        assert!(lines[0].starts_with(expected), "{case}: {lines:?}");
    }
}
