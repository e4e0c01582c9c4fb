//! The ledger's messages to the hub: acknowledgements, the inventory, observations, the digest.

use switchyard_proto::digest::bucket;
use switchyard_proto::v1::{Observation, Observed, State, agent_message};

use super::session::ReportedState;
use super::{Ledger, reschedule};
use crate::entry::{EndedAttempt, content, has_job};
use crate::objects::Time;

/// The most observations of one message.
const MAX_OBSERVATIONS: usize = 256;
/// The approximate size at which a message ends, in bytes.
const MAX_BYTES: usize = 1024 * 1024;

impl Ledger {
    /// The next message to the hub, if one is due.
    pub fn next_message(&mut self, now: Time) -> Option<agent_message::Kind> {
        let session = self.session.as_mut()?;
        session.id()?;
        if let Some(revision) = session.desired_ack.take() {
            return Some(agent_message::Kind::DesiredAck(revision));
        }
        if session.inventory.is_some() {
            return self
                .synced
                .then(|| self.next_inventory(now))
                .flatten()
                .map(agent_message::Kind::Observed);
        }
        if let Some(observed) = self.next_reports(now) {
            return Some(agent_message::Kind::Observed(observed));
        }
        self.session.as_mut()?.digest(now).map(agent_message::Kind::Digest)
    }

    /// The next part of the inventory: each workload's current observation, without earlier states.
    fn next_inventory(&mut self, now: Time) -> Option<Observed> {
        let mut left = self.session.as_mut()?.inventory.take()?;
        let mut observations = Vec::new();
        let mut bytes = 0;
        while observations.len() < MAX_OBSERVATIONS && bytes < MAX_BYTES {
            let Some(uid) = left.pop_front() else { break };
            let desired = self.desired.get(&uid);
            let Some(entry) = self.entries.get_mut(&uid) else { continue };
            let Some(observation) = entry.inventory_observation(desired) else {
                self.drop_if_finished(&uid);
                continue;
            };
            entry.report.queue.clear();
            entry.report.latest =
                Some((observation.attempt, observation.state(), content(&observation)));
            entry.report.has_job = has_job(&observation);
            bytes += encoded_size(&observation);
            observations.push(self.mark_reported(observation, now));
        }
        let more = !left.is_empty();
        let session = self.session.as_mut()?;
        session.inventory = more.then_some(left);
        Some(Observed { sequence: session.sequence, inventory: true, observations, more })
            .map(|it| self.with_sequence(it))
    }

    fn next_reports(&mut self, now: Time) -> Option<Observed> {
        let mut observations = Vec::new();
        let mut bytes = 0;
        while observations.len() < MAX_OBSERVATIONS && bytes < MAX_BYTES {
            let Some((at, uid)) = self.due.first().cloned().filter(|(at, _)| *at <= now) else {
                break;
            };
            self.due.remove(&(at, uid.clone()));
            let Some(entry) = self.entries.get_mut(&uid) else { continue };
            entry.report.due = None;
            for observation in std::mem::take(&mut entry.report.queue) {
                bytes += encoded_size(&observation);
                observations.push(self.mark_reported(observation, now));
            }
            self.drop_if_finished(&uid);
        }
        if observations.is_empty() {
            return None;
        }
        Some(self.with_sequence(Observed {
            sequence: 0,
            inventory: false,
            observations,
            more: false,
        }))
    }

    /// Records that the message under construction reports this observation.
    fn mark_reported(&mut self, observation: Observation, now: Time) -> Observation {
        let uid = observation.workload_uid.clone();
        let state = (observation.attempt, observation.state());
        let Some(entry) = self.entries.get_mut(&uid) else { return observation };
        if let Some(session) = &mut self.session {
            session.update_digest(&uid, entry.report.sent, Some(state));
            let end = entry
                .end
                .as_mut()
                .filter(|end| (end.observation.attempt, end.observation.state()) == state);
            let ends = end.is_some_and(EndedAttempt::note_reported);
            if ends || state.1 == State::Gone {
                let reported = ReportedState { uid, attempt: state.0, state: state.1 };
                session.unacknowledged.entry(session.sequence + 1).or_default().push(reported);
            }
        }
        entry.report.repeated = entry.report.sent == Some(state);
        entry.report.sent = Some(state);
        entry.report.trim(observation, now)
    }

    fn with_sequence(&mut self, mut observed: Observed) -> Observed {
        if let Some(session) = &mut self.session {
            session.sequence += 1;
            observed.sequence = session.sequence;
        }
        observed
    }

    /// Queues full reports of these buckets; of all if `buckets` is empty.
    pub(crate) fn resend(&mut self, buckets: &[u32], now: Time) {
        let uids: Vec<String> = self.entries.keys().cloned().collect();
        for uid in uids {
            if !buckets.is_empty() && !buckets.contains(&u32::from(bucket(&uid))) {
                continue;
            }
            if let Some(entry) = self.entries.get_mut(&uid) {
                entry.report.latest = None;
                entry.report.sent_status = (0, 0);
                entry.report.sent_at = Time::ZERO;
            }
            // This observes only: resending plans no action.
            let desired = self.desired.get(&uid);
            let Some(entry) = self.entries.get_mut(&uid) else { continue };
            if let Some(observation) = entry.observe(desired).filter(|_| self.synced) {
                entry.report(observation, now);
            }
            let due = entry.report.next();
            reschedule(&mut self.due, &mut entry.report.due, &uid, due);
        }
    }
}

fn encoded_size(observation: &Observation) -> usize {
    let reasons: usize =
        observation.reasons.iter().map(|reason| reason.code.len() + reason.message.len()).sum();
    let troubles: usize = observation.troubles.iter().map(|it| it.message.len() + 64).sum();
    troubles + observation.job_status.len() + observation.workload_status.len() + reasons + 128
}
