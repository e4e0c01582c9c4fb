//! Pods that request more than their Workloads charge.

use serde_json::{Value, json};

use super::build::{Object, cluster, owner, pod, pod_set, pod_set_of, workload};
use super::check;
use crate::{Cluster, FindingKind, audit};

const KIND: FindingKind = FindingKind::RunsAboveCharge;

/// The queued job `j` with its Workload.
fn job(workload: Object) -> Cluster {
    cluster().job("j").workload(workload)
}

fn admitted(count: i32, cpu: &str) -> Object {
    workload("w-j").admitted(&[pod_set(count, cpu)])
}

#[test]
fn requests_are_compared_with_the_charge() {
    let partly = admitted(2, "2")
        .with(json!({"spec": {"podSets": [{"name": "main", "count": 6, "template": {}}]}}));
    check(
        KIND,
        [
            ("as many pods run as are charged", job(admitted(2, "2")).pods("j", 2, "1"), &[][..]),
            ("fewer run", job(admitted(2, "2")).pods("j", 1, "1"), &[]),
            (
                "a job that is charged for 2 of its 6 pods runs all",
                job(partly).pods("j", 6, "1"),
                &["6 pods ask for 6 cpu of flavor default, but Workload ns/w-j is charged 2"],
            ),
            (
                "the pods of a prebuilt Workload ask for more than it counts",
                job(admitted(1, "1")).pods("j", 1, "8"),
                &["1 pod asks for 8 cpu of flavor default, but Workload ns/w-j is charged 1"],
            ),
            (
                "a terminating pod counts beside its replacement",
                job(admitted(1, "1")).pods("j", 1, "1").pod(pod("old", "1").of("j").terminating()),
                &["2 pods ask for 2 cpu of flavor default, but Workload ns/w-j is charged 1"],
            ),
            (
                "a gated pod asks for nothing",
                job(admitted(1, "1")).pods("j", 1, "1").pod(
                    pod("new", "1").of("j").with(
                        json!({"spec": {"nodeName": null, "schedulingGates": [{"name": "g"}]}}),
                    ),
                ),
                &[],
            ),
            (
                "a pod that has succeeded asks for nothing",
                job(admitted(1, "1"))
                    .pods("j", 1, "1")
                    .pod(pod("done", "1").of("j").with(json!({"status": {"phase": "Succeeded"}}))),
                &[],
            ),
        ],
    );
}

#[test]
fn reclaimed_pods_are_not_charged() {
    let five = || admitted(5, "10");
    check(
        KIND,
        [
            (
                "as many are left as are charged",
                job(five().reclaimable(3)).pods("j", 2, "2"),
                &[][..],
            ),
            (
                "a Job of parallelism 5 and completions 3 gives back too many",
                job(five().reclaimable(5)).pods("j", 2, "2"),
                &["2 pods ask for 4 cpu of flavor default, but Workload ns/w-j is charged 0"],
            ),
            (
                "a JobSet restarts whole while its reclaimable pods stay",
                job(admitted(3, "9").reclaimable(2)).pods("j", 3, "3"),
                &["3 pods ask for 9 cpu of flavor default, but Workload ns/w-j is charged 3"],
            ),
            (
                "an elastic job that shrank has old reclaimable pods, which do not count",
                job(admitted(2, "2").slice("").reclaimable(3)).pods("j", 2, "1"),
                &[],
            ),
        ],
    );
}

#[test]
fn requests_are_those_that_the_api_server_admitted() {
    let spec = |spec: Value| {
        job(admitted(1, "1")).pod(pod("p", "1").of("j").with(json!({ "spec": spec })))
    };
    let limits = json!([{"name": "c", "resources": {"limits": {"cpu": "4"}}}]);
    let sidecar =
        json!([{"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}]);
    check(
        KIND,
        [
            (
                "the overhead of a RuntimeClass that was made anew",
                spec(json!({"overhead": {"cpu": "4"}})),
                &["1 pod asks for 5 cpu of flavor default, but Workload ns/w-j is charged 1"][..],
            ),
            (
                "limits where there are no requests",
                spec(json!({ "containers": limits })),
                &["1 pod asks for 4 cpu of flavor default, but Workload ns/w-j is charged 1"],
            ),
            (
                "requests of the pod as a whole",
                spec(json!({"resources": {"requests": {"cpu": "8"}}})),
                &["1 pod asks for 8 cpu of flavor default, but Workload ns/w-j is charged 1"],
            ),
            (
                "sidecars",
                spec(json!({ "initContainers": sidecar })),
                &["1 pod asks for 3 cpu of flavor default, but Workload ns/w-j is charged 1"],
            ),
        ],
    );
}

#[test]
fn only_covered_resources_are_compared() {
    let containers = json!([{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "2Gi", "example.com/nic": "1"}}}]);
    let rich = || pod("p", "1").of("j").with(json!({"spec": {"containers": containers}}));
    let covers = |resources: &[&str]| {
        let quotas: Vec<Value> =
            resources.iter().map(|name| json!({"name": name, "nominalQuota": "99Gi"})).collect();
        let group = json!({"coveredResources": resources, "flavors": [{"name": "default", "resources": quotas}]});
        job(admitted(1, "1")).queue("cq", json!({"resourceGroups": [group]})).pod(rich())
    };
    let mut unknown = job(admitted(1, "1")).pod(rich());
    unknown.cluster_queues.clear();
    check(
        KIND,
        [
            ("what no quota covers is not counted", covers(&["cpu"]), &[][..]),
            (
                "a covered resource that was not charged at all",
                covers(&["cpu", "memory"]),
                &["1 pod asks for 2Gi memory, but Workload ns/w-j is charged 0"],
            ),
            (
                "the number of pods",
                covers(&["cpu", "pods"]),
                &["1 pod asks for 1 pods, but Workload ns/w-j is charged 0"],
            ),
            ("of a ClusterQueue that was not seen, what was charged is compared", unknown, &[]),
        ],
    );
}

#[test]
fn flavors_are_those_of_the_pod_sets() {
    let sets = [pod_set_of("a", "spot", 1, "4"), pod_set_of("b", "default", 1, "1")];
    let two = || job(workload("w-j").admitted(&sets));
    let of = |name: &str, cpu: &str| pod(name, cpu).of("j").label("kueue.x-k8s.io/podset", name);
    check(
        KIND,
        [
            (
                "room in another flavor does not help",
                two().pod(of("a", "1")).pod(of("b", "2")),
                &["2 pods ask for 2 cpu of flavor default, but Workload ns/w-j is charged 1"][..],
            ),
            (
                "pods of unknown pod sets are compared with the sum over all flavors",
                two().pod(pod("x", "3").of("j")).pod(of("b", "2")),
                &[],
            ),
            (
                "and found above it",
                two().pod(pod("x", "4").of("j")).pod(of("b", "2")),
                &["2 pods ask for 6 cpu, but Workload ns/w-j is charged 5"],
            ),
        ],
    );
}

#[test]
fn pod_group_with_forged_roles_is_found() {
    let member = |name: &str, cpu: &str| {
        let pod = pod(name, cpu).queued().label("kueue.x-k8s.io/managed", "true");
        pod.label("kueue.x-k8s.io/pod-group-name", "g")
            .annotation("kueue.x-k8s.io/role-hash", "same")
    };
    let group = workload("g").admitted(&[pod_set_of("same", "default", 2, "200m")]);
    let group = group.with(json!({"metadata": {"ownerReferences": null}}));
    check(
        KIND,
        [(
            "pods of 100m and 8 cpu with one role are charged as two of the first",
            cluster().workload(group).pod(member("a", "100m")).pod(member("b", "8")),
            &["2 pods ask for 8100m cpu of flavor default, but Workload ns/g is charged 200m"][..],
        )],
    );
}

#[test]
fn slices_of_one_job_are_summed() {
    let first = || workload("w1-j").admitted(&[pod_set(1, "1")]).slice("");
    let second = || workload("w2-j").admitted(&[pod_set(3, "3")]).slice("w1-j");
    let both = || job(first()).workload(second());
    check(
        KIND,
        [
            ("the newer slice is charged for all pods", both().pods("j", 3, "1"), &[][..]),
            (
                "the older one is charged nothing beside it",
                both().pods("j", 4, "1"),
                &[
                    "4 pods ask for 4 cpu of flavor default, but Workload ns/w2-j and Workload ns/w1-j are charged 3",
                ],
            ),
            (
                "unless the newer one holds no quota",
                job(first()).workload(workload("w2-j").slice("w1-j")).pods("j", 2, "1"),
                &["2 pods ask for 2 cpu of flavor default, but Workload ns/w1-j is charged 1"],
            ),
        ],
    );
}

#[test]
fn pods_with_a_workload_in_common_are_summed() {
    let owned = |workload: Object, owners: &[&str]| {
        let owner = |name: &&str| json!({"apiVersion": "v1", "kind": "Job", "name": name, "uid": format!("uid-{name}")});
        let owners: Vec<Value> = owners.iter().map(owner).collect();
        workload.with(json!({"metadata": {"ownerReferences": owners}})).admitted(&[pod_set(1, "1")])
    };
    let jobs = ["a", "b", "c", "d"]
        .into_iter()
        .fold(cluster(), |cluster, job| cluster.job(job).pods(job, 1, "1"));
    // `a` and `c` precede `b`, which shares a Workload with each.
    let bridge = jobs
        .workload(owned(workload("w1"), &["a", "b"]))
        .workload(owned(workload("w2"), &["b", "c"]))
        .workload(owned(workload("w3"), &["d"]));
    check(
        KIND,
        [(
            "three pods of two Workloads, and one beside them",
            bridge,
            &[
                "3 pods ask for 3 cpu of flavor default, but Workload ns/w1 and Workload ns/w2 are charged 2",
            ][..],
        )],
    );
}

#[test]
fn groups_of_one_owner_are_compared_one_by_one() {
    let group = |name: &str| workload(name).of("set").admitted(&[pod_set(1, "2")]);
    let member = |name: &str, group: &str, cpu: &str| {
        pod(name, cpu)
            .label("kueue.x-k8s.io/managed", "true")
            .label("kueue.x-k8s.io/pod-group-name", group)
            .of("set")
    };
    let set = cluster()
        .owner("LeaderWorkerSet", owner("set").queued())
        .workload(group("g0"))
        .workload(group("g1"));
    check(
        KIND,
        [(
            "one group asks for too much while the other asks for less",
            set.pod(member("a", "g0", "3")).pod(member("b", "g1", "1")),
            &["1 pod asks for 3 cpu of flavor default, but Workload ns/g0 is charged 2"][..],
        )],
    );
}

#[test]
fn finding_names_objects_and_amounts() {
    let found = audit(&job(admitted(1, "1")).pods("j", 2, "1"));
    let [finding] = found.as_slice() else { panic!("{found:?}") };
    let objects: Vec<String> = finding.objects.iter().map(ToString::to_string).collect();
    assert_eq!(objects, ["Workload ns/w-j", "Job ns/j", "Pod ns/j-0", "Pod ns/j-1"]);
    assert_eq!(
        (finding.amounts.running.as_deref(), finding.amounts.charged.as_deref()),
        (Some("2"), Some("1"))
    );
    assert_eq!(
        (finding.flavor.as_deref(), finding.resource.as_deref()),
        (Some("default"), Some("cpu"))
    );
}
