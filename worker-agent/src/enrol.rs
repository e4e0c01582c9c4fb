//! Enrolment: how a cluster gets its identity, once, and keeps it.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use backon::{ExponentialBuilder, Retryable};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use switchyard_proto::v1::enrolment_client::EnrolmentClient;
use switchyard_proto::v1::{CopyKeyAnswer, CopyKeyRequest, EnrolRequest, RenewRequest};
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::identity::{Identity, IdentityError, IdentityStore, KeyRequest};
use crate::route::Route;
use crate::tls::{self, Pin, TlsError};

/// The deadline for an answer.
const DEADLINE: Duration = Duration::from_secs(20);
/// The interval of checks of the identity's age, and the first delay after a failed renewal.
const LOOK: Duration = Duration::from_secs(30);

/// The shortest time between two renewals.
const PAUSE: Duration = Duration::from_secs(1);

/// How often the agent tries a refused token again, within seconds, before it gives up.
const REFUSALS: u32 = 4;
/// The log line of an identity that replaces another one.
const AGAIN: &str = "enrolled with a new join token";
/// How long the agent tries a new token while it has a valid identity.
const BESIDE_GOOD: Duration = Duration::from_secs(5);

/// The content of a join command.
#[derive(Clone)]
pub struct Join {
    token: String,
    pin: Pin,
}

impl Join {
    /// A single-use token, and the hash of the CA of the hub that issued it.
    pub fn new(token: impl Into<String>, pin: Pin) -> Self {
        Self { token: token.into().trim().to_owned(), pin }
    }

    /// The SHA-256 of the token in hexadecimal digits. It identifies a token that was tried.
    pub fn digest(&self) -> String {
        Sha256::digest(self.token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The cluster in the token; the hub decides. Cluster names may contain dots.
    pub fn cluster(&self) -> Option<&str> {
        let mut parts = self.token.rsplitn(3, '.');
        parts.next().zip(parts.next())?;
        parts.next().filter(|cluster| !cluster.is_empty())
    }
}

// Keeps the token out of logs.
impl std::fmt::Debug for Join {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Join({})", self.cluster().unwrap_or("?"))
    }
}

/// Why the agent has no identity.
#[derive(Debug, Error)]
pub enum EnrolError {
    #[error(
        "this cluster has no identity yet and no join token was given.\n\
         On the hub run `switchyard cluster add NAME`, and on this cluster the commands that it prints."
    )]
    NoToken,
    #[error(
        "--join is not a join token, which reads CLUSTER.ID.SECRET; `switchyard cluster add` prints it: copy it whole"
    )]
    BadToken,
    /// The hub refused the token.
    #[error(
        "the hub refused to enrol this cluster as {cluster:?}; why is in the hub's log.\n\
         A join token works once, until the time that was printed with it, and only while a MultiKueueCluster {cluster:?} with an agent source exists.\n\
         On the hub, `switchyard cluster add {cluster}` makes a new one: run the commands that it prints."
    )]
    Refused {
        /// The token's cluster.
        cluster: String,
    },
    /// The stored identity belongs to another cluster.
    #[error(
        "the Secret {secret} holds the identity of cluster {stored:?}, the join token is for {token:?}.\n\
         If this cluster is to become {token:?}, delete the Secret and start the agent again."
    )]
    OtherCluster {
        secret: String,
        /// The stored identity's cluster.
        stored: String,
        /// The token's cluster.
        token: String,
    },
    /// The stored identity has expired.
    #[error(
        "the identity of cluster {cluster:?} ended at {not_after} and can no longer be renewed.\n\
         On the hub, `switchyard cluster add {cluster}` makes a join token: run the commands that it prints."
    )]
    Expired { cluster: String, not_after: Timestamp },
    /// The identity cannot be stored, or the hub issued an invalid one.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// No server, or not the hub.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The hub cannot answer now.
    #[error("the hub did not answer: {0}")]
    Unavailable(String),
}

impl EnrolError {
    /// Whether another try may succeed without an administrator.
    fn transient(&self) -> bool {
        match self {
            Self::Unavailable(_)
            | Self::Identity(IdentityError::Secret(_) | IdentityError::Late) => true,
            // A retry meets the same certificate.
            Self::Tls(TlsError::Connect { cause, .. }) => !cause.contains("certificate"),
            _ => false,
        }
    }
}

/// Returns the stored identity if it is valid; else exchanges the token for one and stores it.
///
/// A valid identity takes precedence over a token that was tried before. A new token is tried
/// first, because the hub refuses the identity after its `MultiKueueCluster` was recreated. If the
/// hub refuses the new token too, or does not answer, the identity is used.
///
/// # Errors
///
/// Names the next step. The function waits for an unavailable hub.
pub async fn obtain(
    store: &IdentityStore,
    hub: &Route,
    join: Option<&Join>,
) -> Result<Identity, EnrolError> {
    obtain_with(store, hub, join, &KeyRequest::generate()?).await
}

/// As [`obtain`], with one key for all tries of this token.
///
/// # Errors
///
/// As [`obtain`].
pub(crate) async fn obtain_with(
    store: &IdentityStore,
    hub: &Route,
    join: Option<&Join>,
    request: &KeyRequest,
) -> Result<Identity, EnrolError> {
    let attempt = || async { obtain_once(store, hub, join, request).await };
    let backoff = ExponentialBuilder::default()
        .with_jitter()
        .with_min_delay(Duration::from_millis(500))
        .with_max_delay(Duration::from_secs(30))
        .without_max_times();
    let notify = |error: &EnrolError, wait: Duration| {
        // The log gets the message on one line.
        let error = error.to_string().replace('\n', " ");
        tracing::warn!(error, ?wait, "no identity yet, will try again");
    };
    // The hub may not know yet of a MultiKueueCluster that was just created.
    let mut refusals = 0;
    let again = |error: &EnrolError| {
        let refused = matches!(error, EnrolError::Refused { .. });
        refusals += u32::from(refused);
        error.transient() || refused && refusals <= REFUSALS
    };
    attempt.retry(backoff).when(again).notify(notify).await
}

async fn obtain_once(
    store: &IdentityStore,
    hub: &Route,
    join: Option<&Join>,
    request: &KeyRequest,
) -> Result<Identity, EnrolError> {
    let wanted = match join {
        Some(join) => Some(join.cluster().ok_or(EnrolError::BadToken)?),
        None => None,
    };
    let now = hub.clock.now();
    let stored = store.load().await?;
    if let Some(stored) = &stored
        && let Some(wanted) = wanted
        && stored.cluster != wanted
    {
        let (stored, token) = (stored.cluster.clone(), wanted.to_owned());
        return Err(EnrolError::OtherCluster { secret: store.name(), stored, token });
    }
    match (stored, join) {
        (Some(stored), Some(join)) if !stored.expired(now) && is_new(join, &stored) => {
            Ok(try_new(store, hub, join, request, stored).await?)
        }
        (Some(stored), _) if !stored.expired(now) => {
            tracing::info!(cluster = stored.cluster, not_after = %stored.not_after, "stored identity used");
            Ok(stored)
        }
        (_, Some(join)) => {
            let identity = enrol_with(hub, join, request).await?;
            Ok(save_new(store, identity, "enrolled").await?)
        }
        (Some(stored), None) => {
            Err(EnrolError::Expired { cluster: stored.cluster, not_after: stored.not_after })
        }
        (None, None) => Err(EnrolError::NoToken),
    }
}

/// Whether this token was not tried yet with the stored identity.
pub(crate) fn is_new(join: &Join, stored: &Identity) -> bool {
    stored.token_digest.as_deref() != Some(join.digest().as_str())
}

/// Tries a token while the identity may still be valid. Returns the identity to use.
async fn try_new(
    store: &IdentityStore,
    hub: &Route,
    join: &Join,
    request: &KeyRequest,
    stored: Identity,
) -> Result<Identity, IdentityError> {
    // Jobs with a due fence wait for the agent, so the time is bounded. A token that is not tried
    // now is tried while there is no session.
    let answer = match tokio::time::timeout(BESIDE_GOOD, enrol_with(hub, join, request)).await {
        Ok(answer) => answer,
        Err(_) => Err(EnrolError::Unavailable(format!("no answer within {BESIDE_GOOD:?}"))),
    };
    match answer {
        Ok(identity) => save_new(store, identity, AGAIN).await,
        Err(EnrolError::Refused { cluster }) => {
            tracing::info!(
                cluster,
                "join token refused, as one that was used before; stored identity used"
            );
            let stored = Identity { token_digest: Some(join.digest()), ..stored };
            if let Err(error) = store.save(&stored).await {
                tracing::warn!(%error, "it is not stored that the token was refused: it is tried again at the next start");
            }
            Ok(stored)
        }
        Err(error) => {
            tracing::warn!(cluster = stored.cluster, %error, "join token not tried; stored identity used");
            Ok(stored)
        }
    }
}

/// Exchanges a token that appears while the hub refuses this cluster, and stores the identity. None
/// if every token was tried.
///
/// # Errors
///
/// Names the next step. A refused token is not tried again.
pub(crate) async fn again(
    store: &IdentityStore,
    hub: &Route,
    join: &Join,
    request: &KeyRequest,
    current: &Identity,
) -> Result<Option<Identity>, EnrolError> {
    if !is_new(join, current) || join.cluster() != Some(current.cluster.as_str()) {
        return Ok(None);
    }
    let identity = enrol_with(hub, join, request).await?;
    Ok(Some(save_new(store, identity, AGAIN).await?))
}

/// Stores a new identity and logs how the agent got it.
async fn save_new(
    store: &IdentityStore,
    identity: Identity,
    how: &str,
) -> Result<Identity, IdentityError> {
    save(store, &identity).await?;
    tracing::info!(cluster = identity.cluster, not_after = %identity.not_after, "{how}");
    Ok(identity)
}

/// The token is used up, so a busy API server must not cost its identity.
async fn save(store: &IdentityStore, identity: &Identity) -> Result<(), IdentityError> {
    let backoff = ExponentialBuilder::default()
        .with_jitter()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(10))
        .with_max_times(12);
    let notify = |error: &IdentityError, wait: Duration| tracing::warn!(%error, ?wait, "identity not stored, will try again");
    (|| store.save(identity)).retry(backoff).notify(notify).await
}

/// Exchanges the token for an identity. The agent sends the token only to a hub whose CA has the
/// pinned hash.
///
/// # Errors
///
/// Names the next step.
pub async fn enrol(hub: &Route, join: &Join) -> Result<Identity, EnrolError> {
    enrol_with(hub, join, &KeyRequest::generate()?).await
}

async fn enrol_with(
    hub: &Route,
    join: &Join,
    request: &KeyRequest,
) -> Result<Identity, EnrolError> {
    let cluster = join.cluster().ok_or(EnrolError::BadToken)?.to_owned();
    let channel = tls::connect(hub, tls::with_pin(&join.pin, &hub.clock)?).await?;
    let message = EnrolRequest { token: join.token.clone(), csr: request.csr.clone() };
    let mut client = EnrolmentClient::new(channel);
    let answer = tokio::time::timeout(DEADLINE, client.enrol(message)).await;
    let certificate =
        answer.map_err(|_| late())?.map_err(|status| refused(&status, &cluster))?.into_inner();
    let issued = Identity::issued(certificate, request.key.clone())?;
    let identity = Identity { token_digest: Some(join.digest()), ..issued };
    if identity.cluster != cluster {
        let text = format!(
            "the token is for {cluster:?}, the hub issued a certificate for {:?}",
            identity.cluster
        );
        return Err(IdentityError::Malformed(text).into());
    }
    if !identity.trust.iter().any(|certificate| join.pin.matches(certificate)) {
        let text =
            "the hub does not count the CA of --hub-ca-sha256 among those to trust".to_owned();
        return Err(IdentityError::Malformed(text).into());
    }
    Ok(identity)
}

/// Exchanges the identity for a longer valid one, with a new key.
///
/// # Errors
///
/// The hub is unavailable, or refuses because its `MultiKueueCluster` was deleted or recreated.
pub async fn renew(hub: &Route, identity: &Identity) -> Result<Identity, EnrolError> {
    let channel = tls::connect(hub, tls::with_identity(identity, &hub.clock)?).await?;
    let request = KeyRequest::generate()?;
    let mut client = EnrolmentClient::new(channel);
    let answer =
        tokio::time::timeout(DEADLINE, client.renew(RenewRequest { csr: request.csr })).await;
    let certificate = answer
        .map_err(|_| late())?
        .map_err(|status| refused(&status, &identity.cluster))?
        .into_inner();
    let renewed = Identity::issued(certificate, request.key)?;
    let renewed = Identity { token_digest: identity.token_digest.clone(), ..renewed };
    if (&renewed.cluster, &renewed.hub_id) != (&identity.cluster, &identity.hub_id) {
        let text = format!(
            "the hub renewed for cluster {:?} of hub {:?}",
            renewed.cluster, renewed.hub_id
        );
        return Err(IdentityError::Malformed(text).into());
    }
    Ok(renewed)
}

/// Fetches the key of this cluster's copies.
///
/// # Errors
///
/// The hub is unavailable, does not know the request, or refuses it.
pub async fn copy_key(
    hub: &Route,
    identity: &Identity,
    request: CopyKeyRequest,
) -> Result<CopyKeyAnswer, EnrolError> {
    let asking = async {
        let channel = tls::connect(hub, tls::with_identity(identity, &hub.clock)?).await?;
        let answer = EnrolmentClient::new(channel).copy_key(request).await;
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| refused(&status, &identity.cluster))
    };
    tokio::time::timeout(DEADLINE, asking).await.map_err(|_| late())?
}

/// Renews the identity at two thirds of its life, for ever. Open sessions stay; the next one uses
/// the new identity.
pub async fn keep(
    hub: &Route,
    store: &IdentityStore,
    current: &ArcSwap<Identity>,
    shutdown: &CancellationToken,
) {
    loop {
        let identity = current.load_full();
        let left =
            hub.clock.now().duration_until(identity.renew_at()).max(jiff::SignedDuration::ZERO);
        let wait = Duration::try_from(left).unwrap_or_default().min(LOOK);
        if !wait.is_zero() {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(wait) => continue,
            }
        }
        let renewed = tokio::select! {
            () = shutdown.cancelled() => return,
            renewed = keep_once(hub, store, &identity) => renewed,
        };
        let pause = match renewed {
            Ok(renewed) => {
                tracing::info!(cluster = renewed.cluster, not_after = %renewed.not_after, "identity renewed");
                current.store(Arc::new(renewed));
                // Pause even if the new certificate is due at once, as one of a very short life is.
                PAUSE
            }
            Err(error) => {
                tracing::error!(cluster = identity.cluster, not_after = %identity.not_after, %error, "identity not renewed, will try again");
                LOOK
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn keep_once(
    hub: &Route,
    store: &IdentityStore,
    identity: &Identity,
) -> Result<Identity, EnrolError> {
    let renewed = renew(hub, identity).await?;
    store.save(&renewed).await?;
    Ok(renewed)
}

fn late() -> EnrolError {
    EnrolError::Unavailable(format!("no answer within {DEADLINE:?}"))
}

fn refused(status: &tonic::Status, cluster: &str) -> EnrolError {
    match status.code() {
        Code::PermissionDenied | Code::Unauthenticated | Code::InvalidArgument => {
            EnrolError::Refused { cluster: cluster.to_owned() }
        }
        _ => EnrolError::Unavailable(tls::said(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(token: &str) -> Join {
        Join::new(token, "0".repeat(64).parse().unwrap())
    }

    #[test]
    fn token_names_cluster_and_hides_secret() {
        let cases = [
            ("east.id.secret", Some("east")),
            (" eu.west-1.id.secret\n", Some("eu.west-1")),
            ("id.secret", None),
            (".id.secret", None),
            ("", None),
        ];
        for (token, cluster) in cases {
            assert_eq!(join(token).cluster(), cluster, "{token:?}");
        }
        assert_eq!(format!("{:?}", join("east.id.secret")), "Join(east)");
    }

    #[test]
    fn refusal_names_next_step() {
        let error = refused(&tonic::Status::permission_denied("refused"), "east");
        assert!(!error.transient());
        insta::assert_snapshot!(error, @r#"
        the hub refused to enrol this cluster as "east"; why is in the hub's log.
        A join token works once, until the time that was printed with it, and only while a MultiKueueCluster "east" with an agent source exists.
        On the hub, `switchyard cluster add east` makes a new one: run the commands that it prints.
        "#);
        assert!(refused(&tonic::Status::unavailable("later"), "east").transient());
    }
}
