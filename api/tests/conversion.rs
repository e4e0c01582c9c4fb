//! Conversion of every kind in both directions: each version survives a round trip through the
//! other. Objects are random and generated from the schemas.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::{collections::BTreeMap, sync::LazyLock};

use kube_cel::apply_defaults;
use proptest::prelude::*;
use serde_json::{Value, json};
use switchyard_api::{crds, names, v1beta1, v1beta2};

#[path = "support/schema.rs"]
mod check;
#[path = "support/random.rs"]
mod random;
#[path = "support/table.rs"]
#[allow(dead_code, reason = "also used by the tests of manifests")]
mod table;

use random::Random;

/// Schemas by version and kind.
static SCHEMAS: LazyLock<BTreeMap<(String, String), Value>> = LazyLock::new(|| {
    let mut all = BTreeMap::new();
    for crd in crds() {
        for version in &crd.spec.versions {
            let schema = version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
            let name = (version.name.clone(), crd.spec.names.kind.clone());
            all.insert(name, serde_json::to_value(schema).unwrap());
        }
    }
    all
});

static KINDS: LazyLock<Vec<String>> =
    LazyLock::new(|| crds().into_iter().map(|crd| crd.spec.names.kind).collect());

fn schema_of(version: &str, kind: &str) -> &'static Value {
    &SCHEMAS[&(version.to_owned(), kind.to_owned())]
}

/// A random object of a kind, as an API server would store it after a write in this version.
fn object(version: &str, kind: &str, seed: u64) -> Value {
    let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut object = random.value(schema_of(version, kind));
    object["apiVersion"] = format!("kueue.x-k8s.io/{version}").into();
    object["kind"] = kind.into();
    object["metadata"] =
        json!({"name": format!("of-seed-{seed}"), "namespace": "ns", "uid": "u", "generation": 3});
    if random.below(2) == 0 {
        object["metadata"]["annotations"] = json!({"example.com/a": "b"});
    }
    let assignments =
        object.pointer_mut("/status/admission/podSetAssignments").and_then(Value::as_array_mut);
    for assignment in
        assignments.into_iter().flatten().filter(|it| it.get("topologyAssignment").is_some())
    {
        assignment["topologyAssignment"] = topology(version, &mut random);
    }
    if let Some(class) = object.pointer_mut("/spec/priorityClassRef") {
        let (group, kind) =
            [("kueue.x-k8s.io", "WorkloadPriorityClass"), ("scheduling.k8s.io", "PriorityClass")]
                [random.below(2) as usize];
        *class = json!({"group": group, "kind": kind, "name": "high"});
    }
    if let Some(spec) = object.get_mut("spec").filter(|_| kind == "MultiKueueCluster") {
        one_source(spec, &mut random);
    }
    apply_defaults(schema_of(version, kind), &object)
}

/// Applies the CEL rules of a MultiKueueCluster's source, which types and limits do not express.
fn one_source(spec: &mut Value, random: &mut Random) {
    let sources = [
        ("kubeConfig", json!({"location": "secret", "locationType": "Secret"})),
        ("clusterProfileRef", json!({"name": "profile"})),
        ("agent", json!({})),
    ];
    let (name, source) = sources[random.below(3) as usize].clone();
    for other in ["kubeConfig", "clusterProfileRef", "agent"] {
        spec.as_object_mut().unwrap().remove(other);
    }
    match spec.get_mut("clusterSource") {
        Some(all) => *all = json!({name: source}),
        None => spec[name] = source,
    }
}

/// Applies the CEL rules of topology assignments, which types and limits do not express: lists of
/// equal length.
fn topology(version: &str, random: &mut Random) -> Value {
    let levels = 1 + random.below(3) as usize;
    let names: Vec<String> = (0..levels).map(|level| format!("level-{level}")).collect();
    let value = |random: &mut Random| {
        ["node-1.a", "node-22.a", "b", ""][random.below(4) as usize].to_owned()
    };
    if version == v1beta1::VERSION {
        let domains: Vec<Value> = (0..random.below(4))
            .map(|_| {
                let values: Vec<String> = (0..levels).map(|_| value(random)).collect();
                json!({"values": values, "count": 1 + random.below(3)})
            })
            .collect();
        return json!({"levels": names, "domains": domains});
    }
    let slices: Vec<Value> = (0..random.below(3))
        .map(|_| {
            let count = 1 + random.below(3);
            let per_level: Vec<Value> = (0..levels)
                .map(|_| match random.below(2) {
                    0 => json!({"universal": value(random)}),
                    _ => {
                        let roots: Vec<String> = (0..count).map(|_| value(random)).collect();
                        json!({"individual": {"prefix": "p", "roots": roots}})
                    }
                })
                .collect();
            let counts = match random.below(2) {
                0 => json!({"universal": 2}),
                _ => json!({"individual": (0..count).map(|_| 1 + random.below(2)).collect::<Vec<_>>()}),
            };
            json!({"domainCount": count, "valuesPerLevel": per_level, "podCounts": counts})
        })
        .collect();
    json!({"levels": names, "slices": slices})
}

fn convert(object: &Value, version: &str) -> Value {
    v1beta1::convert(object.clone(), &format!("kueue.x-k8s.io/{version}")).unwrap()
}

/// The same object with its topology assignments packed as the conversion packs them.
fn packed_anew(object: &Value) -> Value {
    let mut packed = object.clone();
    let all =
        packed.pointer_mut("/status/admission/podSetAssignments").and_then(Value::as_array_mut);
    for assignment in all.into_iter().flatten().filter_map(|it| it.get_mut("topologyAssignment")) {
        let one =
            json!({"podSetAssignments": [{"name": "main", "topologyAssignment": assignment}]});
        let workload = json!({
            "apiVersion": v1beta2::API_VERSION, "kind": "Workload", "metadata": {"name": "w"}, "status": {"admission": one},
        });
        let again = convert(&convert(&workload, v1beta1::VERSION), v1beta2::VERSION);
        *assignment =
            again["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"].clone();
    }
    packed
}

/// Deserializes an object as its type. An unreadable object would break every list of its kind.
fn readable(object: &Value) -> Result<(), serde_json::Error> {
    fn read<T: serde::de::DeserializeOwned>(object: &Value) -> Result<(), serde_json::Error> {
        serde_json::from_value::<T>(object.clone()).map(drop)
    }
    match object["kind"].as_str().unwrap() {
        "AdmissionCheck" => read::<v1beta2::AdmissionCheck>(object),
        "ClusterQueue" => read::<v1beta2::ClusterQueue>(object),
        "Cohort" => read::<v1beta2::Cohort>(object),
        "LocalQueue" => read::<v1beta2::LocalQueue>(object),
        "MultiKueueCluster" => read::<v1beta2::MultiKueueCluster>(object),
        "MultiKueueConfig" => read::<v1beta2::MultiKueueConfig>(object),
        "ProvisioningRequestConfig" => read::<v1beta2::ProvisioningRequestConfig>(object),
        "ResourceFlavor" => read::<v1beta2::ResourceFlavor>(object),
        "Topology" => read::<v1beta2::Topology>(object),
        "Workload" => read::<v1beta2::Workload>(object),
        "WorkloadPriorityClass" => read::<v1beta2::WorkloadPriorityClass>(object),
        other => panic!("{other}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Written in v1beta1, stored in v1beta2, read in v1beta1: nothing is lost, and the stored
    /// object is readable.
    #[test]
    fn v1beta1_round_trip_is_lossless(seed: u64) {
        for kind in KINDS.iter() {
            let written = object(v1beta1::VERSION, kind, seed);
            let stored = convert(&written, v1beta2::VERSION);
            prop_assert_eq!(readable(&stored).map_err(|error| error.to_string()), Ok(()), "{}", stored);
            prop_assert_eq!(convert(&stored, v1beta1::VERSION), written);
        }
    }

    /// Written in v1beta2, read and written back unchanged in v1beta1: nothing is lost.
    #[test]
    fn v1beta2_round_trip_is_lossless(seed: u64) {
        for kind in KINDS.iter() {
            let written = object(v1beta2::VERSION, kind, seed);
            let read = convert(&written, v1beta1::VERSION);
            prop_assert_eq!(convert(&read, v1beta2::VERSION), packed_anew(&written));
        }
    }

    /// An object written in v1beta1 and then changed in v1beta2 has, in v1beta1, the meaning of the
    /// change.
    #[test]
    fn change_in_v1beta2_takes_effect_in_v1beta1(seeds: (u64, u64)) {
        for kind in KINDS.iter() {
            let old = convert(&object(v1beta1::VERSION, kind, seeds.0), v1beta2::VERSION);
            let mut changed = object(v1beta2::VERSION, kind, seeds.1);
            if let Some(kept) = old["metadata"]["annotations"].get(names::V1BETA1) {
                changed["metadata"]["annotations"][names::V1BETA1] = kept.clone();
            }
            let again = convert(&convert(&changed, v1beta1::VERSION), v1beta2::VERSION);
            let expected = packed_anew(&changed);
            prop_assert_eq!(&again["spec"], &expected["spec"]);
            prop_assert_eq!(&again["status"], &expected["status"]);
        }
    }

    /// Metadata stays, except for the remainder's annotation.
    #[test]
    fn metadata_stays(seed: u64) {
        for (kind, (from, to)) in KINDS.iter().zip([("v1beta1", "v1beta2"), ("v1beta2", "v1beta1")].iter().cycle()) {
            let before = object(from, kind, seed);
            let mut after = convert(&before, to);
            if let Some(annotations) = after["metadata"].get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove(names::V1BETA1);
                if annotations.is_empty() {
                    after["metadata"].as_object_mut().unwrap().remove("annotations");
                }
            }
            prop_assert_eq!(&after["metadata"], &before["metadata"]);
        }
    }
}

/// The stored form of a v1beta1 object.
fn stored(manifest: Value) -> Value {
    let mut object = manifest;
    object["apiVersion"] = v1beta1::API_VERSION.into();
    object["metadata"] = json!({"name": "a"});
    let kind = object["kind"].as_str().unwrap().to_owned();
    convert(&apply_defaults(schema_of(v1beta1::VERSION, &kind), &object), v1beta2::VERSION)
}

#[test]
fn cluster_queue_keeps_v1beta1_values_until_changed() {
    let mut queue = stored(json!({
        "kind": "ClusterQueue",
        "spec": {"cohort": "all", "admissionChecks": ["a"], "flavorFungibility": {"whenCanBorrow": "Borrow"}},
    }));
    assert_eq!(queue["spec"]["cohortName"], "all");
    assert_eq!(queue["spec"]["flavorFungibility"]["whenCanBorrow"], "MayStopSearch");
    assert_eq!(queue["spec"]["admissionChecksStrategy"]["admissionChecks"], json!([{"name": "a"}]));

    queue["spec"]["cohortName"] = "others".into();
    let read = convert(&queue, v1beta1::VERSION);
    assert_eq!(read["spec"]["cohort"], "others");
    assert_eq!(read["spec"]["admissionChecks"], json!(["a"]));
    assert_eq!(read["spec"]["flavorFungibility"]["whenCanBorrow"], "Borrow");
    assert_eq!(read["metadata"].get("annotations"), None);

    queue["spec"]["admissionChecksStrategy"]["admissionChecks"][0]["onFlavors"] = json!(["spot"]);
    let read = convert(&queue, v1beta1::VERSION);
    assert_eq!(read["spec"].get("admissionChecks"), None);
    assert_eq!(
        read["spec"]["admissionChecksStrategy"]["admissionChecks"],
        json!([{"name": "a", "onFlavors": ["spot"]}])
    );
}

#[test]
fn remainder_of_another_status_is_ignored() {
    let flavors = json!([{"name": "old"}]);
    let mut queue = stored(json!({
        "kind": "LocalQueue",
        "spec": {"clusterQueue": "cq"},
        "status": {"pendingWorkloads": 1, "reservingWorkloads": 0, "admittedWorkloads": 0, "flavors": flavors},
    }));
    assert_eq!(convert(&queue, v1beta1::VERSION)["status"]["flavors"], flavors);
    queue["status"]["pendingWorkloads"] = 0.into();
    assert_eq!(convert(&queue, v1beta1::VERSION)["status"].get("flavors"), None);
}

#[test]
fn foreign_remainder_annotation_is_left_alone() {
    let queue = json!({
        "apiVersion": v1beta2::API_VERSION, "kind": "ClusterQueue", "spec": {"cohortName": "all"},
        "metadata": {"name": "a", "annotations": {names::V1BETA1: "what is this?"}},
    });
    let read = convert(&queue, v1beta1::VERSION);
    assert_eq!(read["metadata"], queue["metadata"]);
    assert_eq!(convert(&read, v1beta2::VERSION), queue);
}

#[test]
fn conversion_error_names_object_and_field() {
    let error =
        |object: Value, desired: &str| v1beta1::convert(object, desired).unwrap_err().to_string();
    let queue = |version: &str| json!({"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": "a"}});
    let assignment = json!({"levels": ["zone"], "domains": [{"values": [], "count": 1}]});
    let workload = json!({
        "apiVersion": v1beta1::API_VERSION, "kind": "Workload", "metadata": {"namespace": "ns", "name": "w"},
        "status": {"admission": {"podSetAssignments": [{"topologyAssignment": assignment}]}},
    });
    let all = [
        error(queue("kueue.x-k8s.io/v1alpha1"), v1beta2::API_VERSION),
        error(queue(v1beta1::API_VERSION), "kueue.x-k8s.io/v1"),
        error(json!({"apiVersion": v1beta1::API_VERSION, "kind": "Job"}), v1beta2::API_VERSION),
        error(json!(5), v1beta2::API_VERSION),
        error(workload, v1beta2::API_VERSION),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn every_schema_field_has_a_type() {
    fn check(schema: &Value, path: &str) {
        let typed = schema["type"].is_string() || schema["x-kubernetes-int-or-string"] == true;
        assert!(typed, "{path}: {schema}");
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            check(schema, &format!("{path}.{name}"));
        }
        for inner in ["items", "additionalProperties"] {
            if schema[inner].is_object() {
                check(&schema[inner], &format!("{path}[]"));
            }
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            assert!(
                schema["properties"][name].is_object(),
                "{path}: {name} is required and not there"
            );
        }
    }
    for ((version, kind), schema) in SCHEMAS.iter() {
        check(schema, &format!("{version} {kind}"));
    }
}

#[test]
fn manifests_are_valid_in_v1beta1() {
    let api = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for manifest in table::accepted(api).iter().flat_map(|file| &file.documents) {
        let kind = manifest["kind"].as_str().unwrap();
        let schema = schema_of(v1beta1::VERSION, kind);
        let older =
            convert(&apply_defaults(schema_of(v1beta2::VERSION, kind), manifest), v1beta1::VERSION);
        let mut refused = check::errors(&older, schema);
        if let Err(broken) = kube_cel::Validator::new().validate(schema, &older, None) {
            refused.extend(broken.into_vec().iter().map(ToString::to_string));
        }
        assert!(refused.is_empty(), "{}: {refused:#?}", manifest["metadata"]["name"]);
    }
}
