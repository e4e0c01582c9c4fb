//! Manifests that cover every field, and malformed manifests, checked without a server. The tests
//! in `e2e` send the same files to a real API server.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use kube_cel::{Validator, apply_defaults};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use switchyard_api::{
    crds,
    field::FieldError,
    v1beta1, v1beta2,
    validate::{self, ValidationGates},
};

#[path = "support/random.rs"]
mod random;
#[path = "support/schema.rs"]
mod schema;
#[path = "support/table.rs"]
mod table;

fn api() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The schema of each kind.
fn schemas() -> BTreeMap<String, Value> {
    let schema =
        |crd: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition| {
            let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
            serde_json::to_value(schema).unwrap()
        };
    crds().iter().map(|crd| (crd.spec.names.kind.clone(), schema(crd))).collect()
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}

/// Schema errors of an object, or of a change to it.
fn by_schema(object: &Value, before: Option<&Value>, schema: &Value) -> Vec<String> {
    let object = apply_defaults(schema, object);
    let before = before.map(|before| apply_defaults(schema, before));
    let mut errors = schema::errors(&object, schema);
    if errors.is_empty()
        && let Err(broken) = Validator::new().validate(schema, &object, before.as_ref())
    {
        errors.extend(broken.into_vec().iter().map(ToString::to_string));
    }
    errors.extend(name_errors(&object));
    errors
}

/// Name errors that every API server reports.
fn name_errors(object: &Value) -> Vec<String> {
    let name = object["metadata"]["name"].as_str().unwrap();
    if name.len() > 253 {
        return vec!["metadata.name: must be no more than 253 bytes".into()];
    }
    let valid = validate::is_subdomain(name);
    if valid { Vec::new() } else { vec![format!("metadata.name: {}", validate::SUBDOMAIN_MESSAGE)] }
}

fn read<T: DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone())
        .unwrap_or_else(|error| panic!("{}: {error}", object["metadata"]["name"]))
}

/// Webhook errors of an object, or of a change to it.
fn by_webhook(object: &Value, before: Option<&Value>) -> Vec<FieldError> {
    let gates = ValidationGates {
        priority_boost: true,
        concurrent_admission: true,
        ..ValidationGates::default()
    };
    match (kind(object), before) {
        ("Workload", None) => validate::workload(&read(object), None, gates),
        ("Workload", Some(before)) => {
            validate::workload_update(&read(object), &read(before), gates)
        }
        ("ClusterQueue", None) => validate::cluster_queue(&read(object), gates),
        ("ClusterQueue", Some(before)) => {
            validate::cluster_queue_update(&read(object), &read(before), gates)
        }
        ("Cohort", _) => validate::cohort(&read(object)),
        ("ResourceFlavor", _) => validate::resource_flavor(&read(object)),
        _ => Vec::new(),
    }
}

#[test]
fn own_formatting_is_accepted() {
    let schemas = schemas();
    for file in table::accepted(api()) {
        for object in &file.documents {
            let schema = &schemas[kind(object)];
            let refused = by_schema(object, None, schema);
            assert!(
                refused.is_empty(),
                "{} {}: {refused:#?}",
                file.name,
                object["metadata"]["name"]
            );
            let refused = by_webhook(&apply_defaults(schema, object), None);
            assert!(
                refused.is_empty(),
                "{} {}: {refused:#?}",
                file.name,
                object["metadata"]["name"]
            );
        }
    }
}

#[test]
fn malformed_twins_are_refused() {
    let schemas = schemas();
    for case in table::refused(api()) {
        assert!(!(case.by_webhook && case.ours), "{}: the webhook's rules are Kueue's", case.name);
        let schema = &schemas[kind(&case.object)];
        if let Some(before) = &case.before {
            let refused = by_schema(before, None, schema);
            assert!(
                refused.is_empty(),
                "{}: already what was there before: {refused:#?}",
                case.name
            );
        }
        let refused = by_schema(&case.object, case.before.as_ref(), schema);
        if !case.by_webhook {
            let named = refused.iter().any(|message| message.contains(&case.message));
            assert!(
                named,
                "{} ({}): got {refused:#?}, expected {:?}",
                case.name, case.sentence, case.message
            );
            continue;
        }
        assert!(refused.is_empty(), "{}: the schema refuses it: {refused:#?}", case.name);
        let before = case.before.as_ref().map(|before| apply_defaults(schema, before));
        let refused = by_webhook(&apply_defaults(schema, &case.object), before.as_ref());
        let named = refused.iter().any(|error| error.to_string().contains(&case.message));
        assert!(
            named,
            "{} ({}): got {refused:#?}, expected {:?}",
            case.name, case.sentence, case.message
        );
    }
}

/// Paths of all fields in a schema, with `[]` for items and `{}` for values. Fields of pod
/// templates are left out.
fn fields(schema: &Value, path: &str, all: &mut BTreeSet<String>) {
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        all.insert(path.clone());
        if !path.ends_with("[].template") {
            fields(schema, &path, all);
        }
    }
    if schema["items"].is_object() {
        fields(&schema["items"], &format!("{path}[]"), all);
    }
    if schema["additionalProperties"].is_object() {
        fields(&schema["additionalProperties"], &format!("{path}{{}}"), all);
    }
}

/// Removes the paths of the value's fields from `missing`.
fn seen(value: &Value, path: &str, missing: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let path = format!("{path}.{name}");
                missing.remove(&path);
                seen(value, &path, missing);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| seen(item, &format!("{path}[]"), missing))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_field_is_covered() {
    let files = table::accepted(api());
    for (kind_name, schema) in schemas() {
        let mut missing = BTreeSet::new();
        fields(&schema, "", &mut missing);
        for object in
            files.iter().flat_map(|file| &file.documents).filter(|object| kind(object) == kind_name)
        {
            seen(object, "", &mut missing);
        }
        assert!(missing.is_empty(), "no manifest of a {kind_name} has {missing:#?}");
    }
}

/// Compares a value before and after a round trip. Quantities may change between number and text,
/// and times may change their zone. Nothing may be lost.
fn survives(before: &Value, after: &Value, path: &str) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in before {
                let empty = value.as_object().is_some_and(serde_json::Map::is_empty)
                    || value.as_array().is_some_and(Vec::is_empty);
                match after.get(name) {
                    Some(after) => survives(value, after, &format!("{path}.{name}")),
                    None => assert!(empty, "{path}.{name} is lost"),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            assert_eq!(before.len(), after.len(), "{path}");
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                survives(before, after, &format!("{path}[{index}]"));
            }
        }
        (Value::Number(before), Value::String(after)) => {
            assert_eq!(&before.to_string(), after, "{path}")
        }
        _ if before != after
            && instant(before).is_some_and(|moment| instant(after) == Some(moment)) => {}
        _ => assert_eq!(before, after, "{path}"),
    }
}

/// A time in whole seconds, Kubernetes' resolution.
fn instant(value: &Value) -> Option<i64> {
    value.as_str()?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

fn round_trip<T: DeserializeOwned + Serialize>(object: &Value) {
    survives(object, &serde_json::to_value(read::<T>(object)).unwrap(), kind(object));
}

/// Deserializes an object as its type and checks that nothing is lost.
fn round_trip_as_its_kind(object: &Value) {
    match kind(object) {
        "AdmissionCheck" => round_trip::<v1beta2::AdmissionCheck>(object),
        "ClusterQueue" => round_trip::<v1beta2::ClusterQueue>(object),
        "Cohort" => round_trip::<v1beta2::Cohort>(object),
        "LocalQueue" => round_trip::<v1beta2::LocalQueue>(object),
        "MultiKueueCluster" => round_trip::<v1beta2::MultiKueueCluster>(object),
        "MultiKueueConfig" => round_trip::<v1beta2::MultiKueueConfig>(object),
        "ProvisioningRequestConfig" => round_trip::<v1beta2::ProvisioningRequestConfig>(object),
        "ResourceFlavor" => round_trip::<v1beta2::ResourceFlavor>(object),
        "Topology" => round_trip::<v1beta2::Topology>(object),
        "Workload" => round_trip::<v1beta2::Workload>(object),
        "WorkloadPriorityClass" => round_trip::<v1beta2::WorkloadPriorityClass>(object),
        other => panic!("{other}"),
    }
}

#[test]
fn types_lose_no_fields() {
    let schemas = schemas();
    for object in table::accepted(api()).iter().flat_map(|file| &file.documents) {
        round_trip_as_its_kind(&apply_defaults(&schemas[kind(object)], object));
    }
}

/// An object that the schema accepts and the type cannot read would break every list of its kind.
#[test]
fn types_read_every_object_that_schemas_accept() {
    for (kind, schema) in schemas() {
        for seed in 0_u64..200 {
            let mut object =
                random::Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)).value(&schema);
            object["apiVersion"] = v1beta2::API_VERSION.into();
            object["kind"] = kind.as_str().into();
            object["metadata"] = serde_json::json!({"name": format!("{kind} of seed {seed}")});
            round_trip_as_its_kind(&apply_defaults(&schema, &object));
        }
    }
}

/// The integers of a value by their JSON pointers, with the bounds of their schemas.
fn integers(
    value: &Value,
    schema: &Value,
    pointer: &str,
    all: &mut Vec<(String, Option<i64>, Option<i64>)>,
) {
    if schema["type"] == "integer" {
        let bound = |name: &str| schema[name].as_f64().map(|bound| bound as i64);
        all.push((pointer.to_owned(), bound("minimum"), bound("maximum")));
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let schema =
                    schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
                let name = name.replace('~', "~0").replace('/', "~1");
                integers(value, schema, &format!("{pointer}/{name}"), all);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                integers(item, &schema["items"], &format!("{pointer}/{index}"), all);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Formats do not count, because API servers such as 1.32 do not check them.
#[test]
fn types_read_the_bounds_of_every_integer() {
    let defaults = schemas();
    for object in table::accepted(api()).iter().flat_map(|file| &file.documents) {
        let crd = crds().into_iter().find(|crd| crd.spec.names.kind == kind(object)).unwrap();
        for version in crd.spec.versions {
            let schema = version.schema.unwrap().open_api_v3_schema.unwrap();
            let schema = serde_json::to_value(schema).unwrap();
            let object = apply_defaults(&defaults[kind(object)], object);
            let version = format!("{}/{}", v1beta2::GROUP, version.name);
            let object = v1beta1::convert(object, &version).unwrap();
            let mut all = Vec::new();
            integers(&object, &schema, "", &mut all);
            for (pointer, low, high) in all {
                let edited = |number: i64| {
                    let mut object = object.clone();
                    *object.pointer_mut(&pointer).unwrap() = number.into();
                    object
                };
                for number in [low.unwrap_or(i64::MIN), high.unwrap_or(i64::MAX)] {
                    let object = edited(number);
                    assert_eq!(schema::errors(&object, &schema), [""; 0], "{version} {pointer}");
                    round_trip_as_its_kind(
                        &v1beta1::convert(object, v1beta2::API_VERSION).unwrap(),
                    );
                }
                for number in low.map(|low| low - 1).into_iter().chain(high.map(|high| high + 1)) {
                    assert_eq!(
                        schema::errors(&edited(number), &schema).len(),
                        1,
                        "{version} {pointer}: {number} is accepted"
                    );
                }
            }
        }
    }
}

#[test]
fn defaults_of_types_and_schemas_agree() {
    fn agree<T: DeserializeOwned + Serialize + Default>(
        kind: &str,
        schemas: &BTreeMap<String, Value>,
    ) {
        let bare = serde_json::json!({
            "apiVersion": v1beta2::API_VERSION, "kind": kind, "metadata": {"name": "bare"}, "spec": {},
        });
        let defaulted = apply_defaults(&schemas[kind], &bare);
        let read: T = serde_json::from_value(bare).unwrap();
        let written = serde_json::to_value(read).unwrap();
        for (name, value) in written["spec"].as_object().unwrap() {
            assert_eq!(value, &defaulted["spec"][name], "{kind}.spec.{name}");
        }
        assert_eq!(
            written["spec"],
            serde_json::to_value(T::default()).unwrap()["spec"],
            "{kind}: Default differs"
        );
    }
    let schemas = schemas();
    agree::<v1beta2::ClusterQueue>("ClusterQueue", &schemas);
    agree::<v1beta2::Cohort>("Cohort", &schemas);
    agree::<v1beta2::LocalQueue>("LocalQueue", &schemas);
    agree::<v1beta2::ResourceFlavor>("ResourceFlavor", &schemas);
    agree::<v1beta2::Workload>("Workload", &schemas);
}
