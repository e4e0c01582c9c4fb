//! Which workload is meant.

use std::sync::Arc;

use anyhow::bail;
use kube::ResourceExt as _;
use switchyard_api::v1beta2::Workload;

use crate::status::row;

/// The workload of this name, or of the job of this name; `KIND/NAME` is a job of that kind. Of several workloads of one
/// job the newest.
///
/// # Errors
/// When there is none: with close names.
pub(super) fn find(workloads: &[Arc<Workload>], namespace: &str, wanted: &str) -> anyhow::Result<Arc<Workload>> {
    let (kind, name) = match wanted.split_once('/') {
        None => (None, wanted),
        Some((kind, name)) if kind.eq_ignore_ascii_case("workload") || kind.eq_ignore_ascii_case("wl") => {
            (Some(""), name)
        }
        Some((kind, name)) => (Some(kind), name),
    };
    let of_job = |workload: &&Arc<Workload>| {
        let row = row(workload);
        row.job == name && kind.is_none_or(|kind| is_kind(kind, &row.kind))
    };
    let itself = |workload: &&Arc<Workload>| workload.name_any() == name && kind.is_none_or(str::is_empty);
    let newest = workloads.iter().filter(of_job).max_by_key(|workload| workload.creation_timestamp());
    if let Some(workload) = workloads.iter().find(itself).or(newest) {
        return Ok(workload.clone());
    }
    let begins = name.get(..name.len().min(3)).unwrap_or(name);
    let jobs = workloads.iter().map(|workload| row(workload).job);
    let near: Vec<String> = jobs.filter(|job| job.starts_with(begins)).take(5).collect();
    match near.as_slice() {
        [] => bail!(
            "no workload or queued job \"{wanted}\" in namespace {namespace}; is it in another namespace (-n), or without \
             the label kueue.x-k8s.io/queue-name?"
        ),
        near => {
            bail!("no workload or queued job \"{wanted}\" in namespace {namespace}; did you mean {}?", near.join(", "))
        }
    }
}

/// `job`, `jobs`, `Job` and `job.batch` are all the kind Job.
fn is_kind(given: &str, kind: &str) -> bool {
    let given = given.split('.').next().unwrap_or(given);
    given.eq_ignore_ascii_case(kind) || given.strip_suffix('s').is_some_and(|one| one.eq_ignore_ascii_case(kind))
}
