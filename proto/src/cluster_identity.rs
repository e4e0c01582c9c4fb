//! The cluster that a certificate identifies.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The identity in a certificate's URI name: `spiffe://<hub id>/cluster/<name>/<MultiKueueCluster
/// uid>`.
///
/// The uid binds the certificate to one object. After a MultiKueueCluster is deleted and created
/// again, the old certificate is void.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterIdentity {
    /// Id of the hub.
    pub hub_id: String,
    /// Name of the `MultiKueueCluster`.
    pub cluster: String,
    /// Uid of the `MultiKueueCluster`.
    pub uid: String,
}

/// A text that is no cluster identity.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("\"{0}\" is not spiffe://HUB-ID/cluster/NAME/UID")]
pub struct BadIdentity(pub String);

impl fmt::Display for ClusterIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spiffe://{}/cluster/{}/{}", self.hub_id, self.cluster, self.uid)
    }
}

impl FromStr for ClusterIdentity {
    type Err = BadIdentity;

    fn from_str(text: &str) -> Result<Self, BadIdentity> {
        let bad = || BadIdentity(text.chars().take(256).collect());
        let rest = text.strip_prefix("spiffe://").ok_or_else(bad)?;
        let mut parts = rest.split('/');
        let (Some(hub_id), Some("cluster"), Some(cluster), Some(uid), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(bad());
        };
        if hub_id.is_empty() || cluster.is_empty() || uid.is_empty() {
            return Err(bad());
        }
        Ok(Self { hub_id: hub_id.into(), cluster: cluster.into(), uid: uid.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_round_trips_through_its_uri() {
        let identity = ClusterIdentity {
            hub_id: "h-1".into(),
            cluster: "eu.west-1".into(),
            uid: "u-2".into(),
        };
        assert_eq!(identity.to_string(), "spiffe://h-1/cluster/eu.west-1/u-2");
        assert_eq!(identity.to_string().parse(), Ok(identity));
    }

    #[test]
    fn invalid_uri_is_no_identity() {
        for text in [
            "",
            "https://h/cluster/a/u",
            "spiffe://h/cluster/a",
            "spiffe://h/cluster/a/",
            "spiffe:///cluster/a/u",
            "spiffe://h/hub/a/u",
            "spiffe://h/cluster/a/u/more",
        ] {
            assert_eq!(text.parse::<ClusterIdentity>(), Err(BadIdentity(text.into())), "{text}");
        }
    }
}
