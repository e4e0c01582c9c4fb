//! Which callers may act for a cluster: the certificate's identity, checked against the
//! MultiKueueCluster as it is now.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use switchyard_platform::clock::Clock;
use switchyard_proto::ClusterIdentity;
use thiserror::Error;

use super::agent_connection::Peer;

/// Looks up MultiKueueClusters.
pub trait ClusterLookup: Send + Sync {
    /// The uid of the MultiKueueCluster, if it exists, is not being deleted, and has an agent as
    /// source.
    fn agent_cluster(&self, name: &str) -> Option<String>;

    /// The same, read from the API server: the watch may not show a new object yet.
    fn look_up<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<String>> {
        Box::pin(std::future::ready(self.agent_cluster(name)))
    }
}

/// Why a caller was refused. It goes to the log only; the caller hears "refused".
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum CallerRefusal {
    #[error("no client certificate")]
    NoCertificate,
    /// The certificate expired after the connection was opened.
    #[error("the certificate ended at {0}")]
    Ended(Timestamp),
    /// The certificate names another hub.
    #[error("the certificate is for hub \"{0}\"")]
    OtherHub(String),
    #[error("there is no MultiKueueCluster \"{0}\" with an agent as its source")]
    NoCluster(String),
    /// The MultiKueueCluster was deleted and created again since the agent enrolled.
    #[error(
        "the certificate is of an earlier cluster: MultiKueueCluster \"{0}\" was recreated after it was issued"
    )]
    Recreated(String),
}

#[derive(Clone)]
pub struct Authorizer {
    hub_id: Arc<str>,
    clusters: Arc<dyn ClusterLookup>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authorizer({})", self.hub_id)
    }
}

impl Authorizer {
    pub fn new(hub_id: &str, clusters: Arc<dyn ClusterLookup>, clock: Arc<dyn Clock>) -> Self {
        Self { hub_id: hub_id.into(), clusters, clock }
    }

    pub fn hub_id(&self) -> &str {
        &self.hub_id
    }

    /// The time by which certificates are issued and checked.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The cluster that a caller may act for now.
    ///
    /// # Errors
    /// The caller may act for none.
    pub async fn caller(&self, peer: &Peer) -> Result<Arc<ClusterIdentity>, CallerRefusal> {
        let identity = peer.caller(self.now())?;
        self.admit(Some(&identity)).await?;
        Ok(identity)
    }

    /// Checks that the holder of a certificate may act for its cluster now.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub async fn admit(&self, identity: Option<&ClusterIdentity>) -> Result<(), CallerRefusal> {
        let identity = identity.ok_or(CallerRefusal::NoCertificate)?;
        if identity.hub_id != *self.hub_id {
            return Err(CallerRefusal::OtherHub(identity.hub_id.clone()));
        }
        match self.uid(&identity.cluster).await {
            None => Err(CallerRefusal::NoCluster(identity.cluster.clone())),
            Some(uid) if uid != identity.uid => {
                Err(CallerRefusal::Recreated(identity.cluster.clone()))
            }
            Some(_) => Ok(()),
        }
    }

    /// Asks the API server if the watch shows no such cluster. A refused agent waits long, so a
    /// slow watch must not cause a refusal.
    async fn uid(&self, cluster: &str) -> Option<String> {
        match self.clusters.agent_cluster(cluster) {
            Some(uid) => Some(uid),
            None => self.clusters.look_up(cluster).await,
        }
    }

    /// The identity for the certificate of a newly enrolled agent.
    ///
    /// # Errors
    /// [`CallerRefusal::NoCluster`].
    pub async fn identity(&self, cluster: &str) -> Result<ClusterIdentity, CallerRefusal> {
        let uid =
            self.uid(cluster).await.ok_or_else(|| CallerRefusal::NoCluster(cluster.to_owned()))?;
        Ok(ClusterIdentity { hub_id: self.hub_id.to_string(), cluster: cluster.to_owned(), uid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One;

    impl ClusterLookup for One {
        fn agent_cluster(&self, name: &str) -> Option<String> {
            (name == "east").then(|| "u1".to_owned())
        }
    }

    #[tokio::test]
    async fn authorizer_admits_only_existing_clusters_of_this_hub() {
        let authorizer = Authorizer::new(
            "hub",
            Arc::new(One),
            Arc::new(switchyard_platform::clock::SystemClock),
        );
        let identity = |hub_id: &str, cluster: &str, uid: &str| ClusterIdentity {
            hub_id: hub_id.into(),
            cluster: cluster.into(),
            uid: uid.into(),
        };
        assert_eq!(authorizer.admit(Some(&identity("hub", "east", "u1"))).await, Ok(()));
        for (case, shown, refusal) in [
            ("nothing shown", None, CallerRefusal::NoCertificate),
            (
                "another hub's",
                Some(identity("other", "east", "u1")),
                CallerRefusal::OtherHub("other".into()),
            ),
            (
                "a deleted cluster's",
                Some(identity("hub", "west", "u1")),
                CallerRefusal::NoCluster("west".into()),
            ),
            (
                "a recreated cluster's",
                Some(identity("hub", "east", "u0")),
                CallerRefusal::Recreated("east".into()),
            ),
        ] {
            assert_eq!(authorizer.admit(shown.as_ref()).await, Err(refusal), "{case}");
        }
    }
}
