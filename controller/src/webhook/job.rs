//! Webhook rules for jobs, as pure functions: [`default`] at creation, [`validate`] at
//! creation and on updates.

use serde_json::Value;
use switchyard_api::{
    field::{FieldError, Path},
    names,
};
use switchyard_jobs::{
    Around, Held, JobKind, TopologyGates, elastic, is_dns_label, meta, pod, serving::is_sent,
    topology, validate_create, validate_update,
};

/// Facts about the cluster and the job's surroundings that the rules depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Whether Switchyard manages jobs of this namespace.
    pub(super) managed_namespace: bool,
    /// Whether the job's kind is enabled only for objects of other kinds' jobs, and this is not
    /// one.
    pub(super) implied: bool,
    /// Kueue's `manageJobsWithoutQueueName`.
    pub(super) without_queue_name: bool,
    /// Whether the namespace has a LocalQueue `default`.
    pub(super) default_queue: bool,
    /// Whether a WorkloadPriorityClass `default` exists.
    pub(super) default_priority_class: bool,
    /// Whether the job's direct owner is of an enabled kind, queued or not.
    pub(super) owned: bool,
    /// Whether a job above this one is queued in its place.
    pub(super) ruled: bool,
    /// Whether a pod group that is scaled to zero still has quota, or a Workload that is being
    /// deleted.
    pub(super) quota_left: bool,
    /// Whether one of its pod groups has quota, even if none of its pods is ready.
    pub(super) holds_quota: bool,
    /// Whether this is a hub's copy whose Workload is admitted already, so it is created running.
    pub(super) admitted_copy: bool,
    /// Kueue's `ElasticJobsViaWorkloadSlices`: jobs may change their size while they run.
    pub(super) elastic: bool,
    pub(super) topology: TopologyGates,
    /// Kueue's `AdmissionGatedBy` is off: the annotation `admission-gated-by` has no effect.
    pub(super) ignores_admission_gates: bool,
    /// Kueue's `ValidateRayAndSparkJobUpdates` is off: a Ray or Spark job may lose its queue.
    pub(super) lets_ray_and_spark_go: bool,
    /// Kueue's `LWSImmutableGroupSize` is off: the group size of a LeaderWorkerSet may change.
    pub(super) resizes_groups: bool,
}

/// Sets the default queue and priority class, suspends the job if it must wait for admission, and
/// hands it to MultiKueue if its queue dispatches, with or without an owner. `dispatches` gets the
/// queue that the job has by then.
pub(super) fn default(
    kind: &dyn JobKind,
    job: &mut Value,
    facts: &Facts,
    dispatches: impl Fn(&str) -> bool,
) {
    let settled = is_settled(kind, job);
    if !settled && !concerns(kind, job, facts) {
        return;
    }
    let waits = settled || !facts.ruled && fill_in(kind, job, facts);
    // A user's own scheduling gate lacks the managed label, and kinds queued by their pods are
    // never suspended themselves.
    if waits && (kind.held() != Held::Suspended || !kind.is_suspended(job)) && !facts.admitted_copy
    {
        kind.suspend(job);
    }
    let queued = waits || !meta::queue_name(job).is_empty();
    if queued && kind.can_default_managed_by(job) && dispatches(meta::queue_name(job)) {
        kind.set_managed_by(job, Some(names::MULTIKUEUE_CONTROLLER));
    }
    if waits && facts.elastic && elastic::may_be_elastic(kind, job) {
        elastic::gate_pods(kind, job);
    }
    if waits && facts.topology.aware && !facts.admitted_copy {
        kind.apply_topology_defaults(job);
    }
}

/// Whether [`default`] needs to know [`Facts::ruled`].
pub(super) fn may_be_ruled(kind: &dyn JobKind, job: &Value, facts: &Facts) -> bool {
    !is_settled(kind, job) && concerns(kind, job, facts) && may_be_queued(kind, job, facts)
}

/// Whether [`fill_in`] may find that the job is queued.
fn may_be_queued(kind: &dyn JobKind, job: &Value, facts: &Facts) -> bool {
    let defaulted = facts.default_queue && (!facts.owned || kind.held() == Held::Gated);
    !meta::queue_name(job).is_empty() || facts.without_queue_name || defaulted
}

/// Whether an owner holds this pod back already, which settles that it is queued and where.
fn is_settled(kind: &dyn JobKind, job: &Value) -> bool {
    kind.held() == Held::Gated && pod::is_suspended_by_parent(job)
}

/// Whether the job is in scope if it has a queue.
fn concerns(kind: &dyn JobKind, job: &Value, facts: &Facts) -> bool {
    facts.managed_namespace && !facts.implied && !kind.skips(job) && !meta::is_deleting(job)
}

/// Sets the queue and priority class of a job and returns whether it is queued. A job with an owner
/// of an enabled kind needs a queue of its own; a pod may get the default queue, because
/// [`Facts::ruled`] has excluded queued owners.
fn fill_in(kind: &dyn JobKind, job: &mut Value, facts: &Facts) -> bool {
    let defaulted = !facts.owned || kind.held() == Held::Gated;
    if meta::queue_name(job).is_empty() && facts.default_queue && defaulted {
        meta::set_label(job, names::QUEUE_NAME, names::DEFAULT);
    }
    if meta::queue_name(job).is_empty() && !facts.without_queue_name {
        return false;
    }
    // A hub's copy keeps the hub's priority.
    let classed = facts.owned || is_sent(job) || !meta::workload_priority_class(job).is_empty();
    if facts.default_priority_class && !classed {
        meta::set_label(job, names::PRIORITY_CLASS, names::DEFAULT);
    }
    true
}

/// The validation errors of a job. Jobs that Switchyard does not manage pass.
pub(super) fn validate(
    kind: &dyn JobKind,
    old: Option<&Value>,
    job: &Value,
    facts: &Facts,
) -> Vec<String> {
    if !is_checked(kind, old, job, facts) {
        return Vec::new();
    }
    let mut errors = match old {
        None => validate_create(kind, job),
        Some(old) => {
            let Facts { default_queue, elastic, holds_quota, .. } = *facts;
            validate_update(kind, old, job, Around { default_queue, elastic, holds_quota })
        }
    };
    if facts.resizes_groups {
        let path = Path::new("spec").child("leaderWorkerTemplate").child("size").to_string();
        errors.retain(|error| error.path != path);
    }
    if facts.ignores_admission_gates {
        let path = meta::annotation_path(names::ADMISSION_GATED_BY).to_string();
        errors.retain(|error| error.path != path);
    }
    if facts.elastic {
        errors.extend(elastic::validate(kind, old, job));
    }
    errors.extend(elastic::validate_autoscaling(kind, job, facts.elastic));
    if let Some(old) = old.filter(|_| facts.quota_left) {
        errors.extend(comes_back_early(old, job));
    }
    errors.iter().map(ToString::to_string).collect()
}

/// The errors in the topology that a job requests. `old` and `job` carry the objects that their
/// pods depend on. Errors that `old` has too pass, because starting and stopping are updates.
pub(super) fn validate_topology(
    kind: &dyn JobKind,
    old: Option<&Value>,
    job: &Value,
    facts: &Facts,
) -> Vec<String> {
    if !is_checked(kind, old, job, facts) {
        return Vec::new();
    }
    let wrong = |job: &Value| topology::validate(kind, job, facts.topology, facts.elastic);
    let before = old.map(wrong).unwrap_or_default();
    wrong(job).iter().filter(|error| !before.contains(error)).map(ToString::to_string).collect()
}

/// Whether the job is queued or was, and is not being deleted.
fn is_checked(kind: &dyn JobKind, old: Option<&Value>, job: &Value, facts: &Facts) -> bool {
    let ours =
        |job: &Value| facts.without_queue_name || meta::label(job, names::QUEUE_NAME).is_some();
    let was_ours = old.is_some_and(ours) && !(facts.lets_ray_and_spark_go && is_ray_or_spark(kind));
    let prebuilt = !meta::prebuilt_workload_name(job).is_empty();
    // The controller of another kind owns these pods' object and may change it freely.
    let of_another = kind.held() == Held::ByPods && (facts.ruled || kind.skips(job));
    facts.managed_namespace
        && !facts.implied
        && !meta::is_deleting(job)
        && !of_another
        && (ours(job) || was_ours || prebuilt)
}

fn is_ray_or_spark(kind: &dyn JobKind) -> bool {
    ["ray.io", "sparkoperator.k8s.io"].contains(&kind.id().group)
}

/// The queue that a job names by annotation, as in Kueue 0.1. A job with a controller follows its
/// owner instead.
fn annotated_queue(job: &Value) -> Option<&str> {
    let queue = meta::annotation(job, names::QUEUE_NAME).filter(|queue| is_dns_label(queue))?;
    meta::controller_of(job).is_none().then_some(queue)
}

/// The job with the label that its annotation stands for. `None` if it has a label or names no
/// queue.
pub(super) fn with_annotated_queue(job: &Value) -> Option<Value> {
    let queue = annotated_queue(job).filter(|_| meta::label(job, names::QUEUE_NAME).is_none())?;
    let mut labelled = job.clone();
    meta::set_label(&mut labelled, names::QUEUE_NAME, queue);
    Some(labelled)
}

/// The warning about a new job that names its queue by annotation.
pub(super) fn annotation_warning(old: Option<&Value>, job: &Value) -> Option<String> {
    let queue =
        annotated_queue(job).filter(|queue| old.is_none() && meta::queue_name(job) == *queue)?;
    Some(format!(
        "annotation {name} is of Kueue 0.1: the job has the label {name}={queue} for it; name the queue by that label",
        name = names::QUEUE_NAME
    ))
}

/// The warning about a job that passes validation.
pub(super) fn warning(
    kind: &dyn JobKind,
    old: Option<&Value>,
    job: &Value,
    facts: &Facts,
) -> Option<String> {
    let without_effect = || ignored(old, job).filter(|_| facts.managed_namespace && !facts.implied);
    odd_pod(kind, old, job, facts).or_else(without_effect)
}

/// Annotations of a queued job or its pods that later Kueue releases support and Switchyard does
/// not. Reported when they are added.
fn ignored(old: Option<&Value>, job: &Value) -> Option<String> {
    const LATER: [&str; 3] = [
        names::WAIT_FOR_PODS_READY,
        names::POD_GROUP_MAX_NOT_READY_COUNT,
        names::PODSET_TOPOLOGY_SPREADING,
    ];
    let has = |job: &Value, key: &str| {
        let template = job.pointer("/spec/template").unwrap_or(&Value::Null);
        meta::annotation(job, key).is_some() || meta::annotation(template, key).is_some()
    };
    let comes = |key: &&&str| has(job, key) && !old.is_some_and(|old| has(old, key));
    let keys: Vec<&str> = LATER.iter().filter(comes).copied().collect();
    let queued = !meta::queue_name(job).is_empty() && !keys.is_empty();
    queued.then(|| format!("Switchyard does not heed {}: it is of a later Kueue", keys.join(", ")))
}

/// Warns about a pod that is marked as managed although its owner may be queued. On updates of a
/// pod that its owner holds back, this is settled.
fn odd_pod(kind: &dyn JobKind, old: Option<&Value>, job: &Value, facts: &Facts) -> Option<String> {
    let marked = kind.held() == Held::Gated && meta::label(job, names::MANAGED) == Some("true");
    let looked_at =
        facts.managed_namespace && !facts.implied && !(old.is_some() && is_settled(kind, job));
    (marked && looked_at && facts.owned).then(|| {
        format!(
            "pod owner is managed by kueue, label '{}=true' might lead to unexpected behaviour",
            names::MANAGED
        )
    })
}

/// Forbids scaling up from zero while the quota of the previous pods is still held.
fn comes_back_early(old: &Value, new: &Value) -> Option<FieldError> {
    let replicas =
        |object: &Value| object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
    let path = Path::new("spec").child("replicas");
    let detail = "workload from previous scale-down is still being deleted";
    (replicas(old) == 0 && replicas(new) > 0).then(|| FieldError::forbidden(&path, detail))
}

#[cfg(test)]
mod tests {
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

    fn facts() -> Facts {
        Facts { managed_namespace: true, ..Facts::default() }
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
    #[case::job_without_queue_if_all_are_managed(job(without_queue()), Facts { without_queue_name: true, ..facts() }, json!([null, null, true, null]))]
    #[case::job_without_queue_gets_default_queue(job(without_queue()), Facts { default_queue: true, ..facts() }, json!(["default", null, true, null]))]
    #[case::unmanaged_namespace(job(json!({})), Facts::default(), json!(["lq", null, null, null]))]
    #[case::unmanaged_namespace_gets_no_class(job(json!({})), Facts { default_priority_class: true, ..Facts::default() }, json!(["lq", null, null, null]))]
    #[case::job_below_a_queued_job(job(json!({})), Facts { owned: true, ruled: true, ..facts() }, json!(["lq", null, null, null]))]
    #[case::queued_job_below_an_unqueued_owner(job(json!({})), Facts { owned: true, ..facts() }, json!(["lq", null, true, null]))]
    #[case::job_below_an_unqueued_owner_gets_no_defaults(job(without_queue()), Facts { owned: true, default_queue: true, default_priority_class: true, ..facts() }, json!([null, null, null, null]))]
    #[case::job_below_a_queued_job_gets_no_defaults(job(without_queue()), Facts { ruled: true, default_queue: true, without_queue_name: true, ..facts() }, json!([null, null, null, null]))]
    #[case::job_below_a_queued_job_is_dispatched(job(in_queue("dispatching")), Facts { owned: true, ruled: true, ..facts() }, json!(["dispatching", null, null, "kueue.x-k8s.io/multikueue"]))]
    #[case::default_priority_class(job(json!({})), Facts { default_priority_class: true, ..facts() }, json!(["lq", "default", true, null]))]
    #[case::named_priority_class_stays(job(json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}})), Facts { default_priority_class: true, ..facts() }, json!(["lq", "high", true, null]))]
    #[case::copy_gets_no_class(job(sent()), Facts { default_priority_class: true, ..facts() }, json!(["lq", null, true, null]))]
    #[case::admitted_copy_runs(job(json!({})), Facts { admitted_copy: true, ..facts() }, json!(["lq", null, null, null]))]
    #[case::dispatched_job(job(in_queue("dispatching")), facts(), json!(["dispatching", null, true, "kueue.x-k8s.io/multikueue"]))]
    #[case::job_managed_by_another_controller(job(in_queue("dispatching")).tap(json!({"spec": {"managedBy": "example.com/x"}})), facts(), json!(["dispatching", null, true, "example.com/x"]))]
    fn job_is_defaulted(#[case] mut job: Value, #[case] facts: Facts, #[case] want: Value) {
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
        job(json!({"metadata": {"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}}))
            .tap(change)
    }

    #[rstest]
    #[case::elastic_job(elastic(json!({})), Facts { elastic: true, ..facts() }, true)]
    #[case::feature_gate_off(elastic(json!({})), facts(), false)]
    #[case::ordinary_job(job(json!({})), Facts { elastic: true, ..facts() }, false)]
    #[case::elastic_job_without_queue(elastic(without_queue()), Facts { elastic: true, ..facts() }, false)]
    #[case::dispatched_elastic_job(elastic(in_queue("dispatching")), Facts { elastic: true, ..facts() }, false)]
    fn elastic_jobs_pods_are_gated(
        #[case] mut job: Value,
        #[case] facts: Facts,
        #[case] gated: bool,
    ) {
        default(&BatchJob, &mut job, &facts, |queue| queue == "dispatching");
        let gate = json!([{"name": "kueue.x-k8s.io/elastic-job"}]);
        assert_eq!(job.pointer("/spec/template/spec/schedulingGates") == Some(&gate), gated);
    }

    #[test]
    fn elastic_annotation_is_immutable() {
        let errors = |elastic_jobs| {
            let facts = Facts { elastic: elastic_jobs, ..facts() };
            validate(&BatchJob, Some(&job(json!({}))), &elastic(json!({})), &facts).len()
        };
        assert_eq!((errors(true), errors(false)), (1, 0));
    }

    #[test]
    fn job_on_an_existing_ray_cluster_is_not_suspended() {
        let kind = switchyard_jobs::kind_for("ray.io", "RayJob").unwrap();
        let on_a_cluster_of_its_own = job(json!({"spec": {"rayClusterSpec": {}}}));
        let on_one_that_is_there =
            job(json!({"spec": {"clusterSelector": {"ray.io/cluster": "c"}}}));
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
    #[case::invalid_admission_gate_with_feature_off(Some(job(json!({}))), job(gate("no gate")), Facts { ignores_admission_gates: true, ..facts() }, 0)]
    #[case::invalid_job_without_queue(None, job(bad()).tap(without_queue()), facts(), 0)]
    #[case::unmanaged_namespace(None, job(bad()), Facts::default(), 0)]
    #[case::invalid_job_loses_its_queue(Some(job(json!({}))), job(bad()).tap(without_queue()), facts(), 2)]
    #[case::invalid_job_being_deleted(Some(job(json!({}))), job(bad()).tap(json!({"metadata": {"deletionTimestamp": "x"}})), facts(), 0)]
    fn job_is_validated(
        #[case] old: Option<Value>,
        #[case] job: Value,
        #[case] facts: Facts,
        #[case] errors: usize,
    ) {
        let got = validate(&BatchJob, old.as_ref(), &job, &facts);
        assert_eq!(got.len(), errors, "{got:?}");
    }

    #[test]
    fn disabled_feature_gates_skip_validation() {
        let kind = |group: &str, kind: &str| switchyard_jobs::kind_for(group, kind).unwrap();
        let errors = |kind: &dyn JobKind, old: &Value, new: &Value, facts: &Facts| {
            validate(kind, Some(old), new, facts)
        };

        let head = json!({"template": {"spec": {"containers": [{"name": "head"}]}}});
        let running = job(json!({"spec": {"suspend": false, "headGroupSpec": head}}));
        let ray = kind("ray.io", "RayCluster");
        let lost = running.clone().tap(without_queue());
        assert_eq!(errors(ray, &running, &lost, &facts()).len(), 1, "its queue is settled");
        let off = Facts { lets_ray_and_spark_go: true, ..facts() };
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
            errors(groups, &set(2), &set(3), &Facts { resizes_groups: true, ..facts() }).is_empty()
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
    #[case::pod_of_a_queued_job(pod(json!({})), Facts { owned: true, ruled: true, ..facts() }, false)]
    #[case::pod_of_an_unqueued_job_gets_default_queue(pod(json!({"labels": null})), Facts { owned: true, default_queue: true, ..facts() }, true)]
    #[case::plain_pod_of_an_implied_kind(pod(json!({})), Facts { implied: true, ..facts() }, false)]
    #[case::unmanaged_namespace(pod(json!({})), Facts::default(), false)]
    #[case::pod_held_by_its_owner(pod(json!({"labels": null, "annotations": {"kueue.x-k8s.io/pod-suspending-parent": "deployment"}})), Facts::default(), true)]
    #[case::admitted_copy(pod(json!({})), Facts { admitted_copy: true, ..facts() }, false)]
    fn pod_is_gated(#[case] mut pod: Value, #[case] facts: Facts, #[case] gated: bool) {
        default(&Pod, &mut pod, &facts, |_| true);
        let gate = json!([{"name": "kueue.x-k8s.io/admission"}]);
        assert_eq!(pod.pointer("/spec/schedulingGates") == Some(&gate), gated, "{pod}");
        assert_eq!(meta::label(&pod, names::MANAGED).is_some(), gated);
    }

    #[test]
    fn managed_label_below_a_managed_owner_is_warned_of() {
        let warned = |old: Option<&Value>, metadata: Value, owned: bool| {
            warning(&Pod, old, &pod(metadata), &Facts { owned, ..facts() }).is_some()
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
    #[case::new_job(None, two_topologies(), Facts { topology: TOPOLOGY, ..facts() }, 1)]
    #[case::feature_gate_off(None, two_topologies(), facts(), 0)]
    #[case::added_on_update(Some(job(json!({}))), two_topologies(), Facts { topology: TOPOLOGY, ..facts() }, 1)]
    #[case::unchanged_on_update(Some(two_topologies()), two_topologies(), Facts { topology: TOPOLOGY, ..facts() }, 0)]
    #[case::job_without_queue(None, two_topologies().tap(without_queue()), Facts { topology: TOPOLOGY, ..facts() }, 0)]
    fn two_topology_annotations_are_denied(
        #[case] old: Option<Value>,
        #[case] job: Value,
        #[case] facts: Facts,
        #[case] errors: usize,
    ) {
        let got = validate_topology(&BatchJob, old.as_ref(), &job, &facts);
        assert_eq!(got.len(), errors, "{got:?}");
    }

    #[rstest]
    #[case::feature_gate_on(Facts { topology: TOPOLOGY, ..facts() }, Some("3"))]
    #[case::feature_gate_off(facts(), None)]
    #[case::unmanaged_namespace(Facts { managed_namespace: false, topology: TOPOLOGY, ..facts() }, None)]
    fn pod_index_label_is_copied(#[case] facts: Facts, #[case] want: Option<&str>) {
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
        #[case] quota_left: bool,
        #[case] want: &str,
    ) {
        let kind = switchyard_jobs::kind_for("apps", "StatefulSet").unwrap();
        let errors = validate(kind, Some(&old), &new, &Facts { quota_left, ..facts() });
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
        default(kind, &mut others, &Facts { ruled: true, ..facts() }, |_| true);
        assert_eq!(queue_of_pods(&others), Value::Null, "one that a queued job owns");
    }

    #[test]
    fn owners_matter_only_if_the_pod_may_be_queued() {
        let kind = switchyard_jobs::kind_for("", "Pod").unwrap();
        let of = |queue: Option<&str>, facts: Facts| {
            let pod = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": queue}}, "spec": {"containers": []}});
            may_be_ruled(kind, &pod, &Facts { managed_namespace: true, ..facts })
        };
        assert!(!of(None, Facts::default()));
        assert!(of(Some("lq"), Facts::default()));
        assert!(of(None, Facts { without_queue_name: true, ..Facts::default() }));
        assert!(of(None, Facts { default_queue: true, owned: true, ..Facts::default() }));
    }
}
