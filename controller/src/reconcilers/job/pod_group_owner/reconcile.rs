//! Reconciles pod group owners: gathers the inputs of [`super::decide`] and performs its plan.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;
use switchyard_jobs::{
    Grouped as _, JobKind, KindProfile as _, kinds, meta,
    pod::Pod,
    serving::{Serving, is_outdated, stateful_set_of},
};

use crate::reconcilers::job::{
    Ancestor, Decision, Gates, JobInputs, Prebuilt, Reconciler,
    action::Action,
    asks_for_owners,
    case::Case,
    index::JobKey,
    lookup, owners,
    perform::Target,
    pod_group_owner::decide::{self, GroupOwnerCase, GroupOwnerPlan},
};
use crate::{
    role::Role,
    workload::{ReasonDetail, was_dispatched},
};
use switchyard_platform::{
    object::Object,
    store::{Change, Key},
    work_queue::Outcome,
};

/// StatefulSets are between a LeaderWorkerSet and its pods.
const STATEFUL_SET: (&str, &str) = ("apps", "StatefulSet");

impl Reconciler {
    /// Queues the owner of a changed pod, or of the StatefulSet between both.
    pub(crate) fn part_changed(&self, kind: &str, change: &Change<Object>) {
        let is_pod = kind == Pod.id().kind;
        if !is_pod && kind != STATEFUL_SET.1 {
            return;
        }
        let owner_of = |part: &Arc<Object>| self.owner_of_part(&change.key, &part.value());
        let (before, after) =
            (change.old.as_ref().and_then(owner_of), change.new.as_ref().and_then(owner_of));
        if is_pod {
            self.index.part(&change.key, before.as_ref(), after.as_ref());
        }
        for group_owner in [before, after].into_iter().flatten().collect::<BTreeSet<_>>() {
            self.queue.add(group_owner);
        }
    }

    fn owner_of_part(&self, key: &Key, part: &Value) -> Option<JobKey> {
        kinds().iter().find_map(|kind| {
            let name = kind.serving()?.owner_of(part)?;
            self.ctx.stores.job(kind.id().group, kind.id().kind)?;
            Some(JobKey::new(*kind, Key::new(&key.namespace, name)))
        })
    }

    pub(crate) async fn reconcile_group_owner(
        &self,
        key: &JobKey,
        kind: &'static dyn JobKind,
        serving: &'static dyn Serving,
    ) -> Outcome {
        let Some(group_owners) = self.ctx.stores.job(key.group, key.kind) else {
            return Outcome::Done;
        };
        let Some(pods) = self.ctx.stores.job(Pod.id().group, Pod.id().kind) else {
            return Outcome::Done;
        };
        let parts = self.index.parts(key);
        let parts = parts
            .iter()
            .filter_map(|part| Some(Arc::unwrap_or_clone(pods.store.by_key(part)?.value())));
        let parts: Vec<Value> = parts.collect();
        let group_owner = group_owners.store.by_key(&key.key);
        let plan = match group_owner.as_deref() {
            Some(group_owner) => {
                let group_owner = group_owner.value();
                let ruled = self.is_group_owner_ruled(key, kind, &group_owner).await;
                let group_owner = lookup::with_older_name(&self.ctx.stores, serving, &group_owner);
                self.decide_group_owner((key, kind, serving), &group_owner, ruled, &parts)
            }
            None => {
                GroupOwnerPlan { pods: decide::release_ended(&parts), ..GroupOwnerPlan::default() }
            }
        };
        let target = Target { key, jobs: group_owners, kind, job: group_owner.as_deref() };
        let first = self.act(&target, plan.workloads).await;
        let mut wanted = Decision::default();
        if !plan.replaced.is_empty() {
            wanted.actions.push(Action::Terminate { members: plan.replaced, why: None });
        }
        if !plan.pods.is_empty() {
            wanted.actions.push(Action::UpdateJob(Box::new(Pod.compose(plan.pods))));
        }
        if wanted.actions.is_empty() {
            return first;
        }
        let Ok(now) = Object::new(Pod.compose(parts)) else { return first };
        let target = Target { key, jobs: pods, kind: &Pod, job: Some(&now) };
        match (first, self.act(&target, wanted).await) {
            (Outcome::Done, second) => second,
            (first, _) => first,
        }
    }

    fn is_group_owner_managed(&self, group_owner: &Value) -> bool {
        let queued = !meta::queue_name(group_owner).is_empty()
            || self.ctx.config.manage_jobs_without_queue_name;
        queued
            && lookup::is_managed_namespace(
                &self.ctx.stores,
                &self.managed_namespaces,
                meta::namespace(group_owner),
            )
    }

    /// Whether a managed job rules the owner, if that matters. `None` if that cannot be read now.
    async fn is_group_owner_ruled(
        &self,
        key: &JobKey,
        kind: &dyn JobKind,
        group_owner: &Value,
    ) -> Option<bool> {
        if !self.is_group_owner_managed(group_owner) || !asks_for_owners(kind, group_owner, true) {
            return Some(false);
        }
        match owners::is_ruled(&self.ctx, group_owner).await {
            Ok(ruled) => Some(ruled),
            Err(error) => {
                tracing::warn!(job = ?key, %error, "could not ask for the owners of what makes pods");
                None
            }
        }
    }

    fn decide_group_owner(
        &self,
        (key, kind, serving): (&JobKey, &'static dyn JobKind, &'static dyn Serving),
        group_owner: &Value,
        ruled: Option<bool>,
        pods: &[Value],
    ) -> GroupOwnerPlan {
        let (ctx, namespace) = (&self.ctx, meta::namespace(group_owner));
        let mut names: BTreeSet<Key> = self.index.served(key).into_iter().collect();
        names.extend(
            serving.groups(group_owner).iter().map(|group| Key::new(namespace, &group.name)),
        );
        let inputs = JobInputs {
            elastic: false,
            reclaims: false,
            releases_fast: false,
            role: ctx.role,
            reasons: ReasonDetail::of(&ctx.config),
            managed: self.is_group_owner_managed(group_owner) && ruled != Some(true),
            ancestor: if ruled.is_none() { Ancestor::Unread } else { Ancestor::None },
            defers_end: false,
            workloads: names.iter().filter_map(|name| ctx.stores.workloads.by_key(name)).collect(),
            prebuilt: Prebuilt::NotNamed,
            multi_kueue_check: None,
            below_active: &|| false,
            awaited: &|_| false,
            exceeded: &|_| None,
            flavor: &|_| None,
            priorities: &*ctx.stores,
            copied: self.copied(),
            pods_ready: None,
            keep_deactivated: None,
            gates: Gates::of(&ctx.config),
        };
        // Where its pods only wait, a rolling update needs no help.
        let elsewhere = ctx.role == Role::Hub
            && (ctx.dispatching_check(namespace, meta::queue_name(group_owner)).is_some()
                || inputs.workloads.iter().any(|workload| was_dispatched(workload)));
        let outdated = |pod: &Value| {
            if elsewhere {
                return false;
            }
            let set = stateful_set_of(pod).and_then(|name| {
                let (group, kind) = STATEFUL_SET;
                ctx.stores.watched(group, kind)?.store.get(namespace, &name)
            });
            set.is_some_and(|set| is_outdated(&set.value(), pod))
        };
        let case = Case { kind, job: group_owner, inputs: &inputs, now: ctx.clock.now() };
        decide::decide(&GroupOwnerCase { case, serving, pods, is_outdated: &outdated })
    }
}
