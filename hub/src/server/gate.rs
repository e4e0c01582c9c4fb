//! Who may come in: the certificate's identity against the cluster as it is now.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use switchyard_platform::clock::Clock;
use thiserror::Error;

use super::conn::Peer;
use switchyard_hub_pki::ClusterIdentity;

/// The MultiKueueClusters as they are now.
pub trait Clusters: Send + Sync {
    /// The uid of the cluster of that name, if it is there, is not being deleted, and its source is an agent.
    fn agent_cluster(&self, name: &str) -> Option<String>;

    /// The same, asked of the API server: for a cluster that may have been created a moment ago.
    fn look_up<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<String>> {
        Box::pin(std::future::ready(self.agent_cluster(name)))
    }
}

/// Why somebody was refused. For the log.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No certificate was shown.
    #[error("no client certificate")]
    NoCertificate,
    /// The connection was opened with it when it was good.
    #[error("the certificate ended at {0}")]
    Ended(Timestamp),
    /// Our authority signed it for another hub.
    #[error("the certificate is for hub \"{0}\"")]
    OtherHub(String),
    /// There is no such cluster now.
    #[error("there is no MultiKueueCluster \"{0}\" with an agent as its source")]
    NoCluster(String),
    /// There is one of that name, but not the one that was enrolled.
    #[error(
        "the certificate is of an earlier cluster: MultiKueueCluster \"{0}\" was recreated after it was issued"
    )]
    Recreated(String),
}

/// Decides who may come in.
#[derive(Clone)]
pub struct Gate {
    hub_id: Arc<str>,
    clusters: Arc<dyn Clusters>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gate({})", self.hub_id)
    }
}

impl Gate {
    /// A gate of the hub of that id.
    pub fn new(hub_id: &str, clusters: Arc<dyn Clusters>, clock: Arc<dyn Clock>) -> Self {
        Self { hub_id: hub_id.into(), clusters, clock }
    }

    /// The hub's id.
    pub fn hub_id(&self) -> &str {
        &self.hub_id
    }

    /// The time by which certificates are issued and judged.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// For which cluster a caller may act now.
    ///
    /// # Errors
    /// Says why for none.
    pub async fn caller(&self, peer: &Peer) -> Result<Arc<ClusterIdentity>, Refusal> {
        let identity = peer.caller(self.now())?;
        self.admit(Some(&identity)).await?;
        Ok(identity)
    }

    /// Whether the holder of a certificate may act for its cluster now.
    ///
    /// # Errors
    /// Says why not.
    pub async fn admit(&self, identity: Option<&ClusterIdentity>) -> Result<(), Refusal> {
        let identity = identity.ok_or(Refusal::NoCertificate)?;
        if identity.hub_id != *self.hub_id {
            return Err(Refusal::OtherHub(identity.hub_id.clone()));
        }
        match self.uid(&identity.cluster).await {
            None => Err(Refusal::NoCluster(identity.cluster.clone())),
            Some(uid) if uid != identity.uid => Err(Refusal::Recreated(identity.cluster.clone())),
            Some(_) => Ok(()),
        }
    }

    /// Agents wait long after a refusal, so the delay of a watch must not be the reason for one.
    async fn uid(&self, cluster: &str) -> Option<String> {
        match self.clusters.agent_cluster(cluster) {
            Some(uid) => Some(uid),
            None => self.clusters.look_up(cluster).await,
        }
    }

    /// The identity that a newcomer to this cluster gets.
    ///
    /// # Errors
    /// [`Refusal::NoCluster`].
    pub async fn identity(&self, cluster: &str) -> Result<ClusterIdentity, Refusal> {
        let uid = self.uid(cluster).await.ok_or_else(|| Refusal::NoCluster(cluster.to_owned()))?;
        Ok(ClusterIdentity { hub_id: self.hub_id.to_string(), cluster: cluster.to_owned(), uid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One;

    impl Clusters for One {
        fn agent_cluster(&self, name: &str) -> Option<String> {
            (name == "east").then(|| "u1".to_owned())
        }
    }

    #[tokio::test]
    async fn only_the_living_cluster_of_this_hub_is_admitted() {
        let gate =
            Gate::new("hub", Arc::new(One), Arc::new(switchyard_platform::clock::SystemClock));
        let identity = |hub_id: &str, cluster: &str, uid: &str| ClusterIdentity {
            hub_id: hub_id.into(),
            cluster: cluster.into(),
            uid: uid.into(),
        };
        assert_eq!(gate.admit(Some(&identity("hub", "east", "u1"))).await, Ok(()));
        for (case, shown, refusal) in [
            ("nothing shown", None, Refusal::NoCertificate),
            (
                "another hub's",
                Some(identity("other", "east", "u1")),
                Refusal::OtherHub("other".into()),
            ),
            (
                "a deleted cluster's",
                Some(identity("hub", "west", "u1")),
                Refusal::NoCluster("west".into()),
            ),
            (
                "a recreated cluster's",
                Some(identity("hub", "east", "u0")),
                Refusal::Recreated("east".into()),
            ),
        ] {
            assert_eq!(gate.admit(shown.as_ref()).await, Err(refusal), "{case}");
        }
    }
}
