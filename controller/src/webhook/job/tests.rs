//! Rules for jobs, as tables of cases.
#![expect(clippy::needless_pass_by_value, reason = "literals read better by value")]

use rstest::rstest;
use serde_json::json;
use switchyard_jobs::{apply_merge, batch_job::BatchJob, pod::Pod};

use super::*;

fn job(change: Value) -> Value {
    let mut job = json!({
        "metadata": {"name": "a", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"parallelism": 3, "template": {"spec": {"containers": []}}},
    });
    apply_merge(&mut job, &change);
    job
}

fn facts() -> JobFacts {
    JobFacts { is_namespace_managed: true, ..JobFacts::default() }
}

fn without_queue() -> Value {
    json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}})
}

fn sent() -> Value {
    json!({"metadata": {"labels": {"kueue.x-k8s.io/multikueue-origin": "hub"}}})
}

fn in_queue(name: &str) -> Value {
    json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": name}}})
}

#[rstest]
#[case::annotation_only(json!({"labels": {"kueue.x-k8s.io/queue-name": null}, "annotations": {"kueue.x-k8s.io/queue-name": "old"}}), Some("old"))]
#[case::annotation_and_label(json!({"annotations": {"kueue.x-k8s.io/queue-name": "old"}}), None)]
#[case::invalid_name(json!({"labels": {"kueue.x-k8s.io/queue-name": null}, "annotations": {"kueue.x-k8s.io/queue-name": "Not a name"}}), None)]
#[case::controlled_job(json!({"labels": {"kueue.x-k8s.io/queue-name": null}, "annotations": {"kueue.x-k8s.io/queue-name": "old"},
    "ownerReferences": [{"kind": "CronJob", "name": "c", "uid": "u", "apiVersion": "batch/v1", "controller": true}]}), None)]
fn queue_annotation_becomes_the_label(#[case] metadata: Value, #[case] queue: Option<&str>) {
    let made = with_annotated_queue(&job(json!({"metadata": metadata})));
    assert_eq!(made.as_ref().map(meta::queue_name), queue);
    let Some(made) = made else { return };
    let warning = annotation_warning(None, &made).unwrap();
    assert!(warning.contains("label kueue.x-k8s.io/queue-name=old"), "{warning}");
    assert_eq!(annotation_warning(Some(&made), &made), None, "once");
}

#[rstest]
#[case::queued_job(job(json!({})), facts(), json!(["lq", null, true, null]))]
#[case::suspended_job(job(json!({"spec": {"suspend": true}})), facts(), json!(["lq", null, true, null]))]
#[case::job_without_queue(job(without_queue()), facts(), json!([null, null, null, null]))]
#[case::job_without_queue_if_all_are_managed(job(without_queue()), JobFacts { manages_unqueued: true, ..facts() }, json!([null, null, true, null]))]
#[case::job_without_queue_gets_default_queue(job(without_queue()), JobFacts { has_default_queue: true, ..facts() }, json!(["default", null, true, null]))]
#[case::unmanaged_namespace(job(json!({})), JobFacts::default(), json!(["lq", null, null, null]))]
#[case::unmanaged_namespace_gets_no_class(job(json!({})), JobFacts { has_default_priority_class: true, ..JobFacts::default() }, json!(["lq", null, null, null]))]
#[case::job_below_a_queued_job(job(json!({})), JobFacts { has_enabled_owner: true, has_queued_owner: true, ..facts() }, json!(["lq", null, null, null]))]
#[case::queued_job_below_an_unqueued_owner(job(json!({})), JobFacts { has_enabled_owner: true, ..facts() }, json!(["lq", null, true, null]))]
#[case::job_below_an_unqueued_owner_gets_no_defaults(job(without_queue()), JobFacts { has_enabled_owner: true, has_default_queue: true, has_default_priority_class: true, ..facts() }, json!([null, null, null, null]))]
#[case::job_below_a_queued_job_gets_no_defaults(job(without_queue()), JobFacts { has_queued_owner: true, has_default_queue: true, manages_unqueued: true, ..facts() }, json!([null, null, null, null]))]
#[case::job_below_a_queued_job_is_dispatched(job(in_queue("dispatching")), JobFacts { has_enabled_owner: true, has_queued_owner: true, ..facts() }, json!(["dispatching", null, null, "kueue.x-k8s.io/multikueue"]))]
#[case::default_priority_class(job(json!({})), JobFacts { has_default_priority_class: true, ..facts() }, json!(["lq", "default", true, null]))]
#[case::named_priority_class_stays(job(json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}})), JobFacts { has_default_priority_class: true, ..facts() }, json!(["lq", "high", true, null]))]
#[case::copy_gets_no_class(job(sent()), JobFacts { has_default_priority_class: true, ..facts() }, json!(["lq", null, true, null]))]
#[case::admitted_copy_runs(job(json!({})), JobFacts { is_admitted_copy: true, ..facts() }, json!(["lq", null, null, null]))]
#[case::dispatched_job(job(in_queue("dispatching")), facts(), json!(["dispatching", null, true, "kueue.x-k8s.io/multikueue"]))]
#[case::job_managed_by_another_controller(job(in_queue("dispatching")).tap(json!({"spec": {"managedBy": "example.com/x"}})), facts(), json!(["dispatching", null, true, "example.com/x"]))]
fn job_is_defaulted(#[case] mut job: Value, #[case] facts: JobFacts, #[case] want: Value) {
    default(&BatchJob, &mut job, &facts, |queue| queue == "dispatching");
    let label = |key: &str| meta::label(&job, key);
    let got = json!([
        label("kueue.x-k8s.io/queue-name"),
        label("kueue.x-k8s.io/priority-class"),
        job["spec"]["suspend"],
        job["spec"]["managedBy"],
    ]);
    assert_eq!(got, want);
}

fn elastic(change: Value) -> Value {
    job(json!({"metadata": {"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}})).tap(change)
}

#[rstest]
#[case::elastic_job(elastic(json!({})), JobFacts { elastic: true, ..facts() }, true)]
#[case::feature_gate_off(elastic(json!({})), facts(), false)]
#[case::ordinary_job(job(json!({})), JobFacts { elastic: true, ..facts() }, false)]
#[case::elastic_job_without_queue(elastic(without_queue()), JobFacts { elastic: true, ..facts() }, false)]
#[case::dispatched_elastic_job(elastic(in_queue("dispatching")), JobFacts { elastic: true, ..facts() }, false)]
fn elastic_jobs_pods_are_gated(
    #[case] mut job: Value,
    #[case] facts: JobFacts,
    #[case] gated: bool,
) {
    default(&BatchJob, &mut job, &facts, |queue| queue == "dispatching");
    let gate = json!([{"name": "kueue.x-k8s.io/elastic-job"}]);
    assert_eq!(job.pointer("/spec/template/spec/schedulingGates") == Some(&gate), gated);
}

#[test]
fn elastic_annotation_is_immutable() {
    let errors = |elastic_jobs| {
        let facts = JobFacts { elastic: elastic_jobs, ..facts() };
        validate(&BatchJob, Some(&job(json!({}))), &elastic(json!({})), &facts).len()
    };
    assert_eq!((errors(true), errors(false)), (1, 0));
}

#[test]
fn job_on_an_existing_ray_cluster_is_not_suspended() {
    let kind = switchyard_jobs::kind_for("ray.io", "RayJob").unwrap();
    let on_a_cluster_of_its_own = job(json!({"spec": {"rayClusterSpec": {}}}));
    let on_one_that_is_there = job(json!({"spec": {"clusterSelector": {"ray.io/cluster": "c"}}}));
    for (mut job, suspended) in
        [(on_a_cluster_of_its_own, json!(true)), (on_one_that_is_there, json!(null))]
    {
        default(kind, &mut job, &facts(), |_| true);
        assert_eq!(job["spec"]["suspend"], suspended);
    }
}

fn gate(gates: &str) -> Value {
    json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": gates}}})
}

fn bad() -> Value {
    json!({"metadata": {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "x"}}})
}

#[rstest]
#[case::invalid_job(None, job(bad()), facts(), 1)]
#[case::invalid_admission_gate(None, job(gate("no gate")), facts(), 1)]
#[case::invalid_admission_gate_added(Some(job(json!({}))), job(gate("no gate")), facts(), 2)]
#[case::invalid_admission_gate_with_feature_off(Some(job(json!({}))), job(gate("no gate")), JobFacts { ignores_admission_gates: true, ..facts() }, 0)]
#[case::invalid_job_without_queue(None, job(bad()).tap(without_queue()), facts(), 0)]
#[case::unmanaged_namespace(None, job(bad()), JobFacts::default(), 0)]
#[case::invalid_job_loses_its_queue(Some(job(json!({}))), job(bad()).tap(without_queue()), facts(), 2)]
#[case::invalid_job_being_deleted(Some(job(json!({}))), job(bad()).tap(json!({"metadata": {"deletionTimestamp": "x"}})), facts(), 0)]
fn job_is_validated(
    #[case] old: Option<Value>,
    #[case] job: Value,
    #[case] facts: JobFacts,
    #[case] errors: usize,
) {
    let got = validate(&BatchJob, old.as_ref(), &job, &facts);
    assert_eq!(got.len(), errors, "{got:?}");
}

#[test]
fn disabled_feature_gates_skip_validation() {
    let kind = |group: &str, kind: &str| switchyard_jobs::kind_for(group, kind).unwrap();
    let errors = |kind: &dyn JobKind, old: &Value, new: &Value, facts: &JobFacts| {
        validate(kind, Some(old), new, facts)
    };

    let head = json!({"template": {"spec": {"containers": [{"name": "head"}]}}});
    let running = job(json!({"spec": {"suspend": false, "headGroupSpec": head}}));
    let ray = kind("ray.io", "RayCluster");
    let lost = running.clone().tap(without_queue());
    assert_eq!(errors(ray, &running, &lost, &facts()).len(), 1, "its queue is settled");
    let off = JobFacts { skips_ray_and_spark_updates: true, ..facts() };
    assert!(errors(ray, &running, &lost, &off).is_empty());
    assert_eq!(
        errors(ray, &running, &running.clone().tap(in_queue("other")), &off).len(),
        1,
        "one that keeps a queue"
    );
    let (plain, plain_lost) = (job(json!({})), job(without_queue()));
    assert_eq!(
        errors(&BatchJob, &plain, &plain_lost, &off),
        errors(&BatchJob, &plain, &plain_lost, &facts())
    );

    let set = |size: i32| {
        let template = json!({"spec": {"containers": []}});
        job(
            json!({"spec": {"replicas": 1, "leaderWorkerTemplate": {"size": size, "workerTemplate": template}}}),
        )
    };
    let groups = kind("leaderworkerset.x-k8s.io", "LeaderWorkerSet");
    assert_eq!(errors(groups, &set(2), &set(3), &facts()).len(), 1);
    assert!(
        errors(groups, &set(2), &set(3), &JobFacts { can_resize_groups: true, ..facts() })
            .is_empty()
    );
}

trait Tap {
    fn tap(self, change: Value) -> Self;
}

impl Tap for Value {
    fn tap(mut self, change: Value) -> Self {
        apply_merge(&mut self, &change);
        self
    }
}

fn pod(metadata: Value) -> Value {
    let mut pod = json!({"metadata": {"name": "a", "labels": {"kueue.x-k8s.io/queue-name": "lq"}}, "spec": {}});
    apply_merge(&mut pod, &json!({ "metadata": metadata }));
    pod
}

#[rstest]
#[case::queued_pod(pod(json!({})), facts(), true)]
#[case::pod_without_queue(pod(json!({"labels": null})), facts(), false)]
#[case::pod_of_a_queued_job(pod(json!({})), JobFacts { has_enabled_owner: true, has_queued_owner: true, ..facts() }, false)]
#[case::pod_of_an_unqueued_job_gets_default_queue(pod(json!({"labels": null})), JobFacts { has_enabled_owner: true, has_default_queue: true, ..facts() }, true)]
#[case::plain_pod_of_an_implied_kind(pod(json!({})), JobFacts { is_implied_kind: true, ..facts() }, false)]
#[case::unmanaged_namespace(pod(json!({})), JobFacts::default(), false)]
#[case::pod_held_by_its_owner(pod(json!({"labels": null, "annotations": {"kueue.x-k8s.io/pod-suspending-parent": "deployment"}})), JobFacts::default(), true)]
#[case::admitted_copy(pod(json!({})), JobFacts { is_admitted_copy: true, ..facts() }, false)]
fn pod_is_gated(#[case] mut pod: Value, #[case] facts: JobFacts, #[case] gated: bool) {
    default(&Pod, &mut pod, &facts, |_| true);
    let gate = json!([{"name": "kueue.x-k8s.io/admission"}]);
    assert_eq!(pod.pointer("/spec/schedulingGates") == Some(&gate), gated, "{pod}");
    assert_eq!(meta::label(&pod, names::MANAGED).is_some(), gated);
}

#[test]
fn managed_label_below_a_managed_owner_is_warned_of() {
    let warned = |old: Option<&Value>, metadata: Value, has_enabled_owner: bool| {
        warning(&Pod, old, &pod(metadata), &JobFacts { has_enabled_owner, ..facts() }).is_some()
    };
    let marked = || json!({"labels": {"kueue.x-k8s.io/managed": "true"}});
    let mut held = marked();
    held["annotations"] = json!({"kueue.x-k8s.io/pod-suspending-parent": "statefulset"});
    assert!(warned(None, marked(), true));
    assert!(!warned(None, marked(), false) && !warned(None, json!({}), true));
    assert!(warned(None, held.clone(), true) && !warned(Some(&pod(json!({}))), held, true));
}

#[test]
fn unsupported_annotations_are_warned_of_when_added() {
    let key = "kueue.x-k8s.io/wait-for-pods-ready";
    let annotated = || job(json!({"metadata": {"annotations": {key: "{}"}}}));
    let in_template =
        job(json!({"spec": {"template": {"metadata": {"annotations": {key: "{}"}}}}}));
    let warned = |old: Option<&Value>, job: &Value| warning(&BatchJob, old, job, &facts());
    let want = format!("Switchyard does not heed {key}: it is of a later Kueue");
    assert_eq!(warned(None, &annotated()).as_deref(), Some(&*want));
    assert_eq!(warned(None, &in_template).as_deref(), Some(&*want));
    assert_eq!(warned(Some(&annotated()), &annotated()), None, "once");
    assert_eq!(warned(None, &job(json!({}))), None);
    assert_eq!(warned(None, &annotated().tap(without_queue())), None);
}

const TOPOLOGY: TopologyGates = TopologyGates { aware: true, multi_layer: true };

fn two_topologies() -> Value {
    let both = json!({names::POD_SET_REQUIRED_TOPOLOGY: "rack", names::POD_SET_PREFERRED_TOPOLOGY: "rack"});
    job(json!({"spec": {"template": {"metadata": {"annotations": both}}}}))
}

#[rstest]
#[case::new_job(None, two_topologies(), JobFacts { topology: TOPOLOGY, ..facts() }, 1)]
#[case::feature_gate_off(None, two_topologies(), facts(), 0)]
#[case::added_on_update(Some(job(json!({}))), two_topologies(), JobFacts { topology: TOPOLOGY, ..facts() }, 1)]
#[case::unchanged_on_update(Some(two_topologies()), two_topologies(), JobFacts { topology: TOPOLOGY, ..facts() }, 0)]
#[case::job_without_queue(None, two_topologies().tap(without_queue()), JobFacts { topology: TOPOLOGY, ..facts() }, 0)]
fn two_topology_annotations_are_denied(
    #[case] old: Option<Value>,
    #[case] job: Value,
    #[case] facts: JobFacts,
    #[case] errors: usize,
) {
    let got = validate_topology(&BatchJob, old.as_ref(), &job, &facts);
    assert_eq!(got.len(), errors, "{got:?}");
}

#[rstest]
#[case::feature_gate_on(JobFacts { topology: TOPOLOGY, ..facts() }, Some("3"))]
#[case::feature_gate_off(facts(), None)]
#[case::unmanaged_namespace(JobFacts { is_namespace_managed: false, topology: TOPOLOGY, ..facts() }, None)]
fn pod_index_label_is_copied(#[case] facts: JobFacts, #[case] want: Option<&str>) {
    let mut pod = pod(json!({
        "labels": {"example.com/index": "3"},
        "annotations": {names::POD_GROUP_POD_INDEX_LABEL: "example.com/index"},
    }));
    default(&Pod, &mut pod, &facts, |_| false);
    assert_eq!(meta::label(&pod, names::POD_GROUP_POD_INDEX), want);
}

fn set(replicas: i32) -> Value {
    job(json!({"spec": {"replicas": replicas}}))
}

#[rstest]
#[case::to_zero(set(3), set(0), true, "")]
#[case::from_zero(set(0), set(3), false, "")]
#[case::from_zero_before_release(
    set(0),
    set(3),
    true,
    "spec.replicas: Forbidden: workload from previous scale-down is still being deleted"
)]
fn scale_up_waits_for_released_quota(
    #[case] old: Value,
    #[case] new: Value,
    #[case] is_releasing_quota: bool,
    #[case] want: &str,
) {
    let kind = switchyard_jobs::kind_for("apps", "StatefulSet").unwrap();
    let errors = validate(kind, Some(&old), &new, &JobFacts { is_releasing_quota, ..facts() });
    assert_eq!(errors.join("\n"), want);
}

#[test]
fn deployment_passes_its_queue_on_at_every_change() {
    let kind = switchyard_jobs::kind_for("apps", "Deployment").unwrap();
    let queue_of_pods = |job: &Value| {
        job.pointer("/spec/template/metadata/labels/kueue.x-k8s.io~1queue-name")
            .cloned()
            .unwrap_or_default()
    };
    let mut web = job(json!({"status": {"readyReplicas": 3}}));
    default(kind, &mut web, &facts(), |_| true);
    assert_eq!(queue_of_pods(&web), "lq");
    let mut moved = web.clone().tap(in_queue("other"));
    default(kind, &mut moved, &facts(), |_| true);
    assert_eq!(queue_of_pods(&moved), "other");
    let mut others = job(json!({}));
    default(kind, &mut others, &JobFacts { has_queued_owner: true, ..facts() }, |_| true);
    assert_eq!(queue_of_pods(&others), Value::Null, "one that a queued job owns");
}

#[test]
fn owners_matter_only_if_the_pod_may_be_queued() {
    let kind = switchyard_jobs::kind_for("", "Pod").unwrap();
    let of = |queue: Option<&str>, facts: JobFacts| {
        let pod = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": queue}}, "spec": {"containers": []}});
        needs_owners(kind, &pod, &JobFacts { is_namespace_managed: true, ..facts })
    };
    assert!(!of(None, JobFacts::default()));
    assert!(of(Some("lq"), JobFacts::default()));
    assert!(of(None, JobFacts { manages_unqueued: true, ..JobFacts::default() }));
    assert!(of(
        None,
        JobFacts { has_default_queue: true, has_enabled_owner: true, ..JobFacts::default() }
    ));
}
