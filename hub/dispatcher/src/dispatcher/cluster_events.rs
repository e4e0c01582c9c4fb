//! Handlers of events about clusters: configuration, sessions, agent readiness, inventories and
//! capacity.
//!
//! Each handler updates the cluster's [`ClusterState`] and marks the workloads that it concerns.

use super::Dispatcher;
use super::cluster_state::ClusterState;
use crate::capacity::CapacityReport;
use crate::{ClusterConfig, DispatchAction, Name, Uids, UnixMillis};

impl Dispatcher {
    pub(super) fn configure_check(
        &mut self,
        name: Name,
        clusters: Vec<Name>,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let before = self.checks.get(&name).cloned().unwrap_or_default();
        if before == clusters {
            return;
        }
        let added: Vec<Name> =
            clusters.iter().filter(|cluster| !before.contains(cluster)).cloned().collect();
        if clusters.is_empty() {
            self.checks.remove(&name);
        } else {
            self.checks.insert(name, clusters);
        }
        self.mark_nominating();
        self.mark_waiting_for_inventories();
        for cluster in added {
            self.wake_parked(&cluster, now, out);
        }
    }

    pub(super) fn configure_cluster(
        &mut self,
        name: &Name,
        rules: ClusterConfig,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let cluster = self.clusters.entry(name.clone()).or_insert_with(|| ClusterState::new(now));
        if cluster.exists && cluster.config == rules {
            return;
        }
        let released = cluster.exists && cluster.config.release != rules.release;
        cluster.has_new_policy |=
            cluster.exists && cluster.config.on_disconnect != rules.on_disconnect;
        if rules.takes_more_than(&cluster.config) || !cluster.exists {
            cluster.opened_at_event = self.events;
        }
        (cluster.exists, cluster.config) = (true, rules);
        if released {
            self.release_breaker(now, out);
        }
        self.mark_on_and_nominating(name);
        self.mark_waiting_for_inventories();
        self.wake_parked(name, now, out);
    }

    pub(super) fn delete_cluster(
        &mut self,
        name: &Name,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        self.mark_contact(name, now);
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        // If the MultiKueueCluster is created again, it must report its inventory again.
        (cluster.exists, cluster.has_listed_all) = (false, false);
        self.orphans.retain(name, |_, _| false);
        if cluster.is_connected {
            cluster.set_connected(false, now);
        }
        self.update_breaker(out);
        self.mark_on_and_nominating(name);
        self.mark_waiting_for_inventories();
    }

    pub(super) fn open_session(
        &mut self,
        name: &Name,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        self.mark_contact(name, now);
        let cluster = self.clusters.entry(name.clone()).or_insert_with(|| ClusterState::new(now));
        cluster.set_connected(true, now);
        cluster.opened_at_event = self.events;
        // Workloads given up there may still run until the cluster reports otherwise.
        self.change_on(name, |remote| remote.lost = false);
        self.open_session_of_copies(name);
        self.update_breaker(out);
        self.mark_on(name);
        self.scan_waiting(name, false, now, out);
    }

    pub(super) fn close_session(
        &mut self,
        name: &Name,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        self.mark_contact(name, now);
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        if !cluster.is_connected {
            return;
        }
        cluster.set_connected(false, now);
        // Keep copies from before a store loss: otherwise their jobs would start elsewhere.
        let settings = &self.settings;
        self.orphans.retain(name, |_, orphan| orphan.is_kept(settings));
        self.mark_on(name);
        self.scan_waiting(name, false, now, out);
    }

    /// The agent of an open session reports whether it reaches its API server.
    pub(super) fn set_agent_ready(
        &mut self,
        name: &Name,
        ready: bool,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let Some(cluster) = self
            .clusters
            .get_mut(name)
            .filter(|it| it.is_connected && it.not_ready_since.is_none() != ready)
        else {
            return;
        };
        cluster.not_ready_since = (!ready).then_some(now);
        if ready {
            cluster.opened_at_event = self.events;
        }
        // Meanwhile, the agent could not see its pods.
        self.change_on(name, |remote| {
            // The report stays: the agent does not repeat it once it is ready again.
            remote.stalled_since = remote.stalled_since.map(|_| now);
            remote.confirmed_at = None;
        });
        self.mark_on(name);
        self.scan_waiting(name, true, now, out);
    }

    /// An earlier hub process recorded that the agent was not ready. A report in a session of this
    /// process is newer.
    pub(super) fn restore_not_ready(&mut self, name: &Name, now: UnixMillis) {
        let Some(cluster) = self
            .clusters
            .get_mut(name)
            .filter(|it| !it.has_connected && it.not_ready_since.is_none())
        else {
            return;
        };
        cluster.not_ready_since = Some(now);
        self.mark_on_and_nominating(name);
    }

    pub(super) fn complete_inventory(
        &mut self,
        name: &Name,
        uids: &Uids,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let mut is_first = false;
        if let Some(cluster) = self.clusters.get_mut(name) {
            let before = (cluster.has_synced, cluster.has_listed_all);
            is_first = !cluster.has_synced;
            (cluster.has_synced, cluster.has_listed_all) = (true, !cluster.is_truncated);
            if before != (cluster.has_synced, cluster.has_listed_all) {
                self.mark_on(name);
            }
        }
        // Workloads may have waited for an orphan that is gone now.
        for orphan in self.orphans.retain(name, |uid, _| uids.contains(uid)) {
            self.mark_waiting_for(name, &orphan, now, out);
        }
        // The capacity may have come before: an embedded agent does not wait for its inventory.
        self.scan_waiting(name, is_first, now, out);
    }

    pub(super) fn update_capacity(
        &mut self,
        name: &Name,
        report: CapacityReport,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        let only_rooms = cluster.has_reported && cluster.capacity.changes_only_rooms(&report);
        cluster.report(report, self.events, now);
        // Room on nodes only orders offers. No workload waits for it.
        if !only_rooms {
            self.scan_waiting(name, true, now, out);
        }
    }
}
