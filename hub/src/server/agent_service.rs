//! The gRPC service that carries agent sessions.

use std::sync::Arc;

use futures::StreamExt as _;
use switchyard_platform::log_limit::LogLimit;
use switchyard_proto::v1::agent_server::Agent;
use switchyard_proto::v1::{AgentMessage, HubMessage};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::agent_connection::Peer;
use super::authorization::Authorizer;
use super::session::Sessions;

/// Messages that may wait for one agent's connection. Then the session's writer waits.
const OUTBOUND: usize = 16;

pub struct AgentService {
    authorizer: Authorizer,
    sessions: Arc<Sessions>,
    /// Limits the log lines about refused sessions.
    log: LogLimit,
}

impl AgentService {
    pub fn new(authorizer: Authorizer, sessions: Arc<Sessions>) -> Self {
        Self { authorizer, sessions, log: LogLimit::default() }
    }
}

#[tonic::async_trait]
impl Agent for AgentService {
    type SessionStream = futures::stream::Map<
        ReceiverStream<HubMessage>,
        fn(HubMessage) -> Result<HubMessage, Status>,
    >;

    async fn session(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let Some(peer) = request.extensions().get::<Peer>().cloned() else {
            return Err(Status::permission_denied("refused"));
        };
        let identity = match self.authorizer.caller(&peer).await {
            Ok(identity) => identity,
            Err(reason) => {
                if let Some(left_out) = self.log.admit(Instant::now()) {
                    let reason = reason.to_string();
                    tracing::warn!(peer = %peer.address, reason, left_out, "session refused");
                }
                return Err(Status::permission_denied("refused"));
            }
        };
        let Some(epoch) = self.sessions.epoch() else {
            return Err(Status::unavailable("this replica does not lead"));
        };
        let (outbound, messages) = mpsc::channel(OUTBOUND);
        let inbound =
            request.into_inner().map(|message| message.map_err(|status| status.to_string()));
        let (sessions, authorizer, address) =
            (self.sessions.clone(), self.authorizer.clone(), peer.address.to_string());
        tokio::spawn(async move {
            // Checked again after registration: the cluster may have been deleted since the first
            // check.
            let still = async { authorizer.admit(Some(&identity)).await.is_ok() };
            sessions.run(&identity.cluster, &address, epoch, inbound, outbound, still).await;
        });
        Ok(Response::new(
            ReceiverStream::new(messages).map(Ok as fn(HubMessage) -> Result<HubMessage, Status>),
        ))
    }
}
