//! Workloads that try several flavors at once: Kueue's `ConcurrentAdmission`, off by default.
//!
//! In a ClusterQueue with such a policy, each workload has a variant per flavor. [`plan`] decides
//! about a workload and its variants: which to create, which compete for quota, with which the
//! workload is admitted, and which may preempt. The engine queues variants like workloads.
//!
//! # Guarantees
//!
//! - A running job's quota is charged once. The workload's quota is its variant's, which releases
//!   it after the pods are gone.
//! - After the feature gate is turned off, the next leader undoes what is left of it.

mod plan;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::{Api, ResourceExt as _, api::PostParams};
use parking_lot::Mutex;
use switchyard_api::{conditions::reasons::events, names, v1beta2::Workload, variants};
use tokio_util::sync::CancellationToken;

use crate::reconcilers::concurrent_admission::plan::{VariantPlan, VariantWrite, plan};
use crate::{
    context::{Context, delete_workload, patch_metadata, patch_status},
    engine::convert::variant_policy,
    stores::Stores,
    workload::{self, ReasonDetail},
};
use switchyard_platform::write::WriteError;
use switchyard_platform::{
    api_call::with_deadline,
    store::{Change, Key},
    work_queue::{self, Outcome, Queue},
};

/// Workloads reconciled in parallel.
const WORKERS: usize = 8;

/// The variants of each workload, by its key.
#[derive(Default)]
struct VariantIndex(Mutex<BTreeMap<Key, BTreeSet<Key>>>);

impl VariantIndex {
    /// Applies a change. Returns the workload to reconcile: itself, or the parent of a variant.
    fn apply(&self, change: &Change<Workload>) -> Key {
        let Some(parent) =
            change.new.as_ref().or(change.old.as_ref()).and_then(|it| parent_key(it))
        else {
            return change.key.clone();
        };
        let mut all = self.0.lock();
        if change.new.is_some() {
            all.entry(parent.clone()).or_default().insert(change.key.clone());
        } else if let Some(variants) = all.get_mut(&parent) {
            variants.remove(&change.key);
            if variants.is_empty() {
                all.remove(&parent);
            }
        }
        parent
    }

    fn of(&self, parent: &Key) -> Vec<Key> {
        self.0.lock().get(parent).into_iter().flatten().cloned().collect()
    }
}

fn parent_key(workload: &Workload) -> Option<Key> {
    Some(Key::new(workload.metadata.namespace.as_deref()?, &variants::parent_of(workload)?.name))
}

/// The workload to reconcile: itself, or the parent of a variant.
fn reconcile_key(workload: &Workload) -> Key {
    parent_key(workload).unwrap_or_else(|| Key::of(workload))
}

/// Reconciles variants until `shutdown`.
pub(crate) async fn run(ctx: Arc<Context>, shutdown: CancellationToken) {
    let (queue, index, on) =
        (Queue::default(), VariantIndex::default(), ctx.config.enabled(variants::FEATURE_GATE));
    let index = Arc::new(index);
    let everything = || {
        let left =
            |it: &Workload| on || variants::is_parent(it) || variants::parent_of(it).is_some();
        for workload in ctx.stores.workloads.filter(left) {
            index.apply(&Change {
                key: Key::of(&*workload),
                old: None,
                new: Some(workload.clone()),
            });
            queue.add(reconcile_key(&workload));
        }
    };
    if on {
        subscribe(&ctx.stores, &queue, &index);
    } else {
        everything();
    }
    let each_term = ctx.each_term(&shutdown, everything);
    let (ctx, index) = (&ctx, &index);
    let reconcile = |key| async move { reconcile(ctx, index, on, key).await };
    tokio::join!(work_queue::run(queue.clone(), WORKERS, shutdown.clone(), reconcile), each_term);
}

fn subscribe(stores: &Stores, queue: &Queue<Key>, index: &Arc<VariantIndex>) {
    let (into, index) = (queue.clone(), index.clone());
    stores.workloads.subscribe(move |change| into.add(index.apply(change)));
    let into = queue.clone();
    variant_policy::follow(stores, move |it| into.add(reconcile_key(it)));
}

/// Reconciles one workload with its variants.
async fn reconcile(ctx: &Context, index: &VariantIndex, on: bool, key: Key) -> Outcome {
    if !ctx.leading() {
        return Outcome::Done;
    }
    let parent = ctx.stores.workloads.by_key(&key);
    let variants: Vec<_> =
        index.of(&key).iter().filter_map(|key| ctx.stores.workloads.by_key(key)).collect();
    let policy = parent
        .as_ref()
        .filter(|_| on)
        .and_then(|parent| variant_policy::policy(&ctx.stores, parent));
    // The policy is unknown until both queues exist.
    let unknown = on
        && parent
            .as_ref()
            .is_some_and(|parent| variant_policy::queue(&ctx.stores, parent).is_none());
    if unknown && !parent.as_ref().is_some_and(|parent| workload::is_finished(parent)) {
        return Outcome::Done;
    }
    let gated = ctx.config.enabled("AdmissionGatedBy");
    let VariantPlan { writes, requeue_after } = plan(
        parent.as_ref(),
        variants,
        policy.as_ref(),
        (ReasonDetail::of(&ctx.config), gated),
        ctx.clock.now(),
    );
    // With the feature gate off there are no subscriptions, so retry until nothing is left.
    let mut outcome = if on || writes.is_empty() { Outcome::Done } else { Outcome::Failed };
    for write in writes {
        match perform(ctx, parent.as_deref(), write).await {
            Ok(()) => (),
            // The change that made this stale triggers another reconcile.
            Err(WriteError::Gone | WriteError::NotLeading) => (),
            Err(WriteError::Conflict) => outcome = Outcome::Failed,
            Err(error) => {
                tracing::warn!(workload = %key, %error, "variants not updated");
                outcome = Outcome::Failed;
            }
        }
    }
    outcome.at_latest(requeue_after)
}

#[tracing::instrument(name = "variants", skip_all)]
async fn perform(
    ctx: &Context,
    parent: Option<&Workload>,
    write: VariantWrite,
) -> Result<(), WriteError> {
    match write {
        VariantWrite::Create(variant) => {
            if create(ctx, &variant).await?
                && let Some(parent) = parent
            {
                let note = format!("Variant Workload {:?} created", Key::of(&*variant).to_string());
                ctx.events.normal(parent, events::CREATED_VARIANT, note);
            }
        }
        VariantWrite::Delete(variant) => {
            delete_workload(ctx, &variant).await?;
            if let Some(parent) = parent {
                let (name, flavor) = (
                    Key::of(&*variant).to_string(),
                    variants::flavor_of(&variant).unwrap_or_default(),
                );
                let note = format!(
                    "Variant Workload {name:?} deleted; flavor {flavor:?} no longer in ClusterQueue"
                );
                ctx.events.normal(parent, events::DELETED_VARIANT, note);
            }
        }
        VariantWrite::Patch { of, patch, event } => {
            let written = patch_metadata(ctx, &of, patch, "variants").await?;
            record_event(ctx, &written, event);
        }
        VariantWrite::Status { of, status, event } => {
            if let Some(written) = patch_status(ctx, &of, &status, "variants").await? {
                record_event(ctx, &written, event);
            }
        }
    }
    Ok(())
}

fn record_event(ctx: &Context, workload: &Workload, event: Option<(&'static str, String)>) {
    if let Some((reason, note)) = event {
        ctx.events.normal(workload, reason, note);
    }
}

/// Creates a variant. False if it exists already; the watch will deliver it.
async fn create(ctx: &Context, variant: &Workload) -> Result<bool, WriteError> {
    if !ctx.leading() {
        return Err(WriteError::NotLeading);
    }
    let api: Api<Workload> =
        Api::namespaced(ctx.client.clone(), &variant.namespace().unwrap_or_default());
    let params =
        PostParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PostParams::default() };
    let created = with_deadline(api.create(&params, variant)).await;
    ctx.metrics.wrote("variants", created.is_ok());
    match created {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
        created => {
            ctx.stores.workloads.observe(created?);
            Ok(true)
        }
    }
}
