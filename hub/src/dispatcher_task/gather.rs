//! Gathers what the dispatcher must know of a Workload, from the object, the stores and the memory
//! of the leader's term.

use std::sync::Arc;

use kube::ResourceExt as _;
use switchyard_api::affinity::Affinity;
use switchyard_api::flavor_pins::FlavorPins;
use switchyard_api::names;
use switchyard_api::v1beta2::{Admission, ClusterQueue, Workload};
use switchyard_controller::stores::{Stores, dispatching::is_dispatching};
use switchyard_controller::{Context, engine::convert, workload as state};
use switchyard_dispatcher::{JobIdentity, Name, Uid, WorkloadFacts};
use switchyard_jobs::{elastic, owner_gvk, serving::part_name, sized_pod_sets};
use switchyard_scheduler::PodSet;

use super::workload_view::WorkloadView;
use super::{job_status, payload, replicas};
use crate::{disconnect_policy, stuck_policy};

/// The part of a leader term's memory that the facts of a workload depend on.
pub(super) struct TermMemory<'a> {
    /// The hub lost its store, so it must recognize workloads by their jobs.
    pub(super) has_store_loss: bool,
    /// Whether the Workload with this uid has quota reserved in memory.
    pub(super) has_quota: &'a dyn Fn(&str) -> bool,
}

/// Everything that the dispatcher must know of a workload now.
///
/// `held` is quota reserved in memory only. A write task has no `memory`: the subject, the replica
/// and the end of the job are then left out.
pub(super) fn facts(
    ctx: &Context,
    workload: &Workload,
    held: Option<&Admission>,
    memory: Option<&TermMemory<'_>>,
) -> WorkloadFacts {
    let stores = &ctx.stores;
    let view = WorkloadView::of(workload, &|check| is_dispatching(stores, check));
    let queue = queue_of(stores, workload);
    let reserved_size = sized(workload, held);
    let pod_sets: Arc<[PodSet]> =
        convert::pod_sets(ctx, reserved_size.as_ref().unwrap_or(workload)).into();
    let replaces = replaced(ctx, workload)
        .and_then(|replaced| replaced.metadata.uid.as_deref().map(Uid::from));
    let has_store_loss = memory.is_some_and(|memory| memory.has_store_loss);
    let state = &view.state;
    let waits = state.cluster.is_none() && state.cluster_uid.is_none() && !state.finished;
    let needs_job_end =
        memory.is_some() && (has_store_loss || replaces.is_some()) && !state.finished;
    let replica =
        memory.and_then(|memory| replicas::replica(stores, workload, &pod_sets, memory.has_quota));
    WorkloadFacts {
        uid: view.uid.into(),
        namespace: view.namespace.into(),
        name: view.name.into(),
        version: view.version,
        queue: view.queue.into(),
        priority: view.priority,
        priority_class: view.priority_class.map(Name::from),
        other_checks_ready: view.other_checks_ready(&other_checks(stores, workload)),
        nominated: view.nominated.iter().map(|name| Name::from(name.as_str())).collect(),
        grace: view.grace(),
        on_disconnect: disconnect_policy::of_workload(workload, queue.as_deref()),
        stuck: stuck_policy::stuck_facts(workload, queue.as_deref()),
        affinity: affinity(workload, queue.as_deref()).map(Arc::new),
        move_request: view.move_request(),
        subject: if has_store_loss && waits { subject(workload) } else { None },
        adopt: view.adopt(),
        replica,
        replaces,
        waits_for_job: !view.has_owner,
        charged: charged(workload, held).into(),
        job_ended: needs_job_end.then(|| job_status::has_finished(ctx, workload)),
        pod_sets,
        state: view.state,
    }
}

/// The workload with the pod counts of its admission, if these may be lower than its spec's. `held`
/// is quota reserved in memory only.
pub(super) fn sized(workload: &Workload, held: Option<&Admission>) -> Option<Workload> {
    let shown = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let shown = shown.filter(|_| state::has_reservation(workload));
    let pod_sets = sized_pod_sets(workload, shown.or(held)?)?;
    let mut sized = workload.clone();
    sized.spec.pod_sets = pod_sets;
    Some(sized)
}

/// The flavors that the workload's quota is charged to. `held` is quota reserved in memory only.
pub(super) fn charged(workload: &Workload, held: Option<&Admission>) -> FlavorPins {
    let shown = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let admission = shown.filter(|_| state::has_reservation(workload)).or(held);
    let mut charged = FlavorPins::default();
    for assignment in admission.iter().flat_map(|admission| &admission.pod_set_assignments) {
        for (resource, flavor) in &assignment.flavors {
            charged.insert(&assignment.name, resource, flavor);
        }
    }
    charged
}

/// The cluster affinity of the workload, or else of its ClusterQueue.
fn affinity(workload: &Workload, queue: Option<&ClusterQueue>) -> Option<Affinity> {
    let queue = queue
        .and_then(|it| Some((it.metadata.name.as_deref()?, it.spec.cluster_affinity.as_ref()?)));
    Affinity::of(workload.metadata.annotations.as_ref(), queue)
}

/// The ClusterQueue that admitted the workload, or in which it waits.
pub(super) fn queue_of(stores: &Stores, workload: &Workload) -> Option<Arc<ClusterQueue>> {
    if let Some(name) = state::admitted_by(workload) {
        return stores.cluster_queues.get("", name);
    }
    let queue = stores
        .local_queues
        .get(workload.metadata.namespace.as_deref()?, state::queue_name(workload))?;
    stores.cluster_queues.get("", queue.spec.cluster_queue.as_deref()?)
}

/// The other checks that the ClusterQueue requires for every flavor. Until the status lists them,
/// it does not show whether they are ready.
fn other_checks(stores: &Stores, workload: &Workload) -> Vec<String> {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let queue =
        admission.and_then(|admission| stores.cluster_queues.get("", &admission.cluster_queue));
    let rules = queue.as_ref().map(|queue| queue.spec.admission_checks());
    rules
        .unwrap_or_default()
        .iter()
        .filter(|rule| rule.on_flavors.is_empty() && !is_dispatching(stores, &rule.name))
        .map(|rule| rule.name.clone())
        .collect()
}

/// The Workload of the same elastic job that this one replaces.
pub(super) fn replaced(ctx: &Context, workload: &Workload) -> Option<Arc<Workload>> {
    let key = elastic::replacement_for(workload).filter(|_| elastic::is_slice(workload))?;
    let (namespace, name) = key.split_once('/')?;
    let job = |workload: &Workload| {
        let mut owners = workload.metadata.owner_references.iter().flatten();
        owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone())
    };
    let is_same = |other: &Workload| job(other).is_some() && job(other) == job(workload);
    let found = ctx.stores.workloads.get(namespace, name);
    found.filter(|other| other.metadata.namespace == workload.metadata.namespace && is_same(other))
}

/// The job, or the replica of a job, that the workload stands for. Hashes the pod sets.
pub(super) fn subject(workload: &Workload) -> Option<JobIdentity> {
    let owned = payload::sent_owner(workload)?;
    let pod_sets = serde_json::to_value(&workload.spec.pod_sets).ok()?;
    let index =
        workload.annotations().get(names::COMPONENT_WORKLOAD_INDEX).map_or("", String::as_str);
    let job = if replicas::is_later_replica(workload) {
        part_name(owned.name, index)
    } else {
        owned.name.to_owned()
    };
    Some(JobIdentity {
        kind: owner_gvk(owned.kind.id()).into(),
        job: job.into(),
        pod_sets: switchyard_proto::pod_sets_hash(&pod_sets).into(),
    })
}
