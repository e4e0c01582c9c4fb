//! Dispatched elastic jobs, on the hub and on the worker.

use switchyard_api::v1beta2::DispatchStatus;
use switchyard_jobs::is_copy_of_hub;

use super::slices::{Grown, elastic, first, runs, second, slice, waiting};
use super::*;

/// On the hub, with these slices.
fn hub(job: TestJob, workloads: impl IntoIterator<Item = TestWorkload>) -> World {
    let managed = job.with(json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}));
    let world = World { role: Role::Hub, check: Some("multikueue"), ..world(managed) };
    workloads.into_iter().fold(world, World::workload)
}

/// Dispatched to a cluster.
fn sent(workload: TestWorkload) -> TestWorkload {
    workload.status(|edit| {
        edit.status.cluster_name = Some("east".into());
        edit.status.dispatch = Some(DispatchStatus { attempt: 1, ..DispatchStatus::default() });
    })
}

/// As the user wrote it, with that many pods, while it runs on a worker.
fn shown(pods: i32) -> TestJob {
    elastic()
        .unsuspended()
        .of_size(pods, 3)
        .with(json!({"spec": {"template": {"spec": {"schedulingGates": null}}}}))
}

#[test]
fn dispatched_job_grows_by_a_slice_and_runs_on() {
    assert!(hub(shown(5), [sent(first())]).told().starts_with("create job-train-"));
    assert_eq!(
        hub(shown(5), [sent(first()), slice(2, elastic().of_size(5, 3), Some(&first()))]).told(),
        ""
    );
    let queueless = World { check: None, ..hub(shown(5), [sent(first())]) };
    assert!(queueless.told().starts_with("create job-train-"), "its LocalQueue is gone");
    let over = World { check: None, ..hub(shown(5), [sent(first()).finished()]) };
    assert!(!over.told().starts_with("create job-train-"), "nothing of it runs elsewhere");
}

#[test]
fn dispatched_job_keeps_its_slice_after_a_shrink() {
    let told = hub(shown(1), [sent(first())]).told();
    assert!(told.starts_with("workload ") && told.contains("\"count\":1"), "{told}");
}

#[test]
fn larger_slice_takes_over_only_when_dispatched() {
    let waits = || second().reserved();
    assert_eq!(
        hub(shown(5), [sent(first()), waits()]).told(),
        "",
        "the first one's cluster has the job"
    );
    let over = hub(shown(5), [sent(first()), sent(second().admitted())]).told();
    assert!(over.contains("Finished=True/WorkloadSliceReplaced"), "{over}");
    let evicted = hub(shown(5), [sent(first()), waits().evicted()]).told();
    assert!(
        evicted.contains("\"Finished=True/WorkloadSliceReplaced: Replaced")
            || evicted.contains("OutOfSync"),
        "{evicted}"
    );
    assert!(!evicted.contains("Stopped"), "{evicted}");
}

#[test]
fn undispatched_slice_is_recreated_for_a_larger_size() {
    let told = hub(shown(6), [sent(first()), second().reserved()]).told();
    assert!(told.contains("Finished=True/OutOfSync"), "{told}");
}

#[test]
fn job_dispatched_as_inelastic_is_dispatched_again() {
    let plain = sent(first()).edit(|workload| workload.metadata.annotations = None);
    let told = hub(shown(5), [plain]).told();
    assert!(told.contains("No matching Workload"), "{told}");
}

/// Templates of a RayCluster may change while it runs; of a Job only a test changes them.
#[test]
fn job_with_changed_containers_is_dispatched_again() {
    let image =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "other"}]}}}});
    let other = |pods: i32| shown(pods).with(image.clone());
    for pods in [1, 3, 5] {
        let told = hub(other(pods), [sent(first())]).told();
        assert!(told.contains("No matching Workload"), "{pods}: {told}");
    }
    let growing = hub(other(5), [sent(first()), second().reserved()]).told();
    assert!(
        growing.contains("Finished=True/OutOfSync"),
        "first what it was to grow to goes: {growing}"
    );
    let evicted = hub(other(3), [sent(first()).evicted()]).told();
    assert!(!evicted.contains("No matching Workload"), "it gives its quota up first: {evicted}");
}

/// The copy on a worker of an existing workload.
fn copy(
    job: TestJob,
    named: &TestWorkload,
    owned: impl IntoIterator<Item = TestWorkload>,
) -> World {
    let labels = json!({
        "switchyard.dev/hub-id": "hub", "kueue.x-k8s.io/multikueue-origin": "multikueue",
        "kueue.x-k8s.io/prebuilt-workload-name": "slice-1",
    });
    let marks = json!({"switchyard.dev/workload-uid": "u", "switchyard.dev/attempt": "1"});
    let job = job.with(json!({"metadata": {"labels": labels, "annotations": marks}}));
    assert!(is_copy_of_hub(&job.0));
    let world = World { prebuilt: Prebuilt::Found(Arc::new(named.0.clone())), ..world(job) };
    owned.into_iter().fold(world, World::workload)
}

/// As the hub creates it, without an owner.
fn made_by_hub(workload: TestWorkload) -> TestWorkload {
    let annotations = [
        ("switchyard.dev/workload-uid", "u"),
        ("switchyard.dev/attempt", "1"),
        ("switchyard.dev/fence-after", "9000ms"),
        ("kueue.x-k8s.io/job-owner-gvk", "batch/v1, Kind=Job"),
        ("kueue.x-k8s.io/job-owner-name", "train"),
    ];
    workload.edit(|workload| {
        workload.metadata.owner_references = None;
        workload
            .metadata
            .labels
            .get_or_insert_default()
            .insert("switchyard.dev/hub-id".into(), "hub".into());
        let all = workload.metadata.annotations.get_or_insert_default();
        all.extend(annotations.map(|(key, value)| (key.to_owned(), value.to_owned())));
        workload.spec.priority = Some(7);
    })
}

/// The same, owned by its job.
fn owned(workload: TestWorkload) -> TestWorkload {
    let owner = waiting().0.metadata.owner_references;
    workload.edit(|workload| workload.metadata.owner_references = owner)
}

#[test]
fn growing_copy_creates_its_larger_slice() {
    let named = made_by_hub(first());
    let told = copy(runs().of_size(5, 3), &named, []).told();
    assert!(told.starts_with("workload ") && told.contains("ownerReferences"), "{told}");

    let world =
        copy(runs().of_size(5, 3), &owned(made_by_hub(first())), [owned(made_by_hub(first()))]);
    let [Action::CreateWorkload(made), ..] = &world.decide().actions[..] else {
        panic!("{}", world.told())
    };
    let annotations = made.metadata.annotations.as_ref().unwrap();
    let marks =
        ["switchyard.dev/workload-uid", "switchyard.dev/attempt", "switchyard.dev/fence-after"];
    assert_eq!(marks.map(|key| annotations[key].as_str()), ["u", "1", "9000ms"]);
    assert_eq!(annotations["kueue.x-k8s.io/workload-slice-replacement-for"], "ns/slice-1");
    assert_eq!(made.metadata.labels.as_ref().unwrap()["switchyard.dev/hub-id"], "hub");
    assert_eq!((made.spec.priority, made.spec.pod_sets[0].count), (Some(7), 5));
}

#[test]
fn copy_follows_the_slice_that_replaced_its_prebuilt_one() {
    let over = || {
        owned(made_by_hub(first())).status(|edit| {
            edit.finish("WorkloadSliceReplaced", "replaced");
        })
    };
    let grown = || made_by_hub(second().admitted());
    let world = copy(runs().of_size(5, 3), &over(), [over(), owned(grown())]);
    assert_eq!(world.told(), "");
    let evicted = copy(runs().of_size(5, 3), &over(), [over(), owned(grown().evicted())]).told();
    assert!(evicted.contains("\"suspend\":true"), "{evicted}");
}

#[test]
fn shrunk_copy_releases_quota() {
    let told = copy(runs().of_size(2, 3), &made_by_hub(first()), []).told();
    assert!(told.contains("\"count\":2"), "{told}");
}

#[test]
fn copy_with_inelastic_workload_keeps_its_size() {
    let plain = made_by_hub(first()).edit(|workload| {
        let all = workload.metadata.annotations.get_or_insert_default();
        all.retain(|key, _| !key.contains("slice") && !key.contains("elastic"));
    });
    let told = copy(runs().of_size(5, 3), &plain, []).told();
    assert!(told.contains("Finished=True/OutOfSync"), "{told}");
}

/// Kueue's hub creates the larger slice itself, and resizes the job once that has quota.
#[test]
fn kueue_hubs_larger_slice_matches_before_the_growth() {
    let labels = json!({
        "kueue.x-k8s.io/multikueue-origin": "multikueue", "kueue.x-k8s.io/prebuilt-workload-name": "slice-2",
    });
    let job = runs().with(json!({"metadata": {"labels": labels}}));
    let grown = second().admitted();
    let world = World { prebuilt: Prebuilt::Found(Arc::new(grown.0)), ..world(job) };
    assert_eq!(world.told(), "");
}
