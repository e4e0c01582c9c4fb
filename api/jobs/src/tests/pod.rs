//! Pods: the webhook's marks, requests, and groups.

use rstest::rstest;

use super::plain::{admitted, changed, running, shape};
use super::*;
use crate::pod::{Pod, sort, sort_new};

/// Pod `ns/NAME` in queue `lq`, as its user writes it.
fn written(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"),
            "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        },
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
            "priority": 0, "preemptionPolicy": "PreemptLowerPriority",
        },
    })
}

pub(super) fn pod(name: &str) -> Value {
    let mut pod = written(name);
    Pod.suspend(&mut pod);
    pod
}

/// A pod of a group of `count`, with a role.
pub(super) fn member(name: &str, count: &str, role: &str, status: Value) -> Value {
    changed(
        &pod(name),
        json!({
            "metadata": {
                "labels": {"kueue.x-k8s.io/pod-group-name": "g"},
                "annotations": {
                    "kueue.x-k8s.io/pod-group-total-count": count, "kueue.x-k8s.io/role-hash": role,
                },
            },
            "status": status,
        }),
    )
}

fn phase(phase: &str) -> Value {
    json!({ "phase": phase })
}

fn annotated(group: &mut [Value], key: &str) {
    for pod in group {
        *pod = changed(pod, json!({"metadata": {"annotations": {key: "true"}}}));
    }
}

#[rstest]
#[case::as_many_as_it_has(&["Pending", "Pending"], "a b")]
#[case::one_that_succeeded_on_another_cluster_runs_again(&["Succeeded", "Pending"], "a b")]
#[case::one_that_failed_there_and_was_not_replaced(&["Failed", "Pending"], "b a")]
#[case::one_that_was_replaced(&["Failed", "Pending", "Pending"], "b c")]
#[case::one_too_many(&["Pending", "Pending", "Pending"], "a b")]
fn group_sends_its_number_of_pods(#[case] phases: &[&str], #[case] want: &str) {
    let members = ["a", "b", "c"]
        .iter()
        .zip(phases)
        .map(|(name, of)| member(name, "2", "r", phase(of)))
        .collect();
    let copy = Pod.remote_copy(&Pod.compose(members), RemoteMeta { workload: "g", origin: "hub" });
    let sent: Vec<String> = crate::sent_objects(copy)
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(sent.join(" "), want);
}

#[test]
fn new_pod_is_marked_finalized_and_gated() {
    let marks = merge_diff(&written("a"), &pod("a")).unwrap();
    let want = json!({
        "metadata": {
            "annotations": {"kueue.x-k8s.io/role-hash": "4576969b"},
            "finalizers": ["kueue.x-k8s.io/managed"],
            "labels": {"kueue.x-k8s.io/managed": "true"},
        },
        "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
    });
    assert_eq!(marks, want);
    let mut again = pod("a");
    Pod.suspend(&mut again);
    assert_eq!(again, pod("a"), "once");
    let by_parent = json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "deployment"}}});
    let mut child = changed(&written("a"), by_parent);
    Pod.suspend(&mut child);
    assert_eq!(child.pointer("/metadata/finalizers"), None, "its owner waits for its end");
    assert!(Pod.is_suspended(&child));
}

/// All pods of a role are charged like the first of them.
#[test]
fn role_of_a_pod_is_reckoned_and_never_taken_from_its_owner() {
    let forged = json!({"metadata": {"annotations": {"kueue.x-k8s.io/role-hash": "same"}}});
    let large =
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "8"}}}]}});
    let gated = |patch: &Value| {
        let mut pod = changed(&changed(&written("a"), forged.clone()), patch.clone());
        Pod.suspend(&mut pod);
        pod["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let (small, large) = (gated(&json!({})), gated(&large));
    assert_eq!(small, "4576969b");
    assert!(large != small && large != "same");
    let sent = json!({"metadata": {"labels": {"kueue.x-k8s.io/multikueue-origin": "hub"}}});
    assert_eq!(gated(&sent), "same", "a copy's Workload has the hub's roles");
}

/// The order matters because flavors are assigned to pod sets in order.
#[test]
fn pod_sets_are_ordered_by_shape_not_by_written_role() {
    let order = |small: &str, large: &str| {
        let member = |name: &str, cpu: &str, role: &str| {
            let patch = json!({
                "metadata": {
                    "labels": {"kueue.x-k8s.io/pod-group-name": "g"},
                    "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2", "kueue.x-k8s.io/role-hash": role},
                },
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            });
            let mut pod = changed(&written(name), patch);
            Pod.suspend(&mut pod);
            pod
        };
        let sets = job_pod_sets(
            &Pod,
            &Pod.compose(vec![member("a", "1", small), member("b", "8", large)]),
        )
        .unwrap();
        sets.iter().map(|set| serde_json::to_string(&set.template).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(order("a", "z"), order("z", "a"));
}

#[test]
fn role_of_a_pod_of_a_group_stays() {
    let old = member("a", "2", "r", phase("Pending"));
    let new =
        changed(&old, json!({"metadata": {"annotations": {"kueue.x-k8s.io/role-hash": "other"}}}));
    let said: Vec<String> =
        Pod.validate_update(&old, &new).iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            r#"metadata.annotations[kueue.x-k8s.io/role-hash]: Invalid value: "other": field is immutable"#
        ]
    );
}

#[test]
fn pod_starts_once_with_the_admissions_info() {
    let pod = changed(
        &pod("a"),
        json!({"spec": {"schedulingGates": [{"name": "other"}, {"name": "kueue.x-k8s.io/admission"}]}}),
    );
    let workload = admitted(&Pod, &pod);
    let started = running(&Pod, &pod);
    assert_eq!(started.pointer("/spec/schedulingGates"), Some(&json!([{"name": "other"}])));
    assert_eq!(started.pointer("/spec/nodeSelector/accelerator"), Some(&json!("a100")));
    assert!(!Pod.is_suspended(&started));
    let (infos, pod_sets) = (infos_of(&workload), job_pod_sets(&Pod, &started).unwrap());
    assert!(is_equivalent(&started, &pod_sets, false, &workload, Some(&infos)));
    let mut again = started.clone();
    Pod.run(&mut again, &infos).unwrap();
    assert_eq!(again, started);
    assert_eq!(Pod.stop(&started, None), Stop::Terminate(vec![started.clone()]));
    assert_eq!(
        Pod.stop(
            &changed(&started, json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            None
        ),
        Stop::Done
    );
    assert_eq!(Pod.stop(&pod, None), Stop::Done, "it does not run");
    assert!(matches!(Pod.discard(&pod, &[]), Stop::Terminate(pods) if pods == [pod]));
}

#[rstest]
#[case::one_role(["x", "x", "x"], ["Pending", "Pending", "Pending"], "x x 3")]
#[case::two_roles_by_name(["y", "x", "y"], ["Pending", "Pending", "Pending"], "x x 1, y x 2")]
#[case::failed_ones_do_not_count(["x", "y", "x"], ["Pending", "Failed", "Succeeded"], "x x 2")]
fn group_has_a_pod_set_for_each_role(
    #[case] roles: [&str; 3],
    #[case] phases: [&str; 3],
    #[case] want: &str,
) {
    let pods = ["a", "b", "c"].iter().zip(roles.iter().zip(phases));
    let pods = pods.map(|(name, (role, state))| member(name, "3", role, phase(state))).collect();
    assert_eq!(shape(&Pod, &Pod.compose(pods)), want);
}

#[test]
fn fast_admission_group_is_queued_with_its_first_pod() {
    let mut pods = vec![member("a", "4", "x", phase("Pending"))];
    assert!(
        sort_new(&Pod.compose(pods.clone()), BuildOptions::default()).is_err(),
        "others are awaited"
    );
    annotated(&mut pods, "kueue.x-k8s.io/pod-group-fast-admission");
    let group = Pod.compose(pods);
    assert_eq!(shape(&Pod, &sort_new(&group, BuildOptions::default()).unwrap().group), "x x 4");
}

#[test]
fn group_workload_has_the_pods_common_annotations() {
    let annotated = |name: &str, cost: &str| {
        changed(
            &member(name, "2", "x", phase("Pending")),
            json!({"metadata": {"annotations": {"cost": cost}}}),
        )
    };
    let keys = ["cost".to_owned()];
    let copied = BuildOptions { annotation_keys_to_copy: &keys, ..BuildOptions::default() };
    let group = |other: &str| Pod.compose(vec![annotated("a", "1"), annotated("b", other)]);
    let sorted = sort_new(&group("1"), copied).unwrap().group;
    let workload = build_workload(&Pod, &sorted, Vec::new(), &Priority::default(), copied);
    assert_eq!(workload.metadata.annotations.unwrap()["cost"], "1");
    let told = sort_new(&group("2"), copied).unwrap_err();
    assert_eq!(told, "constructing workload: pods have different annotation values of cost");
}

#[test]
fn serving_group_never_finishes_nor_reclaims() {
    let mut pods = vec![member("a", "1", "x", phase("Succeeded"))];
    let group = Pod.compose(pods.clone());
    assert_eq!(Pod.finished(&group).unwrap().message, "Pods succeeded: 1/1.");
    assert_eq!(Pod.reclaimable(&group), [ReclaimablePod { name: "x".into(), count: 1 }]);
    annotated(&mut pods, "kueue.x-k8s.io/pod-group-serving");
    let group = Pod.compose(pods);
    assert_eq!((Pod.finished(&group), Pod.reclaimable(&group)), (None, vec![]));
}

#[rstest]
#[case::all_ready(&["True", "True"], true)]
#[case::one_is_not(&["True", "False"], false)]
#[case::one_is_missing(&["True"], false)]
#[case::one_has_succeeded(&["True", "Succeeded"], true)]
#[case::one_has_failed(&["True", "Failed"], false)]
#[case::another_came_in_its_place(&["True", "Failed", "True"], true)]
fn group_pods_ready_counts_ready_and_succeeded(#[case] ready: &[&str], #[case] want: bool) {
    let pod = |(at, ready): (usize, &&str)| {
        let status = match *ready {
            ended @ ("Succeeded" | "Failed") => {
                json!({"phase": ended, "conditions": [{"type": "Ready", "status": "False"}]})
            }
            ready => {
                json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]})
            }
        };
        member(&format!("p{at}"), "2", "x", status)
    };
    let mut pods: Vec<Value> = ready.iter().enumerate().map(pod).collect();
    assert_eq!(Pod.pods_ready(&Pod.compose(pods.clone())), want);
    annotated(&mut pods, "kueue.x-k8s.io/pod-group-serving");
    let serves = want && !ready.contains(&"Succeeded");
    assert_eq!(Pod.pods_ready(&Pod.compose(pods)), serves, "what has ended does not serve");
}

#[test]
fn excess_pods_are_released_and_missing_ones_counted() {
    let made_for = Pod.compose(
        ["a", "b", "c"]
            .map(|name| member(name, "3", if name == "c" { "y" } else { "x" }, phase("Pending")))
            .into(),
    );
    let workload = admitted(&Pod, &made_for);
    let now = Timestamp::UNIX_EPOCH;
    let names = |pods: &[Value]| {
        pods.iter().map(|pod| meta::name(pod).to_owned()).collect::<Vec<_>>().join(",")
    };
    let later = json!({"metadata": {"creationTimestamp": "2026-01-02T00:00:00Z"}});
    let third = changed(&member("z", "3", "x", phase("Pending")), later);
    let failed = member("c", "3", "y", phase("Failed"));
    let group = Pod.compose(vec![
        third,
        member("a", "3", "x", phase("Running")),
        member("b", "3", "x", phase("Pending")),
        failed,
    ]);
    let sorted = sort(&group, &workload, now);
    assert_eq!(
        (names(&sorted.excess), names(&sorted.replaced), sorted.absent),
        ("z".into(), String::new(), 1)
    );
    assert_eq!(
        names(Pod.members(&sorted.group)),
        "a,b,c",
        "the failed one is held until it is replaced"
    );
}

#[rstest]
#[case::a_name_and_a_count(json!({"labels": {"kueue.x-k8s.io/pod-group-name": "g"}, "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"}}), "")]
#[case::no_count(json!({"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}),
    "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: Required value: both the 'kueue.x-k8s.io/pod-group-total-count' annotation and the 'kueue.x-k8s.io/pod-group-name' label should be set")]
#[case::no_name(json!({"annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"}}),
    "metadata.labels[kueue.x-k8s.io/pod-group-name]: Required value: both the 'kueue.x-k8s.io/pod-group-total-count' annotation and the 'kueue.x-k8s.io/pod-group-name' label should be set")]
#[case::no_pods(json!({"labels": {"kueue.x-k8s.io/pod-group-name": "g"}, "annotations": {"kueue.x-k8s.io/pod-group-total-count": "0"}}),
    "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: Invalid value: \"0\": incorrect annotation value 'kueue.x-k8s.io/pod-group-total-count=0': group total count should be greater than zero")]
#[case::no_number(json!({"labels": {"kueue.x-k8s.io/pod-group-name": "g"}, "annotations": {"kueue.x-k8s.io/pod-group-total-count": "two"}}),
    "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: Invalid value: \"two\": strconv.Atoi: parsing \"two\": invalid syntax: should be a whole number")]
#[case::another_mark(json!({"labels": {"kueue.x-k8s.io/managed": "false"}}),
    "metadata.labels[kueue.x-k8s.io/managed]: Forbidden: managed label value can only be 'true'")]
#[case::a_workload_of_another_name(json!({"labels": {"kueue.x-k8s.io/pod-group-name": "g", "kueue.x-k8s.io/prebuilt-workload-name": "w"}, "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"}}),
    "metadata.labels[kueue.x-k8s.io/prebuilt-workload-name]: Invalid value: \"w\": prebuilt workload and pod group should be equal")]
fn new_pod_errors(#[case] metadata: Value, #[case] want: &str) {
    let pod = changed(&written("a"), json!({ "metadata": metadata }));
    let said: Vec<String> = validate_create(&Pod, &pod).iter().map(ToString::to_string).collect();
    assert_eq!(said.join("\n"), want);
}

#[test]
fn pod_group_and_retry_annotations_are_immutable() {
    let old = changed(
        &member("a", "2", "x", phase("Pending")),
        json!({"metadata": {"annotations": {"kueue.x-k8s.io/retriable-in-group": "false"}}}),
    );
    let new = changed(
        &old,
        json!({"metadata": {
            "labels": {"kueue.x-k8s.io/pod-group-name": "other"},
            "annotations": {"kueue.x-k8s.io/retriable-in-group": "true"},
        }}),
    );
    let said: Vec<String> = validate_update(&Pod, &old, &new, UpdateContext::default())
        .iter()
        .map(ToString::to_string)
        .collect();
    let want = [
        "metadata.annotations[kueue.x-k8s.io/retriable-in-group]: Forbidden: unretriable pod group can't be converted to retriable",
        "metadata.labels[kueue.x-k8s.io/pod-group-name]: Invalid value: \"other\": field is immutable",
    ];
    assert_eq!(said, want);
}

#[test]
fn pod_copy_is_gated_without_computed_fields() {
    let copy = Pod.remote_copy(
        &changed(&pod("a"), json!({"spec": {"nodeName": "n"}})),
        RemoteMeta { workload: "w", origin: "hub" },
    );
    let mut want = pod("a");
    for field in ["priority", "preemptionPolicy"] {
        want["spec"].as_object_mut().unwrap().remove(field);
    }
    want["metadata"].as_object_mut().unwrap().remove("uid");
    let binding = json!({"kueue.x-k8s.io/multikueue-origin": "hub", "kueue.x-k8s.io/prebuilt-workload-name": "w"});
    assert_eq!(copy, changed(&want, json!({"metadata": {"labels": binding}})));
}

#[test]
fn pod_mirrors_its_copy_and_stays_gated_until_it_has_a_node() {
    let gated = json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"});
    let local = changed(&pod("a"), json!({"status": {"phase": "Pending", "conditions": [gated]}}));
    let unschedulable =
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    let waiting =
        json!({"status": {"phase": "Pending", "message": "m", "conditions": [unschedulable]}});
    let shown = Pod.mirror_status(&local, &waiting).unwrap();
    assert_eq!(shown, json!({"phase": "Pending", "message": "m", "conditions": [gated]}));
    let runs =
        json!({"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]});
    assert_eq!(Pod.mirror_status(&local, &json!({ "status": runs })), Some(runs.clone()));

    let now = Timestamp::UNIX_EPOCH;
    assert_eq!(Pod.reset_status(&local, now), None, "it shows nothing of a copy");
    let reset = Pod.reset_status(&changed(&local, json!({ "status": runs })), now).unwrap();
    assert_eq!(
        (&reset["phase"], &reset["conditions"][0]["reason"]),
        (&json!("Pending"), &json!("SchedulingGated"))
    );
    let ended = changed(&local, json!({"status": {"phase": "Succeeded"}}));
    assert_eq!((Pod.mirror_status(&ended, &waiting), Pod.reset_status(&ended, now)), (None, None));
}
