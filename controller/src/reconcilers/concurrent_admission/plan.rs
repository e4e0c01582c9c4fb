//! Decides about a workload and its variants. Pure. As Kueue's `variantReconciler`.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use switchyard_api::{
    conditions::{
        self,
        reasons::{events, evicted, quota_reserved},
    },
    v1beta2::{PreemptionGatePosition, PreemptionGateState, Workload, WorkloadStatus},
    variants::{self, FOLLOWED, PREEMPTION_GATE},
};

use crate::engine::convert::variant_policy::VariantPolicy;
use crate::workload::{
    Edit, Eviction, ReasonDetail, condition, has_reservation, is_admissible, is_admitted,
    is_evicted, is_finished,
};
use switchyard_platform::{
    clock::{since, whole_seconds},
    store::Key,
};

/// Time for a variant with an open preemption gate to get quota before the next gate opens.
const PREEMPTION_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum VariantWrite {
    Create(Box<Workload>),
    /// Its flavor or its parent is gone.
    Delete(Arc<Workload>),
    /// A merge patch of metadata and spec.
    Patch {
        of: Arc<Workload>,
        patch: Value,
        /// Reason and note of the event to record.
        event: Option<(&'static str, String)>,
    },
    Status {
        of: Arc<Workload>,
        status: Box<WorkloadStatus>,
        /// Reason and note of the event to record.
        event: Option<(&'static str, String)>,
    },
}

/// The default does nothing.
#[derive(Debug, Default, PartialEq)]
pub(super) struct VariantPlan {
    /// At most one per object.
    pub(super) writes: Vec<VariantWrite>,
    /// Reconcile again after this time at the latest.
    pub(super) requeue_after: Option<Duration>,
}

impl VariantPlan {
    fn writes(writes: Vec<VariantWrite>) -> Self {
        Self { writes, requeue_after: None }
    }
}

/// A workload with its variants, best flavor first.
struct Family<'a> {
    parent: &'a Arc<Workload>,
    variants: Vec<Arc<Workload>>,
    policy: &'a VariantPolicy,
    reasons: ReasonDetail,
    // Kueue's `AdmissionGatedBy`: annotations hold workloads back.
    gated: bool,
    now: Timestamp,
}

/// Decides about a workload that may have variants. Variants of a deleted workload are deleted.
/// `gated`: Kueue's `AdmissionGatedBy` is on.
pub(super) fn plan(
    parent: Option<&Arc<Workload>>,
    variants: Vec<Arc<Workload>>,
    policy: Option<&VariantPolicy>,
    (reasons, gated): (ReasonDetail, bool),
    now: Timestamp,
) -> VariantPlan {
    let is_own = |variant: &Arc<Workload>, parent: &Workload| {
        variants::parent_of(variant).map(|owner| &owner.uid) == parent.metadata.uid.as_ref()
    };
    let (mut own, orphans): (Vec<_>, Vec<_>) = variants
        .into_iter()
        .partition(|variant| parent.is_some_and(|parent| is_own(variant, parent)));
    let orphans: Vec<VariantWrite> = orphans.iter().filter_map(delete).collect();
    if !orphans.is_empty() {
        return VariantPlan::writes(orphans);
    }
    // A variant has no variants.
    let Some(parent) = parent.filter(|it| variants::parent_of(it).is_none()) else {
        return VariantPlan::default();
    };
    if is_finished(parent) {
        return VariantPlan::writes(
            own.iter().filter_map(|variant| finish(parent, variant, now)).collect(),
        );
    }
    if parent.metadata.deletion_timestamp.is_some() {
        return VariantPlan::default();
    }
    let Some(policy) = policy else { return VariantPlan::writes(dissolve(parent, &own)) };
    if !variants::is_parent(parent) {
        return VariantPlan::writes(vec![label(parent, Some("true"))]);
    }
    let rank =
        |variant: &Arc<Workload>| policy.rank(variants::flavor_of(variant).unwrap_or_default());
    own.sort_by_key(|variant| (rank(variant), variant.metadata.name.clone()));
    let writes = sync_variants(parent, &own, policy);
    if !writes.is_empty() {
        return VariantPlan::writes(writes);
    }
    own.retain(|variant| variant.metadata.deletion_timestamp.is_none());
    Family { parent, variants: own, policy, reasons, gated, now }.plan()
}

/// Ends a family: first the parent is queued or charged itself again, then its variants are
/// deleted.
pub(super) fn dissolve(parent: &Arc<Workload>, variants: &[Arc<Workload>]) -> Vec<VariantWrite> {
    if variants::is_parent(parent) {
        return vec![label(parent, None)];
    }
    variants.iter().filter_map(delete).collect()
}

fn label(parent: &Arc<Workload>, value: Option<&str>) -> VariantWrite {
    let patch = json!({"metadata": {"labels": {switchyard_api::names::CONCURRENT_ADMISSION_PARENT: value}}});
    VariantWrite::Patch { of: parent.clone(), patch, event: None }
}

fn delete(variant: &Arc<Workload>) -> Option<VariantWrite> {
    variant.metadata.deletion_timestamp.is_none().then(|| VariantWrite::Delete(variant.clone()))
}

fn finish(parent: &Workload, variant: &Arc<Workload>, now: Timestamp) -> Option<VariantWrite> {
    let finished = condition(parent, conditions::FINISHED).filter(|_| !is_finished(variant))?;
    let mut edit = Edit::new(variant, ReasonDetail::default(), now);
    edit.finish(&finished.reason, finished.message.clone());
    Some(status(variant, edit, None))
}

fn status(of: &Arc<Workload>, edit: Edit, event: Option<(&'static str, String)>) -> VariantWrite {
    VariantWrite::Status { of: of.clone(), status: Box::new(edit.status), event }
}

/// Creates missing variants, deletes those of other flavors, and updates each from its parent.
fn sync_variants(
    parent: &Arc<Workload>,
    variants: &[Arc<Workload>],
    policy: &VariantPolicy,
) -> Vec<VariantWrite> {
    let is_for =
        |variant: &Arc<Workload>, flavor: &String| variants::flavor_of(variant) == Some(flavor);
    let missing = policy
        .flavors
        .iter()
        .filter(|flavor| !variants.iter().any(|variant| is_for(variant, flavor)));
    let mut writes: Vec<VariantWrite> = missing
        .map(|flavor| VariantWrite::Create(Box::new(variants::make(parent, flavor))))
        .collect();
    for variant in variants {
        let known = policy.flavors.iter().any(|flavor| is_for(variant, flavor));
        writes.extend(if known { parent_changes(parent, variant) } else { delete(variant) });
    }
    writes
}

/// The parent's changes for a variant. With quota it takes over only fields that are mutable then.
fn parent_changes(parent: &Workload, variant: &Arc<Workload>) -> Option<VariantWrite> {
    if is_finished(variant) || variant.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let (wanted, has) = (&parent.spec, &variant.spec);
    let holds = has_reservation(variant);
    let mut patch = json!({});
    if wanted.queue_name != has.queue_name && !holds {
        patch["spec"]["queueName"] = json!(wanted.queue_name);
    }
    if wanted.pod_sets != has.pod_sets && !holds {
        patch["spec"]["podSets"] = json!(wanted.pod_sets);
    }
    let one_has_none = wanted.priority_class_ref.is_none() != has.priority_class_ref.is_none();
    if (&wanted.priority, &wanted.priority_class_ref) != (&has.priority, &has.priority_class_ref)
        && !(holds && one_has_none)
    {
        patch["spec"]["priority"] = json!(wanted.priority);
        patch["spec"]["priorityClassRef"] = json!(wanted.priority_class_ref);
    }
    let annotation = |of: &Workload, key: &str| {
        of.metadata.annotations.as_ref().and_then(|all| all.get(key).cloned())
    };
    for key in FOLLOWED {
        let wanted = annotation(parent, key);
        if wanted != annotation(variant, key) {
            patch["metadata"]["annotations"][key] = json!(wanted);
        }
    }
    (patch != json!({})).then(|| VariantWrite::Patch { of: variant.clone(), patch, event: None })
}

impl Family<'_> {
    fn plan(&self) -> VariantPlan {
        if let Some(writes) = self.evictions() {
            return VariantPlan::writes(writes);
        }
        let mut writes: Vec<VariantWrite> =
            self.variants.iter().filter_map(|variant| self.set_activity(variant)).collect();
        writes.extend(self.admission());
        if !writes.is_empty() {
            return VariantPlan::writes(writes);
        }
        self.open_next_gate()
    }

    /// The admitted variant. During a migration two are admitted, and the better one counts.
    fn admitted(&self) -> Option<&Arc<Workload>> {
        self.variants.iter().find(|variant| is_admitted(variant))
    }

    /// Whether the parent's job runs with this variant's quota.
    fn runs_with(&self, variant: &Workload) -> bool {
        let quota = |of: &Workload| of.status.as_ref().and_then(|status| status.admission.clone());
        has_reservation(self.parent) && is_admitted(variant) && quota(self.parent) == quota(variant)
    }

    /// Stops the parent's job before the variant releases its quota, also if the parent itself was
    /// evicted.
    fn evictions(&self) -> Option<Vec<VariantWrite>> {
        if is_evicted(self.parent)
            && let Some(variant) =
                self.variants.iter().find(|it| self.runs_with(it) && !is_evicted(it))
            && let Some(write) = self.evict_with_parent(variant)
        {
            return Some(vec![write]);
        }
        let variant = self.variants.iter().find(|it| is_evicted(it) && has_reservation(it))?;
        if self.runs_with(variant) {
            let stop = || self.evict(evicted::VARIANT_EVICTED, "Admitted variant was evicted");
            return Some((!is_evicted(self.parent)).then(stop).into_iter().collect());
        }
        let mut edit = Edit::new(variant, self.reasons, self.now);
        edit.complete_eviction();
        Some(vec![status(variant, edit, None)])
    }

    /// Passes eviction and backoff on to the variant, if the parent was evicted because its pods
    /// were not ready in time or its queue was stopped.
    fn evict_with_parent(&self, variant: &Arc<Workload>) -> Option<VariantWrite> {
        let why = condition(self.parent, conditions::EVICTED)?;
        let own = [
            evicted::PODS_READY_TIMEOUT,
            evicted::LOCAL_QUEUE_STOPPED,
            evicted::CLUSTER_QUEUE_STOPPED,
        ];
        let reason = own.into_iter().find(|own| *own == why.reason)?;
        let mut edit = Edit::new(variant, ReasonDetail::default(), self.now);
        let requeue_after = self
            .parent
            .status
            .as_ref()
            .and_then(|status| status.requeue_state.as_ref()?.requeue_at.clone());
        if let Some(requeue_after) = requeue_after {
            edit.requeue_at(requeue_after.0, false);
        }
        edit.evict(Eviction { reason, cause: String::new(), message: why.message.clone() });
        Some(status(variant, edit, None))
    }

    fn evict(&self, reason: &'static str, message: &str) -> VariantWrite {
        let mut edit = Edit::new(self.parent, ReasonDetail::default(), self.now);
        edit.evict(Eviction { reason, cause: String::new(), message: message.to_owned() });
        status(self.parent, edit, None)
    }

    /// Activates or deactivates a variant. Before the first admission all are active, then only
    /// those that the workload may move to.
    fn set_activity(&self, variant: &Arc<Workload>) -> Option<VariantWrite> {
        let (active, why) = self.wanted_activity(variant)?;
        if variant.spec.is_active() == active {
            return None;
        }
        let (reason, done) = if active {
            (events::ACTIVATED_VARIANT, "activated")
        } else {
            (events::DEACTIVATED_VARIANT, "deactivated")
        };
        let event = Some((reason, format!("Variant Workload {done} due to {why}")));
        Some(VariantWrite::Patch {
            of: variant.clone(),
            patch: json!({"spec": {"active": active}}),
            event,
        })
    }

    fn wanted_activity(&self, variant: &Arc<Workload>) -> Option<(bool, String)> {
        if !self.parent.spec.is_active() {
            return Some((
                false,
                format!("Parent Workload {:?} not active", Key::of(&**self.parent).to_string()),
            ));
        }
        let Some(admitted) = self.admitted() else {
            return Some((true, "no other Variant being admitted".to_owned()));
        };
        if Arc::ptr_eq(variant, admitted) {
            return None;
        }
        let name = format!("{:?}", Key::of(&**admitted).to_string());
        if self.policy.retains {
            return Some((
                false,
                format!("RetainFirstAdmission: another Variant {name} is admitted"),
            ));
        }
        let rank = |of: &Workload| self.policy.rank(variants::flavor_of(of).unwrap_or_default());
        let last = self.policy.last.as_ref();
        if let Some(last) = last.filter(|last| rank(variant) > self.policy.rank(last)) {
            return Some((
                false,
                format!(
                    "being below lastAcceptableFlavor: {last:?} and another Variant admitted {name}"
                ),
            ));
        }
        if rank(variant) > rank(admitted) {
            return Some((false, format!("being lower priority than admitted Variant {name}")));
        }
        let above = format!("being higher priority than admitted Variant {name}");
        Some((
            true,
            last.map_or(above, |last| {
                format!(
                    "being at least lastAcceptableFlavor: {last:?} and higher priority than admitted Variant {name}"
                )
            }),
        ))
    }

    /// Admits the parent with its variant.
    fn admission(&self) -> Option<VariantWrite> {
        if is_admitted(self.parent) {
            return match self.variants.iter().find(|variant| self.runs_with(variant)) {
                Some(variant) => self.copy_pod_state(variant),
                None if is_evicted(self.parent) => None,
                None => Some(self.evict(evicted::CONCURRENT_ADMISSION, "No variant is running")),
            };
        }
        let variant = self.admitted().filter(|it| !is_evicted(it) && it.spec.is_active())?;
        if !self.parent.spec.is_active() || has_reservation(self.parent) {
            return None;
        }
        let admission = variant.status.as_ref()?.admission.clone()?;
        let name = variant.metadata.name.as_deref().unwrap_or_default();
        let mut edit = Edit::new(self.parent, ReasonDetail::default(), self.now);
        edit.status.admission_checks.clear();
        edit.reserve(admission);
        edit.set(conditions::ADMITTED, true, "Admitted", format!("The variant {name} is admitted"));
        Some(status(self.parent, edit, None))
    }

    /// Copies the pods' state from the parent to the variant that is charged for them.
    fn copy_pod_state(&self, variant: &Arc<Workload>) -> Option<VariantWrite> {
        let mut edit = Edit::new(variant, ReasonDetail::default(), self.now);
        if let Some(ready) = condition(self.parent, conditions::PODS_READY) {
            edit.set(
                conditions::PODS_READY,
                ready.status == conditions::TRUE,
                &ready.reason,
                ready.message.clone(),
            );
        }
        if let Some(parent) = &self.parent.status {
            edit.status.reclaimable_pods.clone_from(&parent.reclaimable_pods);
        }
        (variant.status.as_ref() != Some(&edit.status)).then(|| status(variant, edit, None))
    }

    /// Opens preemption gates one by one, best flavor first, [`PREEMPTION_TIMEOUT`] apart.
    fn open_next_gate(&self) -> VariantPlan {
        let waiting: Vec<_> =
            self.variants.iter().filter(|variant| is_admissible(variant, self.gated)).collect();
        let Some(next) = next_to_preempt(&waiting) else { return VariantPlan::default() };
        let opened = waiting.iter().filter_map(|variant| opened(variant)).max();
        let left = opened
            .and_then(|at| PREEMPTION_TIMEOUT.checked_sub(since(self.now, at)))
            .unwrap_or_default();
        if !left.is_zero() {
            return VariantPlan { writes: Vec::new(), requeue_after: Some(left) };
        }
        let mut edit = Edit::new(next, ReasonDetail::default(), self.now);
        open(&mut edit.status, self.now);
        let key = Key::of(&**next);
        let event = (
            events::PREEMPTION_UNGATED_VARIANT,
            format!("Opened preemption gate for variant workload {:?}", key.to_string()),
        );
        VariantPlan {
            writes: vec![status(next, edit, Some(event))],
            requeue_after: Some(PREEMPTION_TIMEOUT),
        }
    }
}

/// Whether the engine has not evaluated a variant since it was last queued.
fn is_unevaluated(variant: &Workload) -> bool {
    condition(variant, conditions::QUOTA_RESERVED).is_none_or(|said| {
        said.status == conditions::FALSE
            && (said.reason == quota_reserved::PENDING_EVALUATION
                || said.message == quota_reserved::TO_BE_EVALUATED)
    })
}

/// The best variant that waits for its preemption gate. `None` while a better one is unevaluated.
fn next_to_preempt<'a>(waiting: &[&'a Arc<Workload>]) -> Option<&'a Arc<Workload>> {
    for variant in waiting.iter().filter(|variant| opened(variant).is_none()) {
        if condition(variant, conditions::BLOCKED_ON_PREEMPTION_GATES)
            .is_some_and(|it| it.status == conditions::TRUE)
        {
            return Some(variant);
        }
        if is_unevaluated(variant) {
            return None;
        }
    }
    None
}

/// When a variant's preemption gate was opened.
fn opened(variant: &Workload) -> Option<Timestamp> {
    let gates = variant
        .status
        .as_ref()
        .map(|status| status.preemption_gates.as_slice())
        .unwrap_or_default();
    let gate = gates.iter().find(|gate| gate.name == PREEMPTION_GATE)?;
    (gate.position == PreemptionGatePosition::Open).then_some(gate.last_transition_time.0)
}

fn open(status: &mut WorkloadStatus, now: Timestamp) {
    status.preemption_gates.retain(|gate| gate.name != PREEMPTION_GATE);
    status.preemption_gates.push(PreemptionGateState {
        name: PREEMPTION_GATE.to_owned(),
        position: PreemptionGatePosition::Open,
        last_transition_time: Time(whole_seconds(now)),
    });
}
