//! Cases beyond the manifests in `api/tests/manifests/refused`: limits that need large objects, and
//! objects that are accepted.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    field::FieldError,
    names,
    v1beta2::{ClusterQueue, ClusterQueueSpec, Workload},
};

fn cluster_queue(queue: &ClusterQueue) -> Vec<FieldError> {
    super::cluster_queue(queue, ValidationGates::default())
}

fn cluster_queue_update(queue: &ClusterQueue, old: &ClusterQueue) -> Vec<FieldError> {
    super::cluster_queue_update(queue, old, ValidationGates::default())
}

fn workload_update(new: &Workload, old: &Workload) -> Vec<FieldError> {
    super::workload_update(new, old, ValidationGates::default())
}

fn messages(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn queue(spec: Value) -> ClusterQueue {
    ClusterQueue::new("queue", serde_json::from_value::<ClusterQueueSpec>(spec).unwrap())
}

/// A resource group of `flavors` flavors with `resources` resources each, named after `group`.
fn group(group: usize, flavors: usize, resources: usize) -> Value {
    let names: Vec<String> = (0..resources).map(|i| format!("example.com/g{group}-r{i}")).collect();
    let quotas: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "nominalQuota": 1})).collect();
    let flavors: Vec<Value> = (0..flavors)
        .map(|i| json!({"name": format!("g{group}-f{i}"), "resources": quotas}))
        .collect();
    json!({"coveredResources": names, "flavors": flavors})
}

#[rstest]
#[case::as_many_flavors_as_fit(vec![group(0, 64, 1), group(1, 64, 1), group(2, 64, 1), group(3, 64, 1)], &[])]
#[case::a_flavor_too_many(
    vec![group(0, 64, 1), group(1, 64, 1), group(2, 64, 1), group(3, 64, 1), group(4, 1, 1)],
    &["spec.resourceGroups: Invalid value: 257: total number of flavors across all resourceGroups must be ≤ 256, got 257"]
)]
#[case::a_resource_too_many(
    vec![group(0, 1, 64), group(1, 1, 64), group(2, 1, 64), group(3, 1, 64), group(4, 1, 1)],
    &["spec.resourceGroups: Invalid value: 257: total number of covered resources across all resourceGroups must be ≤ 256, got 257"]
)]
#[case::too_many_combinations(
    vec![group(0, 27, 19)],
    &["spec.resourceGroups[0]: Invalid value: 513: number of flavor-resource combinations in a resourceGroup must be ≤ 512, got 513"]
)]
fn totals_are_bounded(#[case] groups: Vec<Value>, #[case] expected: &[&str]) {
    assert_eq!(messages(&cluster_queue(&queue(json!({"resourceGroups": groups})))), expected);
}

#[test]
fn check_for_missing_flavor_kept_by_update_is_accepted() {
    let spec = |flavor: &str, on: &str, strategy: &str| {
        queue(json!({
            "queueingStrategy": strategy,
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": 1}]},
            ]}],
            "admissionChecksStrategy": {"admissionChecks": [{"name": "check", "onFlavors": [on]}]},
        }))
    };
    let old = spec("spot", "gone", "StrictFIFO");
    assert!(cluster_queue_update(&spec("spot", "gone", "BestEffortFIFO"), &old).is_empty());
    assert_eq!(cluster_queue_update(&spec("spot", "lost", "StrictFIFO"), &old).len(), 1);
    assert_eq!(
        cluster_queue_update(&spec("other", "gone", "StrictFIFO"), &old).len(),
        1,
        "the flavors changed"
    );
    assert_eq!(cluster_queue(&old).len(), 1, "a new one is not let through");
    let strict = ValidationGates { reject_invalid_on_flavors: true, ..ValidationGates::default() };
    let changed = spec("spot", "gone", "BestEffortFIFO");
    assert_eq!(
        super::cluster_queue_update(&changed, &old, strict).len(),
        1,
        "nor an old one where a gate says so"
    );
}

#[rstest]
#[case::two_groups(json!({"resourceGroups": [group(0, 1, 1), group(1, 1, 1)]}))]
#[case::strict_order(json!({"resourceGroups": [group(0, 1, 1)], "queueingStrategy": "StrictFIFO"}))]
fn concurrent_admission_policy_is_checked_with_its_gate(#[case] mut spec: Value) {
    spec["concurrentAdmissionPolicy"] = json!({"migration": {"mode": "TryPreferredFlavors"}});
    let queue = queue(spec);
    assert!(cluster_queue(&queue).is_empty());
    let gates = ValidationGates { concurrent_admission: true, ..ValidationGates::default() };
    assert_eq!(super::cluster_queue(&queue, gates).len(), 1);
}

#[rstest]
#[case::a_number("5", None)]
#[case::a_negative_one("-5", None)]
#[case::a_positive_one_that_says_so("+5", None)]
#[case::nothing(
    "",
    Some(
        "\"\": must be a valid signed integer; use \"0\" explicitly, empty string is not allowed"
    )
)]
#[case::a_word("high", Some("\"high\": must be a valid signed integer"))]
#[case::a_fraction("1.5", Some("\"1.5\": must be a valid signed integer"))]
#[case::more_than_a_priority_may_be(
    "2147483648",
    Some("\"2147483648\": must be a valid signed integer")
)]
fn priority_boost_with_gate_must_be_an_integer(#[case] boost: &str, #[case] refused: Option<&str>) {
    let boosted = reserved(1, &json!({"kueue.x-k8s.io/priority-boost": boost}));
    let gates = ValidationGates { priority_boost: true, ..ValidationGates::default() };
    let path = "metadata.annotations[kueue.x-k8s.io/priority-boost]: Invalid value: ";
    let expected: Vec<String> = refused.iter().map(|refused| format!("{path}{refused}")).collect();
    assert_eq!(messages(&workload(&boosted, None, gates)), expected);
    assert_eq!(
        messages(&super::workload_update(&boosted, &reserved(1, &json!({})), gates)),
        expected,
        "added"
    );
    assert!(
        super::workload_update(&boosted, &boosted, gates).is_empty(),
        "what came past it may be written further"
    );
    assert!(
        workload(&boosted, None, ValidationGates::default()).is_empty(),
        "without the gate it says nothing"
    );
}

/// A Workload with one pod set and quota for `count` pods.
fn reserved(count: i32, annotations: &Value) -> Workload {
    serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "n", "annotations": annotations},
        "spec": {"podSets": [{
            "name": "main", "count": count, "template": {"spec": {"containers": [{"name": "c"}]}},
        }]},
        "status": {
            "conditions": [{
                "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }],
            "admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 4}]},
        },
    }))
    .unwrap()
}

fn with_status(workload: &Workload, status: &Value) -> Workload {
    let mut value = serde_json::to_value(workload).unwrap();
    value["status"].as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    serde_json::from_value(value).unwrap()
}

#[test]
fn pod_set_with_quota_may_shrink_but_not_grow() {
    let old = reserved(4, &json!({}));
    assert!(workload_update(&reserved(3, &json!({})), &old).is_empty());
    assert_eq!(workload_update(&reserved(5, &json!({})), &old).len(), 1);
    let free = Workload { status: None, ..old.clone() };
    assert!(workload_update(&reserved(5, &json!({})), &free).is_empty(), "it held none before");
    let gates = ValidationGates { elastic: false, ..ValidationGates::default() };
    let messages = messages(&super::workload_update(&reserved(3, &json!({})), &old, gates));
    assert!(
        messages.len() == 1 && messages[0].ends_with(IMMUTABLE),
        "no job may be elastic: {messages:?}"
    );
    assert!(super::workload_update(&old, &old, gates).is_empty());
}

#[test]
fn rules_of_disabled_gates_are_not_checked() {
    let gated = reserved(4, &json!({names::ADMISSION_GATED_BY: "no gate"}));
    let mut odd = reserved(4, &json!({}));
    let requests = json!({"requests": {"cpu": "-1"}});
    let template = json!({
        "metadata": {"labels": {"a": "b c"}},
        "spec": {"containers": [{"name": "c", "resources": requests}]},
    });
    odd.spec.pod_sets[0].template = template.into();
    let of =
        |workload: &Workload, gates: ValidationGates| super::workload(workload, None, gates).len();
    let on = ValidationGates::default();
    assert_eq!((of(&gated, on), of(&odd, on)), (1, 2));
    assert_eq!(of(&gated, ValidationGates { admission_gated_by: false, ..on }), 0);
    assert_eq!(of(&odd, ValidationGates { pod_set_metadata: false, ..on }), 1);
    assert_eq!(of(&odd, ValidationGates { non_negative: false, pod_set_metadata: false, ..on }), 0);
    let added = |gates: ValidationGates| {
        super::workload_update(&gated, &reserved(4, &json!({})), gates).len()
    };
    assert_eq!((added(on), added(ValidationGates { admission_gated_by: false, ..on })), (2, 0));
}

#[rstest]
#[case::what_is_empty_is_left_out(json!({"metadata": {"labels": {}}, "spec": {"containers": [{"name": "c", "resources": {}}]}}), true)]
#[case::a_null(json!({"metadata": {"creationTimestamp": null}, "spec": {"containers": [{"name": "c"}]}}), true)]
#[case::a_request_more(json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}), false)]
#[case::another_label(json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}), false)]
fn template_with_quota_may_change_only_its_notation(
    #[case] template: Value,
    #[case] allowed: bool,
) {
    let old = reserved(4, &json!({}));
    let mut new = old.clone();
    new.spec.pod_sets[0].template = template.into();
    assert_eq!(workload_update(&new, &old).is_empty(), allowed);
    assert_eq!(workload_update(&old, &new).is_empty(), allowed, "and back");
}

#[test]
fn quantities_with_quota_compare_by_value() {
    let requesting = |cpu: &str| {
        let mut workload = reserved(4, &json!({}));
        let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        workload.spec.pod_sets[0].template = json!({"spec": {"containers": [container]}}).into();
        workload
    };
    assert!(workload_update(&requesting("1"), &requesting("1000m")).is_empty());
    assert_eq!(workload_update(&requesting("2"), &requesting("1000m")).len(), 1);
}

#[rstest]
#[case::it_grows(4, Some(1), Some(2), &[])]
#[case::it_shrinks_as_pods_start_again(4, Some(2), Some(1), &[])]
#[case::it_goes_as_all_pods_start_again(4, Some(2), None, &[])]
#[case::it_shrinks_below_what_was_admitted(
    5, Some(2), Some(0), &["status.reclaimablePods[main].count: Invalid value: 0: cannot be less than 2: more pods would be needed than were admitted"]
)]
#[case::it_goes_and_more_are_needed_than_admitted(
    5, Some(2), None, &["status.reclaimablePods[main]: Required value: cannot be removed"]
)]
fn reclaimable_pods_never_fall_below_the_admitted_count(
    #[case] count: i32,
    #[case] before: Option<i32>,
    #[case] now: Option<i32>,
    #[case] expected: &[&str],
) {
    // Four pods are admitted.
    let with = |reclaimable: Option<i32>| {
        let pods = reclaimable.map(|count| json!({"name": "main", "count": count}));
        with_status(
            &reserved(count, &json!({})),
            &json!({"reclaimablePods": pods.into_iter().collect::<Vec<_>>()}),
        )
    };
    assert_eq!(messages(&workload_update(&with(now), &with(before))), expected);
}

#[test]
fn topology_assignment_may_be_set_later() {
    let old = reserved(4, &json!({}));
    let topology = json!({"levels": ["rack"], "slices": [
        {"domainCount": 1, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 4}},
    ]});
    let assignment = json!({"name": "main", "count": 4, "topologyAssignment": topology});
    let new = with_status(
        &old,
        &json!({"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}}),
    );
    assert!(workload_update(&new, &old).is_empty());
    let gates = ValidationGates { topology: false, ..ValidationGates::default() };
    let messages = messages(&super::workload_update(&new, &old, gates));
    assert!(
        messages.len() == 1 && messages[0].ends_with(IMMUTABLE),
        "without the gate: {messages:?}"
    );
}

#[test]
fn topology_requests_are_checked_by_gate_and_warned_of() {
    let asking = |request: Value| {
        let mut value = serde_json::to_value(reserved(4, &json!({}))).unwrap();
        value["spec"]["podSets"][0]["topologyRequest"] = request;
        serde_json::from_value::<Workload>(value).unwrap()
    };
    let half = asking(json!({"podSetSliceRequiredTopology": "rack"}));
    assert_eq!(workload(&half, None, ValidationGates::default()).len(), 1);
    assert!(
        workload(&half, None, ValidationGates { slice_size: false, ..ValidationGates::default() })
            .is_empty()
    );
    assert!(workload_warnings(&half).is_empty());
    let negative = asking(json!({"subGroupCount": -2}));
    let want = "spec.podSets[0].topologyRequest.subGroupCount: negative value -2 is deprecated and will be rejected in a future release";
    assert_eq!(workload_warnings(&negative), [want]);
}

#[test]
fn ready_checks_pod_set_updates_are_immutable() {
    let check = |state: &str, label: &str| {
        json!({"admissionChecks": [{
            "name": "check", "state": state, "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z",
            "podSetUpdates": [{"name": "main", "labels": {"pool": label}}],
        }]})
    };
    let update = |before: Value, now: Value| {
        let plain = reserved(4, &json!({}));
        workload_update(&with_status(&plain, &now), &with_status(&plain, &before)).len()
    };
    assert_eq!(update(check("Ready", "a"), check("Ready", "b")), 1);
    assert_eq!(update(check("Ready", "a"), check("Ready", "a")), 0);
    assert_eq!(update(check("Pending", "a"), check("Ready", "b")), 0);
}

#[test]
fn cluster_name_needs_a_nomination_or_a_new_attempt() {
    let old = with_status(&reserved(4, &json!({})), &json!({"nominatedClusterNames": ["a", "b"]}));
    let new = |status: Value| with_status(&reserved(4, &json!({})), &status);
    assert!(workload_update(&new(json!({"clusterName": "a"})), &old).is_empty());
    assert_eq!(workload_update(&new(json!({"clusterName": "c"})), &old).len(), 1);
    assert!(
        workload_update(&new(json!({"clusterName": "c", "dispatch": {"attempt": 1}})), &old)
            .is_empty()
    );
}

#[rstest]
#[case::plain("app", None)]
#[case::with_a_prefix("example.com/app", None)]
#[case::as_long_as_it_may_be(&"a".repeat(63), None)]
#[case::too_long(&"a".repeat(64), Some("name part must be no more than 63 bytes"))]
#[case::empty("", Some("name part must be non-empty"))]
#[case::no_prefix("/app", Some("prefix part must be non-empty"))]
#[case::a_prefix_with_capitals(
    "Example.com/app",
    Some("prefix part a lowercase RFC 1123 subdomain")
)]
#[case::a_dash_at_the_end("app-", Some("name part must consist of"))]
#[case::three_parts("a/b/c", Some("a valid label key must consist of"))]
#[case::unicode("größe", Some("name part must consist of"))]
fn label_keys(#[case] key: &str, #[case] expected: Option<&str>) {
    let error = label_key_error(key);
    assert_eq!(error.is_some(), expected.is_some(), "{error:?}");
    assert!(error.unwrap_or_default().starts_with(expected.unwrap_or_default()));
}

#[rstest]
#[case::equal(json!({"matchLabels": {"team": "a"}}), true)]
#[case::unequal(json!({"matchLabels": {"team": "b"}}), false)]
#[case::empty_selects_all(json!({}), true)]
#[case::in_list(json!({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}), true)]
#[case::not_in_list(json!({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}), false)]
#[case::absent_is_not_in(json!({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["a"]}]}), true)]
#[case::exists(json!({"matchExpressions": [{"key": "team", "operator": "Exists"}]}), true)]
#[case::does_not_exist(json!({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}), false)]
#[case::all_must_hold(
    json!({"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}), false
)]
#[case::no_such_operator(json!({"matchExpressions": [{"key": "team", "operator": "Near"}]}), false)]
fn selectors(#[case] selector: Value, #[case] expected: bool) {
    let selector: LabelSelector = serde_json::from_value(selector).unwrap();
    let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    assert_eq!(selector_matches(&selector, &labels), expected);
}

#[test]
fn selector_error_names_the_wrong_part() {
    let requirement = |operator: &str, values: Option<Vec<&str>>| LabelSelectorRequirement {
        key: "team".into(),
        operator: operator.into(),
        values: values.map(|values| values.into_iter().map(String::from).collect()),
    };
    let selector = LabelSelector {
        match_labels: Some(BTreeMap::from([("a b".to_owned(), "x".to_owned())])),
        match_expressions: Some(vec![
            requirement("In", None),
            requirement("Exists", Some(vec!["a"])),
            requirement("==", None),
        ]),
    };
    let mut errors = Vec::new();
    label_selector(&selector, &crate::field::Path::new("spec"), &mut errors);
    let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "spec.matchLabels",
            "spec.matchExpressions[0].values",
            "spec.matchExpressions[1].values",
            "spec.matchExpressions[2].operator",
        ]
    );
}

#[test]
fn annotations_are_bounded_together() {
    let large = "x".repeat(256 * 1024);
    let mut errors = Vec::new();
    annotations([("a", large.as_str())], &crate::field::Path::new("metadata"), &mut errors);
    assert_eq!(messages(&errors), ["metadata: Too long: may not be more than 262144 bytes"]);
}
