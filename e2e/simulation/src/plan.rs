//! What a seed stands for: the fleet, its workloads, and the faults that it meets. A plan and its seed are a whole run.

mod kinds;
mod stories;

use switchyard_hub::dispatch::{Loss, Mode};

use crate::dice::Dice;
use crate::laws::Law;

/// Milliseconds since the run began.
pub type Ms = u64;

/// One run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Drives all delays and losses.
    pub seed: u64,
    /// How the hub chooses clusters.
    pub mode: Mode,
    /// Where it asks several, whether it lets them preempt one after the other, and how long it gives each.
    pub preemption_timeout: Option<Ms>,
    /// The worker clusters.
    pub clusters: Vec<ClusterPlan>,
    /// How fast each hub replica's clock runs, in thousandths.
    pub hubs: Vec<u64>,
    /// The election has the times that the chart gives it, not those that the program has by itself.
    pub charted: bool,
    /// What users submit.
    pub workloads: Vec<WorkloadPlan>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// How rough it is without any fault.
    pub noise: Noise,
    /// Only this law is checked; none: all of them.
    pub only: Option<Law>,
}

/// One worker cluster.
#[derive(Debug, Clone)]
pub struct ClusterPlan {
    /// Its quota.
    pub capacity: u64,
    /// How fast its agent's clock runs, in thousandths.
    pub clock: u64,
    /// What its loss means.
    pub loss: Loss,
    /// A workload whose name is taken by an object that is nobody's business.
    pub occupied: Option<usize>,
    /// Its controller is another than ours: jobs own their Workloads, which are finished as soon as they end.
    pub adopts: bool,
}

/// One workload.
#[derive(Debug, Clone)]
pub struct WorkloadPlan {
    /// When it is submitted.
    pub at: Ms,
    /// What it asks for.
    pub need: u64,
    /// How long its pods run.
    pub runs: Ms,
    /// Whether it ends well.
    pub success: bool,
    /// How long its job stays after its end, if nothing holds it (`ttlSecondsAfterFinished`).
    pub ttl: Option<Ms>,
    /// What the loss of its cluster means for it, if it is not what the cluster says.
    pub loss: Option<Loss>,
}

/// Something that goes wrong from `at` to `until`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// From when on.
    pub at: Ms,
    /// Until when.
    pub until: Ms,
    /// What.
    pub kind: FaultKind,
}

/// What may go wrong. Numbers are those of clusters, hub replicas and workloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// The agent's process dies; `fin` says whether its machine lives to tell the other end.
    AgentCrash {
        /// Where.
        cluster: usize,
        /// Whether the connection is closed in form.
        fin: bool,
    },
    /// The agent's process stands still.
    AgentFreeze(usize),
    /// A hub replica's process dies.
    HubCrash {
        /// Which.
        hub: usize,
        /// Whether connections are closed in form.
        fin: bool,
    },
    /// A hub replica's process stands still, then goes on as if nothing had been.
    HubFreeze(usize),
    /// A hub replica cannot reach the hub's API server.
    HubCut(usize),
    /// What the agent says does not reach the hub.
    Mute(usize),
    /// What the hub says does not reach the agent.
    Deaf(usize),
    /// Neither reaches the other; new connections are refused.
    Partition(usize),
    /// The agent's certificate has expired: its session ends, and no other begins.
    Expired(usize),
    /// Half of the fleet is gone.
    HalfGone,
    /// The worker's API server is away.
    ApiOutage(usize),
    /// The worker's watches miss what happens.
    WatchGap(usize),
    /// All that the worker does takes long.
    Slow(usize),
    /// The wall clock of a hub replica jumps by so many seconds, and its process starts anew.
    ClockJump {
        /// Which.
        hub: usize,
        /// Forth or back.
        seconds: i64,
    },
    /// The hub evicts a workload: preemption, or its administrator.
    Evict(usize),
    /// Its owner deletes the job.
    Delete(usize),
    /// A worker evicts what it has of a workload.
    WorkerEvicts {
        /// Where.
        cluster: usize,
        /// What.
        workload: usize,
    },
    /// The worker's administrator deletes a job.
    WorkerDeletes {
        /// Where.
        cluster: usize,
        /// What.
        workload: usize,
    },
    /// Somebody removes a job of ours by force and puts another object in its place, until the fault ends.
    Replaced {
        /// Where.
        cluster: usize,
        /// What.
        workload: usize,
    },
    /// The last messages of earlier connections come once more, now and at the end of the fault.
    Replay(usize),
    /// A worker's API server turns every creation down: a webhook of somebody's, a quota of objects.
    TurnsDown(usize),
    /// An agent says what it has said before again and again, and another capacity each time.
    Flood(usize),
    /// Somebody on the worker makes objects of his own with this hub's marks, of workloads that no hub knows.
    Forged(usize),
    /// Operators say that a cluster is lost, if it is away.
    DeclareLost(usize),
    /// Operators release the circuit breaker.
    Release,
    /// The hub's store is lost, and all of its replicas with it. At the end they begin anew, and owners apply their jobs
    /// again, but for one perhaps.
    StoreLost {
        /// The workload whose owner does not.
        not_again: Option<usize>,
    },
    /// At its end, the hub's store becomes again what it was at its beginning: a backup. All replicas begin anew, and owners
    /// apply again what the backup does not have.
    StoreRestored,
    /// Operators drain a cluster.
    Drain(usize),
    /// People change what the loss of its cluster means for a workload, and its priority; at the end, its loss means what it
    /// did before, and its priority is a third one.
    Says {
        /// Which.
        workload: usize,
        /// What it means.
        loss: Option<Loss>,
    },
    /// People change what the loss of a cluster means; at the end it means what it did before.
    Rule {
        /// Which.
        cluster: usize,
        /// What it means.
        loss: Loss,
    },
    /// Operators want a workload on that cluster.
    Move {
        /// What.
        workload: usize,
        /// Where to.
        cluster: usize,
    },
}

/// Losses in a thousand, and delays.
#[derive(Debug, Clone)]
pub struct Noise {
    /// Writes that happen and whose answer is lost.
    pub lost_answers: u32,
    /// Requests that do not get through at all.
    pub lost_requests: u32,
    /// Requests that are performed after their sender has given them up.
    pub late: u32,
    /// Messages that come twice.
    pub twice: u32,
    /// The longest delay of a message or request.
    pub delay: Ms,
    /// The longest delay of a watch.
    pub stale: Ms,
}

/// When a run without faults has nothing more to wait for.
const LAST_SUBMIT: Ms = 30_000;
/// When a hub that was not disturbed has long known its clusters.
const ISOLATED_FROM: Ms = 30_000;

impl Plan {
    /// The plan of a seed.
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
                0 => Mode::AllAtOnce,
                1 => Mode::Incremental { step: 1, round: 5_000 },
                _ => Mode::BestFit,
            },
            preemption_timeout: None,
            clusters,
            hubs,
            charted: Dice::new(seed, 6).chance(500),
            workloads,
            faults: Vec::new(),
            noise: Noise::roll(&mut dice),
            only: None,
        };
        // A name that is taken everywhere would keep its workload from ever running.
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
        // From a stream of its own, so that what was rolled so far stays what it was.
        let mut more = Dice::new(seed, 1);
        for cluster in plan.clusters.iter_mut().filter(|cluster| cluster.loss == Loss::Hold) {
            cluster.loss = match more.between(0, 9) {
                0 | 1 => Loss::Duplicate { after: more.between(0, 30) as i64 * 1000 },
                2 => Loss::GiveUp,
                _ => Loss::Hold,
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
        // From a stream of its own as well.
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
        let mut hostile = Dice::new(seed, 7);
        if hostile.chance(250) && !plan.is_isolated() {
            plan.annoy(&mut hostile);
        }
        let mut rules = Dice::new(seed, 4);
        if rules.chance(150) {
            plan.change_rules(&mut rules);
        }
        plan
    }

    /// Up to eight faults: all over the run, or all about one moment.
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

    /// Whether only the first cluster fails, and the others have room for all.
    pub fn is_isolated(&self) -> bool {
        let all: u64 = self.workloads.iter().map(|workload| workload.need).sum();
        let losses =
            self.noise.lost_answers + self.noise.lost_requests + self.noise.late + self.noise.twice;
        let calm = losses == 0 && self.noise.delay <= 40;
        let others = &self.clusters[1..];
        self.mode == Mode::BestFit
            && calm
            && !others.is_empty()
            && others.iter().all(|cluster| cluster.capacity >= all)
            && self.workloads.iter().all(|workload| workload.at >= ISOLATED_FROM)
            && self
                .faults
                .iter()
                .all(|it| it.kind.cluster() == Some(0) && it.kind.workload().is_none())
    }

    /// Whether each workload has a cluster on which it can run, once nothing goes wrong any more.
    pub fn can_end(&self) -> bool {
        self.workloads.iter().enumerate().all(|(index, workload)| {
            self.clusters
                .iter()
                .any(|it| it.capacity >= workload.need && it.occupied != Some(index))
        })
    }

    /// From when on nothing goes wrong any more.
    pub fn calm(&self) -> Ms {
        let last = self.workloads.iter().map(|workload| workload.at).max().unwrap_or(0);
        self.faults.iter().map(|fault| fault.until).max().unwrap_or(0).max(last)
    }

    fn roll_fault(&self, dice: &mut Dice) -> Fault {
        let kind = self.roll_kind(dice);
        // Most go wrong while something is under way.
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
            9 => FaultKind::Mute(cluster),
            10 => FaultKind::Deaf(cluster),
            11 | 12 => FaultKind::Partition(cluster),
            13 => FaultKind::Expired(cluster),
            14 => FaultKind::HalfGone,
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

/// What a workload may say of the loss of its cluster.
fn roll_loss(dice: &mut Dice) -> Loss {
    let after = dice.between(0, 30) as i64 * 1000;
    match dice.between(0, 3) {
        0 => Loss::Hold,
        1 => Loss::Duplicate { after },
        _ => Loss::Fence { after },
    }
}

impl ClusterPlan {
    fn roll(dice: &mut Dice) -> Self {
        Self {
            capacity: dice.between(2, 6) * 1000,
            clock: dice.between(950, 1050),
            loss: match dice.chance(300) {
                true => Loss::Fence { after: dice.between(0, 30) as i64 * 1000 },
                false => Loss::Hold,
            },
            occupied: None,
            adopts: dice.chance(300),
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
