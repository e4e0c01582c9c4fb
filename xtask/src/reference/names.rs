//! Makes `docs/labels.md`: labels, annotations, finalizers and gates, from `api/syntax/src/names.rs`.

use super::rust::{Constant, sections, without_links};
use super::{head, read, table};

const SOURCE: &str = "api/syntax/src/names.rs";

pub(super) fn page() -> anyhow::Result<String> {
    let sections = sections(&read(SOURCE)?);
    let value = |name: &str| {
        let mut all = sections.iter().flat_map(|section| &section.constants);
        all.find(|it| it.name == name).map(|it| it.value.clone())
    };
    let mut out = head(
        "Labels, annotations and names",
        "This page is for users and administrators. It lists every label, annotation, finalizer, gate and well-known name that\n\
         Switchyard reads or writes. Names below `kueue.x-k8s.io/` have Kueue's meaning. [Marks](marks.md) says who may write those\n\
         below `switchyard.dev/`.",
    );
    for section in &sections {
        // Names without a slash are values of the others, and field managers.
        let is_name = |it: &&Constant| it.value.contains('/');
        let rows: Vec<[String; 2]> = section
            .constants
            .iter()
            .filter(is_name)
            .map(|it| [format!("`{}`", it.value), without_links(&it.doc, value)])
            .collect();
        if !rows.is_empty() {
            out.push_str(&format!("\n## {}\n\n", section.heading));
            out.push_str(&table(["name", "meaning"], &rows));
        }
    }
    Ok(out)
}
