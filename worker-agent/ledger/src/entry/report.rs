//! The observations of a workload that wait to be sent, and when they may be sent.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use switchyard_proto::v1::{Observation, State};

use super::Entry;
use crate::admission::UNSEEN;
use crate::objects::Time;

/// The shortest time between two reports of the same state, except for the second report of a
/// running job.
const STATUS_INTERVAL: Time = Time::from_secs(1);
/// How long `RUNNING` waits for the job's first status, and `WAITING` for admission's first answer.
/// Both follow at once, and each report costs the hub a write.
const FIRST_STATUS: Time = Time::from_millis(250);
/// The most queued states of one workload. Beyond it, the oldest are dropped.
const MAX_QUEUE: usize = 16;

/// The reports of one workload.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The unsent observations, oldest first. Neighbours differ in attempt or state.
    pub(crate) queue: VecDeque<Observation>,
    /// The newest observation, queued or sent: attempt, state and a hash of the rest.
    pub(crate) latest: Option<(u64, State, u64)>,
    /// The newest `Origin.has_job` of this session.
    pub(crate) has_job: Option<bool>,
    /// When the newest observation was queued.
    pub(crate) queued_at: Time,
    /// The state last sent in this session.
    pub(crate) sent: Option<(u64, State)>,
    /// Whether that state was sent more than once.
    pub(crate) repeated: bool,
    /// Hashes of the job and Workload statuses last sent in this session; zero before the first.
    pub(crate) sent_status: (u64, u64),
    pub(crate) sent_at: Time,
    /// The time of this entry in the ledger's `due`.
    pub(crate) due: Option<Time>,
}

impl Entry {
    /// Queues an observation if it says something new.
    pub(crate) fn report(&mut self, observation: Observation, now: Time) {
        let latest = (observation.attempt, observation.state(), content(&observation));
        let report = &mut self.report;
        // A hub that lost its assignments decides by the origin, and by whether there is a job.
        let has_news_of_job = has_job(&observation).is_some_and(|now| report.has_job != Some(now));
        if report.latest == Some(latest) && !has_news_of_job {
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
    /// When the queue may be sent. A new state is due at once, unless it is about to change.
    pub(crate) fn next(&self) -> Option<Time> {
        let first = self.queue.front()?;
        Some(match first.state() {
            _ if self.queue.len() > 1 => Time::ZERO,
            state if self.sent == Some((first.attempt, state)) => {
                let again = self.sent_at + STATUS_INTERVAL;
                // A first pod is mostly ready just after the job was observed to have pods.
                let quick = state == State::Running && !self.repeated;
                if quick { again.min(self.queued_at + FIRST_STATUS) } else { again }
            }
            State::Running => self.queued_at + FIRST_STATUS,
            // Admission is about to consider it.
            State::Waiting if first.reasons.iter().all(|reason| reason.code == UNSEEN) => {
                self.queued_at + FIRST_STATUS
            }
            _ => Time::ZERO,
        })
    }

    /// Clears everything: the next session begins with an inventory, and the hub then knows
    /// nothing.
    pub(crate) fn forget_session(&mut self) {
        self.queue.clear();
        (self.latest, self.has_job) = (None, None);
        self.sent = None;
        self.repeated = false;
        self.sent_status = (0, 0);
    }

    /// Removes the statuses that the hub has, and records the others as sent.
    pub(crate) fn trim(&mut self, mut observation: Observation, now: Time) -> Observation {
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

pub(crate) fn has_job(observation: &Observation) -> Option<bool> {
    observation.origin.as_ref().map(|origin| origin.has_job)
}

pub(crate) fn content(observation: &Observation) -> u64 {
    let mut hasher = DefaultHasher::new();
    for reason in &observation.reasons {
        (&reason.code, &reason.message).hash(&mut hasher);
    }
    (&observation.job_status, &observation.workload_status).hash(&mut hasher);
    for trouble in &observation.troubles {
        (&trouble.reason, &trouble.message, trouble.count).hash(&mut hasher);
    }
    observation.no_ready_pod.hash(&mut hasher);
    if let Some(gate) = &observation.preemption_gate {
        (gate.opened_at(), gate.blocked_since()).hash(&mut hasher);
    }
    hasher.finish()
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    // Zero means that nothing was sent yet.
    hasher.finish().max(1)
}
