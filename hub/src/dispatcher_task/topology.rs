//! Which clusters there are, and which of them a check can use. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::ResourceExt as _;
use switchyard_api::v1beta2::{AdmissionCheck, MultiKueueCluster, MultiKueueConfig};
use switchyard_api::{conditions, names};
use switchyard_dispatcher::{ClusterConfig, DispatchEvent, LossPolicy, Name};

use super::policy;

/// The clusters of each MultiKueue check, and what people want of each cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Topology {
    checks: BTreeMap<String, Vec<String>>,
    clusters: BTreeMap<String, ClusterConfig>,
    /// Those whose agent could not act when it was last connected.
    unable: BTreeSet<String>,
}

impl Topology {
    /// As the objects say.
    pub(super) fn of<'a>(
        checks: impl IntoIterator<Item = &'a AdmissionCheck>,
        config: &dyn Fn(&str) -> Option<std::sync::Arc<MultiKueueConfig>>,
        clusters: impl IntoIterator<Item = &'a MultiKueueCluster>,
    ) -> Self {
        let checks = checks
            .into_iter()
            .filter(|check| check.spec.controller_name == names::MULTIKUEUE_CONTROLLER)
            .filter_map(|check| {
                let config = config(parameters(check)?)?;
                Some((check.name_any(), config.spec.clusters.clone()))
            })
            .collect();
        let mut topology = Self { checks, ..Self::default() };
        for cluster in
            clusters.into_iter().filter(|cluster| cluster.metadata.deletion_timestamp.is_none())
        {
            if is_unable(cluster) {
                topology.unable.insert(cluster.name_any());
            }
            topology.clusters.insert(cluster.name_any(), rules(cluster));
        }
        topology
    }

    /// The clusters whose rules have changed since `before`, with those before and now.
    pub(super) fn changed_rules<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = (&'a str, Option<&'a ClusterConfig>, &'a ClusterConfig)> {
        let all = self
            .clusters
            .iter()
            .map(|(name, rules)| (name.as_str(), before.clusters.get(name), rules));
        all.filter(|(_, before, now)| *before != Some(*now))
    }

    /// What changed since `before`, for the dispatcher.
    pub(super) fn events(&self, before: &Self) -> Vec<DispatchEvent> {
        let mut events = Vec::new();
        for (name, _, rules) in self.changed_rules(before) {
            events.push(DispatchEvent::ClusterConfigured {
                name: name.into(),
                config: rules.clone(),
            });
        }
        for name in self.unable.difference(&before.unable) {
            events.push(DispatchEvent::AgentWasNotReady { name: name.as_str().into() });
        }
        for name in before.clusters.keys().filter(|name| !self.clusters.contains_key(*name)) {
            events.push(DispatchEvent::ClusterDeleted { name: name.as_str().into() });
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

/// The MultiKueueConfig that a check names.
pub fn parameters(check: &AdmissionCheck) -> Option<&str> {
    let parameters = check.spec.parameters.as_ref()?;
    (parameters.kind == "MultiKueueConfig" && parameters.api_group == "kueue.x-k8s.io")
        .then_some(&*parameters.name)
}

fn rules(cluster: &MultiKueueCluster) -> ClusterConfig {
    let annotation = |name: &str| cluster.annotations().get(name).map(String::as_str);
    let scheduling = annotation(names::SCHEDULING);
    ClusterConfig {
        on_disconnect: policy::of_cluster(cluster),
        unfenced: cluster.spec.cluster_source.agent.is_none(),
        declared_lost: is_declared_lost(cluster),
        cordoned: matches!(scheduling, Some(names::CORDON | names::DRAIN)),
        draining: scheduling == Some(names::DRAIN),
        release: annotation(names::BREAKER_RELEASE).map(Name::from),
        labels: cluster.labels().clone(),
        cost: cluster.spec.cost.unwrap_or(0),
    }
}

/// Whether the agent has said that it cannot act, and has not been back since.
pub fn is_unable(cluster: &MultiKueueCluster) -> bool {
    let agent = cluster.status.as_ref().and_then(|status| status.agent.as_ref());
    cluster.spec.cluster_source.agent.is_some()
        && agent.is_some_and(|agent| agent.unable_since.is_some())
}

/// Since when a cluster is not active, by its status.
pub fn lost_since(cluster: &MultiKueueCluster) -> Option<Timestamp> {
    let active = conditions::find(&cluster.status.as_ref()?.conditions, conditions::ACTIVE)?;
    (active.status != conditions::TRUE).then_some(active.last_transition_time.0)
}

/// Whether somebody has declared it lost, and meant the loss that it is in.
pub fn is_declared_lost(cluster: &MultiKueueCluster) -> bool {
    let declared = cluster.annotations().get(names::DECLARED_LOST);
    declared.is_some() && declared.and_then(|text| text.parse().ok()) == lost_since(cluster)
}

/// Whether its jobs stay its own while it is away, unless they or their queues say otherwise.
pub fn is_held(cluster: &MultiKueueCluster) -> bool {
    policy::of_cluster(cluster) == LossPolicy::Hold
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
    fn only_what_changed_is_told() {
        let checks = [check("mk", "conf"), check("broken", "missing")];
        let mut clusters = [
            cluster("a", &serde_json::json!({"agent": {}})),
            cluster("b", &serde_json::json!({"kubeConfig": {"location": "s"}})),
        ];
        clusters[1].metadata.labels = Some([("region".to_owned(), "eu".to_owned())].into());
        clusters[1].spec.cost = Some(7);
        let first = Topology::of(&checks, &config, &clusters);
        let told: Vec<String> =
            first.events(&Topology::default()).iter().map(|event| format!("{event:?}")).collect();
        assert_eq!(
            told,
            [
                r#"ClusterConfigured { name: "a", config: ClusterConfig { on_disconnect: Hold, unfenced: false, declared_lost: false, cordoned: false, draining: false, release: None, labels: {}, cost: 0 } }"#,
                r#"ClusterConfigured { name: "b", config: ClusterConfig { on_disconnect: GiveUp, unfenced: true, declared_lost: false, cordoned: false, draining: false, release: None, labels: {"region": "eu"}, cost: 7 } }"#,
                r#"Check { name: "mk", clusters: ["b", "a"] }"#
            ]
        );
        assert!(first.events(&first).is_empty());
        let mut unable = clusters[0].clone();
        unable.status = serde_json::from_value(
            serde_json::json!({"agent": {"unableSince": "2026-01-01T00:00:00Z"}}),
        )
        .ok();
        let told = Topology::of(&checks, &config, [&unable, &clusters[1]]).events(&first);
        assert_eq!(
            told.iter().map(|event| format!("{event:?}")).collect::<Vec<_>>(),
            [r#"ClusterUnable { name: "a" }"#]
        );
        let second = Topology::of(&checks[1..], &config, &clusters[..1]);
        let told: Vec<String> =
            second.events(&first).iter().map(|event| format!("{event:?}")).collect();
        assert_eq!(told, [r#"ClusterGone { name: "b" }"#, r#"Check { name: "mk", clusters: [] }"#]);
    }
}
