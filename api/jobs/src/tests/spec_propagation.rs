use rstest::rstest;
use serde_json::{Value, json};

use super::*;

#[test]
fn propagation_changes_only_the_replicas() {
    let patch = |group: &str, kind: &str, wanted: u32| {
        let kind = kind_for(group, kind).unwrap();
        let of = |replicas: u32, more: u32| json!({"spec": {"replicas": replicas, "more": more}});
        propagated_changes(kind, &of(wanted, 1), &of(2, 2))
    };
    let of_sets = |wanted| patch("leaderworkerset.x-k8s.io", "LeaderWorkerSet", wanted);
    assert_eq!(of_sets(3), Some(json!({"spec": {"replicas": 3}})));
    assert_eq!((of_sets(2), patch("apps", "StatefulSet", 3)), (None, None));
}

#[rstest]
#[case::another(json!({"serveConfigV2": "b"}), Some(json!({"spec": {"serveConfigV2": "b"}})))]
#[case::one_where_there_was_none(json!({"serveConfigV2": "a"}), None)]
#[case::none_any_more(json!({}), Some(json!({"spec": {"serveConfigV2": null}})))]
#[case::another_with_something_else(
    json!({"serveConfigV2": "b", "rayClusterConfig": {"suspend": true}}), Some(json!({"spec": {"serveConfigV2": "b"}}))
)]
fn ray_service_copy_gets_the_hubs_serve_configuration(
    #[case] wanted: Value,
    #[case] expected: Option<Value>,
) {
    let patch = |kind: &str| {
        let kind = kind_for("ray.io", kind).unwrap();
        propagated_changes(kind, &json!({"spec": wanted}), &json!({"spec": {"serveConfigV2": "a"}}))
    };
    assert_eq!(patch("RayService"), expected);
    assert_eq!(patch("RayJob"), None, "no other kind of Ray's does");
}
