//! Elastic jobs: their Workload makes room for another as they grow.

use rstest::rstest;
use switchyard_proto::v1::{self, Phase, State};

use super::super::*;
use super::build::*;

/// The Workload of that name in the chain of the first.
fn slice(name: &str, replaces: Option<&str>) -> RemoteWorkload {
    let slice = Slice { chain: format!("job-{UID}"), replaces: replaces.map(str::to_owned) };
    let mut workload = RemoteWorkload { slice: Some(slice), ..workload(1) };
    (workload.meta.target.name, workload.meta.target.uid) =
        (name.to_owned(), format!("uid of {name}"));
    workload
}

/// As the hub has made it.
fn first() -> RemoteWorkload {
    slice(&format!("job-{UID}"), None)
}

/// As the worker makes it when the job grows.
fn second() -> RemoteWorkload {
    slice("second", Some(&format!("job-{UID}")))
}

fn elastic() -> RemoteJob {
    RemoteJob { several: true, ..job(1).running() }
}

/// An elastic job that runs.
fn running() -> Bench {
    let mut bench = Bench::open();
    bench.want(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(first()))));
    assert_eq!(bench.see(first().admitted().seen()).asked(), ["create Job"]);
    bench.answer(Outcome::Object(Box::new(Object::Job(elastic()))));
    bench.heard();
    bench
}

#[test]
fn a_job_of_another_size_is_asked_for_again() {
    let mut bench = running();
    assert_eq!(bench.want_of(1, Phase::Run, b"larger").asked(), ["create Job"]);
    bench.answer(Outcome::Object(Box::new(Object::Job(elastic()))));
    assert!(bench.asked().is_empty());
}

#[rstest]
#[case::while_it_waits(vec![second()], "first")]
#[case::once_it_has_quota(vec![second(), second().admitted()], "second")]
#[case::and_the_first_is_over(vec![second().admitted(), first().admitted().finished("WorkloadSliceReplaced")], "second")]
#[case::as_it_ends_before_the_other_is_seen(vec![first().admitted().finished("WorkloadSliceReplaced"), second().admitted()], "second")]
#[case::of_three(vec![second().admitted(), slice("third", Some("second")).admitted()], "third")]
#[case::not_back_again(vec![second().admitted(), first().admitted()], "second")]
#[case::not_a_strangers(vec![RemoteWorkload { slice: None, ..second().admitted() }], "first")]
fn which_of_them_the_job_goes_by(#[case] seen: Vec<RemoteWorkload>, #[case] want: &str) {
    let mut bench = running();
    for workload in seen {
        bench.see(workload.seen());
        assert!(
            bench.heard().iter().all(|told| *told == (1, State::Running)),
            "it runs all the while"
        );
    }
    // Whichever it is, is stopped.
    bench.want(1, Phase::Suspend);
    let asked = bench.actions.iter().filter_map(|action| action.verb.target()).next().unwrap();
    let name =
        if asked.name == "second" || asked.name == "third" { asked.name.as_str() } else { "first" };
    assert_eq!(name, want);
}

#[test]
fn one_that_was_replaced_by_nobody_is_over() {
    let mut bench = running();
    bench.see(first().admitted().finished("WorkloadSliceReplaced").seen());
    let stopped = RemoteJob { suspended: true, active: false, ..elastic() };
    bench.see(stopped.seen());
    assert_eq!(bench.heard().last(), Some(&(1, State::Evicted)));
}

#[test]
fn its_workloads_go_with_the_job() {
    let mut bench = running();
    bench.see(second().admitted().owned().seen()).want(1, Phase::Absent);
    assert_eq!(bench.asked(), ["delete Job"]);
}

#[test]
fn its_job_goes_by_the_workload_that_is_there_whatever_the_hub_calls_its_own() {
    let mut bench = Bench::open();
    bench.want(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(first()))));
    // What the job has grown to on the hub takes over the copy before its job is made.
    let grown = v1::Assignment { name: "grown".to_owned(), ..assignment(UID, 1, Phase::Run) };
    bench.desire(vec![grown], false).unwrap();
    bench.see(first().admitted().seen());
    let [Action { kind: Kind::Job, verb: Verb::Create { name, .. }, .. }] = &bench.actions[..]
    else {
        panic!("{:?}", bench.actions)
    };
    assert_eq!(*name, format!("job-{UID}"));
}
