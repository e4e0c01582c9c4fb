//! What the dispatcher decides, case by case.

use std::collections::{BTreeMap, BTreeSet};

use switchyard_scheduler::{Amount, PodSet};

use super::capacity::{Flavor, Queue, Quota};
use super::*;

mod affinity;
mod backups;
mod copies;
mod ends;
mod floods;
mod forged;
mod loss;
mod offers;
mod operators;
mod orphans;
mod refusals;
mod renamed;
mod replicas;
mod slices;
mod waiting;

pub(super) const START: Time = 1_000_000;

pub(super) fn facts(uid: &str) -> Facts {
    Facts {
        uid: uid.into(),
        namespace: "ns".into(),
        name: format!("job-{uid}").into(),
        version: 0,
        queue: "lq".into(),
        priority: 0,
        priority_class: None,
        pod_sets: pods(1000),
        check: Some(("mk".into(), Check::Pending)),
        others_ready: true,
        reserved: false,
        evicted: false,
        finished: false,
        deleting: false,
        active: true,
        cluster: None,
        attempt: 0,
        nominated: Vec::new(),
        grace: 5_000,
        loss: None,
        affinity: None,
        moving: None,
        subject: None,
        known_as: None,
        adopt: None,
        replica: None,
        replaces: None,
        waits_for_job: false,
        job_ended: None,
    }
}

pub(super) fn pods(cpu: i64) -> Arc<[PodSet]> {
    let requests = BTreeMap::from([(Name::from("cpu"), Amount::new(cpu))]);
    Arc::from(vec![PodSet { requests, ..PodSet::new("main", 1) }])
}

pub(super) fn queues(available: i64, potential: i64) -> BTreeMap<(Name, Name), Queue> {
    let quota = Quota { nominal: potential, used: potential - available, available, potential };
    let flavor = Flavor {
        name: "default".into(),
        resources: BTreeMap::from([("cpu".into(), quota)]),
        ..Flavor::default()
    };
    let queue = Queue { cluster_queue: "cq".into(), flavors: vec![flavor], ..Queue::default() };
    BTreeMap::from([(("ns".into(), "lq".into()), queue)])
}

/// A dispatcher with connected clusters that report, and what it did, as short lines.
struct Bench {
    dispatcher: Dispatcher,
    now: Time,
    log: Vec<String>,
}

impl Bench {
    /// `clusters`: name, free, total.
    fn new(mode: Mode, clusters: &[(&str, i64, i64)]) -> Self {
        Self::with(Settings { mode, ..Settings::default() }, clusters)
    }

    fn with(settings: Settings, clusters: &[(&str, i64, i64)]) -> Self {
        let mut bench =
            Self { dispatcher: Dispatcher::new(settings, START), now: START, log: Vec::new() };
        let names = clusters.iter().map(|(name, ..)| Name::from(*name)).collect();
        bench.apply(Event::Check { name: "mk".into(), clusters: names });
        for (name, free, total) in clusters {
            bench.rules(name, Loss::Hold);
            bench.connect(name, &[]);
            bench.capacity(name, *free, *total);
        }
        bench.now += 60_000;
        bench.log.clear();
        bench
    }

    fn apply(&mut self, event: Event) {
        let actions = self.dispatcher.apply(event, self.now);
        if self.dispatcher.knows_few() {
            self.dispatcher.check_index();
        }
        self.log.extend(actions.iter().map(line));
    }

    fn rules(&mut self, cluster: &str, loss: Loss) {
        let rules = ClusterRules { loss, ..ClusterRules::default() };
        self.apply(Event::Cluster { name: cluster.into(), rules });
    }

    fn connect(&mut self, cluster: &str, inventory: &[&str]) {
        self.apply(Event::ClusterUp { name: cluster.into() });
        let uids = inventory.iter().map(|uid| Uid::from(*uid)).collect();
        self.apply(Event::Inventory { cluster: cluster.into(), uids });
    }

    fn capacity(&mut self, cluster: &str, free: i64, total: i64) {
        self.apply(Event::Capacity { cluster: cluster.into(), queues: queues(free, total) });
    }

    fn reserve(&mut self, facts: Facts) {
        let reserved = Reserved { check: "mk".into(), other_checks: false };
        self.apply(Event::Reserved { facts, reserved });
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
        let observation = Observation {
            uid: uid.into(),
            namespace: "ns".into(),
            name: format!("job-{uid}").into(),
            attempt,
            state,
            reasons,
            job_status: false,
            origin: None,
            gate: None,
        };
        self.apply(Event::Observed { cluster: cluster.into(), observation });
    }

    fn written(&mut self, outcome: Outcome, facts: Facts) {
        let uid = facts.uid.clone();
        self.apply(Event::Written(Written { uid, outcome, facts: Some(facts) }));
    }

    fn later(&mut self, milliseconds: i64) {
        self.now += milliseconds;
        self.apply(Event::Tick);
    }

    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// By the API's word and its cluster's, a workload runs there.
    fn runs(&mut self, uid: &str, cluster: &str, attempt: u64) {
        self.apply(Event::Workload(committed(uid, cluster, attempt)));
        self.observe(cluster, uid, attempt, State::Running);
    }

    fn down(&mut self, cluster: &str) {
        self.apply(Event::ClusterDown { name: cluster.into() });
    }

    /// A workload that runs on `a` as attempt 1.
    fn running() -> Self {
        let mut bench = Self::new(Mode::BestFit, &[("a", 2000, 4000), ("b", 4000, 4000)]);
        bench.reserve(facts("w"));
        bench.observe("a", "w", 1, State::Reserved);
        bench.written(Outcome::Done, committed("w", "a", 1));
        bench.observe("a", "w", 1, State::Running);
        bench.take();
        bench
    }
}

pub(super) fn committed(uid: &str, cluster: &str, attempt: u64) -> Facts {
    Facts {
        reserved: true,
        cluster: Some(cluster.into()),
        attempt,
        check: Some(("mk".into(), Check::Ready)),
        ..facts(uid)
    }
}

fn line(action: &Action) -> String {
    match action {
        Action::Desire { cluster, uid, attempt, phase, .. } => {
            format!("{phase:?} {uid}/{attempt} on {cluster}")
        }
        Action::Forget { cluster, uid, attempt } => format!("forget {uid}/{attempt} on {cluster}"),
        Action::Commit { uid, cluster, attempt, adopts: None } => {
            format!("commit {uid}/{attempt} on {cluster}")
        }
        Action::Commit { uid, cluster, attempt, adopts: Some(theirs) } => {
            format!("commit {uid}/{attempt} on {cluster}, known as {theirs}")
        }
        Action::Rename { uid, from, cluster, attempt } => {
            format!("rename {uid}/{attempt} from {} to {cluster}", from.as_deref().unwrap_or("-"))
        }
        Action::Record { uid, message, nominated } => {
            format!("record {uid}: {} {nominated:?}", message.as_deref().unwrap_or("-"))
        }
        Action::GiveBack { uid, message, retry_at } => {
            format!("give back {uid} until {retry_at}: {message}")
        }
        Action::Wake { uid } => format!("wake {uid}"),
        Action::Retry { uid, message, left: Some(left), .. } if left.reason == TIMED_OUT => {
            format!("deactivate {uid}: {message}")
        }
        Action::Retry { uid, message, left } => {
            let evicted_for = left
                .as_ref()
                .and_then(|left| left.evicted_for.as_deref())
                .filter(|reason| *reason == "Preempted");
            let evicted_for = evicted_for.map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!("retry {uid}{evicted_for}: {message}")
        }
        Action::Release { uid } => format!("release {uid}"),
        Action::Recorded { uid } => format!("recorded {uid}"),
        Action::Mirror { uid, cluster, attempt } => {
            format!("mirror {uid}/{attempt} from {cluster}")
        }
        Action::Finish { uid, cluster, attempt, success } => {
            format!("finish {uid}/{attempt} from {cluster}: {success}")
        }
        Action::Ack { cluster, uid, attempt } => format!("ack {uid}/{attempt} to {cluster}"),
        Action::Disbelieve { cluster, uid, attempt } => {
            format!("disbelieve {uid}/{attempt} on {cluster}")
        }
        Action::Orphan { cluster, uid, attempt } => format!("orphan {uid}/{attempt} on {cluster}"),
        Action::Breaker { open } => format!("breaker {open:?}"),
    }
}
