//! What the dispatcher decides, case by case.

use std::collections::{BTreeMap, BTreeSet};

use switchyard_scheduler::{Amount, PodSet};

use super::capacity::{Flavor, Queue, Quota};
use super::*;

pub(super) const START: Time = 1_000_000;

pub(super) fn facts(uid: &str) -> Facts {
    Facts {
        uid: uid.into(),
        namespace: "ns".into(),
        name: format!("job-{uid}").into(),
        version: 0,
        queue: "lq".into(),
        priority: 0,
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
    }
}

pub(super) fn pods(cpu: i64) -> Arc<[PodSet]> {
    let requests = BTreeMap::from([(Name::from("cpu"), Amount::new(cpu))]);
    Arc::from(vec![PodSet { requests, ..PodSet::new("main", 1) }])
}

pub(super) fn queues(available: i64, potential: i64) -> BTreeMap<(Name, Name), Queue> {
    let quota = Quota { nominal: potential, used: potential - available, available, potential };
    let flavor =
        Flavor { name: "default".into(), resources: BTreeMap::from([("cpu".into(), quota)]), ..Flavor::default() };
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
        let settings = Settings { mode, ..Settings::default() };
        let mut bench = Self { dispatcher: Dispatcher::new(settings, START), now: START, log: Vec::new() };
        let names = clusters.iter().map(|(name, ..)| Name::from(*name)).collect();
        bench.apply(Event::Check { name: "mk".into(), clusters: names });
        for (name, free, total) in clusters {
            bench.apply(Event::Cluster { name: (*name).into(), hold: true });
            bench.connect(name, &[]);
            bench.capacity(name, *free, *total);
        }
        bench.now += 60_000;
        bench.log.clear();
        bench
    }

    fn apply(&mut self, event: Event) {
        let actions = self.dispatcher.apply(event, self.now);
        self.log.extend(actions.iter().map(line));
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
            State::Unfit | State::Refused | State::Evicted => vec![Reason::new("Why", format!("{cluster} says no"))],
            State::Waiting => vec![Reason::new("WaitingForQuota", "no room now")],
            _ => Vec::new(),
        };
        let observation = Observation {
            uid: uid.into(),
            namespace: "ns".into(),
            name: format!("job-{uid}").into(),
            attempt,
            state,
            reasons,
            job_status: false,
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
        Action::Desire { cluster, uid, attempt, phase, .. } => format!("{phase:?} {uid}/{attempt} on {cluster}"),
        Action::Forget { cluster, uid, attempt } => format!("forget {uid}/{attempt} on {cluster}"),
        Action::Commit { uid, cluster, attempt } => format!("commit {uid}/{attempt} on {cluster}"),
        Action::Record { uid, message, nominated } => {
            format!("record {uid}: {} {nominated:?}", message.as_deref().unwrap_or("-"))
        }
        Action::GiveBack { uid, message, retry_at } => format!("give back {uid} until {retry_at}: {message}"),
        Action::Wake { uid } => format!("wake {uid}"),
        Action::Retry { uid, message, after_seconds } => format!("retry {uid} after {after_seconds:?}: {message}"),
        Action::Release { uid } => format!("release {uid}"),
        Action::Recorded { uid } => format!("recorded {uid}"),
        Action::Mirror { uid, cluster, attempt } => format!("mirror {uid}/{attempt} from {cluster}"),
        Action::Finish { uid, cluster, attempt, success } => {
            format!("finish {uid}/{attempt} from {cluster}: {success}")
        }
        Action::Ack { cluster, uid, attempt } => format!("ack {uid}/{attempt} to {cluster}"),
        Action::Orphan { cluster, uid, attempt } => format!("orphan {uid}/{attempt} on {cluster}"),
    }
}

#[test]
fn one_workloads_way() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 2000, 4000), ("b", 4000, 4000)]);
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve w/1 on a"], "the tightest that fits");
    bench.observe("a", "w", 1, State::Waiting);
    bench.observe("a", "w", 1, State::Reserved);
    let log = bench.take();
    assert_eq!(log, ["Reserve w/1 on b", "commit w/1 on a"], "asked the next when the first made it wait");
    bench.written(Outcome::Done, committed("w", "a", 1));
    assert_eq!(bench.take(), ["Absent w/1 on b", "Run w/1 on a"], "only what is written is run");
    bench.observe("b", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on b"]);
    bench.observe("a", "w", 1, State::Running);
    assert!(bench.take().is_empty());
    bench.observe("a", "w", 1, State::Succeeded);
    bench.observe("a", "w", 1, State::Succeeded);
    assert_eq!(bench.take(), ["finish w/1 from a: true"], "once, however often it is said");
    bench.written(Outcome::Done, Facts { finished: true, ..committed("w", "a", 1) });
    let log = bench.take();
    assert!(log.contains(&"ack w/1 to a".to_owned()) && log.contains(&"Absent w/1 on a".to_owned()), "{log:?}");
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a"]);
    assert!(!bench.dispatcher.knows("w"));
}

#[test]
fn a_refusal_leads_to_the_next_at_once_and_reasons_are_kept() {
    for state in [State::Unfit, State::Refused] {
        let mut bench = Bench::new(Mode::BestFit, &[("a", 2000, 4000), ("b", 4000, 4000)]);
        bench.reserve(facts("w"));
        bench.take();
        bench.observe("a", "w", 1, state);
        assert_eq!(bench.take(), ["Absent w/1 on a", "Reserve w/1 on b"], "{state:?}");
        bench.observe("b", "w", 1, state);
        let log = bench.take();
        assert_eq!(log[0], "Absent w/1 on b");
        assert_eq!(log[1], "give back w until 1070000: No worker cluster can run it: a: a says no; b: b says no");
    }
}

#[test]
fn what_was_promised_is_not_promised_twice() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 1500, 4000), ("b", 4000, 4000)]);
    bench.reserve(facts("v"));
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve v/1 on a", "Reserve w/1 on b"]);
}

#[test]
fn a_silent_cluster_is_not_waited_for() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 1500, 4000), ("b", 4000, 4000)]);
    bench.reserve(facts("w"));
    bench.take();
    bench.later(2_999);
    let recorded = bench.take();
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    bench.written(Outcome::Done, Facts { reserved: true, ..facts("w") });
    bench.later(1);
    assert_eq!(bench.take(), ["Reserve w/1 on b"]);
    bench.observe("b", "w", 1, State::Reserved);
    assert_eq!(bench.take(), ["commit w/1 on b"]);
}

#[test]
fn where_it_may_fit_later_it_waits_and_says_so() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 0, 500), ("b", 0, 4000)]);
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve w/1 on b"]);
    bench.observe("b", "w", 1, State::Waiting);
    assert!(bench.take().is_empty());
    bench.later(1_000);
    assert_eq!(
        bench.take(),
        ["record w: Waiting for a worker cluster: a: couldn't assign flavors to pod set main: insufficient quota for \
          cpu in flavor default, 500m more needed; b: no room now None"]
    );
    bench.written(Outcome::Done, Facts { reserved: true, ..facts("w") });
    bench.capacity("b", 4000, 4000);
    assert!(bench.take().is_empty(), "it waits in b's own queue");
    bench.observe("b", "w", 1, State::Reserved);
    assert_eq!(bench.take(), ["commit w/1 on b"]);
}

#[test]
fn what_fits_nowhere_is_given_back_and_woken_when_a_cluster_grows() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 500, 500)]);
    bench.reserve(facts("w"));
    let log = bench.take();
    assert!(log[0].starts_with("give back w until 1070000: No worker cluster can run it: a: couldn't"), "{log:?}");
    bench.capacity("a", 600, 600);
    assert!(bench.take().is_empty());
    bench.capacity("a", 0, 2000);
    assert_eq!(bench.take(), ["wake w"]);
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve w/1 on a"]);
}

#[test]
fn a_recorded_reservation_that_fits_nowhere_any_more_is_retried_with_growing_delay() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 500, 500)]);
    for (round, seconds) in [(1, 10), (2, 20), (3, 40)] {
        bench.apply(Event::Workload(Facts { reserved: true, ..facts("w") }));
        let log = bench.take();
        assert!(log[0].starts_with(&format!("retry w after Some({seconds}): No worker")), "{round}: {log:?}");
        bench.written(Outcome::Done, Facts { check: Some(("mk".into(), Check::Retry)), reserved: true, ..facts("w") });
        bench.apply(Event::Workload(facts("w")));
        bench.take();
    }
}

#[test]
fn after_a_start_clusters_have_time_to_connect() {
    let mut dispatcher = Dispatcher::new(Settings::default(), START);
    let mut apply = |event, now| dispatcher.apply(event, now).iter().map(line).collect::<Vec<_>>();
    apply(Event::Check { name: "mk".into(), clusters: vec!["a".into()] }, START);
    apply(Event::Cluster { name: "a".into(), hold: true }, START);
    let reserved = Reserved { check: "mk".into(), other_checks: false };
    assert!(apply(Event::Reserved { facts: facts("w"), reserved }, START).is_empty());
    let log = apply(Event::Tick, START + 10_000);
    assert_eq!(log, ["give back w until 1020000: No worker cluster can run it: a: not connected"]);
}

#[test]
fn other_checks_come_first() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 4000, 4000)]);
    let reserved = Reserved { check: "mk".into(), other_checks: true };
    bench.apply(Event::Reserved { facts: facts("w"), reserved });
    assert_eq!(bench.take(), ["record w: - None"]);
    bench.written(Outcome::Done, Facts { reserved: true, others_ready: false, ..facts("w") });
    assert!(bench.take().is_empty());
    bench.apply(Event::Workload(Facts { reserved: true, others_ready: true, ..facts("w") }));
    assert_eq!(bench.take(), ["Reserve w/1 on a"]);
}

#[test]
fn evicted_on_the_worker_it_goes_back_to_the_queue_and_elsewhere() {
    let mut bench = Bench::running();
    bench.observe("a", "w", 1, State::Evicted);
    assert_eq!(
        bench.take(),
        [
            "retry w after None: Workload evicted on worker cluster: \"a\", resetting for re-admission. Previously: \"Ready\""
        ]
    );
    let retrying = Facts { check: Some(("mk".into(), Check::Retry)), ..committed("w", "a", 1) };
    bench.written(Outcome::Done, retrying.clone());
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.apply(Event::Workload(Facts { evicted: true, ..retrying }));
    assert!(bench.take().is_empty(), "not released while it may still run");
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a", "release w"]);
    bench.written(Outcome::Done, Facts { attempt: 1, evicted: true, ..facts("w") });
    bench.reserve(Facts { attempt: 1, evicted: true, ..facts("w") });
    assert_eq!(bench.take(), ["Reserve w/2 on b"], "the cluster that evicted it is not asked again so soon");
}

#[test]
fn evicted_or_deleted_on_the_hub_quota_stays_until_nothing_is_left() {
    for leaving in [
        Facts { evicted: true, ..committed("w", "a", 1) },
        Facts { deleting: true, ..committed("w", "a", 1) },
        Facts { active: false, ..committed("w", "a", 1) },
    ] {
        let mut bench = Bench::running();
        bench.apply(Event::Workload(leaving));
        assert_eq!(bench.take(), ["Absent w/1 on a"]);
        bench.observe("a", "w", 1, State::Gone);
        assert_eq!(bench.take(), ["forget w/1 on a", "release w"]);
    }
}

#[test]
fn evicted_while_its_cluster_is_away_it_keeps_its_quota() {
    let mut bench = Bench::running();
    bench.apply(Event::ClusterDown { name: "a".into() });
    bench.apply(Event::Workload(Facts { evicted: true, cluster: None, ..committed("w", "a", 1) }));
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.later(24 * 3_600_000);
    assert!(bench.take().is_empty(), "it may run there");
    bench.connect("a", &["w"]);
    bench.observe("a", "w", 1, State::Running);
    assert!(bench.take().is_empty(), "its tombstone is under way");
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a", "release w"]);
}

#[test]
fn after_a_restart_an_evicted_workload_keeps_its_quota_until_every_cluster_has_spoken() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 4000, 4000)]);
    bench.apply(Event::Cluster { name: "b".into(), hold: true });
    bench.apply(Event::Workload(Facts { evicted: true, cluster: None, ..committed("w", "b", 1) }));
    assert!(bench.take().is_empty());
    bench.connect("b", &[]);
    assert_eq!(bench.take(), ["release w"]);
    // It holds quota there for an attempt that was committed: another process may have told it to run.
    let mut bench = Bench::new(Mode::BestFit, &[("a", 4000, 4000)]);
    bench.apply(Event::ClusterUp { name: "a".into() });
    bench.apply(Event::Workload(Facts { evicted: true, cluster: None, ..committed("w", "a", 1) }));
    bench.observe("a", "w", 1, State::Reserved);
    bench.apply(Event::Inventory { cluster: "a".into(), uids: Uids::from(["w".into()]) });
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a", "release w"]);
}

#[test]
fn a_mere_offer_is_no_reason_to_keep_the_quota() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 2000, 4000)]);
    bench.apply(Event::Workload(Facts { reserved: true, ..facts("w") }));
    assert_eq!(bench.take(), ["Reserve w/1 on a"]);
    bench.apply(Event::Workload(Facts { reserved: true, evicted: true, ..facts("w") }));
    assert_eq!(bench.take(), ["Absent w/1 on a", "release w"]);
}

#[test]
fn quota_in_memory_that_the_engine_wants_back_goes_at_once() {
    let preempted = "give back w until 1060000: preempted before a worker cluster had it";
    let mut bench = Bench::new(Mode::BestFit, &[("a", 2000, 4000)]);
    bench.reserve(facts("w"));
    bench.take();
    bench.apply(Event::Withdraw { uid: "w".into() });
    assert_eq!(bench.take(), [preempted, "Absent w/1 on a"]);
    bench.observe("a", "w", 1, State::Gone);
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["forget w/1 on a", "Reserve w/2 on a"], "it comes again");

    bench.observe("a", "w", 2, State::Reserved);
    bench.apply(Event::Withdraw { uid: "w".into() });
    assert_eq!(bench.take(), ["commit w/2 on a"], "the write decides");
    bench.written(Outcome::Superseded, facts("w"));
    assert_eq!(bench.take(), [preempted, "Absent w/2 on a"]);

    bench.apply(Event::Withdraw { uid: "w".into() });
    assert_eq!(bench.take(), ["recorded w"], "nothing is in memory");
    let mut bench = Bench::new(Mode::BestFit, &[("a", 2000, 4000)]);
    bench.reserve(facts("w"));
    bench.observe("a", "w", 1, State::Reserved);
    bench.apply(Event::Withdraw { uid: "w".into() });
    bench.take();
    bench.written(Outcome::Done, committed("w", "a", 1));
    assert_eq!(bench.take(), ["recorded w", "Run w/1 on a"], "the engine evicts what the API shows");
}

#[test]
fn in_a_burst_those_behind_are_neither_recorded_nor_asked_elsewhere() {
    let unseen = Observation {
        uid: "w".into(),
        namespace: "ns".into(),
        name: "job-w".into(),
        attempt: 1,
        state: State::Waiting,
        reasons: vec![Reason::new("PendingEvaluation", "not considered yet")],
        job_status: false,
    };
    let mut bench = Bench::new(Mode::BestFit, &[("a", 4000, 4000), ("b", 9000, 9000)]);
    bench.reserve(facts("v"));
    bench.reserve(facts("w"));
    bench.apply(Event::Observed { cluster: "a".into(), observation: unseen });
    bench.later(900);
    bench.observe("a", "v", 1, State::Reserved);
    bench.take();
    bench.later(2_900);
    assert!(bench.take().is_empty(), "a takes others");
    bench.later(200);
    let log = bench.take();
    assert_eq!(log.len(), 2, "{log:?}");
    assert!(log[0] == "Reserve w/1 on b" && log[1].starts_with("record w: Waiting"), "{log:?}");
}

#[test]
fn a_workload_that_vanished_is_removed_from_its_cluster() {
    let mut bench = Bench::running();
    bench.apply(Event::WorkloadGone { uid: "w".into() });
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a"]);
    assert!(!bench.dispatcher.knows("w"));
}

#[test]
fn a_job_that_ended_while_the_hub_evicts_it_has_ended() {
    let mut bench = Bench::running();
    bench.apply(Event::Workload(Facts { evicted: true, ..committed("w", "a", 1) }));
    bench.take();
    bench.observe("a", "w", 1, State::Failed);
    assert_eq!(bench.take(), ["finish w/1 from a: false"]);
}

#[test]
fn a_lost_connection_reassigns_nothing_where_jobs_are_held() {
    let mut bench = Bench::running();
    bench.apply(Event::ClusterDown { name: "a".into() });
    bench.later(24 * 3_600_000);
    assert!(bench.take().is_empty());
    bench.connect("a", &["w"]);
    bench.observe("a", "w", 1, State::Running);
    assert!(bench.take().is_empty());
}

#[test]
fn a_lost_connection_gives_up_after_the_timeout_where_they_are_not() {
    let mut bench = Bench::running();
    bench.apply(Event::Cluster { name: "a".into(), hold: false });
    bench.apply(Event::ClusterDown { name: "a".into() });
    bench.later(899_999);
    assert!(bench.take().is_empty());
    bench.later(1);
    assert_eq!(bench.take(), ["retry w after None: Admitting remote lost, Previously: \"Ready\""]);
    let retrying = Facts { check: Some(("mk".into(), Check::Retry)), ..committed("w", "a", 1) };
    bench.written(Outcome::Done, retrying.clone());
    bench.apply(Event::Workload(Facts { evicted: true, ..retrying }));
    assert_eq!(bench.take(), ["Absent w/1 on a", "release w"]);
    bench.written(Outcome::Done, Facts { attempt: 1, evicted: true, ..facts("w") });
    bench.reserve(Facts { attempt: 1, ..facts("w") });
    bench.observe("b", "w", 2, State::Reserved);
    assert_eq!(bench.take(), ["Reserve w/2 on b", "commit w/2 on b"]);
    bench.written(Outcome::Done, committed("w", "b", 2));
    assert_eq!(bench.take(), ["Run w/2 on b"]);
    bench.connect("a", &["w"]);
    bench.observe("a", "w", 1, State::Running);
    assert!(bench.take().is_empty(), "its tombstone is under way");
    bench.observe("a", "w", 1, State::Succeeded);
    assert!(!bench.take().iter().any(|line| line.starts_with("finish")), "it was given up");
}

#[test]
fn a_deleted_cluster_is_a_lost_one() {
    let mut bench = Bench::running();
    bench.apply(Event::ClusterGone { name: "a".into() });
    bench.apply(Event::ClusterDown { name: "a".into() });
    bench.later(900_000);
    assert_eq!(bench.take(), ["retry w after None: Admitting remote lost, Previously: \"Ready\""]);
}

#[test]
fn after_a_restart_what_runs_goes_on() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 0, 4000), ("b", 4000, 4000)]);
    bench.apply(Event::Workload(committed("w", "a", 3)));
    assert_eq!(bench.take(), ["Run w/3 on a"]);
    bench.observe("a", "w", 3, State::Running);
    // A reservation that was never committed, of before.
    bench.observe("b", "w", 3, State::Reserved);
    assert_eq!(bench.take(), ["Absent w/3 on b"]);
}

#[test]
fn a_commit_that_is_superseded_is_decided_anew_and_one_that_failed_is_tried_again() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 2000, 4000)]);
    bench.reserve(facts("w"));
    bench.observe("a", "w", 1, State::Reserved);
    bench.take();
    bench.written(Outcome::Failed, facts("w"));
    assert!(bench.take().is_empty(), "not at once");
    bench.later(1_000);
    assert_eq!(bench.take(), ["commit w/1 on a"]);
    bench.written(Outcome::Superseded, Facts { active: false, ..facts("w") });
    let log = bench.take();
    assert_eq!(log, ["give back w until 1061000: the workload is no longer to run", "Absent w/1 on a"]);
    assert!(!log.iter().any(|line| line.starts_with("Run")));
}

#[test]
fn old_news_of_the_api_changes_nothing() {
    let mut bench = Bench::running();
    bench.apply(Event::Workload(Facts { version: 20, ..committed("w", "a", 1) }));
    bench.apply(Event::Workload(Facts { version: 19, ..facts("w") }));
    assert!(bench.take().is_empty());
}

#[test]
fn all_at_once_offers_to_all_and_the_first_gets_it() {
    let mut bench = Bench::new(Mode::AllAtOnce, &[("b", 0, 0), ("a", 0, 0), ("c", 0, 0)]);
    bench.reserve(facts("w"));
    let log = bench.take();
    assert!(log[0].starts_with("record w: Waiting") && log[0].ends_with(r#"Some(["a", "b", "c"])"#), "{log:?}");
    let nominated = vec!["a".into(), "b".into(), "c".into()];
    bench.written(Outcome::Done, Facts { reserved: true, nominated, ..facts("w") });
    assert_eq!(bench.take(), ["Reserve w/1 on a", "Reserve w/1 on b", "Reserve w/1 on c"]);
    bench.observe("c", "w", 1, State::Reserved);
    bench.observe("a", "w", 1, State::Reserved);
    assert_eq!(bench.take(), ["commit w/1 on c"]);
    bench.written(Outcome::Done, committed("w", "c", 1));
    assert_eq!(bench.take(), ["Absent w/1 on a", "Absent w/1 on b", "Run w/1 on c"]);
}

#[test]
fn incremental_adds_some_each_round_in_the_order_of_the_configuration() {
    let mode = Mode::Incremental { step: 2, round: 300_000 };
    let mut bench = Bench::new(mode, &[("c", 0, 0), ("a", 0, 0), ("b", 0, 0)]);
    bench.apply(Event::Workload(Facts { reserved: true, ..facts("w") }));
    assert_eq!(bench.take(), [r#"record w: - Some(["c", "a"])"#]);
    let first: Vec<Name> = vec!["c".into(), "a".into()];
    bench.written(Outcome::Done, Facts { reserved: true, nominated: first, ..facts("w") });
    assert_eq!(bench.take(), ["Reserve w/1 on c", "Reserve w/1 on a"]);
    bench.later(299_999);
    assert!(bench.take().is_empty());
    bench.later(1);
    assert_eq!(bench.take(), [r#"record w: - Some(["c", "a", "b"])"#]);
}

#[test]
fn an_external_dispatcher_nominates() {
    let mut bench = Bench::new(Mode::External, &[("a", 0, 0), ("b", 0, 0)]);
    bench.reserve(facts("w"));
    assert!(bench.take()[0].starts_with("record w"));
    bench.written(Outcome::Done, Facts { reserved: true, ..facts("w") });
    assert!(bench.take().is_empty());
    bench.apply(Event::Workload(Facts { reserved: true, nominated: vec!["b".into(), "zzz".into()], ..facts("w") }));
    assert_eq!(bench.take(), ["Reserve w/1 on b"]);
    bench.apply(Event::Workload(Facts { reserved: true, nominated: vec!["a".into()], ..facts("w") }));
    assert_eq!(bench.take(), ["Absent w/1 on b", "Reserve w/1 on a"]);
}

#[test]
fn the_unknown_is_reported_first_and_removed_much_later() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 0, 0)]);
    bench.observe("a", "x", 4, State::Running);
    bench.observe("a", "x", 4, State::Running);
    assert_eq!(bench.take(), ["orphan x/4 on a"]);
    assert_eq!(bench.dispatcher.cluster_view("a").orphans, 1);
    bench.later(900_000 - 1);
    assert!(bench.take().is_empty());
    bench.later(1);
    assert_eq!(bench.take(), ["Absent x/4 on a"]);
    bench.observe("a", "x", 4, State::Gone);
    assert_eq!(bench.take(), ["forget x/4 on a"]);
}

#[test]
fn an_attempt_that_was_withdrawn_from_a_cluster_is_not_offered_there_again() {
    let mut bench = Bench::new(Mode::External, &[("a", 2000, 4000)]);
    bench.apply(Event::Workload(Facts { reserved: true, nominated: vec!["a".into()], ..facts("w") }));
    assert_eq!(bench.take(), ["Reserve w/1 on a"]);
    bench.apply(Event::ClusterDown { name: "a".into() });
    bench.apply(Event::ClusterUp { name: "a".into() });
    bench.observe("a", "w", 1, State::Gone);
    bench.apply(Event::Inventory { cluster: "a".into(), uids: Uids::new() });
    // Its tombstone may be there still.
    assert_eq!(bench.take(), ["Absent w/1 on a", "forget w/1 on a", "Reserve w/2 on a"]);
}

#[test]
fn an_orphan_that_turns_out_to_be_known_is_one_no_longer() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 2000, 4000)]);
    bench.observe("a", "w", 1, State::Running);
    assert_eq!(bench.take(), ["orphan w/1 on a"]);
    bench.apply(Event::Workload(committed("w", "a", 1)));
    assert_eq!(bench.take(), ["Run w/1 on a"]);
    bench.later(2 * 900_000);
    assert!(bench.take().is_empty(), "it is not removed");
    assert_eq!(bench.dispatcher.cluster_view("a").orphans, 0);
}

#[test]
fn the_end_of_an_unknown_workload_waits_a_moment_for_it_to_become_known() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 2000, 4000)]);
    bench.observe("a", "w", 1, State::Succeeded);
    assert_eq!(bench.take(), ["orphan w/1 on a"]);
    bench.apply(Event::Workload(committed("w", "a", 1)));
    assert_eq!(bench.take(), ["finish w/1 from a: true"]);

    let mut bench = Bench::new(Mode::BestFit, &[("a", 2000, 4000)]);
    bench.observe("a", "x", 1, State::Succeeded);
    bench.later(10_000);
    assert_eq!(bench.take(), ["orphan x/1 on a", "ack x/1 to a"]);
    bench.observe("a", "x", 1, State::Succeeded);
    assert_eq!(bench.take(), ["ack x/1 to a"], "said again, acknowledged again");
    bench.later(890_000);
    assert_eq!(bench.take(), ["Absent x/1 on a"]);
}

#[test]
fn an_orphan_that_ends_while_it_is_removed_is_acknowledged() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 2000, 4000)]);
    bench.observe("a", "x", 1, State::Running);
    bench.later(900_000);
    assert_eq!(bench.take(), ["orphan x/1 on a", "Absent x/1 on a"]);
    bench.observe("a", "x", 1, State::Succeeded);
    assert_eq!(bench.take(), ["ack x/1 to a"]);
}

#[test]
fn an_orphan_that_is_gone_when_its_workload_becomes_known_leaves_nothing() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 2000, 4000)]);
    bench.observe("a", "w", 1, State::Succeeded);
    bench.later(900_000);
    assert_eq!(bench.take(), ["orphan w/1 on a", "ack w/1 to a", "Absent w/1 on a"]);
    bench.dispatcher.learn(Facts { finished: true, ..committed("w", "a", 1) });
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take().last().map(String::as_str), Some("forget w/1 on a"));
    assert_eq!(bench.dispatcher.cluster_view("a").workloads, 0);
}

#[test]
fn an_end_is_acknowledged_when_its_workload_was_deleted_meanwhile() {
    let mut bench = Bench::running();
    bench.observe("a", "w", 1, State::Succeeded);
    bench.take();
    bench.apply(Event::WorkloadGone { uid: "w".into() });
    bench.take();
    let uid = Uid::from("w");
    bench.apply(Event::Written(Written { uid, outcome: Outcome::Superseded, facts: None }));
    assert_eq!(bench.take(), ["ack w/1 to a"]);
}

#[test]
fn a_reservation_left_behind_by_a_restart_is_withdrawn_when_the_workload_is_known() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 4000, 4000)]);
    bench.dispatcher.learn(facts("w"));
    bench.observe("a", "w", 5, State::Reserved);
    assert_eq!(bench.take(), ["Absent w/5 on a"]);
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve w/6 on a"], "attempts only grow");
}

#[test]
fn the_status_of_the_running_job_is_mirrored_and_of_no_other() {
    let mut bench = Bench::running();
    let observation = |attempt| Observation {
        uid: "w".into(),
        namespace: "ns".into(),
        name: "job-w".into(),
        attempt,
        state: State::Running,
        reasons: Vec::new(),
        job_status: true,
    };
    bench.apply(Event::Observed { cluster: "a".into(), observation: observation(1) });
    assert_eq!(bench.take(), ["mirror w/1 from a"]);
    bench.apply(Event::Observed { cluster: "b".into(), observation: observation(1) });
    assert_eq!(bench.take(), ["Absent w/1 on b"]);
}

#[test]
fn uids_of_an_inventory_end_orphans_that_are_gone() {
    let mut bench = Bench::new(Mode::BestFit, &[("a", 0, 0)]);
    bench.observe("a", "x", 4, State::Running);
    bench.apply(Event::Inventory { cluster: "a".into(), uids: BTreeSet::new() });
    assert_eq!(bench.dispatcher.cluster_view("a").orphans, 0);
}
