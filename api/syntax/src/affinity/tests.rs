use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn texts(value: &Value) -> Texts {
    serde_json::from_value(value.clone()).unwrap()
}

fn queue(value: &Value) -> ClusterAffinity {
    serde_json::from_value(value.clone()).unwrap()
}

#[rstest]
#[case::equal("region=eu", Ok("region=eu"))]
#[case::equal_twice("region==eu", Ok("region=eu"))]
#[case::not_equal("tier != spot", Ok("tier!=spot"))]
#[case::a_list("gpu in (a100, h100)", Ok("gpu in (a100,h100)"))]
#[case::not_in_a_list("zone notin (a,b)", Ok("zone notin (a,b)"))]
#[case::exists("fast", Ok("fast"))]
#[case::does_not_exist("!test", Ok("!test"))]
#[case::an_empty_value("region=", Ok("region="))]
#[case::several("region=eu, gpu in (a,b),!test", Ok("region=eu,gpu in (a,b),!test"))]
#[case::a_key_with_a_domain("example.com/site in(x)", Ok("example.com/site=x"))]
#[case::values_without_an_operator("site (x)", Err("has values in parentheses"))]
#[case::a_key_named_like_an_operator("in in (x)", Ok("in=x"))]
#[case::a_comma_too_many("region=eu,", Err("a requirement is empty"))]
#[case::an_open_parenthesis("gpu in (a,b", Err("no matching parentheses"))]
#[case::something_after_the_list("gpu in (a) b", Err("no matching parentheses"))]
#[case::a_comparison("gpus>4", Err("compares numbers"))]
#[case::no_values("gpu in ()", Err("empty list of values"))]
#[case::no_key("=eu", Err("is no key of a label: name part must be non-empty"))]
#[case::no_value("region=e u", Err("is no value of a label"))]
#[case::a_word_too_many("region eu", Err("is no key of a label"))]
fn selectors(#[case] text: &str, #[case] expected: Result<&str, &str>) {
    match (parse_selector(text), expected) {
        (Ok(selector), Ok(expected)) => assert_eq!(selector_text(&selector), expected),
        (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
        (got, _) => panic!("{got:?}"),
    }
}

#[rstest]
#[case::nothing_said(json!({}), json!({}), None)]
#[case::named(json!({"clusters": "west,east"}), json!({}), None)]
#[case::not_named(json!({"clusters": "east"}), json!({}), Some("switchyard.dev/clusters requires east"))]
#[case::selected(json!({"cluster-selector": "region=eu"}), json!({}), None)]
#[case::not_selected(
    json!({"cluster-selector": "region in (us,asia)"}), json!({}),
    Some("switchyard.dev/cluster-selector requires region in (us,asia)")
)]
#[case::both_parts_must_match(
    json!({"clusters": "west", "cluster-selector": "spot"}), json!({}), Some("switchyard.dev/cluster-selector requires spot")
)]
#[case::excluded_by_name(json!({"excluded-clusters": "west"}), json!({}), Some("switchyard.dev/excluded-clusters excludes west"))]
#[case::excluded_by_label(
    json!({"excluded-clusters": "east", "excluded-cluster-selector": "region=eu"}), json!({}),
    Some("switchyard.dev/excluded-cluster-selector excludes region=eu")
)]
#[case::of_the_queue(
    json!({}), json!({"required": {"names": ["east"]}}),
    Some("spec.clusterAffinity.required.names of ClusterQueue cq requires east")
)]
#[case::of_the_queue_by_label(
    json!({}), json!({"excluded": {"selector": {"matchLabels": {"region": "eu"}}}}),
    Some("spec.clusterAffinity.excluded.selector of ClusterQueue cq excludes region=eu")
)]
#[case::the_job_replaces_the_queues(json!({"clusters": "west"}), json!({"required": {"selector": {"matchLabels": {"a": "b"}}}}), None)]
#[case::the_job_says_no_rule(json!({"excluded-clusters": ""}), json!({"excluded": {"names": ["west"]}}), None)]
#[case::the_job_replaces_one_of_three(
    json!({"clusters": "west"}), json!({"required": {"names": ["east"]}, "excluded": {"names": ["west"]}}),
    Some("spec.clusterAffinity.excluded.names of ClusterQueue cq excludes west")
)]
#[case::an_unreadable_rule_allows_nothing(
    json!({"excluded-cluster-selector": "a b"}), json!({}),
    Some("switchyard.dev/excluded-cluster-selector cannot be read: ")
)]
#[case::an_empty_selector_of_the_queue_matches_all(json!({}), json!({"required": {"selector": {}}}), None)]
fn whether_west_in_eu_is_allowed(
    #[case] own: Value,
    #[case] default: Value,
    #[case] expected: Option<&str>,
) {
    let own: Texts = texts(&own)
        .into_iter()
        .map(|(key, text)| (format!("switchyard.dev/{key}"), text))
        .collect();
    let default = queue(&default);
    let affinity = Affinity::of(Some(&own), Some(("cq", &default))).unwrap_or_default();
    let refusal = affinity.refusal("west", &texts(&json!({"region": "eu"})));
    match expected {
        None => assert_eq!(refusal, None),
        Some(expected) => {
            assert!(refusal.as_deref().unwrap_or_default().starts_with(expected), "{refusal:?}")
        }
    }
}

#[test]
fn each_matching_preferred_rule_counts() {
    let own = texts(&json!({
        "switchyard.dev/preferred-clusters": "west,north", "switchyard.dev/preferred-cluster-selector": "region=eu",
    }));
    let affinity = Affinity::of(Some(&own), None).unwrap();
    let eu = texts(&json!({"region": "eu"}));
    let of = |name: &str, labels: &Texts| affinity.preference(name, labels);
    assert_eq!(
        [of("west", &eu), of("north", &Texts::new()), of("east", &eu), of("east", &Texts::new())],
        [2, 1, 1, 0]
    );
    assert_eq!(Affinity::of(Some(&Texts::new()), None), None);
    assert_eq!(Affinity::of(None, Some(("cq", &ClusterAffinity::default()))), None);
}

#[rstest]
#[case::right(json!({"clusters": "west, east", "preferred-cluster-selector": "region=eu"}), None)]
#[case::empty(json!({"clusters": "", "cluster-selector": " "}), None)]
#[case::a_label_among_names(json!({"clusters": "region=eu"}), Some("no name of a MultiKueueCluster: write names in lower case"))]
#[case::an_empty_name(json!({"excluded-clusters": "west,,east"}), Some("a name is empty"))]
#[case::no_selector(json!({"excluded-cluster-selector": "gpu in a"}), Some("metadata.annotations[switchyard.dev/excluded-cluster-selector]"))]
#[case::required_and_excluded(json!({"clusters": "west", "excluded-clusters": "west,east"}), Some("take it out of one"))]
#[case::some_are_left(json!({"clusters": "west,north", "excluded-clusters": "west"}), None)]
fn annotations_are_checked(#[case] own: Value, #[case] expected: Option<&str>) {
    let own: Texts = texts(&own)
        .into_iter()
        .map(|(key, text)| (format!("switchyard.dev/{key}"), text))
        .collect();
    let errors: Vec<String> = check(&own).iter().map(ToString::to_string).collect();
    match expected {
        None => assert!(errors.is_empty(), "{errors:?}"),
        Some(part) => assert!(errors.len() == 1 && errors[0].contains(part), "{errors:?}"),
    }
}
