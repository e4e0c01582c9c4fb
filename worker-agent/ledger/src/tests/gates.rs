//! The hub's preemption gate on a waiting Workload.

use switchyard_proto::v1::{self, Phase, PreemptionGate, State};

use super::build::*;
use crate::*;

/// Assigns a reservation whose gate the hub opened at this time.
fn gated(bench: &mut Bench, opened: Option<i64>) -> Vec<String> {
    let preemption_gate = Some(PreemptionGate::new(opened, None));
    let wanted = v1::Assignment { preemption_gate, ..assignment(UID, 1, Phase::Reserve) };
    bench.desire(vec![wanted], false).unwrap();
    bench.new_actions()
}

fn waits(opened: Option<i64>, blocked: Option<i64>) -> RemoteWorkload {
    let gate = Some(PreemptionGate::new(opened, blocked));
    RemoteWorkload {
        gate,
        ..workload(1).pending("AdmissionGated", "Workload requires preemption, but it's gated")
    }
}

/// A Workload whose closed gate blocks a preemption.
fn blocked() -> Bench {
    let mut bench = Bench::open();
    assert_eq!(gated(&mut bench, None), ["create Workload"]);
    assert!(matches!(bench.actions[0].verb, Verb::Create { gated: true, .. }));
    bench.answer(Outcome::Object(Box::new(Object::Workload(waits(None, None)))));
    bench.observe(waits(None, Some(7)).applied());
    bench
}

fn said(bench: &mut Bench) -> Vec<(State, Option<i64>, Option<i64>)> {
    bench.pass(Time::from_secs(1));
    let gate = |it: &v1::Observation| {
        it.preemption_gate.map(|gate| (gate.opened_at(), gate.blocked_since()))
    };
    let reports = bench.reported();
    reports
        .iter()
        .map(|it| {
            gate(it)
                .map_or((it.state(), None, None), |(opened, blocked)| (it.state(), opened, blocked))
        })
        .collect()
}

#[test]
fn blocked_gate_is_reported_and_opened_once() {
    let mut bench = blocked();
    assert_eq!(said(&mut bench).last(), Some(&(State::Waiting, None, Some(7))));
    assert_eq!(gated(&mut bench, Some(9)), ["open the preemption gate of Workload"]);
    bench.answer(Outcome::Object(Box::new(Object::Workload(waits(Some(9), Some(7))))));
    assert!(bench.new_actions().is_empty());
    assert_eq!(said(&mut bench).last(), Some(&(State::Waiting, Some(9), Some(7))));

    bench.observe(waits(None, None).applied());
    assert!(
        bench.new_actions().is_empty(),
        "an eviction has closed it, and the hub has not opened it since"
    );
    assert_eq!(said(&mut bench).last(), Some(&(State::Waiting, None, None)));
    assert_eq!(gated(&mut bench, Some(20)), ["open the preemption gate of Workload"]);
}

#[test]
fn gate_with_unanswered_opening_counts_as_open() {
    let mut bench = blocked();
    said(&mut bench);
    gated(&mut bench, Some(9));
    bench.answer(Outcome::Unknown("no answer".to_owned()));
    bench.observe(waits(None, Some(8)).applied());
    assert_eq!(said(&mut bench).last(), Some(&(State::Waiting, Some(9), Some(8))));
    bench.pass(Time::from_secs(60));
    assert_eq!(bench.new_actions(), ["open the preemption gate of Workload"], "it is tried again");
}

#[test]
fn refused_gate_opening_is_not_retried() {
    let mut bench = blocked();
    gated(&mut bench, Some(9));
    bench.answer(Outcome::Rejected(Rejection::refused("Forbidden", "no")));
    assert!(bench.pass(Time::from_secs(60)).new_actions().is_empty());
    assert_eq!(said(&mut bench).last(), Some(&(State::Waiting, None, Some(7))), "not refused");
}

#[test]
fn gate_stays_closed_once_quota_is_reserved() {
    let mut bench = blocked();
    bench.observe(
        RemoteWorkload { gate: Some(PreemptionGate::default()), ..workload(1).admitted() }
            .applied(),
    );
    assert!(gated(&mut bench, Some(9)).is_empty());
}

#[test]
fn workload_without_desired_gate_has_none() {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Reserve);
    assert!(matches!(bench.actions[0].verb, Verb::Create { gated: false, .. }));
}
