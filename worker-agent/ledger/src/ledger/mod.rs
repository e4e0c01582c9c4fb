//! The ledger: it routes inputs to the entries, and keeps the session, the lease and the timers.

mod outgoing;
mod session;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use switchyard_proto::v1::{HubMessage, Phase, hub_message};

use self::session::Session;
use crate::actions::{Action, Outcome, Verb};
use crate::desired::DesiredState;
use crate::entry::{Entry, PlanContext, PodStatuses};
use crate::namespaces::AllowedNamespaces;
use crate::objects::{ObjectKind, Time};
use crate::session_error::SessionError;
use crate::watch_event::WatchEvent;

/// The ledger's settings.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The only hub that the agent obeys.
    pub hub_id: String,
    pub namespaces: AllowedNamespaces,
}

/// The last session, as `Hello` reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastSession {
    /// Empty before the first session.
    pub hub_id: String,
    /// The highest epoch seen.
    pub epoch: u64,
    /// The revision up to which the desired state was applied.
    pub revision: u64,
}

/// The state machine of one cluster's agent.
#[derive(Debug)]
pub struct Ledger {
    rules: Rules,
    entries: BTreeMap<String, Entry>,
    desired: DesiredState,
    /// Every kind of object has been listed, so unknown objects do not exist.
    synced: bool,
    epoch: u64,
    has_met_hub: bool,
    session: Option<Session>,
    /// Workloads with unsent reports, by the time when these may be sent.
    due: BTreeSet<(Time, String)>,
    /// Workloads to plan again at a time, whatever happens.
    wakeups: BTreeSet<(Time, String)>,
    /// The end of the agent's lease; zero before the first.
    lease: Time,
    /// The end of a lease that was renewed before all objects were listed.
    renewed: Time,
    /// The hub has not sent its complete desired state since `Welcome`. A job that its fence
    /// stopped, or kept from starting, may run elsewhere by now.
    awaits_desired: bool,
    /// Workloads with a fence, by their assignment or by the record on their Workload.
    with_fence: BTreeSet<String>,
    /// Workloads whose fence became due since the lease expired.
    fenced: BTreeSet<String>,
    /// Workloads of which only an unpersisted end is left, oldest first.
    unpersisted_ends: VecDeque<String>,
    /// Pod statuses by workload uid and namespace. Any user can mark pods of their own as parts of
    /// a copy, so only those in the copy's namespace count.
    pod_statuses: BTreeMap<String, BTreeMap<String, PodStatuses>>,
    /// Actions of a call that returned an error.
    pending_actions: Vec<Action>,
}

/// The most unpersisted ends without objects.
pub(crate) const MAX_UNPERSISTED_ENDS: usize = 10_000;

impl Ledger {
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            entries: BTreeMap::new(),
            desired: DesiredState::default(),
            synced: false,
            epoch: 0,
            has_met_hub: false,
            session: None,
            due: BTreeSet::new(),
            wakeups: BTreeSet::new(),
            lease: Time::ZERO,
            renewed: Time::ZERO,
            awaits_desired: false,
            with_fence: BTreeSet::new(),
            fenced: BTreeSet::new(),
            unpersisted_ends: VecDeque::new(),
            pod_statuses: BTreeMap::new(),
            pending_actions: Vec::new(),
        }
    }

    /// Restores what an earlier process of this agent knew: the highest epoch and the end of the
    /// lease.
    pub fn restore(&mut self, epoch: u64, lease: Time) {
        self.epoch = self.epoch.max(epoch);
        self.has_met_hub = true;
        self.lease = self.lease.max(lease);
    }

    /// The end of the lease; none if no job has a fence.
    pub fn lease_end(&self) -> Option<Time> {
        (!self.with_fence.is_empty()).then_some(self.lease)
    }

    pub fn last_session(&self) -> LastSession {
        let hub_id = if self.has_met_hub { self.rules.hub_id.clone() } else { String::new() };
        LastSession { hub_id, epoch: self.epoch, revision: self.desired.revision() }
    }

    /// The number of known workloads.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Applies a message of the hub. The ledger ignores `Ping` and `Pong`.
    ///
    /// # Errors
    ///
    /// The session must end. Earlier messages stay in effect, and nothing changes on the cluster.
    pub fn on_hub_message(
        &mut self,
        message: HubMessage,
        now: Time,
    ) -> Result<Vec<Action>, SessionError> {
        let fences = self.tick(now);
        match self.handle_message(message, now) {
            Ok(actions) => Ok(fences.into_iter().chain(actions).collect()),
            Err(error) => {
                self.pending_actions = fences;
                Err(error)
            }
        }
    }

    fn handle_message(
        &mut self,
        message: HubMessage,
        now: Time,
    ) -> Result<Vec<Action>, SessionError> {
        let HubMessage { session_id, epoch, kind } = message;
        if epoch < self.epoch {
            return Err(SessionError::Deposed { got: epoch, seen: self.epoch });
        }
        if let Some(hub_message::Kind::Welcome(welcome)) = kind {
            self.on_welcome(welcome, epoch)?;
            return Ok(Vec::new());
        }
        let Some(current) = self.session.as_ref().and_then(Session::id) else {
            return match kind {
                Some(hub_message::Kind::Goodbye(goodbye)) => Err(session::goodbye_error(goodbye)),
                _ => Err(SessionError::OutOfPlace("a message before Welcome")),
            };
        };
        if session_id != current {
            return Ok(Vec::new());
        }
        self.epoch = epoch;
        match kind {
            Some(hub_message::Kind::Desired(desired)) => self.on_desired(desired, now),
            Some(hub_message::Kind::ObservedAck(sequence)) => {
                Ok(self.on_observed_ack(sequence, now))
            }
            Some(hub_message::Kind::Resend(resend)) => {
                self.resend(&resend.buckets, now);
                Ok(Vec::new())
            }
            Some(hub_message::Kind::Goodbye(goodbye)) => Err(session::goodbye_error(goodbye)),
            // Later protocol versions may add kinds.
            Some(
                hub_message::Kind::Ping(_)
                | hub_message::Kind::Pong(_)
                | hub_message::Kind::Welcome(_),
            )
            | None => Ok(Vec::new()),
        }
    }

    fn on_desired(
        &mut self,
        message: switchyard_proto::v1::Desired,
        now: Time,
    ) -> Result<Vec<Action>, SessionError> {
        let taken = self.desired.apply(message);
        if let Err(SessionError::Gap { .. } | SessionError::PayloadMissing(_)) = taken {
            self.desired.forget_revision();
        }
        let (touched, complete) = taken?;
        if complete && let Some(session) = &mut self.session {
            session.acknowledge(self.desired.revision());
        }
        let mut actions = Vec::new();
        for uid in touched {
            let entry = self.entries.entry(uid.clone()).or_insert_with(|| Entry::new(&uid));
            // A new assignment is tried at once, whatever failed before.
            entry.rejection = None;
            entry.failing = None;
            entry.refused_priority = None;
            entry.workload_slot.reset();
            entry.job_slot.reset();
            if self.desired.get(&uid).is_some_and(|desired| desired.phase == Phase::Absent) {
                entry.report.latest = None;
            }
            actions.extend(self.replan(&uid, now));
        }
        if complete && std::mem::take(&mut self.awaits_desired) {
            actions.extend(self.resume(now));
        }
        Ok(actions)
    }

    /// Applies a watch event.
    pub fn on_watch_event(&mut self, event: WatchEvent, now: Time) -> Vec<Action> {
        let mut actions = self.tick(now);
        actions.extend(self.apply_event(event, now));
        actions
    }

    fn apply_event(&mut self, event: WatchEvent, now: Time) -> Vec<Action> {
        match event {
            WatchEvent::Applied(object) => {
                let uid = object.meta().workload_uid.clone();
                let entry = self.entries.entry(uid.clone()).or_insert_with(|| Entry::new(&uid));
                if entry.apply(*object) { self.replan(&uid, now) } else { Vec::new() }
            }
            WatchEvent::Deleted { kind, workload_uid, target } => {
                let known = self
                    .entries
                    .get_mut(&workload_uid)
                    .is_some_and(|entry| entry.remove(kind, &target, now));
                if known { self.replan(&workload_uid, now) } else { Vec::new() }
            }
            WatchEvent::Disowned { kind, target } => {
                let owner = self
                    .entries
                    .values()
                    .find(|entry| entry.target(kind).is_some_and(|it| it.uid == target.uid));
                let Some(workload_uid) = owner.map(|entry| entry.uid.clone()) else {
                    return Vec::new();
                };
                self.apply_event(WatchEvent::Deleted { kind, workload_uid, target }, now)
            }
            WatchEvent::PodStatuses { namespace, workload_uid: uid, attempt, status } => {
                self.apply_pod_statuses(namespace, &uid, attempt, status);
                self.replan(&uid, now)
            }
            WatchEvent::Troubles { workload_uid: uid, attempt, troubles, no_ready_pod } => {
                let Some(entry) = self.entries.get_mut(&uid) else { return Vec::new() };
                entry.job_troubles =
                    Some((attempt, troubles)).filter(|(_, troubles)| !troubles.is_empty());
                entry.no_ready_pod = no_ready_pod.then_some(attempt);
                self.replan(&uid, now)
            }
            WatchEvent::Listed { kind, gvk, uids } => self.on_listed(kind, &gvk, &uids, now),
            WatchEvent::Synced => {
                self.synced = true;
                // The inventory of a session that started before must include what is known now.
                if let Some(session) =
                    self.session.as_mut().filter(|session| session.inventory.is_some())
                {
                    session.inventory = Some(self.entries.keys().cloned().collect());
                }
                let uids: Vec<String> = self.entries.keys().cloned().collect();
                // First apply the lease as it was.
                let mut actions: Vec<Action> =
                    uids.iter().flat_map(|uid| self.replan(uid, now)).collect();
                actions.extend(self.lease_renewed(self.renewed, now));
                actions
            }
        }
    }

    fn apply_pod_statuses(&mut self, namespace: String, uid: &str, attempt: u64, status: Vec<u8>) {
        if !status.is_empty() {
            let known = self.pod_statuses.entry(uid.to_owned()).or_default();
            known.insert(namespace, PodStatuses { attempt, status: status.into() });
            return;
        }
        let Some(known) = self.pod_statuses.get_mut(uid) else { return };
        if known.get(&namespace).is_some_and(|it| it.attempt == attempt) {
            known.remove(&namespace);
        }
        if known.is_empty() {
            self.pod_statuses.remove(uid);
        }
    }

    /// An object that a list lacks was deleted unobserved, or created since. The agent reads it
    /// again, as soon as its running action has ended, until it gets an answer.
    fn on_listed(
        &mut self,
        kind: ObjectKind,
        gvk: &str,
        uids: &BTreeSet<String>,
        now: Time,
    ) -> Vec<Action> {
        let mut missed = Vec::new();
        for entry in self.entries.values_mut() {
            let Some(target) = entry.target(kind).cloned() else { continue };
            if &*target.gvk == gvk && !uids.contains(&target.uid) {
                entry.slot(kind).note_missing(&target.uid);
                missed.push(entry.uid.clone());
            }
        }
        missed.iter().flat_map(|uid| self.replan(uid, now)).collect()
    }

    /// Applies the outcome of an action.
    pub fn on_outcome(&mut self, action: &Action, outcome: Outcome, now: Time) -> Vec<Action> {
        let mut actions = self.tick(now);
        let uid = &action.workload_uid;
        let attempt = match &action.verb {
            Verb::Create { attempt, .. } => *attempt,
            _ => self.desired.get(uid).map(|desired| desired.attempt).unwrap_or_default(),
        };
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.on_outcome(action, outcome, attempt, now);
        }
        actions.extend(self.replan(uid, now));
        actions
    }

    /// Returns the actions that are due by time.
    pub fn tick(&mut self, now: Time) -> Vec<Action> {
        let mut actions = std::mem::take(&mut self.pending_actions);
        while let Some((at, uid)) = self.wakeups.first().cloned().filter(|(at, _)| *at <= now) {
            self.wakeups.remove(&(at, uid.clone()));
            if let Some(entry) = self.entries.get_mut(&uid) {
                entry.wake = None;
            }
            actions.extend(self.replan(&uid, now));
        }
        actions
    }

    /// Extends the lease: the hub answered a ping.
    pub fn lease_renewed(&mut self, until: Time, now: Time) -> Vec<Action> {
        if !self.synced {
            // A restarted agent first stops what the old lease does not cover.
            self.renewed = self.renewed.max(until);
            return Vec::new();
        }
        self.lease = self.lease.max(until);
        if self.awaits_desired { Vec::new() } else { self.resume(now) }
    }

    /// Starts the jobs again that a fence has stopped.
    fn resume(&mut self, now: Time) -> Vec<Action> {
        let fenced = std::mem::take(&mut self.fenced);
        fenced.iter().flat_map(|uid| self.replan(uid, now)).collect()
    }

    /// When [`Self::tick`] or [`Self::next_message`] has something to do, if nothing happens
    /// before.
    pub fn next_wakeup(&self) -> Option<Time> {
        if !self.pending_actions.is_empty() {
            return Some(Time::ZERO);
        }
        let wake = self.wakeups.first().map(|(at, _)| *at);
        let report = self.session.as_ref().and_then(|session| {
            session.next_send(self.due.first().map(|(at, _)| *at), self.synced)
        });
        [wake, report].into_iter().flatten().min()
    }

    /// Plans and observes one workload again.
    fn replan(&mut self, uid: &str, now: Time) -> Vec<Action> {
        let desired = self.desired.get(uid);
        let Some(entry) = self.entries.get_mut(uid) else { return Vec::new() };
        let namespace = entry.namespace.as_ref().or(desired.map(|desired| &desired.namespace));
        entry.set_pod_statuses(
            namespace.and_then(|namespace| self.pod_statuses.get(uid)?.get(namespace)).cloned(),
        );
        let fence = entry.fence_after(desired).map(|after| self.lease + after);
        match fence {
            Some(_) => self.with_fence.insert(uid.to_owned()),
            None => self.with_fence.remove(uid),
        };
        let fenced = fence.is_some_and(|at| at <= now);
        if fenced && !self.fenced.contains(uid) {
            // Earlier failures must not delay the fence.
            entry.workload_slot.reset();
        }
        let mut actions = Vec::new();
        if self.synced {
            let before = entry.observe(desired);
            let context = PlanContext {
                desired,
                payload: desired.and_then(|desired| self.desired.payload(desired)),
                fence,
                awaits_desired: self.awaits_desired && self.fenced.contains(uid),
                namespace_allowed: desired
                    .is_none_or(|desired| self.rules.namespaces.allow(&desired.namespace)),
                now,
            };
            actions = entry.plan(&context);
            // Planning may have rejected the assignment.
            let after = if entry.rejection.is_some() { entry.observe(desired) } else { before };
            if let Some(observation) = after {
                entry.report(observation, now);
            }
        }
        if fenced {
            self.fenced.insert(uid.to_owned());
        }
        let wake = [entry.wakeup(now), fence.filter(|at| *at > now)].into_iter().flatten().min();
        reschedule(&mut self.wakeups, &mut entry.wake, uid, wake);
        let due = entry.report.next();
        reschedule(&mut self.due, &mut entry.report.due, uid, due);
        self.drop_if_finished(uid);
        actions
    }

    /// Drops an entry if its objects, its assignment and its reports are gone.
    fn drop_if_finished(&mut self, uid: &str) {
        let is_desired = self.desired.get(uid).is_some();
        // Queued reports are for this session only. The next one begins with an inventory.
        let has_no_session = self.session.is_none();
        let Some(entry) = self.entries.get_mut(uid).filter(|entry| !is_desired && entry.is_gone())
        else {
            return;
        };
        if entry.unpersisted_end().is_some() {
            if !std::mem::replace(&mut entry.is_kept_for_end, true) {
                self.unpersisted_ends.push_back(uid.to_owned());
                self.drop_oldest_end();
            }
            return;
        }
        if has_no_session || entry.report.queue.is_empty() {
            self.forget(uid);
        }
    }

    /// Bounds the entries without objects. Any user can mark objects of their own and let them end;
    /// the genuine end of a job still has its object.
    fn drop_oldest_end(&mut self) {
        if self.unpersisted_ends.len() <= MAX_UNPERSISTED_ENDS {
            return;
        }
        let Some(uid) = self.unpersisted_ends.pop_front() else { return };
        let is_desired = self.desired.get(&uid).is_some();
        let Some(entry) = self.entries.get_mut(&uid).filter(|entry| entry.is_kept_for_end) else {
            return;
        };
        entry.is_kept_for_end = false;
        if !is_desired && entry.is_gone() {
            self.forget(&uid);
        }
    }

    fn forget(&mut self, uid: &str) {
        if let Some(mut entry) = self.entries.remove(uid) {
            reschedule(&mut self.wakeups, &mut entry.wake, uid, None);
            reschedule(&mut self.due, &mut entry.report.due, uid, None);
            if let Some(session) = &mut self.session {
                session.update_digest(uid, entry.report.sent, None);
            }
            self.with_fence.remove(uid);
            self.fenced.remove(uid);
        }
    }
}

/// Moves a workload to another time in a list sorted by time.
fn reschedule(
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
