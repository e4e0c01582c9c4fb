//! OpenAPI documents of the visibility API, in OpenAPI 2 and 3. The schemas come from the Rust
//! types.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{GROUP, PENDING, PendingWorkloadsSummary, SUMMARY, VERSIONS};

/// Prefix of the types' names in the documents: the name of Kueue's package.
const PACKAGE: &str = "io.k8s.sigs.kueue.apis.visibility";
/// Path of schemas in OpenAPI 3.
const COMPONENTS: &str = "#/components/schemas/";
/// Path of schemas in OpenAPI 2.
const DEFINITIONS: &str = "#/definitions/";

/// The OpenAPI 3 document of one version.
#[must_use]
pub fn v3(version: &str) -> Value {
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths(version, &Form::V3),
        "components": {"schemas": schemas(version)},
    })
}

/// The OpenAPI 2 document of all versions.
#[must_use]
pub fn v2() -> Value {
    let (mut all_paths, mut definitions) = (Map::new(), Map::new());
    for version in VERSIONS {
        all_paths.extend(paths(version, &Form::V2));
        definitions.extend(schemas(version));
    }
    let mut document =
        json!({"swagger": "2.0", "info": info(), "paths": all_paths, "definitions": definitions});
    as_v2(&mut document);
    document
}

fn info() -> Value {
    json!({"title": "Switchyard visibility API", "version": env!("CARGO_PKG_VERSION")})
}

/// How the versions of OpenAPI describe requests and responses.
enum Form {
    V2,
    V3,
}

impl Form {
    fn parameter(&self, name: &str, place: &str, type_: &str, description: &str) -> Value {
        let mut parameter = json!({"name": name, "in": place, "description": description});
        if place == "path" {
            parameter["required"] = true.into();
        }
        match self {
            Self::V2 => {
                parameter["type"] = type_.into();
                parameter["uniqueItems"] = true.into();
            }
            Self::V3 => parameter["schema"] = json!({"type": type_}),
        }
        parameter
    }

    /// A read request and its response.
    fn get(
        &self,
        (version, id): (&str, &str),
        description: &str,
        parameters: &[Value],
        answer: &str,
    ) -> Value {
        let schema = json!({"$ref": format!("{COMPONENTS}{answer}")});
        let mut ok = json!({"description": "OK"});
        let mut get = json!({"operationId": id, "description": description});
        get["tags"] = json!([format!("visibility_{version}")]);
        match self {
            Self::V2 => {
                ok["schema"] = schema;
                (get["produces"], get["schemes"]) = (json!(["application/json"]), json!(["https"]));
            }
            Self::V3 => ok["content"] = json!({"application/json": {"schema": schema}}),
        }
        get["responses"] = json!({"200": ok, "401": {"description": "Unauthorized"}});
        if !parameters.is_empty() {
            get["parameters"] = parameters.into();
        }
        get
    }
}

fn title(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

fn paths(version: &str, form: &Form) -> Map<String, Value> {
    let (base, titled) = (format!("/apis/{GROUP}/{version}"), title(version));
    let page = [
        form.parameter(
            "limit",
            "query",
            "integer",
            "How many workloads are listed at most. 1000 by default.",
        ),
        form.parameter(
            "offset",
            "query",
            "integer",
            "The place of the first workload that is listed, from 0.",
        ),
    ];
    let name =
        |of: &str| form.parameter("name", "path", "string", &format!("The name of the {of}."));
    let namespace =
        form.parameter("namespace", "path", "string", "The namespace of the LocalQueue.");
    let pending = |scope: &str, queue: &str, parameters: &[Value]| {
        let id = format!("readVisibility{titled}{scope}{queue}Pendingworkloads");
        let mut get = form.get(
            (version, &id),
            &format!("What waits in a {queue}."),
            &page,
            &name_of(version, SUMMARY),
        );
        get["x-kubernetes-action"] = "get".into();
        get["x-kubernetes-group-version-kind"] =
            json!({"group": GROUP, "version": version, "kind": SUMMARY});
        json!({"get": get, "parameters": parameters})
    };
    let list = "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList";
    let id = format!("getVisibility{titled}APIResources");
    let resources = form.get((version, &id), "What there is.", &[], list);
    Map::from_iter([
        (format!("{base}/"), json!({"get": resources})),
        (
            format!("{base}/clusterqueues/{{name}}/{PENDING}"),
            pending("", "ClusterQueue", &[name("ClusterQueue")]),
        ),
        (
            format!("{base}/namespaces/{{namespace}}/localqueues/{{name}}/{PENDING}"),
            pending("Namespaced", "LocalQueue", &[name("LocalQueue"), namespace]),
        ),
    ])
}

/// The full name of a type of this API.
fn name_of(version: &str, type_: &str) -> String {
    format!("{PACKAGE}.{version}.{type_}")
}

/// The schemas of all types, by full name.
fn schemas(version: &str) -> Map<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    generator.subschema_for::<PendingWorkloadsSummary>();
    generator.subschema_for::<APIResourceList>();
    // A name without a package is a type of this API.
    let full =
        |name: &str| if name.contains('.') { name.to_owned() } else { name_of(version, name) };
    let definitions = generator.take_definitions(true).into_iter().map(|(name, mut schema)| {
        each_object(&mut schema, &|object| {
            if let Some(Value::String(target)) = object.get_mut("$ref") {
                *target = format!("{COMPONENTS}{}", full(target.trim_start_matches(COMPONENTS)));
            }
        });
        if name == SUMMARY {
            schema["x-kubernetes-group-version-kind"] =
                json!([{"group": GROUP, "version": version, "kind": SUMMARY}]);
        }
        (full(&name), schema)
    });
    definitions.collect()
}

/// Converts a document from OpenAPI 3 to OpenAPI 2. There a reference cannot have a description
/// beside it.
fn as_v2(document: &mut Value) {
    each_object(document, &|object| {
        if let Some(Value::Array(all)) = object.remove("allOf") {
            object.extend(
                all.into_iter()
                    .filter_map(|one| match one {
                        Value::Object(one) => Some(one),
                        _ => None,
                    })
                    .flatten(),
            );
        }
        object.remove("nullable");
        if let Some(Value::String(target)) = object.get_mut("$ref") {
            *target = target.replace(COMPONENTS, DEFINITIONS);
        }
    });
}

/// Calls `act` for each object in a document, outer objects first.
fn each_object(value: &mut Value, act: &impl Fn(&mut Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            act(object);
            object.values_mut().for_each(|inner| each_object(inner, act));
        }
        Value::Array(items) => items.iter_mut().for_each(|inner| each_object(inner, act)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::PendingWorkload;

    /// Targets of all references in a document.
    fn references(document: &Value) -> Vec<String> {
        let found = std::cell::RefCell::new(Vec::new());
        each_object(&mut document.clone(), &|object| {
            found
                .borrow_mut()
                .extend(object.get("$ref").and_then(Value::as_str).map(str::to_owned));
        });
        found.into_inner()
    }

    #[test]
    fn every_reference_leads_to_a_schema() {
        let documents = [v2(), v3("v1beta2"), v3("v1beta1")];
        for document in &documents {
            let all = references(document);
            assert!(all.len() > 5, "{all:?}");
            for reference in all {
                assert!(
                    document.pointer(reference.trim_start_matches('#')).is_some(),
                    "{reference}"
                );
            }
        }
        let text = documents[0].to_string();
        assert!(
            ["allOf", "nullable", "components"].iter().all(|word| !text.contains(word)),
            "{text}"
        );
    }

    #[test]
    fn schema_names_every_served_kind() {
        let served = PendingWorkloadsSummary {
            api_version: "a".to_owned(),
            kind: "b".to_owned(),
            items: vec![PendingWorkload::default()],
            ..PendingWorkloadsSummary::default()
        };
        let served = serde_json::to_value(served).unwrap();
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        for version in VERSIONS {
            let schemas = schemas(version);
            for (type_, value) in [(SUMMARY, &served), ("PendingWorkload", &served["items"][0])] {
                assert_eq!(
                    keys(&schemas[&name_of(version, type_)]["properties"]),
                    keys(value),
                    "{version} {type_}"
                );
            }
        }
    }

    #[test]
    fn both_versions_describe_the_same() {
        let shown = |document: &Value, at: &str| {
            let schemas = document.pointer(at).and_then(Value::as_object).unwrap();
            let ours: Map<_, _> = schemas
                .iter()
                .filter(|(name, _)| name.contains("v1beta2"))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            let paths = document["paths"].as_object().unwrap();
            let paths: Map<_, _> = paths
                .iter()
                .filter(|(path, _)| path.contains("v1beta2"))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            serde_json::to_string_pretty(&json!({"paths": paths, "schemas": ours})).unwrap()
        };
        insta::assert_snapshot!("v3", shown(&v3("v1beta2"), "/components/schemas"));
        insta::assert_snapshot!("v2", shown(&v2(), "/definitions"));
    }
}
