//! Checks Kueue's configuration file and its feature gates.

use std::collections::BTreeSet;

use serde_json::Value;
use switchyard_config::{ConfigError, Configuration, gates};

use super::release::{ON_LATER, Release};
use super::report::{Effect, Finding};

/// Subject of findings about the file.
const FILE: &str = "configuration";
/// Kueue's default dispatcher.
const ALL_AT_ONCE: &str = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once";

/// The gate with another default than Kueue's: a path outside the folder of kubeconfigs is always
/// refused.
const OTHER_DEFAULT: &str = "MultiKueueKubeConfigPathValidation";

/// Kueue's settings.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    /// Text of the configuration file; none if there is no file.
    pub(super) file: Option<String>,
    /// Value of the flag `--feature-gates`.
    pub(super) gates: String,
}

impl Settings {
    /// The configuration as Switchyard reads it; the default if it cannot.
    pub(super) fn read(&self) -> Configuration {
        let file = self.file.as_deref();
        let read = file.map(|text| switchyard_config::load_with_gates(text, &self.gates));
        read.and_then(Result::ok).unwrap_or_default()
    }

    pub(super) fn assess(&self, release: Option<Release>, is_hub: bool) -> Vec<Finding> {
        let Some(text) = &self.file else {
            let message = "no configuration file was found: Kueue's defaults are assumed";
            let mut findings = vec![
                Finding::new(Effect::Differs, FILE, message)
                    .mend("name the file with --kueue-config, and give it to Switchyard"),
            ];
            if release.is_some_and(|release| release >= Release::NEXT) {
                findings.extend(later_defaults(&Configuration::default(), is_hub));
            }
            if is_hub {
                findings.push(best_fit());
            }
            findings.extend(self.same_gates(&Configuration::default(), release, &findings));
            return findings;
        };
        let mut findings = Vec::new();
        if !self.gates.is_empty() {
            findings.push(
                Finding::new(
                    Effect::Differs,
                    "feature gate",
                    "the flag --feature-gates sets gates, and a takeover brings the file alone",
                )
                .field(self.gates.clone())
                .mend("write them into featureGates of the file that Switchyard gets"),
            );
        }
        let config = match switchyard_config::load_with_gates(text, &self.gates) {
            Ok(config) => config,
            Err(error) => {
                findings.extend(refusals(&error));
                return findings;
            }
        };
        for ignored in config.ignored() {
            let effect =
                if is_gate(&ignored.path) { Effect::NotSupported } else { Effect::Differs };
            let message = format!("without effect: {}", ignored.reason);
            findings
                .push(Finding::new(effect, subject(&ignored.path), message).field(&ignored.path));
        }
        for later in config.later() {
            let (effect, word) = match later.is_honoured {
                true => (Effect::Same, "honoured"),
                false => (Effect::NotSupported, "without effect"),
            };
            let message = format!("{word}: {}", later.reason);
            findings.push(Finding::new(effect, subject(&later.path), message).field(&later.path));
        }
        if release.is_some_and(|release| release >= Release::NEXT) {
            findings.extend(later_defaults(&config, is_hub));
        }
        if is_hub {
            findings.extend(dispatcher(text));
        }
        if findings.is_empty() {
            findings.push(Finding::new(Effect::Same, FILE, "every field and gate has its effect"));
        }
        findings.extend(self.same_gates(&config, release, &findings));
        findings
    }

    /// The gates that stay as they are: the file's, and those with the same default. Defaults of
    /// other releases are not known.
    fn same_gates(
        &self,
        config: &Configuration,
        release: Option<Release>,
        findings: &[Finding],
    ) -> Option<Finding> {
        let has_known_defaults = release.is_some_and(|release| {
            release.is_tested_minor() || (release >= Release::NEXT && !release.is_unknown())
        });
        let fields = findings.iter().filter_map(|finding| finding.field.as_deref());
        let changed: BTreeSet<&str> =
            fields.flat_map(|field| field.split(['.', ',', '='])).collect();
        let (set, default): (Vec<&str>, Vec<&str>) = gates::names()
            .filter(|name| !changed.contains(name))
            .partition(|name| config.feature_gates.contains_key(*name));
        let default =
            default.into_iter().filter(|name| has_known_defaults && *name != OTHER_DEFAULT);
        let names: Vec<String> = set.into_iter().chain(default).map(str::to_owned).collect();
        (!names.is_empty()).then(|| {
            let message = "on or off as in Kueue, by the file or by the same default";
            Finding::new(Effect::Same, "feature gate", message).objects(names)
        })
    }
}

fn is_gate(path: &str) -> bool {
    path.starts_with("featureGates")
}

fn subject(path: &str) -> &'static str {
    if is_gate(path) { "feature gate" } else { FILE }
}

/// Why Switchyard would not start with the file.
fn refusals(error: &ConfigError) -> Vec<Finding> {
    let refused = |field: Option<String>, message: String| {
        let finding = Finding::new(
            Effect::Refused,
            FILE,
            format!("{message}; Switchyard does not start with it"),
        );
        let finding = finding
            .mend("change the file that Switchyard gets: docs/compatibility.md, docs/limits.md");
        Finding { field, ..finding }
    };
    match error {
        ConfigError::Yaml(_) => vec![refused(None, error.to_string())],
        ConfigError::Fields(fields) => fields
            .iter()
            .map(|field| {
                let text = field.to_string();
                match text.split_once(": ") {
                    Some((path, message)) => refused(Some(path.to_owned()), message.to_owned()),
                    None => refused(None, text),
                }
            })
            .collect(),
    }
}

/// Gates that v0.20 has on by default, and that the file does not name.
fn later_defaults(config: &Configuration, is_hub: bool) -> Vec<Finding> {
    let unnamed = ON_LATER.iter().filter(|(gate, of_hubs, _)| {
        !config.feature_gates.contains_key(*gate)
            && !config.later().iter().any(|it| it.path.contains(gate))
            && (is_hub || !of_hubs)
    });
    unnamed
        .map(|(gate, _, without)| {
            Finding::new(
                Effect::Differs,
                "feature gate",
                format!("on by default in Kueue 0.20, off in Switchyard: {without}"),
            )
            .field(*gate)
            .mend(format!("featureGates: {{{gate}: true}} in the configuration file"))
        })
        .collect()
}

/// The dispatcher that a file without one leads to.
fn dispatcher(text: &str) -> Option<Finding> {
    let file: Value = serde_saphyr::from_str(text).ok()?;
    let named = file["multiKueue"]["dispatcherName"].as_str().unwrap_or_default();
    named.is_empty().then(best_fit)
}

fn best_fit() -> Finding {
    Finding::new(
        Effect::Differs,
        FILE,
        "a job is offered to one worker after the other, the best fit first; Kueue offers it to all at once",
    )
    .field("multiKueue.dispatcherName")
    .mend(format!("multiKueue: {{dispatcherName: {ALL_AT_ONCE}}} keeps Kueue's"))
}
