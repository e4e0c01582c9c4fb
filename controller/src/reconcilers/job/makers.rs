//! The look at what makes groups of pods: gathers what [`super::maker`] decides by, and has it done.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;
use switchyard_jobs::{
    JobKind, kinds, meta,
    pod::Pod,
    serving::{Serving, is_outdated, stateful_set_of},
};

use super::{
    Ancestor, Decision, Facts, Gates, Prebuilt, Reconciler,
    action::Action,
    asks_for_owners,
    case::Case,
    index::JobKey,
    lookup,
    maker::{self, Plan, Scene},
    owners,
    perform::Target,
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

/// Where StatefulSets are: they stand between a LeaderWorkerSet and its pods.
const STATEFUL_SET: (&str, &str) = ("apps", "StatefulSet");

impl Reconciler {
    /// Looks at what made a pod, or what stands between the two, when that has changed.
    pub(super) fn part_changed(&self, kind: &str, change: &Change<Object>) {
        let is_pod = kind == Pod.id().kind;
        if !is_pod && kind != STATEFUL_SET.1 {
            return;
        }
        let maker_of = |part: &Arc<Object>| self.maker_of(&change.key, &part.value());
        let (before, after) =
            (change.old.as_ref().and_then(maker_of), change.new.as_ref().and_then(maker_of));
        if is_pod {
            self.index.part(&change.key, before.as_ref(), after.as_ref());
        }
        for maker in [before, after].into_iter().flatten().collect::<BTreeSet<_>>() {
            self.queue.add(maker);
        }
    }

    fn maker_of(&self, key: &Key, part: &Value) -> Option<JobKey> {
        kinds().iter().find_map(|kind| {
            let name = kind.serving()?.maker_of(part)?;
            self.ctx.stores.job(kind.id().group, kind.id().kind)?;
            Some(JobKey::new(*kind, Key::new(&key.namespace, name)))
        })
    }

    pub(super) async fn look_at_maker(
        &self,
        key: &JobKey,
        kind: &'static dyn JobKind,
        serving: &'static dyn Serving,
    ) -> Outcome {
        let Some(makers) = self.ctx.stores.job(key.group, key.kind) else { return Outcome::Done };
        let Some(pods) = self.ctx.stores.job(Pod.id().group, Pod.id().kind) else {
            return Outcome::Done;
        };
        let parts = self.index.parts(key);
        let parts = parts
            .iter()
            .filter_map(|part| Some(Arc::unwrap_or_clone(pods.store.by_key(part)?.value())));
        let parts: Vec<Value> = parts.collect();
        let maker = makers.store.by_key(&key.key);
        let plan = match maker.as_deref() {
            Some(maker) => {
                let maker = maker.value();
                let ruled = self.is_maker_ruled(key, kind, &maker).await;
                let maker = lookup::as_named(&self.ctx.stores, serving, &maker);
                self.decide_maker((key, kind, serving), &maker, ruled, &parts)
            }
            None => Plan { pods: maker::let_ended_go(&parts), ..Plan::default() },
        };
        let target = Target { key, jobs: makers, kind, job: maker.as_deref() };
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

    fn is_maker_managed(&self, maker: &Value) -> bool {
        let queued =
            !meta::queue_name(maker).is_empty() || self.ctx.config.manage_jobs_without_queue_name;
        queued
            && lookup::is_managed_namespace(
                &self.ctx.stores,
                &self.managed_namespaces,
                meta::namespace(maker),
            )
    }

    /// Whether a job of ours rules what makes pods, where that matters; none: nobody can tell at the moment.
    async fn is_maker_ruled(
        &self,
        key: &JobKey,
        kind: &dyn JobKind,
        maker: &Value,
    ) -> Option<bool> {
        if !self.is_maker_managed(maker) || !asks_for_owners(kind, maker, true) {
            return Some(false);
        }
        match owners::is_ruled(&self.ctx, maker).await {
            Ok(ruled) => Some(ruled),
            Err(error) => {
                tracing::warn!(job = ?key, %error, "could not ask for the owners of what makes pods");
                None
            }
        }
    }

    fn decide_maker(
        &self,
        (key, kind, serving): (&JobKey, &'static dyn JobKind, &'static dyn Serving),
        maker: &Value,
        ruled: Option<bool>,
        pods: &[Value],
    ) -> Plan {
        let (ctx, namespace) = (&self.ctx, meta::namespace(maker));
        let mut names: BTreeSet<Key> = self.index.served(key).into_iter().collect();
        names.extend(serving.groups(maker).iter().map(|group| Key::new(namespace, &group.name)));
        let facts = Facts {
            elastic: false,
            reclaims: false,
            releases_fast: false,
            role: ctx.role,
            reasons: ReasonDetail::of(&ctx.config),
            managed: self.is_maker_managed(maker) && ruled != Some(true),
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
        // Where its pods only wait, no update has to be helped along.
        let elsewhere = ctx.role == Role::Hub
            && (lookup::multi_kueue_check(&ctx.stores, namespace, meta::queue_name(maker))
                .is_some()
                || facts.workloads.iter().any(|workload| was_dispatched(workload)));
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
        let case = Case { kind, job: maker, facts: &facts, now: ctx.clock.now() };
        maker::decide(&Scene { case, serving, pods, is_outdated: &outdated })
    }
}
