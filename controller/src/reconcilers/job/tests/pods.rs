//! Pods, alone and in groups.

mod shape;

use rstest::rstest;
use switchyard_api::v1beta2::DispatchStatus;
use switchyard_jobs::{Grouped as _, pod::Pod};

use super::*;
use crate::reconcilers::job::group;

/// Pod `ns/NAME` in queue `lq` as the webhook lets it be created.
struct TestPod(Value);

fn pod(name: &str) -> TestPod {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "resourceVersion": "7",
            "creationTimestamp": "2026-11-21T09:00:00Z", "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending"},
    });
    Pod.suspend(&mut pod);
    TestPod(pod)
}

impl TestPod {
    fn with(mut self, patch: Value) -> Self {
        apply_merge(&mut self.0, &patch);
        self
    }

    fn of_group(self, count: &str) -> Self {
        self.with(json!({"metadata": {
            "labels": {"kueue.x-k8s.io/pod-group-name": "g"},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": count},
        }}))
    }

    fn role(self, role: &str) -> Self {
        self.with(json!({"metadata": {"annotations": {"kueue.x-k8s.io/role-hash": role}}}))
    }

    fn phase(self, phase: &str) -> Self {
        let gates = if phase == "Pending" {
            json!([{"name": "kueue.x-k8s.io/admission"}])
        } else {
            json!([])
        };
        self.with(json!({"spec": {"schedulingGates": gates, "nodeName": "n"}, "status": {"phase": phase}}))
    }

    fn created(self, time: &str) -> Self {
        self.with(json!({"metadata": {"creationTimestamp": format!("2026-11-21T{time}:00Z")}}))
    }

    fn deleting(self) -> Self {
        self.with(json!({"metadata": {"deletionTimestamp": "2026-11-21T09:59:59Z", "deletionGracePeriodSeconds": 30}}))
    }

    fn alone(self) -> World {
        World { kind: &Pod, ..world(TestJob(self.0)) }
    }

    fn workload(&self) -> TestWorkload {
        workload(&self.0)
    }
}

fn workload(job: &Value) -> TestWorkload {
    let pod_sets = job_pod_sets(&Pod, job).unwrap();
    let mut workload =
        build_workload(&Pod, job, pod_sets, &Priority::default(), BuildOptions::default());
    workload.metadata.uid = Some("workload-uid".into());
    workload.metadata.resource_version = Some("3".into());
    TestWorkload(workload)
}

fn group(pods: impl IntoIterator<Item = TestPod>) -> Value {
    Pod.compose(pods.into_iter().map(|pod| pod.0).collect())
}

fn world_of(group: &Value) -> World {
    World { kind: &Pod, ..world(TestJob(group.clone())) }
}

impl World {
    /// With the workload that has the group's name.
    fn named(mut self, workload: TestWorkload) -> Self {
        self.prebuilt = Prebuilt::Found(Arc::new(workload.0));
        self
    }
}

#[test]
fn pod_gets_a_workload_starts_and_is_released() {
    let created = pod("a").alone().decide();
    let [Action::CreateWorkload(workload), _] = created.actions.as_slice() else {
        panic!("{created:?}")
    };
    assert!(workload.metadata.name.as_deref().unwrap().starts_with("pod-a-"));
    assert_eq!(
        (workload.spec.pod_sets[0].name.as_str(), workload.spec.pod_sets[0].count),
        ("main", 1)
    );
    let waiting = pod("a").alone().workload(pod("a").workload());
    assert_eq!(waiting.told(), "");

    let starting = pod("a").alone().workload(pod("a").workload().admitted());
    insta::assert_snapshot!(starting.told(), @r#"
    pod a {"metadata":{"annotations":{"kueue.x-k8s.io/workload":"pod-a-5b54b"},"labels":{"kueue.x-k8s.io/cluster-queue-name":"cq","kueue.x-k8s.io/local-queue-name":"lq","kueue.x-k8s.io/podset":"main"}},"spec":{"nodeSelector":{"accelerator":"a100"},"schedulingGates":[]}}
    Normal Started: Admitted by clusterQueue cq
    "#);

    let ended = pod("a").phase("Succeeded");
    let finishing = TestPod(ended.0.clone()).alone().workload(pod("a").workload().admitted());
    insta::assert_snapshot!(finishing.told(), @r#"
    workload status {"conditions":["Finished=True/Succeeded: "]}
    Normal FinishedWorkload: Workload 'ns/pod-a-5b54b' is declared finished
    "#);
    let releasing = ended.alone().workload(pod("a").workload().admitted().finished());
    assert_eq!(releasing.told(), r#"pod a {"metadata":{"finalizers":[]}}"#);
}

#[rstest]
#[case::evicted(pod("a").workload().admitted().evicted(), "end a for WorkloadEvictedDueToPreempted: Preempted to accommodate another")]
#[case::not_admitted(pod("a").workload(), "end a for NotAdmitted: Not admitted by cluster queue")]
#[case::its_workload_deleted(pod("a").workload().admitted().deleting(), "end a for WorkloadDeleted: Workload is deleted")]
fn running_pod_without_quota_is_deleted(#[case] workload: TestWorkload, #[case] want: &str) {
    let running = pod("a").phase("Running").alone().workload(workload);
    assert_eq!(running.told().lines().next(), Some(want));
}

#[test]
fn running_pod_without_a_workload_is_deleted() {
    let told = pod("a").phase("Running").alone().told();
    assert!(told.starts_with("end a for NoMatchingWorkload: Missing Workload"), "{told}");
}

#[rstest]
#[case::within_its_grace_period(pod("a").phase("Running").deleting(), false, false)]
#[case::fast_quota_release(pod("a").phase("Running").deleting(), true, true)]
#[case::after_its_grace_period(
    pod("a").phase("Running").deleting().with(json!({"metadata": {"deletionGracePeriodSeconds": 0}})), false, true
)]
#[case::ended(pod("a").phase("Failed").deleting(), false, true)]
#[case::never_ran(pod("a").deleting(), false, true)]
fn terminating_pod_is_charged_until_its_end(
    #[case] pod: TestPod,
    #[case] fast: bool,
    #[case] free: bool,
) {
    let admitted = TestPod(pod.0.clone()).workload().admitted();
    let world = World { releases_fast: fast, ..pod.alone() }.workload(admitted);
    let told = world.told();
    if free {
        assert!(
            told.contains("Finished=True/OwnerNotFound") && told.contains("\"finalizers\":[]"),
            "{told}"
        );
    } else {
        assert_eq!(told, "again after 29s");
    }
}

#[test]
fn complete_group_gets_one_workload() {
    let few = group([pod("a").of_group("3").role("x"), pod("b").of_group("3").role("y")]);
    assert_eq!(
        world_of(&few).told(),
        "Warning ErrWorkloadCompose: 'g' group has fewer runnable pods than expected"
    );
    let all = group(
        ["a", "b", "c"]
            .map(|name| pod(name).of_group("3").role(if name == "b" { "y" } else { "x" })),
    );
    let decision = world_of(&all).decide();
    let [Action::CreateWorkload(workload), _] = decision.actions.as_slice() else {
        panic!("{decision:?}")
    };
    let sets: Vec<_> =
        workload.spec.pod_sets.iter().map(|it| (it.name.as_str(), it.count)).collect();
    assert_eq!((workload.metadata.name.as_deref(), sets), (Some("g"), vec![("x", 2), ("y", 1)]));
    assert_eq!(workload.metadata.owner_references.as_ref().unwrap().len(), 3);
    assert_eq!(
        workload.metadata.annotations.as_ref().unwrap()["kueue.x-k8s.io/is-group-workload"],
        "true"
    );
    assert!(
        workload.metadata.owner_references.iter().flatten().all(|owner| owner.controller.is_none())
    );
}

#[rstest]
#[case::of_another_queue(json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}), "pods 'a' and 'b' has different queue names: lq!=other")]
#[case::of_another_count(json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-total-count": "3"}}}), "pods 'a' and 'b' has different 'kueue.x-k8s.io/pod-group-total-count' values: 2!=3")]
fn conflicting_pods_of_a_group_get_an_event(#[case] second: Value, #[case] want: &str) {
    let group = group([pod("a").of_group("2"), pod("b").of_group("2").with(second)]);
    assert_eq!(world_of(&group).told(), format!("Warning ErrWorkloadCompose: {want}"));
}

#[test]
fn excess_pods_are_deleted_youngest_first() {
    let pods = [("a", "09:02"), ("b", "09:01"), ("c", "09:00")];
    let group = group(pods.map(|(name, time)| pod(name).of_group("2").created(time)));
    let told = world_of(&group).told();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[..2], [r#"pod a {"metadata":{"finalizers":[]}}"#, "end a"], "{told}");
    assert!(lines.contains(&"create g"), "{told}");
    assert!(lines.contains(&"tell a: ExcessPodDeleted: Excess pod deleted"), "{told}");
}

fn pair() -> [TestPod; 2] {
    ["a", "b"].map(|name| pod(name).of_group("2").role("x"))
}

#[test]
fn admitted_group_starts_whole() {
    let group = group(pair());
    let told = world_of(&group).named(workload(&group).admitted()).told();
    insta::assert_snapshot!(told, @r#"
    pod a {"metadata":{"annotations":{"kueue.x-k8s.io/workload":"g"},"labels":{"kueue.x-k8s.io/cluster-queue-name":"cq","kueue.x-k8s.io/local-queue-name":"lq","kueue.x-k8s.io/podset":"x"}},"spec":{"nodeSelector":{"accelerator":"a100"},"schedulingGates":[]}}
    pod b {"metadata":{"annotations":{"kueue.x-k8s.io/workload":"g"},"labels":{"kueue.x-k8s.io/cluster-queue-name":"cq","kueue.x-k8s.io/local-queue-name":"lq","kueue.x-k8s.io/podset":"x"}},"spec":{"nodeSelector":{"accelerator":"a100"},"schedulingGates":[]}}
    tell a, b: Started: Admitted by clusterQueue cq
    "#);
}

/// A user's Workload may have a pod set of that name for smaller pods.
#[rstest]
#[case::equal_to_its_charge("1", false)]
#[case::above_its_charge("8", true)]
fn group_above_its_charge_does_not_start(#[case] cpu: &str, #[case] refused: bool) {
    let [a, b] = pair();
    let asks =
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
    let pods = group([a, b.with(asks)]);
    let admitted = workload(&group(pair())).admitted();
    let told = World { too_much: Some("8"), ..world_of(&pods).named(admitted) }.told();
    assert_eq!(told.contains("schedulingGates"), !refused, "{told}");
    let want = "Finished=True/OutOfSync: Pod \"b\" asks for more cpu than quota was reserved for";
    assert_eq!(told.contains(&want.replace('"', "\\\"")) || told.contains(want), refused, "{told}");
}

#[test]
fn only_ungated_pods_of_a_group_get_an_event() {
    let admitted = workload(&group(pair())).admitted();
    let [a, b] = pair();
    let told = world_of(&group([a.phase("Running"), b])).named(admitted).told();
    assert_eq!(told.lines().last(), Some("tell b: Started: Admitted by clusterQueue cq"), "{told}");
}

#[test]
fn failed_pod_is_kept_until_replaced() {
    let admitted = || workload(&group(pair())).admitted();
    let [a, b] = pair();
    let failed = group([a.phase("Running"), b.phase("Failed")]);
    insta::assert_snapshot!(world_of(&failed).named(admitted()).told(), @r#"workload status {"conditions":["WaitingForReplacementPods=True/PodsFailed: Some Failed pods need replacement"]}"#);

    let [a, b] = pair();
    let third = pod("c").of_group("2").role("x");
    let replaced = group([a.phase("Running"), b.phase("Failed"), third]);
    let told = world_of(&replaced).named(admitted()).told();
    insta::assert_snapshot!(told, @r#"
    workload {"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"uid-a"},{"apiVersion":"v1","kind":"Pod","name":"b","uid":"uid-b"},{"apiVersion":"v1","kind":"Pod","name":"c","uid":"uid-c"}]}}
    tell g: OwnerReferencesAdded: Added 1 owner reference(s)
    pod b {"metadata":{"finalizers":[]}}
    "#);
}

#[test]
fn evicted_group_keeps_quota_until_nothing_runs() {
    let evicted = || workload(&group(pair())).admitted().evicted();
    let running = group(pair().map(|pod| pod.phase("Running")));
    let told = world_of(&running).named(evicted()).told();
    assert!(told.starts_with("end a, b for WorkloadEvictedDueToPreempted"), "{told}");
    assert!(told.ends_with("tell a, b: Stopped: Preempted to accommodate another"), "{told}");

    let ending = group(pair().map(|pod| pod.phase("Running").deleting()));
    assert_eq!(
        world_of(&ending).named(evicted()).told(),
        "again after 29s",
        "its grace is not over"
    );
    let at_once = World { releases_fast: true, ..world_of(&ending).named(evicted()) }.told();
    assert!(at_once.contains("QuotaReserved=False"), "{at_once}");
    let gone = group(pair().map(|pod| pod.phase("Failed").deleting()));
    let told = world_of(&gone).named(evicted()).told();
    assert!(told.contains("WaitingForReplacementPods=True/Preempted"), "{told}");
}

fn serving() -> [TestPod; 2] {
    pair().map(|pod| {
        pod.with(json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-serving": "true"}}}))
    })
}

fn serving_named(name: &str) -> TestPod {
    let [pod, _] = serving();
    pod.with(json!({"metadata": {"name": name, "uid": format!("uid-{name}")}}))
}

#[rstest]
#[case::failed("Failed")]
#[case::succeeded("Succeeded")]
fn evicted_serving_pods_that_ended_are_released(#[case] phase: &str) {
    let evicted = || workload(&group(serving())).admitted().evicted();
    let running = group(serving().map(|pod| pod.phase("Running").deleting()));
    assert!(!world_of(&running).named(evicted()).told().contains("finalizers"), "they run still");

    let ended = serving().map(|pod| pod.phase(phase).deleting());
    let told = world_of(&group(ended)).named(evicted()).told();
    let let_go =
        "pod a {\"metadata\":{\"finalizers\":[]}}\npod b {\"metadata\":{\"finalizers\":[]}}";
    assert_eq!(told, let_go, "what makes them anew may need their names");

    let working = pair().map(|pod| pod.phase("Failed").deleting());
    let told = world_of(&group(working)).named(workload(&group(pair())).admitted()).told();
    assert!(
        !told.contains("finalizers"),
        "the end of a pod that works is awaited by its group: {told}"
    );
}

#[test]
fn replacement_pod_waits_until_the_first_has_ended() {
    let [a, b] = serving();
    let admitted = || workload(&group(serving())).admitted();
    let ending = group([a.phase("Running"), b.phase("Running").deleting(), serving_named("c")]);
    let told = world_of(&ending).named(admitted()).told();
    assert_eq!(
        told.lines().last(),
        Some("tell g: OwnerReferencesAdded: Added 1 owner reference(s)"),
        "{told}"
    );
    assert!(told.contains("uid-c") && !told.contains("pod c") && !told.contains("end c"), "{told}");

    let [a, b] = serving();
    let ended = group([a.phase("Running"), b.phase("Succeeded").deleting(), serving_named("c")]);
    let mut owned = admitted();
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "c", "uid": "uid-c"});
    owned
        .0
        .metadata
        .owner_references
        .get_or_insert_default()
        .push(serde_json::from_value(owner).unwrap());
    assert_eq!(world_of(&ended).named(owned).told(), r#"pod b {"metadata":{"finalizers":[]}}"#);
}

#[test]
fn terminating_group_gets_no_workload() {
    let going = group(pair().map(|pod| pod.phase("Pending").deleting()));
    let let_go =
        "pod a {\"metadata\":{\"finalizers\":[]}}\npod b {\"metadata\":{\"finalizers\":[]}}";
    assert_eq!(world_of(&going).told(), let_go);
    let [a, b] = pair();
    let others = group([a.phase("Pending").deleting(), b, pod("c").of_group("2").role("x")]);
    let told = world_of(&others).told();
    assert!(told.starts_with("pod a {\"metadata\":{\"finalizers\":[]}}\ncreate g\n"), "{told}");
}

#[rstest]
#[case::all_succeeded(["Succeeded", "Succeeded"], json!(null), Some("Succeeded: Pods succeeded: 2/2."))]
#[case::one_missing(["Succeeded", "Running"], json!(null), None)]
#[case::one_failed_replaceable(["Succeeded", "Failed"], json!(null), None)]
#[case::one_failed_for_good(["Succeeded", "Failed"], json!("false"), Some("Succeeded: Pods succeeded: 1/2."))]
fn group_ends_with_its_pods(
    #[case] phases: [&str; 2],
    #[case] retriable: Value,
    #[case] want: Option<&str>,
) {
    let admitted = workload(&group(pair())).admitted().status(|edit| {
        if phases.contains(&"Failed") {
            edit.set(conditions::WAITING_FOR_REPLACEMENT_PODS, true, "PodsFailed", "said before");
        }
    });
    let mut phases = phases.into_iter();
    let patch =
        json!({"metadata": {"annotations": {"kueue.x-k8s.io/retriable-in-group": retriable}}});
    let group = group(pair().map(|pod| pod.phase(phases.next().unwrap()).with(patch.clone())));
    let told = world_of(&group).named(admitted).told();
    match want {
        Some(want) => assert!(told.contains(&format!("Finished=True/{want}")), "{told}"),
        None => assert!(!told.contains("Finished"), "{told}"),
    }
}

#[test]
fn group_ignores_the_workload_of_another_job() {
    let group = group(pair());
    let other = job().workload().named("g");
    assert_eq!(
        world_of(&group).named(other).told(),
        "Warning WorkloadNameConflict: A Workload named \"g\" already exists but is not a pod group workload; this pod group cannot be admitted"
    );
}

#[test]
fn workload_of_a_group_ends_with_its_last_pod() {
    let world = World { kind: &Pod, job: None, ..world(job()) };
    let told = world.workload(workload(&group(pair())).admitted()).told();
    assert!(told.contains("Finished=True/OwnerNotFound"), "{told}");
}

#[test]
fn dispatched_group_is_not_started_on_the_hub() {
    let group = group(pair());
    let told = |group_owner: Option<(&str, &str)>| {
        let mut workload = workload(&group).admitted();
        let group_owner = group_owner.map(
            |(version, kind)| json!({"apiVersion": version, "kind": kind, "name": "a", "uid": "u"}),
        );
        let group_owner =
            group_owner.map(|group_owner| serde_json::from_value(group_owner).unwrap());
        workload.0.metadata.owner_references.get_or_insert_default().extend(group_owner);
        World { role: Role::Hub, check: Some("mk"), ..world_of(&group) }.named(workload).told()
    };
    for group_owner in [
        None,
        Some(("apps/v1", "StatefulSet")),
        Some(("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")),
    ] {
        assert_eq!(told(group_owner), "", "{group_owner:?}");
    }
}

#[test]
fn dispatched_group_ends_on_its_worker_only() {
    let told = |second: &str, sent: bool| {
        let [a, b] = pair();
        let group = group([a.phase("Succeeded"), b.phase(second)]);
        let mut workload = workload(&group).admitted();
        workload.0.status.get_or_insert_default().dispatch =
            sent.then(|| DispatchStatus { attempt: 2, ..DispatchStatus::default() });
        World { role: Role::Hub, check: Some("mk"), ..world_of(&group) }.named(workload).told()
    };
    assert_eq!(told("Pending", true), "");
    assert_eq!(told("Succeeded", true), "", "one of them may run again there");
    assert!(told("Succeeded", false).contains("FinishedWorkload"));
}

#[test]
fn deleted_pods_of_a_hubs_group_are_released() {
    let named = json!({"metadata": {"labels": {"kueue.x-k8s.io/prebuilt-workload-name": "g"}}});
    let [first, second] = pair().map(|pod| pod.with(named.clone()).phase("Running"));
    let one_goes = group([first, second.deleting()]);
    let told = |copy: bool| {
        let mut workload = workload(&one_goes).admitted();
        if copy {
            let annotations = workload.0.metadata.annotations.get_or_insert_default();
            annotations.insert("switchyard.dev/workload-uid".into(), "w".into());
        }
        world_of(&one_goes).named(workload).told()
    };
    assert_eq!(told(true), r#"pod b {"metadata":{"finalizers":[]}}"#);
    assert_eq!(told(false), "", "a user's own waits for another in its place");
    let missing = World { prebuilt: Prebuilt::Missing, ..world_of(&one_goes) };
    assert!(missing.told().starts_with("end a for NoMatchingWorkload"), "{}", missing.told());
    let [first, second] = pair().map(|pod| pod.with(named.clone()).phase("Running").deleting());
    let missing = World { prebuilt: Prebuilt::Missing, ..world_of(&group([first, second])) };
    let told = missing.told();
    assert!(
        told.contains("pod a") && told.contains("pod b") && told.contains("finalizers"),
        "{told}"
    );
}

#[rstest]
#[case::owned_by_its_pods(None, true)]
#[case::before_its_pods(Some(Vec::new()), false)]
#[case::owned_by_a_set(Some(vec![json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "a", "uid": "u"})]), false)]
fn workload_of_a_group_without_pods_is_finished(
    #[case] owners: Option<Vec<Value>>,
    #[case] ends: bool,
) {
    let mut of_group = workload(&group(pair())).admitted();
    if let Some(owners) = owners {
        of_group.0.metadata.owner_references = Some(serde_json::from_value(json!(owners)).unwrap());
    }
    let told = World { kind: &Pod, job: None, ..world(job()) }.workload(of_group).told();
    assert_eq!(told.contains("OwnerNotFound"), ends, "{told}");
}

#[rstest]
#[case::evicted(true, false, "QuotaReserved=False")]
#[case::not_evicted(false, false, "")]
#[case::dispatched(true, true, "")]
fn workload_of_a_set_without_pods_releases_quota(
    #[case] evicted: bool,
    #[case] sent: bool,
    #[case] want: &str,
) {
    let mut of_set = workload(&group(pair())).admitted();
    let set = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "a", "uid": "u"}]);
    of_set.0.metadata.owner_references = Some(serde_json::from_value(set).unwrap());
    of_set.0.status.get_or_insert_default().dispatch =
        sent.then(|| DispatchStatus { attempt: 1, ..DispatchStatus::default() });
    let of_set = if evicted { of_set.evicted() } else { of_set };
    let told =
        World { kind: &Pod, role: Role::Hub, job: None, ..world(job()) }.workload(of_set).told();
    assert!(told.contains(want) && (told.is_empty() == want.is_empty()), "{told}");
}

#[rstest]
#[case::batch(json!({}), r#"workload {"spec":{"queueName":"other"}}"#)]
#[case::serving(json!({"kueue.x-k8s.io/pod-group-serving": "true"}), r#"workload {"spec":{"queueName":"other"}}"#)]
#[case::serving_with_owner(
    json!({"kueue.x-k8s.io/pod-group-serving": "true", "kueue.x-k8s.io/pod-suspending-parent": "statefulset"}),
    "",
)]
fn workload_of_a_group_follows_its_queue(#[case] annotations: Value, #[case] want: &str) {
    let labels = json!({"kueue.x-k8s.io/queue-name": "other"});
    let moved = json!({"metadata": {"labels": labels, "annotations": annotations}});
    let waiting = workload(&group(pair()));
    assert_eq!(
        world_of(&group(pair().map(|pod| pod.with(moved.clone())))).named(waiting).told(),
        want
    );
}

#[rstest]
#[case::gated(
    pod("a"),
    "delete pod-a-5b54b\nNormal DeletedWorkload: Deleted not matching Workload: ns/pod-a-5b54b"
)]
#[case::running(pod("a").phase("Running"), "")]
#[case::has_ended(pod("a").phase("Failed"), "delete pod-a-5b54b\nNormal DeletedWorkload: Deleted not matching Workload: ns/pod-a-5b54b")]
fn workload_of_a_pod_that_joined_a_group_is_deleted(#[case] member: TestPod, #[case] want: &str) {
    let of_its_own = Arc::new(pod("a").workload().admitted().0);
    let member = member.of_group("2").0;
    let told = |workload: Arc<Workload>| {
        let decision = group::leftover_workloads(&Pod, &member, &[workload]);
        let world = World { kind: &Pod, ..world(TestJob(member.clone())) };
        decision.actions.iter().map(|action| world.line(action)).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(told(of_its_own), want);
    assert_eq!(
        told(Arc::new(pod("a").workload().admitted().finished().0)),
        "",
        "what has ended stays"
    );
    let mut sent = pod("a").workload().admitted();
    sent.0.status.get_or_insert_default().dispatch =
        Some(DispatchStatus { attempt: 1, ..DispatchStatus::default() });
    assert_eq!(told(Arc::new(sent.0)), "", "it may run on another cluster");
}
