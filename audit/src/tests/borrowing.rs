//! What queues and cohorts may have.

use rstest::rstest;
use serde_json::{Value, json};

use super::{here, messages, workload};
use crate::{Cluster, audit};

fn quota(cpu: &str, limits: Value) -> Value {
    let mut quota = json!({"name": "cpu", "nominalQuota": cpu});
    switchyard_api::jobs::apply_merge(&mut quota, &limits);
    json!([{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}])
}

/// `cq` with five cpu of its own beside another queue with five, in a cohort.
fn shared(limits: Value, lent: Value) -> Cluster {
    let mut cluster = here();
    cluster.cluster_queues.clear();
    let spec = |limits: Value| json!({"spec": {"cohortName": "team", "resourceGroups": quota("5", limits)}});
    cluster.queue("cq", "5", spec(limits)).queue("other", "5", spec(lent))
}

#[rstest]
#[case::within_its_own(json!({}), json!({}), "5", None)]
#[case::all_that_the_other_leaves(json!({}), json!({}), "10", None)]
#[case::more_than_there_is(json!({}), json!({}), "11", Some("Cohort team is charged 11 cpu of flavor default, and may have 10"))]
#[case::to_its_limit(json!({"borrowingLimit": "2"}), json!({}), "7", None)]
#[case::beyond_its_limit(
    json!({"borrowingLimit": "2"}), json!({}), "8", Some("ClusterQueue cq is charged 8 cpu of flavor default, and may have 7")
)]
#[case::to_what_the_other_lends(json!({}), json!({"lendingLimit": "1"}), "6", None)]
#[case::beyond_what_the_other_lends(
    json!({}), json!({"lendingLimit": "1"}), "7", Some("Cohort team is charged 7 cpu of flavor default, and may have 6")
)]
fn a_queue_borrows(#[case] limits: Value, #[case] lent: Value, #[case] cpu: &str, #[case] want: Option<&str>) {
    let found = audit(&shared(limits, lent).workload(workload("a").reserved(1, cpu)));
    assert_eq!(messages(&found), want.into_iter().collect::<Vec<_>>());
}

#[test]
fn a_queue_of_its_own_may_have_its_quota() {
    let found = audit(&here().workload(workload("a").reserved(1, "10")));
    assert_eq!(messages(&found), ["ClusterQueue cq is charged 10 cpu of flavor default, and may have 9"]);
}

#[test]
fn cohorts_above_have_quota_too() {
    let tree = |limits: Value| {
        let team = json!({"parentName": "all", "resourceGroups": quota("0", limits)});
        let all = json!({"resourceGroups": quota("3", json!({}))});
        shared(json!({}), json!({})).cohort("team", team).cohort("all", all)
    };
    let found = |limits: Value, cpu: &str| audit(&tree(limits).workload(workload("a").reserved(1, cpu))).len();
    assert_eq!(found(json!({}), "13"), 0);
    assert_eq!(found(json!({}), "14"), 1);
    assert_eq!(found(json!({"borrowingLimit": "1"}), "11"), 0);
    assert_eq!(found(json!({"borrowingLimit": "1"}), "12"), 1);
}

#[test]
fn cohorts_that_are_above_each_other_are_skipped() {
    let around = shared(json!({}), json!({}))
        .cohort("team", json!({"parentName": "all"}))
        .cohort("all", json!({"parentName": "team"}));
    assert_eq!(audit(&around.workload(workload("a").reserved(1, "99"))), []);
}
