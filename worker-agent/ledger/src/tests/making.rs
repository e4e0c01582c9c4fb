//! Creation: what the agent creates for an assignment, and when.

use rstest::rstest;
use switchyard_proto::v1::{Phase, State};

use super::build::*;
use crate::*;

#[test]
fn reserve_creates_only_workload() {
    let mut bench = Bench::open();
    assert_eq!(bench.assign(1, Phase::Reserve).new_actions(), ["create Workload"]);
    bench.answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench.observe(workload(1).admitted().applied());
    assert!(bench.new_actions().is_empty());
    assert_eq!(bench.reported_states(), [(1, State::Waiting), (1, State::Reserved)]);
}

#[test]
fn run_creates_job_after_admission() {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    assert!(bench.new_actions().is_empty(), "not admitted");
    assert_eq!(bench.observe(workload(1).admitted().applied()).new_actions(), ["create Job"]);
}

#[test]
fn ledger_acts_only_once_synced() {
    let mut bench = Bench::open();
    let rules = Rules { hub_id: "hub".to_owned(), namespaces: AllowedNamespaces::All };
    bench.ledger = Ledger::new(rules);
    bench.connect();
    bench.assign(1, Phase::Reserve);
    assert!(bench.new_actions().is_empty());
    assert!(bench.reported_states().is_empty(), "not even the inventory");
    assert_eq!(bench.observe(WatchEvent::Synced).new_actions(), ["create Workload"]);
}

#[test]
fn repeated_message_changes_nothing() {
    let mut bench = Bench::running();
    bench.assign(1, Phase::Run).assign(1, Phase::Reserve);
    bench.observe(workload(1).admitted().owned().applied()).observe(job(1).running().applied());
    assert!(bench.new_actions().is_empty());
    assert!(bench.reported_states().is_empty());
}

#[rstest]
#[case::an_object_in_the_way(
    Outcome::Rejected(Rejection::refused("ObjectInTheWay", "x")),
    State::Refused
)]
#[case::no_such_namespace(
    Outcome::Rejected(Rejection::unfit("NamespaceNotFound", "x")),
    State::Unfit
)]
#[case::what_another_workload_left(Outcome::Occupied { by: "u0".to_owned() }, State::Waiting)]
fn rejected_creation_is_reported_and_retried(#[case] outcome: Outcome, #[case] state: State) {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Reserve).answer(outcome);
    assert!(bench.new_actions().is_empty(), "not at once");
    assert_eq!(bench.reported_states(), [(1, state)]);
    assert_eq!(bench.pass(Time::from_millis(250)).new_actions(), ["create Workload"]);
    bench.answer(Outcome::Object(Box::new(Object::Workload(workload(1).admitted()))));
    assert_eq!(bench.reported_states(), [(1, State::Reserved)]);
}

#[test]
fn failed_action_retries_with_backoff() {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Reserve).ledger.session_closed();
    let mut waits = Vec::new();
    for _ in 0..10 {
        bench.answer(Outcome::Unknown("down".to_owned()));
        let wake = bench.ledger.next_wakeup().unwrap();
        waits.push((wake - bench.now).as_millis());
        bench.pass(wake - bench.now);
    }
    assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]);
    assert!(
        bench.reported_states().is_empty(),
        "an API server that is away is no state of a workload"
    );
}

#[test]
fn disallowed_namespace_is_refused_without_action() {
    let mut bench = Bench::open();
    let only = AllowedNamespaces::Only(["other".to_owned()].into());
    bench.ledger = Ledger::new(Rules { hub_id: "hub".to_owned(), namespaces: only });
    bench.observe(WatchEvent::Synced).connect();
    bench.assign(1, Phase::Reserve);
    assert!(bench.new_actions().is_empty());
    let reports = bench.reported();
    assert_eq!(reports[0].state(), State::Refused);
    assert_eq!(reports[0].reasons[0].code, "NamespaceNotAllowed");
}

#[test]
fn suspend_deactivates_workload_and_run_activates() {
    let mut bench = Bench::running();
    assert_eq!(bench.assign(1, Phase::Suspend).new_actions(), ["deactivate Workload"]);
    let mut stopped = workload(1).admitted().owned();
    (stopped.active, stopped.suspended_by_agent) = (false, true);
    bench.answer(Outcome::Object(Box::new(Object::Workload(stopped.clone()))));
    assert!(bench.reported_states().is_empty(), "its pods still run");
    stopped.evicted = yes("Deactivated");
    stopped.admitted = no("NoReservation", "");
    bench
        .observe(WatchEvent::Applied(Box::new(Object::Workload(stopped))))
        .observe(job(1).applied());
    assert_eq!(bench.reported_states(), [(1, State::Suspended)]);
    assert_eq!(bench.assign(1, Phase::Run).new_actions(), ["activate Workload"]);
    bench.answer(Outcome::Object(Box::new(Object::Workload(workload(1).admitted().owned()))));
    assert_eq!(bench.reported_states(), [(1, State::Running)]);
}

#[test]
fn workload_deactivated_by_others_stays_inactive() {
    let mut bench = Bench::running();
    let mut stopped = workload(1).owned();
    stopped.active = false;
    stopped.evicted = yes("Deactivated");
    bench.observe(stopped.applied()).observe(job(1).applied());
    assert!(bench.new_actions().is_empty());
    assert_eq!(bench.reported_states(), [(1, State::Evicted)]);
}

fn of_class(workload: RemoteWorkload, class: &str, value: i32) -> RemoteWorkload {
    RemoteWorkload { priority: Some(Priority { class: class.to_owned(), value }), ..workload }
}

/// Assigns the job to run with this priority.
fn prioritized(bench: &mut Bench, class: &str, value: i32) -> Vec<String> {
    let priority_class = class.to_owned();
    let wanted = switchyard_proto::v1::Assignment {
        priority: value,
        priority_class,
        ..assignment(UID, 1, Phase::Run)
    };
    bench.desire(vec![wanted], false).unwrap();
    bench.new_actions()
}

#[rstest]
#[case::another_class_of_another_value(Some(("low", 1)), ("high", 9), true)]
#[case::another_value_of_the_class(Some(("high", 1)), ("high", 9), true)]
#[case::what_it_is(Some(("high", 9)), ("high", 9), false)]
#[case::its_workload_has_no_class_of_its_own(None, ("high", 9), false)]
#[case::the_hub_says_nothing_of_a_class(Some(("low", 1)), ("", 9), false)]
fn priority_change_reaches_running_job(
    #[case] has: Option<(&str, i32)>,
    #[case] (class, value): (&str, i32),
    #[case] follows: bool,
) {
    let mut bench = Bench::running();
    let there = workload(1).admitted().owned();
    let there = has.map_or(there.clone(), |(class, value)| of_class(there, class, value));
    bench.observe(there.applied());
    let expected: &[&str] = if follows { &["set the priority of Workload"] } else { &[] };
    assert_eq!(prioritized(&mut bench, class, value), expected);
    if follows {
        let now = of_class(workload(1).admitted().owned(), class, value);
        bench.answer(Outcome::Object(Box::new(Object::Workload(now))));
        assert!(bench.new_actions().is_empty(), "once");
    }
}

#[test]
fn refused_priority_keeps_job_and_next_is_tried() {
    let mut bench = Bench::running();
    bench.observe(of_class(workload(1).admitted().owned(), "low", 1).applied());
    assert_eq!(prioritized(&mut bench, "high", 9), ["set the priority of Workload"]);
    bench.answer(Outcome::Rejected(Rejection::refused("Forbidden", "no such class here")));
    assert!(bench.pass(Time::from_secs(60)).new_actions().is_empty());
    assert!(
        bench.reported_states().iter().all(|(_, state)| *state == State::Running),
        "not refused"
    );
    assert_eq!(prioritized(&mut bench, "high", 8), ["set the priority of Workload"]);
}

#[test]
fn failed_creation_is_reported_from_second_failure() {
    use switchyard_proto::v1::State;
    let failed = || Outcome::NotApplied("the webhook is away".to_owned());
    let retry = |bench: &mut Bench| {
        bench.pass(Time::from_secs(1));
        bench.answer(failed());
    };
    let mut bench = Bench::open();
    bench.assign(1, Phase::Reserve).answer(failed());
    assert_eq!(bench.reported_states(), [], "it may pass");
    retry(&mut bench);
    let reports = bench.reported();
    assert_eq!(
        (reports.len(), reports[0].state(), reports[0].reasons[0].code.as_str()),
        (1, State::Waiting, "CreationFailed")
    );
    assert!(reports[0].reasons[0].message.ends_with("the webhook is away"), "{reports:?}");

    let mut bench = Bench::open();
    bench.assign(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench.observe(workload(1).admitted().applied()).answer(failed());
    assert!(bench.reported().iter().all(|it| it.troubles.is_empty()), "it may pass");
    retry(&mut bench);
    bench.now += Time::from_secs(1);
    let reports = bench.reported();
    assert_eq!(
        (reports.len(), reports[0].state(), reports[0].troubles[0].count),
        (1, State::Reserved, 2)
    );
    assert_eq!(reports[0].troubles[0].reason, "CreationFailed");
    bench.pass(Time::from_secs(1)).answer(Outcome::Object(Box::new(Object::Job(job(1)))));
    assert!(bench.reported().iter().all(|it| it.troubles.is_empty()), "it is there");
}

#[test]
fn trouble_is_reported_for_its_attempt_until_over() {
    let troubles = |reason: &str| {
        let one =
            switchyard_proto::v1::JobTrouble { reason: reason.to_owned(), ..Default::default() };
        if reason.is_empty() { Vec::new() } else { vec![one] }
    };
    let see = |bench: &mut Bench, attempt, reason: &str| {
        bench.observe(WatchEvent::Troubles {
            workload_uid: UID.to_owned(),
            attempt,
            troubles: troubles(reason),
            no_ready_pod: false,
        });
        bench.now += Time::from_secs(1);
        bench.reported().into_iter().map(|it| it.troubles).collect::<Vec<_>>()
    };
    let mut bench = Bench::running();
    assert_eq!(see(&mut bench, 1, "Unschedulable"), [troubles("Unschedulable")]);
    assert!(see(&mut bench, 1, "Unschedulable").is_empty(), "once");
    assert_eq!(see(&mut bench, 1, "ImagePull"), [troubles("ImagePull")]);
    assert_eq!(see(&mut bench, 1, ""), [troubles("")]);
    assert!(see(&mut bench, 2, "Volume").is_empty(), "of no attempt that is here");
    bench.observe(WatchEvent::Troubles {
        workload_uid: "stranger".to_owned(),
        attempt: 1,
        troubles: troubles("Volume"),
        no_ready_pod: false,
    });
    assert_eq!(bench.ledger.len(), 1);
}

#[test]
fn job_without_ready_pod_is_reported_for_its_attempt() {
    let see = |bench: &mut Bench, attempt, no_ready_pod| {
        bench.observe(WatchEvent::Troubles {
            workload_uid: UID.to_owned(),
            attempt,
            troubles: Vec::new(),
            no_ready_pod,
        });
        bench.now += Time::from_secs(1);
        bench.reported().into_iter().map(|it| it.no_ready_pod).collect::<Vec<_>>()
    };
    let mut bench = Bench::running();
    assert_eq!(see(&mut bench, 1, true), [true]);
    assert!(see(&mut bench, 1, true).is_empty(), "once");
    assert_eq!(see(&mut bench, 1, false), [false]);
    assert!(see(&mut bench, 2, true).is_empty(), "of no attempt that is here");
    assert_eq!(bench.ledger.len(), 1);
}
