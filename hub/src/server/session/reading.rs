//! The reading half: what an agent says, checked, coalesced, and told to the dispatcher's task.

use futures::{Stream, StreamExt as _};
use switchyard_platform::log_limit::LogLimit;
use switchyard_proto::v1::{AgentMessage, Observation, Observed, agent_message};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::super::newest::Newest;
use super::super::observation_check;
use super::super::session_limits::{self, AT_ONCE, Pace, Share, Turns};
use super::{Control, SessionEvent, Sessions};
use crate::cluster_channel::Port;
use crate::cluster_channel::inbound::Accepted;
use crate::limits::MAX_WORKLOADS;

impl Sessions {
    /// Reads until the session ends. Waits for the dispatcher's task, and, to answer a ping, for the writing half, which
    /// has a deadline.
    pub(super) async fn read(
        &self,
        cluster: &str,
        port: &Port,
        session_id: u64,
        inbound: &mut (impl Stream<Item = Result<AgentMessage, String>> + Unpin),
        control: mpsc::Sender<Control>,
    ) -> String {
        let (share, mut pace, mut turns) = (Share::new(), Pace::new(), Turns::default());
        let (mut newest, log) = (Newest::new(), LogLimit::default());
        loop {
            if self.pass_on(cluster, session_id, &mut newest, &share).await.is_err() {
                return "the hub is shutting down".into();
            }
            let due = newest.due();
            let message = tokio::select! {
                biased;
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => continue,
                message = inbound.next() => message,
            };
            pace.keep().await;
            let message = match message {
                Some(Ok(message)) => message,
                Some(Err(error)) => return format!("the connection failed: {error}"),
                None => return "the agent ended it".into(),
            };
            if message.session_id != session_id {
                tracing::debug!(
                    cluster,
                    session = message.session_id,
                    "message of another session dropped"
                );
                continue;
            }
            let event = match message.kind {
                Some(agent_message::Kind::Observed(mut observed)) => {
                    self.check(cluster, &mut observed, &log);
                    let inventory = match port.accept(session_id, &observed) {
                        Some(Accepted::Take { inventory }) => inventory,
                        Some(Accepted::Repeated) => continue,
                        Some(Accepted::Gap { expected }) => {
                            return format!(
                                "observations are missing: expected {expected}, got {}",
                                observed.sequence
                            );
                        }
                        Some(Accepted::TooMany) => {
                            return format!("it speaks of more than {MAX_WORKLOADS} workloads");
                        }
                        None => return "superseded".into(),
                    };
                    newest.hear_observations(&observed.observations);
                    if let Some(inventory) = inventory {
                        newest.hear_inventory(crate::cluster_channel::port::uids(&inventory));
                    }
                    // With the first observations that it names, if it may go at once.
                    let inventory = newest.take_inventory(Instant::now());
                    let told = self
                        .observed(cluster, session_id, observed.observations, inventory, &share)
                        .await;
                    if told.is_err() {
                        return "the hub is shutting down".into();
                    }
                    continue;
                }
                Some(agent_message::Kind::Capacity(capacity)) => {
                    newest.hear_capacity(capacity);
                    continue;
                }
                Some(agent_message::Kind::DesiredAck(revision)) => {
                    port.acked(session_id, revision);
                    continue;
                }
                Some(agent_message::Kind::Digest(digest)) => {
                    let drifted = port.digest(session_id, &digest);
                    if drifted > 0
                        && let Some(left_out) = log.admit(Instant::now())
                    {
                        let buckets = drifted;
                        tracing::warn!(
                            cluster,
                            buckets,
                            left_out,
                            "observed state has drifted, asking for it again"
                        );
                    }
                    continue;
                }
                Some(agent_message::Kind::Ping(ping)) => {
                    if control.send(Control::Asked(ping.nonce)).await.is_err() {
                        return "the hub ended it".into();
                    }
                    if !turns.turn(|| self.registry.set_able(cluster, session_id, !ping.unable)) {
                        continue;
                    }
                    SessionEvent::Able {
                        cluster: cluster.to_owned(),
                        session_id,
                        able: !ping.unable,
                    }
                }
                Some(agent_message::Kind::Pong(pong)) => {
                    if control.send(Control::Answered(pong.nonce)).await.is_err() {
                        return "the hub ended it".into();
                    }
                    continue;
                }
                Some(agent_message::Kind::Hello(_)) => return "a second Hello".into(),
                // Kinds of later versions.
                None => continue,
            };
            if self.events.send(event).await.is_err() {
                return "the hub is shutting down".into();
            }
        }
    }

    /// Drops and cuts what cannot be taken as it is, and says so.
    fn check(&self, cluster: &str, observed: &mut Observed, log: &LogLimit) {
        let observation_check::Checked { dropped, wrong, cut } = observation_check::check(observed);
        self.registry.note_dropped(cluster, dropped);
        if (dropped > 0 || cut > 0)
            && let Some(left_out) = log.admit(Instant::now())
        {
            tracing::warn!(
                cluster,
                dropped,
                wrong,
                cut,
                left_out,
                "observations dropped, or shown without all they said"
            );
        }
    }

    /// Tells the dispatcher the newest reports that may go now.
    async fn pass_on(
        &self,
        cluster: &str,
        session_id: u64,
        newest: &mut Newest,
        share: &Share,
    ) -> Result<(), mpsc::error::SendError<SessionEvent>> {
        if let Some(inventory) = newest.take_inventory(Instant::now()) {
            self.observed(cluster, session_id, Vec::new(), Some(inventory), share).await?;
        }
        if let Some(capacity) = newest.take_capacity(Instant::now()) {
            let weight = share.take(prost::Message::encoded_len(&capacity)).await;
            let cluster = cluster.to_owned();
            self.events
                .send(SessionEvent::Capacity { cluster, session_id, capacity, weight })
                .await?;
        }
        Ok(())
    }

    /// Tells the dispatcher what an agent has observed, in parts, each as soon as the session's share allows.
    async fn observed(
        &self,
        cluster: &str,
        session_id: u64,
        mut observations: Vec<Observation>,
        mut inventory: Option<switchyard_dispatcher::Uids>,
        share: &Share,
    ) -> Result<(), mpsc::error::SendError<SessionEvent>> {
        loop {
            let rest = observations.split_off(observations.len().min(AT_ONCE));
            let inventory = if rest.is_empty() { inventory.take() } else { None };
            let weight = share.take(session_limits::size(&observations)).await;
            let cluster = cluster.to_owned();
            self.events
                .send(SessionEvent::Observed {
                    cluster,
                    session_id,
                    observations,
                    inventory,
                    weight,
                })
                .await?;
            if rest.is_empty() {
                return Ok(());
            }
            observations = rest;
        }
    }
}
