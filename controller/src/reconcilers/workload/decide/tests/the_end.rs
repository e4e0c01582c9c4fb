//! Finished, deleted and orphaned workloads.

use super::*;

/// The owner of an admitted workload let it go.
fn orphaned() -> Workload {
    workload("a").reserved("cq").admitted().edit(|workload| {
        workload.metadata.owner_references = None;
        workload.metadata.labels =
            Some([("kueue.x-k8s.io/job-uid".to_owned(), "job-a".to_owned())].into());
    })
}

#[test]
fn finished_deleted_and_orphaned_workloads() {
    let cases = vec![
        (
            "finished workloads are kept for a while",
            workload("a").condition_at(80, "Finished", true, "Succeeded", "done"),
            open(),
            patient(None),
        ),
        (
            "finished workloads are deleted in the end",
            workload("a").condition_at(30, "Finished", true, "Succeeded", "done"),
            open(),
            patient(None),
        ),
        (
            "a finished copy waits for its hub",
            workload("a").condition_at(30, "Finished", true, "Succeeded", "done").edit(
                |workload| {
                    workload.metadata.annotations =
                        Some([(names::WORKLOAD_UID.to_owned(), "hub-a".to_owned())].into());
                },
            ),
            open(),
            patient(None),
        ),
        (
            "a finished workload that is deleted goes, whoever watches its job",
            workload("a").condition_at(30, "Finished", true, "Succeeded", "done").deleting(),
            open(),
            Rules::default(),
        ),
        (
            "a finished copy that is deleted waits for its hub, too",
            workload("a").condition_at(30, "Finished", true, "Succeeded", "done").deleting().edit(
                |workload| {
                    workload.metadata.annotations =
                        Some([(names::WORKLOAD_UID.to_owned(), "hub-a".to_owned())].into());
                },
            ),
            open(),
            Rules::default(),
        ),
        (
            "deleted without an owner",
            workload("a").deleting().edit(|workload| workload.metadata.owner_references = None),
            open(),
            Rules::default(),
        ),
        (
            "deleted with an owner is the job reconcilers",
            workload("a").reserved("cq").admitted().deleting(),
            open(),
            Rules::default(),
        ),
        (
            "deleted after its owner",
            workload("a").reserved("cq").admitted().deleting(),
            WorkloadInputs { owner_gone: true, ..open() },
            Rules::default(),
        ),
        ("its owner let it go", orphaned(), open(), Rules::default()),
        (
            "its owner let it go while its copy is on a cluster",
            orphaned(),
            WorkloadInputs { held_by_cluster: true, ..open() },
            Rules::default(),
        ),
        (
            "and is deleted then",
            workload("a")
                .reserved("cq")
                .admitted()
                .deleting()
                .edit(|workload| workload.metadata.owner_references = None),
            WorkloadInputs { held_by_cluster: true, ..open() },
            Rules::default(),
        ),
        (
            "and is left as it is",
            orphaned(),
            open(),
            Rules { leaves_orphans: true, ..Rules::default() },
        ),
    ];
    insta::assert_snapshot!(table(cases), @r"
    # finished workloads are kept for a while
    again in 40s
    # finished workloads are deleted in the end
    release
    delete
    event Normal Deleted: Deleted finished workload due to elapsed retention
    # a finished copy waits for its hub
    # a finished workload that is deleted goes, whoever watches its job
    release
    # a finished copy that is deleted waits for its hub, too
    # deleted without an owner
    release
    # deleted with an owner is the job reconcilers
    # deleted after its owner
    release
    # its owner let it go
    10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
    12s Admitted=True Admitted: The workload is admitted
    100s Finished=True OwnerNotFound: The workload's owner no longer exists
    keeps its admission
    release
    # its owner let it go while its copy is on a cluster
    delete
    # and is deleted then
    again in 10s
    # and is left as it is
    ");
}

#[test]
fn dispatched_workload_outlives_its_owner_until_stopped() {
    let deleted = workload("a").reserved("cq").admitted().deleting();
    let inputs = WorkloadInputs { owner_gone: true, held_by_cluster: true, ..open() };
    let plan = decide(&deleted, &inputs, &Rules::default(), at(100));
    assert_eq!(
        plan,
        WorkloadPlan { again: Some(Duration::from_secs(10)), ..WorkloadPlan::default() }
    );
}
