//! What clusters say in their sessions, and what is kept of it.

use std::sync::Arc;

use serde_json::Value;
use switchyard_api::v1beta2::Workload;
use switchyard_proto::v1::{self as proto, State};

use super::TermState;
use crate::dispatch::{Event, Facts, Name, Observation, Origin, Reason, Uid, capacity, terminal};
use crate::server::SessionEvent;

/// Orphans that a cluster's status shows: its schema's limit.
const ORPHANS: usize = 64;

/// What a cluster last told of a workload.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    pub(super) attempt: u64,
    pub(super) job_status: Option<Arc<Value>>,
    pub(super) reason: Option<Reason>,
}

impl TermState {
    /// A session has something to say; only the newest of each cluster counts.
    pub(in crate::shell) fn session(&mut self, event: SessionEvent) {
        let cluster = event.cluster().to_owned();
        self.take_in(event);
        // Before it has told all that it has, and once it is away, what was last known stays.
        if self.dispatcher.has_told(&cluster) {
            self.reports.set_orphans(&cluster, self.dispatcher.orphans_of(&cluster, ORPHANS));
        }
        self.hands.metrics.sessions.set(i64::try_from(self.live.len()).unwrap_or(i64::MAX));
        self.start_slots();
    }

    fn take_in(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Up(info) => {
                let newest = self.live.get(&info.cluster).is_none_or(|id| *id < info.live.session_id);
                if !newest {
                    return;
                }
                if self.live.insert(info.cluster.clone(), info.live.session_id).is_some() {
                    self.apply(Event::ClusterDown { name: info.cluster.as_str().into() });
                }
                self.reports.bell.notify_one();
                self.apply(Event::ClusterUp { name: info.cluster.as_str().into() });
            }
            SessionEvent::Down { cluster, session_id, .. } => {
                if self.live.get(&cluster) == Some(&session_id) {
                    self.live.remove(&cluster);
                    self.reports.set(&cluster, None);
                    self.apply(Event::ClusterDown { name: cluster.as_str().into() });
                    self.forget_told(&cluster);
                }
            }
            SessionEvent::Observed { cluster, session_id, observations, inventory, weight: _weight } => {
                if self.live.get(&cluster) != Some(&session_id) {
                    return;
                }
                let name = Name::from(cluster.as_str());
                for observation in &observations {
                    self.observed(&name, observation);
                }
                if let Some(uids) = inventory {
                    self.apply(Event::Inventory { cluster: name, uids });
                    self.forget_told(&cluster);
                }
            }
            SessionEvent::Able { cluster, session_id, able } => {
                if self.live.get(&cluster) == Some(&session_id) {
                    if able {
                        tracing::info!(cluster, "the agent reaches its own API server again");
                    } else {
                        tracing::warn!(cluster, "the agent does not reach its own API server");
                    }
                    self.apply(Event::ClusterAble { name: cluster.as_str().into(), able });
                }
            }
            SessionEvent::Capacity { cluster, session_id, capacity, weight: _weight } => {
                if self.live.get(&cluster) == Some(&session_id) {
                    let queues = capacity::from_wire(capacity.clone());
                    self.reports.set(&cluster, Some(capacity));
                    self.apply(Event::Capacity { cluster: cluster.as_str().into(), queues });
                }
            }
        }
    }

    fn observed(&mut self, cluster: &Name, observation: &proto::Observation) {
        let theirs = Uid::from(observation.workload_uid.as_str());
        let uid = self.dispatcher.our_uid(&theirs);
        if !self.dispatcher.knows(&uid) {
            self.learn(observation, &uid);
        }
        let reasons: Vec<Reason> =
            observation.reasons.iter().map(|reason| Reason::new(reason.code.clone(), reason.message.clone())).collect();
        // What is not known may be a copy; what goes by the own uid of one that has adopted a copy tells nothing of its job.
        let known = self.dispatcher.knows(&uid);
        let wanted = (self.forgetful || known) && !self.dispatcher.is_superseded(&theirs);
        let news = wanted && self.remember(cluster, &uid, observation, &reasons);
        let origin = observation.origin.as_ref().map(Origin::from);
        let observation = Observation {
            uid: theirs,
            namespace: observation.namespace.as_str().into(),
            name: observation.name.as_str().into(),
            attempt: observation.attempt,
            state: observation.state(),
            reasons,
            job_status: news,
            origin,
        };
        self.apply(Event::Observed { cluster: cluster.clone(), observation });
        if !known && !self.is_of_use(cluster, &uid) {
            self.told.remove(&(cluster.clone(), uid));
        }
    }

    /// Whether what a cluster told of a workload may have to be written.
    fn is_of_use(&self, cluster: &Name, uid: &Uid) -> bool {
        self.dispatcher.knows(uid) || self.dispatcher.has_orphan(cluster, uid)
    }

    /// Forgets what a cluster told of workloads that the dispatcher has forgotten.
    fn forget_told(&mut self, cluster: &str) {
        let told = std::mem::take(&mut self.told);
        let keep = |(at, uid): &(Name, Uid)| **at != *cluster || self.is_of_use(at, uid);
        self.told = told.into_iter().filter(|(key, _)| keep(key)).collect();
    }

    /// Keeps what may have to be written. Returns whether the job's status is news.
    fn remember(&mut self, cluster: &Name, uid: &Uid, observation: &proto::Observation, reasons: &[Reason]) -> bool {
        let key = (cluster.clone(), uid.clone());
        if observation.state() == State::Gone {
            self.told.remove(&key);
            return false;
        }
        let told = self.told.entry(key).or_default();
        if told.attempt != observation.attempt {
            *told = Told { attempt: observation.attempt, ..Told::default() };
        }
        if terminal(observation.state()) {
            told.reason = reasons.first().cloned();
        }
        let status = parse_status(&observation.job_status);
        let news = status.is_some();
        if let Some(status) = status {
            told.job_status = Some(Arc::new(status));
        }
        news
    }

    /// A cluster speaks of a workload that the dispatcher has nothing to do with: is it one of ours?
    fn learn(&mut self, observation: &proto::Observation, uid: &Uid) {
        let stores = &self.ctx.stores.workloads;
        let is_it = |workload: &Workload| workload.metadata.uid.as_deref() == Some(uid);
        let renamed = **uid != *observation.workload_uid;
        let found = match observation.name.as_str() {
            // What would be adopted must not be a living one's, whatever name its cluster gives it.
            _ if self.forgetful => self.living.get(uid).and_then(|key| stores.by_key(key)).filter(|it| is_it(it)),
            _ if renamed => stores.filter(is_it).into_iter().next(),
            "" => stores.filter(is_it).into_iter().next(),
            name => stores.get(&observation.namespace, name).filter(|workload| is_it(workload)),
        };
        if let Some(workload) = found {
            let facts = self.facts(&workload);
            self.place(&facts);
            self.dispatcher.learn(facts);
        }
    }

    /// What was told of a copy is told of the workload that has adopted it.
    pub(super) fn rename_told(&mut self, facts: &Facts) {
        let (Some(theirs), Some(cluster)) = (&facts.known_as, &facts.cluster) else { return };
        if let Some(told) = self.told.remove(&(cluster.clone(), theirs.clone())) {
            self.told.insert((cluster.clone(), facts.uid.clone()), told);
        }
    }

    pub(super) fn status_of(&self, cluster: &Name, uid: &Uid, attempt: u64) -> Option<Arc<Value>> {
        let told = self.told.get(&(cluster.clone(), uid.clone()))?;
        (told.attempt == attempt).then(|| told.job_status.clone()).flatten()
    }
}

/// A job's status as the agent sent it. What cannot be read is not shown.
fn parse_status(bytes: &[u8]) -> Option<Value> {
    if bytes.is_empty() {
        return None;
    }
    match serde_json::from_slice::<Value>(bytes) {
        Ok(status) if status.is_object() => Some(status),
        Ok(_) | Err(_) => {
            tracing::warn!("an agent sent a job status that is no JSON object, ignored");
            None
        }
    }
}
