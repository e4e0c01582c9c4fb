//! Kinds with a suspend field and pod templates in their spec: most kinds of CRDs.
//!
//! A kind of this sort lists its templates ([`Slot`]) and says how its status is read
//! ([`KindProfile`]). All of them share the code here for start, stop, restore, remote copies and
//! status mirroring.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::meta::{self, Keys, object_mut, set_value, value_at};
use super::remote::remote_object;
use super::template::own_template;
use super::topology::{PodRanks, TopologySource};
use super::{
    JobError, JobKind, KindProfile, Managed, PodSetInfo, Remote, RemoteMeta, Stop, error, number,
    restore_template, status, suspend_and_restore,
};
use switchyard_api::v1beta2::PodSet;
use switchyard_syntax::field::{FieldError, Path};

/// One pod set of a job, and its place in the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slot {
    /// Name of the pod set. [`JobKind::pod_sets`] converts it to lower case.
    pub(super) name: String,
    /// JSON pointer of the pod template.
    pub(super) template: String,
    /// JSON pointer of the field with the count, for errors.
    pub(super) replicas: String,
    /// Number of pods.
    pub(super) count: i64,
    /// Labels that number its pods.
    pub(super) ranks: PodRanks,
}

/// A kind with a suspend field and pod templates in its spec.
pub(super) trait PlainKind: KindProfile {
    /// The field that suspends.
    fn suspend_at(&self) -> Keys {
        &["spec", "suspend"]
    }

    /// The field that names the controller of a job. `None` if the kind has none. On a hub, only
    /// the suspension keeps such a job from running.
    fn managed_by_at(&self) -> Option<Keys> {
        Some(meta::MANAGED_BY)
    }

    /// The value of that field for the kind's own controller.
    fn own_controller(&self) -> &'static str;

    /// See [`Remote::propagated_fields`].
    fn propagated(&self) -> &'static [&'static str] {
        &[]
    }

    /// The pod sets, in Kueue's order.
    ///
    /// # Errors
    /// [`JobError::Malformed`] if the object has a wrong shape.
    fn slots(&self, job: &Value) -> Result<Vec<Slot>, JobError>;

    /// The pod template of a slot, for the Workload.
    ///
    /// # Errors
    /// [`JobError::Malformed`] if there is none.
    fn template(&self, job: &Value, slot: &Slot) -> Result<Value, JobError> {
        own_template(job, &slot.template, self.id())
    }

    /// Path of the metadata of a slot's template, for errors.
    fn metadata_path(&self, slot: &Slot) -> Path {
        Path::new(&error::dotted(&slot.template)).child("metadata")
    }

    /// See [`TopologySource::hint`].
    fn topology_hint(&self) -> &'static str {
        ""
    }

    /// Writes out templates that the kind's controller would generate.
    fn complete(&self, job: &mut Value) {
        let _ = job;
    }

    /// Adds to the pod sets what the kind's controller adds to the pods.
    fn account(&self, job: &Value, pod_sets: &mut [PodSet]) {
        let _ = (job, pod_sets);
    }

    /// Merges the admission's infos into the job, one for each slot.
    ///
    /// # Errors
    /// [`JobError::PodSetUpdateConflict`].
    fn merge(&self, job: &mut Value, slots: &[Slot], infos: &[PodSetInfo]) -> Result<(), JobError> {
        for (slot, info) in slots.iter().zip(infos) {
            if let Some(template) = job.pointer_mut(&slot.template) {
                info.merge_into(template)?;
            }
        }
        Ok(())
    }

    /// Reverts [`Self::merge`]. Returns true if the job changed.
    fn unmerge(&self, job: &mut Value, slots: &[Slot], pod_sets: &[PodSet]) -> bool {
        let mut changed = false;
        for (slot, pod_set) in slots.iter().zip(pod_sets) {
            if let Some(template) = job.pointer_mut(&slot.template) {
                changed |= restore_template(template, &pod_set.template.value(), &[]);
            }
        }
        changed
    }

    /// The next step of a stop, for kinds with several steps. `None`: suspend and restore in one
    /// step.
    fn staged_stop(&self, job: &Value) -> Option<Stop> {
        let _ = job;
        None
    }

    /// Errors of an update that do not depend on the new state alone.
    fn validate_change(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        let _ = (old, new);
        Vec::new()
    }

    /// Removes fields from the spec of a remote copy that would do harm in the worker cluster.
    fn trim_copy(&self, spec: &mut Map<String, Value>) {
        let _ = spec;
    }

    /// Status fields that the CRD requires, so that a reset cannot remove them.
    fn required_status(&self) -> &'static [&'static str] {
        &[]
    }
}

fn pod_set(kind: &impl PlainKind, job: &Value, slot: &Slot) -> Result<PodSet, JobError> {
    let template = kind.template(job, slot)?;
    let count = number::pods(slot.count, &slot.replicas)?;
    Ok(PodSet {
        name: slot.name.to_lowercase(),
        template: template.into(),
        count,
        ..PodSet::default()
    })
}

impl<K: PlainKind> JobKind for K {
    fn managed(&self) -> Option<&dyn Managed> {
        self.managed_by_at().is_some().then_some(self)
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }

    fn pod_sets(&self, job: &Value) -> Result<Vec<PodSet>, JobError> {
        let mut job = job.clone();
        self.complete(&mut job);
        let slots = self.slots(&job)?;
        if slots.is_empty() {
            let problem = format!("has no pod template; {} needs at least one", self.id().kind);
            return Err(JobError::malformed("/spec", problem));
        }
        let mut pod_sets =
            slots.iter().map(|slot| pod_set(self, &job, slot)).collect::<Result<Vec<_>, _>>()?;
        self.account(&job, &mut pod_sets);
        Ok(pod_sets)
    }

    fn topology_source(&self, job: &Value, index: usize, pod_set: &PodSet) -> TopologySource {
        let slots = self.slots(job).unwrap_or_default();
        let Some(slot) = slots.get(index) else { return TopologySource::default() };
        let hint = self.topology_hint();
        TopologySource {
            hint,
            ..TopologySource::of(pod_set, self.metadata_path(slot), slot.ranks.clone())
        }
    }

    fn is_suspended(&self, job: &Value) -> bool {
        value_at(job, self.suspend_at()).and_then(Value::as_bool).unwrap_or(false)
    }

    fn suspend(&self, job: &mut Value) {
        set_value(job, self.suspend_at(), Some(Value::from(true)));
    }

    fn run(&self, job: &mut Value, infos: &[PodSetInfo]) -> Result<(), JobError> {
        self.complete(job);
        let slots = self.slots(job)?;
        if slots.len() != infos.len() {
            return Err(JobError::PodSetCount { want: slots.len(), got: infos.len() });
        }
        self.merge(job, &slots, infos)?;
        set_value(job, self.suspend_at(), Some(Value::from(false)));
        Ok(())
    }

    fn restore(&self, job: &mut Value, pod_sets: &[PodSet]) -> bool {
        // With another number of slots than at admission, the original values cannot be assigned.
        let slots = self.slots(job).ok().filter(|slots| slots.len() == pod_sets.len());
        slots.is_some_and(|slots| self.unmerge(job, &slots, pod_sets))
    }

    fn stop(&self, job: &Value, pod_sets: Option<&[PodSet]>) -> Stop {
        self.staged_stop(job).unwrap_or_else(|| suspend_and_restore(self, job, pod_sets))
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        errors.extend(self.validate_change(old, new));
        errors
    }
}

impl<K: PlainKind> Managed for K {
    fn manager_field(&self) -> Keys {
        self.managed_by_at().unwrap_or(meta::MANAGED_BY)
    }

    fn can_default_managed_by(&self, job: &Value) -> bool {
        self.managed_by_at().is_some()
            && self.managed_by(job).is_none_or(|manager| manager == self.own_controller())
    }
}

impl<K: PlainKind> Remote for K {
    fn propagated_fields(&self) -> &'static [&'static str] {
        self.propagated()
    }

    fn remote_copy(&self, job: &Value, remote: RemoteMeta<'_>) -> Value {
        let mut copy = remote_object(self.id(), job, remote);
        if let Some(spec) = object_mut(&mut copy, &["spec"]) {
            self.trim_copy(spec);
        }
        self.suspend(&mut copy);
        self.set_managed_by(&mut copy, None);
        copy
    }

    /// The copy's status unchanged. A finished job never changes again.
    fn mirror_status(&self, local: &Value, remote: &Value) -> Option<Value> {
        if self.finished(local).is_some() {
            return None;
        }
        status::copied(local, remote)
    }

    fn reset_status(&self, local: &Value, _now: Timestamp) -> Option<Value> {
        let before = status::fields(local);
        if self.finished(local).is_some() || before.is_empty() {
            return None;
        }
        let mut wanted = before.clone();
        wanted.retain(|field, _| self.required_status().contains(&field.as_str()));
        (wanted != before).then_some(Value::Object(wanted))
    }
}
