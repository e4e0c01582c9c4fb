//! Makes `docs/conditions.md`: conditions and their reasons, from `api/syntax/src/conditions`.

use anyhow::Context;

use super::rust::{Constant, Section, sections, without_links};
use super::{head, read, table};

const TYPES: &str = "api/syntax/src/conditions/mod.rs";
const REASONS: &str = "api/syntax/src/conditions/reasons.rs";
/// Reasons of `WorkerTrouble` that agents report.
const TROUBLES: &str = "proto/src/trouble.rs";

pub(super) fn page() -> anyhow::Result<String> {
    let types = sections(&read(TYPES)?);
    let types = &types.first().context("there are no conditions")?.constants;
    let mut out = head(
        "Conditions, reasons and events",
        "This page is for users and for programs that read statuses. Types and reasons are kept from version to version. An event\n\
         about a Workload has the reason of the condition that changed. `switchyard events JOB` lists the events of a job and of its\n\
         Workload; [compatibility](compatibility.md#visibility-api-and-events) says how they differ from Kueue's.",
    );
    out.push_str("\n## Conditions\n\n");
    // Comments of condition types start with the object. Statuses have none and are left out.
    let rows: Vec<[String; 3]> = types
        .iter()
        .filter_map(|it| {
            let (object, meaning) = it.doc.split_once(": ")?;
            Some([format!("`{}`", it.value), object.to_owned(), meaning.to_owned()])
        })
        .collect();
    out.push_str(&table(["condition", "of", "meaning"], &rows));
    let type_of = |name: &str| types.iter().find(|it| it.name == name).map(|it| it.value.clone());
    for section in sections(&read(REASONS)?) {
        out.push_str(&rendered(&section, type_of));
    }
    let troubles =
        sections(&read(TROUBLES)?).into_iter().next().context("there are no troubles")?;
    let value = |name: &str| {
        troubles.constants.iter().find(|it| it.name == name).map(|it| it.value.clone())
    };
    let heading = "Reasons of `WorkerTrouble` from a worker cluster".to_owned();
    out.push_str(&rendered(&Section { heading, constants: troubles.constants.clone() }, value));
    Ok(out)
}

fn rendered(section: &Section, type_of: impl Fn(&str) -> Option<String>) -> String {
    // Texts with spaces are messages, not reasons.
    let is_reason = |it: &&Constant| !it.value.is_empty() && !it.value.contains(' ');
    let rows: Vec<[String; 2]> = section
        .constants
        .iter()
        .filter(is_reason)
        .map(|it| [format!("`{}`", it.value), without_links(&it.doc, &type_of)])
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let heading = without_links(&section.heading, type_of);
    let heading = heading.trim_end_matches('.');
    let short = heading.split([',', '.']).next().unwrap_or(heading).replace('`', "");
    let short = short.split(" that ").next().unwrap_or(&short);
    format!("\n## {short}\n\n{heading}.\n\n{}", table(["reason", "meaning"], &rows))
}
