//! Pod group owners.

use rstest::rstest;
use switchyard_api::v1beta2::DispatchStatus;
use switchyard_jobs::{build_group_workload, kind_for, pod::Pod, serving::Serving};

use super::{
    super::{
        case::Case,
        pod_group_owner::decide::{GroupOwnerCase, GroupOwnerPlan, decide},
    },
    *,
};
use crate::workload::{Eviction, ReasonDetail};

/// An owner `ns/a` in queue `lq`, its pods and its Workloads.
struct Made {
    kind: &'static dyn JobKind,
    group_owner: TestJob,
    workloads: Vec<Arc<Workload>>,
    pods: Vec<Value>,
    managed: bool,
    ancestor: Ancestor,
    outdated: bool,
    role: Role,
    gates: Gates,
}

fn made(group: &str, kind: &str, spec: Value) -> Made {
    let kind = kind_for(group, kind).unwrap();
    let group_owner = json!({
        "apiVersion": kind.id().api_version(), "kind": kind.id().kind,
        "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": spec,
    });
    let (workloads, pods, role) = (Vec::new(), Vec::new(), Role::Single);
    let (ancestor, gates) = (Ancestor::None, Gates::default());
    Made {
        kind,
        group_owner: TestJob(group_owner),
        workloads,
        pods,
        managed: true,
        ancestor,
        outdated: false,
        role,
        gates,
    }
}

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}})
}

fn stateful_set() -> Made {
    made("apps", "StatefulSet", json!({"replicas": 2, "template": template()}))
}

fn leader_worker_set(replicas: i32) -> Made {
    let spec = json!({"replicas": replicas, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template()}});
    made("leaderworkerset.x-k8s.io", "LeaderWorkerSet", spec)
}

impl Made {
    fn serving(&self) -> &'static dyn Serving {
        self.kind.serving().unwrap()
    }

    fn with(mut self, patch: Value) -> Self {
        self.group_owner = self.group_owner.with(patch);
        self
    }

    fn scaled(self, replicas: i32) -> Self {
        self.with(json!({"spec": {"replicas": replicas}}))
    }

    fn workload(&self, at: usize) -> TestWorkload {
        let object = &self.group_owner.0;
        let pod_sets = job_pod_sets(self.kind, object).unwrap();
        let group = self.serving().groups(object).remove(at);
        let options = BuildOptions::default();
        let mut workload = build_group_workload(
            self.kind,
            object,
            &group,
            pod_sets,
            &Priority::default(),
            options,
        );
        workload.metadata.resource_version = Some("3".into());
        TestWorkload(workload)
    }

    fn has(mut self, workload: TestWorkload) -> Self {
        self.workloads.push(Arc::new(workload.0));
        self
    }

    /// A pod as its webhook lets it be created.
    fn pod(mut self, patch: Value) -> Self {
        let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "a", "uid": "uid-a", "controller": true});
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("a-{}", self.pods.len()), "namespace": "ns", "ownerReferences": [owner],
                "annotations": {"kueue.x-k8s.io/pod-suspending-parent": self.kind.id().framework},
            },
            "spec": {"containers": []},
        });
        Pod.suspend(&mut pod);
        apply_merge(&mut pod, &patch);
        self.pods.push(pod);
        self
    }

    fn decide(&self) -> GroupOwnerPlan {
        let inputs = JobInputs {
            elastic: true,
            reclaims: true,
            releases_fast: false,
            defers_end: false,
            role: self.role,
            reasons: ReasonDetail::Full,
            managed: self.managed,
            ancestor: self.ancestor,
            workloads: self.workloads.clone(),
            prebuilt: Prebuilt::NotNamed,
            multi_kueue_check: None,
            below_active: &|| false,
            awaited: &|_| false,
            exceeded: &|_| None,
            flavor: &|_| None,
            priorities: &Classes,
            copied: BuildOptions::default(),
            pods_ready: None,
            keep_deactivated: None,
            gates: self.gates,
        };
        let case = Case { kind: self.kind, job: &self.group_owner.0, inputs: &inputs, now: now() };
        decide(&GroupOwnerCase {
            case,
            serving: self.serving(),
            pods: &self.pods,
            is_outdated: &|_| self.outdated,
        })
    }

    fn told(&self) -> String {
        let GroupOwnerPlan { workloads, pods, replaced: _ } = self.decide();
        let world = World { kind: self.kind, ..world(TestJob(self.group_owner.0.clone())) };
        let mut lines: Vec<String> =
            workloads.actions.iter().map(|action| world.line(action)).collect();
        if let Next::Retry(reason) = workloads.next {
            lines.push(format!("retry: {reason}"));
        }
        for pod in pods {
            let before = self
                .pods
                .iter()
                .find(|it| it["metadata"]["name"] == pod["metadata"]["name"])
                .unwrap();
            lines.push(format!(
                "pod {} {}",
                pod["metadata"]["name"].as_str().unwrap(),
                merge_diff(before, &pod).unwrap()
            ));
        }
        lines.join("\n")
    }
}

#[test]
fn stateful_set_gets_its_workload_before_its_pods() {
    let set = stateful_set();
    assert_eq!(
        set.told(),
        "create statefulset-a-98ec4\nNormal CreatedWorkload: Created Workload: ns/statefulset-a-98ec4"
    );
    assert_eq!(stateful_set().scaled(0).told(), "", "none without pods");
    let workload = set.workload(0);
    assert_eq!(set.has(workload).told(), "");
}

#[test]
fn queued_workload_of_a_stateful_set_follows_its_topology() {
    let level = json!({"kueue.x-k8s.io/podset-required-topology": "rack"});
    let asking = || Made {
        gates: super::topology::GATES,
        ..stateful_set().with(json!({"spec": {"template": {"metadata": {"annotations": level}}}}))
    };
    let workload = || stateful_set().workload(0);
    let told = asking().has(workload()).told();
    let want =
        r#""topologyRequest":{"podIndexLabel":"apps.kubernetes.io/pod-index","required":"rack"}"#;
    assert!(told.starts_with("workload ") && told.contains(want), "{told}");
    assert_eq!(asking().has(workload().reserved()).told(), "", "one that holds quota");
}

#[test]
fn workload_named_by_an_older_kueue_is_kept() {
    let mut older = stateful_set();
    older.serving().use_older_group_name(&mut older.group_owner.0);
    let workload = older.workload(0);
    assert_eq!(workload.0.metadata.name.as_deref(), Some("statefulset-a-8492c"));
    let as_today = stateful_set().has(TestWorkload(workload.0.clone())).told();
    assert!(as_today.contains("delete statefulset-a-8492c"), "{as_today}");
    assert_eq!(older.has(workload).told(), "");
}

#[rstest]
#[case::not_managed(json!({}), false)]
#[case::owned_by_leader_worker_set(json!({"spec": {"template": {"metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "leaderworkerset.x-k8s.io/leaderworkerset"}}}}}), true)]
#[case::being_deleted(json!({"metadata": {"deletionTimestamp": "2026-11-21T09:59:59Z"}}), true)]
#[case::copy_of_a_hub(json!({"metadata": {"labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue"}}}), true)]
fn ignored_owner_gets_no_workload(#[case] patch: Value, #[case] managed: bool) {
    let mut set = stateful_set().with(patch);
    set.managed = managed;
    assert_eq!(set.told(), "");
}

#[test]
fn workload_of_a_set_scaled_to_zero_is_on_hold() {
    let admitted = || stateful_set().workload(0).admitted();
    insta::assert_snapshot!(stateful_set().scaled(0).has(admitted()).told(), @r#"workload status {"accumulatedPastExecutionTimeSeconds":60,"admission":null,"conditions":["QuotaReserved=False/OnHold: StatefulSet scaled to zero; workload on hold","Admitted=False/NoReservation: The workload has no reservation"]}"#);
    let held = || {
        admitted().status(|edit| {
            edit.unreserve("OnHold", "rests");
        })
    };
    assert_eq!(stateful_set().scaled(0).has(held()).told(), "", "once");
    let deactivated = admitted().edit(|workload| workload.spec.active = Some(false));
    assert_eq!(stateful_set().scaled(0).has(deactivated).told(), "", "that is said already");

    let told = stateful_set().scaled(3).has(held()).told();
    assert!(told.starts_with("workload {\"spec\":{\"podSets\":[{\"count\":3"), "{told}");
    insta::assert_snapshot!(stateful_set().has(held()).told(), @r#"workload status {"conditions":["QuotaReserved=False/PendingEvaluation: Workload no longer on hold; waiting for quota reservation"]}"#);
}

#[test]
fn dispatched_set_scaled_to_zero_is_evicted_then_on_hold() {
    let sent = || {
        stateful_set().workload(0).admitted().status(|edit| {
            edit.status.cluster_name = Some("west".into());
            edit.status.dispatch = Some(DispatchStatus { attempt: 1, ..DispatchStatus::default() });
        })
    };
    let hub = |replicas: i32, workload: TestWorkload| {
        Made { role: Role::Hub, ..stateful_set().scaled(replicas).has(workload) }.told()
    };
    let told = hub(0, sent());
    assert!(
        told.contains("Evicted=True/OnHold: StatefulSet scaled to zero")
            && told.contains("clusterName"),
        "{told}"
    );
    let eviction = || Eviction { reason: "OnHold", cause: String::new(), message: "rests".into() };
    let evicted = || sent().status(|edit| drop(edit.evict(eviction())));
    assert_eq!(hub(0, evicted()), "", "its cluster is to say first that nothing is left");
    assert_eq!(hub(2, evicted()), "", "also if pods are wanted again");
    let released = || {
        evicted().status(|edit| {
            assert!(edit.release_quota());
        })
    };
    let told = hub(0, released());
    assert!(told.contains("QuotaReserved=False/OnHold"), "{told}");
    let told = hub(2, released());
    assert!(told.contains("Requeued=True/PendingEvaluation: Workload no longer on hold"), "{told}");
}

#[rstest]
#[case::another_queue(stateful_set().workload(0), json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}), r#"workload {"spec":{"queueName":"other"}}"#)]
#[case::another_queue_with_quota(stateful_set().workload(0).admitted(), json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}), "")]
#[case::another_priority(stateful_set().workload(0), json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}}), "workload {\"spec\":{\"priority\":100,\"priorityClassRef\":{\"group\":\"kueue.x-k8s.io\",\"kind\":\"WorkloadPriorityClass\",\"name\":\"high\"}}}\nNormal UpdatedWorkload: Updated workload priority class: ns/statefulset-a-98ec4")]
#[case::admission_gate(stateful_set().workload(0), json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": "x/y"}}}), "workload {\"metadata\":{\"annotations\":{\"kueue.x-k8s.io/admission-gated-by\":\"x/y\"}}}\nNormal UpdatedWorkload: Updated workload AdmissionGatedBy to \"x/y\"")]
#[case::finished(stateful_set().workload(0).finished(), json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}), "")]
#[case::terminating(stateful_set().workload(0).deleting(), json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}), "")]
fn workload_follows_its_owner(
    #[case] workload: TestWorkload,
    #[case] patch: Value,
    #[case] want: &str,
) {
    assert_eq!(stateful_set().with(patch).has(workload).told(), want);
}

#[test]
fn workload_without_owner_is_adopted() {
    let alone =
        stateful_set().workload(0).edit(|workload| workload.metadata.owner_references = None);
    insta::assert_snapshot!(stateful_set().has(alone).told(), @r#"workload {"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"a","uid":"uid-a"}]}}"#);
    let other = job().workload().named("statefulset-a-98ec4");
    let told = stateful_set().has(other).told();
    assert!(told.starts_with("Warning WorkloadNameConflict: "), "{told}");
}

#[test]
fn leader_worker_set_replicas_get_and_lose_workloads() {
    let three = leader_worker_set(3);
    let (first, last) = (three.workload(0), three.workload(2));
    let created: Vec<String> =
        three.told().lines().filter(|it| it.starts_with("create ")).map(str::to_owned).collect();
    assert_eq!(created.len(), 3, "{created:?}");
    let last_name = last.0.metadata.name.clone().unwrap();
    let told = leader_worker_set(2).has(first).has(last.admitted()).told();
    assert!(
        told.lines().filter(|it| it.starts_with("create ")).eq([created[1].as_str()]),
        "{told}"
    );
    assert!(told.contains(&format!("delete {last_name}\n")), "{told}");

    let many = leader_worker_set(1000).decide().workloads.actions;
    let created = many.iter().filter(|it| matches!(it, Action::CreateWorkload(_))).count();
    assert_eq!(created, 64, "some at a time");
}

#[test]
fn copied_leader_worker_set_gets_workloads_from_its_hub() {
    let sent = || {
        let metadata = json!({"labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue"}});
        leader_worker_set(2).with(json!({ "metadata": metadata }))
    };
    assert_eq!(sent().told(), "");
    let labels = |index: &str| {
        json!({"metadata": {"labels": {
            "leaderworkerset.sigs.k8s.io/name": "a", "leaderworkerset.sigs.k8s.io/group-index": index,
        }}})
    };
    let first = sent().workload(0);
    let told = sent().has(first).pod(labels("0")).pod(labels("1")).told();
    let lines: Vec<&str> = told.lines().collect();
    let groups = leader_worker_set(2).serving().groups(&sent().group_owner.0);
    assert!(lines.len() == 2, "each is told its group, and nothing is made: {told}");
    for (line, group) in lines.iter().zip(groups) {
        assert!(
            line.contains(&format!("\"kueue.x-k8s.io/prebuilt-workload-name\":\"{}\"", group.name)),
            "{told}"
        );
    }
}

#[test]
fn set_without_a_template_gets_an_event() {
    let told = stateful_set().with(json!({"spec": {"template": null}})).told();
    assert_eq!(
        told,
        "Warning ErrWorkloadCompose: spec.template.spec: is missing; a pod template is needed here"
    );
    let told = stateful_set()
        .with(json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "none"}}}))
        .told();
    assert!(told.contains("WorkloadPriorityClass \"none\" not found"), "{told}");
}

#[test]
fn pods_get_their_group_and_are_released_at_their_end() {
    let set = stateful_set();
    let workload = set.workload(0);
    let told = set.has(workload).pod(json!({})).told();
    assert!(
        told.starts_with("pod a-0 {\"metadata\":{\"annotations\":{\"kueue.x-k8s.io/pod-group-fast"),
        "{told}"
    );
    assert!(!told.contains("schedulingGates"), "{told}");
    let told = stateful_set().pod(json!({})).told();
    assert!(!told.contains("pod a-0"), "not before its Workload is there: {told}");

    let held = json!({"metadata": {"finalizers": ["kueue.x-k8s.io/managed"]}});
    let ended = |status: Value| {
        let mut patch = held.clone();
        apply_merge(&mut patch, &status);
        let mut set = stateful_set().pod(patch);
        set.managed = false;
        set.told()
    };
    let let_go = r#"pod a-0 {"metadata":{"finalizers":[]}}"#;
    assert_eq!(ended(json!({"status": {"phase": "Failed"}})), let_go);
    assert_eq!(ended(json!({"metadata": {"deletionTimestamp": "2026-11-21T09:59:59Z"}})), let_go);
    assert_eq!(ended(json!({"status": {"phase": "Running"}})), "");
}

/// A pod with its group's label.
fn member(set: &Made) -> Value {
    let group = set.serving().groups(&set.group_owner.0).remove(0).name;
    json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": group}}})
}

#[test]
fn gated_pod_of_an_old_revision_is_replaced() {
    let replaced = |workload: TestWorkload, pod: Value| {
        let mut set = stateful_set().has(workload).pod(pod);
        set.outdated = true;
        let plan = set.decide();
        assert!(
            !set.told().contains("schedulingGates"),
            "it would run without quota: {}",
            set.told()
        );
        plan.replaced.len()
    };
    let set = stateful_set();
    assert_eq!(replaced(set.workload(0), member(&set)), 1);
    assert_eq!(replaced(set.workload(0).reserved(), member(&set)), 1);
    assert_eq!(replaced(set.workload(0).admitted(), member(&set)), 0, "it starts");
    let mut running = member(&set);
    apply_merge(&mut running, &json!({"spec": {"schedulingGates": []}}));
    assert_eq!(replaced(set.workload(0), running), 0);
}

#[test]
fn set_scaled_to_zero_is_charged_until_its_pods_are_gone() {
    let set = stateful_set();
    let pod = |status: Value| {
        let mut pod = member(&set);
        apply_merge(&mut pod, &json!({"spec": {"schedulingGates": []}, "status": status}));
        pod
    };
    let told =
        |pod: Value| stateful_set().scaled(0).has(set.workload(0).admitted()).pod(pod).told();
    assert_eq!(told(pod(json!({"phase": "Running"}))), "");
    let mut ending = pod(json!({"phase": "Running"}));
    apply_merge(&mut ending, &json!({"metadata": {"deletionTimestamp": "2026-11-21T09:59:59Z"}}));
    assert!(!told(ending).contains("OnHold"));
    assert!(told(pod(json!({"phase": "Succeeded"}))).contains("OnHold"));
    assert!(told(member(&set)).contains("OnHold"), "it waits");
}

#[test]
fn removed_replica_is_charged_until_its_pods_are_gone() {
    let two = leader_worker_set(2);
    let gone = two.workload(1);
    let name = gone.0.metadata.name.unwrap();
    let pod = |phase: &str| {
        let labels = json!({"kueue.x-k8s.io/pod-group-name": name});
        json!({"metadata": {"labels": labels}, "spec": {"schedulingGates": []}, "status": {"phase": phase}})
    };
    let told = |phase: &str| {
        let one = leader_worker_set(1)
            .has(leader_worker_set(1).workload(0))
            .has(two.workload(1).admitted());
        one.pod(pod(phase)).told()
    };
    assert!(!told("Running").contains("delete "), "{}", told("Running"));
    assert!(told("Succeeded").contains(&format!("delete {name}")), "{}", told("Succeeded"));
}

#[test]
fn groups_below_unreadable_owner_keep_workloads_only() {
    let unread = |made: Made| Made { ancestor: Ancestor::Unread, ..made }.told();
    assert_eq!(unread(leader_worker_set(2)), "retry: an owner of the job cannot be read");
    let first = leader_worker_set(2).workload(0);
    let told = unread(leader_worker_set(0).has(first));
    assert_eq!(told, leader_worker_set(0).has(leader_worker_set(2).workload(0)).told());
    assert!(told.starts_with("delete"), "{told}");
}
