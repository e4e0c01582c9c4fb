//! Makes `docs/roles.md`: roles and their rules, from `deploy/rbac`.

use anyhow::Context;
use serde_json::Value;

use super::{head, read, table};

/// Files with their sections.
const FILES: [(&str, &str); 7] = [
    ("controller", "Every mode"),
    ("hub", "A hub"),
    ("agent", "An agent"),
    ("single", "One cluster"),
    ("kubeconfig-worker", "A worker by kubeconfig"),
    ("viewer", "Viewers"),
    ("people", "Users"),
];

pub(super) fn page() -> anyhow::Result<String> {
    let mut out = head(
        "Roles",
        "This page is for administrators and security teams. It lists the rights in `deploy/rbac`, which the chart installs.\n\
         [Security](security.md) says why each is needed. `deploy/rbac/people-jobs.yaml` has an editor and a viewer role for each job\n\
         kind, under Kueue's names.",
    );
    for (file, title) in FILES {
        let path = format!("deploy/rbac/{file}.yaml");
        out.push_str(&format!("\n## {title}\n\n`{path}`\n"));
        for document in read(&path)?.split("\n---\n") {
            out.push_str(&role(document).with_context(|| path.clone())?);
        }
    }
    Ok(out)
}

/// The section of one document. Empty if it is no role.
fn role(document: &str) -> anyhow::Result<String> {
    let object: Value = serde_saphyr::from_str(document)?;
    let kind = object["kind"].as_str().unwrap_or_default();
    if !matches!(kind, "ClusterRole" | "Role") {
        return Ok(String::new());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let comment: Vec<&str> = document
        .lines()
        .take_while(|line| line.starts_with('#') || line.trim().is_empty())
        .map(|line| line.trim_start_matches('#').trim())
        .filter(|line| !line.is_empty())
        .collect();
    let mut out = format!("\n### {kind} {name}\n\n");
    if !comment.is_empty() {
        out.push_str(&format!("{}\n\n", comment.join(" ")));
    }
    let rules = object["rules"].as_array().into_iter().flatten();
    let rows: Vec<[String; 3]> = rules
        .map(|rule| {
            let list = |field: &str| -> Vec<&str> {
                rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
            };
            let groups = list("apiGroups");
            // A subresource comes last: `workloads.kueue.x-k8s.io/status`.
            let group = |name: &str| {
                let (resource, subresource) = match name.split_once('/') {
                    Some((resource, subresource)) => (resource, format!("/{subresource}")),
                    None => (name, String::new()),
                };
                match groups.first() {
                    Some(group) if !group.is_empty() => {
                        format!("`{resource}.{group}{subresource}`")
                    }
                    _ => format!("`{name}`"),
                }
            };
            let mut resources: Vec<String> = list("resources").into_iter().map(group).collect();
            resources.extend(list("nonResourceURLs").into_iter().map(|url| format!("`{url}`")));
            [resources.join(", "), list("verbs").join(", "), list("resourceNames").join(", ")]
        })
        .collect();
    if rows.is_empty() {
        out.push_str("It gathers other roles by their labels.\n");
    }
    out.push_str(&table(["resources", "verbs", "only these"], &rows));
    Ok(out)
}
