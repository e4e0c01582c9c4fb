//! Groups of related faults, for runs that chance alone rarely produces.

use switchyard_dispatcher::{DispatchMode, LossPolicy, StuckPolicy};

use super::{
    ClusterPlan, Fault, FaultKind, ISOLATED_FROM, LAST_SUBMIT, Ms, Noise, Plan, WorkloadPlan,
    roll_loss,
};
use crate::dice::Dice;

impl Plan {
    /// On some clusters, pods do not become ready for a while, and jobs have the policy `onStuck`.
    pub(super) fn get_stuck(&mut self, dice: &mut Dice) {
        for workload in &mut self.workloads {
            let after = i64::try_from(dice.between(10, 100)).unwrap_or(0) * 1_000;
            let times = u32::try_from(dice.between(1, 3)).unwrap_or(1);
            workload.stuck = dice.chance(800).then_some(StuckPolicy { after, times });
            if dice.chance(300) {
                workload.runs += dice.between(60_000, 200_000);
            }
        }
        for cluster in 0..self.clusters.len() {
            if !dice.chance(700) || (self.is_isolated() && cluster > 0) {
                continue;
            }
            let first = self.workloads.iter().map(|workload| workload.at).min().unwrap_or(0);
            let at = first.saturating_sub(1_000) + dice.between(0, 10_000);
            let lasts = dice.between(20_000, 250_000);
            let kind = FaultKind::PodsNotReady(cluster);
            self.faults.push(Fault { at, until: at + lasts, kind });
        }
    }

    /// The first workload waits for quota on every cluster, where it may preempt another one.
    pub(super) fn contend(&mut self, dice: &mut Dice) {
        let clusters = self.clusters.len();
        if clusters < 2 {
            return;
        }
        for cluster in &mut self.clusters {
            cluster.capacity = 4_000;
        }
        while self.workloads.len() <= clusters {
            self.workloads.push(WorkloadPlan::roll(dice, 4_000));
        }
        for (index, workload) in self.workloads.iter_mut().enumerate() {
            match index {
                0 => (workload.need, workload.at) = (2_000, dice.between(8_000, 15_000)),
                // One for each cluster, which leaves too little for the first workload.
                _ if index <= clusters => {
                    (workload.need, workload.at) = (3_000, dice.between(0, 3_000));
                    workload.runs = dice.between(60_000, 120_000);
                }
                _ => (workload.need, workload.at) = (1_000, LAST_SUBMIT),
            }
        }
    }

    /// While a cluster is unreachable, a workload is evicted and the hub restarts.
    pub(super) fn lose_sight(&mut self, dice: &mut Dice) {
        let workload = dice.index(self.workloads.len());
        let at = self.workloads[workload].at + dice.between(3_000, 10_000);
        let cluster = dice.index(self.clusters.len());
        let evicted = at + dice.between(0, 3_000);
        let crash = evicted + dice.between(0, 3_000);
        let kind = match dice.between(0, 2) {
            0 => FaultKind::Partition(cluster),
            1 => FaultKind::AgentCrash { cluster, fin: dice.chance(500) },
            _ => FaultKind::DownlinkCut(cluster),
        };
        self.workloads[workload].runs += 60_000;
        let hub = FaultKind::HubCrash { hub: 0, fin: true };
        self.faults.push(Fault { at, until: at + dice.between(5_000, 60_000), kind });
        self.faults.push(Fault {
            at: evicted,
            until: evicted + 1,
            kind: FaultKind::Evict(workload),
        });
        self.faults.push(Fault { at: crash, until: crash + dice.between(100, 10_000), kind: hub });
        self.hubs.truncate(1);
    }

    /// While a job ends that its cluster does not keep, the hub cannot write; then hub and agents
    /// restart.
    pub(super) fn lose_end(&mut self, dice: &mut Dice) {
        let index = dice.index(self.workloads.len());
        let workload = &mut self.workloads[index];
        workload.ttl = Some(dice.between(0, 500));
        let ends = workload.at + workload.runs + dice.between(0, 4_000);
        let crash = ends + dice.between(2_000, 8_000);
        let hub = FaultKind::HubCrash { hub: 0, fin: true };
        self.faults.push(Fault { at: ends, until: crash, kind: FaultKind::HubCut(0) });
        self.faults.push(Fault { at: crash, until: crash + dice.between(100, 10_000), kind: hub });
        for cluster in 0..self.clusters.len() {
            let kind = FaultKind::AgentCrash { cluster, fin: true };
            self.faults.push(Fault { at: crash, until: crash + dice.between(100, 10_000), kind });
        }
        self.hubs.truncate(1);
    }

    /// While a workload is withdrawn from a cluster, a user replaces its job with another object.
    pub(super) fn replace(&mut self, dice: &mut Dice) {
        let workload = dice.index(self.workloads.len());
        let at = self.workloads[workload].at + dice.between(2_000, 10_000);
        let replaced = at + dice.between(0, 2_000);
        self.workloads[workload].runs += 20_000;
        self.noise.stale = self.noise.stale.max(1_000);
        self.faults.push(Fault { at, until: at + 1, kind: FaultKind::Evict(workload) });
        for cluster in 0..self.clusters.len() {
            let kind = FaultKind::Replaced { cluster, workload };
            self.faults.push(Fault {
                at: replaced,
                until: replaced + dice.between(1_000, 20_000),
                kind,
            });
        }
    }

    /// Only the first cluster fails; the others have quota for all workloads.
    pub(super) fn isolate(&mut self, dice: &mut Dice) {
        while self.clusters.len() < 2 {
            self.clusters.push(ClusterPlan::roll(dice));
        }
        self.mode = DispatchMode::BestFit;
        self.noise =
            Noise { lost_answers: 0, lost_requests: 0, late: 0, twice: 0, delay: 40, stale: 100 };
        let all: u64 = self.workloads.iter().map(|workload| workload.need).sum();
        for cluster in &mut self.clusters {
            cluster.capacity = cluster.capacity.max(all);
        }
        // Until then the hub waits for clusters without a connection.
        self.workloads.iter_mut().for_each(|workload| workload.at += ISOLATED_FROM);
        for _ in 0..dice.between(1, 4) {
            let kind = match dice.between(0, 6) {
                0 => FaultKind::AgentCrash { cluster: 0, fin: dice.chance(500) },
                1 => FaultKind::AgentFreeze(0),
                2 => FaultKind::UplinkCut(0),
                3 => FaultKind::DownlinkCut(0),
                4 => FaultKind::Partition(0),
                5 => FaultKind::ApiOutage(0),
                _ => FaultKind::Slow(0),
            };
            let at = ISOLATED_FROM + dice.between(0, LAST_SUBMIT);
            self.faults.push(Fault { at, until: at + dice.between(1_000, 60_000), kind });
        }
    }

    /// A cluster is lost for longer than its policy's time, and returns while its jobs run
    /// elsewhere.
    pub(super) fn lose_cluster(&mut self, dice: &mut Dice) {
        while self.clusters.len() < 2 {
            self.clusters.push(ClusterPlan::roll(dice));
        }
        let cluster = dice.index(self.clusters.len());
        let workload = dice.index(self.workloads.len());
        self.workloads[workload].runs += dice.between(60_000, 200_000);
        let at = self.workloads[workload].at + dice.between(2_000, 15_000);
        let until = at + dice.between(60_000, 300_000);
        let kind = match dice.between(0, 6) {
            0 => FaultKind::UplinkCut(cluster),
            1 => FaultKind::DownlinkCut(cluster),
            2 => FaultKind::AgentFreeze(cluster),
            3 => FaultKind::AgentCrash { cluster, fin: dice.chance(500) },
            _ => FaultKind::Partition(cluster),
        };
        self.faults.push(Fault { at, until, kind });
        if dice.chance(200) {
            let declared = at + dice.between(5_000, 60_000);
            self.faults.push(Fault {
                at: declared,
                until: declared + 1,
                kind: FaultKind::DeclareLost(cluster),
            });
        }
    }

    /// More clusters are lost at once than the circuit breaker allows. Most return, some only after
    /// operators have acted.
    pub(super) fn lose_many(&mut self, dice: &mut Dice) {
        while self.clusters.len() < 3 {
            self.clusters.push(ClusterPlan::roll(dice));
        }
        let workload = dice.index(self.workloads.len());
        self.workloads[workload].runs += dice.between(60_000, 200_000);
        let at = self.workloads[workload].at + dice.between(2_000, 15_000);
        let mut back = at;
        let well = dice.index(4);
        for cluster in (0..3).filter(|cluster| *cluster != well) {
            let at = at + dice.between(0, 20_000);
            let until = at + dice.between(60_000, 400_000);
            back = back.max(until);
            self.faults.push(Fault { at, until, kind: FaultKind::Partition(cluster) });
        }
        if dice.chance(500) {
            let at = dice.between(at, back);
            self.faults.push(Fault { at, until: at + 1, kind: FaultKind::Release });
        }
    }

    /// Owners change their workloads' policies, mostly shortly before the loss.
    pub(super) fn change_minds(&mut self, dice: &mut Dice) {
        let workload = dice.index(self.workloads.len());
        self.workloads[workload].runs += dice.between(30_000, 120_000);
        let lost = self
            .faults
            .iter()
            .find(|fault| matches!(fault.kind, FaultKind::Partition(_) | FaultKind::UplinkCut(_)));
        let at = match lost {
            Some(fault) if dice.chance(700) => fault.at.saturating_sub(dice.between(0, 40_000)),
            _ => self.workloads[workload].at + dice.between(0, 30_000),
        };
        let loss = dice.chance(800).then(|| roll_loss(dice));
        self.faults.push(Fault {
            at,
            until: at + dice.between(1_000, 120_000),
            kind: FaultKind::OwnerChanges { workload, loss },
        });
    }

    /// Users change a cluster's policy, mostly shortly before its loss.
    pub(super) fn change_rules(&mut self, dice: &mut Dice) {
        let lost = self.faults.iter().find_map(|fault| match fault.kind {
            FaultKind::Partition(cluster) | FaultKind::UplinkCut(cluster) => {
                Some((cluster, fault.at))
            }
            _ => None,
        });
        let (cluster, at) = match lost {
            Some((cluster, at)) if dice.chance(700) => {
                (cluster, at.saturating_sub(dice.between(0, 40_000)))
            }
            _ => (dice.index(self.clusters.len()), dice.between(0, LAST_SUBMIT + 30_000)),
        };
        // Without an agent, nothing enforces a fence.
        if self.clusters[cluster].loss == LossPolicy::GiveUp {
            return;
        }
        let kind = FaultKind::PolicyChange { cluster, loss: roll_loss(dice) };
        self.faults.push(Fault { at, until: at + dice.between(1_000, 120_000), kind });
    }

    /// The hub's store is lost while most jobs run; or minutes later, when a cluster was given up
    /// for another that is slow to connect to the new hub.
    pub(super) fn lose_store(&mut self, dice: &mut Dice) {
        if dice.chance(400) {
            self.lose_store_late(dice);
            return;
        }
        let workload = dice.index(self.workloads.len());
        self.workloads[workload].runs += dice.between(0, 120_000);
        let at = self.workloads[workload].at + dice.between(500, 20_000);
        let not_again = dice.chance(300).then(|| dice.index(self.workloads.len()));
        self.faults.push(Fault {
            at,
            until: at + dice.between(500, 60_000),
            kind: FaultKind::StoreLost { not_again },
        });
    }

    fn lose_store_late(&mut self, dice: &mut Dice) {
        while self.clusters.len() < 2 {
            self.clusters.push(ClusterPlan::roll(dice));
        }
        let (given_up, workload) =
            (dice.index(self.clusters.len()), dice.index(self.workloads.len()));
        for cluster in &mut self.clusters {
            cluster.loss = LossPolicy::Fence { after: dice.between(0, 20) as i64 * 1000 };
        }
        self.workloads[workload].loss = None;
        self.workloads[workload].runs += dice.between(200_000, 400_000);
        let away = self.workloads[workload].at + dice.between(2_000, 15_000);
        let lost = away + dice.between(80_000, 180_000);
        let again = lost + dice.between(500, 20_000);
        self.faults.push(Fault { at: away, until: lost, kind: FaultKind::Partition(given_up) });
        self.faults.push(Fault {
            at: lost,
            until: again,
            kind: FaultKind::StoreLost { not_again: None },
        });
        for cluster in (0..self.clusters.len()).filter(|cluster| *cluster != given_up) {
            let until = again + dice.between(500, 90_000);
            self.faults.push(Fault { at: lost, until, kind: FaultKind::Partition(cluster) });
        }
    }

    /// The hub's store is restored from a backup.
    pub(super) fn restore_store(&mut self, dice: &mut Dice) {
        let workload = dice.index(self.workloads.len());
        self.workloads[workload].runs += dice.between(0, 120_000);
        let at = self.workloads[workload].at + dice.between(0, 20_000);
        self.faults.push(Fault {
            at,
            until: at + dice.between(500, 60_000),
            kind: FaultKind::StoreRestored,
        });
    }

    /// While a worker's API server is down for long, as its agent reported, the hub restarts.
    pub(super) fn lose_control_plane(&mut self, dice: &mut Dice) {
        let (_, at) = self.lose_api(dice);
        let crash = at + dice.between(11_000, 30_000);
        for hub in 0..self.hubs.len() {
            let kind = FaultKind::HubCrash { hub, fin: dice.chance(700) };
            self.faults.push(Fault { at: crash, until: crash + dice.between(500, 5_000), kind });
        }
    }

    /// A worker's API server is down for long while it runs a fenced job. Returns the cluster and
    /// the start.
    fn lose_api(&mut self, dice: &mut Dice) -> (usize, Ms) {
        while self.clusters.len() < 2 {
            self.clusters.push(ClusterPlan::roll(dice));
        }
        for cluster in &mut self.clusters {
            cluster.loss = LossPolicy::Fence { after: dice.between(0, 20) as i64 * 1000 };
        }
        let (cluster, workload) =
            (dice.index(self.clusters.len()), dice.index(self.workloads.len()));
        self.workloads[workload].loss = None;
        self.workloads[workload].runs += dice.between(200_000, 300_000);
        let at = self.workloads[workload].at + dice.between(5_000, 20_000);
        let until = at + dice.between(150_000, 300_000);
        self.faults.push(Fault { at, until, kind: FaultKind::ApiOutage(cluster) });
        (cluster, at)
    }

    /// While the hub cannot write, an agent reports that it cannot act, and its session ends. Once
    /// the hub can write again, it restarts.
    pub(super) fn lose_word(&mut self, dice: &mut Dice) {
        let (cluster, at) = self.lose_api(dice);
        self.hubs.truncate(1);
        self.faults.retain(|fault| fault.kind.hub().is_none_or(|hub| hub == 0));
        // The agent reports within ten seconds.
        let ends = at + dice.between(10_100, 14_000);
        let again = ends + dice.between(100, 10_000);
        let crash = again + dice.between(1_000, 15_000);
        let cut = FaultKind::HubCut(0);
        self.faults.push(Fault { at: at + dice.between(0, 4_000), until: again, kind: cut });
        let expired = FaultKind::Expired(cluster);
        self.faults.push(Fault { at: ends, until: ends + dice.between(500, 5_000), kind: expired });
        let hub = FaultKind::HubCrash { hub: 0, fin: true };
        self.faults.push(Fault { at: crash, until: crash + dice.between(500, 5_000), kind: hub });
    }

    /// An attacker, or a worker that accepts nothing new.
    pub(super) fn annoy(&mut self, dice: &mut Dice) {
        for _ in 0..dice.between(1, 2) {
            let (cluster, workload) =
                (dice.index(self.clusters.len()), dice.index(self.workloads.len()));
            let at = self.workloads[workload].at + dice.between(0, 5_000);
            let kind = match dice.between(0, 2) {
                0 => FaultKind::RejectsCreations(cluster),
                1 => FaultKind::Flood(cluster),
                _ => FaultKind::Forged(cluster),
            };
            self.faults.push(Fault { at, until: at + dice.between(1_000, 90_000), kind });
        }
    }

    /// Actions of operators.
    pub(super) fn operate(&mut self, dice: &mut Dice) {
        for _ in 0..dice.between(1, 3) {
            let (cluster, workload) =
                (dice.index(self.clusters.len()), dice.index(self.workloads.len()));
            let at = self.workloads[workload].at + dice.between(0, 20_000);
            let kind = match dice.between(0, 2) {
                0 => FaultKind::Drain(cluster),
                1 => FaultKind::DeclareLost(cluster),
                _ => FaultKind::Move { workload, cluster },
            };
            self.faults.push(Fault { at, until: at + dice.between(1_000, 60_000), kind });
        }
    }
}
