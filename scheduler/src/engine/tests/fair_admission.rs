//! Admission fair sharing: past usage of LocalQueues takes precedence over priority.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use rstest::rstest;

use crate::fixtures::{Stage, cq, lq, wl};
use crate::{
    AdmissionFairSharing, AdmissionScope, ClusterQueue, Decision, Engine, EngineGates,
    EngineSettings, Event, LocalQueue, LocalQueueKey, PreemptionPolicy, PreemptionSettings,
    RefusedReason,
};

impl ClusterQueue {
    fn orders_local_queues(mut self) -> Self {
        self.admission_scope = AdmissionScope::UsageBasedAdmissionFairSharing;
        self
    }
}

impl LocalQueue {
    fn weight(mut self, milli: i64) -> Self {
        self.fair_weight_milli = milli;
        self
    }
}

fn config() -> AdmissionFairSharing {
    let minute = Duration::from_secs(60);
    AdmissionFairSharing {
        half_life: minute,
        sampling_interval: minute,
        resource_weights: BTreeMap::new(),
    }
}

fn engine(settings: EngineSettings) -> Engine {
    Engine::with_preemption(settings, PreemptionSettings::default())
        .with_admission_fair_sharing(config())
}

/// ClusterQueue `main` with `cores`, and LocalQueues `heavy` and `light`.
fn stage(cores: i64) -> Stage {
    let mut stage = Stage::around(engine(EngineSettings::default()));
    stage.queue(cq("main").orders_local_queues().quota("default", "cpu", cores));
    for name in ["heavy", "light"] {
        stage.apply(Event::LocalQueue(lq(name, "main")));
    }
    stage
}

fn used(stage: &Stage, queue: &str) -> f64 {
    stage.engine.weighted_usage(&LocalQueueKey::new("ns", queue))
}

fn assert_used(stage: &Stage, queue: &str, expected: f64) {
    let got = used(stage, queue);
    assert!((got - expected).abs() < 1e-6, "{queue}: {got}, not {expected}");
}

fn restore(stage: &mut Stage, queue: &str, cores: i128) {
    let consumed = BTreeMap::from([("cpu".into(), cores * 1_000_000_000)]);
    stage.apply(Event::PastUsage { queue: LocalQueueKey::new("ns", queue), consumed });
}

#[test]
fn lower_past_usage_goes_before_priority() {
    let mut stage = stage(1);
    restore(&mut stage, "heavy", 8);
    stage.submit(wl("a").queue("heavy").request("cpu", 1).priority(100));
    stage.submit(wl("b").queue("light").request("cpu", 1).at(5));
    assert_eq!(stage.order("main"), "b a");
    assert_eq!(stage.admit(), ["b"]);
}

#[test]
fn weight_divides_usage_and_zero_weight_goes_last() {
    let mut stage = stage(1);
    restore(&mut stage, "heavy", 8);
    restore(&mut stage, "light", 3);
    stage.submit(wl("a").queue("heavy").request("cpu", 1));
    stage.submit(wl("b").queue("light").request("cpu", 1));
    assert_eq!(stage.order("main"), "b a");
    stage.apply(Event::LocalQueue(lq("heavy", "main").weight(4000)));
    assert_used(&stage, "heavy", 2.0);
    assert_eq!(stage.order("main"), "a b");
    stage.apply(Event::LocalQueue(lq("heavy", "main").weight(0)));
    assert_eq!(stage.order("main"), "b a");
}

#[test]
fn entry_penalty_alternates_queues_within_an_interval() {
    let mut stage = stage(4);
    for number in 0..3 {
        stage.submit(
            wl(&format!("h{number}")).queue("heavy").request("cpu", 1).priority(9).at(number),
        );
        stage.submit(wl(&format!("l{number}")).queue("light").request("cpu", 1).at(10 + number));
    }
    // Equal usage at first, so priority decides. Then the charged queue waits for the other. Half a
    // core each.
    assert_eq!(stage.admit_all(), ["h0", "l0", "h1", "l1"]);
    assert_used(&stage, "heavy", 1.0);
    assert_used(&stage, "light", 1.0);
}

#[test]
fn refused_reservation_removes_the_penalty() {
    let mut stage = stage(4);
    stage.submit(wl("a").queue("heavy").request("cpu", 2));
    assert_eq!(stage.cycle().len(), 1);
    assert_used(&stage, "heavy", 1.0);
    stage.refuse("a", RefusedReason::WriteFailed { message: "gone".into() });
    assert_used(&stage, "heavy", 0.0);
    stage.cycle();
    stage.delete("a");
    assert_used(&stage, "heavy", 0.0);
}

#[test]
fn past_usage_is_sampled_over_time_and_shown() {
    let mut stage = stage(4);
    stage.submit(wl("a").queue("heavy").request("cpu", 4));
    stage.admit_all();
    // The penalty is half of four. After a half-life: half of that, and half of four.
    assert_used(&stage, "heavy", 2.0);
    let next = stage.engine.next_wakeup(stage.now).expect("it is sampled again");
    stage.wait(60);
    assert!(next <= stage.now);
    stage.engine.flush_inadmissible(stage.now);
    assert_used(&stage, "heavy", 3.0);
    let key = LocalQueueKey::new("ns", "heavy");
    let shown =
        stage.engine.local_queue(&key).and_then(|view| view.past_usage).expect("it is shown");
    assert_eq!((shown.consumed["cpu"], shown.last_update), (3_000_000_000, stage.now));
    assert!(stage.engine.changed().local_queues.contains(&key));
    assert!(
        stage.engine.next_wakeup(stage.now).is_some_and(|at| at > stage.now),
        "and not at once again"
    );
}

/// Four cores wait for their admission checks. Half of them is the penalty. Cores that count as
/// usage continue to count with the half-life.
#[rstest]
#[case::from_admission(false, 2.0)]
#[case::from_reservation(true, 3.0)]
fn reserved_quota_counts_as_usage_with_the_gate(
    #[case] usage_from_reservation: bool,
    #[case] used: f64,
) {
    let gates = EngineGates { usage_from_reservation, ..EngineGates::default() };
    let mut stage = Stage::around(engine(EngineSettings { gates, ..EngineSettings::default() }));
    stage.queue(cq("main").orders_local_queues().quota("default", "cpu", 4));
    stage.apply(Event::LocalQueue(lq("heavy", "main")));
    stage.submit(wl("a").queue("heavy").request("cpu", 4));
    let decisions = stage.engine.cycle(stage.now).decisions;
    let [Decision::Reserve { admission, .. }] = &decisions[..] else { panic!("{decisions:?}") };
    stage.change("a", |workload| workload.reservation = Some(admission.clone()));
    assert_used(&stage, "heavy", 2.0);
    stage.wait(60);
    stage.engine.flush_inadmissible(stage.now);
    assert_used(&stage, "heavy", used);
}

#[test]
fn past_usage_needs_the_admission_scope() {
    let mut stage = Stage::around(engine(EngineSettings::default()));
    stage.queue(cq("main").quota("default", "cpu", 4));
    stage.apply(Event::LocalQueue(lq("heavy", "main")));
    restore(&mut stage, "heavy", 8);
    assert_used(&stage, "heavy", 0.0);
    stage.submit(wl("a").queue("heavy").request("cpu", 1).priority(1));
    stage.submit(wl("b").request("cpu", 1));
    assert_eq!(stage.order("main"), "a b");
    stage.queue(cq("main").orders_local_queues().quota("default", "cpu", 4));
    assert_eq!(stage.order("main"), "b a");
    stage.queue(cq("main").quota("default", "cpu", 4));
    assert_eq!(stage.order("main"), "a b");
}

#[test]
fn highest_past_usage_is_preempted_first() {
    let mut stage = stage(2);
    let mut queue = cq("main").orders_local_queues().quota("default", "cpu", 2);
    queue.preemption.within_cluster_queue = PreemptionPolicy::LowerPriority;
    stage.queue(queue);
    restore(&mut stage, "heavy", 8);
    stage.submit(wl("a").queue("heavy").request("cpu", 1).priority(5));
    stage.submit(wl("b").queue("light").request("cpu", 1).priority(1));
    stage.admit_all();
    stage.apply(Event::LocalQueue(lq("third", "main")));
    stage.submit(wl("c").queue("third").request("cpu", 1).priority(9));
    assert!(stage.cycle().contains(&"preempt a for c: InClusterQueue".to_owned()));
}

/// Two LocalQueues of another namespace, one with the name of the heavy one. Each has a workload in
/// a queue that borrows. The workload of lower priority is of the lighter LocalQueue.
#[rstest]
#[case::the_heavier_one_also_in_another_cluster_queue(
    "light",
    "preempt a for c: InCohortReclamation"
)]
#[case::also_one_of_the_same_name("heavy", "preempt a for c: InCohortReclamation")]
fn higher_past_usage_is_preempted_first_across_queues(
    #[case] lighter: &str,
    #[case] decided: &str,
) {
    let mut stage = Stage::around(engine(EngineSettings::default()));
    stage.namespace("other", &[]);
    let mut mine = cq("mine").cohort("all").quota("default", "cpu", 4);
    mine.preemption.reclaim_within_cohort = PreemptionPolicy::Any;
    stage.queue(mine);
    stage.apply(Event::LocalQueue(lq("mine", "mine")));
    stage.queue(cq("main").cohort("all").orders_local_queues().quota("default", "cpu", 0));
    stage.apply(Event::LocalQueue(lq("heavy", "main")));
    stage.apply(Event::LocalQueue(LocalQueue {
        key: LocalQueueKey::new("other", lighter),
        ..lq("x", "main")
    }));
    restore(&mut stage, "heavy", 8);
    stage.submit(wl("a").queue("heavy").request("cpu", 2).priority(5));
    let mut b = wl("b").queue(lighter).request("cpu", 2).priority(1);
    b.key.namespace = "other".into();
    stage.submit(b);
    stage.admit_all();
    stage.submit(wl("c").queue("mine").request("cpu", 2));
    assert!(stage.cycle().contains(&decided.to_owned()), "{:?}", stage.why("c"));
}

#[test]
fn deleted_queue_loses_its_past_usage() {
    let mut stage = stage(2);
    restore(&mut stage, "heavy", 8);
    stage.apply(Event::LocalQueueDeleted { key: LocalQueueKey::new("ns", "heavy") });
    stage.apply(Event::LocalQueue(lq("heavy", "main")));
    assert_used(&stage, "heavy", 0.0);
}

proptest! {
    /// Each admitted workload is of a LocalQueue whose usage is at most that of all others with
    /// pending workloads.
    #[test]
    fn lowest_past_usage_is_admitted_first(
        past in prop::collection::vec(0_i128..20, 3),
        weights in prop::collection::vec(1_i64..4, 3),
        jobs in prop::collection::vec((0_usize..3, 1_i64..4, 0_i32..3), 1..20),
    ) {
        let mut stage = Stage::around(engine(EngineSettings::default()));
        stage.queue(cq("main").orders_local_queues().quota("default", "cpu", 100));
        let names = ["x", "y", "z"];
        for (name, (weight, past)) in names.iter().zip(weights.iter().zip(&past)) {
            stage.apply(Event::LocalQueue(lq(name, "main").weight(*weight * 1000)));
            restore(&mut stage, name, *past);
        }
        for (number, (queue, cores, priority)) in jobs.iter().enumerate() {
            let job = wl(&format!("w{number:02}")).queue(names[*queue]).request("cpu", *cores).priority(*priority);
            stage.submit(job.at(number as i64));
        }
        let mut waiting: Vec<usize> = (0..jobs.len()).collect();
        while !waiting.is_empty() {
            let least = waiting.iter().map(|job| used(&stage, names[jobs[*job].0])).fold(f64::INFINITY, f64::min);
            let before = names.map(|name| used(&stage, name));
            let admitted = stage.admit();
            prop_assert_eq!(admitted.len(), 1);
            let number: usize = admitted[0][1..].parse().unwrap();
            prop_assert!(before[jobs[number].0] <= least);
            waiting.retain(|job| *job != number);
        }
    }
}
