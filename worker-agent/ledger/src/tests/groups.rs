//! Jobs that are several objects, jobs whose pods speak for them, and Workloads whose pods come with another one's job.

use switchyard_proto::v1::{Phase, State};

use super::super::*;
use super::build::*;

/// A group, as far as it is there.
fn group(attempt: u64) -> RemoteJob {
    RemoteJob { several: true, ..job(attempt) }
}

fn made(attempt: u64) -> Outcome {
    Outcome::Object(Box::new(Object::Job(group(attempt).running())))
}

/// Up to a group that runs whole under attempt 1.
fn running() -> Bench {
    let mut bench = Bench::open();
    bench.want(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    assert_eq!(bench.see(workload(1).admitted().seen()).asked(), ["create Job"]);
    bench.answer(made(1));
    assert!(bench.asked().is_empty(), "all of it is there");
    assert_eq!(bench.heard().last(), Some(&(1, State::Running)));
    bench
}

#[test]
fn a_group_of_which_something_could_not_be_made_is_not_taken_for_whole() {
    let mut bench = Bench::open();
    bench.want(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench.see(workload(1).admitted().seen());
    bench.answer(Outcome::Refused(Trouble::refused("Forbidden", "one of them may not be")));
    bench.see(group(1).seen());
    assert_eq!(bench.heard().last(), Some(&(1, State::Refused)), "although others are there");
    assert_eq!(bench.pass(Time::from_millis(250)).asked(), ["create Job"]);
    bench.answer(made(1));
    assert_eq!(bench.heard().last(), Some(&(1, State::Running)));
}

#[test]
fn what_comes_to_a_group_is_made_while_it_runs_and_once() {
    let mut bench = running();
    bench.want_of(1, Phase::Run, b"more");
    assert_eq!(bench.asked(), ["create Job"]);
    bench.answer(made(1));
    assert!(
        bench.want_of(1, Phase::Run, b"more").see(group(1).running().seen()).asked().is_empty()
    );
    assert!(bench.heard().iter().all(|told| *told == (1, State::Running)));
}

#[test]
fn nothing_comes_to_a_job_of_one_object() {
    let mut bench = Bench::running();
    bench.want_of(1, Phase::Run, b"more");
    assert!(bench.asked().is_empty());
}

#[test]
fn an_agent_that_begins_anew_makes_sure_that_a_group_is_whole() {
    let mut bench = Bench::open();
    bench.see(workload(1).admitted().seen()).see(group(1).running().seen());
    assert_eq!(bench.want(1, Phase::Run).asked(), ["create Job"]);
    bench.answer(made(1));
    assert!(bench.asked().is_empty());
}

#[test]
fn a_group_that_loses_a_part_is_over_and_the_rest_is_removed_with_the_attempt() {
    let mut bench = running();
    bench.see(RemoteJob { broken: true, ..group(1).running() }.seen());
    assert!(bench.asked().is_empty(), "nothing is made in its place");
    assert_eq!(bench.heard(), [(1, State::Evicted)]);
    assert_eq!(bench.persist().want(1, Phase::Absent).asked(), ["delete Job"]);
    bench.answer(Outcome::Accepted);
    bench.see(RemoteJob { broken: true, ..group(1).running().deleting() }.seen());
    assert_eq!(bench.asked(), ["release Job"]);
}

#[test]
fn what_the_pods_of_a_job_say_is_shown_for_its_own_status_and_only_with_their_attempt() {
    let mut bench = Bench::running();
    let parts = |attempt, status: &[u8]| parts("ns", attempt, status);
    let mut shown = |seen: Seen| {
        bench.see(seen).pass(Time::from_secs(1));
        bench.told().pop().map(|it| String::from_utf8(it.job_status).unwrap())
    };
    assert_eq!(shown(parts(1, b"pods")).as_deref(), Some("pods"));
    assert_eq!(shown(parts(1, b"pods")), None, "nothing new");
    assert_eq!(shown(parts(2, b"others")).as_deref(), Some("j"), "of another attempt");
    assert_eq!(shown(parts(2, b"")), None);
    assert_eq!(shown(parts(1, b"more")).as_deref(), Some("more"));
}

/// Anybody may write the marks of a copy on pods of their own.
#[test]
fn pods_in_another_namespace_say_nothing_of_a_job() {
    let mut bench = Bench::running();
    bench.see(parts("another", 1, b"forged")).pass(Time::from_secs(1));
    assert!(bench.told().is_empty());
    bench
        .see(parts("ns", 1, b"pods"))
        .see(parts("another", 1, b"forged more"))
        .pass(Time::from_secs(1));
    let shown = bench.told().pop().map(|it| String::from_utf8(it.job_status).unwrap());
    assert_eq!(shown.as_deref(), Some("pods"));
    bench.see(parts("another", 1, b"")).pass(Time::from_secs(1));
    assert!(bench.told().is_empty());
}

#[test]
fn pods_seen_before_their_job_are_shown_with_it() {
    let mut bench = Bench::open();
    bench.see(parts("ns", 1, b"pods"));
    assert!(bench.ledger.is_empty(), "pods alone are no copy");
    bench
        .see(workload(1).admitted().seen())
        .see(group(1).running().seen())
        .pass(Time::from_secs(1));
    let shown = bench.told().pop().map(|it| String::from_utf8(it.job_status).unwrap());
    assert_eq!(shown.as_deref(), Some("pods"));
}

fn parts(namespace: &str, attempt: u64, status: &[u8]) -> Seen {
    let (namespace, workload_uid) = (namespace.to_owned(), UID.to_owned());
    Seen::Parts { namespace, workload_uid, attempt, status: status.to_vec() }
}

/// A Workload whose pods come with the job of another.
fn follower() -> RemoteWorkload {
    RemoteWorkload { follows: true, ..workload(1) }
}

/// Up to one that has quota under attempt 1.
fn following() -> Bench {
    let mut bench = Bench::open();
    bench.want(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(follower()))));
    assert!(bench.see(follower().admitted().seen()).asked().is_empty(), "nothing is made for it");
    bench
}

#[test]
fn nothing_is_made_for_a_workload_whose_pods_come_with_anothers_job_and_it_runs_once_it_has_quota()
{
    let mut bench = following();
    assert_eq!(bench.heard(), [(1, State::Waiting), (1, State::Running)]);
    assert_eq!(bench.want(1, Phase::Absent).asked(), ["delete Workload"]);
    bench.answer(Outcome::Accepted);
    bench.see(gone(Kind::Workload, 1));
    assert_eq!(bench.heard(), [(1, State::Gone)]);
}
