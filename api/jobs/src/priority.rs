//! The priority of a job's Workload.

use serde_json::Value;

use super::{JobKind, meta};
use switchyard_api::v1beta2::{PodSet, PriorityClassRef};

/// A priority and the class that it comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Priority {
    /// The class, if there is one.
    pub class: Option<PriorityClassRef>,
    /// Workloads of higher priority come first.
    pub value: i32,
}

impl Priority {
    /// Priority from a WorkloadPriorityClass.
    #[must_use]
    pub fn of_workload_class(name: &str, value: i32) -> Self {
        Self { class: Some(PriorityClassRef::workload(name)), value }
    }

    /// Priority from a PriorityClass of pods.
    #[must_use]
    pub fn of_pod_class(name: &str, value: i32) -> Self {
        Self { class: Some(PriorityClassRef::pod(name)), value }
    }
}

/// A class that a job names does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PriorityError {
    /// The label names a missing WorkloadPriorityClass.
    #[error("WorkloadPriorityClass {0:?} not found")]
    WorkloadClass(String),
    /// The pod template names a missing PriorityClass.
    #[error("PriorityClass {0:?} not found")]
    PodClass(String),
}

/// Looks up priority classes.
pub trait PriorityLookup {
    /// Value of a WorkloadPriorityClass.
    fn workload_class(&self, name: &str) -> Option<i32>;
    /// Value of a PriorityClass.
    fn pod_class(&self, name: &str) -> Option<i32>;
    /// Name and value of the global default PriorityClass. If there are several, the lowest.
    fn default_pod_class(&self) -> Option<(String, i32)>;
}

/// The priority of the label's WorkloadPriorityClass, else of the PriorityClass that the kind or
/// the first such pod set names, else of the global default, else 0. As Kueue's `ExtractPriority`
/// in `pkg/controller/jobframework/reconciler.go`.
///
/// # Errors
/// If the named class does not exist.
pub fn resolve_priority(
    kind: &dyn JobKind,
    job: &Value,
    pod_sets: &[PodSet],
    lookup: &dyn PriorityLookup,
) -> Result<Priority, PriorityError> {
    let label = meta::workload_priority_class(job);
    if !label.is_empty() {
        let value = lookup
            .workload_class(label)
            .ok_or_else(|| PriorityError::WorkloadClass(label.to_owned()))?;
        return Ok(Priority::of_workload_class(label, value));
    }
    let of_template =
        |p: &PodSet| meta::str_at(&p.template.value(), "/spec/priorityClassName").to_owned();
    let named = kind
        .priority_class(job)
        .or_else(|| pod_sets.iter().map(of_template).find(|name| !name.is_empty()))
        .filter(|name| !name.is_empty());
    match named {
        Some(name) => match lookup.pod_class(&name) {
            Some(value) => Ok(Priority::of_pod_class(&name, value)),
            None => Err(PriorityError::PodClass(name)),
        },
        None => Ok(lookup
            .default_pod_class()
            .map(|(name, value)| Priority::of_pod_class(&name, value))
            .unwrap_or_default()),
    }
}
