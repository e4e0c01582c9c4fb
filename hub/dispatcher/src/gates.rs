//! Which cluster may preempt for a workload that waits on several: one at a time, as in Kueue.
//!
//! Copies are made with a preemption gate that is closed. A cluster that could admit its copy by preempting others says since
//! when the gate has been in its way; it is opened for the one that has waited longest. No other is opened for a while after:
//! a cluster that does not get room by then leaves the next its turn, and keeps its own. Gates close with an eviction there, and
//! go with the copy.
//!
//! # Guarantees
//! Between two openings for a workload lies the timeout, unless the first copy is gone or its gate was closed; also for a hub
//! that begins anew, which may have opened one before: until all clusters have told, it waits for as long.

use super::entry::Entry;
use super::machine::Dispatcher;
use super::{Action, Name, Phase, Time, proto};

/// How a copy's preemption gate stands. Milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gate {
    /// Since when it is open, by the hub's clock; none: it is closed.
    pub opened: Option<Time>,
    /// Since when it has been in the way of a preemption, by the cluster's clock; none: it is not.
    pub blocked: Option<Time>,
}

impl From<&proto::PreemptionGate> for Gate {
    fn from(gate: &proto::PreemptionGate) -> Self {
        let millis = |at: &prost_types::Timestamp| at.seconds.saturating_mul(1_000);
        Self {
            opened: gate.opened.as_ref().map(millis),
            blocked: gate.blocked.as_ref().map(millis),
        }
    }
}

impl From<Gate> for proto::PreemptionGate {
    fn from(gate: Gate) -> Self {
        // Kubernetes' times are whole seconds.
        let seconds = |at: Time| prost_types::Timestamp { seconds: at.div_euclid(1_000), nanos: 0 };
        Self { opened: gate.opened.map(seconds), blocked: gate.blocked.map(seconds) }
    }
}

/// The gate of a copy, as we want it and as its cluster has it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RemoteGate {
    /// The copy has one.
    pub(super) there: bool,
    opened: Option<Time>,
    /// Its cluster has said that it is open: if it says otherwise later, an eviction has closed it.
    confirmed: bool,
    blocked: Option<Time>,
    /// When that of an earlier attempt was opened, which may be there until the cluster speaks of this one.
    earlier: Option<Time>,
}

impl RemoteGate {
    /// A later attempt's copy takes the place of this one's.
    pub(super) fn renew(&mut self) {
        *self = Self { earlier: self.last_opened(), ..Self::default() };
    }

    /// The cluster has spoken of this attempt; those before are gone.
    pub(super) fn hear(&mut self, said: Option<Gate>, now: Time) {
        self.earlier = None;
        let Some(said) = said else { return };
        self.there = true;
        self.blocked = said.blocked;
        match said.opened.map(|at| at.min(now)) {
            Some(at) => (self.opened, self.confirmed) = (self.opened.max(Some(at)), true),
            None if self.confirmed => (self.opened, self.confirmed) = (None, false),
            None => {}
        }
    }

    /// Nothing of it is left.
    pub(super) fn is_gone(&mut self) {
        *self = Self::default();
    }

    fn last_opened(&self) -> Option<Time> {
        self.opened.max(self.earlier)
    }

    /// Since when it has waited to be opened.
    fn waits_since(&self) -> Option<Time> {
        self.blocked.filter(|_| self.there && self.opened.is_none())
    }
}

impl Dispatcher {
    /// The gate that a workload's copy on a cluster is to have, if it is to have one.
    pub fn gate(&self, uid: &str, cluster: &Name) -> Option<Gate> {
        let remote = self.entries.get(uid)?.remotes.get(cluster)?;
        remote.gate.there.then_some(Gate { opened: remote.gate.opened, blocked: None })
    }

    /// Lets the next cluster preempt, when it is its turn.
    pub(super) fn open_gates(&self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) {
        let Some(timeout) = self.settings.preemption_timeout else { return };
        let order = self.order(entry, now);
        let next = self
            .offers(entry)
            .into_iter()
            .filter(|name| self.clusters.get(name).is_some_and(|known| known.usable()))
            .filter_map(|name| {
                let since = entry.remotes.get(&name)?.gate.waits_since()?;
                Some((since, order.iter().position(|it| *it == name), name))
            })
            .min();
        let Some((_, _, cluster)) = next else { return };
        let due = self.may_open_at(entry, timeout);
        if now < due {
            entry.wake_at(due);
            return;
        }
        let Some(remote) = entry.remotes.get_mut(&cluster) else { return };
        remote.gate.opened = Some(now);
        let attempt = remote.attempt;
        entry.wake_at(now.saturating_add(timeout));
        tracing::info!(%cluster, workload = %entry.facts.name, attempt, "it may preempt for this workload");
        out.push(entry.desire(&cluster, attempt, Phase::Reserve));
    }

    /// From when on another gate may be opened for a workload.
    fn may_open_at(&self, entry: &Entry, timeout: i64) -> Time {
        let last = entry.remotes.values().filter_map(|remote| remote.gate.last_opened()).max();
        // What a process before this one has opened is known from the clusters.
        let untold =
            |name: &Name| self.clusters.get(name).is_some_and(|known| known.exists && !known.told);
        let before = self.configured(entry).iter().any(untold).then_some(self.started);
        last.max(before).map_or(Time::MIN, |at| at.saturating_add(timeout))
    }
}
