//! The ledger: what the hub desires beside what the cluster has, and what follows from the difference.
//!
//! Pure and synchronous. Messages, observations, results and the time go in; actions come out at once, and messages to
//! the hub when asked for, so that what waits for a slow hub coalesces here.
//!
//! # Guarantees
//!
//! - The same message or observation, twice or late, changes nothing.
//! - At most one attempt of a workload has objects that may run.
//! - Only objects that carry the hub's id and the workload's uid are deleted, and only for a tombstone or a higher
//!   attempt.
//! - A final state is reported in every session until the hub has persisted it, and until then its job is kept.
//! - A job with a fence is stopped when the lease has lapsed for that long, before anything else is done or believed, with
//!   a hub or without, and also by an agent that began anew. The lease counts from when the renewal was sent.

mod entry;
mod failing;
mod model;
mod namespaces;
mod plan;
mod report;
mod session;
mod slot;
mod state;
mod verdict;
mod want;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use switchyard_proto::v1::{HubMessage, Phase, hub_message};

use self::entry::{Entry, Parts};
use self::session::Session;
use self::want::Wants;

pub use self::model::*;
pub use self::namespaces::AllowedNamespaces;
pub use self::want::{SessionError, whole_fence};

/// What the ledger has to know from the start.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The only hub that is obeyed.
    pub hub_id: String,
    /// Which namespaces it may use.
    pub namespaces: AllowedNamespaces,
}

/// What `Hello` says of the past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Empty before the first session.
    pub hub_id: String,
    /// The highest seen.
    pub epoch: u64,
    /// The revision up to which the desired state was taken over.
    pub revision: u64,
}

/// The state machine of one cluster's agent.
#[derive(Debug)]
pub struct Ledger {
    rules: Rules,
    entries: BTreeMap<String, Entry>,
    wants: Wants,
    /// Every kind of object has been listed: what is not known does not exist.
    synced: bool,
    epoch: u64,
    met: bool,
    session: Option<Session>,
    /// Workloads with something to report, by the time it may be sent.
    due: BTreeSet<(Time, String)>,
    /// Workloads to be planned again although nothing will have happened.
    wakes: BTreeSet<(Time, String)>,
    /// Until when the hub's lease lasts; zero before the first.
    lease: Time,
    /// Until when it was renewed before all that may have to be stopped was known.
    renewed: Time,
    /// What the hub wants has not been told to its end since it said `Welcome`: a job that was stopped, or not begun,
    /// because of its fence may be somebody else's by now.
    behind: bool,
    /// Workloads whose fence has come since the lease lapsed.
    fenced: BTreeSet<String>,
    /// Workloads of which nothing is left but an end that the hub has not persisted, oldest first.
    kept: VecDeque<String>,
    /// What the pods of jobs say, by workload and namespace. Anybody may write the marks of a copy on pods of their own: those in
    /// another namespace than the copy's say nothing of it.
    parts: BTreeMap<String, BTreeMap<String, Parts>>,
    /// Actions decided upon beside an error.
    left: Vec<Action>,
}

/// The most ends without their objects.
const MAX_KEPT: usize = 10_000;

impl Ledger {
    /// One that knows nothing yet.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            entries: BTreeMap::new(),
            wants: Wants::default(),
            synced: false,
            epoch: 0,
            met: false,
            session: None,
            due: BTreeSet::new(),
            wakes: BTreeSet::new(),
            lease: Time::ZERO,
            renewed: Time::ZERO,
            behind: false,
            fenced: BTreeSet::new(),
            kept: VecDeque::new(),
            parts: BTreeMap::new(),
            left: Vec::new(),
        }
    }

    /// What an earlier process of this agent knew: the highest epoch, and until when the lease lasts.
    pub fn recall(&mut self, epoch: u64, lease: Time) {
        self.epoch = self.epoch.max(epoch);
        self.met = true;
        self.lease = self.lease.max(lease);
    }

    /// Until when the lease lasts; none while nothing depends on it.
    pub fn lease(&self) -> Option<Time> {
        self.wants.fence().then_some(self.lease)
    }

    /// For the next `Hello`.
    pub fn memory(&self) -> Memory {
        let hub_id = if self.met { self.rules.hub_id.clone() } else { String::new() };
        Memory { hub_id, epoch: self.epoch, revision: self.wants.revision() }
    }

    /// How many workloads are known.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no workload is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A message of the hub. `Ping` and `Pong` are not the ledger's business and change nothing.
    ///
    /// # Errors
    ///
    /// The session must end. What was taken over before stays, and so does everything on the cluster.
    pub fn hub(&mut self, message: HubMessage, now: Time) -> Result<Vec<Action>, SessionError> {
        let fences = self.tick(now);
        match self.obey(message, now) {
            Ok(actions) => Ok(fences.into_iter().chain(actions).collect()),
            Err(error) => {
                self.left = fences;
                Err(error)
            }
        }
    }

    fn obey(&mut self, message: HubMessage, now: Time) -> Result<Vec<Action>, SessionError> {
        let HubMessage { session_id, epoch, kind } = message;
        if epoch < self.epoch {
            return Err(SessionError::Deposed { got: epoch, seen: self.epoch });
        }
        if let Some(hub_message::Kind::Welcome(welcome)) = kind {
            self.welcome(welcome, epoch)?;
            return Ok(Vec::new());
        }
        let Some(current) = self.session.as_ref().and_then(Session::id) else {
            return match kind {
                Some(hub_message::Kind::Goodbye(goodbye)) => Err(session::goodbye(goodbye)),
                _ => Err(SessionError::OutOfPlace("a message before Welcome")),
            };
        };
        if session_id != current {
            return Ok(Vec::new());
        }
        self.epoch = epoch;
        match kind {
            Some(hub_message::Kind::Desired(desired)) => self.desired(desired, now),
            Some(hub_message::Kind::ObservedAck(sequence)) => Ok(self.acknowledged(sequence, now)),
            Some(hub_message::Kind::Resend(resend)) => {
                self.resend(&resend.buckets, now);
                Ok(Vec::new())
            }
            Some(hub_message::Kind::Goodbye(goodbye)) => Err(session::goodbye(goodbye)),
            // Kinds of later versions are no business of ours.
            Some(
                hub_message::Kind::Ping(_)
                | hub_message::Kind::Pong(_)
                | hub_message::Kind::Welcome(_),
            )
            | None => Ok(Vec::new()),
        }
    }

    fn desired(
        &mut self,
        desired: switchyard_proto::v1::Desired,
        now: Time,
    ) -> Result<Vec<Action>, SessionError> {
        let taken = self.wants.take(desired);
        if let Err(SessionError::Gap { .. } | SessionError::PayloadMissing(_)) = taken {
            self.wants.forget_revision();
        }
        let (touched, complete) = taken?;
        if complete && let Some(session) = &mut self.session {
            session.acknowledge(self.wants.revision());
        }
        let mut actions = Vec::new();
        for uid in touched {
            let entry = self.entries.entry(uid.clone()).or_insert_with(|| Entry::new(&uid));
            // What failed under the old assignment may be tried at once under the new one.
            entry.trouble = None;
            entry.failing = None;
            entry.refused_priority = None;
            entry.workload_slot.reset();
            entry.job_slot.reset();
            if self.wants.get(&uid).is_some_and(|want| want.phase == Phase::Absent) {
                entry.report.latest = None;
            }
            actions.extend(self.refresh(&uid, now));
        }
        if complete && std::mem::take(&mut self.behind) {
            actions.extend(self.resume(now));
        }
        Ok(actions)
    }

    /// What a watch tells of the cluster.
    pub fn seen(&mut self, seen: Seen, now: Time) -> Vec<Action> {
        let mut actions = self.tick(now);
        actions.extend(self.take(seen, now));
        actions
    }

    fn take(&mut self, seen: Seen, now: Time) -> Vec<Action> {
        match seen {
            Seen::Applied(object) => {
                let uid = object.meta().workload_uid.clone();
                let entry = self.entries.entry(uid.clone()).or_insert_with(|| Entry::new(&uid));
                if entry.apply(*object) { self.refresh(&uid, now) } else { Vec::new() }
            }
            Seen::Deleted { kind, workload_uid, target } => {
                let known = self
                    .entries
                    .get_mut(&workload_uid)
                    .is_some_and(|entry| entry.remove(kind, &target, now));
                if known { self.refresh(&workload_uid, now) } else { Vec::new() }
            }
            Seen::Disowned { kind, target } => {
                let owner = self
                    .entries
                    .values()
                    .find(|entry| entry.target(kind).is_some_and(|it| it.uid == target.uid));
                let Some(workload_uid) = owner.map(|entry| entry.uid.clone()) else {
                    return Vec::new();
                };
                self.take(Seen::Deleted { kind, workload_uid, target }, now)
            }
            Seen::Parts { namespace, workload_uid: uid, attempt, status } => {
                self.take_parts(namespace, &uid, attempt, status);
                self.refresh(&uid, now)
            }
            Seen::Troubles { workload_uid: uid, attempt, troubles } => {
                let Some(entry) = self.entries.get_mut(&uid) else { return Vec::new() };
                entry.troubles =
                    Some((attempt, troubles)).filter(|(_, troubles)| !troubles.is_empty());
                self.refresh(&uid, now)
            }
            Seen::Listed { kind, gvk, uids } => self.listed(kind, &gvk, &uids, now),
            Seen::Synced => {
                self.synced = true;
                // A session that began before names what is known now.
                if let Some(session) =
                    self.session.as_mut().filter(|session| session.inventory.is_some())
                {
                    session.inventory = Some(self.entries.keys().cloned().collect());
                }
                let uids: Vec<String> = self.entries.keys().cloned().collect();
                // First what the lease as it was says of them.
                let mut actions: Vec<Action> =
                    uids.iter().flat_map(|uid| self.refresh(uid, now)).collect();
                actions.extend(self.lease_renewed(self.renewed, now));
                actions
            }
        }
    }

    /// The pods of an attempt's job in a namespace say something else.
    fn take_parts(&mut self, namespace: String, uid: &str, attempt: u64, status: Vec<u8>) {
        if !status.is_empty() {
            let there = self.parts.entry(uid.to_owned()).or_default();
            there.insert(namespace, Parts { attempt, status: status.into() });
            return;
        }
        let Some(there) = self.parts.get_mut(uid) else { return };
        if there.get(&namespace).is_some_and(|parts| parts.attempt == attempt) {
            there.remove(&namespace);
        }
        if there.is_empty() {
            self.parts.remove(uid);
        }
    }

    /// What a list lacked may have been deleted while nobody watched, or made since: it is read again, as soon as what is
    /// under way for it has ended, and until somebody answers.
    fn listed(&mut self, kind: Kind, gvk: &str, uids: &BTreeSet<String>, now: Time) -> Vec<Action> {
        let mut missed = Vec::new();
        for entry in self.entries.values_mut() {
            let Some(target) = entry.target(kind).cloned() else { continue };
            if &*target.gvk == gvk && !uids.contains(&target.uid) {
                entry.slot(kind).miss(&target.uid);
                missed.push(entry.uid.clone());
            }
        }
        missed.iter().flat_map(|uid| self.refresh(uid, now)).collect()
    }

    /// How an action went.
    pub fn done(&mut self, action: &Action, outcome: Outcome, now: Time) -> Vec<Action> {
        let mut actions = self.tick(now);
        let uid = &action.workload_uid;
        let attempt = match &action.verb {
            Verb::Create { attempt, .. } => *attempt,
            _ => self.wants.get(uid).map(|want| want.attempt).unwrap_or_default(),
        };
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.done(action, outcome, attempt, now);
        }
        actions.extend(self.refresh(uid, now));
        actions
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Time) -> Vec<Action> {
        let mut actions = std::mem::take(&mut self.left);
        while let Some((at, uid)) = self.wakes.first().cloned().filter(|(at, _)| *at <= now) {
            self.wakes.remove(&(at, uid.clone()));
            if let Some(entry) = self.entries.get_mut(&uid) {
                entry.wake = None;
            }
            actions.extend(self.refresh(&uid, now));
        }
        actions
    }

    /// The hub's lease lasts until then: it answered a ping sent that much earlier.
    pub fn lease_renewed(&mut self, until: Time, now: Time) -> Vec<Action> {
        if !self.synced {
            // An agent that begins anew first stops what the old lease does not cover any more.
            self.renewed = self.renewed.max(until);
            return Vec::new();
        }
        self.lease = self.lease.max(until);
        if self.behind { Vec::new() } else { self.resume(now) }
    }

    /// What a fence has stopped goes on.
    fn resume(&mut self, now: Time) -> Vec<Action> {
        let fenced = std::mem::take(&mut self.fenced);
        fenced.iter().flat_map(|uid| self.refresh(uid, now)).collect()
    }

    /// When [`Self::tick`] or [`Self::outgoing`] has something to do, if nothing happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        if !self.left.is_empty() {
            return Some(Time::ZERO);
        }
        let wake = self.wakes.first().map(|(at, _)| *at);
        let report = self.session.as_ref().and_then(|session| {
            session.next_send(self.due.first().map(|(at, _)| *at), self.synced)
        });
        [wake, report].into_iter().flatten().min()
    }

    /// Plans and reports one workload anew.
    fn refresh(&mut self, uid: &str, now: Time) -> Vec<Action> {
        let want = self.wants.get(uid);
        let Some(entry) = self.entries.get_mut(uid) else { return Vec::new() };
        let namespace = entry.namespace.as_ref().or(want.map(|want| &want.namespace));
        entry.parts = namespace.and_then(|namespace| self.parts.get(uid)?.get(namespace)).cloned();
        let fence = entry.fence_after(want).map(|after| self.lease + after);
        let fenced = fence.is_some_and(|at| at <= now);
        if fenced && !self.fenced.contains(uid) {
            // What failed before does not delay this.
            entry.workload_slot.reset();
        }
        let mut actions = Vec::new();
        if self.synced {
            let before = entry.observe(want);
            let context = plan::Context {
                want,
                payload: want.and_then(|want| self.wants.payload(want)),
                fence,
                behind: self.behind && self.fenced.contains(uid),
                namespace_allowed: want
                    .is_none_or(|want| self.rules.namespaces.allow(&want.namespace)),
                now,
            };
            actions = entry.plan(&context);
            // Planning may have found that the assignment cannot be followed.
            let after = if entry.trouble.is_some() { entry.observe(want) } else { before };
            if let Some(observation) = after {
                entry.report(observation, now);
            }
        }
        if fenced {
            self.fenced.insert(uid.to_owned());
        }
        let wake = [entry.wakeup(now), fence.filter(|at| *at > now)].into_iter().flatten().min();
        relist(&mut self.wakes, &mut entry.wake, uid, wake);
        let due = entry.report.next();
        relist(&mut self.due, &mut entry.report.due, uid, due);
        self.forget_if_over(uid);
        actions
    }

    /// Nothing is there, nothing may yet come to be, nothing is desired, nothing remains to be said.
    fn forget_if_over(&mut self, uid: &str) {
        let wanted = self.wants.get(uid).is_some();
        // Messages that wait are sent in this session only. The next one begins with the inventory.
        let silent = self.session.is_none();
        let Some(entry) = self.entries.get_mut(uid).filter(|entry| !wanted && entry.is_gone())
        else {
            return;
        };
        if entry.unsettled().is_some() {
            if !std::mem::replace(&mut entry.is_kept, true) {
                self.kept.push_back(uid.to_owned());
                self.drop_oldest_end();
            }
            return;
        }
        if silent || entry.report.queue.is_empty() {
            self.forget(uid);
        }
    }

    /// Anybody may write marks on objects of their own, and have them end without end. An honest end has its object.
    fn drop_oldest_end(&mut self) {
        if self.kept.len() <= MAX_KEPT {
            return;
        }
        let Some(uid) = self.kept.pop_front() else { return };
        let wanted = self.wants.get(&uid).is_some();
        let Some(entry) = self.entries.get_mut(&uid).filter(|entry| entry.is_kept) else { return };
        entry.is_kept = false;
        if !wanted && entry.is_gone() {
            self.forget(&uid);
        }
    }

    fn forget(&mut self, uid: &str) {
        if let Some(mut entry) = self.entries.remove(uid) {
            relist(&mut self.wakes, &mut entry.wake, uid, None);
            relist(&mut self.due, &mut entry.report.due, uid, None);
            if let Some(session) = &mut self.session {
                session.digest_move(uid, entry.report.sent, None);
            }
            self.fenced.remove(uid);
        }
    }
}

/// Moves a workload to another time in a list by time.
fn relist(
    list: &mut BTreeSet<(Time, String)>,
    listed: &mut Option<Time>,
    uid: &str,
    at: Option<Time>,
) {
    if *listed == at {
        return;
    }
    if let Some(old) = listed.take() {
        list.remove(&(old, uid.to_owned()));
    }
    if let Some(new) = at {
        list.insert((new, uid.to_owned()));
    }
    *listed = at;
}
