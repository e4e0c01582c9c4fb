//! What an explanation cannot know: it is worked out from lists, whoever decides on the cluster.

use std::collections::BTreeSet;

use switchyard_controller::stores::Stores;
use switchyard_scheduler::Explanation;

use super::settings::{Settings, Source};

/// What could change an explanation and is in no list. Empty where nothing was worked out: the workload has quota, or is
/// not tried.
pub(super) fn of(explanation: &Explanation, stores: &Stores, settings: &Settings) -> Vec<String> {
    if explanation.pod_sets.is_empty() {
        return Vec::new();
    }
    let mut unknown = Vec::new();
    if settings.source == Source::Status {
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
    let tried =
        explanation.pod_sets.iter().flat_map(|pod_set| &pod_set.flavors).map(|flavor| flavor.flavor.to_string());
    for name in tried.collect::<BTreeSet<_>>() {
        let topology = stores.resource_flavors.get("", &name).and_then(|flavor| flavor.spec.topology_name.clone());
        if let Some(topology) = topology {
            unknown.push(format!("whether the nodes of topology {topology} (flavor {name}) have room for the pods"));
        }
    }
    unknown
}
