//! Reference pages of command lines, made from the commands themselves: `docs/commands.md`, and
//! tables of options for the pages of other programs.

use crate::help;

/// The page as Markdown.
#[must_use]
pub fn page() -> String {
    let mut out = "# Commands\n\n\
        <!-- Made from the program: UPDATE_DOCS=1 cargo test -p switchyard reference -->\n\n\
        `switchyard` is the command line. `kubectl switchyard` is the same, where the program lies in the path as \
        `kubectl-switchyard`. It talks to the API server of the kubeconfig, with the caller's rights; `--worker`, `--worker-context` and `--from-context` name other clusters.\n\n\
        - `-o json` and `-o yaml` are for programs: fields are only ever added.\n\
        - `--dry-run` says what a command would do, and changes nothing. Every command that changes something has it; its JSON then has `dryRun: true`.\n\
        - `--yes` confirms a change where a mistake cannot be taken back: jobs may run twice, or Switchyard takes or gives up objects that it cannot tell apart. \
        Without it, such a command says what it would do, as with `--dry-run`, and exits with 1. With both, `--dry-run` wins.\n\
        - `--wait` waits until a change has taken effect, with progress on stderr. All waits of a command share the time of `--timeout`, such as 30s, 10m or 2h.\n\
        - A wait or `--watch` goes on after a lost connection to the API server, or after its answers 429 and 5xx. Stderr names the error once. \
        A refusal ends it. `switchyard wait` also ends if its first request fails.\n\
        - The exit code is 0, 1 after an error, or 2 where `check`, `audit`, `wait` or `migrate preflight` found a fault.\n"
        .to_owned();
    let mut root = help::command();
    root.build();
    out.push_str("\n## Options of every command\n\n");
    out.push_str(&options(&root, |option| option.is_global_set()));
    for (title, names) in help::GROUPS {
        out.push_str(&format!("\n## {title}\n"));
        for name in names {
            if let Some(command) = root.find_subcommand(name) {
                section(command, "switchyard", &mut out);
            }
        }
    }
    out
}

fn section(command: &clap::Command, path: &str, out: &mut String) {
    let path = format!("{path} {}", command.get_name());
    let visible: Vec<_> = command
        .get_subcommands()
        .filter(|it| !it.is_hide_set() && it.get_name() != "help")
        .collect();
    if visible.is_empty() {
        let about = command.get_long_about().or_else(|| command.get_about());
        let about = about.map(ToString::to_string).unwrap_or_default();
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").split_whitespace().collect::<Vec<_>>();
        let usage = usage.join(" ");
        out.push_str(&format!("\n### {path}\n\n{}\n\n    {usage}\n\n", sentences(&about)));
        out.push_str(&options(command, |option| !option.is_global_set()));
        if let Some(examples) = command.get_after_help().map(ToString::to_string) {
            let lines = examples.lines().skip(1).map(|line| format!("    {}\n", line.trim()));
            out.push_str(&format!("\nExamples:\n\n{}", lines.collect::<String>()));
        }
    }
    for command in visible {
        section(command, &path, out);
    }
}

/// Each paragraph ends with a full stop, as help texts do not.
fn sentences(about: &str) -> String {
    let whole = |paragraph: &str| {
        let paragraph = paragraph.trim();
        if paragraph.ends_with('.') { paragraph.to_owned() } else { format!("{paragraph}.") }
    };
    about.split("\n\n").map(whole).collect::<Vec<_>>().join("\n\n")
}

/// A table with a row for each option and argument that is listed and not hidden.
#[must_use]
pub fn options(command: &clap::Command, is_listed: impl Fn(&clap::Arg) -> bool) -> String {
    let mut rows = String::new();
    for option in command.get_arguments().filter(|it| is_listed(it) && !it.is_hide_set()) {
        if matches!(option.get_id().as_str(), "help" | "version") {
            continue;
        }
        let value = option.get_value_names().unwrap_or_default().join(" ");
        let takes_value = option.get_action().takes_values();
        let name = match (option.get_short(), option.get_long()) {
            (Some(short), Some(long)) => format!("-{short}, --{long}"),
            (None, Some(long)) => format!("--{long}"),
            _ => value.to_string(),
        };
        let name = match option.get_long() {
            Some(_) if takes_value => format!("{name} {value}"),
            _ => name,
        };
        let help = option.get_long_help().or_else(|| option.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default().replace('\n', " ");
        let mut help = sentences(help.trim());
        let values: Vec<String> = option
            .get_possible_values()
            .iter()
            .filter(|_| takes_value)
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        if !values.is_empty() {
            help.push_str(&format!(" One of {}.", values.join(", ")));
        }
        if let Some(variable) = option.get_env().and_then(|it| it.to_str()) {
            help.push_str(&format!(" Environment: `{variable}`."));
        }
        let defaults: Vec<_> =
            option.get_default_values().iter().filter_map(|it| it.to_str()).collect();
        if takes_value && !defaults.is_empty() {
            help.push_str(&format!(" Default: `{}`.", defaults.join(",")));
        }
        rows.push_str(&format!("| `{name}` | {} |\n", help.trim().replace('|', "\\|")));
    }
    if rows.is_empty() {
        return rows;
    }
    format!("| option | meaning |\n|---|---|\n{rows}")
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use clap::CommandFactory as _;

    use super::*;

    /// All pages and scripts of the repository that users read.
    fn pages() -> Vec<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let own = ["README.md", "examples/README.md", "examples/kind/fleet.sh"];
        let mut pages: Vec<PathBuf> = own.map(|name| root.join(name)).into();
        let mut dirs = vec![root.join("docs")];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                } else if path.extension().is_some_and(|it| it == "md") {
                    pages.push(path);
                }
            }
        }
        pages
    }

    /// The words of a command line as a shell splits them, without quotes, comments and pipes.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(" #").next().unwrap_or(line);
        let line = [" | ", " && ", " > "]
            .iter()
            .fold(line, |line, end| line.split(end).next().unwrap_or(line));
        line.replace(['[', ']', '\'', '"', '$'], "").split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn commands_of_the_pages_are_accepted() {
        let mut read = 0;
        for page in pages() {
            let text = std::fs::read_to_string(&page).unwrap();
            let lines = text.replace("\\\n", " ");
            for line in lines.lines().map(str::trim) {
                let line = line.trim_start_matches("$ ");
                let is_usage = line.contains('<') || line.contains("[OPTIONS]");
                if !line.starts_with("switchyard ") || is_usage || line.contains('`') {
                    continue;
                }
                read += 1;
                let parsed = crate::Args::command().try_get_matches_from(words(line));
                if let Err(error) = parsed {
                    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
                    let is_shown = matches!(error.kind(), DisplayHelp | DisplayVersion);
                    assert!(is_shown, "{}: {line}: {error}", page.display());
                }
            }
        }
        assert!(read > 50, "only {read} commands were found");
    }

    #[test]
    fn reference_page_is_fresh() {
        const PAGE: switchyard_pages::Page = switchyard_pages::Page {
            path: "docs/commands.md",
            command: "UPDATE_DOCS=1 cargo test -p switchyard reference",
        };
        PAGE.check(&page()).unwrap();
    }
}
