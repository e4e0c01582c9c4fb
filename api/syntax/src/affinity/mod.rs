//! Which worker clusters a job may go to, and which it prefers. The rules come from the job's
//! annotations, or from its ClusterQueue if the job has none of that sort.
//!
//! Each annotation is one rule, and so is each part of the queue's default. A cluster must match
//! all required rules and no excluded rule. Its preference is the number of preferred rules that it
//! matches.

mod rules;
mod selector;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::field::{FieldError, annotation_path};
use crate::labels::{is_subdomain, selector_matches};
use crate::names;

pub use rules::{ClusterAffinity, ClusterRule};
pub use selector::{SelectorError, parse_selector, selector_text};

/// All annotations with rules: names and selector of required, preferred and excluded clusters. The
/// index is even for names and odd for selectors.
pub const ANNOTATIONS: [&str; 6] = [
    names::CLUSTERS,
    names::CLUSTER_SELECTOR,
    names::PREFERRED_CLUSTERS,
    names::PREFERRED_CLUSTER_SELECTOR,
    names::EXCLUDED_CLUSTERS,
    names::EXCLUDED_CLUSTER_SELECTOR,
];

/// Most names in one annotation.
const MAX_NAMES: usize = 64;

/// Labels or annotations of an object.
type Texts = BTreeMap<String, String>;

/// All cluster rules of one job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Affinity {
    required: Vec<Rule>,
    preferred: Vec<Rule>,
    excluded: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq)]
struct Rule {
    /// The annotation or field of the rule, for messages.
    source: String,
    test: Test,
}

/// The clusters that a rule selects.
#[derive(Debug, Clone, PartialEq)]
enum Test {
    Names(Vec<String>),
    Labels(LabelSelector),
    /// The annotation cannot be parsed, because the webhook did not see it. Holds the error.
    Unreadable(String),
}

impl Affinity {
    /// The rules of a job with these annotations in this ClusterQueue. `None` if there are no
    /// rules.
    #[must_use]
    pub fn of(
        annotations: Option<&Texts>,
        queue: Option<(&str, &ClusterAffinity)>,
    ) -> Option<Self> {
        let none = Texts::new();
        let own = annotations.unwrap_or(&none);
        let default = |part: fn(&ClusterAffinity) -> Option<&ClusterRule>, name: &str| {
            let rule = queue.and_then(|(queue, affinity)| Some((queue, part(affinity)?)));
            rule.map(|(queue, rule)| of_queue(queue, name, rule)).unwrap_or_default()
        };
        let rules = Self {
            required: of_job(own, names::CLUSTERS, names::CLUSTER_SELECTOR)
                .unwrap_or_else(|| default(|it| it.required.as_ref(), "required")),
            preferred: of_job(own, names::PREFERRED_CLUSTERS, names::PREFERRED_CLUSTER_SELECTOR)
                .unwrap_or_else(|| default(|it| it.preferred.as_ref(), "preferred")),
            excluded: of_job(own, names::EXCLUDED_CLUSTERS, names::EXCLUDED_CLUSTER_SELECTOR)
                .unwrap_or_else(|| default(|it| it.excluded.as_ref(), "excluded")),
        };
        (rules != Self::default()).then_some(rules)
    }

    /// The first rule that forbids the cluster, as text.
    #[must_use]
    pub fn refusal(&self, cluster: &str, labels: &Texts) -> Option<String> {
        let lacks = |rule: &&Rule| !rule.test.matches(cluster, labels);
        if let Some(Rule { source, test }) = self.required.iter().find(lacks) {
            return Some(match test {
                Test::Unreadable(why) => format!("{source} cannot be read: {why}"),
                _ => format!("{source} requires {}", test.text()),
            });
        }
        let hits = |rule: &&Rule| {
            matches!(rule.test, Test::Unreadable(_)) || rule.test.matches(cluster, labels)
        };
        let Rule { source, test } = self.excluded.iter().find(hits)?;
        Some(match test {
            Test::Unreadable(why) => format!("{source} cannot be read: {why}"),
            _ => format!("{source} excludes {}", test.text()),
        })
    }

    /// How many rules prefer the cluster.
    #[must_use]
    pub fn preference(&self, cluster: &str, labels: &Texts) -> usize {
        self.preferred.iter().filter(|rule| rule.test.matches(cluster, labels)).count()
    }
}

impl Test {
    /// An unreadable rule matches no cluster.
    fn matches(&self, cluster: &str, labels: &Texts) -> bool {
        match self {
            Self::Names(names) => names.iter().any(|name| name == cluster),
            Self::Labels(selector) => selector_matches(selector, labels),
            Self::Unreadable(_) => false,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Names(names) => names.join(", "),
            Self::Labels(selector) => selector_text(selector),
            Self::Unreadable(why) => why.clone(),
        }
    }
}

/// The job's own rules of one sort. `None` if it has neither annotation. An empty annotation is no
/// rule, but it overrides the queue's default.
fn of_job(annotations: &Texts, by_name: &str, by_label: &str) -> Option<Vec<Rule>> {
    let (by_name, by_label) =
        (annotations.get_key_value(by_name), annotations.get_key_value(by_label));
    if by_name.is_none() && by_label.is_none() {
        return None;
    }
    let rule = |key: &String, test: Result<Test, String>| Rule {
        source: key.clone(),
        test: test.unwrap_or_else(Test::Unreadable),
    };
    let is_set = |(_, text): &(&String, &String)| !text.trim().is_empty();
    let names =
        by_name.filter(is_set).map(|(key, text)| rule(key, parse_names(text).map(Test::Names)));
    let labels = by_label.filter(is_set).map(|(key, text)| {
        rule(key, parse_selector(text).map(Test::Labels).map_err(|error| error.to_string()))
    });
    Some(names.into_iter().chain(labels).collect())
}

fn of_queue(queue: &str, part: &str, rule: &ClusterRule) -> Vec<Rule> {
    let source =
        |field: &str| format!("spec.clusterAffinity.{part}.{field} of ClusterQueue {queue}");
    let names = (!rule.names.is_empty())
        .then(|| Rule { source: source("names"), test: Test::Names(rule.names.clone()) });
    let labels = rule
        .selector
        .clone()
        .map(|selector| Rule { source: source("selector"), test: Test::Labels(selector) });
    names.into_iter().chain(labels).collect()
}

/// Parses a comma-separated list of cluster names.
fn parse_names(text: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    for name in &names {
        if name.is_empty() {
            return Err(
                "a name is empty: write names of MultiKueueClusters with a comma between two, such as \"west,east\""
                    .into(),
            );
        }
        if !is_subdomain(name) {
            return Err(format!(
                "{name:?} is no name of a MultiKueueCluster: write names in lower case with a comma between two, such as \
                 \"west,east\"; labels belong into the annotation with \"selector\" in its name"
            ));
        }
    }
    if names.len() > MAX_NAMES {
        return Err(format!(
            "{} names are more than {MAX_NAMES}: select the clusters by a label",
            names.len()
        ));
    }
    Ok(names)
}

/// Errors of the annotations, each with a remedy.
#[must_use]
pub fn check(annotations: &Texts) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, key) in ANNOTATIONS.into_iter().enumerate() {
        let Some(text) = annotations.get(key).filter(|text| !text.trim().is_empty()) else {
            continue;
        };
        let error = match index % 2 {
            0 => parse_names(text).err(),
            _ => parse_selector(text).err().map(|error| error.to_string()),
        };
        errors.extend(error.map(|detail| FieldError::invalid(&annotation_path(key), text, detail)));
    }
    if errors.is_empty() {
        errors.extend(contradiction(annotations));
    }
    errors
}

/// An error if all clusters required by name are also excluded by name.
fn contradiction(annotations: &Texts) -> Option<FieldError> {
    let names = |key: &str| {
        annotations.get(key).and_then(|text| parse_names(text).ok()).unwrap_or_default()
    };
    let (required, excluded) = (names(names::CLUSTERS), names(names::EXCLUDED_CLUSTERS));
    let all = !required.is_empty() && required.iter().all(|name| excluded.contains(name));
    all.then(|| {
        let detail = format!(
            "every cluster that it names is excluded by {}: take it out of one",
            names::EXCLUDED_CLUSTERS
        );
        FieldError::invalid(&annotation_path(names::CLUSTERS), required.join(","), detail)
    })
}
