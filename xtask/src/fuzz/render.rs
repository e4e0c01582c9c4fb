//! Renders a scenario for a person.

use std::fmt::Write as _;

use serde_json::Value;

/// The scenario as text: a line for each object and each edit.
pub(crate) fn scenario(scenario: &Value) -> String {
    let mut text =
        format!("{}, gates {}", scenario["name"].as_str().unwrap_or("unnamed"), scenario["gates"]);
    if scenario["fairSharing"] == true {
        text.push_str(", fair sharing");
    }
    text.push('\n');
    for (field, label) in
        [("resourceFlavors", "flavor"), ("cohorts", "cohort"), ("clusterQueues", "queue")]
    {
        for object in list(&scenario[field]) {
            line(&mut text, "  ", format_args!("{label} {}", spec(object)));
        }
    }
    for queue in list(&scenario["localQueues"]) {
        line(
            &mut text,
            "  ",
            format_args!("local queue {}: {}", key(queue), queue["spec"]["clusterQueue"]),
        );
    }
    for (number, step) in list(&scenario["steps"]).iter().enumerate() {
        line(&mut text, "  ", format_args!("step {number}"));
        for (field, edit) in step
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(field, _)| !OBJECTS.contains(&field.as_str()))
        {
            line(&mut text, "    ", format_args!("{field} {edit}"));
        }
        for object in list(&step["apply"]) {
            line(
                &mut text,
                "    ",
                format_args!(
                    "apply {} {}",
                    object["kind"].as_str().unwrap_or_default(),
                    spec(object)
                ),
            );
        }
        for object in list(&step["submit"]) {
            line(&mut text, "    ", format_args!("submit {}", workload(object)));
        }
    }
    text
}

/// The parts of a step that are whole objects.
const OBJECTS: [&str; 2] = ["apply", "submit"];

fn line(text: &mut String, indent: &str, content: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{indent}{content}");
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn key(object: &Value) -> String {
    let of = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", of("namespace"), of("name"))
}

fn spec(object: &Value) -> String {
    format!("{} {}", object["metadata"]["name"].as_str().unwrap_or_default(), object["spec"])
}

fn workload(object: &Value) -> String {
    let spec = &object["spec"];
    let pod_sets = list(&spec["podSets"]).iter().map(|pods| {
        let pod = &pods["template"]["spec"];
        let requests: Vec<_> = list(&pod["containers"])
            .iter()
            .map(|c| c["resources"]["requests"].to_string())
            .collect();
        let mut text = format!(
            "{} x {} {}",
            pods["name"].as_str().unwrap_or_default(),
            pods["count"],
            requests.join(" + ")
        );
        for (what, value) in [
            ("at least", &pods["minCount"]),
            ("on", &pod["nodeSelector"]),
            ("tolerates", &pod["tolerations"]),
        ] {
            if !value.is_null() {
                text.push_str(&format!(" {what} {value}"));
            }
        }
        text
    });
    let pod_sets: Vec<_> = pod_sets.collect();
    let queue = spec["queueName"].as_str().unwrap_or_default();
    format!("{} to {queue}, priority {}: {}", key(object), spec["priority"], pod_sets.join("; "))
}
