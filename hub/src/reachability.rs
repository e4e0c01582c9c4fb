//! Whether a worker cluster can be reached, as the condition `Active` of its MultiKueueCluster says
//! it.

use switchyard_api::conditions::reasons;
use switchyard_api::v1beta2::MultiKueueCluster;

/// Whether a worker cluster can be reached, and why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reachability {
    pub active: bool,
    /// One of [`reasons::multi_kueue_cluster`].
    pub reason: &'static str,
    pub message: String,
}

impl Reachability {
    pub fn connected() -> Self {
        Self {
            active: true,
            reason: reasons::multi_kueue_cluster::ACTIVE,
            message: "Connected".into(),
        }
    }

    pub fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self { active: false, reason, message: message.into() }
    }
}

/// An agent that is connected, has been connected, or never was.
pub(crate) fn agent_reach(cluster: &MultiKueueCluster, connected: bool) -> Reachability {
    if connected {
        return Reachability::connected();
    }
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let status = cluster.status.as_ref();
    let met = status
        .and_then(|status| status.agent.as_ref())
        .is_some_and(|agent| agent.software.is_some());
    if met {
        let message = "the agent is not connected; nothing new is sent, and spec.onDisconnect says what becomes of what runs there";
        return Reachability::failed(reasons::multi_kueue_cluster::AGENT_DISCONNECTED, message);
    }
    let message = format!("waiting for the agent to enrol: run `switchyard cluster add {name}`");
    Reachability::failed(reasons::multi_kueue_cluster::AGENT_NOT_ENROLLED, message)
}

/// The agent is connected and cannot write to its own API server.
pub(crate) fn agent_unable(since: jiff::Timestamp) -> Reachability {
    let message = format!(
        "since {since:.0} the agent is connected but cannot write to its own API server; nothing new is sent, and what runs there \
         goes on, but for jobs whose onDisconnect is Duplicate"
    );
    Reachability::failed(reasons::multi_kueue_cluster::AGENT_UNABLE, message)
}

/// Another MultiKueueCluster leads to the same worker cluster.
pub(crate) fn duplicate_cluster(other: &str) -> Reachability {
    let message = format!(
        "MultiKueueCluster \"{other}\" leads to the same cluster (by the uid of its namespace kube-system), and jobs there \
         are that one's: delete one of the two; to reach a cluster in another way, change the clusterSource of the one that has it"
    );
    Reachability::failed(reasons::multi_kueue_cluster::DUPLICATE_CLUSTER, message)
}

/// The kubeconfig leads to another cluster than the one with the jobs.
pub(crate) fn wrong_kubeconfig_cluster(known: &str, found: &str) -> Reachability {
    let message = format!(
        "its kubeconfig leads to the cluster {found} (by the uid of its namespace kube-system), and its jobs are on the \
         cluster {known}: that one counts as lost. Lead it back there, or make another MultiKueueCluster for {found}"
    );
    Reachability::failed(reasons::multi_kueue_cluster::OTHER_CLUSTER, message)
}

/// The agent runs in another cluster than the one with the jobs.
pub(crate) fn wrong_agent_cluster(known: &str, found: &str) -> Reachability {
    let message = format!(
        "an agent with its name is in the cluster {found} (by the uid of its namespace kube-system), and its jobs are on the \
         cluster {known}: that one counts as lost. Enrol the agent of {known} again, or the one of {found} under another \
         name; or give up what runs on {known}: switchyard cluster mark-lost"
    );
    Reachability::failed(reasons::multi_kueue_cluster::OTHER_CLUSTER, message)
}

/// The kubeconfig leads to the hub's own cluster.
pub(crate) fn own_cluster() -> Reachability {
    let message = format!(
        "its kubeconfig leads to the hub's own cluster: the jobs there are the originals of the copies. Lead it to a worker \
         cluster, or delete it; the annotation {}=allowed has it used all the same",
        switchyard_api::names::OWN_CLUSTER
    );
    Reachability::failed(reasons::multi_kueue_cluster::OWN_CLUSTER, message)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::multikueue_cluster::conditions::tests::cluster;

    #[test]
    fn never_enrolled_agent_differs_from_a_disconnected_one() {
        let never = agent_reach(&cluster("east", None, &Value::Null), false);
        assert_eq!(never.reason, "AgentNotEnrolled");
        assert_eq!(
            never.message,
            "waiting for the agent to enrol: run `switchyard cluster add east`"
        );
        let left = agent_reach(&cluster("east", Some(true), &json!({"software": "x"})), false);
        assert_eq!((left.active, left.reason), (false, "AgentDisconnected"));
        assert_eq!(
            agent_reach(&cluster("east", None, &Value::Null), true),
            Reachability::connected()
        );
        let unable = agent_unable("2026-11-21T10:00:00.25Z".parse().unwrap());
        assert_eq!((unable.active, unable.reason), (false, "AgentUnable"));
        assert_eq!(
            unable.message,
            "since 2026-11-21T10:00:00Z the agent is connected but cannot write to its own API server; nothing new is sent, \
             and what runs there goes on, but for jobs whose onDisconnect is Duplicate"
        );
    }
}
