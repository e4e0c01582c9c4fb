//! The checks' names, and their sections of docs/checks.md, which the program carries.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

const PAGE: &str = include_str!("../../../docs/checks.md");

/// The name of a check: a heading of docs/checks.md.
#[derive(ValueEnum, Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum CheckName {
    ApiServer,
    KubernetesVersion,
    Clocks,
    Crds,
    Deployment,
    Version,
    Pods,
    Leader,
    Rights,
    InstallRights,
    Kueue,
    Webhooks,
    Conversion,
    WebhookCertificate,
    WebhooksReachable,
    AgentsDoor,
    HubReachable,
    Freshness,
    Clusters,
    AgentVersion,
    Queues,
    Flavors,
    Kinds,
    Namespaces,
}

impl fmt::Display for CheckName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map(|it| it.get_name()).unwrap_or_default())
    }
}

/// The command that explains a check.
pub(super) fn command(check: CheckName) -> String {
    format!("switchyard check --explain {check}")
}

/// The section about a check, with its name as the first line.
pub(crate) fn explain(check: CheckName) -> String {
    let text = section(&check.to_string()).unwrap_or_default();
    format!("{check}\n\n{text}\n")
}

/// The text under a heading. Its links lead into `docs/` of the repository.
fn section(name: &str) -> Option<String> {
    let text = sections().find_map(|(heading, text)| (heading == name).then_some(text))?;
    Some(text.trim().replace("](", "](docs/"))
}

fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    PAGE.split("\n## ").skip(1).filter_map(|section| section.split_once('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_has_a_section_and_each_section_a_check() {
        let checks = CheckName::value_variants().iter().map(ToString::to_string);
        let headings: Vec<&str> = sections().map(|(heading, _)| heading).collect();
        assert_eq!(checks.collect::<Vec<_>>(), headings);
        for (heading, text) in sections() {
            assert!(text.trim().len() > 20, "{heading} says nothing");
        }
        let json = CheckName::value_variants().iter().map(|it| serde_json::json!(it));
        assert_eq!(json.collect::<Vec<_>>(), headings, "as in the report");
    }

    #[test]
    fn section_is_printed_without_its_neighbours() {
        insta::assert_snapshot!(explain(CheckName::Clusters));
    }
}
