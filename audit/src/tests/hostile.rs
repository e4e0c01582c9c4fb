//! Data that no API server stores, or that tenants forge.

use proptest::prelude::*;
use serde_json::json;

use super::build::{cluster, owner, pod, pod_set, workload};
use super::messages;
use crate::{Cluster, FindingKind, audit, compare};

#[test]
fn owners_that_own_each_other_end() {
    let ring = cluster()
        .owner("Job", owner("a").of("b"))
        .owner("Job", owner("b").of("a").queued())
        .pods("a", 1, "1");
    let found = audit(&ring);
    assert_eq!(
        messages(&found, FindingKind::RunsWithoutAdmission),
        ["Pod ns/a-0 runs for Job ns/b, but it has no Workload"]
    );
}

#[test]
fn slices_that_replace_each_other_stay_charged() {
    let slice = |name: &str, old: &str| workload(name).admitted(&[pod_set(1, "6")]).slice(old);
    let ring = cluster().workload(slice("w1-j", "w2-j")).workload(slice("w2-j", "w1-j"));
    let expected = ["ClusterQueue cq is charged 12 cpu of flavor default, but may have 9"];
    assert_eq!(messages(&audit(&ring), FindingKind::ChargedAboveQuota), expected);
}

#[test]
fn requests_that_cannot_be_read_are_skipped() {
    let job = cluster().job("j").workload(workload("w-j").admitted(&[pod_set(1, "1")]));
    assert_eq!(audit(&job.clone().pods("j", 1, "much")), []);
    let empty = job.pod(owner("p").of("j"));
    assert_eq!(audit(&empty), []);
}

/// A cluster whose objects refer to each other at random.
fn tangle() -> impl Strategy<Value = Cluster> {
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    let amount = prop::sample::select(vec!["1", "-3", "9223372036854775807", "1e30", "much", ""]);
    let one = (name(), name(), amount, any::<i32>(), 0..8_u8);
    prop::collection::vec(one, 0..12).prop_map(|parts| {
        parts.into_iter().fold(
            cluster(),
            |cluster, (this, other, amount, count, kind)| match kind {
                0 => cluster.owner("Job", owner(this).of(other).queued()),
                1 => cluster.pod(pod(this, amount).of(other)),
                2 => cluster.workload(
                    workload(this).of(other).admitted(&[pod_set(count, amount)]).reclaimable(count),
                ),
                3 => cluster
                    .workload(workload(this).admitted(&[pod_set(count, amount)]).slice(other)),
                4 => cluster.cohort(this, json!({"parentName": other})),
                5 => cluster.queue(this, json!({"cohortName": other})),
                6 => cluster.workload(
                    workload(this)
                        .annotation("switchyard.dev/workload-uid", &format!("uid-{other}")),
                ),
                _ => cluster.pod(
                    pod(this, amount)
                        .label("kueue.x-k8s.io/managed", "true")
                        .label("kueue.x-k8s.io/pod-group-name", other),
                ),
            },
        )
    })
}

proptest! {
    #[test]
    fn no_input_panics_and_equal_inputs_agree(hub in tangle(), worker in tangle()) {
        prop_assert_eq!(audit(&hub), audit(&hub));
        let workers = [worker];
        prop_assert_eq!(compare(&hub, &workers), compare(&hub, &workers));
    }
}
