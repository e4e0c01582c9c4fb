//! The help of `switchyard` itself: commands in groups.

use clap::CommandFactory as _;

use crate::Args;

/// The groups, in the order in which a new user meets them. Every command that is not hidden is in one.
pub(crate) const GROUPS: [(&str, &[&str]); 5] = [
    ("Look at jobs", &["get", "describe", "why", "events", "wait"]),
    ("Change where jobs run", &["move", "cluster", "evictions"]),
    ("Look after an installation", &["check", "audit", "ca", "recover", "migrate"]),
    ("Find faults", &["debug", "version"]),
    ("Set up", &["completion"]),
];

/// The command with its grouped help.
#[must_use]
pub fn command() -> clap::Command {
    let command = Args::command();
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}\n\n\
         `switchyard COMMAND --help` shows a command's options and examples.\n",
        groups(&command)
    );
    command.help_template(template)
}

fn groups(command: &clap::Command) -> String {
    let about = |name: &str| {
        let found = command.get_subcommands().find(|it| it.get_name() == name);
        found.and_then(|it| it.get_about()).map(ToString::to_string).unwrap_or_default()
    };
    let mut out = String::new();
    for (title, names) in GROUPS {
        out.push_str(&format!("{title}:\n"));
        for name in names {
            out.push_str(&format!("  {name:<11} {}\n", about(name)));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_shows_commands_in_groups() {
        insta::assert_snapshot!(command().render_help());
    }

    #[test]
    fn every_command_is_in_one_group() {
        let listed: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = Args::command();
        let visible: Vec<&str> = command
            .get_subcommands()
            .filter(|it| !it.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        let mut sorted = (listed.clone(), visible.clone());
        sorted.0.sort_unstable();
        sorted.1.sort_unstable();
        assert_eq!(sorted.0, sorted.1);
    }

    #[test]
    fn every_command_has_an_example() {
        fn without(command: &clap::Command, path: &str, found: &mut Vec<String>) {
            let path = format!("{path} {}", command.get_name());
            let visible: Vec<_> =
                command.get_subcommands().filter(|it| !it.is_hide_set()).collect();
            let example = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            if visible.is_empty() && !example.contains(&path.trim_start()[..path.len() - 1]) {
                found.push(path.clone());
            }
            for it in visible {
                without(it, &path, found);
            }
        }
        let mut found = Vec::new();
        without(&Args::command(), "", &mut found);
        assert_eq!(found, Vec::<String>::new(), "commands without an example");
    }
}
