//! Finds the topmost managed job above a job.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;
use switchyard_api::v1beta2::Workload;
use switchyard_jobs::{
    JobKind,
    meta::{self, Controller},
};

use super::slices;
use crate::workload::{is_admitted, is_finished};
use switchyard_platform::object::Object;

/// Bound of owners followed upwards. Kueue has the same.
pub(super) const MAX_ANCESTORS: usize = 10;

#[derive(Clone)]
pub(super) enum Owner {
    /// A job of an enabled kind.
    Job(&'static dyn JobKind, Arc<Object>),
    /// An owner in between: a ReplicaSet, or a job of a known kind that is not enabled.
    Between(Arc<Object>),
    /// Deleted, or of an unknown kind.
    None,
    /// Not in the caches: it must be read from the API server.
    Unread,
}

/// Where the way up from a job ended.
#[derive(Clone)]
pub(crate) enum TopmostJob {
    /// No managed job owns it.
    None,
    /// The topmost managed job.
    Job(&'static dyn JobKind, Arc<Object>),
    /// None within [`MAX_ANCESTORS`].
    TooDeep,
    /// The owners form a cycle.
    Cyclic,
    /// This owner must be read first.
    Unread(Controller),
}

/// Follows a job's controllers as long as `find` knows them, and returns the last job that
/// `counts`. A job that its kind skips never counts, because it gets no workload.
pub(super) fn top(
    job: &Value,
    find: impl Fn(&Controller) -> Owner,
    counts: impl Fn(&Value) -> bool,
) -> TopmostJob {
    let mut found = TopmostJob::None;
    let mut passed = BTreeSet::from([meta::uid(job).to_owned()]);
    let mut owner = meta::controller_of(job);
    while let Some(reference) = owner {
        let (kind, parent) = match find(&reference) {
            Owner::Job(kind, parent) => (Some(kind), parent),
            Owner::Between(parent) => (None, parent),
            Owner::None => break,
            Owner::Unread => return TopmostJob::Unread(reference),
        };
        let value = parent.value();
        if meta::uid(&value) != reference.uid {
            break;
        }
        if passed.len() > MAX_ANCESTORS {
            return TopmostJob::TooDeep;
        }
        if !passed.insert(reference.uid) {
            return TopmostJob::Cyclic;
        }
        owner = meta::controller_of(&value);
        if let Some(kind) = kind.filter(|kind| !kind.skips(&value) && counts(&value)) {
            found = TopmostJob::Job(kind, parent);
        }
    }
    found
}

/// Whether one of a job's workloads lets the job's children run. A finished one is still admitted
/// but has released its quota.
pub(super) fn lets_run<'a>(
    kind: &dyn JobKind,
    job: &Value,
    workloads: impl IntoIterator<Item = &'a Arc<Workload>>,
) -> bool {
    let runs = |workload: &Workload| {
        is_admitted(workload) || slices::elastic_keeps_running(kind, job, workload)
    };
    workloads.into_iter().any(|workload| !is_finished(workload) && runs(workload))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use switchyard_jobs::kind_of_owner;

    use super::*;

    fn enabled(owner: &Controller, object: Value) -> Owner {
        let kind = kind_of_owner(&owner.api_version, &owner.kind).unwrap();
        Owner::Job(kind, Arc::new(Object::new(object).unwrap()))
    }

    /// Job `i` of a chain. Each job is owned by the next, the last by `last_owner`.
    fn job(i: usize, length: usize, last_owner: Option<usize>) -> Value {
        let owner = if i + 1 < length { Some(i + 1) } else { last_owner };
        let owners: Vec<Value> = owner
            .map(|owner| {
                json!({"apiVersion": "batch/v1", "kind": "Job", "name": format!("j{owner}"), "uid": format!("u{owner}"), "controller": true})
            })
            .into_iter()
            .collect();
        json!({"metadata": {"name": format!("j{i}"), "namespace": "ns", "uid": format!("u{i}"), "ownerReferences": owners}})
    }

    fn climb(length: usize, last_owner: Option<usize>, counting: &[usize]) -> String {
        let find = |owner: &Controller| {
            let i = owner.name.trim_start_matches('j').parse::<usize>().unwrap();
            if i < length { enabled(owner, job(i, length, last_owner)) } else { Owner::None }
        };
        let counts = |job: &Value| counting.iter().any(|i| meta::name(job) == format!("j{i}"));
        match top(&job(0, length, last_owner), find, counts) {
            TopmostJob::None => "none".to_owned(),
            TopmostJob::Job(_, parent) => meta::name(&parent.value()).to_owned(),
            TopmostJob::TooDeep => "too deep".to_owned(),
            TopmostJob::Cyclic => "cyclic".to_owned(),
            TopmostJob::Unread(owner) => format!("{} is to be read", owner.name),
        }
    }

    #[rstest::rstest]
    #[case::no_owner(1, None, &[], "none")]
    #[case::no_owner_counts(3, None, &[], "none")]
    #[case::topmost_that_counts(4, None, &[1, 2], "j2")]
    #[case::deleted_owner(2, Some(9), &[1], "j1")]
    #[case::ten_owners(11, None, &[10], "j10")]
    #[case::eleven_owners(12, None, &[10], "too deep")]
    #[case::cycle(3, Some(0), &[1], "cyclic")]
    #[case::its_own_owner(1, Some(0), &[0], "cyclic")]
    fn topmost_managed_job_is_found(
        #[case] length: usize,
        #[case] last_owner: Option<usize>,
        #[case] counting: &[usize],
        #[case] expected: &str,
    ) {
        assert_eq!(climb(length, last_owner, counting), expected);
    }

    #[rstest::rstest]
    #[case::single_owner(json!([reference("above", "u", Some(true))]), "above")]
    #[case::controller_is_second(
        json!([reference("beside", "b", None), reference("above", "u", Some(true))]), "above"
    )]
    #[case::no_controller(json!([reference("above", "u", None), reference("beside", "b", Some(false))]), "none")]
    #[case::recreated_owner(json!([reference("above", "of-an-earlier-one", Some(true))]), "none")]
    #[case::deleted_controller_beside_an_owner(
        json!([reference("above", "u", None), reference("gone", "g", Some(true))]), "none"
    )]
    fn controller_is_followed_among_several_owners(#[case] owners: Value, #[case] expected: &str) {
        let above = |name: &str| json!({"metadata": {"name": name, "namespace": "ns", "uid": if name == "above" { "u" } else { "b" }}});
        let find = |owner: &Controller| match owner.name.as_str() {
            "gone" => Owner::None,
            name => enabled(owner, above(name)),
        };
        let job = json!({"metadata": {"name": "a", "namespace": "ns", "uid": "a", "ownerReferences": owners}});
        let found = match top(&job, find, |_| true) {
            TopmostJob::Job(_, parent) => meta::name(&parent.value()).to_owned(),
            TopmostJob::None => "none".to_owned(),
            TopmostJob::TooDeep | TopmostJob::Cyclic | TopmostJob::Unread(_) => "no end".to_owned(),
        };
        assert_eq!(found, expected);
    }

    fn reference(name: &str, uid: &str, controller: Option<bool>) -> Value {
        let mut reference =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid});
        if let Some(controller) = controller {
            reference["controller"] = json!(controller);
        }
        reference
    }

    #[test]
    fn skipped_job_holds_no_children_back() {
        let ray_job = json!({
            "metadata": {"name": "ray", "namespace": "ns", "uid": "u"},
            "spec": {"clusterSelector": {"ray.io/cluster": "c"}},
        });
        let owner = json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "ray", "uid": "u", "controller": true});
        let submitter = json!({"metadata": {"name": "s", "namespace": "ns", "uid": "s", "ownerReferences": [owner]}});
        let find = |owner: &Controller| enabled(owner, ray_job.clone());
        assert!(matches!(top(&submitter, find, |_| true), TopmostJob::None));
    }

    #[test]
    fn owners_in_between_are_passed_and_unknown_ones_read() {
        let chain = |i: usize| Arc::new(Object::new(job(i, 4, None)).unwrap());
        let climb = |unread: &str| {
            let find = |owner: &Controller| match owner.name.as_str() {
                name if name == unread => Owner::Unread,
                "j1" => Owner::Between(chain(1)),
                "j2" => enabled(owner, job(2, 4, None)),
                _ => Owner::Between(chain(3)),
            };
            match top(&job(0, 4, None), find, |_| true) {
                TopmostJob::Job(_, parent) => meta::name(&parent.value()).to_owned(),
                TopmostJob::Unread(owner) => format!("read {}", owner.name),
                _ => "neither".to_owned(),
            }
        };
        assert_eq!([climb(""), climb("j1"), climb("j3")], ["j2", "read j1", "read j3"]);
    }
}
