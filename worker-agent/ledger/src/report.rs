//! What the hub is told, and when: states in order and at once, mere status now and then.

use std::hash::{DefaultHasher, Hash, Hasher};

use switchyard_proto::digest::bucket;
use switchyard_proto::v1::{Observation, Observed, State, agent_message};

use super::Ledger;
use super::entry::{Entry, Report};
use super::model::Time;
use super::session::Told;
use super::verdict::UNSEEN;

/// The least time between two reports of a workload whose state is the same, but for the second of a running one.
const STATUS_INTERVAL: Time = Time::from_secs(1);
/// How long `RUNNING` waits for the job's first status, and `WAITING` for admission's first word, which follow at once:
/// each report costs the hub a write.
const FIRST_STATUS: Time = Time::from_millis(250);
/// States of one workload that may wait to be sent. Beyond it the oldest go.
const MAX_QUEUE: usize = 16;
/// Observations in one message.
const MAX_OBSERVATIONS: usize = 256;
/// Bytes of status in one message, about.
const MAX_BYTES: usize = 1024 * 1024;

impl Entry {
    /// Puts a new observation into the queue, if it says something new.
    pub(super) fn report(&mut self, observation: Observation, now: Time) {
        let latest = (observation.attempt, observation.state(), content(&observation));
        let report = &mut self.report;
        // The hub goes by whether there is a job, where it has forgotten what it wanted.
        let other_job =
            has_job(&observation).is_some_and(|now| report.has_job.is_some_and(|then| then != now));
        if report.latest == Some(latest) && !other_job {
            return;
        }
        report.has_job = has_job(&observation).or(report.has_job);
        report.latest = Some(latest);
        let (attempt, state, _) = latest;
        match report.queue.back_mut() {
            Some(last) if last.attempt == attempt && last.state() == state => *last = observation,
            _ => {
                report.queue.push_back(observation);
                report.queued_at = now;
            }
        }
        if report.queue.len() > MAX_QUEUE {
            report.queue.pop_front();
        }
    }
}

impl Report {
    /// When the queue may be sent: a new state at once, but for what is about to change.
    pub(super) fn next(&self) -> Option<Time> {
        let first = self.queue.front()?;
        Some(match first.state() {
            _ if self.queue.len() > 1 => Time::ZERO,
            state if self.sent == Some((first.attempt, state)) => {
                let again = self.sent_at + STATUS_INTERVAL;
                // A first pod is mostly ready right after the job was seen to have pods.
                let quick = state == State::Running && !self.repeated;
                if quick { again.min(self.queued_at + FIRST_STATUS) } else { again }
            }
            State::Running => self.queued_at + FIRST_STATUS,
            // Admission has not looked yet, and is about to.
            State::Waiting if first.reasons.iter().all(|reason| reason.code == UNSEEN) => {
                self.queued_at + FIRST_STATUS
            }
            _ => Time::ZERO,
        })
    }

    /// The next session begins with the inventory, and the hub then knows nothing.
    pub(super) fn forget_session(&mut self) {
        self.queue.clear();
        (self.latest, self.has_job) = (None, None);
        self.sent = None;
        self.repeated = false;
        self.sent_status = (0, 0);
    }

    /// Leaves out the statuses the hub has, and remembers what it is told.
    fn trim(&mut self, mut observation: Observation, now: Time) -> Observation {
        let hashes = (hash(&observation.job_status), hash(&observation.workload_status));
        if self.sent_status.0 == hashes.0 {
            observation.job_status.clear();
        }
        if self.sent_status.1 == hashes.1 {
            observation.workload_status.clear();
        }
        self.sent_status = hashes;
        self.sent_at = now;
        observation
    }
}

impl Ledger {
    /// The next message to the hub, if there is one now.
    pub fn outgoing(&mut self, now: Time) -> Option<agent_message::Kind> {
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

    /// Another part of the inventory: what is known of every workload, without what led to it.
    fn next_inventory(&mut self, now: Time) -> Option<Observed> {
        let mut left = self.session.as_mut()?.inventory.take()?;
        let mut observations = Vec::new();
        let mut bytes = 0;
        while observations.len() < MAX_OBSERVATIONS && bytes < MAX_BYTES {
            let Some(uid) = left.pop_front() else { break };
            let want = self.wants.get(&uid);
            let Some(entry) = self.entries.get_mut(&uid) else { continue };
            let Some(observation) = entry.stock(want) else {
                self.forget_if_over(&uid);
                continue;
            };
            entry.report.queue.clear();
            entry.report.latest =
                Some((observation.attempt, observation.state(), content(&observation)));
            entry.report.has_job = has_job(&observation);
            bytes += size(&observation);
            observations.push(self.tell(observation, now));
        }
        let more = !left.is_empty();
        let session = self.session.as_mut()?;
        session.inventory = more.then_some(left);
        Some(Observed { sequence: session.sequence, inventory: true, observations, more })
            .map(|it| self.sequenced(it))
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
                bytes += size(&observation);
                observations.push(self.tell(observation, now));
            }
            self.forget_if_over(&uid);
        }
        if observations.is_empty() {
            return None;
        }
        Some(self.sequenced(Observed { sequence: 0, inventory: false, observations, more: false }))
    }

    /// Notes that the hub is told this in the message being made.
    fn tell(&mut self, observation: Observation, now: Time) -> Observation {
        let uid = observation.workload_uid.clone();
        let state = (observation.attempt, observation.state());
        let Some(entry) = self.entries.get_mut(&uid) else { return observation };
        if let Some(session) = &mut self.session {
            session.digest_move(&uid, entry.report.sent, Some(state));
            let ends = entry.end.as_ref().is_some_and(|end| {
                !end.settled && (end.observation.attempt, end.observation.state()) == state
            });
            if ends || state.1 == State::Gone {
                let told = Told { uid, attempt: state.0, state: state.1 };
                session.unacknowledged.entry(session.sequence + 1).or_default().push(told);
            }
        }
        entry.report.repeated = entry.report.sent == Some(state);
        entry.report.sent = Some(state);
        entry.report.trim(observation, now)
    }

    fn sequenced(&mut self, mut observed: Observed) -> Observed {
        if let Some(session) = &mut self.session {
            session.sequence += 1;
            observed.sequence = session.sequence;
        }
        observed
    }

    /// The hub lost track of these buckets (all when empty): they are told again, in full.
    pub(super) fn resend(&mut self, buckets: &[u32], now: Time) {
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
            // Nothing is to be done on the cluster that was not before.
            let want = self.wants.get(&uid);
            let Some(entry) = self.entries.get_mut(&uid) else { continue };
            if let Some(observation) = entry.observe(want).filter(|_| self.synced) {
                entry.report(observation, now);
            }
            let due = entry.report.next();
            super::relist(&mut self.due, &mut entry.report.due, &uid, due);
        }
    }
}

/// What it says of whether its job is there.
fn has_job(observation: &Observation) -> Option<bool> {
    observation.origin.as_ref().map(|origin| origin.has_job)
}

fn content(observation: &Observation) -> u64 {
    let mut hasher = DefaultHasher::new();
    for reason in &observation.reasons {
        (&reason.code, &reason.message).hash(&mut hasher);
    }
    (&observation.job_status, &observation.workload_status).hash(&mut hasher);
    for trouble in &observation.troubles {
        (&trouble.reason, &trouble.message, trouble.count).hash(&mut hasher);
    }
    if let Some(gate) = &observation.preemption_gate {
        (gate.opened.map(|at| at.seconds), gate.blocked.map(|at| at.seconds)).hash(&mut hasher);
    }
    hasher.finish()
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    // Zero stands for nothing sent yet.
    hasher.finish().max(1)
}

fn size(observation: &Observation) -> usize {
    let reasons: usize =
        observation.reasons.iter().map(|reason| reason.code.len() + reason.message.len()).sum();
    let troubles: usize = observation.troubles.iter().map(|it| it.message.len() + 64).sum();
    troubles + observation.job_status.len() + observation.workload_status.len() + reasons + 128
}
