//! Events that no sane cluster sends, in any order, with times that go back and amounts at the ends
//! of their range. The engine accepts all of them.
//!
//! A short run is part of every test run. `FUZZ_SECONDS=600 cargo test -p switchyard-scheduler
//! --test laws hostile -- --nocapture` runs that long and prints the numbers of events and cycles.
//! `LAWS_SEED` repeats a run.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use switchyard_scheduler::{
    Admission, AdmissionCheck, AdmissionScope, Amount, CheckPhase, CheckState, ClusterQueue,
    Cohort, Decision, Engine, EngineSettings, Event, FairStrategy, LocalQueue, Name, PodSet,
    PodSetAssignment, PreemptionSettings, Quota, QuotaCheckStrategy, RefusedReason, StopPolicy,
    Time, Workload,
};

use crate::script::{cohort, flavor, key, local_queue, local_queue_key, name, queue, workload};

/// One input of an engine.
#[derive(Clone, Debug)]
enum Input {
    Event(Box<Event>),
    Cycle,
    /// Confirms the engine's last reservations, changed or not.
    Confirm {
        admitted: bool,
    },
    /// Sets the time.
    At(i64),
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 0..10_i64,
        1 => -10..0_i64,
        1 => Just(i64::MAX),
        1 => Just(i64::MIN),
        1 => any::<i64>(),
    ]
}

fn count() -> impl Strategy<Value = i32> {
    prop_oneof![4 => 0..5_i32, 1 => Just(i32::MAX), 1 => Just(i32::MIN), 1 => any::<i32>()]
}

fn time() -> impl Strategy<Value = Time> {
    prop_oneof![4 => (0..2000_i64).prop_map(Time::from_secs), 1 => number().prop_map(Time)]
}

fn amount() -> impl Strategy<Value = Amount> {
    number().prop_map(Amount::new)
}

/// A queue with some absurd quotas, and duplicates in its groups.
fn odd_queue() -> impl Strategy<Value = ClusterQueue> {
    let quota = (amount(), proptest::option::of(amount()), proptest::option::of(amount()));
    (queue(), quota, number(), 0..8_u8).prop_map(
        |(mut queue, (nominal, borrowing_limit, lending_limit), weight, odd)| {
            let quota = Quota { nominal, borrowing_limit, lending_limit };
            let quotas = queue.resource_groups.iter_mut().flat_map(|group| &mut group.flavors);
            for (_, old) in quotas.flat_map(|flavor| &mut flavor.resources).take(usize::from(odd)) {
                *old = quota;
            }
            match odd {
                0 => queue.resource_groups.extend(queue.resource_groups.clone()),
                1 => queue.fair_weight_milli = weight,
                2 => queue
                    .resource_groups
                    .iter_mut()
                    .for_each(|group| group.covered_resources.clear()),
                3 => queue.cohort = Some("".into()),
                4 => queue.stop_policy = StopPolicy::HoldAndDrain,
                5 => queue.admission_scope = AdmissionScope::UsageBasedAdmissionFairSharing,
                _ => {}
            }
            queue
        },
    )
}

/// A Cohort that may name itself or close a cycle.
fn odd_cohort() -> impl Strategy<Value = Cohort> {
    (cohort(), proptest::option::of(name("c", 3)), number())
        .prop_map(|(cohort, parent, weight)| Cohort { parent, fair_weight_milli: weight, ..cohort })
}

fn admission() -> impl Strategy<Value = Admission> {
    let usage = prop::collection::btree_map(resource(), amount(), 0..3);
    let flavors = prop::collection::btree_map(resource(), name("f", 4), 0..3);
    let pod_set =
        (name("p", 3), flavors, usage, count()).prop_map(|(name, flavors, usage, count)| {
            PodSetAssignment { name, flavors, usage, count, topology: None, delayed: None }
        });
    (name("q", 5), prop::collection::vec(pod_set, 0..3))
        .prop_map(|(cluster_queue, pod_sets)| Admission { cluster_queue, pod_sets })
}

fn resource() -> impl Strategy<Value = Name> {
    prop_oneof![Just("cpu"), Just("memory"), Just("gpu"), Just("pods"), Just("")]
        .prop_map(Name::from)
}

fn odd_workload() -> impl Strategy<Value = Workload> {
    let requests = prop::collection::btree_map(resource(), amount(), 0..4);
    let pod_set = (name("p", 2), count(), proptest::option::of(count()), requests).prop_map(
        |(name, count, min_count, requests)| PodSet {
            min_count,
            requests,
            ..PodSet::new(name, count)
        },
    );
    let pod_sets = proptest::option::of(prop::collection::vec(pod_set, 0..4));
    let status = (
        proptest::option::of(admission()),
        any::<[bool; 7]>(),
        proptest::option::of(any::<bool>()),
    );
    let replaces = proptest::option::of(key());
    let times = (time(), proptest::option::of(time()), proptest::option::of(time()));
    let reclaimable = prop::collection::btree_map(name("p", 3), count(), 0..3);
    (workload(), pod_sets, status, times, reclaimable, replaces, 0..6_u8).prop_map(
        |(
            workload,
            pod_sets,
            (reservation, flags, requeued),
            (queue_time, requeue_at, reserved_at),
            reclaimable,
            replaces,
            rare,
        )| {
            let [admitted, evicted, finished, deleting, held, gates_closed, usual] = flags;
            let check = CheckState { name: "a0".into(), state: CheckPhase::Rejected };
            Workload {
                pod_sets: pod_sets.unwrap_or_else(|| workload.pod_sets.clone()),
                queue_time,
                // The engine should admit most workloads.
                reservation: reservation.filter(|_| rare < 2),
                reserved_at,
                admitted: admitted && rare < 2,
                evicted: evicted && rare < 3,
                finished: finished && rare == 0,
                deleting: deleting && rare == 0,
                on_hold: held && !usual && rare == 1,
                gates_closed: gates_closed && rare < 3,
                requeue_at: requeue_at.filter(|_| rare == 3),
                requeued: requeued.filter(|_| rare == 3),
                checks: if rare == 4 { vec![check] } else { Vec::new() },
                reclaimable: if rare < 3 { reclaimable } else { BTreeMap::new() },
                replaces: replaces.filter(|_| rare > 1),
                ..workload
            }
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let labels = || prop::collection::btree_map("team", "[ab]", 0..2);
    let refused = prop_oneof![
        Just(RefusedReason::WriteFailed { message: String::new() }),
        proptest::option::of(time())
            .prop_map(|retry_at| RefusedReason::DispatchFailed { message: "no".into(), retry_at }),
    ];
    prop_oneof![
        2 => (name("n", 3), labels()).prop_map(|(name, labels)| Event::Namespace { name, labels }),
        1 => name("n", 3).prop_map(|name| Event::NamespaceDeleted { name }),
        2 => flavor().prop_map(Event::ResourceFlavor),
        1 => name("f", 4).prop_map(|name| Event::ResourceFlavorDeleted { name }),
        6 => odd_queue().prop_map(Event::ClusterQueue),
        1 => name("q", 5).prop_map(|name| Event::ClusterQueueDeleted { name }),
        3 => odd_cohort().prop_map(Event::Cohort),
        1 => name("c", 4).prop_map(|name| Event::CohortDeleted { name }),
        4 => local_queue().prop_map(Event::LocalQueue),
        1 => local_queue_key().prop_map(|key| Event::LocalQueueDeleted { key }),
        1 => (name("a", 2), any::<bool>()).prop_map(|(name, active)| {
            Event::AdmissionCheck(AdmissionCheck { name, controller: "kueue.x-k8s.io/multikueue".into(), active })
        }),
        1 => name("a", 2).prop_map(|name| Event::AdmissionCheckDeleted { name }),
        1 => name("t", 2).prop_map(|name| Event::Topology { name, levels: Vec::new() }),
        1 => name("t", 2).prop_map(|name| Event::TopologyDeleted { name }),
        24 => odd_workload().prop_map(|workload| Event::Workload(Box::new(workload))),
        8 => workload().prop_map(|workload| Event::Workload(Box::new(workload))),
        2 => key().prop_map(|key| Event::WorkloadDeleted { key }),
        2 => (key(), prop::option::of(0..20_u64), refused).prop_map(|(key, cycle, reason)| {
            Event::AdmissionRefused { key, cycle, reason }
        }),
        1 => key().prop_map(|key| Event::PreemptionFailed { key }),
        1 => key().prop_map(|key| Event::Retry { key }),
        1 => name("q", 5).prop_map(|cluster_queue| Event::RetryAll { cluster_queue }),
        1 => (local_queue_key(), prop::collection::btree_map(resource(), any::<i128>(), 0..3))
            .prop_map(|(queue, consumed)| Event::PastUsage { queue, consumed }),
    ]
}

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let input = prop_oneof![
        10 => event().prop_map(|event| Input::Event(Box::new(event))),
        5 => Just(Input::Cycle),
        3 => any::<bool>().prop_map(|admitted| Input::Confirm { admitted }),
        1 => time().prop_map(|time| Input::At(time.0)),
    ];
    let begin = (0..3).map(|number| Input::Event(Box::new(Event::ResourceFlavor(plain(number)))));
    let namespaces = (0..2).map(|number| {
        Input::Event(Box::new(Event::Namespace {
            name: format!("n{number}").into(),
            labels: BTreeMap::new(),
        }))
    });
    let queues = (0..3).map(|number| {
        let key = switchyard_scheduler::LocalQueueKey::new("n0", format!("l{number}"));
        Input::Event(Box::new(Event::LocalQueue(LocalQueue::new(key, format!("q{number}")))))
    });
    let fixed: Vec<Input> = begin.chain(namespaces).chain(queues).collect();
    prop::collection::vec(input, 1..150)
        .prop_map(move |inputs| fixed.iter().cloned().chain(inputs).collect())
}

fn plain(number: usize) -> switchyard_scheduler::ResourceFlavor {
    switchyard_scheduler::ResourceFlavor {
        name: format!("f{number}").into(),
        node_labels: BTreeMap::new(),
        node_taints: Vec::new(),
        tolerations: Vec::new(),
        topology_name: None,
    }
}

#[allow(clippy::needless_update, reason = "settings that are added later keep their defaults")]
fn engines() -> impl Strategy<Value = (EngineSettings, Option<PreemptionSettings>, Vec<Input>)> {
    let settings = (any::<[bool; 6]>(), 0..2000_u64).prop_map(
        |([undeclared, hashing, partial, fair, preempts, both], window)| {
            let settings = EngineSettings {
                quota_check: if undeclared {
                    QuotaCheckStrategy::IgnoreUndeclared
                } else {
                    QuotaCheckStrategy::BlockUndeclared
                },
                requeue_window: Duration::from_millis(window),
                equivalence_hashing: hashing,
                partial_admission: partial,
                fair_sharing: fair,
                ..EngineSettings::default()
            };
            let first = vec![FairStrategy::LessThanInitialShare];
            let strategies =
                if both { PreemptionSettings::default().fair_strategies } else { first };
            let preemption =
                PreemptionSettings { recompute_overlaps: both, fair_strategies: strategies };
            (settings, preempts.then_some(preemption))
        },
    );
    (settings, inputs()).prop_map(|((settings, preemption), inputs)| (settings, preemption, inputs))
}

/// Plays the inputs. Returns the numbers of events and cycles.
fn play(
    settings: &EngineSettings,
    preemption: Option<&PreemptionSettings>,
    inputs: &[Input],
) -> (u64, u64) {
    let mut engine = match preemption {
        Some(preemption) => Engine::with_preemption(settings.clone(), preemption.clone()),
        None => Engine::new(settings.clone()),
    };
    let (mut now, mut events, mut cycles) = (Time::from_secs(1000), 0, 0);
    let mut last: BTreeMap<switchyard_scheduler::WorkloadKey, Admission> = BTreeMap::new();
    let mut known = BTreeMap::new();
    for input in inputs {
        match input {
            Input::Event(event) => {
                if let Event::Workload(workload) = &**event {
                    known.insert(workload.key.clone(), workload.clone());
                }
                engine.apply((**event).clone(), now);
                events += 1;
            }
            Input::Cycle => {
                cycles += 1;
                for decision in engine.cycle(now).decisions {
                    assert!(!format!("{decision:?}").is_empty());
                    if let Decision::Reserve { key, admission, .. } = decision {
                        last.insert(key, admission);
                    }
                }
            }
            Input::Confirm { admitted } => {
                for (key, admission) in std::mem::take(&mut last) {
                    let Some(mut workload) = known.get(&key).cloned() else { continue };
                    (workload.reservation, workload.admitted) = (Some(admission), *admitted);
                    engine.apply(Event::Workload(workload), now);
                    events += 1;
                }
            }
            Input::At(time) => now = Time(*time),
        }
    }
    call_all_queries(&mut engine, &known, now);
    (events, cycles)
}

/// Calls every query.
fn call_all_queries(
    engine: &mut Engine,
    known: &BTreeMap<switchyard_scheduler::WorkloadKey, Box<Workload>>,
    now: Time,
) {
    for number in 0..5 {
        let queue = format!("q{number}");
        let view = engine.cluster_queue(&queue).map(|view| format!("{view:?}"));
        assert_eq!(view.is_some(), engine.cluster_queue(&queue).is_some());
        assert!(engine.pending(&queue).all(|entry| !entry.key.name.is_empty()));
    }
    for key in known.keys() {
        // The reason of a workload without pod sets, which the API rejects, may be empty.
        engine.why(key).map(|why| why.message());
    }
    engine.next_wakeup(now);
    engine.has_heads(now);
    engine.changed();
}

#[test]
fn hostile_events_never_panic() {
    let seconds = crate::number("FUZZ_SECONDS");
    let (mut seed, mut runs) = (crate::seed(), 0);
    let (events, cycles) = (Cell::new(0), Cell::new(0));
    #[expect(
        clippy::disallowed_types,
        clippy::disallowed_methods,
        reason = "how long to go on, not what is decided"
    )]
    let end = seconds.map(|seconds| std::time::Instant::now() + Duration::from_secs(seconds));
    loop {
        println!("hostile events: LAWS_SEED={seed}");
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let every = Config::default().cases;
        let cases = if seconds.is_some() { every } else { every / 4 };
        let config = Config { failure_persistence: None, cases, ..Config::default() };
        runs += u64::from(config.cases);
        let mut runner =
            TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
        let played = runner.run(&engines(), |(settings, preemption, inputs)| {
            let counts = play(&settings, preemption.as_ref(), &inputs);
            events.set(events.get() + counts.0);
            cycles.set(cycles.get() + counts.1);
            Ok::<(), TestCaseError>(())
        });
        if let Err(error) = played {
            crate::broken("hostile events", seed, &error);
        }
        #[expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "see above")]
        let over = end.is_none_or(|end| std::time::Instant::now() >= end);
        if over {
            break;
        }
        seed = seed.wrapping_add(1);
    }
    println!("{runs} engines took {} events and {} cycles", events.get(), cycles.get());
    assert!(cycles.get() > 0);
}
