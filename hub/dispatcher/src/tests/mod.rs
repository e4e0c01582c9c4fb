//! Decisions, case by case: events go in, and actions come out as short lines.

use std::collections::{BTreeMap, BTreeSet};

use switchyard_scheduler::{Amount, PodSet};

use super::capacity::{CapacityReport, FlavorQuota, LocalQueueCapacity, QueueFlavor};
use super::*;
use switchyard_syntax::flavor_pins::FlavorPins;

mod affinity;
mod backups;
mod breaker;
mod copies;
mod dropped;
mod ends;
mod floods;
mod forged;
mod loss;
mod offers;
mod operators;
mod orphans;
mod pins;
mod refusals;
mod renamed;
mod replicas;
mod room;
mod silent_clusters;
mod slices;
mod stuck;
mod waiting;

pub(super) const START: UnixMillis = 1_000_000;

pub(super) fn facts(uid: &str) -> WorkloadFacts {
    WorkloadFacts {
        uid: uid.into(),
        namespace: "ns".into(),
        name: format!("job-{uid}").into(),
        version: 0,
        queue: "lq".into(),
        priority: 0,
        priority_class: None,
        pod_sets: pods(1000),
        charged: Arc::default(),
        other_checks_ready: true,
        nominated: Vec::new(),
        grace: 5_000,
        on_disconnect: None,
        stuck: StuckFacts::default(),
        affinity: None,
        move_request: None,
        subject: None,
        adopt: None,
        replica: None,
        replaces: None,
        waits_for_job: false,
        job_ended: None,
        state: WorkloadState {
            check: Some(("mk".into(), CheckStatus::Pending)),
            reserved: false,
            evicted: false,
            finished: false,
            deleting: false,
            active: true,
            cluster: None,
            attempt: 0,
            cluster_uid: None,
        },
    }
}

pub(super) fn pods(cpu: i64) -> Arc<[PodSet]> {
    let requests = BTreeMap::from([(Name::from("cpu"), Amount::new(cpu))]);
    Arc::from(vec![PodSet { requests, ..PodSet::new("main", 1) }])
}

pub(super) fn queues(available: i64, potential: i64) -> BTreeMap<(Name, Name), LocalQueueCapacity> {
    let quota =
        FlavorQuota { nominal: potential, used: potential - available, available, potential };
    let flavor = QueueFlavor {
        name: "default".into(),
        resources: BTreeMap::from([("cpu".into(), quota)]),
        ..QueueFlavor::default()
    };
    let queue = LocalQueueCapacity {
        cluster_queue: "cq".into(),
        flavors: vec![flavor],
        ..LocalQueueCapacity::default()
    };
    BTreeMap::from([(("ns".into(), "lq".into()), queue)])
}

/// A report of a cluster that enforces pins.
pub(super) fn report(queues: BTreeMap<(Name, Name), LocalQueueCapacity>) -> CapacityReport {
    CapacityReport { queues, enforces_pins: true, ..CapacityReport::default() }
}

/// The charge of `cpu` to this flavor.
pub(super) fn charge(flavor: &str) -> Arc<FlavorPins> {
    FlavorPins::from_rows([("main", "cpu", flavor)]).unwrap().into()
}

/// A dispatcher with connected, reporting clusters, and its actions as short lines.
struct Bench {
    dispatcher: Dispatcher,
    now: UnixMillis,
    log: Vec<String>,
}

/// A report of the workload `uid` without reasons, gate or status.
fn observation(uid: &str, attempt: u64, state: State) -> Observation {
    Observation {
        uid: uid.into(),
        namespace: "ns".into(),
        name: format!("job-{uid}").into(),
        attempt,
        state,
        reasons: Vec::new(),
        job_status: false,
        no_ready_pod: false,
        origin: None,
        gate: None,
        flavors: None,
    }
}

impl Bench {
    /// `clusters`: name, free, total.
    fn new(mode: DispatchMode, clusters: &[(&str, i64, i64)]) -> Self {
        Self::with(DispatcherSettings { mode, ..DispatcherSettings::default() }, clusters)
    }

    fn with(settings: DispatcherSettings, clusters: &[(&str, i64, i64)]) -> Self {
        let mut bench =
            Self { dispatcher: Dispatcher::new(settings, START), now: START, log: Vec::new() };
        let names = clusters.iter().map(|(name, ..)| Name::from(*name)).collect();
        bench.apply(DispatchEvent::CheckConfigured { name: "mk".into(), clusters: names });
        for (name, free, total) in clusters {
            bench.rules(name, LossPolicy::Hold);
            bench.connect(name, &[]);
            bench.capacity(name, *free, *total);
        }
        bench.now += 60_000;
        bench.log.clear();
        bench
    }

    fn apply(&mut self, event: DispatchEvent) {
        let actions = self.dispatcher.apply(event, self.now);
        if self.dispatcher.knows_few() {
            self.dispatcher.check_index();
        }
        self.log.extend(actions.iter().map(line));
    }

    fn rules(&mut self, cluster: &str, on_disconnect: LossPolicy) {
        let rules = ClusterConfig { on_disconnect, ..ClusterConfig::default() };
        self.apply(DispatchEvent::ClusterConfigured { name: cluster.into(), config: rules });
    }

    fn connect(&mut self, cluster: &str, inventory: &[&str]) {
        self.apply(DispatchEvent::SessionOpened { name: cluster.into() });
        let uids = inventory.iter().map(|uid| Uid::from(*uid)).collect();
        self.apply(DispatchEvent::InventoryComplete { cluster: cluster.into(), uids });
    }

    fn capacity(&mut self, cluster: &str, free: i64, total: i64) {
        self.apply(DispatchEvent::CapacityReported {
            cluster: cluster.into(),
            report: report(queues(free, total)),
        });
    }

    fn reserve(&mut self, facts: WorkloadFacts) {
        let reserved = MemoryReservation { check: "mk".into(), needs_other_checks: false };
        self.apply(DispatchEvent::QuotaReserved { facts, reserved });
    }

    fn observe(&mut self, cluster: &str, uid: &str, attempt: u64, state: State) {
        let reasons = match state {
            State::Unfit | State::Refused | State::Evicted => {
                vec![Reason::new("Why", format!("{cluster} says no"))]
            }
            State::Waiting => vec![Reason::new("WaitingForQuota", "no room now")],
            _ => Vec::new(),
        };
        self.observe_with(cluster, uid, attempt, state, reasons);
    }

    fn observe_with(
        &mut self,
        cluster: &str,
        uid: &str,
        attempt: u64,
        state: State,
        reasons: Vec<Reason>,
    ) {
        self.observed(cluster, Observation { reasons, ..observation(uid, attempt, state) });
    }

    fn observed(&mut self, cluster: &str, observation: Observation) {
        self.apply(DispatchEvent::Observed { cluster: cluster.into(), observation });
    }

    fn written(&mut self, outcome: WriteOutcome, facts: WorkloadFacts) {
        let uid = facts.uid.clone();
        self.apply(DispatchEvent::WriteEnded(WriteResult { uid, outcome, facts: Some(facts) }));
    }

    fn later(&mut self, milliseconds: i64) {
        self.now += milliseconds;
        self.apply(DispatchEvent::Tick);
    }

    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// API and cluster agree that the workload runs there.
    fn runs(&mut self, uid: &str, cluster: &str, attempt: u64) {
        self.apply(DispatchEvent::WorkloadChanged(committed(uid, cluster, attempt)));
        self.observe(cluster, uid, attempt, State::Running);
    }

    fn down(&mut self, cluster: &str) {
        self.apply(DispatchEvent::SessionClosed { name: cluster.into() });
    }

    /// A workload that runs on `a` as attempt 1.
    fn running() -> Self {
        let mut bench = Self::new(DispatchMode::BestFit, &[("a", 2000, 4000), ("b", 4000, 4000)]);
        bench.reserve(facts("w"));
        bench.observe("a", "w", 1, State::Reserved);
        bench.written(WriteOutcome::Done, committed("w", "a", 1));
        bench.observe("a", "w", 1, State::Running);
        bench.take();
        bench
    }
}

pub(super) fn committed(uid: &str, cluster: &str, attempt: u64) -> WorkloadFacts {
    facts(uid).with(|it| {
        it.reserved = true;
        it.cluster = Some(cluster.into());
        it.attempt = attempt;
        it.check = Some(("mk".into(), CheckStatus::Ready));
    })
}

fn line(action: &DispatchAction) -> String {
    match action {
        DispatchAction::Assign(RequestedAssignment { cluster, uid, attempt, phase, .. }) => {
            format!("{phase:?} {uid}/{attempt} on {cluster}")
        }
        DispatchAction::ForgetTombstone { cluster, uid, attempt } => {
            format!("forget {uid}/{attempt} on {cluster}")
        }
        DispatchAction::Write { uid, write } => write_line(uid, write),
        DispatchAction::ReturnReservation { uid, message, retry_at } => {
            format!("give back {uid} until {retry_at}: {message}")
        }
        DispatchAction::Requeue { uid } => format!("wake {uid}"),
        DispatchAction::ReservationPersisted { uid } => format!("recorded {uid}"),
        DispatchAction::MirrorStatus { uid, cluster, attempt } => {
            format!("mirror {uid}/{attempt} from {cluster}")
        }
        DispatchAction::AcknowledgeEnd { cluster, uid, attempt } => {
            format!("ack {uid}/{attempt} to {cluster}")
        }
        DispatchAction::RejectAttempt { cluster, uid, attempt } => {
            format!("disbelieve {uid}/{attempt} on {cluster}")
        }
        DispatchAction::OrphanFound { cluster, uid, attempt } => {
            format!("orphan {uid}/{attempt} on {cluster}")
        }
        DispatchAction::BreakerChanged { open } => format!("breaker {open:?}"),
    }
}

fn write_line(uid: &Uid, write: &WorkloadWrite) -> String {
    match write {
        WorkloadWrite::Commit { cluster, attempt, adopts: None, .. } => {
            format!("commit {uid}/{attempt} on {cluster}")
        }
        WorkloadWrite::Commit { cluster, attempt, adopts: Some(cluster_uid), .. } => {
            format!("commit {uid}/{attempt} on {cluster}, known as {cluster_uid}")
        }
        WorkloadWrite::Rename { from, cluster, attempt } => {
            format!("rename {uid}/{attempt} from {} to {cluster}", from.as_deref().unwrap_or("-"))
        }
        WorkloadWrite::Record { message, nominated } => {
            format!("record {uid}: {} {nominated:?}", message.as_deref().unwrap_or("-"))
        }
        WorkloadWrite::Retry { message, retried: Some(it) } if it.reason == TIMED_OUT => {
            format!("deactivate {uid}: {message}")
        }
        WorkloadWrite::Retry { message, retried } => {
            let evicted_for = retried
                .as_ref()
                .and_then(|it| it.evicted_for.as_deref())
                .filter(|reason| *reason == "Preempted");
            let evicted_for = evicted_for.map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!("retry {uid}{evicted_for}: {message}")
        }
        WorkloadWrite::Release => format!("release {uid}"),
        WorkloadWrite::Finish { cluster, attempt, success } => {
            format!("finish {uid}/{attempt} from {cluster}: {success}")
        }
    }
}
