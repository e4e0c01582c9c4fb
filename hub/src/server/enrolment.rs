//! Enrolment: an agent exchanges a join token for its first certificate, and renews it later.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use switchyard_hub_pki::ca::CaError;
use switchyard_hub_pki::token::{Token, TokenError};
use switchyard_hub_pki::token_store::RedeemError;
use switchyard_platform::log_limit::LogLimit;
use switchyard_proto::ClusterIdentity;
use switchyard_proto::v1::enrolment_server::Enrolment;
use switchyard_proto::v1::{
    Certificate, CopyKeyAnswer, CopyKeyRequest, EnrolRequest, RenewRequest,
};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::agent_connection::Peer;
use super::authorization::{Authorizer, CallerRefusal};
use super::cluster_rate::ClusterRateLimiter;
use super::copy_keys::CopyKeys;
use super::listener_tls::Authorities;
use super::session::Term;
use crate::audit::{Actor, AuditOperation, AuditOutcome, AuditRecord};

/// Concurrent enrolments with a good token. Each reads and writes a Secret.
const CONCURRENT: usize = 8;
/// Calls that an enrolled cluster may make in a burst.
const CALLS: u32 = 30;
/// Time after which an enrolled cluster may make one more call.
const CALL_EVERY: Duration = Duration::from_secs(5);
/// One enrolment, which takes two API calls.
const DEADLINE: Duration = Duration::from_secs(15);

/// Where join tokens are checked and used up.
pub trait Tokens: Send + Sync {
    /// Checks a token in memory, so that a caller without a good token costs no API call.
    fn is_known<'a>(
        &'a self,
        token: &'a Token,
        csr: &'a [u8],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<(), RedeemError>>;

    /// See [`switchyard_hub_pki::token_store::redeem`].
    fn redeem<'a>(
        &'a self,
        token: &'a Token,
        csr: &'a [u8],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<(), RedeemError>>;
}

pub struct EnrolmentService {
    authorizer: Authorizer,
    authorities: Authorities,
    tokens: Arc<dyn Tokens>,
    life: Duration,
    deadline: Duration,
    permits: Semaphore,
    /// Limits the log lines about refusals.
    log: LogLimit,
    /// Limits the calls of each enrolled cluster.
    calls: Mutex<ClusterRateLimiter>,
    /// The keys that prove copies, and the term in which this replica gives them out.
    copy_keys: Option<(Arc<CopyKeys>, Term)>,
}

#[derive(Debug, thiserror::Error)]
enum EnrolmentError {
    #[error(transparent)]
    Refusal(#[from] CallerRefusal),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Redeem(#[from] RedeemError),
    #[error(transparent)]
    Ca(#[from] CaError),
    #[error("too many calls at once")]
    Busy,
}

impl EnrolmentService {
    /// Issues certificates that last for `life`.
    pub fn new(
        authorizer: Authorizer,
        authorities: Authorities,
        tokens: Arc<dyn Tokens>,
        life: Duration,
    ) -> Self {
        let (permits, log) = (Semaphore::new(CONCURRENT), LogLimit::default());
        Self {
            authorizer,
            authorities,
            tokens,
            life,
            deadline: DEADLINE,
            permits,
            log,
            calls: Mutex::new(ClusterRateLimiter::new(CALLS, CALL_EVERY)),
            copy_keys: None,
        }
    }

    /// Also gives out the keys that prove copies, while `term` holds a term.
    #[must_use]
    pub fn with_copy_keys(self, keys: Arc<CopyKeys>, term: Term) -> Self {
        Self { copy_keys: Some((keys, term)), ..self }
    }

    /// Replaces the deadline of an enrolment.
    #[must_use]
    pub fn within(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    async fn try_enrol(&self, request: &EnrolRequest) -> Result<Certificate, EnrolmentError> {
        let token: Token = request.token.parse()?;
        self.tokens.is_known(&token, &request.csr, self.authorizer.now()).await?;
        // From here on the caller holds a good token.
        let _permit = self.permits.try_acquire().map_err(|_| EnrolmentError::Busy)?;
        let identity = self.authorizer.identity(&token.cluster).await?;
        // Issue first, so that a bad request costs no token. The certificate leaves only after the
        // token is used up.
        let certificate = self.issue(&request.csr, &identity)?;
        self.tokens.redeem(&token, &request.csr, self.authorizer.now()).await?;
        tracing::info!(cluster = identity.cluster, token = token.id, "agent enrolled");
        Ok(certificate)
    }

    /// The identity of a caller that may act for its cluster.
    async fn caller<T>(
        &self,
        request: &Request<T>,
    ) -> Result<Arc<ClusterIdentity>, EnrolmentError> {
        match request.extensions().get::<Peer>() {
            Some(caller) => {
                let identity = self.authorizer.caller(caller).await?;
                let admitted = self.calls.lock().admit(&identity.cluster, Instant::now());
                admitted.map_err(|_| EnrolmentError::Busy)?;
                Ok(identity)
            }
            None => Err(CallerRefusal::NoCertificate.into()),
        }
    }

    /// Whether a refusal may be logged. Returns the number of lines suppressed before.
    fn may_log(&self) -> Option<u64> {
        self.log.admit(Instant::now())
    }

    fn issue(&self, csr: &[u8], identity: &ClusterIdentity) -> Result<Certificate, CaError> {
        let authority = self.authorities.borrow().clone();
        let (leaf, not_after) =
            authority.signer().issue_agent(csr, identity, self.life, self.authorizer.now())?;
        Ok(Certificate {
            chain: vec![leaf.to_vec()],
            trust: authority.trusted().iter().map(|certificate| certificate.to_vec()).collect(),
            not_after: Some(prost_types::Timestamp { seconds: not_after.as_second(), nanos: 0 }),
            cluster: identity.cluster.clone(),
        })
    }
}

fn too_often() -> Status {
    Status::unavailable("too many calls; try again")
}

fn refused() -> Status {
    Status::permission_denied("refused")
}

/// The cluster that a caller claims to be. Unproven, for the log only.
fn claimed(request: &Request<EnrolRequest>) -> String {
    request.get_ref().token.parse().map_or_else(|_| String::new(), |token: Token| token.cluster)
}

fn socket<T>(request: &Request<T>) -> Option<SocketAddr> {
    request.extensions().get::<Peer>().map(|peer| peer.address)
}

fn audit_record(cluster: &str, who: Actor, why: String, result: AuditOutcome) -> AuditRecord {
    AuditRecord {
        operation: AuditOperation::Enrol,
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
                let who = Actor::Enrolled(certificate.cluster.clone(), socket(&request));
                audit_record(
                    &certificate.cluster,
                    who,
                    "a join token was used up".to_owned(),
                    AuditOutcome::Accepted,
                )
                .write();
                Ok(Response::new(certificate))
            }
            Ok(Err(EnrolmentError::Busy)) => {
                Err(Status::unavailable("too many enrolments at once; try again"))
            }
            Ok(Err(EnrolmentError::Redeem(
                error @ (RedeemError::Api(_) | RedeemError::Late | RedeemError::Contended),
            ))) => {
                // The hub failed, not the caller: the same token and key may be tried again.
                if let Some(left_out) = self.may_log() {
                    let (cluster, error) = (claimed(&request), error.to_string());
                    tracing::error!(%peer, error, left_out, "enrolment failed");
                    let who = Actor::Claimed(cluster.clone(), socket(&request));
                    audit_record(&cluster, who, error, AuditOutcome::Failed).write();
                }
                Err(Status::unavailable("try again"))
            }
            Ok(Err(reason)) => {
                if let Some(left_out) = self.may_log() {
                    // Logged as a value, so that a caller's text cannot break the line.
                    let (cluster, reason) = (claimed(&request), reason.to_string());
                    tracing::warn!(%peer, cluster, reason, left_out, "enrolment refused");
                    let who = Actor::Claimed(cluster.clone(), socket(&request));
                    audit_record(&cluster, who, reason, AuditOutcome::Refused).write();
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
            Err(EnrolmentError::Busy) => Err(too_often()),
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
            Err(EnrolmentError::Busy) => return Err(too_often()),
            Err(reason) => {
                if let Some(left_out) = self.may_log() {
                    let (peer, reason) = (address(&request), reason.to_string());
                    tracing::warn!(%peer, reason, left_out, "key of copies not given");
                }
                return Err(refused());
            }
        };
        // Only the leader shows in a condition why a key is not enforced.
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
