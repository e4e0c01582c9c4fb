//! Makes `docs/fields.md`: fields of the CRDs that Kueue does not have, from `deploy/crds`.

use std::fs;

use anyhow::Context;
use serde_json::Value;

use super::{head, table};
use crate::run;

/// The text in a description that marks a field as not Kueue's.
const MARK: &str = "Not part of Kueue.";

pub(super) fn page() -> anyhow::Result<String> {
    let mut out = head(
        "Fields beyond Kueue's",
        "This page is for users and administrators. The CRDs are Kueue's v0.19.2, with these further fields. All are optional.\n\
         Kueue's CRDs drop them on [the way back](migrate.md#back-to-kueue).",
    );
    let dir = run::root().join("deploy/crds");
    let entries = fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut paths: Vec<_> =
        entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
    paths.sort();
    for path in paths {
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let crd: Value =
            serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
        let mut versions = crd["spec"]["versions"].as_array().into_iter().flatten();
        let Some(version) = versions.find(|it| it["storage"] == true) else { continue };
        let mut rows = Vec::new();
        visit(&version["schema"]["openAPIV3Schema"], "", false, &mut rows);
        if !rows.is_empty() {
            let kind = crd["spec"]["names"]["kind"].as_str().unwrap_or_default();
            out.push_str(&format!("\n## {kind}\n\n"));
            out.push_str(&table(["field", "type", "meaning"], &rows));
        }
    }
    Ok(out)
}

/// Adds the marked fields and everything below them.
fn visit(schema: &Value, path: &str, is_own: bool, rows: &mut Vec<[String; 3]>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        // The mark may be wrapped.
        let text = field["description"].as_str().unwrap_or_default();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_own = is_own || text.contains(MARK);
        let items = &field["items"];
        let path = match (path, items.is_object()) {
            ("", _) => name.clone(),
            (path, false) => format!("{path}.{name}"),
            (path, true) => format!("{path}.{name}[]"),
        };
        if is_own {
            let text = text.replace(MARK, "").replace("  ", " ");
            rows.push([format!("`{path}`"), type_of(field), text.trim().to_owned()]);
        }
        visit(if items.is_object() { items } else { field }, &path, is_own, rows);
    }
}

fn type_of(field: &Value) -> String {
    let allowed = field["enum"].as_array().map(|all| {
        let names: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
        names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    });
    let plain = || match field["type"].as_str() {
        Some("array") => {
            format!("list of {}", field["items"]["type"].as_str().unwrap_or("values"))
        }
        Some(kind) => kind.to_owned(),
        None => "quantity".to_owned(),
    };
    allowed.filter(|names| !names.is_empty()).unwrap_or_else(plain)
}
