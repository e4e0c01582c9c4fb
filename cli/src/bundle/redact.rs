//! Removes what may be secret.

use serde_json::Value;

const REDACTED: &str = "REDACTED";

/// The key of a ConfigMap with a configuration file, which is one string.
const CONFIGURATION: &str = "controller_manager_config.yaml";

/// Longest annotation that is kept, in bytes. Longer ones repeat whole objects, environment
/// included, as `switchyard.dev/v1beta1-dropped` does.
const LONGEST: usize = 256;
/// Annotations under these names are kept up to [`LONGEST`]. Users choose all others.
const KEPT: [&str; 6] = [
    "switchyard.dev/",
    "kueue.x-k8s.io/",
    "batch.kubernetes.io/",
    "deployment.kubernetes.io/",
    "node.alpha.kubernetes.io/",
    "control-plane.alpha.kubernetes.io/",
];

/// Whether a ConfigMap has a configuration file of Switchyard. Others may hold anything.
pub(super) fn is_configuration(object: &Value) -> bool {
    configuration(object).is_some()
}

fn configuration(object: &Value) -> Option<&str> {
    object.get("data")?.get(CONFIGURATION)?.as_str()
}

/// Redacts the configuration file in a ConfigMap, and drops all other keys.
pub(super) fn redact_configuration(object: &mut Value) {
    let file = configuration(object).map(|text| {
        // A parser's message may quote the file.
        let parsed: Result<Value, _> = serde_saphyr::from_str(text);
        let redacted = parsed.ok().and_then(|mut file| {
            redact(&mut file);
            serde_saphyr::to_string(&file).ok()
        });
        redacted.unwrap_or_else(|| format!("{REDACTED}: the file is not valid YAML"))
    });
    if let (Some(fields), Some(file)) = (object.as_object_mut(), file) {
        fields.remove("binaryData");
        fields.insert("data".to_owned(), serde_json::json!({CONFIGURATION: file}));
    }
    redact(object);
}

/// Takes command lines, values of environment and HTTP headers, parameters of volumes, credentials
/// in URLs, and annotations of users out of an object, at any depth.
pub(super) fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // Managed fields are long, and say nothing that is needed.
            fields.remove("managedFields");
            for (name, value) in fields.iter_mut() {
                match (&**name, &mut *value) {
                    ("command" | "args", Value::Array(words)) => {
                        *words = vec![REDACTED.into()];
                    }
                    ("args", Value::String(_)) => *value = REDACTED.into(),
                    ("env" | "httpHeaders", Value::Array(named)) => {
                        named.iter_mut().for_each(hide_value);
                    }
                    // `options` of a flexVolume; those of a `dnsConfig` are a list.
                    (
                        "env" | "httpHeaders" | "volumeAttributes" | "options",
                        Value::Object(named),
                    ) => {
                        named.values_mut().for_each(|value| *value = REDACTED.into());
                    }
                    ("annotations", Value::Object(annotations)) => {
                        annotations.iter_mut().for_each(|(name, value)| hide_foreign(name, value));
                    }
                    _ => redact(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(redact),
        Value::String(text) => hide_user(text),
        _ => {}
    }
}

fn hide_foreign(name: &str, value: &mut Value) {
    let is_kept = KEPT.iter().any(|prefix| name.starts_with(prefix))
        && value.as_str().is_some_and(|text| text.len() <= LONGEST);
    if !is_kept {
        *value = REDACTED.into();
    }
}

/// Keeps the name of a variable and the object that its value comes from.
fn hide_value(variable: &mut Value) {
    match variable {
        Value::Object(fields) => {
            fields.retain(|name, _| matches!(&**name, "name" | "value" | "valueFrom"));
            if let Some(value) = fields.get_mut("value") {
                *value = REDACTED.into();
            }
        }
        // NAME=VALUE.
        other => *other = REDACTED.into(),
    }
}

/// Replaces user and password of each URL in a text.
fn hide_user(text: &mut String) {
    let mut parts = text.split("://");
    let mut hidden = parts.next().unwrap_or_default().to_owned();
    for rest in parts {
        hidden.push_str("://");
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let user = authority.rsplit_once('@').map_or(0, |(user, _)| user.len());
        if user > 0 {
            hidden.push_str(REDACTED);
        }
        hidden.push_str(rest.get(user..).unwrap_or_default());
    }
    *text = hidden;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECRET: &str = "s3cret";

    #[test]
    fn tokens_in_templates_are_taken_away() {
        let probe =
            json!({"httpGet": {"httpHeaders": [{"name": "Authorization", "value": SECRET}]}});
        let container = json!({"name": "c", "image": "i", "livenessProbe": probe, "command": ["run", "--token=s3cret"], "args": [SECRET],
            "lifecycle": {"preStop": {"exec": {"command": ["post", SECRET]}}},
            "env": [{"name": "TOKEN", "value": SECRET}, {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "n"}}}]});
        let csi =
            json!({"name": "v", "csi": {"driver": "d", "volumeAttributes": {"password": SECRET}}});
        let flex =
            json!({"name": "f", "flexVolume": {"driver": "d", "options": {"password": SECRET}}});
        let mut object = json!({
            "metadata": {"name": "a", "managedFields": [{"manager": "kubectl"}]},
            "spec": {
                "podSets": [{"template": {"spec": {"containers": [container], "volumes": [csi, flex]}}}],
                "url": "https://ann:s3cret@webhook.example:9443/path",
                "message": "tried http://a.example/, then http://bob:s3cret@b.example/",
            },
        });
        redact(&mut object);
        let text = object.to_string();
        assert!(!text.contains(SECRET) && !text.contains("managedFields"), "{text}");
        for kept in [
            "secretKeyRef",
            "\"TOKEN\"",
            "\"image\":\"i\"",
            "\"driver\":\"d\"",
            "https://REDACTED@webhook.example:9443/path",
        ] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
    }

    #[test]
    fn annotations_of_users_and_long_ones_are_taken_away() {
        let long = format!("{{\"token\": \"{SECRET}\", \"padding\": \"{}\"}}", "x".repeat(LONGEST));
        let mut object = json!({"metadata": {"annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": SECRET,
            "example.com/token": SECRET,
            "switchyard.dev/v1beta1-dropped": long,
            "kueue.x-k8s.io/odd": long,
            "switchyard.dev/attempt": "2",
            "kueue.x-k8s.io/job-owner-name": "train",
        }}});
        redact(&mut object);
        let text = object.to_string();
        assert!(!text.contains(SECRET), "{text}");
        let names = ["last-applied-configuration", "example.com/token", "v1beta1-dropped"];
        for kept in names.into_iter().chain(["\"2\"", "\"train\""]) {
            assert!(text.contains(kept), "{kept}: {text}");
        }
    }

    fn config_map(file: &str) -> Value {
        let mut object = json!({
            "kind": "ConfigMap", "metadata": {"name": "switchyard-hub-config"},
            "data": {CONFIGURATION: file, "other": SECRET}, "binaryData": {"more": SECRET},
        });
        assert!(is_configuration(&object));
        redact_configuration(&mut object);
        object
    }

    #[test]
    fn configuration_file_is_redacted_inside_its_string() {
        let exec = json!({
            "command": "/plugins/vault", "args": ["--token", SECRET],
            "env": [{"name": "VAULT_TOKEN", "value": SECRET}],
        });
        let file = json!({
            "multiKueue": {
                "gcInterval": "1m",
                "clusterProfile": {"accessProviders": [{"name": "vault", "execConfig": exec}]},
            },
        });
        let file = format!("# {SECRET} in a comment\n{}", serde_saphyr::to_string(&file).unwrap());
        let object = config_map(&file);
        let text = object.to_string();
        assert!(!text.contains(SECRET), "{text}");
        let file = object["data"][CONFIGURATION].as_str().unwrap();
        for kept in ["gcInterval: 1m", "/plugins/vault", "VAULT_TOKEN", REDACTED] {
            assert!(file.contains(kept), "{kept}: {file}");
        }
    }

    #[test]
    fn unreadable_configuration_file_is_left_out() {
        let text = config_map("a: [s3cret").to_string();
        assert!(!text.contains(SECRET) && text.contains("not valid YAML"), "{text}");
    }
}
