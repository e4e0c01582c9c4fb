//! Kinds that are queued by their pods: the webhook's marks in their templates, the pod sets of
//! their groups, the assignment of pods to groups, and rejected updates.

use rstest::rstest;

use super::plain::{changed, shape, template};
use super::*;
use crate::SuspendMode;
use crate::is_serving_part as is_part;
use crate::pod::Pod;
use crate::serving::{PodMetadata, is_outdated};

/// An object of a kind in queue `lq`, as its user writes it.
fn written(group: &str, kind: &str, spec: Value) -> (&'static dyn JobKind, Value) {
    let kind = kind_for(group, kind).unwrap();
    let object = json!({
        "apiVersion": kind.id().api_version(), "kind": kind.id().kind,
        "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": spec,
    });
    (kind, object)
}

pub(super) fn deployment() -> (&'static dyn JobKind, Value) {
    written("apps", "Deployment", json!({"replicas": 3, "template": template("c")}))
}

pub(super) fn stateful_set() -> (&'static dyn JobKind, Value) {
    written("apps", "StatefulSet", json!({"replicas": 3, "template": template("c")}))
}

pub(super) fn leader_worker_set() -> (&'static dyn JobKind, Value) {
    let template = json!({"size": 3, "leaderTemplate": template("leader"), "workerTemplate": template("worker")});
    let spec = json!({"replicas": 2, "leaderWorkerTemplate": template});
    written("leaderworkerset.x-k8s.io", "LeaderWorkerSet", spec)
}

pub(super) fn workers_alone() -> (&'static dyn JobKind, Value) {
    let template = json!({"size": 3, "workerTemplate": template("worker")});
    written(
        "leaderworkerset.x-k8s.io",
        "LeaderWorkerSet",
        json!({ "leaderWorkerTemplate": template }),
    )
}

/// The changes of the webhook.
fn marks((kind, object): (&dyn JobKind, Value)) -> Value {
    let mut marked = object.clone();
    kind.suspend(&mut marked);
    let mut again = marked.clone();
    kind.suspend(&mut again);
    assert_eq!(again, marked, "once");
    merge_diff(&object, &marked).unwrap()
}

#[test]
fn templates_are_marked_for_the_pod_webhook() {
    let (kind, object) = deployment();
    let urgent = changed(
        &object,
        json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}}),
    );
    insta::assert_snapshot!(marks((kind, urgent)), @r#"{"spec":{"template":{"metadata":{"annotations":{"kueue.x-k8s.io/pod-suspending-parent":"deployment"},"labels":{"kueue.x-k8s.io/managed":"true","kueue.x-k8s.io/priority-class":"high","kueue.x-k8s.io/queue-name":"lq"}}}}}"#);
    insta::assert_snapshot!(marks(stateful_set()), @r#"{"spec":{"template":{"metadata":{"annotations":{"kueue.x-k8s.io/pod-suspending-parent":"statefulset"}}}}}"#);
    insta::assert_snapshot!(marks(workers_alone()), @r#"{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"metadata":{"annotations":{"kueue.x-k8s.io/pod-group-serving":"true","kueue.x-k8s.io/pod-suspending-parent":"leaderworkerset.x-k8s.io/leaderworkerset"},"labels":{"kueue.x-k8s.io/queue-name":"lq"}}}}}}"#);
    let both = marks(leader_worker_set());
    let of = |field: &str| both.pointer(&format!("/spec/leaderWorkerTemplate/{field}")).cloned();
    assert!(of("leaderTemplate").is_some() && of("leaderTemplate") == of("workerTemplate"));
}

#[test]
fn serving_copy_names_groups_by_the_hubs_uid() {
    assert!(deployment().0.remote().is_none(), "its pods are");
    for (kind, object) in [stateful_set(), leader_worker_set()] {
        assert!(kind.remote().is_some());
        let here = groups(&(kind, object.clone()), json!({}));
        let copy = kind
            .remote()
            .unwrap()
            .remote_copy(&object, RemoteMeta { workload: &here[0], origin: "multikueue" });
        let copy = changed(&copy, json!({"metadata": {"uid": "uid-there"}}));
        assert_eq!(
            (&copy["spec"], groups(&(kind, copy.clone()), json!({}))),
            (&object["spec"], here)
        );
    }
}

#[test]
fn first_group_is_dispatched_first() {
    let first = |kind: &dyn JobKind| kind.serving().unwrap().first_group("a", "uid-a");
    assert_eq!(first(stateful_set().0), None, "it has one");
    let set = leader_worker_set();
    assert_eq!(first(set.0).as_ref(), groups(&set, json!({})).first());
    let asked = |(kind, object): &(&dyn JobKind, Value)| kind.serving().unwrap().replicas(object);
    assert_eq!((asked(&stateful_set()), asked(&set)), (None, Some(2)));
}

#[test]
fn serving_pods_can_be_marked_and_recognized() {
    let marks = PodMetadata { labels: &[("l", "1")], annotations: &[("a", "2")] };
    for ((kind, mut object), templates) in [
        (stateful_set(), vec!["/spec/template"]),
        (leader_worker_set(), vec!["leaderTemplate", "workerTemplate"]),
    ] {
        kind.serving().unwrap().mark_pods(&mut object, &marks);
        for template in templates {
            let at = if template.starts_with('/') {
                template.into()
            } else {
                format!("/spec/leaderWorkerTemplate/{template}")
            };
            let metadata = &object.pointer(&at).unwrap()["metadata"];
            assert_eq!(
                (&metadata["labels"]["l"], &metadata["annotations"]["a"]),
                (&json!("1"), &json!("2")),
                "{at}"
            );
        }
    }
    let pod = |owner: &str, by: &str| {
        let owner = json!({"apiVersion": "apps/v1", "kind": owner, "name": "a", "uid": "u", "controller": true});
        let annotations = json!({"kueue.x-k8s.io/pod-suspending-parent": by});
        json!({"metadata": {"name": "a-0", "namespace": "ns", "ownerReferences": [owner], "annotations": annotations}})
    };
    assert!(is_part(&pod("StatefulSet", "statefulset")));
    let of_replica = json!({"metadata": {"labels": {"leaderworkerset.sigs.k8s.io/name": "a"}}});
    assert!(is_part(&changed(
        &pod("StatefulSet", "leaderworkerset.x-k8s.io/leaderworkerset"),
        of_replica
    )));
    assert!(!is_part(&pod("ReplicaSet", "deployment")));
}

#[test]
fn pods_name_their_owner_by_kind() {
    for (kind, object) in [deployment(), stateful_set(), leader_worker_set()] {
        assert_eq!(kind.suspend_mode(), SuspendMode::Pods);
        assert!(kind.is_suspended(&object) && kind.finished(&object).is_none());
        let ready = changed(&object, json!({"status": {"readyReplicas": 1}}));
        assert!(!kind.is_suspended(&ready));
    }
    let named = |names: &[&str]| -> Vec<&str> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        enabled_kinds(&names).iter().map(|kind| kind.id().kind).collect()
    };
    assert_eq!(named(&["statefulset"]), ["Pod", "StatefulSet"], "pods come with it");
}

#[rstest]
#[case::stateful_set(stateful_set(), json!({}), "main x 3")]
#[case::one_pod_where_nothing_is_said(stateful_set(), json!({"spec": {"replicas": null}}), "main x 1")]
#[case::without_a_template(stateful_set(), json!({"spec": {"template": null}}), "spec.template.spec: is missing; a pod template is needed here")]
#[case::leader_and_workers(leader_worker_set(), json!({}), "leader x 1, worker x 2")]
#[case::a_leader_alone(leader_worker_set(), json!({"spec": {"leaderWorkerTemplate": {"size": null}}}), "leader x 1, worker x 0")]
#[case::workers_alone(workers_alone(), json!({}), "main x 3")]
#[case::a_size_that_is_none(workers_alone(), json!({"spec": {"leaderWorkerTemplate": {"size": -1}}}), "spec.leaderWorkerTemplate.size: must be between 1 and 2147483647")]
#[case::deployment(deployment(), json!({}), "kind: each pod of a Deployment is a job of its own")]
fn pod_sets(
    #[case] object: (&'static dyn JobKind, Value),
    #[case] patch: Value,
    #[case] want: &str,
) {
    assert_eq!(shape(object.0, &changed(&object.1, patch)), want);
}

fn groups((kind, object): &(&'static dyn JobKind, Value), patch: Value) -> Vec<String> {
    let groups = kind.serving().unwrap().groups(&changed(object, patch));
    groups
        .iter()
        .map(|it| format!("{}{}", it.name, if it.is_scaled_down { " at rest" } else { "" }))
        .collect()
}

#[test]
fn groups_are_named_as_kueue_names_their_workloads() {
    let set = stateful_set();
    let name = workload_name("StatefulSet", "apps", "a", "uid-a");
    assert_eq!(groups(&set, json!({})), std::slice::from_ref(&name));
    assert_eq!(groups(&set, json!({"spec": {"replicas": 0}})), [format!("{name} at rest")]);
    let origin = json!({
        "labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue"},
        "annotations": {"kueue.x-k8s.io/multikueue-origin-uid": "uid-of-hub"},
    });
    let of_hub = workload_name("StatefulSet", "apps", "a", "uid-of-hub");
    assert_eq!(groups(&set, json!({ "metadata": origin })), [of_hub]);

    let set = leader_worker_set();
    let of = |index: u32| {
        workload_name("LeaderWorkerSet", "leaderworkerset.x-k8s.io", &format!("a-{index}"), "uid-a")
    };
    assert_eq!(groups(&set, json!({})), [of(0), of(1)]);
    assert_eq!(groups(&set, json!({"spec": {"replicas": 0}})), [""; 0]);
    let rolling = |surge: Value, updated: i32| {
        let rollout = json!({"rollingUpdateConfiguration": {"maxSurge": surge}});
        json!({"spec": {"rolloutStrategy": rollout}, "status": {"replicas": 3, "updatedReplicas": updated}})
    };
    assert_eq!(
        groups(&set, rolling(json!(1), 1)),
        [of(0), of(1), of(2)],
        "one more while it rolls"
    );
    assert_eq!(groups(&set, rolling(json!("25%"), 1)), [of(0), of(1), of(2)]);
    assert_eq!(groups(&set, rolling(json!(1), 2)), [of(0), of(1)], "it has rolled");
    assert_eq!(groups(&set, rolling(json!(0), 1)), [of(0), of(1)], "scaling down");
}

/// A gated pod of StatefulSet `a`.
fn pod_of_set(metadata: Value) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "a", "uid": "uid-a", "controller": true});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a-0", "namespace": "ns", "uid": "pod", "ownerReferences": [owner]},
        "spec": {"containers": [], "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
    });
    changed(&pod, json!({ "metadata": metadata }))
}

#[test]
fn pod_joins_its_group_once() {
    let (kind, set) = stateful_set();
    let set =
        changed(&set, json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}}));
    let serving = kind.serving().unwrap();
    let by = json!({"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}});
    let mut pod = pod_of_set(by);
    assert_eq!(serving.owner_of(&pod), Some("a"));
    assert!(Pod.skips(&pod), "it waits for its group");
    let before = pod.clone();
    assert!(serving.join(&set, &mut pod));
    assert!(!Pod.skips(&pod));
    insta::assert_snapshot!(merge_diff(&before, &pod).unwrap(), @r#"{"metadata":{"annotations":{"kueue.x-k8s.io/pod-group-fast-admission":"true","kueue.x-k8s.io/pod-group-pod-index-label":"apps.kubernetes.io/pod-index","kueue.x-k8s.io/pod-group-serving":"true","kueue.x-k8s.io/pod-group-total-count":"3","kueue.x-k8s.io/role-hash":"main"},"labels":{"kueue.x-k8s.io/managed":"true","kueue.x-k8s.io/pod-group-name":"statefulset-a-98ec4","kueue.x-k8s.io/prebuilt-workload-name":"statefulset-a-98ec4","kueue.x-k8s.io/priority-class":"high","kueue.x-k8s.io/queue-name":"lq"}}}"#);
    assert!(!serving.join(&set, &mut pod), "once");

    let moved =
        changed(&set, json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}));
    assert!(serving.join(&moved, &mut pod) && meta::queue_name(&pod) == "other");
    pod["spec"]["schedulingGates"] = json!([]);
    assert!(!serving.join(&set, &mut pod), "a pod that runs keeps its queue");
    assert!(
        !Pod.syncs_queue(&Pod.compose(vec![pod])),
        "and its group's workload is moved by the StatefulSet alone"
    );
}

#[rstest]
#[case::of_nobody(json!({}), None)]
#[case::of_another_kind(json!({"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "deployment"}}), None)]
#[case::without_an_owner(json!({"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}, "ownerReferences": null}), None)]
#[case::ours(json!({"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}}), Some("a"))]
fn whose_pod_it_is(#[case] metadata: Value, #[case] want: Option<&str>) {
    assert_eq!(stateful_set().0.serving().unwrap().owner_of(&pod_of_set(metadata)), want);
}

#[rstest]
#[case::before_its_webhook_said_which(leader_worker_set(), json!({}), None)]
#[case::a_leader(leader_worker_set(), json!({"labels": {"leaderworkerset.sigs.k8s.io/group-index": "1"}}), Some("leader 1"))]
#[case::a_worker(leader_worker_set(), json!({"labels": {"leaderworkerset.sigs.k8s.io/group-index": "0"}, "annotations": {"leaderworkerset.sigs.k8s.io/leader-name": "a-0"}}), Some("worker 0"))]
#[case::one_of_workers_alone(workers_alone(), json!({"labels": {"leaderworkerset.sigs.k8s.io/group-index": "0"}, "annotations": {"leaderworkerset.sigs.k8s.io/leader-name": "a-0"}}), Some("main 0"))]
fn pod_role_is_recorded_or_computed(
    #[case] set: (&'static dyn JobKind, Value),
    #[case] metadata: Value,
    #[case] want: Option<&str>,
) {
    let serving = set.0.serving().unwrap();
    let mut pod = pod_of_set(metadata);
    let joined = serving.join(&set.1, &mut pod);
    let groups = serving.groups(&set.1);
    let got = joined.then(|| {
        let at = groups.iter().position(|group| Pod.group_of(&pod) == Some(&group.name)).unwrap();
        format!("{} {at}", meta::annotation(&pod, "kueue.x-k8s.io/role-hash").unwrap())
    });
    assert_eq!(got.as_deref(), want);
    assert!(!joined || meta::annotation(&pod, "kueue.x-k8s.io/pod-group-total-count") == Some("3"));
}

#[test]
fn leader_worker_set_is_found_from_its_parts() {
    let serving = leader_worker_set().0.serving().unwrap();
    let marks = json!({"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "leaderworkerset.x-k8s.io/leaderworkerset"}});
    let named = json!({"labels": {"leaderworkerset.sigs.k8s.io/name": "a"}});
    let set = json!({"kind": "StatefulSet", "metadata": named, "spec": {"template": {"metadata": marks}}});
    assert_eq!(serving.owner_of(&set), Some("a"));
    let (kind, _) = stateful_set();
    assert!(kind.skips(&set), "its StatefulSets are none of StatefulSet's");
    let pod = changed(&json!({"metadata": marks}), json!({"metadata": named}));
    assert_eq!(serving.owner_of(&pod), Some("a"));
    assert_eq!(
        serving.owner_of(&json!({"kind": "StatefulSet", "metadata": named})),
        None,
        "it is not queued"
    );
}

#[rstest]
#[case::nothing_rolls("r1", "r1", json!({}), false)]
#[case::of_the_revision_that_is_left("r2", "r1", json!({}), true)]
#[case::of_the_new_one("r2", "r2", json!({}), false)]
#[case::only_updated_when_somebody_deletes_it("r2", "r1", json!({"type": "OnDelete"}), false)]
#[case::kept_by_a_partition("r2", "r1", json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}), false)]
#[case::beyond_a_partition("r2", "r1", json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}), true)]
fn rolling_update_makes_old_pods_outdated(
    #[case] update: &str,
    #[case] pod: &str,
    #[case] strategy: Value,
    #[case] want: bool,
) {
    let status = json!({"currentRevision": "r1", "updateRevision": update});
    let set = json!({"spec": {"updateStrategy": strategy}, "status": status});
    let pod = json!({"metadata": {"name": "a-b-1", "labels": {"controller-revision-hash": pod}}});
    assert_eq!(is_outdated(&set, &pod), want);
}

#[rstest]
#[case::it_waits(false, "")]
#[case::it_has_quota_and_no_pod_is_ready_yet(
    true,
    "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"other\": field is immutable"
)]
fn another_queue(#[case] holds_quota: bool, #[case] want: &str) {
    let (kind, set) = stateful_set();
    let moved = changed(&set, queue(json!("other")));
    let errors = validate_update(
        kind,
        &set,
        &moved,
        UpdateContext { holds_quota, ..UpdateContext::default() },
    );
    assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "), want);
}

fn queue(name: Value) -> Value {
    json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": name}}})
}

fn ready() -> Value {
    json!({"status": {"readyReplicas": 1, "replicas": 3}})
}

fn container(change: Value) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [change]}}}})
}

#[rstest]
#[case::another_queue_before_pods_are_ready(deployment(), json!({}), queue(json!("other")), "")]
#[case::another_queue_while_pods_run(deployment(), ready(), queue(json!("other")), "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"other\": field is immutable")]
#[case::no_queue_any_more(deployment(), json!({}), queue(json!(null)), "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"\": field is immutable")]
#[case::no_queue_any_more_while_pods_run(stateful_set(), ready(), queue(json!(null)), "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"\": field is immutable")]
#[case::a_deployment_scales_and_rolls(deployment(), ready(), json!({"spec": {"replicas": 9, "template": {"spec": {"nodeSelector": {"a": "b"}}}}}), "")]
#[case::another_image(stateful_set(), ready(), container(json!({"name": "c", "image": "j", "resources": {"requests": {"cpu": "1000m"}}})), "")]
#[case::other_requests(stateful_set(), ready(), container(json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}})), "spec.template.spec.containers[0].resources.requests: Invalid value: {\"cpu\":\"2\"}: field is immutable")]
#[case::another_port(stateful_set(), ready(), container(json!({"name": "c", "image": "i", "ports": [{"containerPort": 80}], "resources": {"requests": {"cpu": 1}}})), "spec.template.spec.containers[0].ports: Invalid value: [{\"containerPort\":80}]: field is immutable")]
#[case::one_container_more(stateful_set(), ready(), json!({"spec": {"template": {"spec": {"initContainers": [{"name": "d"}]}}}}), "spec.template.spec.initContainers: Invalid value: [{\"name\":\"d\"}]: field is immutable: their number cannot change")]
#[case::another_place(stateful_set(), ready(), json!({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}), "spec.template.spec.nodeSelector: Invalid value: {\"a\":\"b\"}: field is immutable")]
#[case::a_longest_time_is_not_looked_at(deployment(), ready(), json!({"metadata": {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": "x"}}}), "")]
#[case::to_zero(stateful_set(), ready(), json!({"spec": {"replicas": 0}}), "")]
#[case::to_another_number(stateful_set(), ready(), json!({"spec": {"replicas": 2}}), "spec.replicas: Invalid value: 2: field is immutable: scale to 0 first, or make another StatefulSet")]
#[case::from_zero(stateful_set(), json!({"spec": {"replicas": 0}}), json!({"spec": {"replicas": 5}}), "")]
#[case::from_zero_while_pods_are_left(stateful_set(), json!({"spec": {"replicas": 0}, "status": {"replicas": 1}}), json!({"spec": {"replicas": 5}}), "spec.replicas: Forbidden: scaling down is still in progress")]
#[case::a_leader_worker_set_scales(leader_worker_set(), ready(), json!({"spec": {"replicas": 0}}), "")]
#[case::below_zero(leader_worker_set(), ready(), json!({"spec": {"replicas": -1}}), "spec.replicas: Invalid value: -1: invalid LeaderWorkerSet replicas: must be >= 0, got -1")]
#[case::beyond_all_bounds(leader_worker_set(), ready(), json!({"spec": {"replicas": 1_000_001}}), "spec.replicas: Invalid value: 1000001: invalid LeaderWorkerSet replicas: must be <= 1000000, got 1000001")]
#[case::another_size(leader_worker_set(), ready(), json!({"spec": {"leaderWorkerTemplate": {"size": 4}}}), "spec.leaderWorkerTemplate.size: Invalid value: 4: field is immutable")]
#[case::without_its_leader(leader_worker_set(), ready(), json!({"spec": {"leaderWorkerTemplate": {"leaderTemplate": null}}}), "spec.leaderWorkerTemplate.leaderTemplate: Invalid value: null: field is immutable: it cannot be taken away")]
#[case::with_a_leader(workers_alone(), ready(), json!({"spec": {"leaderWorkerTemplate": {"leaderTemplate": {"spec": {}}}}}), "spec.leaderWorkerTemplate.leaderTemplate: Invalid value: {\"spec\":{}}: field is immutable: it cannot be added later")]
#[case::workers_elsewhere(workers_alone(), ready(), json!({"spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": {"runtimeClassName": "x"}}}}}), "spec.leaderWorkerTemplate.workerTemplate.spec.runtimeClassName: Invalid value: \"x\": field is immutable")]
fn updates(
    #[case] object: (&'static dyn JobKind, Value),
    #[case] before: Value,
    #[case] change: Value,
    #[case] want: &str,
) {
    let old = changed(&object.1, before);
    let errors = validate_update(object.0, &old, &changed(&old, change), UpdateContext::default());
    assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"), want);
}

#[test]
fn group_workload_is_made_for_its_owner() {
    let (kind, set) = leader_worker_set();
    let group = kind.serving().unwrap().groups(&set).remove(1);
    let pod_sets = job_pod_sets(kind, &set).unwrap();
    let workload = build_group_workload(
        kind,
        &set,
        &group,
        pod_sets,
        &Priority::default(),
        BuildOptions::default(),
    );
    let metadata = serde_json::to_value(&workload.metadata).unwrap();
    insta::assert_json_snapshot!(metadata, @r#"
    {
      "annotations": {
        "kueue.x-k8s.io/component-workload-index": "1",
        "kueue.x-k8s.io/is-group-workload": "true",
        "kueue.x-k8s.io/job-owner-gvk": "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet",
        "kueue.x-k8s.io/job-owner-name": "a"
      },
      "finalizers": [
        "kueue.x-k8s.io/resource-in-use"
      ],
      "labels": {
        "kueue.x-k8s.io/job-uid": "uid-a"
      },
      "name": "leaderworkerset-a-1-e7717",
      "namespace": "ns",
      "ownerReferences": [
        {
          "apiVersion": "leaderworkerset.x-k8s.io/v1",
          "kind": "LeaderWorkerSet",
          "name": "a",
          "uid": "uid-a"
        }
      ]
    }
    "#);
    assert_eq!(workload.spec.queue_name.as_deref(), Some("lq"));
}

#[test]
fn pods_of_serving_objects_are_selected_by_labels() {
    let (kind, mut set) = stateful_set();
    set["spec"]["selector"] = json!({"matchLabels": {"app": "a", "tier": "db"}});
    let labels =
        |kind: &dyn JobKind, object: &Value| kind.serving().map(|it| it.pod_labels(object));
    assert_eq!(labels(kind, &set).as_deref(), Some("app=a,tier=db"));
    set["spec"]["selector"] = json!({});
    assert_eq!(labels(kind, &set).as_deref(), Some(""));
    let (kind, mut replicas) = leader_worker_set();
    assert_eq!(labels(kind, &replicas).as_deref(), Some("leaderworkerset.sigs.k8s.io/name=a"));
    replicas["metadata"]["name"] = "a".repeat(64).into();
    assert_eq!(labels(kind, &replicas).as_deref(), Some(""), "no label value is so long");
}
