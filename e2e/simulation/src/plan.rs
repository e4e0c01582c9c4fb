//! Plans: the fleet, workloads and faults of a seed. A plan and its seed determine a run.

mod kinds;
mod stories;

use switchyard_dispatcher::{DispatchMode, LossPolicy, StuckPolicy};

use crate::dice::Dice;
use crate::violation::Law;

pub use crate::time::Ms;

#[derive(Debug, Clone)]
pub struct Plan {
    /// Determines all delays and losses.
    pub seed: u64,
    /// The dispatcher.
    pub mode: DispatchMode,
    /// If several clusters compete for a workload: the time that each may preempt for, one after
    /// the other.
    pub preemption_timeout: Option<Ms>,
    pub clusters: Vec<ClusterPlan>,
    /// The clock speed of each hub replica, in thousandths.
    pub hubs: Vec<u64>,
    /// Election times of the chart, not the program's defaults.
    pub charted: bool,
    pub workloads: Vec<WorkloadPlan>,
    pub faults: Vec<Fault>,
    /// Noise beside the faults.
    pub noise: Noise,
    /// The hub charges flavors that clusters may lack, and pins them.
    pub pinned: bool,
    /// Check only this law; `None` checks all.
    pub only: Option<Law>,
}

#[derive(Debug, Clone)]
pub struct ClusterPlan {
    pub capacity: u64,
    /// Clock speed of its agent, in thousandths.
    pub clock: u64,
    /// `onDisconnect` of the cluster.
    pub loss: LossPolicy,
    /// A workload whose name belongs to an unrelated object.
    pub occupied: Option<usize>,
    /// The worker runs stock Kueue: jobs own their Workloads, which finish as soon as the jobs end.
    pub adopts: bool,
    /// The flavors that its queue lists.
    pub flavors: Vec<&'static str>,
}

#[derive(Debug, Clone)]
pub struct WorkloadPlan {
    /// Time of submission.
    pub at: Ms,
    /// Requested quota.
    pub need: u64,
    /// Run time of its pods.
    pub runs: Ms,
    pub success: bool,
    /// `ttlSecondsAfterFinished`; applies unless a finalizer holds the job.
    pub ttl: Option<Ms>,
    /// `onDisconnect` of the job; `None` leaves it to the cluster.
    pub loss: Option<LossPolicy>,
    /// `onStuck` of the job.
    pub stuck: Option<StuckPolicy>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub at: Ms,
    pub until: Ms,
    pub kind: FaultKind,
}

/// Fields are numbers of clusters, hub replicas and workloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// The agent's process crashes.
    AgentCrash {
        cluster: usize,
        /// Whether the machine survives and closes the connection.
        fin: bool,
    },
    /// The agent's process freezes.
    AgentFreeze(usize),
    /// A hub replica's process crashes.
    HubCrash {
        hub: usize,
        /// Whether the machine survives and closes the connections.
        fin: bool,
    },
    /// A hub replica's process freezes, then continues unaware.
    HubFreeze(usize),
    /// A hub replica cannot reach the hub's API server.
    HubCut(usize),
    /// Messages from the agent to the hub are cut.
    UplinkCut(usize),
    /// Messages from the hub to the agent are cut.
    DownlinkCut(usize),
    /// Both directions are cut, and new connections fail.
    Partition(usize),
    /// The agent's certificate expires: its session ends, and no other begins.
    Expired(usize),
    /// Half of the clusters are lost.
    HalfLost,
    /// The worker's API server is down.
    ApiOutage(usize),
    /// The worker's watches miss events.
    WatchGap(usize),
    /// The worker is slow in everything.
    Slow(usize),
    /// The wall clock of a hub replica jumps, and its process restarts.
    ClockJump {
        hub: usize,
        /// Positive or negative.
        seconds: i64,
    },
    /// The hub evicts a workload, by preemption or by its administrator.
    Evict(usize),
    /// The owner deletes the job.
    Delete(usize),
    /// A worker evicts its copy of a workload.
    WorkerEvicts { cluster: usize, workload: usize },
    /// The worker's administrator deletes a job.
    WorkerDeletes { cluster: usize, workload: usize },
    /// A user removes a job by force and creates another object of its name, until the fault ends.
    Replaced { cluster: usize, workload: usize },
    /// The last messages of earlier connections are replayed, at the start and at the end of the
    /// fault.
    Replay(usize),
    /// A worker's API server rejects every creation: a webhook, or an object quota.
    RejectsCreations(usize),
    /// Pods that start on the cluster become ready only when the fault ends.
    PodsNotReady(usize),
    /// An agent repeats its messages again and again, with changing capacity.
    Flood(usize),
    /// A user of the worker forges objects with this hub's marks, of unknown workloads.
    Forged(usize),
    /// Operators declare a cluster lost, if it is disconnected.
    DeclareLost(usize),
    /// Operators release the circuit breaker.
    Release,
    /// The hub's store is lost, and all replicas with it. At the end they restart, and owners apply
    /// their jobs again, except perhaps one.
    StoreLost {
        /// The workload whose owner does not.
        not_again: Option<usize>,
    },
    /// At its end, the hub's store is restored from a backup made at its start. All replicas
    /// restart, and owners apply again what the backup lacks.
    StoreRestored,
    /// Operators drain a cluster.
    Drain(usize),
    /// The owner changes a workload's policy and priority. At the end the policy is restored, and
    /// the priority changes again.
    OwnerChanges { workload: usize, loss: Option<LossPolicy> },
    /// Users change a cluster's policy; at the end it is restored.
    PolicyChange { cluster: usize, loss: LossPolicy },
    /// Operators move a workload to the cluster.
    Move { workload: usize, cluster: usize },
}

/// Probabilities in thousandths, and delays.
#[derive(Debug, Clone)]
pub struct Noise {
    /// Writes that happen, and whose answer is lost.
    pub lost_answers: u32,
    /// Requests that are lost.
    pub lost_requests: u32,
    /// Requests that are performed after their sender's timeout.
    pub late: u32,
    /// Messages that arrive twice.
    pub twice: u32,
    /// The longest delay of a message or request.
    pub delay: Ms,
    /// The longest delay of a watch.
    pub stale: Ms,
}

/// The flavors of the hub's queue.
pub const FLAVORS: [&str; 2] = ["default", "spot"];

/// By then, a run without faults waits for nothing more.
const LAST_SUBMIT: Ms = 30_000;
/// By then, an undisturbed hub has known its clusters for long.
const ISOLATED_FROM: Ms = 30_000;
/// How often, and how long, the first cluster of an isolated plan gets nothing. Shorter than the
/// wait for the answer to a ping.
const STUTTERS: Ms = 10;
const STUTTER_EVERY: Ms = 5_000;
const STUTTER_FOR: Ms = 4_700;

impl Plan {
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 0);
        let clusters =
            (0..dice.between(1, 3)).map(|_| ClusterPlan::roll(&mut dice)).collect::<Vec<_>>();
        let hubs = (0..dice.between(1, 2)).map(|_| dice.between(950, 1050)).collect::<Vec<_>>();
        let smallest = clusters.iter().map(|cluster| cluster.capacity).min().unwrap_or(1);
        let workloads = (0..dice.between(1, 6))
            .map(|_| WorkloadPlan::roll(&mut dice, smallest))
            .collect::<Vec<_>>();
        let mut plan = Self {
            seed,
            mode: match dice.between(0, 5) {
                0 => DispatchMode::AllAtOnce,
                1 => DispatchMode::Incremental { step: 1, round: 5_000 },
                _ => DispatchMode::BestFit,
            },
            preemption_timeout: None,
            clusters,
            hubs,
            charted: Dice::new(seed, 6).chance(500),
            workloads,
            faults: Vec::new(),
            noise: Noise::roll(&mut dice),
            pinned: false,
            only: None,
        };
        // A name that is taken on all clusters would keep its workload from ever running.
        if plan.clusters.len() > 1 && dice.chance(100) {
            plan.clusters[0].occupied = Some(dice.index(plan.workloads.len()));
        }
        match dice.between(0, 9) {
            0 => plan.isolate(&mut dice),
            1 => plan.lose_sight(&mut dice),
            2 => plan.replace(&mut dice),
            3 => plan.lose_end(&mut dice),
            _ => plan.roll_faults(&mut dice),
        }
        // A stream of its own keeps the earlier choices of each seed.
        let mut more = Dice::new(seed, 1);
        for cluster in plan.clusters.iter_mut().filter(|cluster| cluster.loss == LossPolicy::Hold) {
            cluster.loss = match more.between(0, 9) {
                0 | 1 => LossPolicy::Duplicate { after: more.between(0, 30) as i64 * 1000 },
                2 => LossPolicy::GiveUp,
                _ => LossPolicy::Hold,
            };
        }
        let mut own = Dice::new(seed, 2);
        if own.chance(300) {
            for workload in &mut plan.workloads {
                workload.loss = own.chance(500).then(|| roll_loss(&mut own));
            }
        }
        if more.chance(250) {
            plan.lose_cluster(&mut more);
        }
        if more.chance(150) {
            plan.operate(&mut more);
        }
        if own.chance(150) {
            plan.change_minds(&mut own);
        }
        if own.chance(100) {
            plan.lose_many(&mut own);
        }
        // Another stream of its own, for the same reason.
        let mut last = Dice::new(seed, 3);
        if last.chance(150) {
            plan.lose_store(&mut last);
        } else if last.chance(150) {
            plan.restore_store(&mut last);
        } else if last.chance(100) {
            plan.lose_control_plane(&mut last);
        } else if last.chance(80) {
            plan.lose_word(&mut last);
        }
        let mut gates = Dice::new(seed, 5);
        if plan.mode.keeps_copies() && gates.chance(600) {
            plan.preemption_timeout = Some(gates.between(5, 60) * 1_000);
        }
        let mut contended = Dice::new(seed, 10);
        if plan.preemption_timeout.is_some() && contended.chance(300) && !plan.is_isolated() {
            plan.contend(&mut contended);
        }
        let mut hostile = Dice::new(seed, 7);
        if hostile.chance(250) && !plan.is_isolated() {
            plan.annoy(&mut hostile);
        }
        let mut stuck = Dice::new(seed, 8);
        if stuck.chance(200) {
            plan.get_stuck(&mut stuck);
        }
        let mut rules = Dice::new(seed, 4);
        if rules.chance(150) {
            plan.change_rules(&mut rules);
        }
        let mut flavors = Dice::new(seed, 9);
        if flavors.chance(500) && !plan.is_isolated() && !plan.faults.is_empty() {
            plan.pin(&mut flavors);
        }
        if Dice::new(seed, 10).chance(700) && plan.is_isolated() {
            plan.stutter();
        }
        plan
    }

    /// The first cluster gets nothing for seconds, again and again, but not so long that its session
    /// ends.
    fn stutter(&mut self) {
        let first = self.workloads.iter().map(|workload| workload.at).min().unwrap_or_default();
        for number in 0..STUTTERS {
            let at = first.saturating_sub(STUTTER_FOR / 2) + number * STUTTER_EVERY;
            let until = at + STUTTER_FOR;
            self.faults.push(Fault { at, until, kind: FaultKind::DownlinkCut(0) });
        }
    }

    /// Each cluster lists one or both flavors.
    fn pin(&mut self, dice: &mut Dice) {
        self.pinned = true;
        for cluster in &mut self.clusters {
            cluster.flavors = match dice.between(0, 2) {
                0 => vec![FLAVORS[0]],
                1 => vec![FLAVORS[1]],
                _ => FLAVORS.to_vec(),
            };
        }
    }

    /// Up to eight faults, spread over the run or close together.
    fn roll_faults(&mut self, dice: &mut Dice) {
        let count = if dice.chance(100) { 0 } else { dice.between(1, 8) };
        let moment = dice.chance(500).then(|| {
            let workload = &self.workloads[dice.index(self.workloads.len())];
            workload.at + dice.between(0, 4_000 + workload.runs)
        });
        for _ in 0..count {
            let mut fault = self.roll_fault(dice);
            if let Some(moment) = moment {
                let lasts = fault.until - fault.at;
                fault.at = moment.saturating_sub(2_000) + dice.between(0, 8_000);
                fault.until = fault.at + lasts;
            }
            self.faults.push(fault);
        }
    }

    /// Whether only the first cluster fails, and the others have quota for all workloads.
    pub fn is_isolated(&self) -> bool {
        let all: u64 = self.workloads.iter().map(|workload| workload.need).sum();
        let losses =
            self.noise.lost_answers + self.noise.lost_requests + self.noise.late + self.noise.twice;
        let calm = losses == 0 && self.noise.delay <= 40;
        let others = &self.clusters[1..];
        self.mode == DispatchMode::BestFit
            && calm
            && !others.is_empty()
            && others.iter().all(|cluster| cluster.capacity >= all)
            && self.workloads.iter().all(|workload| workload.at >= ISOLATED_FROM)
            && self
                .faults
                .iter()
                .all(|it| it.kind.cluster() == Some(0) && it.kind.workload().is_none())
    }

    /// Whether each workload can run on some cluster once all faults have ended.
    pub fn can_end(&self) -> bool {
        self.workloads.iter().enumerate().all(|(index, workload)| {
            self.clusters
                .iter()
                .any(|it| it.capacity >= workload.need && it.occupied != Some(index))
        })
    }

    /// The end of the last fault.
    pub fn calm(&self) -> Ms {
        let last = self.workloads.iter().map(|workload| workload.at).max().unwrap_or(0);
        self.faults.iter().map(|fault| fault.until).max().unwrap_or(0).max(last)
    }

    fn roll_fault(&self, dice: &mut Dice) -> Fault {
        let kind = self.roll_kind(dice);
        // Most faults begin while a workload is active.
        let at = match self.workloads.get(dice.index(self.workloads.len())) {
            Some(workload) if dice.chance(750) => workload.at + dice.between(0, 6_000),
            _ => dice.between(0, LAST_SUBMIT + 30_000),
        };
        let lasts = match dice.between(0, 3) {
            0 => dice.between(50, 2_000),
            1 => dice.between(2_000, 20_000),
            2 => dice.between(20_000, 60_000),
            _ => dice.between(500, 120_000),
        };
        Fault { at, until: at + lasts, kind }
    }

    fn roll_kind(&self, dice: &mut Dice) -> FaultKind {
        let cluster = dice.index(self.clusters.len());
        let hub = dice.index(self.hubs.len());
        let workload = dice.index(self.workloads.len());
        match dice.between(0, 28) {
            0..=2 => FaultKind::AgentCrash { cluster, fin: dice.chance(700) },
            3 => FaultKind::AgentFreeze(cluster),
            4..=6 => FaultKind::HubCrash { hub, fin: dice.chance(700) },
            7 => FaultKind::HubFreeze(hub),
            8 => FaultKind::HubCut(hub),
            9 => FaultKind::UplinkCut(cluster),
            10 => FaultKind::DownlinkCut(cluster),
            11 | 12 => FaultKind::Partition(cluster),
            13 => FaultKind::Expired(cluster),
            14 => FaultKind::HalfLost,
            15 => FaultKind::ApiOutage(cluster),
            16 => FaultKind::WatchGap(cluster),
            17 => FaultKind::Slow(cluster),
            18 => FaultKind::ClockJump { hub, seconds: dice.between(0, 7_200) as i64 - 3_600 },
            19..=21 => FaultKind::Evict(workload),
            22 | 23 => FaultKind::Delete(workload),
            24 => FaultKind::WorkerEvicts { cluster, workload },
            25 => FaultKind::WorkerDeletes { cluster, workload },
            26 => FaultKind::Replaced { cluster, workload },
            _ => FaultKind::Replay(cluster),
        }
    }
}

/// A workload's policy.
fn roll_loss(dice: &mut Dice) -> LossPolicy {
    let after = dice.between(0, 30) as i64 * 1000;
    match dice.between(0, 3) {
        0 => LossPolicy::Hold,
        1 => LossPolicy::Duplicate { after },
        _ => LossPolicy::Fence { after },
    }
}

impl ClusterPlan {
    fn roll(dice: &mut Dice) -> Self {
        Self {
            capacity: dice.between(2, 6) * 1000,
            clock: dice.between(950, 1050),
            loss: match dice.chance(300) {
                true => LossPolicy::Fence { after: dice.between(0, 30) as i64 * 1000 },
                false => LossPolicy::Hold,
            },
            occupied: None,
            adopts: dice.chance(300),
            flavors: vec![FLAVORS[0]],
        }
    }
}

impl WorkloadPlan {
    fn roll(dice: &mut Dice, largest: u64) -> Self {
        Self {
            at: dice.between(0, LAST_SUBMIT),
            need: dice.between(1, (largest / 1000).max(1)) * 1000,
            runs: dice.between(100, 20_000),
            success: dice.chance(800),
            ttl: dice.chance(300).then(|| dice.between(0, 3_000)),
            loss: None,
            stuck: None,
        }
    }
}

impl Noise {
    fn roll(dice: &mut Dice) -> Self {
        let rough = dice.chance(500);
        Self {
            lost_answers: if rough { 50 } else { 0 },
            lost_requests: if rough { 50 } else { 0 },
            late: if rough { 30 } else { 0 },
            twice: if rough { 50 } else { 0 },
            delay: if dice.chance(300) { 800 } else { 40 },
            stale: if dice.chance(300) { 3_000 } else { 100 },
        }
    }
}
