//! The status of queues, and finalizers of objects in use.
//!
//! A changed condition is written at once. Changes of figures alone are written at most once a
//! second per object, and less often if many objects change. So a burst of jobs costs few writes,
//! and a single job shows at once.

mod cluster_queue;
mod cohort;
mod deletion_events;
mod finalizers;
mod local_queue;
mod pace;
mod publish;
mod usage;

use std::sync::Arc;

use kube::{Resource, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::{context::Context, engine::views::Views};
use switchyard_platform::{
    store::{Key, Store},
    work_queue::{self, Outcome, Queue},
    write::WriteError,
};

/// Objects of a kind reconciled in parallel.
const WORKERS: usize = 8;

/// Last writes and events, by kind.
#[derive(Debug, Default)]
struct Memory {
    cluster_queues: pace::FigurePace,
    local_queues: pace::FigurePace,
    cohorts: pace::FigurePace,
    queue_deletions: deletion_events::DeletionEvents,
    flavor_deletions: deletion_events::DeletionEvents,
    check_deletions: deletion_events::DeletionEvents,
    topology_deletions: deletion_events::DeletionEvents,
}

/// Runs until `shutdown`.
pub(crate) async fn run(ctx: Arc<Context>, views: Arc<Views>, shutdown: CancellationToken) {
    let cluster_queues = follow(&ctx.stores.cluster_queues, views.cluster_queue_changes.clone());
    let local_queues = follow(&ctx.stores.local_queues, views.local_queue_changes.clone());
    let cohorts = follow(&ctx.stores.cohorts, views.cohort_changes.clone());
    let flavors = follow(&ctx.stores.resource_flavors, Queue::default());
    let checks = follow(&ctx.stores.admission_checks, Queue::default());
    let topologies = follow(&ctx.stores.topologies, Queue::default());
    finalizers::follow_cluster_queues(&ctx.stores, &flavors, &checks);
    finalizers::follow_flavors(&ctx, &topologies);
    let queues = [&cluster_queues, &local_queues, &cohorts, &flavors, &checks, &topologies];
    let everything = on_leadership(&ctx, queues, shutdown.clone());
    let memory = Memory::default();
    let (ctx, views, memory) = (&ctx, &views, &memory);
    let run = |queue: &Queue<Key>| (queue.clone(), shutdown.clone());
    let cluster_queues = async {
        let (queue, shutdown) = run(&cluster_queues);
        work_queue::run(queue, WORKERS, shutdown, async |key| {
            cluster_queue::reconcile(ctx, views, memory, key).await
        })
        .await;
    };
    let local_queues = async {
        let (queue, shutdown) = run(&local_queues);
        work_queue::run(queue, WORKERS, shutdown, async |key| {
            local_queue::reconcile(ctx, views, &memory.local_queues, key).await
        })
        .await;
    };
    let cohorts = async {
        let (queue, shutdown) = run(&cohorts);
        work_queue::run(queue, WORKERS, shutdown, async |key| {
            cohort::reconcile(ctx, views, &memory.cohorts, key).await
        })
        .await;
    };
    let flavors = async {
        let (queue, shutdown) = run(&flavors);
        work_queue::run(queue, 1, shutdown, async |key| {
            finalizers::flavor(ctx, &memory.flavor_deletions, key).await
        })
        .await;
    };
    let checks = async {
        let (queue, shutdown) = run(&checks);
        work_queue::run(queue, 1, shutdown, async |key| {
            finalizers::check(ctx, &memory.check_deletions, key).await
        })
        .await;
    };
    let topologies = async {
        let (queue, shutdown) = run(&topologies);
        work_queue::run(queue, 1, shutdown, async |key| {
            finalizers::topology(ctx, &memory.topology_deletions, key).await
        })
        .await;
    };
    tokio::join!(cluster_queues, local_queues, cohorts, flavors, checks, topologies, everything);
}

/// Queues each object that its user changed, and all objects for a new leader.
fn follow<K: Resource + 'static>(store: &Store<K>, queue: Queue<Key>) -> Queue<Key> {
    let into = queue.clone();
    store.subscribe(move |change| {
        let same = match (&change.old, &change.new) {
            (Some(old), Some(new)) => {
                old.uid() == new.uid()
                    && old.meta().generation == new.meta().generation
                    && old.meta().deletion_timestamp == new.meta().deletion_timestamp
                    && old.meta().finalizers == new.meta().finalizers
            }
            _ => false,
        };
        if !same {
            into.add(change.key.clone());
        }
    });
    queue
}

async fn on_leadership(ctx: &Arc<Context>, queues: [&Queue<Key>; 6], shutdown: CancellationToken) {
    let [cluster_queues, local_queues, cohorts, flavors, checks, topologies] = queues;
    let all = || {
        ctx.stores
            .cluster_queues
            .all()
            .iter()
            .for_each(|queue| cluster_queues.add(Key::of(&**queue)));
        ctx.stores.local_queues.all().iter().for_each(|queue| local_queues.add(Key::of(&**queue)));
        ctx.stores.cohorts.all().iter().for_each(|cohort| cohorts.add(Key::of(&**cohort)));
        ctx.stores.resource_flavors.all().iter().for_each(|flavor| flavors.add(Key::of(&**flavor)));
        ctx.stores.admission_checks.all().iter().for_each(|check| checks.add(Key::of(&**check)));
        ctx.stores
            .topologies
            .all()
            .iter()
            .for_each(|topology| topologies.add(Key::of(&**topology)));
    };
    ctx.each_term(&shutdown, all).await;
}

/// The work queue's outcome of a write.
fn outcome(kind: &str, key: &Key, result: Result<(), WriteError>) -> Outcome {
    match result {
        Ok(()) | Err(WriteError::Gone | WriteError::NotLeading) => Outcome::Done,
        Err(WriteError::Conflict) => Outcome::Failed,
        Err(error) => {
            tracing::warn!(kind, %key, %error, "not updated");
            Outcome::Failed
        }
    }
}
