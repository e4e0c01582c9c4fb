//! The status of queues, and the finalizers that keep what is in use.
//!
//! A queue's status is written when it says something new. A changed condition is written at once; mere figures at most
//! once a second, and less often where many queues change, so that a burst of jobs costs a few writes and a single job is
//! seen at once.

mod cluster_queue;
mod cohort;
mod finalizers;
mod local_queue;
mod pace;
mod publish;
mod usage;
mod waits;

use std::sync::Arc;

use kube::{Resource, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::{context::Context, engine::views::Views};
use switchyard_platform::{
    store::{Key, Store},
    work_queue::{self, Outcome, Queue},
    write::WriteError,
};

/// Objects of a kind looked at in parallel.
const WORKERS: usize = 8;

/// What was written and told last, by kind.
#[derive(Debug, Default)]
struct Memory {
    cluster_queues: pace::Pace,
    local_queues: pace::Pace,
    cohorts: pace::Pace,
    queue_deletions: waits::Waits,
    flavor_deletions: waits::Waits,
    check_deletions: waits::Waits,
    topology_deletions: waits::Waits,
}

/// Looks after queues, flavors, checks and Topologies until `shutdown`.
pub(crate) async fn run(ctx: Arc<Context>, views: Arc<Views>, shutdown: CancellationToken) {
    let cluster_queues = follow(&ctx.stores.cluster_queues, views.cluster_queue_changes.clone());
    let local_queues = follow(&ctx.stores.local_queues, views.local_queue_changes.clone());
    let cohorts = follow(&ctx.stores.cohorts, views.cohort_changes.clone());
    let flavors = follow(&ctx.stores.resource_flavors, Queue::default());
    let checks = follow(&ctx.stores.admission_checks, Queue::default());
    let topologies = follow(&ctx.stores.topologies, Queue::default());
    finalizers::follow_cluster_queues(&ctx, &flavors, &checks);
    finalizers::follow_flavors(&ctx, &topologies);
    let queues = [&cluster_queues, &local_queues, &cohorts, &flavors, &checks, &topologies];
    let everything = on_leadership(&ctx, queues, shutdown.clone());
    let memory = Memory::default();
    let (ctx, views, memory) = (&ctx, &views, &memory);
    let run = |queue: &Queue<Key>| (queue.clone(), shutdown.clone());
    let cluster_queues = async {
        let (queue, shutdown) = run(&cluster_queues);
        work::run(queue, WORKERS, shutdown, async |key| {
            cluster_queue::reconcile(ctx, views, memory, key).await
        })
        .await;
    };
    let local_queues = async {
        let (queue, shutdown) = run(&local_queues);
        work::run(queue, WORKERS, shutdown, async |key| {
            local_queue::reconcile(ctx, views, &memory.local_queues, key).await
        })
        .await;
    };
    let cohorts = async {
        let (queue, shutdown) = run(&cohorts);
        work::run(queue, WORKERS, shutdown, async |key| {
            cohort::reconcile(ctx, views, &memory.cohorts, key).await
        })
        .await;
    };
    let flavors = async {
        let (queue, shutdown) = run(&flavors);
        work::run(queue, 1, shutdown, async |key| {
            finalizers::flavor(ctx, &memory.flavor_deletions, key).await
        })
        .await;
    };
    let checks = async {
        let (queue, shutdown) = run(&checks);
        work::run(queue, 1, shutdown, async |key| {
            finalizers::check(ctx, &memory.check_deletions, key).await
        })
        .await;
    };
    let topologies = async {
        let (queue, shutdown) = run(&topologies);
        work::run(queue, 1, shutdown, async |key| {
            finalizers::topology(ctx, &memory.topology_deletions, key).await
        })
        .await;
    };
    tokio::join!(cluster_queues, local_queues, cohorts, flavors, checks, topologies, everything);
}

/// Queues each object that its user changed, or that a new leader has not looked at.
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

/// What a write's failure means for the work queue.
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
