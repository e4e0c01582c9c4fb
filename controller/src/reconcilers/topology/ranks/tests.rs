use k8s_openapi::api::core::v1::Pod;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    fixtures::{self, WorkloadExt as _},
    stores::pods::InternedRequests,
};

const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const JOB: &str = "jobset.sigs.k8s.io/job-index";

/// A pod set with as many pods as its places, each `HOST=COUNT`.
#[derive(Clone, Default)]
struct Set {
    name: &'static str,
    places: &'static str,
    request: Value,
}

fn set(places: &'static str) -> Set {
    Set { name: "main", places, request: json!({"podIndexLabel": INDEX}) }
}

fn workload(sets: &[Set], failed: &[&str]) -> Workload {
    let slices = |set: &Set| -> (Vec<Value>, i64) {
        let places = set.places.split_whitespace().map(|place| place.split_once('=').unwrap());
        let places: Vec<(&str, i64)> =
            places.map(|(host, count)| (host, count.parse().unwrap())).collect();
        let slice = |(host, count): &(&str, i64)| json!({"domainCount": 1, "valuesPerLevel": [{"universal": host}], "podCounts": {"universal": count}});
        (places.iter().map(slice).collect(), places.iter().map(|(_, count)| count).sum())
    };
    let assignments: Vec<Value> = sets
        .iter()
        .map(|set| {
            let (slices, count) = slices(set);
            json!({"name": set.name, "count": count, "topologyAssignment": {"levels": [HOSTNAME], "slices": slices}})
        })
        .collect();
    let pod_sets: Vec<Value> = sets
        .iter()
        .map(|set| json!({"name": set.name, "count": slices(set).1, "template": {"spec": {}}, "topologyRequest": set.request}))
        .collect();
    let unhealthy: Vec<Value> = failed.iter().map(|node| json!({"name": node})).collect();
    fixtures::workload("w").reserved("cq").admitted().edit(|workload| {
        workload.spec.pod_sets = serde_json::from_value(json!(pod_sets)).unwrap();
        let status = workload.status.as_mut().unwrap();
        status.admission =
            serde_json::from_value(json!({"clusterQueue": "cq", "podSetAssignments": assignments}))
                .unwrap();
        status.unhealthy_nodes = serde_json::from_value(json!(unhealthy)).unwrap();
    })
}

/// `NAME[/INDEX[/JOB]][@HOST][!]`: `@HOST` is not gated any more; `!` has ended.
fn pod(text: &str) -> Arc<PodRecord> {
    let (text, ended) = text.strip_suffix('!').map_or((text, false), |text| (text, true));
    let (text, host) = text.split_once('@').map_or((text, None), |(text, host)| (text, Some(host)));
    let mut parts = text.split('/');
    let (name, index, job) = (parts.next().unwrap(), parts.next(), parts.next());
    let pod_set = if name.starts_with("leader") { "leader" } else { "main" };
    let mut labels = json!({names::POD_SET: pod_set});
    for (key, value) in [(INDEX, index), (JOB, job)] {
        if let Some(value) = value {
            labels[key] = json!(value);
        }
    }
    let gates =
        if host.is_some() { json!([]) } else { json!([{"name": names::TOPOLOGY_SCHEDULING_GATE}]) };
    let selector = host.map_or(json!({}), |host| json!({HOSTNAME: host}));
    let mut annotations =
        json!({names::POD_SET_UNCONSTRAINED_TOPOLOGY: "true", names::WORKLOAD: "w"});
    if name.starts_with("second") {
        annotations[names::POD_INDEX_OFFSET] = json!("1");
    }
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ns", "labels": labels, "annotations": annotations},
        "spec": {"containers": [], "schedulingGates": gates, "nodeSelector": selector},
        "status": {"phase": if ended { "Failed" } else { "Pending" }},
    }))
    .unwrap();
    Arc::new(PodRecord::of(pod, &InternedRequests::default()).unwrap())
}

fn ungated_pods(workload: &Workload, pods: &str) -> String {
    let pods: Vec<_> = pods.split_whitespace().map(pod).collect();
    let all = pods_to_ungate(workload, &pods);
    let ungated = all.iter().map(|all| format!("{}@{}", name(all.pod), all.selector[HOSTNAME]));
    ungated.collect::<Vec<_>>().join(" ")
}

#[rstest]
#[case::by_rank("c/2 a/1 b/0", "a@y b@x c@y")]
#[case::later_pods_keep_their_rank("a/2", "a@y")]
#[case::placed_pod_at_its_rank("a/0@x b/1", "b@y")]
#[case::placed_pod_elsewhere("a/0@y b/1 c/2", "b@x c@y")]
#[case::missing_number("c/2 b a/1", "a@x b@y c@y")]
#[case::duplicate_number("a/1 b/1", "a@x b@y")]
#[case::number_too_high("a/3 b/0", "a@x b@y")]
#[case::negative_number("a/-1 b/0", "a@x b@y")]
#[case::ended_pod_is_ignored("a/0@x! b/0 c/1", "b@x c@y")]
#[case::more_pods_than_places("a b c d e", "a@x b@y c@y")]
#[case::no_pods("", "")]
fn pods_take_the_places_of_their_ranks(#[case] pods: &str, #[case] expected: &str) {
    assert_eq!(ungated_pods(&workload(&[set("x=1 y=2")], &[]), pods), expected);
}

#[test]
fn unranked_pods_fill_free_places() {
    let set = Set { request: json!({}), ..set("x=1 y=2") };
    assert_eq!(ungated_pods(&workload(&[set], &[]), "b/0 a/2 c/1"), "a@x b@y c@y");
}

#[test]
fn pods_for_a_failed_node_stay_gated() {
    assert_eq!(ungated_pods(&workload(&[set("x=1 y=1")], &["x"]), "a/0 b/1"), "b@y");
}

#[rstest]
#[case::each_job_has_its_ranks("a/0/0 b/1/0 c/0/1 d/1/1", "a@x b@x c@y d@y")]
#[case::number_beyond_its_job("a/2/0 b/0/1", "a@x b@x")]
#[case::unknown_job("a/0/2 b/0/0", "a@x b@x")]
fn ranks_continue_across_jobs_of_a_set(#[case] pods: &str, #[case] expected: &str) {
    let request = json!({"podIndexLabel": INDEX, "subGroupIndexLabel": JOB, "subGroupCount": 2});
    assert_eq!(ungated_pods(&workload(&[Set { request, ..set("x=2 y=2") }], &[]), pods), expected);
}

#[rstest]
#[case::zero(json!(0))]
#[case::negative(json!(-1))]
#[case::missing(Value::Null)]
fn invalid_job_count_falls_back_to_free_places(#[case] count: Value) {
    let request =
        json!({"podIndexLabel": INDEX, "subGroupIndexLabel": JOB, "subGroupCount": count});
    assert_eq!(
        ungated_pods(&workload(&[Set { request, ..set("x=1 y=1") }], &[]), "a/1/0 b/0/0"),
        "a@x b@y"
    );
}

#[test]
fn worker_ranks_follow_the_leader() {
    let request = json!({"podIndexLabel": INDEX, "podSetGroupName": "g"});
    let leader = Set { name: "leader", places: "x=1", request: request.clone() };
    let workers = Set { request, ..set("x=1 y=1") };
    let workload = workload(&[leader, workers], &[]);
    assert_eq!(ungated_pods(&workload, "leader/0 a/2 b/1"), "leader@x a@y b@x");
}

#[test]
fn ranks_start_at_the_annotated_offset() {
    assert_eq!(
        ungated_pods(&workload(&[set("x=1 y=1")], &[]), "second-a/2 second-b/1"),
        "second-a@y second-b@x"
    );
}

#[test]
fn workload_without_quota_ungates_no_pod() {
    assert_eq!(ungated_pods(&fixtures::workload("w"), "a/0"), "");
}
