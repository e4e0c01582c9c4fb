//! Starts and ends of faults.

use switchyard_proto::v1::{HubMessage, hub_message};

use crate::cluster::yes;
use crate::plan::FaultKind;
use crate::state::{Event, World};

impl World {
    pub(crate) fn fault(&mut self, index: usize) {
        let fault = self.plan.faults[index].clone();
        self.note(|| {
            format!("FAULT {:?} until {}.{:03}", fault.kind, fault.until / 1000, fault.until % 1000)
        });
        self.faults_open += 1;
        self.at(fault.until, Event::FaultEnds(index));
        if let Some(name) = fault.kind.counted() {
            self.reached(name);
        }
        match fault.kind {
            FaultKind::AgentCrash { cluster, fin } => self.crash_agent(cluster, fin),
            FaultKind::AgentFreeze(cluster) => self.freeze_agent(cluster),
            FaultKind::HubCrash { hub, fin } => self.crash_hub(hub, fin),
            FaultKind::HubFreeze(hub) => {
                if self.hubs[hub].up {
                    self.hubs[hub].frozen.get_or_insert_default();
                }
            }
            FaultKind::HubCut(hub) => self.hubs[hub].cut += 1,
            FaultKind::UplinkCut(cluster) => self.cut(cluster, true, false, 1),
            FaultKind::DownlinkCut(cluster) => self.cut(cluster, false, true, 1),
            FaultKind::Partition(cluster) => self.cut(cluster, true, true, 1),
            FaultKind::Expired(cluster) => {
                self.clusters[cluster].expired += 1;
                self.drop_session(cluster);
            }
            FaultKind::HalfLost => {
                for cluster in 0..self.clusters.len().div_ceil(2) {
                    self.cut(cluster, true, true, 1);
                }
            }
            FaultKind::ApiOutage(cluster) => {
                self.clusters[cluster].outage += 1;
            }
            FaultKind::WatchGap(cluster) => self.clusters[cluster].gap += 1,
            FaultKind::Slow(cluster) => self.clusters[cluster].slow += 1,
            FaultKind::RejectsCreations(cluster) => self.clusters[cluster].rejects_creations += 1,
            FaultKind::PodsNotReady(cluster) => self.clusters[cluster].unready += 1,
            FaultKind::Flood(cluster) => self.flood(cluster, fault.until),
            FaultKind::Forged(cluster) => self.forge(cluster),
            FaultKind::ClockJump { hub, seconds } => {
                self.crash_hub(hub, true);
                self.hubs[hub].skew += seconds * 1000;
            }
            FaultKind::Evict(workload) => self.evict(&self.uid(workload)),
            FaultKind::Delete(workload) => self.delete_owner(&self.uid(workload)),
            FaultKind::WorkerEvicts { cluster, workload } => self.worker_evicts(cluster, workload),
            FaultKind::WorkerDeletes { cluster, workload } => {
                self.worker_deletes(cluster, workload, fault.until.is_multiple_of(2))
            }
            FaultKind::Replaced { cluster, workload } => self.replace(cluster, workload),
            FaultKind::Replay(cluster) => self.replay(cluster),
            FaultKind::DeclareLost(cluster) => self.declare_lost(cluster),
            FaultKind::Release => self.release_breaker(),
            FaultKind::StoreLost { not_again } => self.lose_store(not_again),
            FaultKind::StoreRestored => self.back_up(),
            FaultKind::Drain(cluster) => self.drain(cluster, true),
            FaultKind::OwnerChanges { workload, loss } => {
                self.owner_changes(&self.uid(workload), loss, 1)
            }
            FaultKind::PolicyChange { cluster, loss } => self.change_rule(cluster, loss),
            FaultKind::Move { workload, cluster } => self.move_to(&self.uid(workload), cluster),
        }
    }

    fn drain(&mut self, cluster: usize, begins: bool) {
        let drained = &mut self.clusters[cluster].drained;
        *drained = if begins { *drained + 1 } else { *drained - 1 };
        self.rules_changed(cluster);
    }

    pub(crate) fn fault_ends(&mut self, index: usize) {
        let fault = self.plan.faults[index].clone();
        self.note(|| format!("over: {:?}", fault.kind));
        self.faults_open -= 1;
        self.quiet_since = self.now;
        match fault.kind {
            FaultKind::AgentCrash { cluster, .. } => {
                self.was_unable(cluster, self.now);
                if !self.clusters[cluster].agent.up {
                    self.agent_boot(cluster);
                }
            }
            FaultKind::AgentFreeze(cluster) => {
                self.was_unable(cluster, self.now);
                let waiting = self.clusters[cluster].agent.frozen.take().unwrap_or_default();
                self.thaw(waiting);
            }
            FaultKind::HubCrash { hub, .. } | FaultKind::ClockJump { hub, .. } => {
                if !self.hubs[hub].up {
                    self.hub_boot(hub);
                }
            }
            FaultKind::HubFreeze(hub) => {
                let waiting = self.hubs[hub].frozen.take().unwrap_or_default();
                self.thaw(waiting);
            }
            FaultKind::HubCut(hub) => {
                self.hubs[hub].cut -= 1;
                self.hub_lists(hub);
                self.read_statuses(hub);
                let boot = self.hubs[hub].boot;
                for cluster in 0..self.clusters.len() {
                    self.read_rules(hub, boot, cluster);
                }
                self.statuses_soon(hub);
            }
            FaultKind::UplinkCut(cluster) => self.cut(cluster, true, false, -1),
            FaultKind::DownlinkCut(cluster) => self.cut(cluster, false, true, -1),
            FaultKind::Partition(cluster) => self.cut(cluster, true, true, -1),
            FaultKind::Expired(cluster) => self.clusters[cluster].expired -= 1,
            FaultKind::HalfLost => {
                for cluster in 0..self.clusters.len().div_ceil(2) {
                    self.cut(cluster, true, true, -1);
                }
            }
            FaultKind::ApiOutage(cluster) => {
                self.clusters[cluster].outage -= 1;
                self.was_unable(cluster, self.now);
                self.reconcile_soon(cluster);
            }
            FaultKind::WatchGap(cluster) => {
                self.clusters[cluster].gap -= 1;
                self.relist(cluster);
            }
            FaultKind::Slow(cluster) => {
                self.clusters[cluster].slow -= 1;
                self.was_unable(cluster, self.now);
            }
            FaultKind::RejectsCreations(cluster) => self.clusters[cluster].rejects_creations -= 1,
            FaultKind::PodsNotReady(cluster) => self.pods_get_ready(cluster),
            FaultKind::Forged(cluster) => self.remove_forged(cluster),
            FaultKind::Replaced { cluster, workload } => self.remove_replacement(cluster, workload),
            FaultKind::Replay(cluster) => self.replay(cluster),
            FaultKind::StoreLost { not_again } => self.restart_after_loss(not_again),
            FaultKind::StoreRestored => self.restore(),
            FaultKind::Drain(cluster) => self.drain(cluster, false),
            FaultKind::PolicyChange { cluster, .. } => {
                self.change_rule(cluster, self.plan.clusters[cluster].loss)
            }
            FaultKind::OwnerChanges { workload, .. } => {
                self.owner_changes(&self.uid(workload), self.plan.workloads[workload].loss, 2)
            }
            FaultKind::Evict(_)
            | FaultKind::Delete(_)
            | FaultKind::Flood(_)
            | FaultKind::DeclareLost(_)
            | FaultKind::Release
            | FaultKind::Move { .. }
            | FaultKind::WorkerEvicts { .. }
            | FaultKind::WorkerDeletes { .. } => {}
        }
    }

    fn freeze_agent(&mut self, cluster: usize) {
        if self.clusters[cluster].agent.up {
            self.clusters[cluster].agent.frozen.get_or_insert_default();
        }
    }

    /// A thawed process receives the events of its freeze, in roughly their order.
    fn thaw(&mut self, waiting: Vec<Event>) {
        for event in waiting {
            self.at(self.now, event);
        }
    }

    /// Replays messages of earlier connections over the present one.
    fn replay(&mut self, cluster: usize) {
        let open = self.network.links.iter().find(|(_, link)| {
            link.cluster == cluster && link.hub_open && link.agent_open && link.session.is_some()
        });
        let Some((id, hub)) = open.map(|(id, link)| (*id, link.hub)) else { return };
        self.reached("fault: replay");
        let same =
            |link: &crate::state::Link| link.hub_boot == self.hubs[hub].boot && self.hubs[hub].up;
        let heard =
            self.network.links.get(&id).is_some_and(same) && self.hubs[hub].frozen.is_none();
        let up: Vec<_> = self.network.old_up.get(&cluster).into_iter().flatten().cloned().collect();
        let down: Vec<_> =
            self.network.old_down.get(&cluster).into_iter().flatten().cloned().collect();
        for message in up.into_iter().filter(|message| heard && message.session_id != 0) {
            if self.dice(1 + cluster).chance(500) {
                self.hub_handles(id, hub, cluster, message);
            }
        }
        // An agent rejects messages with another session's id. Only a Welcome brings the id itself,
        // and TLS keeps the Welcome of another stream out.
        let is_welcome =
            |message: &HubMessage| matches!(message.kind, Some(hub_message::Kind::Welcome(_)));
        for message in down.into_iter().filter(|message| !is_welcome(message)) {
            let agent = &self.clusters[cluster].agent;
            if agent.up && agent.frozen.is_none() && self.dice(1 + cluster).chance(500) {
                self.agent_handles(cluster, message);
            }
        }
    }

    fn worker_evicts(&mut self, cluster: usize, index: usize) {
        self.clusters[cluster].evicted.insert(index);
        let mut evicts = false;
        self.change_workload(cluster, index, |workload| {
            let admitted = workload.admitted.as_ref().is_some_and(|it| it.is_true);
            evicts = admitted && workload.finished.is_none();
            if evicts {
                (workload.admitted, workload.evicted) = (None, yes("Preempted"));
            }
        });
        if evicts {
            self.reached("fault: worker evicts");
        }
    }

    fn worker_deletes(&mut self, cluster: usize, index: usize, foreground: bool) {
        self.clusters[cluster].evicted.insert(index);
        let runs = self.clusters[cluster].has_pods(index);
        if self.delete_job(cluster, index, foreground) && runs {
            self.reached(match foreground {
                true => "fault: worker deletes in the foreground",
                false => "fault: worker deletes in the background",
            });
        }
    }
}
