//! Queues and Cohorts that charge more than their quota.

use serde_json::{Value, json};

use super::build::{cluster, pod_set, quota, workload};
use super::check;
use crate::{Cluster, FindingKind};

const KIND: FindingKind = FindingKind::ChargedAboveQuota;

/// The ClusterQueues `cq` and `other` with 5 cpu each in the Cohort `team`, and a Workload in `cq`.
fn shared(limits: Value, lent: Value, cpu: &str) -> Cluster {
    let spec = |limits: &Value| json!({"cohortName": "team", "resourceGroups": [quota("default", "5", limits)]});
    charged(cluster().queue("cq", spec(&limits)).queue("other", spec(&lent)), cpu)
}

fn charged(cluster: Cluster, cpu: &str) -> Cluster {
    cluster.workload(workload("w-j").reserved(&[pod_set(1, cpu)]))
}

#[test]
fn queue_may_use_nominal_quota_and_borrow() {
    let none = || json!({});
    check(
        KIND,
        [
            ("all of its own", charged(cluster(), "9"), &[][..]),
            (
                "more than its own, without a cohort",
                charged(cluster(), "10"),
                &["ClusterQueue cq is charged 10 cpu of flavor default, but may have 9"],
            ),
            (
                "a flavor without quota",
                charged(cluster().queue("cq", json!({"resourceGroups": []})), "1"),
                &["ClusterQueue cq is charged 1 cpu of flavor default, but may have 0"],
            ),
            ("all that the cohort has", shared(none(), none(), "10"), &[]),
            (
                "more than the cohort has",
                shared(none(), none(), "11"),
                &[
                    "The queues of Cohort team are charged 11 cpu of flavor default, but may have 10",
                ],
            ),
            ("up to its borrowing limit", shared(json!({"borrowingLimit": "2"}), none(), "7"), &[]),
            (
                "beyond its borrowing limit",
                shared(json!({"borrowingLimit": "2"}), none(), "8"),
                &["ClusterQueue cq is charged 8 cpu of flavor default, but may have 7"],
            ),
            (
                "up to the other's lending limit",
                shared(none(), json!({"lendingLimit": "1"}), "6"),
                &[],
            ),
            (
                "beyond the other's lending limit",
                shared(none(), json!({"lendingLimit": "1"}), "7"),
                &["The queues of Cohort team are charged 7 cpu of flavor default, but may have 6"],
            ),
            (
                "a limit that cannot be read",
                shared(json!({"borrowingLimit": "much"}), none(), "99"),
                &[],
            ),
        ],
    );
}

/// As [`shared`], with the Cohort `all` of 3 cpu above `team`.
fn tree(limits: Value, cpu: &str) -> Cluster {
    let team = json!({"parentName": "all", "resourceGroups": [quota("default", "0", &limits)]});
    let all = json!({"resourceGroups": [quota("default", "3", &json!({}))]});
    shared(json!({}), json!({}), cpu).cohort("team", team).cohort("all", all)
}

#[test]
fn cohort_may_use_the_quota_below_and_borrow() {
    let none = || json!({});
    let limited = || json!({"borrowingLimit": "1"});
    check(
        KIND,
        [
            ("all of the tree", tree(none(), "13"), &[][..]),
            (
                "more than the tree has",
                tree(none(), "14"),
                &["The queues of Cohort all are charged 14 cpu of flavor default, but may have 13"],
            ),
            ("up to the cohort's borrowing limit", tree(limited(), "11"), &[]),
            (
                "beyond the cohort's borrowing limit",
                tree(limited(), "12"),
                &[
                    "The queues of Cohort team are charged 12 cpu of flavor default, but may have 11",
                ],
            ),
            (
                "cohorts above each other admit nothing and are not judged",
                shared(none(), none(), "99")
                    .cohort("team", json!({"parentName": "all"}))
                    .cohort("all", json!({"parentName": "team"})),
                &[],
            ),
        ],
    );
}
