//! Deletion: what the agent deletes, and what it never does.

use rstest::rstest;
use switchyard_proto::DELETED_ON_WORKER;
use switchyard_proto::v1::{Phase, State};

use super::build::*;
use crate::*;

#[test]
fn tombstone_deletes_job_and_reports_gone_after_pods() {
    let mut bench = Bench::running();
    bench.assign(1, Phase::Absent);
    let verbs: Vec<&Verb> = bench.actions.iter().map(|action| &action.verb).collect();
    assert_eq!(
        verbs,
        [&Verb::Delete { target: target(ObjectKind::Job, UID, 1), foreground: true }]
    );
    bench.answer(Outcome::Accepted);
    assert_eq!(bench.observe(job(1).running().deleting().applied()).new_actions(), ["release Job"]);
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1).deleting().released()))));
    assert!(bench.reported_states().is_empty(), "something is left");
    bench.observe(gone(ObjectKind::Workload, 1)).observe(gone(ObjectKind::Job, 1));
    assert_eq!(bench.reported_states(), [(1, State::Gone)]);
    assert_eq!(bench.ledger.len(), 1, "remembered until the hub knows");
    assert_eq!(bench.persist().ledger.len(), 0);
}

#[test]
fn workload_outliving_its_job_is_deleted() {
    let mut bench = Bench::running();
    bench.assign(1, Phase::Absent).answer(Outcome::Accepted).observe(gone(ObjectKind::Job, 1));
    assert!(bench.new_actions().is_empty(), "the garbage collector has its time");
    assert_eq!(bench.pass(Time::from_secs(5)).new_actions(), ["delete Workload"]);
}

/// A running job under attempt 1 whose Workload has no owner.
fn running_apart() -> Bench {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench
        .observe(workload(1).admitted().applied())
        .answer(Outcome::Object(Box::new(Object::Job(job(1)))));
    bench.observe(job(1).running().applied());
    assert_eq!(bench.reported_states().last(), Some(&(1, State::Running)));
    bench
}

#[test]
fn unowned_workload_is_deleted_after_its_job() {
    let mut bench = running_apart();
    assert_eq!(bench.assign(1, Phase::Absent).new_actions(), ["delete Job"]);
    bench.answer(Outcome::Accepted).observe(job(1).running().deleting().applied());
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1).running().deleting().released()))));
    assert!(bench.new_actions().is_empty(), "its pods may still run");
    assert_eq!(bench.observe(gone(ObjectKind::Job, 1)).new_actions(), ["delete Workload"]);
}

#[test]
fn unowned_workload_is_deleted_once_end_is_persisted() {
    let mut bench = running_apart();
    bench.observe(job(1).ended(true).applied());
    assert_eq!(bench.reported_states(), [(1, State::Succeeded)]);
    bench.persist().assign(1, Phase::Absent);
    assert_eq!(bench.new_actions(), ["release Job", "delete Workload"]);
}

#[test]
fn restarted_agent_deletes_leftovers() {
    for left in [job(1).ended(true).released().applied(), workload(1).admitted().applied()] {
        let mut bench = Bench::new();
        bench.observe(left).connect();
        bench.reported_states();
        bench.persist().assign(1, Phase::Absent);
        assert_eq!(bench.new_actions().len(), 1, "{:?}", bench.new_actions());
        assert!(bench.new_actions()[0].starts_with("delete"), "{:?}", bench.new_actions());
    }
}

#[test]
fn withdrawn_reservation_is_deleted_at_once() {
    let mut bench = Bench::open();
    bench
        .assign(1, Phase::Reserve)
        .answer(Outcome::Object(Box::new(Object::Workload(workload(1).admitted()))));
    assert_eq!(bench.assign(1, Phase::Absent).new_actions(), ["delete Workload"]);
    bench.answer(Outcome::Gone);
    assert_eq!(bench.reported_states(), [(1, State::Reserved), (1, State::Gone)]);
}

#[test]
fn tombstone_without_objects_reports_gone_each_session() {
    let mut bench = Bench::open();
    bench.assign(4, Phase::Absent);
    assert_eq!(bench.reported_states(), [(4, State::Gone)]);
    bench.connect();
    assert_eq!(bench.reported_states(), [(4, State::Gone)]);
    bench.persist();
    assert!(bench.ledger.is_empty());
}

/// The hub keeps the tombstone until the agent answers it.
#[test]
fn gone_from_before_the_tombstone_does_not_answer_it() {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Reserve);
    bench.answer(Outcome::Rejected(Rejection::refused("Why", "not here")));
    bench.desire(Vec::new(), true).unwrap();
    assert_eq!(bench.reported_states().last(), Some(&(1, State::Gone)));
    // The hub has not processed that yet.
    bench.assign(1, Phase::Reserve);
    assert_eq!(bench.new_actions(), ["create Workload"]);
    bench.assign(1, Phase::Absent);
    bench.persist();
    assert!(bench.reported_states().is_empty(), "it may still be created");
    bench.answer(Outcome::Rejected(Rejection::refused("Why", "not here")));
    assert_eq!(bench.reported_states(), [(1, State::Gone)]);
    assert!(bench.persist().ledger.is_empty());
}

#[test]
fn higher_attempt_deletes_lower_before_it_starts() {
    let mut bench = Bench::running();
    assert_eq!(bench.assign(2, Phase::Run).new_actions(), ["delete Job"]);
    bench.answer(Outcome::Accepted).observe(job(1).deleting().applied());
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1).deleting().released()))));
    bench.observe(gone(ObjectKind::Workload, 1));
    assert!(bench.new_actions().is_empty(), "its job is still there");
    assert_eq!(bench.observe(gone(ObjectKind::Job, 1)).new_actions(), ["create Workload"]);
}

#[test]
fn higher_attempt_does_not_use_lower_reservation() {
    let mut bench = Bench::open();
    bench
        .assign(1, Phase::Reserve)
        .answer(Outcome::Object(Box::new(Object::Workload(workload(1).admitted()))));
    assert_eq!(bench.assign(2, Phase::Run).new_actions(), ["delete Workload"]);
}

#[rstest]
#[case::a_lower_attempt_to_run(1, Phase::Run)]
#[case::a_lower_attempts_tombstone(1, Phase::Absent)]
#[case::a_step_back_within_the_attempt(2, Phase::Reserve)]
fn late_assignment_changes_nothing(#[case] attempt: u64, #[case] phase: Phase) {
    let mut bench = Bench::open();
    bench.assign(2, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(2)))));
    bench
        .observe(workload(2).admitted().applied())
        .answer(Outcome::Object(Box::new(Object::Job(job(2)))));
    bench.reported_states();
    bench.assign(attempt, phase);
    assert!(bench.new_actions().is_empty());
    assert!(bench.reported_states().is_empty());
}

#[test]
fn higher_attempt_than_desired_is_reported_and_kept() {
    let mut bench = Bench::new();
    bench.observe(workload(5).admitted().owned().applied()).observe(job(5).running().applied());
    bench.connect();
    assert_eq!(bench.reported_states(), [(5, State::Running)]);
    bench.assign(3, Phase::Absent).assign(4, Phase::Run);
    assert!(bench.new_actions().is_empty());
    assert_eq!(bench.assign(5, Phase::Absent).new_actions(), ["delete Job"]);
}

#[test]
fn objects_missing_in_snapshot_are_reported_and_kept() {
    let mut bench = Bench::running();
    bench.desire(Vec::new(), true).unwrap();
    assert!(bench.new_actions().is_empty());
    assert_eq!(bench.reported_states(), [(1, State::Running)], "with its origin");
    bench.observe(job(1).ended(true).applied());
    assert_eq!(bench.reported_states(), [(1, State::Succeeded)]);
    bench.pass(Time::from_secs(3600));
    assert!(bench.new_actions().is_empty());
}

#[test]
fn unassigned_end_is_kept_until_assigned() {
    let mut bench = Bench::running();
    bench.desire(Vec::new(), true).unwrap();
    bench.observe(job(1).ended(true).applied());
    let reports = bench.reported();
    let origin = reports[0].origin.clone().expect("what it was made of");
    assert_eq!(
        (origin.kind.as_str(), origin.job_name.as_str(), origin.has_job),
        ("batch/v1, Kind=Job", "a", true)
    );
    assert!(
        bench.persist().new_actions().is_empty(),
        "a hub that has forgotten it may come to know it again"
    );
    assert_eq!(bench.assign(1, Phase::Absent).new_actions(), ["release Job"]);
}

#[test]
fn job_without_workload_reports_origin() {
    let mut bench = Bench::running();
    bench.observe(gone(ObjectKind::Workload, 1)).connect();
    bench.desire(Vec::new(), true).unwrap();
    let reports = bench.reported();
    assert_eq!(
        reports[0].origin.as_ref().map(|origin| (origin.job_name.as_str(), origin.has_job)),
        Some(("a", true))
    );
}

#[test]
fn unassigned_job_without_workload_reports_running() {
    let mut bench = Bench::new();
    bench.observe(job(3).running().applied()).connect();
    let reports = bench.reported();
    let said: Vec<_> =
        reports.iter().map(|it| (it.attempt, it.state(), it.reasons[0].code.as_str())).collect();
    assert_eq!(
        said,
        [(3, State::Running, DELETED_ON_WORKER)],
        "its hub must not take it for one that is over"
    );
    assert_eq!(bench.observe(job(3).applied()).reported_states(), [(3, State::Evicted)]);
    assert!(bench.new_actions().is_empty());
}

#[test]
fn job_being_created_counts_in_origin() {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    let has_job = |bench: &mut Bench| {
        bench.reported().pop().and_then(|reports| reports.origin).expect("its origin").has_job
    };
    bench.connect();
    assert!(!has_job(&mut bench));
    assert_eq!(
        bench.observe(workload(1).admitted().applied()).new_actions().last().map(String::as_str),
        Some("create Job")
    );
    bench.connect();
    assert!(has_job(&mut bench));
}

#[test]
fn unpersisted_end_precedes_tombstone() {
    let mut bench = Bench::running();
    bench.observe(job(1).ended(true).applied()).assign(1, Phase::Absent);
    assert!(bench.new_actions().is_empty(), "the hub does not know of it");
    assert_eq!(bench.reported_states(), [(1, State::Succeeded)]);
    assert_eq!(bench.persist().new_actions(), ["release Job"]);
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1).ended(true).released()))));
    let verbs: Vec<&Verb> = bench.actions.iter().map(|action| &action.verb).collect();
    assert_eq!(
        verbs,
        [&Verb::Delete { target: target(ObjectKind::Job, UID, 1), foreground: false }]
    );
}

#[test]
fn end_is_reported_each_session_until_persisted() {
    let mut bench = Bench::running();
    bench.observe(job(1).ended(false).applied());
    assert_eq!(bench.reported_states(), [(1, State::Failed)]);
    bench.connect();
    assert_eq!(bench.reported_states(), [(1, State::Failed)], "the inventory of the next session");
    assert!(bench.new_actions().is_empty());
    assert_eq!(bench.persist().new_actions(), ["release Job"]);
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1).ended(false).released()))));
    bench.observe(gone(ObjectKind::Job, 1)).observe(gone(ObjectKind::Workload, 1));
    assert!(bench.new_actions().is_empty(), "it never runs again");
}

/// The hub lost its store with the end. It reads the inventory before the end, and orders the job
/// to run.
#[test]
fn order_that_crosses_an_end_does_not_run_it_again() {
    let mut bench = Bench::running();
    bench.observe(job(1).ended(true).applied()).reported_states();
    bench.persist().answer(Outcome::Object(Box::new(Object::Job(job(1).ended(true).released()))));
    bench.connect();
    assert_eq!(bench.reported_states(), [(1, State::Succeeded)]);
    bench.desire(Vec::new(), true).unwrap();
    bench.observe(gone(ObjectKind::Job, 1)).observe(gone(ObjectKind::Workload, 1));
    bench.reported_states();
    assert!(bench.assign(1, Phase::Run).new_actions().is_empty());
    assert!(bench.persist().assign(1, Phase::Absent).new_actions().is_empty());
}

#[test]
fn earlier_acknowledgement_does_not_release_end() {
    let mut bench = Bench::running();
    let before = bench.sequence;
    bench.observe(job(1).ended(true).applied()).reported_states();
    bench.receive(switchyard_proto::v1::hub_message::Kind::ObservedAck(before)).unwrap();
    assert!(bench.new_actions().is_empty());
}

#[test]
fn job_deleted_by_others_ends_attempt() {
    let mut bench = Bench::running();
    bench.observe(job(1).running().deleting().applied());
    assert_eq!(bench.new_actions(), ["delete Job"], "its pods go first");
    assert!(matches!(bench.actions[0].verb, Verb::Delete { foreground: true, .. }));
    assert!(bench.answer(Outcome::Accepted).new_actions().is_empty(), "held until the hub knows");
    let reports = bench.reported();
    assert_eq!(
        (reports[0].state(), reports[0].reasons[0].code.as_str()),
        (State::Evicted, DELETED_ON_WORKER)
    );
    assert_eq!(bench.persist().new_actions(), ["release Job"]);
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1).deleting().released()))));
    bench.observe(gone(ObjectKind::Job, 1)).observe(gone(ObjectKind::Workload, 1));
    assert!(bench.new_actions().is_empty());
    assert_eq!(bench.assign(2, Phase::Run).new_actions(), ["create Workload"]);
}

#[test]
fn copy_under_other_name_is_ignored() {
    let mut bench = Bench::running();
    let mut copy = job(1).running();
    copy.meta.target =
        Target { name: "copy".to_owned(), uid: "copy".to_owned(), ..copy.meta.target };
    bench.observe(copy.applied()).assign(1, Phase::Absent);
    let verbs: Vec<&Verb> = bench.actions.iter().map(|action| &action.verb).collect();
    assert_eq!(
        verbs,
        [&Verb::Delete { target: target(ObjectKind::Job, UID, 1), foreground: true }]
    );
}

#[test]
fn object_missing_in_list_is_read_again() {
    let mut bench = Bench::running();
    let uids = std::collections::BTreeSet::new();
    bench.observe(WatchEvent::Listed { kind: ObjectKind::Job, gvk: JOB_GVK.into(), uids });
    assert_eq!(bench.new_actions(), ["reread Job"]);
    bench.answer(Outcome::Gone);
    assert_eq!(bench.reported_states(), [(1, State::Evicted)]);
    assert!(
        bench.new_actions().is_empty(),
        "its pods may still run: the hub has to begin a new attempt"
    );
}

#[test]
fn object_missing_in_list_is_read_until_answered() {
    let mut bench = Bench::running();
    let lacks = || WatchEvent::Listed {
        kind: ObjectKind::Job,
        gvk: JOB_GVK.into(),
        uids: std::collections::BTreeSet::new(),
    };
    bench.observe(lacks()).answer(Outcome::Unknown("no answer".to_owned()));
    assert!(bench.new_actions().is_empty());
    assert_eq!(bench.pass(Time::from_secs(1)).new_actions(), ["reread Job"]);
    bench.answer(Outcome::Unknown("no answer".to_owned())).pass(Time::from_secs(2));
    bench.answer(Outcome::Gone);
    assert_eq!(bench.reported_states(), [(1, State::Evicted)]);

    // The read waits for the running action.
    let mut bench = Bench::running();
    bench.assign(1, Phase::Absent);
    assert_eq!(bench.new_actions(), ["delete Job"]);
    bench.observe(lacks()).answer(Outcome::Unknown("no answer".to_owned()));
    assert_eq!(bench.pass(Time::from_secs(1)).new_actions(), ["reread Job"]);
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1).running()))));
    assert_eq!(bench.new_actions(), ["delete Job"], "it is there, and goes");
}

#[test]
fn older_object_state_is_ignored() {
    let mut bench = Bench::running();
    let mut newer = job(1).ended(true);
    newer.meta.version = 20;
    let mut older = job(1).running();
    older.meta.version = 10;
    bench.observe(newer.applied()).observe(older.applied());
    assert_eq!(bench.reported_states(), [(1, State::Succeeded)]);
    let mut newer = workload(1).pending("WaitingForQuota", "");
    newer.meta.version = 20;
    let mut older = workload(1).admitted();
    older.meta.version = 10;
    let mut bench = Bench::open();
    bench.assign(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(newer))));
    assert!(bench.observe(older.applied()).new_actions().is_empty());
}

#[test]
fn late_lower_attempt_does_not_replace_higher() {
    let mut bench = Bench::open();
    bench.assign(2, Phase::Reserve).answer(Outcome::Unknown("down".to_owned()));
    bench.assign(1, Phase::Reserve).pass(Time::from_secs(1));
    let attempts: Vec<u64> = bench
        .actions
        .iter()
        .filter_map(|action| match &action.verb {
            Verb::Create { attempt, .. } => Some(*attempt),
            _ => None,
        })
        .collect();
    assert_eq!(attempts, [2]);
}

#[test]
fn object_without_marks_is_never_touched() {
    let mut bench = Bench::running();
    bench.observe(WatchEvent::Disowned {
        kind: ObjectKind::Job,
        target: target(ObjectKind::Job, UID, 1),
    });
    assert_eq!(bench.reported_states(), [(1, State::Evicted)]);
    bench.persist().assign(1, Phase::Absent);
    assert!(
        bench.new_actions().iter().all(|action| !action.ends_with("Job")),
        "{:?}",
        bench.new_actions()
    );
}

#[test]
fn late_event_of_earlier_attempt_is_not_reported() {
    let mut bench = Bench::open();
    bench
        .assign(2, Phase::Reserve)
        .answer(Outcome::Object(Box::new(Object::Workload(workload(2)))));
    assert_eq!(bench.reported_states(), [(2, State::Waiting)]);
    bench.observe(job(1).running().applied()).observe(workload(2).admitted().applied());
    assert_eq!(
        bench.reported_states(),
        [],
        "it would say that the earlier one is gone, or that the later one runs"
    );
    bench.observe(gone(ObjectKind::Job, 1));
    assert_eq!(bench.reported_states(), [(2, State::Reserved)]);
}

#[rstest::rstest]
#[case::sent_at_once(0)]
#[case::that_waited_long_for_its_turn(100)]
fn unanswered_creation_may_take_effect_for_a_minute(#[case] waited: u64) {
    let lost = || {
        let mut bench = Bench::open();
        bench
            .assign(1, Phase::Reserve)
            .pass(Time::from_secs(waited))
            .answer(Outcome::Unknown("no answer".to_owned()));
        assert_eq!(bench.assign(1, Phase::Absent).new_actions(), ["find Workload"]);
        bench.answer(Outcome::Gone);
        assert_eq!(
            bench.reported_states(),
            [],
            "to say that it is gone would let the hub begin elsewhere"
        );
        assert_eq!(bench.pass(Time::from_secs(30)).new_actions(), ["find Workload"]);
        bench
    };
    let mut comes = lost();
    comes.answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    assert_eq!(comes.new_actions(), ["delete Workload"]);

    let mut never = lost();
    never.answer(Outcome::Gone).pass(Time::from_secs(30));
    never.answer(Outcome::Gone);
    assert_eq!(never.reported_states(), [(1, State::Gone)]);
}
