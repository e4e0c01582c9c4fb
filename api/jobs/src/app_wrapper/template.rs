//! The pod template of a wrapped object, for its Workload. The API server has not defaulted such a
//! template, so Kueue copies the fields that matter to admission and writes the server's defaults.
//! To compare equal, the result here must be the same. Fields that affect requests are kept whole,
//! even where Kueue drops them.

use serde_json::{Map, Value, json};

use super::super::meta::list_at;
use switchyard_syntax::quantity;

/// Fields of a pod's spec that are copied.
const OF_POD: [&str; 8] = [
    "nodeSelector",
    "nodeName",
    "affinity",
    "tolerations",
    "priorityClassName",
    "topologySpreadConstraints",
    // Kueue drops the following fields.
    "runtimeClassName",
    "resourceClaims",
];
/// Fields of a pod's spec with the defaults to write if they are missing.
const DEFAULTS_OF_POD: [(&str, &str); 4] = [
    ("restartPolicy", "Always"),
    ("dnsPolicy", "ClusterFirst"),
    ("schedulerName", "default-scheduler"),
    ("preemptionPolicy", "PreemptLowerPriority"),
];
/// Fields of a container that are copied.
const OF_CONTAINER: [&str; 5] = ["name", "image", "command", "args", "securityContext"];
/// Fields of a container with the defaults to write if they are missing.
const DEFAULTS_OF_CONTAINER: [(&str, &str); 2] =
    [("terminationMessagePath", "/dev/termination-log"), ("terminationMessagePolicy", "File")];

/// The fields of a pod template that matter to admission, with defaults.
pub(super) fn for_quota(template: &Value) -> Value {
    let from = template.get("spec").unwrap_or(&Value::Null);
    let mut spec = taken(from, &OF_POD, &DEFAULTS_OF_POD);
    for field in ["initContainers", "containers"] {
        let mut containers: Vec<Value> =
            list_at(from, &format!("/{field}")).iter().map(container).collect();
        if field == "initContainers" {
            keep_sidecars(&mut containers, list_at(from, "/initContainers"));
        }
        if field == "containers" || !containers.is_empty() {
            spec.insert(field.to_owned(), containers.into());
        }
    }
    // Kueue drops a value that the user sets, too.
    if !is_set(from, "terminationGracePeriodSeconds") {
        spec.insert("terminationGracePeriodSeconds".to_owned(), 30.into());
    }
    let security = from.get("securityContext").filter(|it| it.is_object()).cloned();
    spec.insert("securityContext".to_owned(), security.unwrap_or_else(|| json!({})));
    if let Some(overhead) = amounts(from.get("overhead")) {
        spec.insert("overhead".to_owned(), overhead);
    }
    if from.get("resources").is_some_and(Value::is_object) {
        spec.insert("resources".to_owned(), resources(from));
    }
    let mut kept = Map::new();
    if let Some(metadata) = template.get("metadata") {
        kept.insert("metadata".to_owned(), metadata.clone());
    }
    kept.insert("spec".to_owned(), spec.into());
    kept.into()
}

fn container(from: &Value) -> Value {
    let mut container = taken(from, &OF_CONTAINER, &DEFAULTS_OF_CONTAINER);
    let pull =
        from.get("imagePullPolicy").and_then(Value::as_str).filter(|policy| !policy.is_empty());
    let pull = pull.unwrap_or_else(|| {
        pull_policy(from.get("image").and_then(Value::as_str).unwrap_or_default())
    });
    container.insert("imagePullPolicy".to_owned(), pull.into());
    container.insert("resources".to_owned(), resources(from));
    container.into()
}

/// Requests, limits and claims of a container or of the pod itself.
fn resources(holder: &Value) -> Value {
    let of = |field: &str| {
        Some((field.to_owned(), amounts(holder.pointer(&format!("/resources/{field}")))?))
    };
    let mut resources: Map<String, Value> =
        ["requests", "limits"].into_iter().filter_map(of).collect();
    if let Some(claims) = holder.pointer("/resources/claims").filter(|claims| claims.is_array()) {
        resources.insert("claims".to_owned(), claims.clone());
    }
    resources.into()
}

/// Copies `restartPolicy` of init containers, so that sidecars stay sidecars. Kueue drops it, and
/// charges them as init containers.
fn keep_sidecars(containers: &mut [Value], from: &[Value]) {
    for (container, from) in containers.iter_mut().zip(from) {
        if let (Some(fields), Some(policy)) = (container.as_object_mut(), from.get("restartPolicy"))
        {
            fields.insert("restartPolicy".to_owned(), policy.clone());
        }
    }
}

/// Copies `fields`, and writes `defaults` for missing fields.
fn taken(from: &Value, fields: &[&str], defaults: &[(&str, &str)]) -> Map<String, Value> {
    let mut taken = Map::new();
    for field in fields.iter().filter(|field| is_set(from, field)) {
        taken.insert((*field).to_owned(), from.get(*field).cloned().unwrap_or_default());
    }
    for (field, usual) in defaults {
        let value = from.get(*field).and_then(Value::as_str).filter(|value| !value.is_empty());
        taken.insert((*field).to_owned(), value.unwrap_or(usual).into());
    }
    taken
}

fn is_set(from: &Value, field: &str) -> bool {
    from.get(field).is_some_and(|value| !value.is_null())
}

/// Amounts with at most three decimals, as the API server stores them.
fn amounts(from: Option<&Value>) -> Option<Value> {
    let mut amounts = from?.as_object()?.clone();
    for amount in amounts.values_mut() {
        let nanos = amount
            .as_str()
            .and_then(|text| quantity::parse(text).ok())
            .map_or(0, quantity::Exact::nanos);
        if nanos % NANOS_OF_A_MILLI != 0 {
            *amount = Value::from(format!("{}m", nanos.div_euclid(NANOS_OF_A_MILLI) + 1));
        }
    }
    Some(amounts.into())
}

const NANOS_OF_A_MILLI: i128 = 1_000_000;

/// The API server's default: an image without tag and digest is the latest.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) =
        image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or_default();
    let is_latest = match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => digest.is_none() && !last.is_empty(),
    };
    if is_latest { "Always" } else { "IfNotPresent" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_image_is_pulled_always() {
        let digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
        for (image, policy) in [
            ("busybox", "Always"),
            ("busybox:latest", "Always"),
            ("registry.example.com:5000/team/busybox", "Always"),
            ("registry.example.com:5000/team/busybox:1.36", "IfNotPresent"),
            ("busybox:1.36", "IfNotPresent"),
            (&format!("busybox@{digest}"), "IfNotPresent"),
            (&format!("busybox:latest@{digest}"), "Always"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    /// The result of AppWrapper 1.2.2's `GetPodTemplateSpec` for the same template, as JSON, and
    /// the sum of its requests.
    #[test]
    fn template_matches_kueues_result() {
        let template = json!({
            "metadata": {"labels": {"app": "a"}},
            "spec": {
                "serviceAccountName": "robot",
                "volumes": [{"name": "data", "emptyDir": {}}],
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "terminationGracePeriodSeconds": 5,
                "runtimeClassName": "kata",
                "resources": {"limits": {"memory": "1Gi"}},
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
                "initContainers": [{"name": "fetch", "image": "busybox:1.36", "restartPolicy": "Always"}],
                "containers": [{
                    "name": "c", "image": "busybox", "command": ["sleep"], "args": ["60"],
                    "env": [{"name": "A", "value": "a"}], "ports": [{"containerPort": 80}],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    "resources": {"requests": {"cpu": "1", "memory": "0.0001"}, "claims": [{"name": "gpu"}]},
                    "securityContext": {"privileged": true},
                }],
            },
        });
        let want = json!({
            "metadata": {"labels": {"app": "a"}},
            "spec": {
                "initContainers": [{
                    "name": "fetch", "image": "busybox:1.36", "resources": {}, "restartPolicy": "Always",
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }],
                "containers": [{
                    "name": "c", "image": "busybox", "command": ["sleep"], "args": ["60"],
                    "resources": {"requests": {"cpu": "1", "memory": "1m"}, "claims": [{"name": "gpu"}]},
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                    "imagePullPolicy": "Always", "securityContext": {"privileged": true},
                }],
                "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "nodeSelector": {"disk": "ssd"},
                "securityContext": {}, "schedulerName": "default-scheduler",
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "preemptionPolicy": "PreemptLowerPriority", "runtimeClassName": "kata",
                "resources": {"limits": {"memory": "1Gi"}},
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
            },
        });
        assert_eq!(for_quota(&template), want);
    }
}
