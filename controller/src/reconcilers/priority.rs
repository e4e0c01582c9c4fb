//! Copies a changed WorkloadPriorityClass value to the workloads of the class, queued or admitted.
//!
//! A finished Workload keeps its priority. So does a hub's copy, whose priority is the hub's, and a
//! variant, which follows its workload.

use std::sync::Arc;

use futures::StreamExt;
use kube::ResourceExt;
use serde_json::json;
use switchyard_api::{
    v1beta2::{PriorityClassKind, Workload},
    variants,
};
use tokio_util::sync::CancellationToken;

use crate::{
    context::{Context, patch_metadata},
    stores::Stores,
    workload,
};
use switchyard_platform::write::WriteError;
use switchyard_platform::{
    store::{Change, Key},
    work_queue::{self, Outcome, Queue},
};

/// Classes reconciled in parallel.
const WORKERS: usize = 2;
/// Writes for one class in parallel.
const WRITES: usize = 16;

/// Reconciles classes until `shutdown`.
pub(crate) async fn run(ctx: Arc<Context>, shutdown: CancellationToken) {
    let queue = Queue::default();
    subscribe(&ctx.stores, &queue);
    let everything = || {
        let classes = ctx.stores.workload_priority_classes.all();
        classes.iter().for_each(|class| queue.add(Key::of(&**class)));
    };
    let each_term = ctx.each_term(&shutdown, everything);
    let ctx = &ctx;
    let reconcile = |key| async move { reconcile(ctx, key).await };
    tokio::join!(work_queue::run(queue.clone(), WORKERS, shutdown.clone(), reconcile), each_term);
}

fn subscribe(stores: &Stores, queue: &Queue<Key>) {
    let into = queue.clone();
    stores.workload_priority_classes.subscribe(move |change| {
        let value = |class: &Option<Arc<_>>| class.as_ref().map(|class: &Arc<_>| value_of(class));
        if change.new.is_some() && value(&change.old) != value(&change.new) {
            into.add(change.key.clone());
        }
    });
    let (into, classes) = (queue.clone(), stores.workload_priority_classes.clone());
    stores.workloads.subscribe(move |change| {
        let Some(class) = newly_named(change).and_then(|name| classes.get("", name)) else {
            return;
        };
        if change.new.as_ref().is_some_and(|it| is_stale(it, &class.name_any(), value_of(&class))) {
            into.add(Key::of(&*class));
        }
    });
}

/// The class that a job's Workload newly names. The job's reconcile may have read the class before
/// its value changed. A priority that a user writes later, or in their own Workload, is kept.
fn newly_named(change: &Change<Workload>) -> Option<&str> {
    let new = change.new.as_deref().filter(|new| !new.owner_references().is_empty())?;
    let before = change.old.as_deref().filter(|old| old.metadata.uid == new.metadata.uid);
    class_of(new).filter(|name| before.and_then(class_of) != Some(name))
}

fn class_of(workload: &Workload) -> Option<&str> {
    let class = workload.spec.priority_class_ref.as_ref();
    let class = class.filter(|class| class.kind == PriorityClassKind::WorkloadPriorityClass)?;
    Some(&class.name)
}

fn value_of(class: &switchyard_api::v1beta2::WorkloadPriorityClass) -> i32 {
    class.spec.value
}

async fn reconcile(ctx: &Context, key: Key) -> Outcome {
    let Some(class) = ctx.stores.workload_priority_classes.by_key(&key).filter(|_| ctx.leading())
    else {
        return Outcome::Done;
    };
    let value = value_of(&class);
    let stale = ctx.stores.workloads.filter(|workload| is_stale(workload, &key.name, value));
    let written = futures::stream::iter(stale).map(async |workload| {
        let written = patch_metadata(ctx, &workload, json!({"spec": {"priority": value}}), "priority").await;
        match written {
            Ok(_) | Err(WriteError::Gone | WriteError::NotLeading) => true,
            Err(WriteError::Conflict) => false,
            Err(error) => {
                let workload = Key::of(&*workload);
                tracing::warn!(%workload, class = class.name_any(), %error, "priority not taken over");
                false
            }
        }
    });
    let all = written.buffer_unordered(WRITES).fold(true, async |all, one| all && one).await;
    if all { Outcome::Done } else { Outcome::Failed }
}

fn is_stale(workload: &Workload, class: &str, value: i32) -> bool {
    let names = class_of(workload) == Some(class);
    let followed = workload::is_sent(workload) || variants::parent_of(workload).is_some();
    names && !followed && workload.spec.priority != Some(value) && !workload::is_finished(workload)
}

#[cfg(test)]
mod tests {
    use switchyard_api::v1beta2::{PriorityClassGroup, PriorityClassRef, WorkloadPriorityClass};

    use super::*;
    use crate::fixtures::{self, WorkloadExt};

    fn of_class(kind: PriorityClassKind, name: &str) -> Workload {
        fixtures::workload("a").edit(|workload| {
            let group = PriorityClassGroup::Kueue;
            workload.spec.priority_class_ref =
                Some(PriorityClassRef { group, kind, name: name.into() });
            workload.spec.priority = Some(10);
        })
    }

    fn copied(metadata: serde_json::Value) -> Workload {
        of_class(PriorityClassKind::WorkloadPriorityClass, "high").edit(|workload| {
            workload.metadata = serde_json::from_value(metadata).unwrap();
        })
    }

    #[rstest::rstest]
    #[case::queued(of_class(PriorityClassKind::WorkloadPriorityClass, "high"), true)]
    #[case::admitted(of_class(PriorityClassKind::WorkloadPriorityClass, "high").reserved("cq").admitted(), true)]
    #[case::finished(of_class(PriorityClassKind::WorkloadPriorityClass, "high").condition("Finished", true, "", ""), false)]
    #[case::other_class(of_class(PriorityClassKind::WorkloadPriorityClass, "low"), false)]
    #[case::kubernetes_class_of_that_name(
        of_class(PriorityClassKind::PriorityClass, "high"),
        false
    )]
    #[case::no_class(fixtures::workload("a"), false)]
    #[case::copy_of_a_hub(copied(json!({"annotations": {"switchyard.dev/workload-uid": "u"}})), false)]
    #[case::copy_of_a_kueue_hub(copied(json!({"labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue"}})), false)]
    fn workloads_that_follow_a_new_class_value(#[case] workload: Workload, #[case] expected: bool) {
        assert_eq!(is_stale(&workload, "high", 100), expected);
        assert!(!is_stale(&workload, "high", 10), "it has that value");
    }

    fn of_job(class: &str) -> Workload {
        of_class(PriorityClassKind::WorkloadPriorityClass, class)
    }

    fn of_user(class: &str) -> Workload {
        of_job(class).edit(|workload| workload.metadata.owner_references = None)
    }

    fn with_priority(workload: Workload, priority: i32) -> Workload {
        workload.edit(|workload| workload.spec.priority = Some(priority))
    }

    #[rstest::rstest]
    #[case::former_value(None, of_job("high"), true)]
    #[case::same_value(None, with_priority(of_job("high"), 100), false)]
    #[case::unknown_class(None, of_job("gone"), false)]
    #[case::written_by_a_user(None, of_user("high"), false)]
    #[case::other_class_before(Some(of_job("low")), of_job("high"), true)]
    #[case::priority_of_a_user(Some(with_priority(of_job("high"), 100)), of_job("high"), false)]
    #[tokio::test]
    async fn workload_with_a_former_value_queues_its_class(
        #[case] before: Option<Workload>,
        #[case] after: Workload,
        #[case] queued: bool,
    ) {
        let (stores, queue) = (Stores::default(), Queue::default());
        let mut class = WorkloadPriorityClass::default();
        class.metadata.name = Some("high".into());
        class.spec.value = 100;
        stores.workload_priority_classes.insert(class);
        before.into_iter().for_each(|before| stores.workloads.insert(before));
        subscribe(&stores, &queue);
        fixtures::drain(&queue).await;
        stores.workloads.insert(after);
        assert_eq!(!fixtures::drain(&queue).await.is_empty(), queued);
    }
}
