//! Facts that an explanation cannot know, because it is computed from lists.

use switchyard_scheduler::Explanation;

use super::settings::{AssumedConfig, ConfigSource};

/// Facts that may change the explanation and are in no list. Empty if no flavors were computed,
/// because the workload has quota or is not tried.
pub(super) fn of(explanation: &Explanation, settings: &AssumedConfig) -> Vec<String> {
    if explanation.pod_sets.is_empty() {
        return Vec::new();
    }
    let mut unknown = Vec::new();
    if settings.source == ConfigSource::Status {
        let or_not = |on: bool| if on { "on" } else { "off" };
        unknown.push(format!(
            "the controller's configuration file (give it with --config): assumed are Kueue's defaults, with fair sharing \
             {} and admission fair sharing {}, as the status of the queues tells",
            or_not(settings.config.fair_sharing.is_some()),
            or_not(settings.config.admission_fair_sharing.is_some()),
        ));
    }
    unknown.push(
        "what the controller has in memory alone: flavors that it has tried already, quota that it has given and not \
         written yet"
            .to_owned(),
    );
    unknown
}
