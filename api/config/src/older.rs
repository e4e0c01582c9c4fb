//! The older version, `config.kueue.x-k8s.io/v1beta1`. As in Kueue, it is converted to a file of
//! the newer version with the same meaning.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::{API_VERSION, IgnoredField, shape};
use switchyard_syntax::field::{FieldError, Path};

/// `apiVersion` of the older version.
pub(super) const V1BETA1: &str = "config.kueue.x-k8s.io/v1beta1";
/// The gate that disables `waitForPodsReady`. v1beta2 has no field for that.
const OFF: &str = "DisableWaitForPodsReady";

/// Fields that only the newer version has, with `[]` for items of a list.
const NEWER: &[&str] = &[
    "metrics.customLabels.[].sourceKind",
    "metrics.customLabels.[].trackedValues",
    "multiKueue.clusterProfile",
    "multiKueue.incrementalDispatcherConfig",
    "resources.deviceClassMappings.[].sources",
    "resources.quotaCheckStrategy",
    "visibilityServer",
];

/// Fields that only the older version has and that have no effect in Kueue either, with the reason.
const ENDED: &[(&str, &str)] = &[
    ("queueVisibility", "Kueue has not looked at it since v0.9; ask the visibility server"),
    ("integrations.podOptions", "managedJobsNamespaceSelector took its place"),
];

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = shape::SCHEMA.clone();
    for path in NEWER {
        at(&mut schema, path)[shape::NEWER] = true.into();
    }
    let selector = at(&mut schema, "managedJobsNamespaceSelector").clone();
    for section in ["waitForPodsReady", "fairSharing"] {
        at(&mut schema, section)["properties"]["enable"] = json!({"type": "boolean"});
    }
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    at(&mut schema, "integrations")["properties"]["podOptions"] =
        object(json!({"namespaceSelector": selector, "podSelector": selector}));
    let number = json!({"type": "integer", "format": "int32"});
    schema["properties"]["queueVisibility"] = object(json!({
        "clusterQueues": object(json!({"maxCount": number})),
        "updateIntervalSeconds": number,
    }));
    schema
});

/// The schema of a field.
fn at<'a>(schema: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.').fold(schema, |schema, name| {
        let schema = shape::without_null_mut(schema);
        let field =
            if name == "[]" { &mut schema["items"] } else { &mut schema["properties"][name] };
        shape::without_null_mut(field)
    })
}

/// Converts a file of the older version. Returns its fields without effect.
///
/// # Errors
/// If the file does not have the shape of the older version.
pub(super) fn convert(value: &mut Value) -> Result<Vec<IgnoredField>, Vec<FieldError>> {
    let errors = shape::errors_by(&SCHEMA, value);
    let Some(file) = value.as_object_mut().filter(|_| errors.is_empty()) else {
        return Err(errors);
    };
    file.insert("apiVersion".to_owned(), API_VERSION.into());
    fair_sharing(file);
    wait_for_pods_ready(file);
    let mut ignored = Vec::new();
    for (path, reason) in ENDED {
        let (parent, name) = path.split_once('.').unwrap_or(("", path));
        let parent = if parent.is_empty() { Some(&mut *file) } else { section(file, parent) };
        if parent.is_some_and(|parent| parent.remove(name).is_some()) {
            let path = path.split('.').fold(Path::root(), |path, name| path.child(name));
            ignored.push(IgnoredField::new(&path, *reason));
        }
    }
    Ok(ignored)
}

fn section<'a>(file: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    file.get_mut(name)?.as_object_mut()
}

/// Removes `enable` from a section. Returns whether it was true. A missing section is not enabled.
fn enabled(file: &mut Map<String, Value>, name: &str) -> bool {
    section(file, name)
        .and_then(|section| section.remove("enable"))
        .is_some_and(|enable| enable == true)
}

fn fair_sharing(file: &mut Map<String, Value>) {
    if !enabled(file, "fairSharing") {
        file.remove("fairSharing");
        return;
    }
    let Some(sharing) = section(file, "fairSharing") else { return };
    if sharing.get("preemptionStrategies").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let both = json!(["LessThanOrEqualToFinalShare", "LessThanInitialShare"]);
        sharing.insert("preemptionStrategies".to_owned(), both);
    }
}

fn wait_for_pods_ready(file: &mut Map<String, Value>) {
    if !enabled(file, "waitForPodsReady") {
        file.remove("waitForPodsReady");
        let gates = file.entry("featureGates").or_insert_with(|| json!({}));
        gates[OFF] = true.into();
        return;
    }
    let Some(wait) = section(file, "waitForPodsReady") else { return };
    wait.entry("timeout").or_insert_with(|| "5m".into());
    wait.entry("blockAdmission").or_insert_with(|| true.into());
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use crate::{Configuration, load};

    fn read(body: &str) -> Result<Configuration, String> {
        load(&format!("apiVersion: {}\nkind: Configuration\n{body}\n", super::V1BETA1))
            .map_err(|it| it.to_string())
    }

    fn newer(body: &str) -> Configuration {
        load(&format!("apiVersion: {}\nkind: Configuration\n{body}\n", super::API_VERSION)).unwrap()
    }

    /// Pairs of files with the same meaning, in the older and in the newer version.
    #[rstest]
    #[case::nothing("", "featureGates: {DisableWaitForPodsReady: true}")]
    #[case::waiting(
        "waitForPodsReady: {enable: true}",
        "waitForPodsReady: {timeout: 5m, blockAdmission: true}"
    )]
    #[case::waiting_as_the_file_says(
        "waitForPodsReady: {enable: true, timeout: 9m, blockAdmission: false, requeuingStrategy: {timestamp: Creation}}",
        "waitForPodsReady: {timeout: 9m, blockAdmission: false, requeuingStrategy: {timestamp: Creation}}"
    )]
    #[case::not_waiting(
        "waitForPodsReady: {enable: false, timeout: 9m}\nfeatureGates: {PartialAdmission: false}",
        "featureGates: {DisableWaitForPodsReady: true, PartialAdmission: false}"
    )]
    #[case::not_waiting_unless_enabled(
        "waitForPodsReady: {timeout: 9m}",
        "featureGates: {DisableWaitForPodsReady: true}"
    )]
    #[case::sharing(
        "fairSharing: {enable: true}\nwaitForPodsReady: {enable: true}",
        "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}
waitForPodsReady: {timeout: 5m, blockAdmission: true}"
    )]
    #[case::not_sharing(
        "fairSharing: {enable: false, preemptionStrategies: [LessThanInitialShare]}",
        "featureGates: {DisableWaitForPodsReady: true}"
    )]
    #[case::fields_of_both(
        "manageJobsWithoutQueueName: true\nmultiKueue: {origin: hub}\nintegrations: {frameworks: [ray.io/rayjob]}",
        "manageJobsWithoutQueueName: true\nmultiKueue: {origin: hub}\nintegrations: {frameworks: [ray.io/rayjob]}
featureGates: {DisableWaitForPodsReady: true}"
    )]
    fn files_of_the_older_version(#[case] older: &str, #[case] same: &str) {
        assert_eq!(read(older).unwrap(), newer(same));
    }

    #[test]
    fn ended_fields_are_removed_and_reported() {
        let body = "queueVisibility: {updateIntervalSeconds: 5, clusterQueues: {maxCount: 10}}
integrations: {podOptions: {namespaceSelector: {matchLabels: {a: b}}}}";
        let reported =
            read(body).unwrap().ignored().iter().map(ToString::to_string).collect::<Vec<_>>();
        insta::assert_snapshot!(reported.join("\n"), @r"
        queueVisibility: Kueue has not looked at it since v0.9; ask the visibility server
        integrations.podOptions: managedJobsNamespaceSelector took its place
        ");
    }

    #[test]
    fn newer_field_in_an_older_file_is_rejected() {
        insta::assert_snapshot!(
            read(
                "
visibilityServer: {bindPort: 1}
resources: {quotaCheckStrategy: IgnoreUndeclared, deviceClassMappings: [{name: a, deviceClassNames: [b], sources: []}]}
metrics: {customLabels: [{name: a, sourceKind: Cohort, trackedValues: [x]}]}
multiKueue: {clusterProfile: {}, incrementalDispatcherConfig: {stepSize: 2}}
waitForPodsReady: {enabled: true}
"
            )
            .unwrap_err()
        );
    }
}
