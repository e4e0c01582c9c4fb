//! Preemption gates: of the clusters that have a copy of one workload, one at a time may preempt.
//!
//! Kueue's feature `MultiKueueOrchestratedPreemption`. Copies are created with a closed gate. A
//! cluster that could admit its copy only by preemption reports since when the gate blocks it. The
//! gate that is blocked for the longest time opens. The next one opens a timeout later, and the
//! first stays open. An eviction on the worker closes a gate.
//!
//! # Guarantee
//! The timeout lies between two openings for one workload, unless the first copy is gone or its
//! gate was closed. An earlier hub process may have opened a gate. Until all clusters are connected
//! and have reported, the timeout counts from the start of this process.

use super::Dispatcher;
use super::cluster_state::ClusterState;
use super::tracked_workload::TrackedWorkload;
use crate::{DispatchAction, Name, Phase, PreemptionGate, UnixMillis};

/// The gate of a copy, as requested and as reported.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CopyGate {
    /// Whether the copy has a gate.
    pub(super) exists: bool,
    opened: Option<UnixMillis>,
    /// Whether the cluster reported it open in this session. If it then reports it closed, an
    /// eviction closed it.
    confirmed: bool,
    blocked: Option<UnixMillis>,
    /// When the gate of an earlier attempt was opened. The earlier copy may exist until the cluster
    /// reports this attempt.
    earlier: Option<UnixMillis>,
}

impl CopyGate {
    /// A later attempt replaces the copy.
    pub(super) fn renew(&mut self) {
        *self = Self { earlier: self.last_opened(), ..Self::default() };
    }

    /// The cluster reports this attempt, so earlier ones are gone.
    pub(super) fn update(&mut self, reported: Option<PreemptionGate>, now: UnixMillis) {
        self.earlier = None;
        let Some(reported) = reported else { return };
        self.exists = true;
        self.blocked = reported.blocked;
        match reported.opened.map(|at| at.min(now)) {
            Some(at) => (self.opened, self.confirmed) = (self.opened.max(Some(at)), true),
            None if self.confirmed => (self.opened, self.confirmed) = (None, false),
            None => {}
        }
    }

    /// A session begins. An agent that restarted may have lost a request to open the gate that its
    /// reports counted as done, and repeats it.
    pub(super) fn open_session(&mut self) {
        self.confirmed = false;
    }

    /// The copy is gone.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn last_opened(&self) -> Option<UnixMillis> {
        self.opened.max(self.earlier)
    }

    /// Since when the closed gate has blocked a preemption.
    fn waits_since(&self) -> Option<UnixMillis> {
        self.blocked.filter(|_| self.exists && self.opened.is_none())
    }
}

impl Dispatcher {
    /// The gate that the copy on a cluster shall have, if any.
    pub fn gate(&self, uid: &str, cluster: &Name) -> Option<PreemptionGate> {
        let remote = self.entries.get(uid)?.remotes.get(cluster)?;
        remote.gate.exists.then_some(PreemptionGate { opened: remote.gate.opened, blocked: None })
    }

    /// Opens the gate of the next cluster when the timeout is over.
    pub(super) fn open_gates(
        &self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let Some(timeout) = self.settings.preemption_timeout else { return };
        let order = self.candidates(entry, now);
        let next = self
            .offers(entry)
            .into_iter()
            .filter(|name| self.clusters.get(name).is_some_and(|known| known.is_usable()))
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
        out.push(entry.assignment(&cluster, attempt, Phase::Reserve));
    }

    /// When another gate may be opened for the workload.
    fn may_open_at(&self, entry: &TrackedWorkload, timeout: i64) -> UnixMillis {
        let last = entry.remotes.values().filter_map(|remote| remote.gate.last_opened()).max();
        // Clusters report the gates that an earlier process opened. The loss of a cluster drops its
        // reports about workloads without quota.
        let may_have_open_gate = |name: &Name| {
            let reported = |known: &ClusterState| known.has_synced && known.has_listed_all;
            self.clusters.get(name).is_some_and(|known| known.exists && !reported(known))
        };
        let before =
            self.configured_clusters(entry).iter().any(may_have_open_gate).then_some(self.started);
        last.max(before).map_or(UnixMillis::MIN, |at| at.saturating_add(timeout))
    }
}
