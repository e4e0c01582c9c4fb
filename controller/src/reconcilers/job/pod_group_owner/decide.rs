//! Decides about a pod group owner: it gets a Workload per group before the pods exist, and labels
//! each pod with its group. [`crate::reconcilers::job::group`] decides about a group's pods.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use switchyard_api::{
    conditions::{
        self,
        reasons::{events, quota_reserved},
    },
    v1beta2::{PodSet, Workload},
};
use switchyard_jobs::{
    JobKind, build_group_workload, is_equivalent, meta, owner_annotations, owner_reference,
    pod::{Pod, group_name, is_gated, is_terminated},
    serving::{Group, Serving, is_ending, is_sent},
};

use crate::reconcilers::job::{
    action::{Action, Decision, Next},
    case::{Case, key},
    create,
    decide::OWNER_UNREAD,
    edit,
    ensure::{delete_others, is_live},
    inputs::Ancestor,
};
use crate::{
    role::Role,
    workload::{
        Eviction, condition, has_reservation, is_admitted, is_copy, is_evicted, is_group_workload,
        is_on_hold, queue_name, was_dispatched,
    },
};

/// Workloads created per reconcile. Their arrival triggers the next.
const AT_ONCE: usize = 64;

/// A pod group owner with its pods.
pub(crate) struct GroupOwnerCase<'a> {
    /// The owner. `inputs.workloads` are those of its groups, and those that it owns.
    pub(crate) case: Case<'a>,
    pub(crate) serving: &'a dyn Serving,
    pub(crate) pods: &'a [Value],
    /// Whether a rolling update replaces a pod.
    pub(crate) is_outdated: &'a dyn Fn(&Value) -> bool,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct GroupOwnerPlan {
    /// About the owner and its Workloads.
    pub(crate) workloads: Decision,
    /// The desired pods, of those that change.
    pub(crate) pods: Vec<Value>,
    /// Pods to delete. Their owner replaces them.
    pub(crate) replaced: Vec<Value>,
}

/// Decides about an existing owner.
pub(crate) fn decide(scene: &GroupOwnerCase<'_>) -> GroupOwnerPlan {
    let object = scene.case.job;
    if meta::is_deleting(object) || !scene.case.inputs.managed || scene.case.kind.skips(object) {
        return GroupOwnerPlan { pods: release_ended(scene.pods), ..GroupOwnerPlan::default() };
    }
    let workloads = scene.workloads();
    // A labelled pod is charged by the group's Workload, so the Workload must be right first.
    let settled = workloads == Decision::wait();
    let (replaced, kept): (Vec<&Value>, Vec<&Value>) =
        scene.pods.iter().partition(|pod| scene.is_replaced(pod));
    GroupOwnerPlan {
        workloads,
        pods: kept.into_iter().filter_map(|pod| scene.pod(pod, settled)).collect(),
        replaced: replaced.into_iter().cloned().collect(),
    }
}

/// Releases pods that have ended or are about to.
pub(crate) fn release_ended(pods: &[Value]) -> Vec<Value> {
    pods.iter().filter(|pod| is_ending(pod)).filter_map(released).collect()
}

fn released(pod: &Value) -> Option<Value> {
    let mut wanted = pod.clone();
    Pod.release(&mut wanted).then_some(wanted)
}

impl GroupOwnerCase<'_> {
    fn pod(&self, pod: &Value, settled: bool) -> Option<Value> {
        if is_ending(pod) {
            return released(pod);
        }
        let mut wanted = pod.clone();
        (settled && self.serving.join(self.case.job, &mut wanted)).then_some(wanted)
    }

    /// Whether a pod must be replaced: it waits for quota, and a rolling update that would replace
    /// it waits for it to be ready.
    fn is_replaced(&self, pod: &Value) -> bool {
        let admitted = |group: &str| {
            let of_group = |it: &&Arc<Workload>| it.metadata.name.as_deref() == Some(group);
            self.case.inputs.workloads.iter().find(of_group).is_some_and(|it| is_admitted(it))
        };
        let waits = is_gated(pod) && !is_ending(pod) && !group_name(pod).is_some_and(admitted);
        waits && (self.is_outdated)(pod)
    }

    /// Whether pods of a group run, terminating ones included.
    fn runs(&self, group: &str) -> bool {
        let runs =
            |pod: &&Value| group_name(pod) == Some(group) && !is_gated(pod) && !is_terminated(pod);
        self.pods.iter().any(|pod| runs(&pod))
    }

    fn workloads(&self) -> Decision {
        let groups = self.serving.groups(self.case.job);
        let mut left: BTreeMap<&str, &Arc<Workload>> = self
            .case
            .inputs
            .workloads
            .iter()
            .filter_map(|workload| Some((workload.metadata.name.as_deref()?, workload)))
            .collect();
        let mut pod_sets = None;
        let mut actions = Vec::new();
        let (mut made, mut held_back) = (0, false);
        for group in &groups {
            let found = left.remove(group.name.as_str());
            let mut made_here = found.is_none() && !group.is_scaled_down && !is_sent(self.case.job);
            if made_here && self.case.inputs.ancestor == Ancestor::Unread {
                (made_here, held_back) = (false, true);
            }
            if found.is_none() && (!made_here || made == AT_ONCE) {
                continue;
            }
            // Equal for all groups.
            if pod_sets.is_none() {
                match self.case.pod_sets() {
                    Ok(sets) => pod_sets = Some(sets),
                    Err(decision) => return decision,
                }
            }
            let sets = pod_sets.as_deref().unwrap_or_default();
            let done = match found {
                Some(workload) => self.keep(group, workload, sets),
                None => self.create(group, sets.to_vec()),
            };
            match done {
                Ok(done) => actions.extend(done),
                Err(decision) => return decision,
            }
            made += usize::from(made_here);
        }
        // They are charged for pods that are still terminating.
        let is_over = |name: &str, it: &Arc<Workload>| is_group_workload(it) && !self.runs(name);
        let others: Vec<&Arc<Workload>> =
            left.into_iter().filter(|(name, it)| is_over(name, it)).map(|(_, it)| it).collect();
        actions.extend(delete_others(&others, |it| self.case.is_held_elsewhere(it)).actions);
        if held_back { Decision::retry(actions, OWNER_UNREAD) } else { Decision::act(actions) }
    }

    fn create(&self, group: &Group, pod_sets: Vec<PodSet>) -> Result<Vec<Action>, Decision> {
        let case = &self.case;
        let priority = create::priority(case, &pod_sets)?;
        let copied = case.inputs.copied;
        let workload =
            build_group_workload(case.kind, case.job, group, pod_sets, &priority, copied);
        let note = format!("Created Workload: {}", key(&workload));
        Ok(vec![
            Action::CreateWorkload(Box::new(workload)),
            Action::normal(events::CREATED_WORKLOAD, note),
        ])
    }

    /// Keeps a group's Workload in sync with the owner, with one write at a time.
    fn keep(
        &self,
        group: &Group,
        workload: &Arc<Workload>,
        pod_sets: &[PodSet],
    ) -> Result<Vec<Action>, Decision> {
        if !is_live(workload) {
            return Ok(Vec::new());
        }
        if !is_group_workload(workload) {
            let note = format!(
                "A Workload named {:?} already exists but is not a pod group workload; the pods cannot be admitted",
                group.name
            );
            return Ok(vec![Action::warning(events::WORKLOAD_NAME_CONFLICT, note)]);
        }
        if let Some(action) = self.sync_workload(group, workload, pod_sets) {
            return Ok(vec![action]);
        }
        // The hub sets these on its copies.
        if !is_copy(workload) {
            let edits = edit::admission_gates(self.case.job, workload);
            if let Some(actions) = edits.or_else(|| edit::cluster_rules(self.case.job, workload)) {
                return Ok(actions.into());
            }
            if let Some(decision) = create::priority_change(&self.case, workload, pod_sets) {
                return if decision.next == Next::OnChange {
                    Ok(decision.actions)
                } else {
                    Err(decision)
                };
            }
        }
        Ok(self.hold(group, workload))
    }

    /// Owner, queue and, without reserved quota, pods of the Workload.
    fn sync_workload(
        &self,
        group: &Group,
        workload: &Arc<Workload>,
        pod_sets: &[PodSet],
    ) -> Option<Action> {
        let (kind, object) = (self.case.kind, self.case.job);
        let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
        let disowned = !owners.iter().any(|owner| owner.uid == meta::uid(object));
        let free = !group.is_scaled_down && !has_reservation(workload) && !is_copy(workload);
        let queue = meta::queue_name(object);
        let moved = free && queue_name(workload) != queue;
        let asks_same = || {
            is_equivalent(object, pod_sets, true, workload, None)
                && self.case.has_topology_of(workload, pod_sets)
        };
        let changed = free && !asks_same();
        if group.is_scaled_down || !(disowned || moved || changed) {
            return None;
        }
        Some(Action::edit(workload, |workload| {
            if disowned {
                let owners = workload.metadata.owner_references.get_or_insert_default();
                owners.push(owner_reference(kind, object));
                let annotations = workload.metadata.annotations.get_or_insert_default();
                annotations.extend(owner_annotations(kind, object));
            }
            if moved {
                workload.spec.queue_name = Some(queue.to_owned()).filter(|queue| !queue.is_empty());
            }
            if changed {
                workload.spec.pod_sets = pod_sets.to_vec();
                workload.spec.maximum_execution_time_seconds = meta::max_exec_time_seconds(object);
            }
        }))
    }

    /// Puts the Workload of a group without pods on hold, which releases its quota, and requeues it
    /// once pods are wanted again. A dispatched one is evicted first, and its quota is released
    /// once no copy remains.
    fn hold(&self, group: &Group, workload: &Arc<Workload>) -> Vec<Action> {
        let kind = self.case.kind.id().kind;
        let (reasons, now) = (self.case.inputs.reasons, self.case.now);
        if !group.is_scaled_down {
            let ended = Action::edit_quota(workload, reasons, now, |edit| {
                edit.unreserve(quota_reserved::PENDING_EVALUATION, edit::OFF_HOLD);
                if is_kept_out(workload) {
                    edit.requeued(true, quota_reserved::PENDING_EVALUATION, edit::OFF_HOLD);
                }
            });
            let held = is_on_hold(workload) || is_kept_out(workload) && !has_reservation(workload);
            return held.then_some(ended).into_iter().collect();
        }
        if is_on_hold(workload) || !workload.spec.is_active() {
            return Vec::new();
        }
        if self.runs(&group.name) {
            // The end of the last pod triggers the next reconcile.
            return Vec::new();
        }
        let message = format!("{kind} scaled to zero; workload on hold");
        if !(self.case.inputs.role == Role::Hub
            && has_reservation(workload)
            && was_dispatched(workload))
        {
            return vec![Action::edit_quota(workload, reasons, now, |edit| {
                edit.unreserve(quota_reserved::ON_HOLD, message);
                edit.status.nominated_cluster_names.clear();
            })];
        }
        if is_evicted(workload) {
            return Vec::new();
        }
        let eviction = Eviction {
            reason: quota_reserved::ON_HOLD,
            cause: String::new(),
            message: message.clone(),
        };
        let evict = Action::edit_status(workload, now, |edit| drop(edit.evict(eviction)));
        vec![evict, Action::normal(events::STOPPED, message)]
    }
}

/// Whether it is not requeued because it was put on hold while a cluster had it.
fn is_kept_out(workload: &Workload) -> bool {
    let requeued = condition(workload, conditions::REQUEUED);
    requeued
        .is_some_and(|it| it.status == conditions::FALSE && it.reason == quota_reserved::ON_HOLD)
}
