//! Commands under the names of earlier versions.

use std::path::{Path, PathBuf};

use clap::Parser as _;

use crate::Args;

/// Command lines of earlier versions, each with all its options somewhere.
const LINES: [&str; 52] = [
    "status",
    "status train",
    "status job/train -n team -o json",
    "status -A -o yaml",
    "clusters",
    "clusters --capacity -o json",
    "clusters cordon east",
    "clusters uncordon east",
    "clusters drain east",
    "clusters drain east --wait --timeout 30m",
    "clusters drain east --dry-run -o json",
    "clusters declare-lost east",
    "clusters declare-lost east --yes",
    "clusters trust-copies east --yes",
    "cluster declare-lost east --yes",
    "cluster declare-lost east --dry-run",
    "cluster join-token east",
    "cluster join-token east --ttl 30m --hub-address https://hub:7443 --hub-namespace ns -o json",
    "cluster add east --timeout 120",
    "cluster remove east --yes",
    "explain train",
    "explain jobset/train -n team --config config.yaml -o json",
    "breaker status",
    "breaker status -o json",
    "breaker release",
    "breaker release --dry-run",
    "evictions release",
    "authority status",
    "authority status --hub-namespace ns -o json",
    "authority replace",
    "authority replace --dry-run",
    "authority recover",
    "authority recover --hub-id 6b1f9f0e --hub-namespace ns",
    "ca replace",
    "orphans",
    "orphans -o json",
    "copies",
    "copies train -n team",
    "copies -A --hub-id 6b1f9f0e",
    "adopt train --from east --uid u",
    "adopt train --from east --uid u --yes -n team -o json",
    "adopt train --from east --uid u --dry-run",
    "hand-back",
    "hand-back --copies",
    "hand-back --dry-run -o json",
    "replay decisions.jsonl",
    "audit --grace 60",
    "audit --grace 0",
    "move train --to west --dry-run",
    "check --pre",
    "version --client",
    "--kubeconfig hub.kubeconfig --context hub status",
];

#[test]
fn command_lines_of_earlier_versions_are_accepted() {
    for line in LINES {
        let words = ["switchyard"].into_iter().chain(line.split(' '));
        let parsed = Args::try_parse_from(words);
        assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
    }
}

/// The hidden names in the tree: paths of commands, as users type them.
fn hidden(command: &clap::Command, path: &str, found: &mut Vec<String>) {
    for it in command.get_subcommands().filter(|it| it.get_name() != "help") {
        let named = |name: &str| format!("{path} {name}");
        let visible: Vec<&str> = it.get_visible_aliases().collect();
        found.extend(it.get_all_aliases().filter(|it| !visible.contains(it)).map(named));
        match it.is_hide_set() {
            true => found.push(named(it.get_name())),
            false => hidden(it, &named(it.get_name()), found),
        }
    }
}

fn all_hidden() -> Vec<String> {
    use clap::CommandFactory as _;
    let mut found = Vec::new();
    hidden(&Args::command(), "switchyard", &mut found);
    found
}

#[test]
fn every_hidden_name_has_a_command_line() {
    for name in all_hidden() {
        let name = name.trim_start_matches("switchyard ");
        // `--kubeconfig F status` counts for the options alone.
        let is_covered = LINES.iter().any(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        });
        assert!(is_covered, "no line of earlier versions for {name}");
    }
}

/// Files that users' messages and pages come from.
fn sources() -> Vec<PathBuf> {
    const EXTENSIONS: [&str; 8] = ["rs", "md", "yaml", "tpl", "proto", "sh", "txt", "json"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let top = [
        "README.md",
        "api",
        "audit",
        "cli",
        "controller",
        "deploy",
        "docs",
        "examples",
        "hub",
        "platform",
        "proto",
        "scheduler",
        "worker-agent",
    ];
    let mut left: Vec<PathBuf> = top.map(|name| root.join(name)).into();
    let mut files = Vec::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path
            .extension()
            .and_then(|it| it.to_str())
            .is_some_and(|it| EXTENSIONS.contains(&it))
        {
            files.push(path);
        }
    }
    files
}

#[test]
fn messages_and_pages_name_no_hidden_command() {
    // The commands themselves, and this table.
    const OWN: [&str; 4] = ["join_token.rs", "clusters.rs", "status.rs", "old_names.rs"];
    let names = all_hidden();
    assert!(names.iter().any(|name| name == "switchyard cluster join-token"), "{names:?}");
    let files = sources();
    assert!(files.len() > 500, "only {} files were found", files.len());
    for file in files {
        let own = file.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        if file.starts_with(Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli"))
            && OWN.contains(&own)
        {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        for name in &names {
            let ends = |rest: &str| {
                !rest.starts_with(|it: char| it.is_alphanumeric() || it == '-' || it == '_')
            };
            let is_named = text
                .match_indices(name.as_str())
                .any(|(at, _)| text.get(at + name.len()..).is_some_and(ends));
            assert!(!is_named, "{} names `{name}`", file.display());
        }
    }
}
