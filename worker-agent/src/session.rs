//! Keeps one session with the hub: dials, gives the core a link, and pumps messages until either
//! end closes.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use switchyard_platform::lease::Leadership;
use switchyard_proto::v1::agent_client::AgentClient;
use switchyard_proto::v1::{Goodbye, HubMessage, hub_message};
use switchyard_proto::{MAX_MESSAGE, VERSIONS};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, Streaming};

use crate::identity::Identity;
use crate::link::{self, Link};
use crate::reconnect_delay::ReconnectDelay;
use crate::route::Route;
use crate::tls;

/// The deadline for `Welcome`.
const WELCOME_DEADLINE: Duration = Duration::from_secs(15);
/// The deadline for the core to accept a message. The core waits only for its own channels.
const CORE_DEADLINE: Duration = Duration::from_secs(30);

const REFUSED: &str = "the hub refuses this cluster's certificate; if that stays so, its MultiKueueCluster was deleted, or made again: `switchyard cluster add` gives the agent a new token";

/// The state of the session, for health endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionState {
    Down {
        since: Timestamp,
        reason: String,
    },
    /// The hub has sent `Welcome`.
    Up {
        since: Timestamp,
        session_id: u64,
    },
}

impl SessionState {
    /// The state at the start of the process.
    pub fn initial() -> Self {
        Self::Down { since: Timestamp::now(), reason: "not dialled yet".to_owned() }
    }

    pub fn is_up(&self) -> bool {
        matches!(self, Self::Up { .. })
    }
}

/// How a session ended, or why none opened.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The agent stops.
    Shutdown,
    /// The hub closed the stream, or the connection broke.
    Lost(String),
    /// The core closed the session after an error, which it logged.
    ByCore,
    /// The hub ended the session.
    Goodbye { reason: String, retry_after: Option<Duration> },
    /// The replica of the hub does not lead.
    Standby(String),
    /// The hub refuses the certificate. It may not know the `MultiKueueCluster` yet.
    Refused,
    /// Another try fails until an administrator acts.
    Hopeless(String),
}

/// The inputs of a dialler.
pub struct Dialler {
    pub hub: Route,
    /// Each dial uses the newest identity.
    pub identity: Arc<ArcSwap<Identity>>,
    /// Receives the link of each session.
    pub links: mpsc::Sender<Link>,
    /// Publishes the state of the session.
    pub state: watch::Sender<SessionState>,
    /// Dials only while this replica leads; none: always.
    pub leadership: Option<watch::Receiver<Leadership>>,
    /// Uniform in 0..1, for jitter.
    pub random: Box<dyn Fn() -> f64 + Send + Sync>,
}

impl Dialler {
    /// Keeps a session until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut delay = ReconnectDelay::default();
        loop {
            if !self.may_dial(&shutdown).await {
                return self.down("shutting down".to_owned());
            }
            let end = self.session(&shutdown).await;
            if self.state.borrow().is_up() {
                delay.reset();
            }
            let random = (self.random)();
            let (reason, wait) = match end {
                End::Shutdown => return self.down("shutting down".to_owned()),
                End::Lost(reason) => (reason, delay.next(random)),
                End::ByCore => ("given up by the agent".to_owned(), delay.next(random)),
                End::Goodbye { reason, retry_after } => {
                    let wait = match retry_after {
                        Some(after) => delay.asked(after, random),
                        None => delay.next(random),
                    };
                    (format!("the hub said goodbye: {reason}"), wait)
                }
                End::Standby(reason) => (reason, delay.standby(random)),
                End::Refused => (REFUSED.to_owned(), delay.refused(random)),
                End::Hopeless(reason) => (reason, delay.hopeless(random)),
            };
            tracing::warn!(hub = %self.hub.hub, reason, ?wait, "no session, will dial again");
            self.down(reason);
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Waits until this replica is certain to lead. Returns false at shutdown.
    async fn may_dial(&self, shutdown: &CancellationToken) -> bool {
        let Some(mut leadership) = self.leadership.clone() else { return true };
        tokio::select! {
            () = shutdown.cancelled() => false,
            // If the sender is gone, the process ends.
            led = leadership.wait_for(|it| it.leading) => led.is_ok(),
        }
    }

    fn down(&self, reason: String) {
        self.state.send_replace(SessionState::Down { since: Timestamp::now(), reason });
    }

    async fn session(&self, shutdown: &CancellationToken) -> End {
        tokio::select! {
            () = shutdown.cancelled() => End::Shutdown,
            end = self.dial_and_pump() => end,
        }
    }

    async fn dial_and_pump(&self) -> End {
        let identity = self.identity.load_full();
        if identity.expired(self.hub.clock.now()) {
            return End::Hopeless(format!(
                "this cluster's certificate has ended; `switchyard cluster add {}`, on the hub, gives the agent a new token",
                identity.cluster
            ));
        }
        let channel = match tls::with_identity(&identity, &self.hub.clock) {
            Ok(config) => tls::connect(&self.hub, config).await,
            Err(error) => Err(error),
        };
        let channel = match channel {
            Ok(channel) => channel,
            Err(error) => return End::Lost(error.to_string()),
        };
        let mut client = AgentClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let (link, hub_end) = link::pair();
        if self.links.send(link).await.is_err() {
            return End::Shutdown;
        }
        // The hub answers after it read Hello, which the core sends on the new link.
        let opening = client.session(ReceiverStream::new(hub_end.to_hub));
        let stream = match tokio::time::timeout(WELCOME_DEADLINE, opening).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) if status.code() == Code::Unavailable => {
                return End::Standby(tls::said(&status));
            }
            Ok(Err(status)) => return refused(&status),
            Err(_) => {
                return End::Lost(format!("the hub did not answer within {WELCOME_DEADLINE:?}"));
            }
        };
        self.pump(stream, hub_end.to_agent).await
    }

    async fn pump(&self, mut stream: Streaming<HubMessage>, core: mpsc::Sender<HubMessage>) -> End {
        let first = match tokio::time::timeout(WELCOME_DEADLINE, next(&mut stream, &core)).await {
            Ok(Ok(first)) => first,
            Ok(Err(end)) => return end,
            Err(_) => {
                return End::Lost(format!(
                    "the hub did not say Welcome within {WELCOME_DEADLINE:?}"
                ));
            }
        };
        if let Some(end) = unwelcome(&first) {
            return end;
        }
        self.state.send_replace(SessionState::Up {
            since: Timestamp::now(),
            session_id: first.session_id,
        });
        let mut message = first;
        loop {
            if let Some(hub_message::Kind::Goodbye(goodbye)) = &message.kind {
                return farewell(goodbye);
            }
            match tokio::time::timeout(CORE_DEADLINE, core.send(message)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return End::ByCore,
                Err(_) => return End::Lost("the agent's core is stuck".to_owned()),
            }
            message = match next(&mut stream, &core).await {
                Ok(message) => message,
                Err(end) => return end,
            };
        }
    }
}

/// The next message; none once either end has closed.
async fn next(
    stream: &mut Streaming<HubMessage>,
    core: &mpsc::Sender<HubMessage>,
) -> Result<HubMessage, End> {
    tokio::select! {
        () = core.closed() => Err(End::ByCore),
        message = stream.message() => match message {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(End::Lost("the hub closed the session".to_owned())),
            Err(status) => Err(refused(&status)),
        },
    }
}

/// Why the first message opens no session.
fn unwelcome(first: &HubMessage) -> Option<End> {
    match &first.kind {
        Some(hub_message::Kind::Welcome(welcome)) if VERSIONS.contains(&welcome.version) => None,
        Some(hub_message::Kind::Welcome(welcome)) => Some(End::Hopeless(format!(
            "the hub speaks protocol version {}, this agent {} to {}: install an agent of the hub's release",
            welcome.version,
            VERSIONS.start(),
            VERSIONS.end()
        ))),
        Some(hub_message::Kind::Goodbye(goodbye)) => Some(farewell(goodbye)),
        _ => Some(End::Lost("the hub's first message was not Welcome".to_owned())),
    }
}

fn farewell(goodbye: &Goodbye) -> End {
    let retry_after = goodbye.retry_after.and_then(|after| after.try_into().ok());
    End::Goodbye { reason: goodbye.reason.clone(), retry_after }
}

fn refused(status: &Status) -> End {
    match status.code() {
        Code::PermissionDenied | Code::Unauthenticated => End::Refused,
        Code::FailedPrecondition => End::Hopeless(format!(
            "the hub and this agent (protocol {} to {}) do not fit together: {}",
            VERSIONS.start(),
            VERSIONS.end(),
            status.message()
        )),
        _ => End::Lost(tls::said(status)),
    }
}

#[cfg(test)]
mod tests;
