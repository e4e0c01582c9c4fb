//! The rule for `--yes`.
//!
//! A change needs it if a mistake cannot be taken back: jobs may run twice, or Switchyard takes or
//! gives up objects that it cannot tell apart by itself. Without it, the command says what it would
//! do, as with `--dry-run`, and fails. With both flags, `--dry-run` wins.

/// The error for want of `--yes`. `plan` is the text of the dry run, and `condition` begins with
/// "If": when `--yes` is right.
pub(crate) fn needed(plan: &str, condition: &str) -> anyhow::Error {
    anyhow::anyhow!("{}\n{condition}, confirm it with --yes", plan.trim_end())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::CommandFactory as _;

    /// How a command that changes things keeps the rule.
    #[derive(Debug, PartialEq)]
    enum Confirmation {
        /// It has `--yes`.
        Yes,
        /// It needs none: why a mistake can be taken back.
        Exempt(&'static str),
    }
    use Confirmation::{Exempt, Yes};

    /// Every command that changes something on a cluster, also the ones of earlier versions.
    const CHANGES: [(&str, Confirmation); 16] = [
        ("move", Exempt("a job runs on one cluster at a time, and can be moved back")),
        ("cluster add", Exempt("it adds, and keeps what is there")),
        ("cluster remove", Yes),
        ("cluster cordon", Exempt("`uncordon` takes it back")),
        ("cluster uncordon", Exempt("`cordon` takes it back")),
        ("cluster drain", Exempt("jobs run on one cluster at a time; `uncordon` ends it")),
        ("cluster mark-lost", Yes),
        ("cluster trust-copies", Yes),
        ("evictions resume", Yes),
        ("ca rotate", Exempt("agents stay connected, and no job is touched")),
        ("recover start", Yes),
        ("recover adopt", Yes),
        ("migrate hand-back", Yes),
        ("adopt", Yes),
        ("hand-back", Yes),
        ("authority recover", Yes),
    ];

    /// Commands that change nothing on a cluster.
    const READS: [&str; 25] = [
        "audit",
        "authority status",
        "breaker status",
        "ca status",
        "check",
        "cluster list",
        "clusters",
        "completion",
        "copies",
        "debug bundle",
        "debug replay",
        "describe cluster",
        "describe job",
        "describe queue",
        "evictions status",
        "events",
        "explain",
        "get clusters",
        "get jobs",
        "get queues",
        "migrate preflight",
        "orphans",
        "recover export",
        "recover orphans",
        "replay",
    ];
    /// As [`READS`].
    const MORE_READS: [&str; 4] = ["status", "version", "wait", "why"];

    /// Commands of earlier versions that share the arguments of a command of [`CHANGES`], or only
    /// lead to one.
    const OLD: [&str; 8] = [
        "authority rotate",
        "breaker resume",
        // `cluster add` replaces it, and has both.
        "cluster join-token",
        "clusters cordon",
        "clusters uncordon",
        "clusters drain",
        "clusters mark-lost",
        "clusters trust-copies",
    ];

    fn collect(command: &clap::Command, path: &str, found: &mut BTreeMap<String, clap::Command>) {
        for it in command.get_subcommands().filter(|it| it.get_name() != "help") {
            let path = format!("{path} {}", it.get_name());
            let path = path.trim_start();
            collect(it, path, found);
            // A command of its own, too, if it works without a subcommand.
            if !it.is_subcommand_required_set() {
                found.insert(path.to_owned(), it.clone());
            }
        }
    }

    #[test]
    fn every_command_keeps_the_rule_of_confirmation() {
        let mut tree = BTreeMap::new();
        collect(&crate::Args::command(), "", &mut tree);
        let has = |command: &clap::Command, option: &str| {
            command.get_arguments().any(|it| it.get_long() == Some(option))
        };
        for (path, confirmation) in &CHANGES {
            let command = tree.remove(*path).unwrap_or_else(|| panic!("no command {path}"));
            assert!(has(&command, "dry-run"), "{path} has no --dry-run");
            assert_eq!(has(&command, "yes"), *confirmation == Yes, "{path}: {confirmation:?}");
        }
        for path in READS.iter().chain(&MORE_READS) {
            let command = tree.remove(*path).unwrap_or_else(|| panic!("no command {path}"));
            let odd = ["dry-run", "yes"].iter().find(|option| has(&command, option));
            assert_eq!(odd, None, "{path} changes nothing");
        }
        for path in OLD {
            assert!(tree.remove(path).is_some(), "no command {path}");
        }
        assert!(tree.is_empty(), "in no table: {:?}", tree.keys());
    }

    #[test]
    fn dry_run_wins_over_yes_in_every_command() {
        use clap::Parser as _;
        for line in [
            "cluster remove east",
            "cluster mark-lost east",
            "cluster trust-copies east",
            "evictions resume",
            "recover start",
            "recover adopt a --from east --uid u",
            "migrate hand-back",
        ] {
            let words = ["switchyard"].into_iter().chain(line.split(' '));
            let parsed = crate::Args::try_parse_from(words.chain(["--yes", "--dry-run"]));
            assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
        }
    }

    #[test]
    fn refusal_has_the_plan_and_the_condition() {
        let error = super::needed("It would end. Nothing is changed.\n", "If it may");
        assert_eq!(
            error.to_string(),
            "It would end. Nothing is changed.\nIf it may, confirm it with --yes"
        );
    }
}
