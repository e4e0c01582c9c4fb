//! Jobs of several objects, jobs that report their pods' statuses, and followers: Workloads whose
//! pods come with another Workload's job.

use switchyard_proto::v1::{Phase, State};

use super::build::*;
use crate::*;

/// A group, as far as its objects exist.
fn group(attempt: u64) -> RemoteJob {
    RemoteJob { may_change: true, ..job(attempt) }
}

fn made(attempt: u64) -> Outcome {
    Outcome::Object(Box::new(Object::Job(group(attempt).running())))
}

/// A bench whose complete group runs under attempt 1.
fn running() -> Bench {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    assert_eq!(bench.observe(workload(1).admitted().applied()).new_actions(), ["create Job"]);
    bench.answer(made(1));
    assert!(bench.new_actions().is_empty(), "all of it is there");
    assert_eq!(bench.reported_states().last(), Some(&(1, State::Running)));
    bench
}

#[test]
fn group_with_failed_creation_is_incomplete() {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench.observe(workload(1).admitted().applied());
    bench.answer(Outcome::Rejected(Rejection::refused("Forbidden", "one of them may not be")));
    bench.observe(group(1).applied());
    assert_eq!(
        bench.reported_states().last(),
        Some(&(1, State::Refused)),
        "although others are there"
    );
    assert_eq!(bench.pass(Time::from_millis(250)).new_actions(), ["create Job"]);
    bench.answer(made(1));
    assert_eq!(bench.reported_states().last(), Some(&(1, State::Running)));
}

#[test]
fn added_group_member_is_created_once_while_running() {
    let mut bench = running();
    bench.assign_job(1, Phase::Run, b"more");
    assert_eq!(bench.new_actions(), ["create Job"]);
    bench.answer(made(1));
    assert!(
        bench
            .assign_job(1, Phase::Run, b"more")
            .observe(group(1).running().applied())
            .new_actions()
            .is_empty()
    );
    assert!(bench.reported_states().iter().all(|reports| *reports == (1, State::Running)));
}

#[test]
fn single_object_job_is_not_created_again() {
    let mut bench = Bench::running();
    bench.assign_job(1, Phase::Run, b"more");
    assert!(bench.new_actions().is_empty());
}

#[test]
fn restarted_agent_completes_group() {
    let mut bench = Bench::open();
    bench.observe(workload(1).admitted().applied()).observe(group(1).running().applied());
    assert_eq!(bench.assign(1, Phase::Run).new_actions(), ["create Job"]);
    bench.answer(made(1));
    assert!(bench.new_actions().is_empty());
}

#[test]
fn group_that_loses_member_ends_and_is_removed() {
    let mut bench = running();
    bench.observe(RemoteJob { has_lost_member: true, ..group(1).running() }.applied());
    assert!(bench.new_actions().is_empty(), "nothing is made in its place");
    assert_eq!(bench.reported_states(), [(1, State::Evicted)]);
    assert_eq!(bench.persist().assign(1, Phase::Absent).new_actions(), ["delete Job"]);
    bench.answer(Outcome::Accepted);
    bench.observe(RemoteJob { has_lost_member: true, ..group(1).running().deleting() }.applied());
    assert_eq!(bench.new_actions(), ["release Job"]);
}

#[test]
fn pod_statuses_replace_job_status_of_same_attempt() {
    let mut bench = Bench::running();
    let parts = |attempt, status: &[u8]| parts("ns", attempt, status);
    let mut shown = |seen: WatchEvent| {
        bench.observe(seen).pass(Time::from_secs(1));
        bench.reported().pop().map(|it| String::from_utf8(it.job_status).unwrap())
    };
    assert_eq!(shown(parts(1, b"pods")).as_deref(), Some("pods"));
    assert_eq!(shown(parts(1, b"pods")), None, "nothing new");
    assert_eq!(shown(parts(1, b"")).as_deref(), Some(r#"{"pods":{}}"#), "its last pod is gone");
    assert_eq!(shown(parts(2, b"others")).as_deref(), Some("j"), "of another attempt");
    assert_eq!(shown(parts(2, b"")), None);
    assert_eq!(shown(parts(1, b"more")).as_deref(), Some("more"));
}

/// Any user can mark pods of their own as parts of a copy.
#[test]
fn pods_in_other_namespace_are_ignored() {
    let mut bench = Bench::running();
    bench.observe(parts("another", 1, b"forged")).pass(Time::from_secs(1));
    assert!(bench.reported().is_empty());
    bench
        .observe(parts("ns", 1, b"pods"))
        .observe(parts("another", 1, b"forged more"))
        .pass(Time::from_secs(1));
    let shown = bench.reported().pop().map(|it| String::from_utf8(it.job_status).unwrap());
    assert_eq!(shown.as_deref(), Some("pods"));
    bench.observe(parts("another", 1, b"")).pass(Time::from_secs(1));
    assert!(bench.reported().is_empty());
}

#[test]
fn pods_observed_before_their_job_are_reported() {
    let mut bench = Bench::open();
    bench.observe(parts("ns", 1, b"pods"));
    assert!(bench.ledger.is_empty(), "pods alone are no copy");
    bench
        .observe(workload(1).admitted().applied())
        .observe(group(1).running().applied())
        .pass(Time::from_secs(1));
    let shown = bench.reported().pop().map(|it| String::from_utf8(it.job_status).unwrap());
    assert_eq!(shown.as_deref(), Some("pods"));
}

fn parts(namespace: &str, attempt: u64, status: &[u8]) -> WatchEvent {
    let (namespace, workload_uid) = (namespace.to_owned(), UID.to_owned());
    WatchEvent::PodStatuses { namespace, workload_uid, attempt, status: status.to_vec() }
}

fn follower() -> RemoteWorkload {
    RemoteWorkload { is_follower: true, ..workload(1) }
}

/// A bench whose follower has quota under attempt 1.
fn following() -> Bench {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(follower()))));
    assert!(
        bench.observe(follower().admitted().applied()).new_actions().is_empty(),
        "nothing is made for it"
    );
    bench
}

#[test]
fn follower_has_no_job_and_runs_with_quota() {
    let mut bench = following();
    assert_eq!(bench.reported_states(), [(1, State::Waiting), (1, State::Running)]);
    assert_eq!(bench.assign(1, Phase::Absent).new_actions(), ["delete Workload"]);
    bench.answer(Outcome::Accepted);
    bench.observe(gone(ObjectKind::Workload, 1));
    assert_eq!(bench.reported_states(), [(1, State::Gone)]);
}
