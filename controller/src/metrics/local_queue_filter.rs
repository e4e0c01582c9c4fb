//! Which LocalQueues have metrics: `metrics.localQueueMetrics`, behind Kueue's gate
//! `LocalQueueMetrics`.

use anyhow::Context as _;
use kube::core::{Selector, SelectorExt};
use switchyard_api::v1beta2::LocalQueue;
use switchyard_config::Configuration;

use switchyard_platform::store::{Key, Store};

pub(crate) enum LocalQueueFilter {
    None,
    All,
    /// LocalQueues whose labels match. A LocalQueue that does not exist has no labels.
    Matching(Selector, Store<LocalQueue>),
}

impl LocalQueueFilter {
    /// Reads the configuration.
    ///
    /// # Errors
    /// If the selector is invalid.
    pub(crate) fn new(config: &Configuration, queues: &Store<LocalQueue>) -> anyhow::Result<Self> {
        let section = &config.metrics.local_queue_metrics;
        if !section.enable || !config.enabled("LocalQueueMetrics") {
            return Ok(Self::None);
        }
        let Some(selector) = section.local_queue_selector.clone() else { return Ok(Self::All) };
        let selector =
            Selector::try_from(selector).context("metrics.localQueueMetrics.localQueueSelector")?;
        Ok(Self::Matching(selector, queues.clone()))
    }

    pub(crate) fn has(&self, queue: &Key) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Matching(selector, queues) => {
                let labels = queues
                    .by_key(queue)
                    .and_then(|queue| queue.metadata.labels.clone())
                    .unwrap_or_default();
                selector.matches(&labels)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use switchyard_api::v1beta2::StopPolicy;
    use switchyard_config as config;

    use super::*;
    use crate::fixtures;

    fn labelled(name: &str, team: &str) -> LocalQueue {
        let mut queue = fixtures::local_queue(StopPolicy::None);
        queue.metadata.name = Some(name.to_owned());
        queue.metadata.labels = Some(BTreeMap::from([("team".to_owned(), team.to_owned())]));
        queue
    }

    #[test]
    fn local_queue_metrics_follow_the_configuration() {
        let matching = "metrics: {localQueueMetrics: {enable: true, localQueueSelector: {matchLabels: {team: a}}}}";
        for (sentence, section, expected) in [
            ("all where nothing is said", "", [true, true]),
            ("none with the section alone", "metrics: {localQueueMetrics: {}}", [false, false]),
            ("all that are enabled", "metrics: {localQueueMetrics: {enable: true}}", [true, true]),
            ("none without the gate", "featureGates: {LocalQueueMetrics: false}", [false, false]),
            ("those with the labels", matching, [true, false]),
        ] {
            let file = format!(
                "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{section}\n"
            );
            let queues = Store::default();
            queues.insert(labelled("mine", "a"));
            queues.insert(labelled("other", "b"));
            let shown = LocalQueueFilter::new(&config::load(&file).unwrap(), &queues).unwrap();
            assert_eq!(
                ["mine", "other"].map(|name| shown.has(&Key::new("ns", name))),
                expected,
                "{sentence}"
            );
        }
    }
}
