//! A token and a key for a certificate; a certificate for the next one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use switchyard_platform::log_limit::LogLimit;
use switchyard_proto::v1::enrolment_server::Enrolment;
use switchyard_proto::v1::{
    Certificate, CopyKeyAnswer, CopyKeyRequest, EnrolRequest, RenewRequest,
};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::conn::Peer;
use super::copy_keys::CopyKeys;
use super::gate::{Gate, Refusal};
use super::session::Term;
use super::tls::Authorities;
use crate::audit::{Line, Operation, Outcome, Who};
use switchyard_hub_pki::ClusterIdentity;
use switchyard_hub_pki::ca::CaError;
use switchyard_hub_pki::store::RedeemError;
use switchyard_hub_pki::token::{Token, TokenError};

/// Enrolments at once of holders of a good token: each reads and writes a Secret.
const AT_ONCE: usize = 8;
/// An enrolment takes two calls to the API server.
const DEADLINE: Duration = Duration::from_secs(15);

/// Where tokens are used up.
pub trait Tokens: Send + Sync {
    /// Whether a token is good, by what is in memory. Strangers cost no more than this.
    fn is_known<'a>(
        &'a self,
        token: &'a Token,
        csr: &'a [u8],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<(), RedeemError>>;

    /// See [`switchyard_hub_pki::store::redeem`].
    fn redeem<'a>(
        &'a self,
        token: &'a Token,
        csr: &'a [u8],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<(), RedeemError>>;
}

/// The service.
pub struct EnrolmentService {
    gate: Gate,
    authorities: Authorities,
    tokens: Arc<dyn Tokens>,
    life: Duration,
    deadline: Duration,
    places: Semaphore,
    /// Of refusals.
    log: LogLimit,
    /// The keys of copies, and the term in which they are given.
    copy_keys: Option<(Arc<CopyKeys>, Term)>,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error(transparent)]
    Refusal(#[from] Refusal),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Redeem(#[from] RedeemError),
    #[error(transparent)]
    Ca(#[from] CaError),
    #[error("too many enrolments at once")]
    Busy,
}

impl EnrolmentService {
    /// A service whose certificates last for `life`.
    pub fn new(
        gate: Gate,
        authorities: Authorities,
        tokens: Arc<dyn Tokens>,
        life: Duration,
    ) -> Self {
        let (places, log) = (Semaphore::new(AT_ONCE), LogLimit::default());
        Self { gate, authorities, tokens, life, deadline: DEADLINE, places, log, copy_keys: None }
    }

    /// One that gives the keys of copies while `term` names one.
    #[must_use]
    pub fn with_copy_keys(self, keys: Arc<CopyKeys>, term: Term) -> Self {
        Self { copy_keys: Some((keys, term)), ..self }
    }

    /// One that answers within another time.
    #[must_use]
    pub fn within(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    async fn try_enrol(&self, request: &EnrolRequest) -> Result<Certificate, Reason> {
        let token: Token = request.token.parse()?;
        self.tokens.is_known(&token, &request.csr, self.gate.now()).await?;
        // From here on the caller holds a token.
        let _place = self.places.try_acquire().map_err(|_| Reason::Busy)?;
        let identity = self.gate.identity(&token.cluster).await?;
        // Made before the token is used up, so that a bad request costs no token; given only afterwards.
        let certificate = self.issue(&request.csr, &identity)?;
        self.tokens.redeem(&token, &request.csr, self.gate.now()).await?;
        tracing::info!(cluster = identity.cluster, token = token.id, "agent enrolled");
        Ok(certificate)
    }

    /// The cluster of the caller, if it may call.
    async fn caller<T>(&self, request: &Request<T>) -> Result<Arc<ClusterIdentity>, Reason> {
        match request.extensions().get::<Peer>() {
            Some(caller) => Ok(self.gate.caller(caller).await?),
            None => Err(Refusal::NoCertificate.into()),
        }
    }

    /// Whether a refusal may be logged; if so, how many were left out.
    fn may_log(&self) -> Option<u64> {
        self.log.admit(Instant::now())
    }

    fn issue(&self, csr: &[u8], identity: &ClusterIdentity) -> Result<Certificate, CaError> {
        let authority = self.authorities.borrow().clone();
        let (leaf, not_after) =
            authority.signer().issue_agent(csr, identity, self.life, self.gate.now())?;
        Ok(Certificate {
            chain: vec![leaf.to_vec()],
            trust: authority.trusted().iter().map(|certificate| certificate.to_vec()).collect(),
            not_after: Some(prost_types::Timestamp { seconds: not_after.as_second(), nanos: 0 }),
            cluster: identity.cluster.clone(),
        })
    }
}

fn refused() -> Status {
    Status::permission_denied("refused")
}

/// The cluster that a caller says it is. For the log: nothing shows that it is.
fn claimed(request: &Request<EnrolRequest>) -> String {
    request.get_ref().token.parse().map_or_else(|_| String::new(), |token: Token| token.cluster)
}

fn socket<T>(request: &Request<T>) -> Option<SocketAddr> {
    request.extensions().get::<Peer>().map(|peer| peer.address)
}

/// An enrolment's line of the audit stream.
fn line(cluster: &str, who: Who, why: String, result: Outcome) -> Line {
    Line {
        operation: Operation::Enrol,
        who,
        object: format!("MultiKueueCluster/{cluster}"),
        why,
        result,
    }
}

fn address<T>(request: &Request<T>) -> String {
    request
        .extensions()
        .get::<Peer>()
        .map_or_else(|| "unknown".to_owned(), |peer| peer.address.to_string())
}

#[tonic::async_trait]
impl Enrolment for EnrolmentService {
    async fn enrol(&self, request: Request<EnrolRequest>) -> Result<Response<Certificate>, Status> {
        let peer = address(&request);
        match tokio::time::timeout(self.deadline, self.try_enrol(request.get_ref())).await {
            Ok(Ok(certificate)) => {
                let who = Who::Enrolled(certificate.cluster.clone(), socket(&request));
                line(
                    &certificate.cluster,
                    who,
                    "a join token was used up".to_owned(),
                    Outcome::Accepted,
                )
                .write();
                Ok(Response::new(certificate))
            }
            Ok(Err(Reason::Busy)) => {
                Err(Status::unavailable("too many enrolments at once; try again"))
            }
            Ok(Err(Reason::Redeem(
                error @ (RedeemError::Api(_) | RedeemError::Late | RedeemError::Contended),
            ))) => {
                // Not the caller's fault: it may try again with the same token and the same key.
                if let Some(left_out) = self.may_log() {
                    let (cluster, error) = (claimed(&request), error.to_string());
                    tracing::error!(%peer, error, left_out, "enrolment failed");
                    let who = Who::Claimed(cluster.clone(), socket(&request));
                    line(&cluster, who, error, Outcome::Failed).write();
                }
                Err(Status::unavailable("try again"))
            }
            Ok(Err(reason)) => {
                if let Some(left_out) = self.may_log() {
                    // As a value, not as text: whatever it contains stays on its line.
                    let (cluster, reason) = (claimed(&request), reason.to_string());
                    tracing::warn!(%peer, cluster, reason, left_out, "enrolment refused");
                    let who = Who::Claimed(cluster.clone(), socket(&request));
                    line(&cluster, who, reason, Outcome::Refused).write();
                }
                Err(refused())
            }
            Err(_) => {
                if let Some(left_out) = self.may_log() {
                    tracing::error!(%peer, within = ?self.deadline, left_out, "enrolment not finished in time");
                }
                Err(Status::deadline_exceeded("try again"))
            }
        }
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<Certificate>, Status> {
        let peer = address(&request);
        let renewed = self.caller(&request).await;
        let renewed =
            renewed.and_then(|identity| Ok(self.issue(&request.get_ref().csr, &identity)?));
        match renewed {
            Ok(certificate) => {
                tracing::info!(cluster = certificate.cluster, "agent certificate renewed");
                Ok(Response::new(certificate))
            }
            Err(reason) => {
                if let Some(left_out) = self.may_log() {
                    let reason = reason.to_string();
                    tracing::warn!(%peer, reason, left_out, "certificate not renewed");
                }
                Err(refused())
            }
        }
    }

    async fn copy_key(
        &self,
        request: Request<CopyKeyRequest>,
    ) -> Result<Response<CopyKeyAnswer>, Status> {
        let Some((keys, term)) = &self.copy_keys else {
            return Err(Status::unimplemented("no keys of copies"));
        };
        let identity = match self.caller(&request).await {
            Ok(identity) => identity,
            Err(reason) => {
                if let Some(left_out) = self.may_log() {
                    let (peer, reason) = (address(&request), reason.to_string());
                    tracing::warn!(%peer, reason, left_out, "key of copies not given");
                }
                return Err(refused());
            }
        };
        // The task that writes conditions shows why a key is not in force.
        if term.borrow().is_none() {
            return Err(Status::unavailable("this replica does not lead"));
        }
        let CopyKeyRequest { cluster_uid, obstacle } = request.into_inner();
        keys.note(&identity.cluster, &obstacle);
        let key =
            keys.of(&identity.cluster, &cluster_uid).map(|key| key.to_bytes()).unwrap_or_default();
        Ok(Response::new(CopyKeyAnswer { key, trust: keys.are_trusted(&identity.cluster) }))
    }
}
