//! The hub's preemption gate on a Workload that waits.

use switchyard_proto::v1::{self, Phase, State};

use super::super::*;
use super::build::*;

/// The hub wants quota to be held, with a gate that is open since then.
fn gated(bench: &mut Bench, opened: Option<i64>) -> Vec<String> {
    let opened = opened.map(|seconds| prost_types::Timestamp { seconds, nanos: 0 });
    let preemption_gate = Some(v1::PreemptionGate { opened, blocked: None });
    let wanted = v1::Assignment { preemption_gate, ..assignment(UID, 1, Phase::Reserve) };
    bench.desire(vec![wanted], false).unwrap();
    bench.asked()
}

fn waits(opened: Option<i64>, blocked: Option<i64>) -> RemoteWorkload {
    let gate = Some(Gate { opened, blocked });
    RemoteWorkload {
        gate,
        ..workload(1).pending("AdmissionGated", "Workload requires preemption, but it's gated")
    }
}

/// A Workload with a closed gate that is in the way.
fn blocked() -> Bench {
    let mut bench = Bench::open();
    assert_eq!(gated(&mut bench, None), ["create Workload"]);
    assert!(matches!(bench.actions[0].verb, Verb::Create { gated: true, .. }));
    bench.answer(Outcome::Object(Box::new(Object::Workload(waits(None, None)))));
    bench.see(waits(None, Some(7)).seen());
    bench
}

fn said(bench: &mut Bench) -> Vec<(State, Option<i64>, Option<i64>)> {
    bench.pass(Time::from_secs(1));
    let seconds = |at: Option<prost_types::Timestamp>| at.map(|at| at.seconds);
    let gate = |it: &v1::Observation| {
        it.preemption_gate.map(|gate| (seconds(gate.opened), seconds(gate.blocked)))
    };
    let told = bench.told();
    told.iter()
        .map(|it| {
            gate(it)
                .map_or((it.state(), None, None), |(opened, blocked)| (it.state(), opened, blocked))
        })
        .collect()
}

#[test]
fn the_hub_hears_that_it_is_in_the_way_and_opens_it_once() {
    let mut bench = blocked();
    assert_eq!(said(&mut bench).last(), Some(&(State::Waiting, None, Some(7))));
    assert_eq!(gated(&mut bench, Some(9)), ["open the preemption gate of Workload"]);
    bench.answer(Outcome::Object(Box::new(Object::Workload(waits(Some(9), Some(7))))));
    assert!(bench.asked().is_empty());
    assert_eq!(said(&mut bench).last(), Some(&(State::Waiting, Some(9), Some(7))));

    bench.see(waits(None, None).seen());
    assert!(
        bench.asked().is_empty(),
        "an eviction has closed it, and the hub has not opened it since"
    );
    assert_eq!(said(&mut bench).last(), Some(&(State::Waiting, None, None)));
    assert_eq!(gated(&mut bench, Some(20)), ["open the preemption gate of Workload"]);
}

#[test]
fn one_that_may_be_open_by_now_counts_as_open() {
    let mut bench = blocked();
    said(&mut bench);
    gated(&mut bench, Some(9));
    bench.answer(Outcome::Failed("no answer".to_owned()));
    bench.see(waits(None, Some(8)).seen());
    assert_eq!(said(&mut bench).last(), Some(&(State::Waiting, Some(9), Some(8))));
    bench.pass(Time::from_secs(60));
    assert_eq!(bench.asked(), ["open the preemption gate of Workload"], "it is tried again");
}

#[test]
fn a_cluster_that_lets_nobody_open_it_is_not_asked_again_and_keeps_the_copy() {
    let mut bench = blocked();
    gated(&mut bench, Some(9));
    bench.answer(Outcome::Refused(Trouble::refused("Forbidden", "no")));
    assert!(bench.pass(Time::from_secs(60)).asked().is_empty());
    assert_eq!(said(&mut bench).last(), Some(&(State::Waiting, None, Some(7))), "not refused");
}

#[test]
fn what_holds_quota_needs_no_open_gate() {
    let mut bench = blocked();
    bench.see(RemoteWorkload { gate: Some(Gate::default()), ..workload(1).admitted() }.seen());
    assert!(gated(&mut bench, Some(9)).is_empty());
}

#[test]
fn without_a_gate_wanted_none_is_made() {
    let mut bench = Bench::open();
    bench.want(1, Phase::Reserve);
    assert!(matches!(bench.actions[0].verb, Verb::Create { gated: false, .. }));
}
