//! Elastic jobs, whose Workload is replaced when they grow (Kueue's workload slices).

use rstest::rstest;
use switchyard_proto::v1::{self, Phase, State};

use super::build::*;
use crate::*;

/// A Workload in the chain of the first.
fn slice(name: &str, replaces: Option<&str>) -> RemoteWorkload {
    let slice = Slice { chain: format!("job-{UID}"), replaces: replaces.map(str::to_owned) };
    let mut workload = RemoteWorkload { slice: Some(slice), ..workload(1) };
    (workload.meta.target.name, workload.meta.target.uid) =
        (name.to_owned(), format!("uid of {name}"));
    workload
}

/// The Workload that the hub created.
fn first() -> RemoteWorkload {
    slice(&format!("job-{UID}"), None)
}

/// The Workload that the worker creates when the job grows.
fn second() -> RemoteWorkload {
    slice("second", Some(&format!("job-{UID}")))
}

fn elastic() -> RemoteJob {
    RemoteJob { may_change: true, ..job(1).running() }
}

/// A running elastic job.
fn running() -> Bench {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(first()))));
    assert_eq!(bench.observe(first().admitted().applied()).new_actions(), ["create Job"]);
    bench.answer(Outcome::Object(Box::new(Object::Job(elastic()))));
    bench.reported_states();
    bench
}

#[test]
fn resized_job_is_created_again() {
    let mut bench = running();
    assert_eq!(bench.assign_job(1, Phase::Run, b"larger").new_actions(), ["create Job"]);
    bench.answer(Outcome::Object(Box::new(Object::Job(elastic()))));
    assert!(bench.new_actions().is_empty());
}

#[rstest]
#[case::while_it_waits(vec![second()], "first")]
#[case::once_it_has_quota(vec![second(), second().admitted()], "second")]
#[case::and_the_first_is_over(vec![second().admitted(), first().admitted().finished("WorkloadSliceReplaced")], "second")]
#[case::as_it_ends_before_the_other_is_seen(vec![first().admitted().finished("WorkloadSliceReplaced"), second().admitted()], "second")]
#[case::of_three(vec![second().admitted(), slice("third", Some("second")).admitted()], "third")]
#[case::not_back_again(vec![second().admitted(), first().admitted()], "second")]
#[case::not_a_strangers(vec![RemoteWorkload { slice: None, ..second().admitted() }], "first")]
fn slice_of_the_job_is_chosen_by_quota(#[case] seen: Vec<RemoteWorkload>, #[case] want: &str) {
    let mut bench = running();
    for workload in seen {
        bench.observe(workload.applied());
        assert!(
            bench.reported_states().iter().all(|reports| *reports == (1, State::Running)),
            "it runs all the while"
        );
    }
    // The current slice is the one that is stopped.
    bench.assign(1, Phase::Suspend);
    let asked = bench.actions.iter().filter_map(|action| action.verb.target()).next().unwrap();
    let name =
        if asked.name == "second" || asked.name == "third" { asked.name.as_str() } else { "first" };
    assert_eq!(name, want);
}

#[test]
fn slice_without_replacement_ends() {
    let mut bench = running();
    bench.observe(first().admitted().finished("WorkloadSliceReplaced").applied());
    let stopped = RemoteJob { suspended: true, active: false, ..elastic() };
    bench.observe(stopped.applied());
    assert_eq!(bench.reported_states().last(), Some(&(1, State::Evicted)));
}

#[test]
fn slices_are_deleted_with_their_job() {
    let mut bench = running();
    bench.observe(second().admitted().owned().applied()).assign(1, Phase::Absent);
    assert_eq!(bench.new_actions(), ["delete Job"]);
}

#[test]
fn job_refers_to_existing_workload_name() {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(first()))));
    // The grown job of the hub takes over the copy before its job is created.
    let grown = v1::Assignment { name: "grown".to_owned(), ..assignment(UID, 1, Phase::Run) };
    bench.desire(vec![grown], false).unwrap();
    bench.observe(first().admitted().applied());
    let [Action { kind: ObjectKind::Job, verb: Verb::Create { name, .. }, .. }] =
        &bench.actions[..]
    else {
        panic!("{:?}", bench.actions)
    };
    assert_eq!(*name, format!("job-{UID}"));
}
