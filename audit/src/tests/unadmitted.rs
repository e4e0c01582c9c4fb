//! Pods that run without an admitted Workload.

use serde_json::json;

use super::build::{Object, cluster, owner, pod, pod_set, workload};
use super::check;
use crate::{Cluster, FindingKind, audit, lasting};

const KIND: FindingKind = FindingKind::RunsWithoutAdmission;

const MANAGED: &str = "kueue.x-k8s.io/managed";
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";
const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// The queued job `j` with the Workload `w-j` and a pod.
fn job(workload: Object, pod: Object) -> Cluster {
    cluster().job("j").workload(workload).pod(pod.of("j"))
}

fn gated(pod: Object) -> Object {
    pod.with(json!({"spec": {"nodeName": null, "schedulingGates": [{"name": "any/gate"}]}}))
}

#[test]
fn pod_runs_only_by_an_admitted_workload() {
    let pod = || pod("p", "1");
    let one = [pod_set(1, "1")];
    let w = || workload("w-j");
    check(
        KIND,
        [
            ("an admitted Workload lets it run", job(w().admitted(&one), pod()), &[][..]),
            (
                "a Workload that waits does not",
                job(w(), pod()),
                &["Pod ns/p runs for Job ns/j, but its Workload ns/w-j is not admitted"],
            ),
            (
                "a reservation is not enough",
                job(w().reserved(&one), pod()),
                &[
                    "Pod ns/p runs for Job ns/j, but its Workload ns/w-j has its quota reserved only",
                ],
            ),
            (
                "a finished Workload holds no quota",
                job(w().admitted(&one).finished(), pod()),
                &["Pod ns/p runs for Job ns/j, but its Workload ns/w-j has finished"],
            ),
            (
                "a Workload of another job does not count",
                cluster().job("j").workload(workload("w-k").admitted(&one)).pod(pod().of("j")),
                &["Pod ns/p runs for Job ns/j, but it has no Workload"],
            ),
            (
                "a terminating pod still runs",
                job(w(), pod().terminating()),
                &["Pod ns/p runs for Job ns/j, but its Workload ns/w-j is not admitted"],
            ),
            (
                "a pod without a node may be bound at any moment",
                job(
                    w(),
                    pod().with(json!({"spec": {"nodeName": null}, "status": {"phase": "Pending"}})),
                ),
                &["Pod ns/p runs for Job ns/j, but its Workload ns/w-j is not admitted"],
            ),
            (
                "a gated pod waits, whatever phase a hub shows of its copy",
                job(w(), gated(pod())),
                &[],
            ),
            (
                "a pod that has failed has ended",
                job(w(), pod().with(json!({"status": {"phase": "Failed"}}))),
                &[],
            ),
            (
                "a terminating pod without a node is never bound",
                job(w(), pod().terminating().with(json!({"spec": {"nodeName": null}}))),
                &[],
            ),
        ],
    );
}

#[test]
fn pod_is_judged_if_an_owner_is_queued() {
    let alone = || pod("p", "1");
    let between = || cluster().owner("ReplicaSet", owner("rs").of("d"));
    check(
        KIND,
        [
            ("a pod without a queue", cluster().pod(alone()), &[][..]),
            (
                "a pod of a job without a queue",
                cluster().owner("Job", owner("j")).pod(alone().of("j")),
                &[],
            ),
            ("a group's name alone queues nobody", cluster().pod(alone().label(GROUP, "g")), &[]),
            (
                "a queued pod",
                cluster().pod(alone().queued()),
                &["Pod ns/p runs, but it has no Workload"],
            ),
            (
                "a pod that the webhook has marked",
                cluster().pod(alone().label(MANAGED, "true")),
                &["Pod ns/p runs, but it has no Workload"],
            ),
            ("an empty queue is none", cluster().pod(alone().label(QUEUE, "")), &[]),
            (
                "a pod of a queued Deployment",
                between().owner("Deployment", owner("d").queued()).pod(alone().of("rs")),
                &["Pod ns/p runs for Deployment ns/d, but it has no Workload"],
            ),
            (
                "a pod of a job that names a prebuilt Workload",
                cluster().owner("Job", owner("j").annotation(PREBUILT, "w")).pod(alone().of("j")),
                &["Pod ns/p runs for Job ns/j, but it has no Workload"],
            ),
            (
                "an owner of another namespace is none",
                cluster()
                    .owner(
                        "Job",
                        owner("j").queued().with(json!({"metadata": {"namespace": "other"}})),
                    )
                    .pod(alone().of("j")),
                &[],
            ),
        ],
    );
}

#[test]
fn workload_is_found_by_owner_group_or_name() {
    let one = [pod_set(1, "1")];
    let admitted = |name: &str| workload(name).admitted(&one);
    let free = |name: &str| admitted(name).with(json!({"metadata": {"ownerReferences": null}}));
    let member = |group: &str| pod("p", "1").queued().label(MANAGED, "true").label(GROUP, group);
    let named = || cluster().owner("Job", owner("j").queued().label(PREBUILT, "w"));
    check(
        KIND,
        [
            (
                "of the job above the job",
                cluster()
                    .owner("JobSet", owner("s").queued())
                    .owner("Job", owner("j").of("s"))
                    .workload(admitted("w-s"))
                    .pods("j", 1, "1"),
                &[][..],
            ),
            (
                "of an owner that was not listed",
                cluster()
                    .owner("Job", owner("j").queued().of("farm"))
                    .workload(admitted("w-farm"))
                    .pods("j", 1, "1"),
                &[],
            ),
            (
                "of the pod itself",
                cluster().workload(admitted("w-p")).pod(member("").queued()),
                &[],
            ),
            ("of a job that names it", named().workload(free("w")).pods("j", 1, "1"), &[]),
            (
                "of a job that names it and owns it",
                named().workload(free("w").of("j")).pods("j", 1, "1"),
                &[],
            ),
            (
                "not if another job controls it",
                named().workload(free("w").of("k")).pods("j", 1, "1"),
                &["Pod ns/j-0 runs for Job ns/j, but it has no Workload"],
            ),
            (
                "not in another namespace",
                named()
                    .workload(free("w").with(json!({"metadata": {"namespace": "other"}})))
                    .pods("j", 1, "1"),
                &["Pod ns/j-0 runs for Job ns/j, but it has no Workload"],
            ),
            ("of its group", cluster().workload(free("g")).pod(member("g")), &[]),
            (
                "of its group by the name that was made beforehand",
                cluster().workload(free("w")).pod(member("g").label(PREBUILT, "w")),
                &[],
            ),
            (
                "not of another group of the same LeaderWorkerSet",
                cluster()
                    .owner("LeaderWorkerSet", owner("set").queued())
                    .workload(free("g0").of("set"))
                    .pod(member("g1").of("set")),
                &["Pod ns/p runs for LeaderWorkerSet ns/set, but it has no Workload"],
            ),
            (
                "of the job, although its pods name a group that the webhook did not make",
                cluster()
                    .job("j")
                    .workload(admitted("w-j"))
                    .pod(pod("p", "1").label(GROUP, "g").of("j")),
                &[],
            ),
            (
                "of a leader that owns the set of its workers",
                cluster()
                    .owner("LeaderWorkerSet", owner("set").queued())
                    .owner("StatefulSet", owner("leaders").of("set"))
                    .owner("StatefulSet", owner("workers").of("leader"))
                    .workload(free("g0").of("set"))
                    .pod(pod("leader", "1").label(MANAGED, "true").label(GROUP, "g0").of("leaders"))
                    .pod(
                        pod("worker", "1").label(MANAGED, "true").label(GROUP, "g0").of("workers"),
                    ),
                &[],
            ),
        ],
    );
}

#[test]
fn scaled_down_stateful_set_is_found_while_its_pods_end() {
    let ends = |name: &str| {
        pod(name, "4").queued().label(MANAGED, "true").label(GROUP, "g").of("set").terminating()
    };
    let set = |workload: Object| {
        let cluster = cluster().owner("StatefulSet", owner("set").queued()).workload(workload);
        cluster.pod(ends("set-0")).pod(ends("set-1"))
    };
    let group = || workload("g").of("set");
    let charged = group().admitted(&[pod_set(2, "8")]);
    let found: &[&str] = &[
        "Pod ns/set-0 runs for StatefulSet ns/set, but its Workload ns/g is not admitted",
        "Pod ns/set-1 runs for StatefulSet ns/set, but its Workload ns/g is not admitted",
    ];
    check(
        KIND,
        [
            ("the Workload is put on hold while pods take their time to end", set(group()), found),
            ("the Workload is charged until they have ended", set(charged), &[]),
        ],
    );
}

#[test]
fn changed_stateful_set_is_found_when_a_pod_loses_its_gate() {
    let of_set =
        |name: &str| pod(name, "8").queued().label(MANAGED, "true").label(GROUP, "g").of("set");
    let set =
        cluster().owner("StatefulSet", owner("set").queued()).workload(workload("g").of("set"));
    check(
        KIND,
        [(
            "one pod of two lost its gate while the Workload waits",
            set.pod(of_set("set-0")).pod(gated(of_set("set-1"))),
            &["Pod ns/set-0 runs for StatefulSet ns/set, but its Workload ns/g is not admitted"][..],
        )],
    );
}

#[test]
fn slice_that_waits_for_its_checks_lets_pods_run() {
    let grown = workload("w2-j").reserved(&[pod_set(2, "2")]).slice("w1-j");
    let before = workload("w1-j").admitted(&[pod_set(1, "1")]).slice("").finished();
    check(
        KIND,
        [(
            "the pods of the slice before run on",
            cluster().job("j").workload(before).workload(grown).pods("j", 1, "1"),
            &[][..],
        )],
    );
}

#[test]
fn finding_lasts_only_for_the_same_pod() {
    let of = |uid: &str| {
        audit(&job(workload("w-j"), pod("p", "1").with(json!({"metadata": {"uid": uid}}))))
    };
    assert_eq!(lasting(&of("a"), of("a")).len(), 1);
    assert_eq!(lasting(&of("a"), of("b")), []);
}
