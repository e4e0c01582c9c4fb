//! Creates a job's workload, and replaces its spec when the job has changed.

use std::sync::Arc;

use switchyard_api::{
    conditions::reasons::events,
    v1beta2::{PodSet, PriorityClassKind, Workload},
};
use switchyard_jobs::{
    Priority, PriorityError, build_workload, elastic, mark_as_copy, meta, resolve_priority,
};

use super::{
    action::{Action, Decision},
    case::{Case, key},
};
use crate::workload::{has_reservation, is_copy, is_evicted};

pub(super) fn create(case: &Case<'_>) -> Decision {
    let pod_sets = match case.pod_sets() {
        Ok(pod_sets) => pod_sets,
        Err(decision) => return decision,
    };
    match build(case, pod_sets) {
        Ok(mut workload) => {
            if case.is_elastic() {
                elastic::mark_slice(
                    case.kind,
                    case.job,
                    &mut workload,
                    None,
                    &case.inputs.workloads,
                );
            }
            created(workload)
        }
        Err(decision) => decision,
    }
}

/// Creates the larger workload of a growing job. It will replace `holder`.
pub(super) fn slice(case: &Case<'_>, holder: &Workload, pod_sets: &[PodSet]) -> Decision {
    match build(case, elastic::grown(&holder.spec.pod_sets, pod_sets)) {
        Ok(mut workload) => {
            if is_copy(holder) {
                // The hub's marks apply to both.
                mark_as_copy(holder, &mut workload);
                workload.spec.priority = holder.spec.priority;
                workload.spec.priority_class_ref.clone_from(&holder.spec.priority_class_ref);
            }
            elastic::mark_slice(
                case.kind,
                case.job,
                &mut workload,
                Some(holder),
                &case.inputs.workloads,
            );
            created(workload)
        }
        Err(decision) => decision,
    }
}

fn created(workload: Workload) -> Decision {
    let note = format!("Created Workload: {}", key(&workload));
    Decision::act([
        Action::CreateWorkload(Box::new(workload)),
        Action::normal(events::CREATED_WORKLOAD, note),
    ])
}

/// Replaces the spec of a workload without quota with the job's.
pub(super) fn update_to_match(
    case: &Case<'_>,
    workload: &Arc<Workload>,
    pod_sets: Vec<PodSet>,
) -> Decision {
    let wanted = match build(case, pod_sets) {
        Ok(wanted) => wanted,
        Err(decision) => return decision,
    };
    let note = format!("Updated not matching Workload for suspended job: {}", key(workload));
    let update = Action::edit(workload, |workload| {
        let active = workload.spec.active;
        workload.spec = wanted.spec;
        workload.spec.active = active;
    });
    Decision::act([update, Action::normal(events::UPDATED_WORKLOAD, note)])
}

/// Applies a change of the job's WorkloadPriorityClass. A priority from the pods' class stays.
/// While quota is reserved a class can be exchanged but not added or removed. Ended and stopping
/// jobs are left alone.
pub(super) fn priority_change(
    case: &Case<'_>,
    workload: &Arc<Workload>,
    pod_sets: &[PodSet],
) -> Option<Decision> {
    let class = workload.spec.priority_class_ref.as_ref();
    match class {
        None if has_reservation(workload) => return None,
        Some(class) if class.kind != PriorityClassKind::WorkloadPriorityClass => return None,
        _ => {}
    }
    let named = meta::workload_priority_class(case.job);
    let ends = is_evicted(workload) || case.kind.finished(case.job).is_some();
    if has_reservation(workload) && (named.is_empty() || ends) {
        return None;
    }
    if class.map(|class| class.name.as_str()).unwrap_or_default() == named {
        return None;
    }
    let priority = match priority(case, pod_sets) {
        Ok(priority) => priority,
        Err(decision) => return Some(decision),
    };
    if workload.spec.priority_class_ref == priority.class
        && workload.spec.priority == Some(priority.value)
    {
        return None;
    }
    let note = format!("Updated workload priority class: {}", key(workload));
    let update = Action::edit(workload, |workload| {
        workload.spec.priority_class_ref = priority.class;
        workload.spec.priority = Some(priority.value);
    });
    Some(Decision::act([update, Action::normal(events::UPDATED_WORKLOAD, note)]))
}

fn build(case: &Case<'_>, pod_sets: Vec<PodSet>) -> Result<Workload, Decision> {
    let priority = priority(case, &pod_sets)?;
    Ok(build_workload(case.kind, case.job, pod_sets, &priority, case.inputs.copied))
}

pub(super) fn priority(case: &Case<'_>, pod_sets: &[PodSet]) -> Result<Priority, Decision> {
    resolve_priority(case.kind, case.job, pod_sets, case.inputs.priorities).map_err(|error| {
        let actions = match &error {
            PriorityError::WorkloadClass(_) => {
                vec![Action::warning(events::WORKLOAD_PRIORITY_CLASS_NOT_FOUND, error.to_string())]
            }
            PriorityError::PodClass(_) => {
                vec![Action::warning(events::ERR_WORKLOAD_COMPOSE, error.to_string())]
            }
        };
        Decision::retry(actions, error.to_string())
    })
}
