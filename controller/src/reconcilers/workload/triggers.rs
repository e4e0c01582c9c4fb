//! Changes that trigger a reconcile: of the workload, its queues, and its owner job.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;
use switchyard_api::{
    conditions::{self, reasons},
    names,
    v1beta2::{ClusterQueue, LocalQueue, Workload},
    variants,
};
use switchyard_jobs::{JobKind, kind_for, meta, named_job, same_copy};
use tokio_util::sync::CancellationToken;

use crate::{
    context::Context,
    engine::views::Views,
    workload::{self, Phase},
};
use switchyard_platform::{
    clock::since,
    object::Object,
    store::{Change, Key, Store},
    work_queue::Queue,
};

pub(super) fn connect(ctx: &Arc<Context>, queue: &Queue<Key>) {
    workloads(ctx, queue);
    local_queues(ctx, queue);
    cluster_queues(ctx, queue);
    for jobs in &ctx.stores.jobs {
        // A deleted job may leave a workload with a finalizer behind.
        let (queue, workloads, counted) =
            (queue.clone(), ctx.stores.workloads.clone(), ctx.clone());
        let kind = kind_for(&jobs.resource.group, &jobs.resource.kind);
        jobs.store.subscribe(move |change| {
            if let (Some(kind), Some(old), Some(new)) = (kind, &change.old, &change.new) {
                count_copy(&counted, kind, old, new);
            }
            let (Some(old), None) = (&change.old, &change.new) else { return };
            let uid = old.metadata.uid.as_deref().unwrap_or_default();
            let owned = |workload: &Workload| {
                workload.metadata.deletion_timestamp.is_some()
                    && workload.owner_references().iter().any(|owner| owner.uid == uid)
            };
            for workload in workloads
                .in_namespace(&change.key.namespace)
                .iter()
                .filter(|workload| owned(workload))
            {
                queue.add(Key::of(&**workload));
            }
        });
    }
}

fn workloads(ctx: &Arc<Context>, queue: &Queue<Key>) {
    let (queue, counted, families) =
        (queue.clone(), ctx.clone(), ctx.config.enabled(variants::FEATURE_GATE));
    ctx.stores.workloads.subscribe(move |change| {
        // A parent is counted, and its variants are not.
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && !(families && variants::parent_of(new).is_some())
        {
            count(&counted, old, new);
        }
        if change.new.is_some() {
            queue.add(change.key.clone());
        }
    });
}

/// Counts a workload's change, whichever component made it.
fn count(ctx: &Context, old: &Workload, new: &Workload) {
    if !ctx.leading() {
        return;
    }
    let (before, after) = (workload::phase(old), workload::phase(new));
    let at = |type_: &str| {
        workload::condition(new, type_).map(|condition| condition.last_transition_time.0)
    };
    let by_job = workload::condition(new, conditions::FINISHED).is_some_and(|it| {
        matches!(it.reason.as_str(), reasons::finished::SUCCEEDED | reasons::finished::FAILED)
    });
    if after == Phase::Finished && before != Phase::Finished && !(by_job && is_copy(new)) {
        let ran = at(conditions::FINISHED).and_then(|end| ran_until(new, end));
        ctx.metrics.finished(new, workload::admitted_by(new).unwrap_or_default(), ran);
    }
    if before > Phase::Pending && after == Phase::Pending && workload::is_evicted(new) {
        let evicted = workload::condition(new, conditions::EVICTED);
        if let (Some(evicted), Some(cluster_queue)) = (evicted, workload::admitted_by(old)) {
            let now: Timestamp = ctx.clock.now();
            let after = since(now, evicted.last_transition_time.0);
            ctx.metrics.eviction_completed(cluster_queue, &evicted.reason, after);
        }
    }
}

/// A hub collects its copies when it knows of their end, mostly before `Finished` is written. So
/// the end of the job is counted there.
fn count_copy(ctx: &Context, kind: &dyn JobKind, old: &Object, new: &Object) {
    let new = &*new.value();
    if !ctx.leading() || kind.finished(new).is_none() || kind.finished(&old.value()).is_some() {
        return;
    }
    let named = ctx.stores.workloads.get(meta::namespace(new), meta::prebuilt_workload_name(new));
    let Some(copy) =
        named.filter(|it| same_copy(kind.id(), new, it) && workload::phase(it) == Phase::Admitted)
    else {
        return;
    };
    let ran = ran_until(&copy, ctx.clock.now());
    ctx.metrics.finished(&copy, workload::admitted_by(&copy).unwrap_or_default(), ran);
}

/// How long a workload was admitted in total. `None` if it never was.
fn ran_until(workload: &Workload, end: Timestamp) -> Option<Duration> {
    let admitted = workload::condition(workload, conditions::ADMITTED)
        .filter(|it| it.status == conditions::TRUE);
    let last = admitted.map(|admitted| since(end, admitted.last_transition_time.0));
    let before =
        workload.status.as_ref().and_then(|status| status.accumulated_past_execution_time_seconds);
    let before = before.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    last.into_iter().chain(before).reduce(|sum, time| sum + time)
}

/// Whether a hub's agent created the workload together with its job, so that it has no owner.
fn is_copy(workload: &Workload) -> bool {
    let of_a_hub =
        workload.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(names::HUB_ID));
    of_a_hub && workload.owner_references().is_empty() && named_job(workload).is_some()
}

fn local_queues(ctx: &Arc<Context>, queue: &Queue<Key>) {
    let (queue, workloads) = (queue.clone(), ctx.stores.workloads.clone());
    ctx.stores.local_queues.subscribe(move |change| {
        if !local_queue_matters(change) {
            return;
        }
        let in_queue = |workload: &Workload| workload::queue_name(workload) == &*change.key.name;
        for workload in workloads
            .in_namespace(&change.key.namespace)
            .iter()
            .filter(|workload| in_queue(workload))
        {
            queue.add(Key::of(&**workload));
        }
    });
}

// Switchyard's own status updates do not queue all workloads.
fn local_queue_matters(change: &Change<LocalQueue>) -> bool {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => {
            old.spec != new.spec
                || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
                || old.uid() != new.uid()
        }
        _ => true,
    }
}

fn cluster_queues(ctx: &Arc<Context>, queue: &Queue<Key>) {
    let (queue, workloads, local_queues) =
        (queue.clone(), ctx.stores.workloads.clone(), ctx.stores.local_queues.clone());
    ctx.stores.cluster_queues.subscribe(move |change| {
        if cluster_queue_matters(change) {
            add_of_cluster_queue(&queue, &workloads, &local_queues, &change.key.name);
        }
    });
}

fn cluster_queue_matters(change: &Change<ClusterQueue>) -> bool {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => {
            let relevant = |queue: &ClusterQueue| {
                (
                    queue.spec.stop_policy,
                    queue.spec.admission_checks_strategy.clone(),
                    queue.metadata.deletion_timestamp.clone(),
                )
            };
            relevant(old) != relevant(new) || old.uid() != new.uid()
        }
        _ => true,
    }
}

fn add_of_cluster_queue(
    queue: &Queue<Key>,
    workloads: &Store<Workload>,
    local_queues: &Store<LocalQueue>,
    name: &str,
) {
    let behind = local_queues.filter(|local| local.spec.cluster_queue.as_deref() == Some(name));
    let doors: std::collections::BTreeSet<Key> =
        behind.iter().map(|local| Key::of(&**local)).collect();
    let concerned = |workload: &Workload| {
        let door = Key::new(
            workload.metadata.namespace.as_deref().unwrap_or_default(),
            workload::queue_name(workload),
        );
        workload::admitted_by(workload) == Some(name) || doors.contains(&door)
    };
    for workload in
        workloads.filter(|workload| !workload::is_finished(workload) && concerned(workload))
    {
        queue.add(Key::of(&*workload));
    }
}

/// A new leader reconciles everything once.
pub(super) async fn on_leadership(
    ctx: Arc<Context>,
    queue: Queue<Key>,
    shutdown: CancellationToken,
) {
    let all =
        || ctx.stores.workloads.all().iter().for_each(|workload| queue.add(Key::of(&**workload)));
    ctx.each_term(&shutdown, all).await;
}

/// The workloads of a ClusterQueue that became active or inactive update their conditions.
pub(super) async fn on_inactive_queues(
    ctx: Arc<Context>,
    views: Arc<Views>,
    queue: Queue<Key>,
    shutdown: CancellationToken,
) {
    let changes = views.activity();
    loop {
        let name = tokio::select! {
            () = shutdown.cancelled() => return,
            name = changes.next() => name,
        };
        add_of_cluster_queue(&queue, &ctx.stores.workloads, &ctx.stores.local_queues, &name.name);
        changes.done(&name, switchyard_platform::work_queue::Outcome::Done);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::fixtures::{self, WorkloadExt};

    #[rstest]
    #[case::never_admitted(fixtures::workload("a"), None)]
    #[case::once(fixtures::workload("a").reserved("cq").admitted(), Some(100))]
    #[case::again(past(40, fixtures::workload("a").reserved("cq").admitted()), Some(140))]
    #[case::only_before(past(40, fixtures::workload("a")), Some(40))]
    fn all_admissions_are_added_up(#[case] workload: Workload, #[case] seconds: Option<u64>) {
        let admitted = workload::condition(&workload, conditions::ADMITTED)
            .map(|it| it.last_transition_time.0);
        let end = admitted
            .unwrap_or_else(|| fixtures::at(0))
            .checked_add(Duration::from_secs(100))
            .unwrap();
        assert_eq!(ran_until(&workload, end), seconds.map(Duration::from_secs));
    }

    fn past(seconds: i32, workload: Workload) -> Workload {
        workload.edit(|it| {
            it.status.get_or_insert_default().accumulated_past_execution_time_seconds =
                Some(seconds);
        })
    }
}
