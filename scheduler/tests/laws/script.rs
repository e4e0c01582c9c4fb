//! Random scripts: steps of a small world in any order.

use std::collections::BTreeMap;

use proptest::prelude::*;
use switchyard_scheduler::{
    AdmissionScope, Amount, BorrowWithinCohort, ClusterQueue, Cohort, FlavorFungibility,
    FlavorQuotas, FungibilityPolicy, FungibilityPreference, LabelSelector, LocalQueue,
    LocalQueueKey, Name, PodSet, PreemptionPolicy, PreemptionRules, QueueingStrategy, Quota,
    ResourceFlavor, ResourceGroup, StopPolicy, Taint, TaintEffect, Time, Toleration,
    TolerationOperator, Workload, WorkloadKey,
};

#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) kind: EngineKind,
    pub(crate) steps: Vec<Step>,
}

/// How the engine preempts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EngineKind {
    /// No preemption.
    Plain,
    /// By priority and borrowing.
    Classical,
    /// By fair shares.
    Fair,
    /// As [`EngineKind::Classical`], with admission fair sharing.
    Sharing,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Namespace {
        name: Name,
        labelled: bool,
    },
    Flavor(ResourceFlavor),
    FlavorDeleted(Name),
    Queue(ClusterQueue),
    QueueDeleted(Name),
    Cohort(Cohort),
    CohortDeleted(Name),
    LocalQueue(LocalQueue),
    LocalQueueDeleted(LocalQueueKey),
    /// Past usage in a LocalQueue's status, in cores.
    PastUsage(LocalQueueKey, u32),
    Check {
        name: Name,
        active: bool,
    },
    Submit(Box<Workload>),
    Deleted(WorkloadKey),
    Finished(WorkloadKey),
    Evicted(WorkloadKey),
    Reprioritised(WorkloadKey, i32),
    Reclaimed(WorkloadKey, i32),
    Retried(WorkloadKey),
    /// A cycle. Its reservations get these answers in turn.
    Cycle(Vec<Answer>),
    Wait(u64),
}

/// The answer to a reservation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Confirm,
    Refuse,
    NotDispatched,
    Leave,
}

pub(crate) fn name(prefix: &'static str, count: usize) -> impl Strategy<Value = Name> {
    (0..count).prop_map(move |number| format!("{prefix}{number}").into())
}

/// Up to `most`, and rarely an absurd amount.
fn amount(most: i64) -> impl Strategy<Value = Amount> {
    prop_oneof![60 => 0..most, 1 => Just(i64::MAX), 1 => Just(i64::MAX - 1), 1 => Just(-3)]
        .prop_map(Amount::new)
}

fn quota() -> impl Strategy<Value = Quota> {
    let limit = || proptest::option::weighted(0.3, amount(12));
    (amount(9), limit(), limit()).prop_map(|(nominal, borrowing_limit, lending_limit)| Quota {
        nominal,
        borrowing_limit,
        lending_limit,
    })
}

fn groups() -> impl Strategy<Value = Vec<ResourceGroup>> {
    let flavors = |resources: &'static [&'static str]| {
        let of_flavor = (name("f", 3), prop::collection::vec(quota(), resources.len())).prop_map(
            |(name, quotas)| {
                let resources =
                    resources.iter().map(|resource| Name::from(*resource)).zip(quotas).collect();
                FlavorQuotas { name, resources }
            },
        );
        prop::collection::vec(of_flavor, 1..4).prop_map(|flavors| ResourceGroup {
            covered_resources: resources.iter().map(|resource| Name::from(*resource)).collect(),
            flavors,
        })
    };
    let more = proptest::option::weighted(0.3, flavors(&["gpu"]));
    (flavors(&["cpu", "memory"]), more)
        .prop_map(|(first, more)| std::iter::once(first).chain(more).collect())
}

pub(crate) fn queue() -> impl Strategy<Value = ClusterQueue> {
    let policy = || {
        prop_oneof![Just(FungibilityPolicy::MayStopSearch), Just(FungibilityPolicy::TryNextFlavor)]
    };
    let fungibility = (policy(), policy(), any::<bool>()).prop_map(
        |(when_can_borrow, when_can_preempt, other)| {
            let preference = if other {
                FungibilityPreference::PreemptionOverBorrowing
            } else {
                FungibilityPreference::BorrowingOverPreemption
            };
            FlavorFungibility { when_can_borrow, when_can_preempt, preference }
        },
    );
    let preemption = prop_oneof![
        1 => Just(PreemptionRules::default()),
        2 => Just(PreemptionRules {
            within_cluster_queue: PreemptionPolicy::LowerPriority,
            reclaim_within_cohort: PreemptionPolicy::Any,
            ..PreemptionRules::default()
        }),
        1 => Just(PreemptionRules {
            within_cluster_queue: PreemptionPolicy::LowerOrNewerEqualPriority,
            reclaim_within_cohort: PreemptionPolicy::LowerPriority,
            borrow_within_cohort: BorrowWithinCohort {
                policy: PreemptionPolicy::LowerPriority,
                max_priority_threshold: Some(1),
            },
        }),
    ];
    let cohort = proptest::option::weighted(0.7, name("c", 2));
    let shape = (name("q", 4), cohort, any::<bool>(), groups(), 0..3_i64);
    (shape, fungibility, preemption, 0..40_u8, any::<bool>()).prop_map(
        |(
            (name, cohort, strict, resource_groups, weight),
            fungibility,
            preemption,
            rare,
            by_usage,
        )| ClusterQueue {
            cohort,
            admission_scope: if by_usage {
                AdmissionScope::UsageBasedAdmissionFairSharing
            } else {
                AdmissionScope::default()
            },
            fair_weight_milli: weight * 500,
            strategy: if strict {
                QueueingStrategy::StrictFIFO
            } else {
                QueueingStrategy::BestEffortFIFO
            },
            resource_groups,
            fungibility,
            preemption,
            stop_policy: if rare == 0 { StopPolicy::Hold } else { StopPolicy::None },
            namespace_selector: match rare {
                1 => None,
                2 => Some(LabelSelector::label("team", "a")),
                _ => Some(LabelSelector::default()),
            },
            deleting: rare == 3,
            ..ClusterQueue::new(name)
        },
    )
}

pub(crate) fn cohort() -> impl Strategy<Value = Cohort> {
    let parent = proptest::option::weighted(0.4, name("c", 3));
    let groups = prop_oneof![1 => Just(Vec::new()), 1 => groups()];
    (name("c", 3), parent, groups).prop_map(|(name, parent, resource_groups)| Cohort {
        parent,
        resource_groups,
        ..Cohort::new(name)
    })
}

pub(crate) fn local_queue_key() -> impl Strategy<Value = LocalQueueKey> {
    (name("n", 2), name("l", 3)).prop_map(|(namespace, name)| LocalQueueKey { namespace, name })
}

pub(crate) fn local_queue() -> impl Strategy<Value = LocalQueue> {
    (local_queue_key(), name("q", 4), 0..8_u8, 0..4_i64).prop_map(|(key, queue, rare, weight)| {
        LocalQueue {
            fair_weight_milli: weight * 700,
            stop_policy: if rare == 0 { StopPolicy::HoldAndDrain } else { StopPolicy::None },
            ..LocalQueue::new(key, queue)
        }
    })
}

pub(crate) fn flavor() -> impl Strategy<Value = ResourceFlavor> {
    (name("f", 3), 0..4_u8).prop_map(|(name, kind)| ResourceFlavor {
        name,
        node_labels: if kind == 1 {
            BTreeMap::from([("zone".into(), "a".into())])
        } else {
            BTreeMap::new()
        },
        node_taints: if kind == 2 {
            vec![Taint {
                key: "spot".into(),
                value: "true".into(),
                effect: TaintEffect::NoSchedule,
            }]
        } else {
            Vec::new()
        },
        tolerations: Vec::new(),
        topology_name: None,
    })
}

pub(crate) fn key() -> impl Strategy<Value = WorkloadKey> {
    (name("n", 2), name("w", 8)).prop_map(|(namespace, name)| WorkloadKey { namespace, name })
}

fn pod_set() -> impl Strategy<Value = PodSet> {
    let requests = prop::collection::btree_map(
        prop_oneof![12 => Just("cpu"), 4 => Just("memory"), 1 => Just("gpu")].prop_map(Name::from),
        amount(4),
        1..3,
    );
    (name("p", 3), 1..4_i32, proptest::option::weighted(0.2, 0..4_i32), requests, 0..6_u8).prop_map(
        |(name, count, min_count, requests, kind)| PodSet {
            min_count,
            requests,
            node_selector: if kind == 0 {
                BTreeMap::from([("zone".into(), "b".into())])
            } else {
                BTreeMap::new()
            },
            tolerations: if kind < 3 {
                vec![Toleration {
                    key: "spot".into(),
                    operator: TolerationOperator::Exists,
                    value: String::new(),
                    effect: None,
                }]
            } else {
                Vec::new()
            },
            ..PodSet::new(name, count)
        },
    )
}

pub(crate) fn workload() -> impl Strategy<Value = Workload> {
    let shape = (key(), 0..3_usize, 0..5_i32, 0..5_i64, prop::collection::vec(pod_set(), 1..=2));
    (shape, 0..20_u8, 0..2_u8).prop_map(
        |((key, queue, priority, created, pod_sets), rare, generation)| {
            let uid = format!("{key}-{generation}");
            Workload {
                priority,
                pod_sets,
                active: rare != 0,
                on_hold: rare == 1,
                requeued: (rare == 2).then_some(false),
                requeue_at: (rare == 3).then_some(Time::from_secs(1005)),
                ..Workload::new(key, uid, format!("l{queue}"), Time::from_secs(created))
            }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let answer = prop_oneof![
        6 => Just(Answer::Confirm),
        1 => Just(Answer::Refuse),
        1 => Just(Answer::NotDispatched),
        1 => Just(Answer::Leave),
    ];
    prop_oneof![
        1 => (name("n", 2), any::<bool>()).prop_map(|(name, labelled)| Step::Namespace { name, labelled }),
        1 => flavor().prop_map(Step::Flavor),
        1 => name("f", 3).prop_map(Step::FlavorDeleted),
        4 => queue().prop_map(Step::Queue),
        1 => name("q", 4).prop_map(Step::QueueDeleted),
        2 => cohort().prop_map(Step::Cohort),
        1 => name("c", 3).prop_map(Step::CohortDeleted),
        3 => local_queue().prop_map(Step::LocalQueue),
        1 => local_queue_key().prop_map(Step::LocalQueueDeleted),
        1 => (local_queue_key(), 0..20_u32).prop_map(|(key, cores)| Step::PastUsage(key, cores)),
        1 => (name("a", 2), any::<bool>()).prop_map(|(name, active)| Step::Check { name, active }),
        20 => workload().prop_map(|workload| Step::Submit(Box::new(workload))),
        2 => key().prop_map(Step::Deleted),
        2 => key().prop_map(Step::Finished),
        2 => key().prop_map(Step::Evicted),
        2 => (key(), 0..3_i32).prop_map(|(key, priority)| Step::Reprioritised(key, priority)),
        2 => (key(), 0..4_i32).prop_map(|(key, pods)| Step::Reclaimed(key, pods)),
        1 => key().prop_map(Step::Retried),
        30 => prop::collection::vec(answer, 4).prop_map(Step::Cycle),
        3 => (0..2000_u64).prop_map(Step::Wait),
    ]
}

/// A world that mostly works, followed by random steps.
pub(crate) fn any_script() -> impl Strategy<Value = Script> {
    let flavors = (0..3).map(|number| {
        Step::Flavor(ResourceFlavor {
            name: format!("f{number}").into(),
            node_labels: BTreeMap::new(),
            node_taints: Vec::new(),
            tolerations: Vec::new(),
            topology_name: None,
        })
    });
    let namespaces = (0..2)
        .map(|number| Step::Namespace { name: format!("n{number}").into(), labelled: number == 0 });
    let local_queues = (0..2).flat_map(|namespace| {
        (0..3).map(move |queue| {
            let key = LocalQueueKey::new(format!("n{namespace}"), format!("l{queue}"));
            Step::LocalQueue(LocalQueue::new(key, format!("q{}", (namespace * 3 + queue) % 4)))
        })
    });
    let fixed: Vec<Step> = flavors.chain(namespaces).chain(local_queues).collect();
    let queues = prop::collection::vec(queue().prop_map(Step::Queue), 2..6);
    let kind = prop_oneof![
        Just(EngineKind::Plain),
        Just(EngineKind::Classical),
        Just(EngineKind::Fair),
        Just(EngineKind::Sharing)
    ];
    // Queues fill up first, so that later workloads wait and preempt.
    let fill = prop::collection::vec(workload(), 0..16).prop_map(|workloads| {
        let submit =
            |workload| [Step::Submit(Box::new(workload)), Step::Cycle(vec![Answer::Confirm])];
        workloads.into_iter().flat_map(submit).collect::<Vec<_>>()
    });
    (kind, queues, fill, prop::collection::vec(step(), 0..60)).prop_map(
        move |(kind, queues, fill, rest)| Script {
            kind,
            steps: fixed.iter().cloned().chain(queues).chain(fill).chain(rest).collect(),
        },
    )
}
