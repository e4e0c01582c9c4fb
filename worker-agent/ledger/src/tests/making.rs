//! What is made for an assignment, and when not.

use rstest::rstest;
use switchyard_proto::v1::{Phase, State};

use super::super::*;
use super::build::*;

#[test]
fn reserve_makes_the_workload_and_nothing_else() {
    let mut bench = Bench::open();
    assert_eq!(bench.want(1, Phase::Reserve).asked(), ["create Workload"]);
    bench.answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench.see(workload(1).admitted().seen());
    assert!(bench.asked().is_empty());
    assert_eq!(bench.heard(), [(1, State::Waiting), (1, State::Reserved)]);
}

#[test]
fn run_makes_the_job_once_the_worker_has_admitted_the_workload() {
    let mut bench = Bench::open();
    bench.want(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    assert!(bench.asked().is_empty(), "not admitted");
    assert_eq!(bench.see(workload(1).admitted().seen()).asked(), ["create Job"]);
}

#[test]
fn nothing_is_done_before_everything_has_been_listed() {
    let mut bench = Bench::open();
    let rules = Rules { hub_id: "hub".to_owned(), namespaces: AllowedNamespaces::All };
    bench.ledger = Ledger::new(rules);
    bench.connect();
    bench.want(1, Phase::Reserve);
    assert!(bench.asked().is_empty());
    assert!(bench.heard().is_empty(), "not even the inventory");
    assert_eq!(bench.see(Seen::Synced).asked(), ["create Workload"]);
}

#[test]
fn the_same_again_changes_nothing() {
    let mut bench = Bench::running();
    bench.want(1, Phase::Run).want(1, Phase::Reserve);
    bench.see(workload(1).admitted().owned().seen()).see(job(1).running().seen());
    assert!(bench.asked().is_empty());
    assert!(bench.heard().is_empty());
}

#[rstest]
#[case::an_object_in_the_way(
    Outcome::Refused(Trouble::refused("ObjectInTheWay", "x")),
    State::Refused
)]
#[case::no_such_namespace(Outcome::Refused(Trouble::unfit("NamespaceNotFound", "x")), State::Unfit)]
#[case::what_another_workload_left(Outcome::Occupied { by: "u0".to_owned() }, State::Waiting)]
fn what_cannot_be_made_is_reported_and_tried_again(#[case] outcome: Outcome, #[case] state: State) {
    let mut bench = Bench::open();
    bench.want(1, Phase::Reserve).answer(outcome);
    assert!(bench.asked().is_empty(), "not at once");
    assert_eq!(bench.heard(), [(1, state)]);
    assert_eq!(bench.pass(Time::from_millis(250)).asked(), ["create Workload"]);
    bench.answer(Outcome::Object(Box::new(Object::Workload(workload(1).admitted()))));
    assert_eq!(bench.heard(), [(1, State::Reserved)]);
}

#[test]
fn failures_are_tried_again_ever_more_slowly() {
    let mut bench = Bench::open();
    bench.want(1, Phase::Reserve).ledger.session_closed();
    let mut waits = Vec::new();
    for _ in 0..10 {
        bench.answer(Outcome::Failed("down".to_owned()));
        let wake = bench.ledger.next_wakeup().unwrap();
        waits.push((wake - bench.now).as_millis());
        bench.pass(wake - bench.now);
    }
    assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]);
    assert!(bench.heard().is_empty(), "an API server that is away is no state of a workload");
}

#[test]
fn a_namespace_that_is_not_allowed_is_refused_without_touching_the_cluster() {
    let mut bench = Bench::open();
    let only = AllowedNamespaces::Only(["other".to_owned()].into());
    bench.ledger = Ledger::new(Rules { hub_id: "hub".to_owned(), namespaces: only });
    bench.see(Seen::Synced).connect();
    bench.want(1, Phase::Reserve);
    assert!(bench.asked().is_empty());
    let told = bench.told();
    assert_eq!(told[0].state(), State::Refused);
    assert_eq!(told[0].reasons[0].code, "NamespaceNotAllowed");
}

#[test]
fn suspend_stops_the_job_through_its_workload_and_run_starts_it_again() {
    let mut bench = Bench::running();
    assert_eq!(bench.want(1, Phase::Suspend).asked(), ["deactivate Workload"]);
    let mut stopped = workload(1).admitted().owned();
    (stopped.active, stopped.suspended_by_us) = (false, true);
    bench.answer(Outcome::Object(Box::new(Object::Workload(stopped.clone()))));
    assert!(bench.heard().is_empty(), "its pods still run");
    stopped.evicted = yes("Deactivated");
    stopped.admitted = no("NoReservation", "");
    bench.see(Seen::Applied(Box::new(Object::Workload(stopped)))).see(job(1).seen());
    assert_eq!(bench.heard(), [(1, State::Suspended)]);
    assert_eq!(bench.want(1, Phase::Run).asked(), ["activate Workload"]);
    bench.answer(Outcome::Object(Box::new(Object::Workload(workload(1).admitted().owned()))));
    assert_eq!(bench.heard(), [(1, State::Running)]);
}

#[test]
fn what_the_workers_admin_deactivated_is_not_activated() {
    let mut bench = Bench::running();
    let mut stopped = workload(1).owned();
    stopped.active = false;
    stopped.evicted = yes("Deactivated");
    bench.see(stopped.seen()).see(job(1).seen());
    assert!(bench.asked().is_empty());
    assert_eq!(bench.heard(), [(1, State::Evicted)]);
}

fn of_class(workload: RemoteWorkload, class: &str, value: i32) -> RemoteWorkload {
    RemoteWorkload { priority: Some(Priority { class: class.to_owned(), value }), ..workload }
}

/// The hub wants the job to run with this priority.
fn prioritized(bench: &mut Bench, class: &str, value: i32) -> Vec<String> {
    let priority_class = class.to_owned();
    let wanted = switchyard_proto::v1::Assignment {
        priority: value,
        priority_class,
        ..assignment(UID, 1, Phase::Run)
    };
    bench.desire(vec![wanted], false).unwrap();
    bench.asked()
}

#[rstest]
#[case::another_class_of_another_value(Some(("low", 1)), ("high", 9), true)]
#[case::another_value_of_the_class(Some(("high", 1)), ("high", 9), true)]
#[case::what_it_is(Some(("high", 9)), ("high", 9), false)]
#[case::its_workload_has_no_class_of_its_own(None, ("high", 9), false)]
#[case::the_hub_says_nothing_of_a_class(Some(("low", 1)), ("", 9), false)]
fn a_priority_that_changes_while_the_job_runs_follows(
    #[case] has: Option<(&str, i32)>,
    #[case] (class, value): (&str, i32),
    #[case] follows: bool,
) {
    let mut bench = Bench::running();
    let there = workload(1).admitted().owned();
    let there = has.map_or(there.clone(), |(class, value)| of_class(there, class, value));
    bench.see(there.seen());
    let expected: &[&str] = if follows { &["set the priority of Workload"] } else { &[] };
    assert_eq!(prioritized(&mut bench, class, value), expected);
    if follows {
        let now = of_class(workload(1).admitted().owned(), class, value);
        bench.answer(Outcome::Object(Box::new(Object::Workload(now))));
        assert!(bench.asked().is_empty(), "once");
    }
}

#[test]
fn a_cluster_that_does_not_take_a_priority_keeps_the_job_and_is_asked_again_for_another() {
    let mut bench = Bench::running();
    bench.see(of_class(workload(1).admitted().owned(), "low", 1).seen());
    assert_eq!(prioritized(&mut bench, "high", 9), ["set the priority of Workload"]);
    bench.answer(Outcome::Refused(Trouble::refused("Forbidden", "no such class here")));
    assert!(bench.pass(Time::from_secs(60)).asked().is_empty());
    assert!(bench.heard().iter().all(|(_, state)| *state == State::Running), "not refused");
    assert_eq!(prioritized(&mut bench, "high", 8), ["set the priority of Workload"]);
}

#[test]
fn creation_that_fails_is_told_after_the_second_failure() {
    use switchyard_proto::v1::State;
    let failed = || Outcome::Rejected("the webhook is away".to_owned());
    let retry = |bench: &mut Bench| {
        bench.pass(Time::from_secs(1));
        bench.answer(failed());
    };
    let mut bench = Bench::open();
    bench.want(1, Phase::Reserve).answer(failed());
    assert_eq!(bench.heard(), [], "it may pass");
    retry(&mut bench);
    let told = bench.told();
    assert_eq!(
        (told.len(), told[0].state(), told[0].reasons[0].code.as_str()),
        (1, State::Waiting, "CreationFailed")
    );
    assert!(told[0].reasons[0].message.ends_with("the webhook is away"), "{told:?}");

    let mut bench = Bench::open();
    bench.want(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench.see(workload(1).admitted().seen()).answer(failed());
    assert!(bench.told().iter().all(|it| it.troubles.is_empty()), "it may pass");
    retry(&mut bench);
    bench.now += Time::from_secs(1);
    let told = bench.told();
    assert_eq!((told.len(), told[0].state(), told[0].troubles[0].count), (1, State::Reserved, 2));
    assert_eq!(told[0].troubles[0].reason, "CreationFailed");
    bench.pass(Time::from_secs(1)).answer(Outcome::Object(Box::new(Object::Job(job(1)))));
    assert!(bench.told().iter().all(|it| it.troubles.is_empty()), "it is there");
}

#[test]
fn trouble_is_told_for_its_attempt_until_it_is_over() {
    let troubles = |reason: &str| {
        let one =
            switchyard_proto::v1::JobTrouble { reason: reason.to_owned(), ..Default::default() };
        if reason.is_empty() { Vec::new() } else { vec![one] }
    };
    let see = |bench: &mut Bench, attempt, reason: &str| {
        bench.see(Seen::Troubles {
            workload_uid: UID.to_owned(),
            attempt,
            troubles: troubles(reason),
        });
        bench.now += Time::from_secs(1);
        bench.told().into_iter().map(|it| it.troubles).collect::<Vec<_>>()
    };
    let mut bench = Bench::running();
    assert_eq!(see(&mut bench, 1, "Unschedulable"), [troubles("Unschedulable")]);
    assert!(see(&mut bench, 1, "Unschedulable").is_empty(), "once");
    assert_eq!(see(&mut bench, 1, "ImagePull"), [troubles("ImagePull")]);
    assert_eq!(see(&mut bench, 1, ""), [troubles("")]);
    assert!(see(&mut bench, 2, "Volume").is_empty(), "of no attempt that is here");
    bench.see(Seen::Troubles {
        workload_uid: "stranger".to_owned(),
        attempt: 1,
        troubles: troubles("Volume"),
    });
    assert_eq!(bench.ledger.len(), 1);
}
