//! The reference page of the configuration file, `docs/configuration.md`, made from its schema.

use serde_json::Value;
use switchyard_pages::Page;

use super::{effect, gates, shape};

const PAGE: Page = Page {
    path: "docs/configuration.md",
    command: "UPDATE_DOCS=1 cargo test -p switchyard-config page",
};

/// The page as Markdown.
fn page() -> String {
    let mut out = "# Configuration file\n\n\
        <!-- Made from the schema: UPDATE_DOCS=1 cargo test -p switchyard-config page -->\n\n\
        This page is for administrators. It lists the fields of Kueue's configuration file, `config.kueue.x-k8s.io/v1beta2`, as\n\
        Switchyard reads them. A file with another field is refused, with the field's path. [Limits](limits.md#configuration) and\n\
        [compatibility](compatibility.md#feature-gates) say more.\n\n\
        ## Fields\n\n| field | type | meaning |\n|---|---|---|\n"
        .to_owned();
    visit(&shape::SCHEMA, "", &mut out);
    out.push_str("\n## Feature gates\n\n| gate | default | stage |\n|---|---|---|\n");
    for name in gates::names() {
        let default = if gates::default(name).unwrap_or_default() { "on" } else { "off" };
        let stage = match gates::stage(name) {
            Some(gates::Stage::Alpha) => "alpha",
            Some(gates::Stage::Beta) => "beta",
            Some(gates::Stage::Settled) | None => "settled",
        };
        out.push_str(&format!("| `{name}` | {default} | {stage} |\n"));
    }
    out
}

fn visit(schema: &Value, path: &str, out: &mut String) {
    let Some(fields) = shape::properties(schema) else { return };
    for (name, field) in fields {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let own = shape::properties(field);
        let items = field.get("items").filter(|items| shape::properties(items).is_some());
        let text = field["description"].as_str().unwrap_or_default();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = without_links(&text).replace('|', "\\|");
        let effect = match effect::reason_for_none(&path) {
            Some(_) => " It has no effect; the log has the reason.",
            None => "",
        };
        out.push_str(&format!("| `{path}` | {} | {text}{effect} |\n", type_of(field)));
        if own.is_some() {
            visit(field, &path, out);
        } else if let Some(items) = items {
            visit(items, &format!("{path}[]"), out);
        }
    }
}

/// Links of Rust's documentation as code.
fn without_links(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`")
}

fn type_of(field: &Value) -> &str {
    shape::type_of(shape::without_null(field)).unwrap_or_default()
}

#[test]
fn configuration_page_is_fresh() {
    PAGE.check(&page()).unwrap();
}
