//! Kinds with a suspend field and pod templates in their spec: most kinds of CRDs.
//!
//! A kind of this sort lists its templates ([`Slot`]) and interprets its status. All such kinds
//! share the code here for start, stop, restore, remote copies and status mirroring.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::meta::{generation, last_transition, object_mut, str_at};
use super::mirror::conditions;
use super::remote::remote_object;
use super::template::{clean_template, quantities_as_text};
use super::topology::{PodRanks, TopologySource};
use super::{
    Dependency, Finished, JobError, JobKind, KindId, PodSetInfo, RemoteMeta, Stop,
    restore_template, suspend_and_restore,
};
use switchyard_api::v1beta2::{PodSet, ReclaimablePod};
use switchyard_syntax::field::{FieldError, Path};

/// Path of a field, as keys of nested objects.
pub(super) type Keys = &'static [&'static str];

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
pub(super) trait PlainKind: Send + Sync + 'static {
    /// The identity of the kind.
    fn id(&self) -> KindId;

    /// The field that suspends.
    fn suspend_at(&self) -> Keys {
        &["spec", "suspend"]
    }

    /// The field that names the controller of a job. `None` if the kind has none. On a hub, only
    /// the suspension keeps such a job from running.
    fn managed_by_at(&self) -> Option<Keys> {
        Some(&["spec", "managedBy"])
    }

    /// The value of that field for the kind's own controller.
    fn own_controller(&self) -> &'static str;

    /// See [`JobKind::followed_fields`].
    fn followed_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// See [`JobKind::dependencies`].
    fn dependencies(&self) -> &'static [KindId] {
        &[]
    }

    /// See [`JobKind::depends_on`].
    fn depends_on(&self, job: &Value) -> Option<Dependency> {
        let _ = job;
        None
    }

    /// See [`JobKind::attach`].
    fn attach(&self, job: &mut Value, found: &Value) {
        let _ = (job, found);
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
        own_template(job, slot, self.id())
    }

    /// Path of the metadata of a slot's template, for errors.
    fn metadata_path(&self, slot: &Slot) -> Path {
        Path::new(&dotted(&slot.template)).child("metadata")
    }

    /// See [`TopologySource::hint`].
    fn topology_hint(&self) -> &'static str {
        ""
    }

    /// See [`JobKind::apply_topology_defaults`].
    fn apply_topology_defaults(&self, job: &mut Value) {
        let _ = job;
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
    fn stop(&self, job: &Value) -> Option<Stop> {
        let _ = job;
        None
    }

    /// See [`JobKind::skips`].
    fn skips(&self, job: &Value) -> bool {
        let _ = job;
        false
    }

    /// See [`JobKind::elastic_templates`].
    fn elastic_templates(&self, job: &Value) -> Vec<String> {
        let _ = job;
        Vec::new()
    }

    /// See [`JobKind::size_generation`].
    fn size_generation(&self, job: &Value) -> String {
        generation(job).to_string()
    }

    /// See [`JobKind::resizes`].
    fn resizes(&self) -> bool {
        false
    }

    /// See [`JobKind::resize`].
    fn resize(&self, job: &mut Value, pod_sets: &[PodSet]) {
        let _ = (job, pod_sets);
    }

    /// See [`JobKind::take_size`].
    fn take_size(&self, job: &mut Value, other: &Value) {
        let _ = (job, other);
    }

    /// See [`JobKind::autoscales`].
    fn autoscales(&self, job: &Value) -> Option<Path> {
        let _ = job;
        None
    }

    /// See [`JobKind::is_active`].
    fn is_active(&self, job: &Value) -> bool;

    /// See [`JobKind::cleans_up`].
    fn cleans_up(&self, job: &Value) -> bool {
        let _ = job;
        false
    }

    /// See [`JobKind::on_hold`].
    fn on_hold(&self, job: &Value) -> bool {
        let _ = job;
        false
    }

    /// See [`JobKind::finished`].
    fn finished(&self, job: &Value) -> Option<Finished>;

    /// See [`JobKind::ended_at`].
    fn ended_at(&self, job: &Value) -> Option<Timestamp> {
        last_transition(job)
    }

    /// See [`JobKind::pods_ready`].
    fn pods_ready(&self, job: &Value) -> bool;

    /// See [`JobKind::reclaimable`].
    fn reclaimable(&self, job: &Value) -> Vec<ReclaimablePod> {
        let _ = job;
        Vec::new()
    }

    /// See [`JobKind::priority_class`].
    fn priority_class(&self, job: &Value) -> Option<String> {
        let _ = job;
        None
    }

    /// Errors of a job.
    fn validate(&self, job: &Value) -> Vec<FieldError> {
        let _ = job;
        Vec::new()
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

/// An error about the value at a JSON pointer.
pub(super) fn malformed(pointer: &str, problem: impl Into<String>) -> JobError {
    JobError::Malformed { field: dotted(pointer), problem: problem.into() }
}

/// Converts `/spec/groups/0/template` to `spec.groups[0].template`.
fn dotted(pointer: &str) -> String {
    let mut text = String::with_capacity(pointer.len());
    for part in pointer.split('/').filter(|part| !part.is_empty()) {
        if part.bytes().all(|byte| byte.is_ascii_digit()) {
            text.push_str(&format!("[{part}]"));
        } else {
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(part);
        }
    }
    text
}

/// The integer at a JSON pointer, or `default` if it is absent.
pub(super) fn count_at(job: &Value, pointer: &str, default: i64) -> i64 {
    job.pointer(pointer).and_then(Value::as_i64).unwrap_or(default)
}

/// The list at a JSON pointer, or an empty list if it is absent.
pub(super) fn list_at<'a>(job: &'a Value, pointer: &str) -> &'a [Value] {
    job.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The first of the job's true conditions with one of these types.
pub(super) fn true_condition<'a>(job: &'a Value, types: &[&str]) -> Option<&'a Value> {
    conditions(job)
        .find(|it| types.contains(&str_at(it, "/type")) && str_at(it, "/status") == "True")
}

/// The end of a job that reports it by one of two conditions.
pub(super) fn finished_by(job: &Value, success: &str, failure: &str) -> Option<Finished> {
    let condition = true_condition(job, &[success, failure])?;
    let (type_, message) = (str_at(condition, "/type"), str_at(condition, "/message"));
    Some(Finished { success: type_ == success, message: message.to_owned() })
}

/// The pod template in the job, without metadata other than labels and annotations.
pub(super) fn own_template(job: &Value, slot: &Slot, id: KindId) -> Result<Value, JobError> {
    let template = job
        .pointer(&slot.template)
        .filter(|template| template.get("spec").is_some_and(Value::is_object));
    let template = template.ok_or_else(|| {
        malformed(
            &format!("{}/spec", slot.template),
            format!("is missing; {} needs a pod template here", id.kind),
        )
    })?;
    let mut template = clean_template(template, &[]);
    quantities_as_text(&mut template);
    Ok(template)
}

fn pod_set(kind: &impl PlainKind, job: &Value, slot: &Slot) -> Result<PodSet, JobError> {
    let template = kind.template(job, slot)?;
    let count = i32::try_from(slot.count).ok().filter(|count| *count >= 0);
    let count = count.ok_or_else(|| {
        malformed(
            &slot.replicas,
            format!("gives {} pods; must be between 0 and {}", slot.count, i32::MAX),
        )
    })?;
    Ok(PodSet {
        name: slot.name.to_lowercase(),
        template: template.into(),
        count,
        ..PodSet::default()
    })
}

/// Sets or removes a field.
pub(super) fn set(job: &mut Value, keys: Keys, value: Option<Value>) {
    let Some((last, parents)) = keys.split_last() else { return };
    let Some(map) = object_mut(job, parents) else { return };
    match value {
        Some(value) => map.insert((*last).to_owned(), value),
        None => map.remove(*last),
    };
}

fn pointer(keys: Keys) -> String {
    keys.iter().fold(String::new(), |pointer, key| format!("{pointer}/{key}"))
}

fn status(job: &Value) -> Map<String, Value> {
    job.get("status").and_then(Value::as_object).cloned().unwrap_or_default()
}

impl<K: PlainKind> JobKind for K {
    fn id(&self) -> KindId {
        PlainKind::id(self)
    }

    fn dependencies(&self) -> &'static [KindId] {
        PlainKind::dependencies(self)
    }

    fn followed_fields(&self) -> &'static [&'static str] {
        PlainKind::followed_fields(self)
    }

    fn depends_on(&self, job: &Value) -> Option<Dependency> {
        PlainKind::depends_on(self, job)
    }

    fn attach(&self, job: &mut Value, found: &Value) {
        PlainKind::attach(self, job, found);
    }

    fn stop(&self, job: &Value, pod_sets: Option<&[PodSet]>) -> Stop {
        PlainKind::stop(self, job).unwrap_or_else(|| suspend_and_restore(self, job, pod_sets))
    }

    fn pod_sets(&self, job: &Value) -> Result<Vec<PodSet>, JobError> {
        let mut job = job.clone();
        self.complete(&mut job);
        let (slots, id) = (self.slots(&job)?, PlainKind::id(self));
        if slots.is_empty() {
            return Err(malformed(
                "/spec",
                format!("has no pod template; {} needs at least one", id.kind),
            ));
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

    fn apply_topology_defaults(&self, job: &mut Value) {
        PlainKind::apply_topology_defaults(self, job);
    }

    fn skips(&self, job: &Value) -> bool {
        PlainKind::skips(self, job)
    }

    fn is_suspended(&self, job: &Value) -> bool {
        job.pointer(&pointer(self.suspend_at())).and_then(Value::as_bool).unwrap_or(false)
    }

    fn suspend(&self, job: &mut Value) {
        set(job, self.suspend_at(), Some(Value::from(true)));
    }

    fn is_active(&self, job: &Value) -> bool {
        PlainKind::is_active(self, job)
    }

    fn cleans_up(&self, job: &Value) -> bool {
        PlainKind::cleans_up(self, job)
    }

    fn on_hold(&self, job: &Value) -> bool {
        PlainKind::on_hold(self, job)
    }

    fn run(&self, job: &mut Value, infos: &[PodSetInfo]) -> Result<(), JobError> {
        self.complete(job);
        let slots = self.slots(job)?;
        if slots.len() != infos.len() {
            return Err(JobError::PodSetCount { want: slots.len(), got: infos.len() });
        }
        self.merge(job, &slots, infos)?;
        set(job, self.suspend_at(), Some(Value::from(false)));
        Ok(())
    }

    fn restore(&self, job: &mut Value, pod_sets: &[PodSet]) -> bool {
        // With another number of slots than at admission, the original values cannot be assigned.
        let slots = self.slots(job).ok().filter(|slots| slots.len() == pod_sets.len());
        slots.is_some_and(|slots| self.unmerge(job, &slots, pod_sets))
    }

    fn elastic_templates(&self, job: &Value) -> Vec<String> {
        PlainKind::elastic_templates(self, job)
    }

    fn size_generation(&self, job: &Value) -> String {
        PlainKind::size_generation(self, job)
    }

    fn resizes(&self) -> bool {
        PlainKind::resizes(self)
    }

    fn resize(&self, job: &mut Value, pod_sets: &[PodSet]) {
        PlainKind::resize(self, job, pod_sets);
    }

    fn take_size(&self, job: &mut Value, other: &Value) {
        PlainKind::take_size(self, job, other);
    }

    fn autoscales(&self, job: &Value) -> Option<Path> {
        PlainKind::autoscales(self, job)
    }

    fn finished(&self, job: &Value) -> Option<Finished> {
        PlainKind::finished(self, job)
    }

    fn ended_at(&self, job: &Value) -> Option<Timestamp> {
        PlainKind::ended_at(self, job)
    }

    fn pods_ready(&self, job: &Value) -> bool {
        PlainKind::pods_ready(self, job)
    }

    fn reclaimable(&self, job: &Value) -> Vec<ReclaimablePod> {
        PlainKind::reclaimable(self, job)
    }

    fn priority_class(&self, job: &Value) -> Option<String> {
        PlainKind::priority_class(self, job)
    }

    fn managed_by<'a>(&self, job: &'a Value) -> Option<&'a str> {
        Some(str_at(job, &pointer(self.managed_by_at()?))).filter(|manager| !manager.is_empty())
    }

    fn set_managed_by(&self, job: &mut Value, manager: Option<&str>) {
        if let Some(keys) = self.managed_by_at() {
            set(job, keys, manager.map(Value::from));
        }
    }

    fn can_default_managed_by(&self, job: &Value) -> bool {
        self.managed_by_at().is_some()
            && self.managed_by(job).is_none_or(|manager| manager == self.own_controller())
    }

    fn names_manager(&self) -> bool {
        self.managed_by_at().is_some()
    }

    fn validate(&self, job: &Value) -> Vec<FieldError> {
        PlainKind::validate(self, job)
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        let mut errors = PlainKind::validate(self, new);
        errors.extend(self.validate_change(old, new));
        errors
    }

    fn remote_copy(&self, job: &Value, remote: RemoteMeta<'_>) -> Value {
        let spec = job.get("spec").cloned().unwrap_or_else(|| json!({}));
        let mut copy = remote_object(PlainKind::id(self), job, spec, remote);
        if let Some(spec) = object_mut(&mut copy, &["spec"]) {
            self.trim_copy(spec);
        }
        JobKind::suspend(self, &mut copy);
        self.set_managed_by(&mut copy, None);
        copy
    }

    /// The copy's status unchanged. A finished job never changes again.
    fn mirror_status(&self, local: &Value, remote: &Value) -> Option<Value> {
        let wanted = status(remote);
        let finished = PlainKind::finished(self, local).is_some();
        (!finished && !wanted.is_empty() && wanted != status(local))
            .then_some(Value::Object(wanted))
    }

    fn reset_status(&self, local: &Value, _now: Timestamp) -> Option<Value> {
        let before = status(local);
        if PlainKind::finished(self, local).is_some() || before.is_empty() {
            return None;
        }
        let mut wanted = before.clone();
        wanted.retain(|field, _| self.required_status().contains(&field.as_str()));
        (wanted != before).then_some(Value::Object(wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_read_as_users_write_fields() {
        assert_eq!(dotted("/spec/groups/0/template/spec"), "spec.groups[0].template.spec");
        assert_eq!(dotted("/spec"), "spec");
    }
}
