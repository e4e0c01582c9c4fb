//! Workloads.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use switchyard_api::flavor_pins::FlavorPins;
use switchyard_api::{conditions, names, quantity::amount_of, v1beta2 as api};
use switchyard_jobs::elastic;
use switchyard_scheduler::{self as engine, Amount, Name, WorkloadKey};

use super::{RequestRules, requests::PodRequests, selector};
use crate::{
    engine::convert::{time::engine_time, topology},
    workload as state,
};

/// The part of the configuration that decides order and preemption of workloads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ordering {
    /// Whether a PodsReady timeout moves a workload to the back of the queue.
    pub(crate) by_eviction: bool,
    /// Whether priorities order the heads of queues.
    pub(crate) by_priority: bool,
    /// Whether the annotation `priority-boost` counts.
    pub(crate) priority_boost: bool,
    /// Whether a workload may replace another (`ElasticJobsViaWorkloadSlices`).
    pub(crate) slices: bool,
    /// Whether `spec.preemptionGates` count.
    pub(crate) preemption_gates: bool,
    /// Whether reclaimable pods release quota.
    pub(crate) reclaims: bool,
    /// Whether annotations may gate admission (`AdmissionGatedBy`).
    pub(crate) admission_gates: bool,
    /// Whether topology-aware scheduling is on.
    pub(crate) places: bool,
    /// How long the next admission waits at most for the pods of a dispatched workload.
    pub(crate) patience: Duration,
}

pub(super) fn workload(
    workload: &api::Workload,
    rules: &RequestRules<'_>,
    ordering: Ordering,
) -> engine::Workload {
    let status = workload.status.as_ref();
    let text = |value: Option<&String>| Name::from(value.map_or("", String::as_str));
    let key = WorkloadKey {
        namespace: text(workload.metadata.namespace.as_ref()),
        name: text(workload.metadata.name.as_ref()),
    };
    let reserved = state::condition(workload, conditions::QUOTA_RESERVED)
        .filter(|c| c.status == conditions::TRUE);
    let requeued =
        state::condition(workload, conditions::REQUEUED).map(|c| c.status == conditions::TRUE);
    let requeue_at = status.and_then(|status| status.requeue_state.as_ref()?.requeue_at.as_ref());
    engine::Workload {
        uid: text(workload.metadata.uid.as_ref()),
        queue_name: state::queue_name(workload).to_owned(),
        priority: priority(workload, ordering),
        created: engine_time(state::created(workload)),
        queue_time: engine_time(state::queue_time(
            workload,
            ordering.by_eviction,
            ordering.by_priority,
        )),
        active: workload.spec.is_active(),
        on_hold: held(workload, ordering),
        finished: state::is_finished(workload),
        pod_sets: pinned(workload, pod_sets(workload, rules, ordering.places)),
        reservation: reserved
            .filter(|_| may_run(workload))
            .and_then(|_| status?.admission.as_ref())
            .map(admission),
        reserved_at: reserved.map(|condition| engine_time(condition.last_transition_time.0)),
        admitted: state::is_admitted(workload),
        evicted: state::is_evicted(workload),
        pods_ready: state::holds(workload, conditions::PODS_READY),
        ready_by: ready_by(workload, ordering.patience).map(engine_time),
        requeue_at: requeue_at.map(|at| engine_time(at.0)),
        requeued,
        reclaimable: status
            .iter()
            .flat_map(|status| &status.reclaimable_pods)
            .filter(|pods| ordering.reclaims && !elastic::is_outdated(workload, pods))
            .map(|pods| (Name::from(pods.name.as_str()), pods.count))
            .collect(),
        checks: status.iter().flat_map(|status| &status.admission_checks).map(check).collect(),
        gates_closed: ordering.preemption_gates && gates_closed(workload),
        deleting: workload.metadata.deletion_timestamp.is_some(),
        replaces: ordering.slices.then(|| replaced(workload)).flatten(),
        flavors: None,
        parent: None,
        unhealthy_nodes: status
            .iter()
            .flat_map(|status| &status.unhealthy_nodes)
            .map(|node| Name::from(node.name.as_str()))
            .collect(),
        owned_by_pod: is_owned_by_pod(workload),
        pod_set_updates: status
            .iter()
            .flat_map(|status| &status.admission_checks)
            .flat_map(updates)
            .collect(),
        key,
    }
}

/// Whether a pod may run by its quota, now or later. A deactivated workload that no job has started
/// never gives its quota back by itself.
fn may_run(workload: &api::Workload) -> bool {
    let taken =
        workload.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
    workload.spec.is_active() || taken || state::is_copy(workload)
}

/// The workload of the same namespace that this one replaces.
fn replaced(workload: &api::Workload) -> Option<WorkloadKey> {
    let (namespace, name) = elastic::replacement_for(workload)
        .filter(|_| elastic::is_slice(workload))?
        .split_once('/')?;
    let same = workload.metadata.namespace.as_deref() == Some(namespace);
    same.then(|| WorkloadKey { namespace: Name::from(namespace), name: Name::from(name) })
}

/// The effective priority. The webhook rejects a malformed boost; a stored one counts as zero.
pub(super) fn priority(workload: &api::Workload, ordering: Ordering) -> i32 {
    let boost =
        workload.metadata.annotations.as_ref().and_then(|all| all.get(names::PRIORITY_BOOST));
    let boost =
        boost.filter(|_| ordering.priority_boost).and_then(|text| text.parse().ok()).unwrap_or(0);
    workload.spec.priority.unwrap_or(0).saturating_add(boost)
}

/// The pod sets as the engine counts them. `places`: whether to include topology requests.
pub(super) fn pod_sets(
    workload: &api::Workload,
    rules: &RequestRules<'_>,
    places: bool,
) -> Vec<engine::PodSet> {
    let pod_sets = workload.spec.pod_sets.iter().enumerate();
    pod_sets.map(|(index, pod_set)| self::pod_set(pod_set, index, rules, places)).collect()
}

/// Binds the pod sets of a hub's copy to the flavors that the hub charged.
///
/// A copy whose pins cannot be read never gets quota, because the hub's charge would be wrong.
fn pinned(workload: &api::Workload, mut pod_sets: Vec<engine::PodSet>) -> Vec<engine::PodSet> {
    let annotations = workload.metadata.annotations.as_ref();
    let Some(text) = annotations
        .and_then(|all| all.get(names::FLAVOR_PINS))
        .filter(|_| state::is_copy(workload))
    else {
        return pod_sets;
    };
    let pins = match FlavorPins::parse(text) {
        Ok(pins) => pins,
        Err(error) => {
            for pod_set in &mut pod_sets {
                let problem = format!("annotation {}: {error}", names::FLAVOR_PINS);
                pod_set.problem.get_or_insert(problem);
            }
            return pod_sets;
        }
    };
    for pod_set in &mut pod_sets {
        let name = |text: &String| Name::from(text.as_str());
        pod_set.pins = pins.of(&pod_set.name).filter(|of| !of.is_empty()).map(|of| {
            Box::new(of.iter().map(|(resource, flavor)| (name(resource), name(flavor))).collect())
        });
    }
    pod_sets
}

/// Whether its only owner is a pod outside of groups.
fn is_owned_by_pod(workload: &api::Workload) -> bool {
    let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
    let [owner] = owners else { return false };
    owner.kind == "Pod" && owner.api_version == "v1" && !state::is_group_workload(workload)
}

/// The changes that a Ready admission check makes to pods.
fn updates(check: &api::AdmissionCheckState) -> impl Iterator<Item = engine::PodSetUpdate> {
    let updates = check.pod_set_updates.iter().filter(|_| check.state == api::CheckState::Ready);
    updates.map(|update| engine::PodSetUpdate {
        pod_set: Name::from(update.name.as_str()),
        node_selector: update.node_selector.clone().into_iter().collect(),
        tolerations: update.tolerations.iter().map(selector::toleration).collect(),
    })
}

/// When the wait for a dispatched workload's pods ends. The other cluster has its own
/// configuration, so it may never report them ready, nor evict the workload.
fn ready_by(workload: &api::Workload, patience: Duration) -> Option<Timestamp> {
    workload.status.as_ref()?.cluster_name.as_ref()?;
    let since =
        |type_| state::condition(workload, type_).filter(|it| it.status == conditions::TRUE);
    let begun = since(conditions::ADMITTED)
        .or_else(|| since(conditions::QUOTA_RESERVED))?
        .last_transition_time
        .0;
    begun.checked_add(SignedDuration::try_from(patience).ok()?).ok()
}

/// Whether the engine must not queue it: on hold, gated, or waiting for replacement pods.
fn held(workload: &api::Workload, ordering: Ordering) -> bool {
    state::is_on_hold(workload)
        || (ordering.admission_gates && state::admission_gates(workload).is_some())
        || state::holds(workload, conditions::WAITING_FOR_REPLACEMENT_PODS)
}

fn gates_closed(workload: &api::Workload) -> bool {
    let positions = workload.status.iter().flat_map(|status| &status.preemption_gates);
    let open: Vec<&str> = positions
        .filter(|gate| gate.position == api::PreemptionGatePosition::Open)
        .map(|gate| gate.name.as_str())
        .collect();
    workload.spec.preemption_gates.iter().any(|gate| !open.contains(&gate.name.as_str()))
}

fn check(check: &api::AdmissionCheckState) -> engine::CheckState {
    engine::CheckState {
        name: Name::from(check.name.as_str()),
        state: match check.state {
            api::CheckState::Pending => engine::CheckPhase::Pending,
            api::CheckState::Ready => engine::CheckPhase::Ready,
            api::CheckState::Retry => engine::CheckPhase::Retry,
            api::CheckState::Rejected => engine::CheckPhase::Rejected,
        },
    }
}

fn admission(admission: &api::Admission) -> engine::Admission {
    let name = |text: &String| Name::from(text.as_str());
    let pod_set = |assignment: &api::PodSetAssignment| engine::PodSetAssignment {
        name: name(&assignment.name),
        flavors: assignment
            .flavors
            .iter()
            .map(|(resource, flavor)| (name(resource), name(flavor)))
            .collect(),
        usage: assignment
            .resource_usage
            .iter()
            .map(|(resource, quantity)| {
                (name(resource), Amount::new(amount_of(resource, quantity)))
            })
            .collect(),
        count: assignment.count.unwrap_or(0),
        topology: assignment.topology_assignment.as_ref().map(topology::assignment),
        delayed: assignment.delayed_topology_request.map(topology::delayed),
    };
    engine::Admission {
        cluster_queue: name(&admission.cluster_queue),
        pod_sets: admission.pod_set_assignments.iter().map(pod_set).collect(),
    }
}

fn pod_set(
    pod_set: &api::PodSet,
    index: usize,
    rules: &RequestRules<'_>,
    places: bool,
) -> engine::PodSet {
    let base = engine::PodSet {
        min_count: pod_set.min_count,
        ..engine::PodSet::new(pod_set.name.as_str(), pod_set.count)
    };
    let template = match pod_set.template.parse() {
        Ok(template) => template,
        // A stored workload must be shown as one that cannot run, even with an unreadable template.
        Err(error) => {
            return engine::PodSet {
                problem: Some(format!("invalid pod template: {error}")),
                ..base
            };
        }
    };
    let spec = template.spec.unwrap_or_default();
    let PodRequests { charged, of_pod, problem } = rules.requests(&spec, &pod_set.name, index);
    let topology = pod_set.topology_request.as_ref().filter(|_| places);
    engine::PodSet {
        requests: charged,
        pod_requests: of_pod.filter(|_| places).map(Box::new),
        topology: topology.map(|request| Box::new(topology::request(request))),
        node_selector: super::labels(spec.node_selector.as_ref()),
        affinity: selector::affinity(spec.affinity.as_ref()),
        tolerations: spec.tolerations.iter().flatten().map(selector::toleration).collect(),
        problem,
        ..base
    }
}

#[cfg(test)]
mod tests {
    use switchyard_config::Configuration;

    use super::*;
    use crate::{
        fixtures::{self, WorkloadExt},
        stores::Stores,
    };

    const ORDERING: Ordering = Ordering {
        by_eviction: true,
        by_priority: true,
        priority_boost: true,
        slices: true,
        preemption_gates: true,
        reclaims: true,
        admission_gates: true,
        places: true,
        patience: Duration::from_secs(300),
    };

    fn told(subject: &api::Workload) -> engine::Workload {
        told_by(subject, ORDERING)
    }

    fn told_by(subject: &api::Workload, ordering: Ordering) -> engine::Workload {
        let (stores, config) = (Stores::default(), Configuration::default());
        workload(subject, &RequestRules::of(&stores, &config, "ns"), ordering)
    }

    #[test]
    fn pins_bind_the_pod_sets_of_a_copy_only() {
        let pins = |text: &str, copy: bool| {
            let mut subject = fixtures::workload("a").annotation(names::FLAVOR_PINS, text);
            if copy {
                subject = subject.annotation(names::WORKLOAD_UID, "u");
            }
            let pod_set = told(&subject).pod_sets.remove(0);
            let pins = pod_set.pins.map(|pins| {
                pins.iter().map(|(resource, pin)| format!("{resource}={pin}")).collect::<Vec<_>>()
            });
            (pins, pod_set.problem)
        };
        let text = r#"{"main":{"cpu":"spot"},"other":{"cpu":"x"}}"#;
        assert_eq!(pins(text, true), (Some(vec!["cpu=spot".to_owned()]), None));
        assert_eq!(pins(text, false), (None, None), "a user wrote it");
        assert_eq!(pins(r#"{"other":{"cpu":"x"}}"#, true), (None, None));
        let (none, problem) = pins("spot", true);
        assert!(none.is_none());
        assert!(problem.unwrap().starts_with("annotation switchyard.dev/flavor-pins: not a JSON"));
    }

    #[rstest::rstest]
    #[case::none(None, 5)]
    #[case::more(Some("10"), 15)]
    #[case::less(Some("-7"), -2)]
    #[case::not_a_number(Some("much"), 5)]
    #[case::out_of_range(Some("2147483647"), i32::MAX)]
    fn priority_boost_counts_with_its_gate(#[case] boost: Option<&str>, #[case] effective: i32) {
        let mut subject = fixtures::workload("a").edit(|workload| workload.spec.priority = Some(5));
        if let Some(boost) = boost {
            subject = subject.annotation(names::PRIORITY_BOOST, boost);
        }
        assert_eq!(told(&subject).priority, effective);
        assert_eq!(priority(&subject, Ordering { priority_boost: false, ..ORDERING }), 5);
    }

    #[test]
    fn new_workload_is_pending() {
        let workload = told(&fixtures::workload("a"));
        assert_eq!(workload.key.to_string(), "ns/a");
        assert_eq!((&*workload.uid, workload.queue_name.as_str()), ("uid-a", "lq"));
        assert!(workload.active && !workload.on_hold && workload.reservation.is_none());
        assert_eq!(
            workload.pod_sets[0]
                .requests
                .iter()
                .map(|(r, a)| format!("{r}={a}"))
                .collect::<Vec<_>>(),
            ["cpu=1000"]
        );
        assert_eq!(workload.pod_sets[0].count, 3);
    }

    #[rstest::rstest]
    #[case::slice("true", "ns/old", Some("ns/old"))]
    #[case::other_namespace("true", "other/old", None)]
    #[case::no_key("true", "old", None)]
    #[case::no_slice("false", "ns/old", None)]
    fn replaced_workload_is_in_same_namespace(
        #[case] elastic: &str,
        #[case] key: &str,
        #[case] want: Option<&str>,
    ) {
        let subject = fixtures::workload("new")
            .annotation(names::ELASTIC_JOB, elastic)
            .annotation(names::WORKLOAD_SLICE_REPLACEMENT_FOR, key);
        assert_eq!(told(&subject).replaces.map(|key| key.to_string()).as_deref(), want);
    }

    #[test]
    fn excess_reclaimable_pods_of_a_shrunk_job_are_capped() {
        let pods = |count| api::ReclaimablePod { name: "main".into(), count };
        for (elastic, count, want) in [("true", 3, 1), ("true", 4, 0), ("false", 4, 1)] {
            let subject = fixtures::workload("a").annotation(names::ELASTIC_JOB, elastic);
            let subject = subject.edit(|workload| workload.spec.pod_sets[0].name = "main".into());
            let subject = subject.status(|status| status.reclaimable_pods = vec![pods(count)]);
            assert_eq!(told(&subject).reclaimable.len(), want, "{elastic} {count}");
        }
    }

    #[test]
    fn quota_counts_only_while_reserved() {
        let reserved = fixtures::workload("a").reserved("cq").status(|status| {
            let quantity = k8s_openapi::apimachinery::pkg::api::resource::Quantity("2500m".into());
            let assignments = &mut status.admission.as_mut().unwrap().pod_set_assignments;
            assignments[0].resource_usage.insert("cpu".into(), quantity);
        });
        let admission = told(&reserved).reservation.unwrap();
        assert_eq!(admission.pod_sets[0].usage.values().next().unwrap().get(), 2500);
        // An admission without the condition holds no quota.
        let lost = reserved.condition("QuotaReserved", false, "Pending", "");
        assert_eq!(told(&lost).reservation, None);
    }

    #[test]
    fn deactivated_workload_counts_while_its_job_runs() {
        let inactive = |owners: usize| {
            fixtures::workload("a").reserved("cq").edit(|workload| {
                workload.spec.active = Some(false);
                let owner =
                    k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference::default();
                workload.metadata.owner_references = Some(vec![owner; owners]);
            })
        };
        assert!(told(&inactive(1)).reservation.is_some());
        assert!(told(&inactive(0)).reservation.is_none());
    }

    #[rstest::rstest]
    #[case::no_gates(&[], &[], false)]
    #[case::unknown_position(&["a"], &[], true)]
    #[case::one_of_two_open(&["a", "b"], &["a"], true)]
    #[case::all_open(&["a"], &["a"], false)]
    fn closed_preemption_gate_forbids_preemption(
        #[case] gates: &[&str],
        #[case] open: &[&str],
        #[case] closed: bool,
    ) {
        let subject = fixtures::workload("a")
            .edit(|workload| {
                workload.spec.preemption_gates =
                    gates.iter().map(|name| api::PreemptionGate { name: (*name).into() }).collect()
            })
            .status(|status| {
                status.preemption_gates = open
                    .iter()
                    .map(|name| api::PreemptionGateState {
                        name: (*name).into(),
                        position: api::PreemptionGatePosition::Open,
                        last_transition_time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
                            fixtures::at(1),
                        ),
                    })
                    .collect();
            });
        assert_eq!(told(&subject).gates_closed, closed);
        let off = Ordering { preemption_gates: false, ..ORDERING };
        assert!(
            !told_by(&subject, off).gates_closed,
            "they hold only where the configuration says so"
        );
    }

    #[test]
    fn held_workloads_are_known_but_not_queued() {
        assert!(
            told(&fixtures::workload("a").condition("QuotaReserved", false, "OnHold", "")).on_hold
        );
        let gated =
            fixtures::workload("a").annotation("kueue.x-k8s.io/admission-gated-by", "x.io/y");
        assert!(told(&gated).on_hold);
        assert!(!told_by(&gated, Ordering { admission_gates: false, ..ORDERING }).on_hold);
    }

    #[test]
    fn wait_for_dispatched_workload_ends_with_ready_pods_or_time() {
        let subject = fixtures::workload("a").reserved("cq").admitted();
        let here = told(&subject);
        assert!(!here.pods_ready && here.ready_by.is_none(), "it is evicted when its time is over");
        let admitted =
            state::condition(&subject, conditions::ADMITTED).unwrap().last_transition_time.0;
        let sent = subject.status(|status| status.cluster_name = Some("east".into()));
        let told_of_sent = told(&sent);
        assert!(!told_of_sent.pods_ready);
        assert_eq!(told_of_sent.ready_by, Some(engine_time(admitted + ORDERING.patience)));
        assert!(told(&sent.condition("PodsReady", true, "Started", "")).pods_ready);
    }

    #[test]
    fn unreadable_template_is_a_problem_of_its_pod_set() {
        let subject = fixtures::workload("a").edit(|workload| {
            workload.spec.pod_sets[0].template =
                serde_json::json!({"spec": {"containers": 7}}).into();
        });
        assert!(
            told(&subject).pod_sets[0]
                .problem
                .as_ref()
                .unwrap()
                .starts_with("invalid pod template: ")
        );
    }
}
