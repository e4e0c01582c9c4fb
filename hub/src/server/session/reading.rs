//! The reading half of a session: messages are checked, coalesced, and sent to the dispatcher's
//! task.

use futures::{Stream, StreamExt as _};
use switchyard_platform::log_limit::LogLimit;
use switchyard_proto::room;
use switchyard_proto::v1::{AgentMessage, Observation, Observed, agent_message};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::super::observation_check;
use super::super::pending_reports::PendingReports;
use super::super::session_limits::{self, BATCH, ChangeLimiter, MessagePacer, SessionBudget};
use super::{PingSignal, SessionEvent, Sessions};
use crate::cluster_channel::ClusterChannel;
use crate::cluster_channel::inbound::Accepted;
use crate::limits::MAX_WORKLOADS;

impl Sessions {
    /// Reads until the session ends. It may wait for the dispatcher's task and, to answer a ping,
    /// for the writing half, which has a deadline.
    pub(super) async fn read(
        &self,
        cluster: &str,
        channel: &ClusterChannel,
        session_id: u64,
        inbound: &mut (impl Stream<Item = Result<AgentMessage, String>> + Unpin),
        signals: mpsc::Sender<PingSignal>,
    ) -> String {
        let (budget, mut pacer, mut changes) =
            (SessionBudget::new(), MessagePacer::new(), ChangeLimiter::default());
        let (mut pending, log) = (PendingReports::new(), LogLimit::default());
        loop {
            if self.pass_on(cluster, session_id, &mut pending, &budget).await.is_err() {
                return "the hub is shutting down".into();
            }
            let due = pending.due();
            let message = tokio::select! {
                biased;
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => continue,
                message = inbound.next() => message,
            };
            pacer.wait().await;
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
                    let inventory = match channel.accept(session_id, &observed) {
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
                    pending.add_observations(&observed.observations);
                    if let Some(inventory) = inventory {
                        pending.set_inventory(crate::cluster_channel::channel::uids(&inventory));
                    }
                    // The inventory goes with these observations if it may go now.
                    let inventory = pending.take_inventory(Instant::now());
                    let told = self
                        .observed(cluster, session_id, observed.observations, inventory, &budget)
                        .await;
                    if told.is_err() {
                        return "the hub is shutting down".into();
                    }
                    continue;
                }
                Some(agent_message::Kind::Capacity(mut capacity)) => {
                    let wrong = room::check(&mut capacity);
                    self.registry.count_wrong_rooms(cluster, wrong);
                    if wrong > 0
                        && let Some(left_out) = log.admit(Instant::now())
                    {
                        tracing::warn!(
                            cluster,
                            wrong,
                            left_out,
                            "a report of room on nodes is out of bounds: dropped or clamped"
                        );
                    }
                    pending.set_capacity(capacity);
                    continue;
                }
                Some(agent_message::Kind::DesiredAck(revision)) => {
                    channel.acked(session_id, revision);
                    continue;
                }
                Some(agent_message::Kind::Digest(digest)) => {
                    let drifted = channel.digest(session_id, &digest);
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
                    if signals.send(PingSignal::Asked(ping.nonce)).await.is_err() {
                        return "the hub ended it".into();
                    }
                    if !changes
                        .try_change(|| self.registry.set_able(cluster, session_id, !ping.unable))
                    {
                        continue;
                    }
                    SessionEvent::Able {
                        cluster: cluster.to_owned(),
                        session_id,
                        able: !ping.unable,
                    }
                }
                Some(agent_message::Kind::Pong(pong)) => {
                    if signals.send(PingSignal::Answered(pong.nonce)).await.is_err() {
                        return "the hub ended it".into();
                    }
                    continue;
                }
                Some(agent_message::Kind::Hello(_)) => return "a second Hello".into(),
                // Message kinds of later versions.
                None => continue,
            };
            if self.events.send(event).await.is_err() {
                return "the hub is shutting down".into();
            }
        }
    }

    /// Drops and truncates bad observations, counts them, and logs.
    fn check(&self, cluster: &str, observed: &mut Observed, log: &LogLimit) {
        let observation_check::CheckResult { dropped, wrong, cut } =
            observation_check::check(observed);
        self.registry.count_dropped(cluster, dropped);
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

    /// Sends the dispatcher the pending reports that may go now.
    async fn pass_on(
        &self,
        cluster: &str,
        session_id: u64,
        pending: &mut PendingReports,
        budget: &SessionBudget,
    ) -> Result<(), mpsc::error::SendError<SessionEvent>> {
        if let Some(inventory) = pending.take_inventory(Instant::now()) {
            self.observed(cluster, session_id, Vec::new(), Some(inventory), budget).await?;
        }
        if let Some(capacity) = pending.take_capacity(Instant::now()) {
            let weight = budget.take(prost::Message::encoded_len(&capacity)).await;
            let cluster = cluster.to_owned();
            self.events
                .send(SessionEvent::Capacity { cluster, session_id, capacity, weight })
                .await?;
        }
        Ok(())
    }

    /// Sends observations to the dispatcher in batches, each as soon as the session's budget
    /// allows.
    async fn observed(
        &self,
        cluster: &str,
        session_id: u64,
        mut observations: Vec<Observation>,
        mut inventory: Option<switchyard_dispatcher::Uids>,
        budget: &SessionBudget,
    ) -> Result<(), mpsc::error::SendError<SessionEvent>> {
        loop {
            let rest = observations.split_off(observations.len().min(BATCH));
            let inventory = if rest.is_empty() { inventory.take() } else { None };
            let weight = budget.take(session_limits::weight(&observations)).await;
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
