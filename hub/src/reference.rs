//! The reference page of flags, `docs/flags.md`, made from the programs themselves.

use clap::CommandFactory as _;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/flags.md");

/// The page as Markdown.
fn page() -> String {
    let mut out = "# Flags and environment\n\n\
        <!-- Made from the programs: UPDATE_DOCS=1 cargo test -p switchyard-hub flags_page -->\n\n\
        This page is for administrators who start the programs without the chart, or who read its Deployments. A flag comes before its\n\
        environment variable.\n"
        .to_owned();
    let programs = [
        ("switchyard-hub", "Hub and single mode.", crate::Args::command()),
        ("switchyard-agent", "The agent of a worker cluster.", switchyard_agent::Args::command()),
    ];
    for (name, about, command) in programs {
        out.push_str(&format!("\n## {name}\n\n{about}\n\n"));
        out.push_str(&switchyard::reference::options(&command, |_| true));
    }
    out
}

#[test]
fn flags_page_is_fresh() {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, page()).unwrap();
    }
    let there = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        there == page(),
        "docs/flags.md is stale: UPDATE_DOCS=1 cargo test -p switchyard-hub flags_page"
    );
}
