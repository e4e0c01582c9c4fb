//! The reference page of flags, `docs/flags.md`, made from the programs themselves.

use clap::CommandFactory as _;
use switchyard_pages::Page;

const PAGE: Page = Page {
    path: "docs/flags.md",
    command: "UPDATE_DOCS=1 cargo test -p switchyard-hub flags_page",
};

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
    PAGE.check(&page()).unwrap();
}
