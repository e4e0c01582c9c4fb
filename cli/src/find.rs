//! Finds the workload that a user means.

use std::borrow::Borrow;

use anyhow::bail;
use kube::ResourceExt as _;
use switchyard_api::{names, v1beta2::Workload};

use crate::job_row::row;

/// Whether another workload of the same object decides where this one runs.
pub(crate) fn follows(workload: &Workload) -> bool {
    workload.annotations().get(names::COMPONENT_WORKLOAD_INDEX).is_some_and(|index| index != "0")
}

/// Whether the workload, or its job, is what was typed: `NAME`, `KIND/NAME` or `workload/NAME`.
pub(crate) fn is_meant(workload: &Workload, wanted: &str) -> bool {
    is_workload(workload, wanted) || is_of_job(workload, wanted)
}

fn is_workload(workload: &Workload, wanted: &str) -> bool {
    let (kind, name) = split(wanted);
    workload.name_any() == name && kind.is_none_or(str::is_empty)
}

fn is_of_job(workload: &Workload, wanted: &str) -> bool {
    let (kind, name) = split(wanted);
    let row = row(workload);
    row.job == name && kind.is_none_or(|kind| is_kind(kind, &row.kind))
}

/// The kind, which is empty for a Workload, and the name.
fn split(wanted: &str) -> (Option<&str>, &str) {
    match wanted.split_once('/') {
        None => (None, wanted),
        Some((kind, name))
            if kind.eq_ignore_ascii_case("workload") || kind.eq_ignore_ascii_case("wl") =>
        {
            (Some(""), name)
        }
        Some((kind, name)) => (Some(kind), name),
    }
}

/// The workload with this name, or of the job with this name; `KIND/NAME` is a job of that kind. If
/// a job has several, the first replica's, or else the newest.
///
/// # Errors
/// If there is none; the message names similar ones.
pub(crate) fn find<'a, W: Borrow<Workload>>(
    workloads: &'a [W],
    namespace: &str,
    wanted: &str,
) -> anyhow::Result<&'a W> {
    let of_job = |workload: &&W| is_of_job((*workload).borrow(), wanted);
    let itself = |workload: &&W| is_workload((*workload).borrow(), wanted);
    let rank = |workload: &&W| {
        let workload: &Workload = (*workload).borrow();
        (!follows(workload), workload.creation_timestamp())
    };
    let newest = workloads.iter().filter(of_job).max_by_key(rank);
    if let Some(workload) = workloads.iter().find(itself).or(newest) {
        return Ok(workload);
    }
    let (_, name) = split(wanted);
    let begins = name.get(..name.len().min(3)).unwrap_or(name);
    let jobs = workloads.iter().map(|workload| row(workload.borrow()).job);
    let near: Vec<String> = jobs.filter(|job| job.starts_with(begins)).take(5).collect();
    match near.as_slice() {
        [] => bail!(
            "no workload or queued job \"{wanted}\" in namespace {namespace}; is it in another namespace (-n), or without \
             the label kueue.x-k8s.io/queue-name? Of a job that has the label, `kubectl describe` shows events that say \
             what it lacks."
        ),
        near => {
            bail!(
                "no workload or queued job \"{wanted}\" in namespace {namespace}; did you mean {}?",
                near.join(", ")
            )
        }
    }
}

/// A cluster's name, also as `multikueuecluster/NAME`, which `get clusters -o name` prints.
pub(crate) fn cluster(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        None => Ok(text.to_owned()),
        Some((kind, name)) if is_kind_of(kind, &["multikueuecluster", "cluster"]) => {
            Ok(name.to_owned())
        }
        Some((kind, name)) => Err(format!(
            "\"{kind}\" is no kind of cluster; name {name} or multikueuecluster/{name}"
        )),
    }
}

/// Whether the kind that was typed is one of these.
pub(crate) fn is_kind_of(given: &str, kinds: &[&str]) -> bool {
    kinds.iter().any(|kind| is_kind(given, kind))
}

/// Accepts `job`, `jobs`, `Job` and `job.batch` for the kind Job.
fn is_kind(given: &str, kind: &str) -> bool {
    let given = given.split('.').next().unwrap_or(given);
    given.eq_ignore_ascii_case(kind)
        || given.strip_suffix('s').is_some_and(|one| one.eq_ignore_ascii_case(kind))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(name: &str, job: &str, created: &str) -> Workload {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": "u", "controller": true});
        let object = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": name, "namespace": "team", "creationTimestamp": created, "ownerReferences": [owner]},
            "spec": {"podSets": []},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn workload_is_found_by_own_and_job_name() {
        let all = [workload("job-train-1a2b3", "train", "2026-11-21T10:00:00Z")];
        for wanted in [
            "train",
            "job-train-1a2b3",
            "job/train",
            "jobs/train",
            "Job.batch/train",
            "workload/job-train-1a2b3",
        ] {
            assert!(find(&all, "team", wanted).is_ok(), "{wanted}");
        }
    }

    #[test]
    fn cluster_is_named_as_get_prints_it() {
        for text in [
            "east",
            "multikueuecluster/east",
            "multikueueclusters/east",
            "MultiKueueCluster.kueue.x-k8s.io/east",
            "cluster/east",
        ] {
            assert_eq!(cluster(text).as_deref(), Ok("east"), "{text}");
        }
        assert!(cluster("job/east").unwrap_err().contains("no kind of cluster"));
    }

    #[test]
    fn newest_workload_of_a_job_is_found() {
        let all = [
            ("a", "2026-11-21T10:00:00Z"),
            ("b", "2026-11-21T12:00:00Z"),
            ("c", "2026-11-21T11:00:00Z"),
        ]
        .map(|(name, created)| workload(name, "train", created));
        assert_eq!(find(&all, "team", "train").unwrap().name_any(), "b");
        assert_eq!(find(&all, "team", "a").unwrap().name_any(), "a");
    }

    #[test]
    fn first_replica_is_found() {
        let mut all = [("a", "2026-11-21T10:00:00Z"), ("b", "2026-11-21T12:00:00Z")]
            .map(|(name, created)| workload(name, "llm", created));
        for (index, workload) in ["0", "1"].into_iter().zip(&mut all) {
            let annotations = workload.metadata.annotations.get_or_insert_default();
            annotations.insert("kueue.x-k8s.io/component-workload-index".into(), index.into());
        }
        assert_eq!(find(&all, "team", "llm").unwrap().name_any(), "a");
        assert!(follows(find(&all, "team", "b").unwrap()));
    }

    #[test]
    fn missing_workload_error_suggests_names_or_causes() {
        let all = [workload("job-train-1a2b3", "train", "2026-11-21T10:00:00Z")];
        let refused = |wanted| find(&all, "team", wanted).unwrap_err().to_string();
        assert_eq!(
            refused("trail"),
            "no workload or queued job \"trail\" in namespace team; did you mean train?"
        );
        assert!(refused("jobset/train").contains("did you mean train?"));
        assert_eq!(
            refused("zzz"),
            "no workload or queued job \"zzz\" in namespace team; is it in another namespace (-n), or without the label \
             kueue.x-k8s.io/queue-name? Of a job that has the label, `kubectl describe` shows events that say what it lacks."
        );
    }
}
