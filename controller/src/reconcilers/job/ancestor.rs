//! The topmost job of ours above a job.

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

/// How many owners up a job of ours is looked for.
pub(super) const MAX_ANCESTORS: usize = 10;

/// What is known of an owner.
#[derive(Clone)]
pub(super) enum Owner {
    /// A job of a kind that is enabled.
    Job(&'static dyn JobKind, Arc<Object>),
    /// It only stands between: a ReplicaSet, or of a kind that is known and not enabled.
    Between(Arc<Object>),
    /// It is gone, or of a kind that nobody here knows.
    None,
    /// The API server is to be asked.
    Unread,
}

/// Where the way up from a job ended.
#[derive(Clone)]
pub(crate) enum Top {
    /// No job that counts owns it.
    None,
    /// At this one.
    Job(&'static dyn JobKind, Arc<Object>),
    /// Nowhere within [`MAX_ANCESTORS`].
    TooDeep,
    /// Where it began.
    Cyclic,
    /// At this owner, which has to be read first.
    Unread(Controller),
}

/// Walks up the controllers of a job for as long as they are of known kinds, found by `find`, and gives the last job that
/// `counts`. One that its kind skips never does: nobody would admit it.
pub(super) fn top(
    job: &Value,
    find: impl Fn(&Controller) -> Owner,
    counts: impl Fn(&Value) -> bool,
) -> Top {
    let mut found = Top::None;
    let mut passed = BTreeSet::from([meta::uid(job).to_owned()]);
    let mut owner = meta::controller_of(job);
    while let Some(reference) = owner {
        let (kind, parent) = match find(&reference) {
            Owner::Job(kind, parent) => (Some(kind), parent),
            Owner::Between(parent) => (None, parent),
            Owner::None => break,
            Owner::Unread => return Top::Unread(reference),
        };
        let value = parent.value();
        if meta::uid(&value) != reference.uid {
            break;
        }
        if passed.len() > MAX_ANCESTORS {
            return Top::TooDeep;
        }
        if !passed.insert(reference.uid) {
            return Top::Cyclic;
        }
        owner = meta::controller_of(&value);
        if let Some(kind) = kind.filter(|kind| !kind.skips(&value) && counts(&value)) {
            found = Top::Job(kind, parent);
        }
    }
    found
}

/// Whether one of a job's workloads lets run what the job owns. One that has finished is admitted still, and has given its
/// quota back.
pub(super) fn lets_run<'a>(
    kind: &dyn JobKind,
    job: &Value,
    workloads: impl IntoIterator<Item = &'a Arc<Workload>>,
) -> bool {
    let runs = |workload: &Workload| is_admitted(workload) || slices::goes_on(kind, job, workload);
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

    /// Job `i` of a chain in which each is owned by the next, the last by `last_owner`.
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
            Top::None => "none".to_owned(),
            Top::Job(_, parent) => meta::name(&parent.value()).to_owned(),
            Top::TooDeep => "too deep".to_owned(),
            Top::Cyclic => "cyclic".to_owned(),
            Top::Unread(owner) => format!("{} is to be read", owner.name),
        }
    }

    #[rstest::rstest]
    #[case::alone(1, None, &[], "none")]
    #[case::nobody_above_counts(3, None, &[], "none")]
    #[case::the_topmost_that_counts(4, None, &[1, 2], "j2")]
    #[case::an_owner_that_is_gone_ends_the_way(2, Some(9), &[1], "j1")]
    #[case::ten_owners_are_walked(11, None, &[10], "j10")]
    #[case::eleven_are_not(12, None, &[10], "too deep")]
    #[case::a_circle(3, Some(0), &[1], "cyclic")]
    #[case::its_own_owner(1, Some(0), &[0], "cyclic")]
    fn the_way_up_ends(
        #[case] length: usize,
        #[case] last_owner: Option<usize>,
        #[case] counting: &[usize],
        #[case] expected: &str,
    ) {
        assert_eq!(climb(length, last_owner, counting), expected);
    }

    #[rstest::rstest]
    #[case::the_only_owner(json!([reference("above", "u", Some(true))]), "above")]
    #[case::of_two_the_controller_though_it_comes_second(
        json!([reference("beside", "b", None), reference("above", "u", Some(true))]), "above"
    )]
    #[case::two_of_which_none_controls(json!([reference("above", "u", None), reference("beside", "b", Some(false))]), "none")]
    #[case::an_earlier_object_of_that_name(json!([reference("above", "of-an-earlier-one", Some(true))]), "none")]
    #[case::a_controller_that_is_gone_beside_one_that_is_there(
        json!([reference("above", "u", None), reference("gone", "g", Some(true))]), "none"
    )]
    fn of_several_owners_the_one_above_is(#[case] owners: Value, #[case] expected: &str) {
        let above = |name: &str| json!({"metadata": {"name": name, "namespace": "ns", "uid": if name == "above" { "u" } else { "b" }}});
        let find = |owner: &Controller| match owner.name.as_str() {
            "gone" => Owner::None,
            name => enabled(owner, above(name)),
        };
        let job = json!({"metadata": {"name": "a", "namespace": "ns", "uid": "a", "ownerReferences": owners}});
        let found = match top(&job, find, |_| true) {
            Top::Job(_, parent) => meta::name(&parent.value()).to_owned(),
            Top::None => "none".to_owned(),
            Top::TooDeep | Top::Cyclic | Top::Unread(_) => "no end".to_owned(),
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
    fn a_job_that_is_left_alone_holds_none_of_its_own_back() {
        let ray_job = json!({
            "metadata": {"name": "ray", "namespace": "ns", "uid": "u"},
            "spec": {"clusterSelector": {"ray.io/cluster": "c"}},
        });
        let owner = json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "ray", "uid": "u", "controller": true});
        let submitter = json!({"metadata": {"name": "s", "namespace": "ns", "uid": "s", "ownerReferences": [owner]}});
        let find = |owner: &Controller| enabled(owner, ray_job.clone());
        assert!(matches!(top(&submitter, find, |_| true), Top::None));
    }

    #[test]
    fn what_only_stands_between_is_passed_and_what_is_not_known_is_to_be_read() {
        let chain = |i: usize| Arc::new(Object::new(job(i, 4, None)).unwrap());
        let climb = |unread: &str| {
            let find = |owner: &Controller| match owner.name.as_str() {
                name if name == unread => Owner::Unread,
                "j1" => Owner::Between(chain(1)),
                "j2" => enabled(owner, job(2, 4, None)),
                _ => Owner::Between(chain(3)),
            };
            match top(&job(0, 4, None), find, |_| true) {
                Top::Job(_, parent) => meta::name(&parent.value()).to_owned(),
                Top::Unread(owner) => format!("read {}", owner.name),
                _ => "neither".to_owned(),
            }
        };
        assert_eq!([climb(""), climb("j1"), climb("j3")], ["j2", "read j1", "read j3"]);
    }
}
