//! Jobs with topology requests: their Workloads, and when these follow the job.

use rstest::rstest;
use switchyard_api::{names, v1beta2::PodSetTopologyRequest};
use switchyard_jobs::TopologyGates;

use super::*;

pub(super) const GATES: Gates = Gates {
    topology: TopologyGates { aware: true, multi_layer: true },
    without_queue_labels: false,
    leaves_orphans: false,
};

fn asks(key: &str, value: &str) -> Value {
    json!({"spec": {"template": {"metadata": {"annotations": {key: value}}}}})
}

fn aware(job: TestJob) -> World {
    World { gates: GATES, waits: false, ..world(job) }
}

/// The Workload of [`job`] where topologies count. It requires this level, if any.
fn asking(level: Option<&str>) -> TestWorkload {
    job().workload().edit(|workload| {
        workload.spec.pod_sets[0].topology_request = Some(PodSetTopologyRequest {
            required: level.map(str::to_owned),
            pod_index_label: Some("batch.kubernetes.io/job-completion-index".into()),
            ..PodSetTopologyRequest::default()
        });
    })
}

#[test]
fn new_workload_has_its_jobs_topology_request() {
    let request = |world: World| {
        let decision = world.decide();
        let made = decision.actions.iter().find_map(|action| match action {
            Action::CreateWorkload(workload) => {
                Some(workload.spec.pod_sets[0].topology_request.clone())
            }
            _ => None,
        });
        made.unwrap()
    };
    let rack = || job().with(asks(names::POD_SET_REQUIRED_TOPOLOGY, "rack"));
    assert_eq!(request(aware(rack())), asking(Some("rack")).0.spec.pod_sets[0].topology_request);
    assert_eq!(request(world(rack())), None, "without the gate");
}

#[test]
fn job_with_malformed_annotation_gets_no_workload() {
    let bad = job().with(asks(names::POD_SET_UNCONSTRAINED_TOPOLOGY, "yes"));
    insta::assert_snapshot!(aware(bad).told(), @r#"Warning ErrWorkloadCompose: strconv.ParseBool: parsing "yes": invalid syntax"#);
}

#[test]
fn queued_workload_follows_its_jobs_topology_request() {
    let rack = || job().with(asks(names::POD_SET_REQUIRED_TOPOLOGY, "rack"));
    assert_eq!(aware(rack()).workload(asking(Some("rack"))).told(), "");
    insta::assert_snapshot!(aware(rack()).workload(asking(Some("block"))).told(), @r#"
    workload {"spec":{"podSets":[{"count":3,"name":"main","template":{"metadata":{"annotations":{"kueue.x-k8s.io/podset-required-topology":"rack"},"labels":{"app":"train"}},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}},"topologyRequest":{"podIndexLabel":"batch.kubernetes.io/job-completion-index","required":"rack"}}]}}
    Normal UpdatedWorkload: Updated not matching Workload for suspended job: ns/job-train-1b29a
    "#);
    assert!(
        aware(job()).workload(job().workload()).told().starts_with("workload "),
        "one of an older version"
    );
    assert_eq!(world(rack()).workload(asking(Some("block"))).told(), "", "without the gate");
}

#[rstest]
#[case::older_version(job().workload())]
#[case::another_level(asking(Some("block")))]
fn workload_with_quota_keeps_its_topology_request(#[case] workload: TestWorkload) {
    let workload = workload.admitted();
    let started =
        job().started(&workload.0).running().with(asks(names::POD_SET_REQUIRED_TOPOLOGY, "rack"));
    assert_eq!(aware(started).workload(workload).told(), "");
}

#[test]
fn running_job_with_malformed_annotation_ends_normally() {
    let workload = || job().workload().admitted();
    let started = || {
        job()
            .started(&workload().0)
            .running()
            .with(asks(names::POD_SET_UNCONSTRAINED_TOPOLOGY, "yes"))
    };
    assert_eq!(aware(started()).workload(workload()).told(), "");
    let ended = aware(started().condition("Complete")).workload(workload()).told();
    assert!(ended.contains("Finished=True/Succeeded"), "{ended}");
}

#[test]
fn prebuilt_workload_keeps_its_topology_request() {
    let named = job()
        .with(json!({"metadata": {"labels": {"kueue.x-k8s.io/prebuilt-workload-name": "mine"}}}));
    let workload = Arc::new(asking(Some("block")).named("mine").0);
    let world = World {
        prebuilt: Prebuilt::Found(workload.clone()),
        workloads: vec![workload],
        ..aware(named)
    };
    assert_eq!(world.told(), "");
}
