//! The worker clusters, and those that each AdmissionCheck may use. Pure.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use switchyard_api::names;
use switchyard_api::v1beta2::{AdmissionCheck, FlavorMapping, MultiKueueCluster, MultiKueueConfig};
use switchyard_dispatcher::{ClusterConfig, DispatchEvent, FlavorName, Name, PinRules};

use crate::api_objects::{is_declared_lost, is_unable, parameters};
use crate::disconnect_policy;

/// The clusters of each MultiKueue check, and the config of each cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ClusterSet {
    checks: BTreeMap<String, Vec<String>>,
    /// Whether and how the clusters of each check must use the hub's flavors.
    pins: BTreeMap<String, PinRules>,
    clusters: BTreeMap<String, ClusterConfig>,
    /// Clusters whose agent could not write to its API server when it was last connected.
    unable: BTreeSet<String>,
}

impl ClusterSet {
    /// Reads the set from the API's objects.
    pub(super) fn of<'a>(
        checks: impl IntoIterator<Item = &'a AdmissionCheck>,
        config: &dyn Fn(&str) -> Option<std::sync::Arc<MultiKueueConfig>>,
        clusters: impl IntoIterator<Item = &'a MultiKueueCluster>,
    ) -> Self {
        let mut set = Self::default();
        for check in checks.into_iter().filter(|check| check.spec.is_multi_kueue()) {
            let Some(config) = parameters(check).and_then(config) else { continue };
            set.checks.insert(check.name_any(), config.spec.clusters.clone());
            set.pins.insert(check.name_any(), pin_rules(&config));
        }
        for cluster in
            clusters.into_iter().filter(|cluster| cluster.metadata.deletion_timestamp.is_none())
        {
            if is_unable(cluster) {
                set.unable.insert(cluster.name_any());
            }
            set.clusters.insert(cluster.name_any(), cluster_config(cluster));
        }
        set
    }

    /// Names of the MultiKueue checks.
    pub(super) fn checks(&self) -> impl Iterator<Item = &str> {
        self.checks.keys().map(String::as_str)
    }

    /// Clusters whose config changed since `before`: name, config before and config now.
    pub(super) fn changed_configs<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = (&'a str, Option<&'a ClusterConfig>, &'a ClusterConfig)> {
        let all = self
            .clusters
            .iter()
            .map(|(name, config)| (name.as_str(), before.clusters.get(name), config));
        all.filter(|(_, before, now)| *before != Some(*now))
    }

    /// The dispatcher's events for the changes since `before`.
    pub(super) fn events(&self, before: &Self) -> Vec<DispatchEvent> {
        let mut events = Vec::new();
        for (name, _, config) in self.changed_configs(before) {
            events.push(DispatchEvent::ClusterConfigured {
                name: name.into(),
                config: config.clone(),
            });
        }
        for name in self.unable.difference(&before.unable) {
            events.push(DispatchEvent::AgentWasNotReady { name: name.as_str().into() });
        }
        for name in before.clusters.keys().filter(|name| !self.clusters.contains_key(*name)) {
            events.push(DispatchEvent::ClusterDeleted { name: name.as_str().into() });
        }
        for (name, rules) in &self.pins {
            if before.pins.get(name) != Some(rules) {
                let (check, rules) = (name.as_str().into(), rules.clone());
                events.push(DispatchEvent::PinsConfigured { check, rules });
            }
        }
        for (name, clusters) in &self.checks {
            if before.checks.get(name) != Some(clusters) {
                let clusters =
                    clusters.iter().map(|cluster| Name::from(cluster.as_str())).collect();
                events
                    .push(DispatchEvent::CheckConfigured { name: name.as_str().into(), clusters });
            }
        }
        for name in before.checks.keys().filter(|name| !self.checks.contains_key(*name)) {
            events.push(DispatchEvent::CheckConfigured {
                name: name.as_str().into(),
                clusters: Vec::new(),
            });
        }
        events
    }
}

fn pin_rules(config: &MultiKueueConfig) -> PinRules {
    let pinning = config.spec.flavor_pins.clone().unwrap_or_default();
    let name = |text: String| Name::from(text);
    let entry = |mapping: FlavorMapping| FlavorName {
        cluster: mapping.cluster.map(name),
        flavor: name(mapping.flavor),
        worker_flavor: name(mapping.worker_flavor),
    };
    PinRules {
        is_off: !config.spec.pins_flavors(),
        mapping: pinning.mapping.into_iter().map(entry).collect(),
    }
}

fn cluster_config(cluster: &MultiKueueCluster) -> ClusterConfig {
    let annotation = |name: &str| cluster.annotations().get(name).map(String::as_str);
    let scheduling = annotation(names::SCHEDULING);
    ClusterConfig {
        on_disconnect: disconnect_policy::of_cluster(cluster),
        unfenced: cluster.spec.cluster_source.agent.is_none(),
        declared_lost: is_declared_lost(cluster),
        cordoned: matches!(scheduling, Some(names::CORDON | names::DRAIN)),
        draining: scheduling == Some(names::DRAIN),
        release: annotation(names::BREAKER_RELEASE).map(Name::from),
        labels: cluster.labels().clone(),
        cost: cluster.spec.cost.unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn check(name: &str, config: &str) -> AdmissionCheck {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": name},
            "spec": {"controllerName": "kueue.x-k8s.io/multikueue",
                "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": config}},
        }))
        .unwrap()
    }

    fn cluster(name: &str, source: &serde_json::Value) -> MultiKueueCluster {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": name},
            "spec": {"clusterSource": source},
        }))
        .unwrap()
    }

    fn config(name: &str) -> Option<Arc<MultiKueueConfig>> {
        (name == "conf").then(|| {
            Arc::new(MultiKueueConfig::new(
                "conf",
                switchyard_api::v1beta2::MultiKueueConfigSpec {
                    clusters: vec!["b".into(), "a".into()],
                    ..Default::default()
                },
            ))
        })
    }

    #[test]
    fn cluster_set_emits_events_for_changes_only() {
        let checks = [check("mk", "conf"), check("broken", "missing")];
        let mut clusters = [
            cluster("a", &serde_json::json!({"agent": {}})),
            cluster("b", &serde_json::json!({"kubeConfig": {"location": "s"}})),
        ];
        clusters[1].metadata.labels = Some([("region".to_owned(), "eu".to_owned())].into());
        clusters[1].spec.cost = Some(7);
        let first = ClusterSet::of(&checks, &config, &clusters);
        let told: Vec<String> =
            first.events(&ClusterSet::default()).iter().map(|event| format!("{event:?}")).collect();
        assert_eq!(
            told,
            [
                r#"ClusterConfigured { name: "a", config: ClusterConfig { on_disconnect: Hold, unfenced: false, declared_lost: false, cordoned: false, draining: false, release: None, labels: {}, cost: 0 } }"#,
                r#"ClusterConfigured { name: "b", config: ClusterConfig { on_disconnect: GiveUp, unfenced: true, declared_lost: false, cordoned: false, draining: false, release: None, labels: {"region": "eu"}, cost: 7 } }"#,
                r#"PinsConfigured { check: "mk", rules: PinRules { is_off: false, mapping: [] } }"#,
                r#"CheckConfigured { name: "mk", clusters: ["b", "a"] }"#
            ]
        );
        assert!(first.events(&first).is_empty());
        let mut unable = clusters[0].clone();
        unable.status = serde_json::from_value(
            serde_json::json!({"agent": {"unableSince": "2026-01-01T00:00:00Z"}}),
        )
        .ok();
        let told = ClusterSet::of(&checks, &config, [&unable, &clusters[1]]).events(&first);
        assert_eq!(
            told.iter().map(|event| format!("{event:?}")).collect::<Vec<_>>(),
            [r#"AgentWasNotReady { name: "a" }"#]
        );
        let second = ClusterSet::of(&checks[1..], &config, &clusters[..1]);
        let told: Vec<String> =
            second.events(&first).iter().map(|event| format!("{event:?}")).collect();
        assert_eq!(
            told,
            [r#"ClusterDeleted { name: "b" }"#, r#"CheckConfigured { name: "mk", clusters: [] }"#]
        );
    }
}
