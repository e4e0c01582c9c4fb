//! Topology requests of jobs, from annotations and the labels by which each kind numbers its pods.

use rstest::rstest;

use super::by_pods::{leader_worker_set, stateful_set, workers_alone};
use super::plain::{changed, samples};
use super::pod::{member, pod};
use super::topology_refused::annotated;
use super::*;
use crate::pod::Pod;
use switchyard_syntax::names;

const ON: TopologyGates = TopologyGates { aware: true, multi_layer: true };
const ONE_LAYER: TopologyGates = TopologyGates { aware: true, multi_layer: false };
const OFF: TopologyGates = TopologyGates { aware: false, multi_layer: true };

/// The request of a Job whose template has these annotations with Kueue's prefix.
fn asked(annotations: Value, gates: TopologyGates) -> String {
    match pod_sets_with_topology(&BatchJob, &annotated(annotations), gates) {
        Ok(pod_sets) => serde_json::to_string(&pod_sets[0].topology_request).unwrap(),
        Err(error) => error.to_string(),
    }
}

const RANK: &str = r#""podIndexLabel":"batch.kubernetes.io/job-completion-index""#;

#[rstest]
#[case::nothing_gives_the_rank_alone(json!({}), ON, "{RANK}")]
#[case::nothing_is_read_without_the_gate(json!({"podset-required-topology": "rack"}), OFF, "null")]
#[case::a_level_is_required(json!({"podset-required-topology": "rack"}), ON, r#"{"required":"rack",RANK}"#)]
#[case::a_level_is_preferred(json!({"podset-preferred-topology": "rack"}), ON, r#"{"preferred":"rack",RANK}"#)]
#[case::required_goes_before_preferred(json!({"podset-required-topology": "a", "podset-preferred-topology": "b"}), ON, r#"{"required":"a",RANK}"#)]
#[case::capacity_alone(json!({"podset-unconstrained-topology": "T"}), ON, r#"{"unconstrained":true,RANK}"#)]
#[case::capacity_alone_refused(json!({"podset-unconstrained-topology": "false"}), ON, r#"{"unconstrained":false,RANK}"#)]
#[case::no_switch(json!({"podset-unconstrained-topology": "yes"}), ON, r#"strconv.ParseBool: parsing "yes": invalid syntax"#)]
#[case::no_switch_beside_a_level_is_passed_over(json!({"podset-required-topology": "rack", "podset-unconstrained-topology": "yes"}), ON, r#"{"required":"rack",RANK}"#)]
#[case::slices(json!({"podset-slice-required-topology": "rack", "podset-slice-size": "2"}), ON, r#"{RANK,"podSetSliceRequiredTopology":"rack","podSetSliceSize":2}"#)]
#[case::half_a_slice_is_none(json!({"podset-slice-size": "2"}), ON, "{RANK}")]
#[case::no_size(json!({"podset-slice-required-topology": "rack", "podset-slice-size": "two"}), ON, r#"strconv.ParseInt: parsing "two": invalid syntax"#)]
#[case::a_size_too_large(json!({"podset-slice-required-topology": "rack", "podset-slice-size": "3000000000"}), ON, r#"strconv.ParseInt: parsing "3000000000": value out of range"#)]
#[case::layers(
    json!({"podset-slice-required-topology-constraints": r#"[{"topology":"rack","size":4},{"topology":"host","size":2}]"#}), ON,
    r#"{RANK,"podsetSliceRequiredTopologyConstraints":[{"topology":"rack","size":4},{"topology":"host","size":2}]}"#
)]
#[case::layers_go_before_the_slice(
    json!({"podset-slice-required-topology-constraints": r#"[{"topology":"rack","size":4}]"#, "podset-slice-required-topology": "host", "podset-slice-size": "2"}), ON,
    r#"{RANK,"podsetSliceRequiredTopologyConstraints":[{"topology":"rack","size":4}]}"#
)]
#[case::layers_without_their_gate(
    json!({"podset-slice-required-topology-constraints": "x", "podset-slice-required-topology": "host", "podset-slice-size": "2"}), ONE_LAYER,
    r#"{RANK,"podSetSliceRequiredTopology":"host","podSetSliceSize":2}"#
)]
#[case::no_layer(json!({"podset-slice-required-topology-constraints": "[]"}), ON, "topology constraints must contain between 1 and 3 entries: got 0")]
#[case::null_is_no_layer(json!({"podset-slice-required-topology-constraints": "null"}), ON, "topology constraints must contain between 1 and 3 entries: got 0")]
#[case::four_layers(json!({"podset-slice-required-topology-constraints": "[{},{},{},{}]"}), ON, "topology constraints must contain between 1 and 3 entries: got 4")]
#[case::a_size_in_quotes(
    json!({"podset-slice-required-topology-constraints": r#"[{"topology":"rack","size":"4"}]"#}), ON,
    r#"failed to parse multi-layer topology constraints annotation: invalid type: string "4", expected i32 at line 1 column 30"#
)]
#[case::a_group(json!({"podset-required-topology": "rack", "podset-group-name": "g"}), ON, r#"{"required":"rack",RANK,"podSetGroupName":"g"}"#)]
#[case::a_group_without_a_level_is_none(json!({"podset-unconstrained-topology": "true", "podset-group-name": "g"}), ON, r#"{"unconstrained":true,RANK}"#)]
fn requests(#[case] annotations: Value, #[case] gates: TopologyGates, #[case] want: &str) {
    assert_eq!(asked(annotations, gates), want.replace("RANK", RANK));
}

#[test]
fn request_without_ranks_is_none_unless_something_is_asked() {
    let source = |annotations: Value| TopologySource {
        annotations: serde_json::from_value(annotations).unwrap(),
        ..TopologySource::default()
    };
    assert_eq!(source(json!({})).request(ON), Ok(None));
    assert_eq!(
        source(json!({names::POD_SET_SLICE_SIZE: "2"})).request(ON),
        Ok(None),
        "half a slice"
    );
    let layers = json!({names::POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS: "[]"});
    assert_eq!(
        source(layers).request(ONE_LAYER),
        Ok(Some(switchyard_api::v1beta2::PodSetTopologyRequest::default()))
    );
}

/// Path of each pod set's annotations, and the labels that number its pods.
fn ranks(kind: &dyn JobKind, job: &Value) -> String {
    let pod_sets = kind.pod_sets(job).unwrap();
    let one = |(index, pod_set): (usize, &PodSet)| {
        let source = kind.topology_source(job, index, pod_set);
        let ranks = source.ranks;
        let label = |label: &Option<String>| label.clone().unwrap_or_else(|| "-".to_owned());
        let group = ranks
            .sub_group_count
            .map(|count| format!(" in {count} {}", label(&ranks.sub_group_index_label)));
        format!("{} {}{}", source.path, label(&ranks.pod_index_label), group.unwrap_or_default())
    };
    pod_sets.iter().enumerate().map(one).collect::<Vec<_>>().join("\n")
}

#[test]
fn topology_source_has_path_and_ranks_for_each_kind() {
    let mut kinds = samples();
    kinds.extend([
        (&BatchJob as &dyn JobKind, job().build()),
        stateful_set(),
        leader_worker_set(),
        workers_alone(),
        (&Pod, pod("a")),
    ]);
    let lines: Vec<String> = kinds
        .iter()
        .map(|(kind, job)| format!("{}\n{}", kind.id().kind, ranks(*kind, job)))
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    JobSet
    spec.replicatedJobs[0].template.spec.template.metadata batch.kubernetes.io/job-completion-index in 1 jobset.sigs.k8s.io/job-index
    spec.replicatedJobs[1].template.spec.template.metadata batch.kubernetes.io/job-completion-index in 2 jobset.sigs.k8s.io/job-index
    TFJob
    spec.tfReplicaSpecs[PS].template.metadata training.kubeflow.org/replica-index
    spec.tfReplicaSpecs[Worker].template.metadata training.kubeflow.org/replica-index
    PyTorchJob
    spec.pytorchReplicaSpecs[Master].template.metadata training.kubeflow.org/replica-index
    spec.pytorchReplicaSpecs[Worker].template.metadata training.kubeflow.org/replica-index
    PaddleJob
    spec.paddleReplicaSpecs[Worker].template.metadata training.kubeflow.org/replica-index
    XGBoostJob
    spec.xgbReplicaSpecs[Master].template.metadata training.kubeflow.org/replica-index
    spec.xgbReplicaSpecs[Worker].template.metadata training.kubeflow.org/replica-index
    JAXJob
    spec.jaxReplicaSpecs[Worker].template.metadata training.kubeflow.org/replica-index
    MPIJob
    spec.mpiReplicaSpecs[Launcher].template.metadata training.kubeflow.org/replica-index
    spec.mpiReplicaSpecs[Worker].template.metadata training.kubeflow.org/replica-index
    RayCluster
    spec.headGroupSpec.template.metadata -
    spec.workerGroupSpecs[0].template.metadata -
    RayJob
    spec.rayClusterSpec.headGroupSpec.template.metadata -
    spec.rayClusterSpec.workerGroupSpecs[0].template.metadata -
    RayService
    spec.rayClusterConfig.headGroupSpec.template.metadata -
    spec.rayClusterConfig.workerGroupSpecs[0].template.metadata -
    AppWrapper
    spec.components[0].template.spec.template.metadata batch.kubernetes.io/job-completion-index
    SparkApplication
    spec.driver -
    spec.executor -
    TrainJob
    job[dataset-initializer] batch.kubernetes.io/job-completion-index in 1 jobset.sigs.k8s.io/job-index
    job[node] batch.kubernetes.io/job-completion-index in 1 jobset.sigs.k8s.io/job-index
    Job
    spec.template.metadata batch.kubernetes.io/job-completion-index
    StatefulSet
    spec.template.metadata apps.kubernetes.io/pod-index
    LeaderWorkerSet
    spec.leaderWorkerTemplate.leaderTemplate.metadata -
    spec.leaderWorkerTemplate.workerTemplate.metadata leaderworkerset.sigs.k8s.io/worker-index
    LeaderWorkerSet
    spec.leaderWorkerTemplate.workerTemplate.metadata leaderworkerset.sigs.k8s.io/worker-index
    Pod
    metadata kueue.x-k8s.io/pod-group-pod-index
    ");
}

#[test]
fn wrapped_pods_are_numbered_by_kind_or_declaration() {
    let declared = json!([{
        "path": "template.spec.template", "replicas": 4,
        "annotations": {
            "workload.codeflare.dev.appwrapper/tas-pod-index-label": "example.com/index",
            "workload.codeflare.dev.appwrapper/tas-sub-group-index-label": "example.com/group",
            "workload.codeflare.dev.appwrapper/tas-sub-group-count": "2",
        },
    }]);
    let of = |api: &str, kind: &str, spec: Value, declared: Value| {
        let component = json!({"template": {"apiVersion": api, "kind": kind, "spec": spec}, "podSets": declared});
        let (kind, job) = super::plain::object(
            "workload.codeflare.dev",
            "AppWrapper",
            json!({"components": [component]}),
        );
        ranks(kind, &job).split_once(' ').unwrap().1.to_owned()
    };
    let pods = || super::plain::template("c");
    assert_eq!(
        of("batch/v1", "Job", json!({"template": pods()}), json!([])),
        "batch.kubernetes.io/job-completion-index"
    );
    let set =
        json!({"replicatedJobs": [{"replicas": 2, "template": {"spec": {"template": pods()}}}]});
    assert_eq!(
        of("jobset.x-k8s.io/v1alpha2", "JobSet", set, json!([])),
        "batch.kubernetes.io/job-completion-index in 2 jobset.sigs.k8s.io/job-index"
    );
    let torch = json!({"pytorchReplicaSpecs": {"Worker": {"template": pods()}}});
    assert_eq!(
        of("kubeflow.org/v1", "PyTorchJob", torch, json!([])),
        "training.kubeflow.org/replica-index"
    );
    assert_eq!(of("apps/v1", "Deployment", json!({"template": pods()}), json!([])), "-");
    assert_eq!(
        of("example.com/v1", "Own", json!({"template": pods()}), declared),
        "example.com/index in 2 example.com/group"
    );
}

#[test]
fn stateful_set_asks_by_the_annotations_of_its_template() {
    let (kind, set) = stateful_set();
    let template = json!({"metadata": {"annotations": {names::POD_SET_REQUIRED_TOPOLOGY: "rack"}}});
    let set = changed(&set, json!({"spec": {"template": template}}));
    let pod_sets = pod_sets_with_topology(kind, &set, ON).unwrap();
    let request = pod_sets[0].topology_request.clone().unwrap();
    assert_eq!(request.required.as_deref(), Some("rack"));
    assert!(pod_sets[0].template.value().get("metadata").is_none());
}

#[test]
fn pods_of_a_group_ask_by_role() {
    let level = |name: &str, role: &str, level: &str| {
        let annotations =
            json!({"metadata": {"annotations": {names::POD_SET_PREFERRED_TOPOLOGY: level}}});
        changed(&member(name, "3", role, json!({})), annotations)
    };
    let group = Pod.compose(vec![
        level("a", "r1", "rack"),
        level("b", "r2", "host"),
        level("c", "r1", "rack"),
    ]);
    let pod_sets = pod_sets_with_topology(&Pod, &group, ON).unwrap();
    let asked = |set: &PodSet| {
        let request = set.topology_request.clone().unwrap_or_default();
        format!(
            "{} x {}: {} by {}",
            set.name,
            set.count,
            request.preferred.unwrap(),
            request.pod_index_label.unwrap()
        )
    };
    let asked: Vec<String> = pod_sets.iter().map(asked).collect();
    let want = [
        "r1 x 2: rack by kueue.x-k8s.io/pod-group-pod-index",
        "r2 x 1: host by kueue.x-k8s.io/pod-group-pod-index",
    ];
    assert_eq!(asked, want);
}

fn offset(job: &Value, template: &str) -> Option<String> {
    meta::annotation(job.pointer(template)?, names::POD_INDEX_OFFSET).map(str::to_owned)
}

#[rstest]
#[case::a_launcher_that_works_is_the_first(json!({"runLauncherAsWorker": true}), Some("1"))]
#[case::a_launcher_that_only_launches(json!({}), None)]
#[case::a_launcher_placed_with_the_workers(
    json!({"runLauncherAsWorker": true, "mpiReplicaSpecs": {"Launcher": {"template": {"metadata": {"annotations": {"kueue.x-k8s.io/podset-group-name": "g"}}}}}}), None
)]
fn workers_of_an_mpi_job_are_numbered_from_one(#[case] spec: Value, #[case] want: Option<&str>) {
    let (kind, job) = samples().into_iter().find(|(kind, _)| kind.id().kind == "MPIJob").unwrap();
    let mut job = changed(&job, json!({ "spec": spec }));
    kind.apply_topology_defaults(&mut job);
    assert_eq!(offset(&job, "/spec/mpiReplicaSpecs/Worker/template").as_deref(), want);
    assert_eq!(offset(&job, "/spec/mpiReplicaSpecs/Launcher/template"), None);
}

#[test]
fn workers_beside_a_leader_are_numbered_from_one() {
    let worker = "/spec/leaderWorkerTemplate/workerTemplate";
    let of = |(kind, mut object): (&dyn JobKind, Value)| {
        kind.apply_topology_defaults(&mut object);
        offset(&object, worker)
    };
    assert_eq!(of(leader_worker_set()).as_deref(), Some("1"));
    assert_eq!(of(workers_alone()), None);
    let (kind, grouped) = leader_worker_set();
    let group = json!({"metadata": {"annotations": {names::POD_SET_GROUP_NAME: "g"}}});
    let grouped =
        changed(&grouped, json!({"spec": {"leaderWorkerTemplate": {"workerTemplate": group}}}));
    assert_eq!(of((kind, grouped)), None);
}

#[rstest]
#[case::the_label_is_copied(json!({"labels": {"example.com/index": "3"}, "annotations": {"kueue.x-k8s.io/pod-group-pod-index-label": "example.com/index"}}), Some("3"))]
#[case::a_pod_without_it_has_an_empty_one(json!({"annotations": {"kueue.x-k8s.io/pod-group-pod-index-label": "example.com/index"}}), Some(""))]
#[case::a_pod_that_names_no_label(json!({"labels": {"example.com/index": "3"}}), None)]
fn index_of_a_pod(#[case] metadata: Value, #[case] want: Option<&str>) {
    let mut pod = changed(&pod("a"), json!({ "metadata": metadata }));
    Pod.apply_topology_defaults(&mut pod);
    assert_eq!(meta::label(&pod, names::POD_GROUP_POD_INDEX), want);
}

#[test]
fn pod_that_waits_for_admission_waits_for_its_place_too() {
    let gates = |pod: &Value| {
        let gates = pod["spec"]["schedulingGates"].as_array().cloned().unwrap_or_default();
        gates
            .iter()
            .map(|gate| gate["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut waiting = pod("a");
    Pod.apply_topology_defaults(&mut waiting);
    Pod.apply_topology_defaults(&mut waiting);
    assert_eq!(gates(&waiting), "kueue.x-k8s.io/admission kueue.x-k8s.io/topology");
    let mut started = waiting.clone();
    Pod.run(&mut started, &[PodSetInfo::default()]).unwrap();
    assert_eq!(gates(&started), "", "no topology was assigned");
    let gate = k8s_openapi::api::core::v1::PodSchedulingGate {
        name: names::TOPOLOGY_SCHEDULING_GATE.into(),
    };
    Pod.run(&mut waiting, &[PodSetInfo { scheduling_gates: vec![gate], ..PodSetInfo::default() }])
        .unwrap();
    assert_eq!(gates(&waiting), "kueue.x-k8s.io/topology", "its place is to be chosen");
    let mut free = changed(&pod("a"), json!({"spec": {"schedulingGates": null}}));
    Pod.apply_topology_defaults(&mut free);
    assert_eq!(gates(&free), "");
}
