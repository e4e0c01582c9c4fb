use switchyard_jobs::batch_job::BatchJob;

use super::*;

fn workload(owner: &str) -> Workload {
    serde_json::from_value(serde_json::json!({
        "metadata": {
            "name": "w", "namespace": "ns",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": "u", "controller": true}],
        },
        "spec": {"podSets": []},
    }))
    .unwrap()
}

fn job(name: &str) -> JobKey {
    JobKey::new(&BatchJob, Key::new("ns", name))
}

#[test]
fn workload_belongs_to_its_controller_only() {
    let mut other = workload("a");
    other.metadata.owner_references.iter_mut().flatten().for_each(|owner| owner.controller = None);
    assert_eq!(JobKey::owner_of(&other), None);
    other.metadata.owner_references = None;
    assert_eq!(JobKey::owner_of(&other), None);
    assert_eq!(JobKey::owner_of(&workload("a")), Some(job("a")));
}

#[test]
fn changed_owner_queues_both_jobs() {
    let (index, key) = (Index::default(), Key::new("ns", "w"));
    assert_eq!(index.workload(&key, None, Some(&workload("a"))), BTreeSet::from([job("a")]));
    assert_eq!(index.owned(&job("a")), vec![key.clone()]);
    let affected = index.workload(&key, Some(&workload("a")), Some(&workload("b")));
    assert_eq!(affected, BTreeSet::from([job("a"), job("b")]));
    assert!(index.owned(&job("a")).is_empty());
    index.workload(&key, Some(&workload("b")), None);
    assert!(index.owners().is_empty());
}

#[test]
fn prebuilt_workload_queues_the_job_that_names_it() {
    let (index, key) = (Index::default(), Key::new("ns", "w"));
    index.prebuilt(&job("a"), "", "w");
    let unowned = Workload { metadata: kube::core::ObjectMeta::default(), ..workload("a") };
    assert_eq!(index.workload(&key, None, Some(&unowned)), BTreeSet::from([job("a")]));
    index.prebuilt(&job("a"), "w", "");
    assert!(index.workload(&key, Some(&unowned), None).is_empty());
}

#[test]
fn workload_queues_the_jobs_below_its_owner() {
    let (index, key) = (Index::default(), Key::new("ns", "w"));
    index.parent(&job("child"), None, Some(job("a")));
    assert_eq!(
        index.workload(&key, None, Some(&workload("a"))),
        BTreeSet::from([job("a"), job("child")])
    );
    index.parent(&job("child"), Some(job("a")), None);
    assert_eq!(index.workload(&key, Some(&workload("a")), None), BTreeSet::from([job("a")]));
}

#[test]
fn stopped_pods_queue_the_jobs_above() {
    let index = Index::default();
    let child = |owner: &str, status: Value| {
        let owner = serde_json::json!([
            {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": "u", "controller": true}
        ]);
        serde_json::json!({"metadata": {"name": "child", "namespace": "ns", "ownerReferences": owner}, "status": status})
    };
    let key = Key::new("ns", "child");
    let ending = child("a", serde_json::json!({"terminating": 1}));
    let stopped = child("a", serde_json::json!({}));
    index.parent(&job("a"), None, Some(job("top")));
    assert_eq!(index.object(&BatchJob, &key, None, Some(&ending)), BTreeSet::from([job("child")]));
    assert_eq!(index.below(&job("top")), BTreeSet::from([job("a"), job("child")]));
    let all = BTreeSet::from([job("child"), job("a"), job("top")]);
    // The old object has only its metadata.
    let was = serde_json::json!({"metadata": ending["metadata"]});
    assert!(index.is_active_below(&job("top")) && !index.is_active_below(&job("child")));
    assert_eq!(index.object(&BatchJob, &key, Some(&was), Some(&stopped)), all);
    assert!(!index.is_active_below(&job("top")));
    assert_eq!(index.object(&BatchJob, &key, Some(&stopped), None), BTreeSet::from([job("child")]));
    assert_eq!(index.below(&job("top")), BTreeSet::from([job("a")]));
}

#[test]
fn owner_cycle_ends() {
    let index = Index::default();
    index.parent(&job("a"), None, Some(job("b")));
    index.parent(&job("b"), None, Some(job("a")));
    assert_eq!(index.below(&job("a")), BTreeSet::from([job("a"), job("b")]));
    assert_eq!(index.above(&job("a")).len(), MAX_DEPTH);
}

#[test]
fn workload_queues_the_group_of_its_name() {
    let (index, key) = (Index::default(), Key::new("ns", "g"));
    let member = |name: &str| {
        let metadata =
            serde_json::json!({"name": name, "labels": {"kueue.x-k8s.io/pod-group-name": "g"}});
        JobKey::of(&Pod, &Key::new("ns", name), &serde_json::json!({ "metadata": metadata }))
    };
    let group = member("a");
    assert!(group.composed && group.key == key && group == member("b"));
    index.member(&Key::new("ns", "a"), None, Some(&group));
    index.member(&Key::new("ns", "b"), None, Some(&group));
    assert_eq!(index.members(&group), [Key::new("ns", "a"), Key::new("ns", "b")]);
    assert_eq!(
        index.workload(&key, None, Some(&workload("x"))),
        BTreeSet::from([job("x"), group.clone()])
    );
    index.member(&Key::new("ns", "a"), Some(&group), None);
    index.member(&Key::new("ns", "b"), Some(&group), None);
    assert_eq!(index.workload(&key, Some(&workload("x")), None), BTreeSet::from([job("x")]));
}

#[test]
fn pod_that_joins_a_group_is_no_job() {
    let (index, key) = (Index::default(), Key::new("ns", "a"));
    let owner = serde_json::json!([
        {"apiVersion": "batch/v1", "kind": "Job", "name": "above", "uid": "u", "controller": true}
    ]);
    let pod = |labels: Value| {
        serde_json::json!({"metadata": {
            "name": "a", "namespace": "ns", "ownerReferences": owner, "labels": labels,
            "annotations": {"kueue.x-k8s.io/prebuilt-workload-name": "w"},
        }})
    };
    let alone = pod(serde_json::json!({"kueue.x-k8s.io/prebuilt-workload-name": "w"}));
    let member = pod(serde_json::json!({"kueue.x-k8s.io/pod-group-name": "g"}));
    let (lone, group) = (JobKey::new(&Pod, key.clone()), JobKey::of(&Pod, &key, &member));
    let told = || {
        let unowned = Workload { metadata: kube::core::ObjectMeta::default(), ..workload("x") };
        let mut told = index.workload(&Key::new("ns", "w"), None, Some(&unowned));
        told.extend(index.workload(&Key::new("ns", "of-above"), None, Some(&workload("above"))));
        told.contains(&lone)
    };
    assert_eq!(index.object(&Pod, &key, None, Some(&alone)), BTreeSet::from([lone.clone()]));
    assert!(told() && index.members(&group).is_empty());
    let both = BTreeSet::from([lone.clone(), group.clone()]);
    assert_eq!(index.object(&Pod, &key, Some(&alone), Some(&member)), both);
    assert!(!told());
    assert_eq!(index.members(&group), std::slice::from_ref(&key));
    assert_eq!(index.object(&Pod, &key, Some(&member), Some(&alone)), both);
    assert!(told() && index.members(&group).is_empty());
    index.object(&Pod, &key, Some(&alone), None);
    assert!(!told());
}

#[test]
fn created_workload_is_awaited_for_a_while() {
    let (index, now) = (Index::default(), Instant::now());
    assert_eq!(index.arriving(&job("a"), now), None);
    index.created(&job("a"), now);
    assert_eq!(
        index.arriving(&job("a"), now + Duration::from_secs(4)),
        Some(Duration::from_secs(1))
    );
    assert_eq!(index.arriving(&job("a"), now + Duration::from_secs(5)), None);
    index.created(&job("a"), now);
    index.workload(&Key::new("ns", "w"), None, Some(&workload("a")));
    assert_eq!(index.arriving(&job("a"), now), None);
}
