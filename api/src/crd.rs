//! The CustomResourceDefinitions of all kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::json;

use crate::{v1beta1, v1beta2};

/// Kinds whose `spec` is optional. The schema defaults it to `{}`, also for objects stored without
/// one, so that every object has the shape of its Rust type.
const SPEC_OPTIONAL: [&str; 5] =
    ["Workload", "ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor"];

/// The CustomResourceDefinitions of all kinds, by name.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut all = vec![
        v1beta2::AdmissionCheck::crd(),
        v1beta2::ClusterQueue::crd(),
        v1beta2::Cohort::crd(),
        v1beta2::LocalQueue::crd(),
        v1beta2::MultiKueueCluster::crd(),
        v1beta2::MultiKueueConfig::crd(),
        v1beta2::ProvisioningRequestConfig::crd(),
        v1beta2::ResourceFlavor::crd(),
        v1beta2::Topology::crd(),
        v1beta2::Workload::crd(),
        v1beta2::WorkloadPriorityClass::crd(),
    ];
    for crd in &mut all {
        crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
        let spec_optional = SPEC_OPTIONAL.contains(&crd.spec.names.kind.as_str());
        for root in roots(crd) {
            edit_all(root, as_kueue);
            if spec_optional {
                default_spec(root);
            }
        }
        let older: Vec<_> = crd
            .spec
            .versions
            .iter()
            .map(|version| v1beta1::version(&crd.spec.names.kind, version))
            .collect();
        crd.spec.versions.extend(older);
        for root in roots(crd) {
            edit_all(root, bound_int32);
        }
    }
    all
}

/// The CustomResourceDefinitions as files: name and YAML text, as in `deploy/crds`.
#[must_use]
pub fn crd_files() -> Vec<(String, String)> {
    crds().iter().map(|crd| (file_name(crd), text(crd))).collect()
}

fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

fn text(crd: &CustomResourceDefinition) -> String {
    let options =
        serde_saphyr::ser_options! { prefer_block_scalars: false, compact_list_indent: true };
    let yaml = serde_saphyr::to_string_with_options(crd, options).unwrap_or_default();
    format!(
        "# Generated from api/src/v1beta2 and v1beta1. Do not edit: cargo run -p switchyard-api --example crdgen -- deploy/crds\n{yaml}"
    )
}

fn default_spec(root: &mut JSONSchemaProps) {
    if let Some(spec) = root.properties.as_mut().and_then(|properties| properties.get_mut("spec")) {
        spec.default = Some(JSON(json!({})));
    }
    if let Some(required) = &mut root.required {
        required.retain(|name| name != "spec");
    }
    root.required.take_if(|required| required.is_empty());
}

/// Makes a derived schema behave like Kueue's. Nothing is `nullable`, so an explicit `null` is
/// dropped before defaulting instead of being stored.
fn as_kueue(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.title = None;
    if let Some(values) = &mut schema.enum_ {
        values.retain(|value| !value.0.is_null());
    }
}

/// Bounds an integer by its format `int32`, which API servers such as 1.32 do not check. They would
/// store a number that no client can read.
fn bound_int32(schema: &mut JSONSchemaProps) {
    if schema.format.as_deref() == Some("int32") {
        schema.minimum.get_or_insert(f64::from(i32::MIN));
        schema.maximum.get_or_insert(f64::from(i32::MAX));
    }
}

/// Edits a schema and all schemas in it.
fn edit_all(schema: &mut JSONSchemaProps, edit: fn(&mut JSONSchemaProps)) {
    edit(schema);
    for property in schema.properties.iter_mut().flat_map(|map| map.values_mut()) {
        edit_all(property, edit);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => edit_all(items, edit),
        Some(JSONSchemaPropsOrArray::Schemas(all)) => {
            all.iter_mut().for_each(|items| edit_all(items, edit));
        }
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        edit_all(values, edit);
    }
}

/// The root schemas of all versions.
fn roots(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    crd.spec
        .versions
        .iter_mut()
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn generated_files_are_fresh() {
        let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds"));
        let advice = "run: cargo run -p switchyard-api --example crdgen -- deploy/crds";
        let mut expected = BTreeSet::new();
        for (name, text) in crd_files() {
            let present = fs::read_to_string(directory.join(&name)).unwrap_or_default();
            assert!(present == text, "deploy/crds/{name} is stale; {advice}");
            expected.insert(name);
        }
        for entry in fs::read_dir(directory).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(
                expected.contains(&name),
                "deploy/crds/{name} is not generated any more; remove it"
            );
        }
    }

    #[test]
    fn int32_has_bounds_in_all_versions() {
        for (name, mut crd) in crds().into_iter().map(|crd| (file_name(&crd), crd)) {
            assert_eq!(roots(&mut crd).count(), 2, "{name}");
            for root in roots(&mut crd) {
                edit_all(root, |schema| {
                    if schema.format.as_deref() == Some("int32") {
                        assert!(schema.minimum >= Some(f64::from(i32::MIN)), "{schema:?}");
                        assert!(
                            schema.maximum.is_some_and(|most| most <= f64::from(i32::MAX)),
                            "{schema:?}"
                        );
                    }
                });
            }
        }
    }

    #[test]
    fn crd_yaml_round_trip_is_lossless() {
        for (crd, (name, text)) in crds().iter().zip(crd_files()) {
            let back: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(back, serde_json::to_value(crd).unwrap(), "{name}");
        }
    }
}
