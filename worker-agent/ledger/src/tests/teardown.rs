//! What is deleted, and what never.

use rstest::rstest;
use switchyard_proto::DELETED_ON_WORKER;
use switchyard_proto::v1::{Phase, State};

use super::super::*;
use super::build::*;

#[test]
fn a_tombstone_deletes_a_running_job_waits_for_its_pods_and_then_says_gone() {
    let mut bench = Bench::running();
    bench.want(1, Phase::Absent);
    let verbs: Vec<&Verb> = bench.actions.iter().map(|action| &action.verb).collect();
    assert_eq!(verbs, [&Verb::Delete { target: target(Kind::Job, UID, 1), foreground: true }]);
    bench.answer(Outcome::Accepted);
    assert_eq!(bench.see(job(1).running().deleting().seen()).asked(), ["release Job"]);
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1).deleting().released()))));
    assert!(bench.heard().is_empty(), "something is left");
    bench.see(gone(Kind::Workload, 1)).see(gone(Kind::Job, 1));
    assert_eq!(bench.heard(), [(1, State::Gone)]);
    assert_eq!(bench.ledger.len(), 1, "remembered until the hub knows");
    assert_eq!(bench.persist().ledger.len(), 0);
}

#[test]
fn a_workload_that_does_not_follow_its_job_into_the_grave_is_sent_after_it() {
    let mut bench = Bench::running();
    bench.want(1, Phase::Absent).answer(Outcome::Accepted).see(gone(Kind::Job, 1));
    assert!(bench.asked().is_empty(), "the garbage collector has its time");
    assert_eq!(bench.pass(Time::from_secs(5)).asked(), ["delete Workload"]);
}

/// Up to a job that runs under attempt 1, and that its Workload does not follow by itself.
fn running_apart() -> Bench {
    let mut bench = Bench::open();
    bench.want(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench.see(workload(1).admitted().seen()).answer(Outcome::Object(Box::new(Object::Job(job(1)))));
    bench.see(job(1).running().seen());
    assert_eq!(bench.heard().last(), Some(&(1, State::Running)));
    bench
}

#[test]
fn a_workload_that_nobody_owns_keeps_its_quota_until_its_job_is_gone_and_then_goes_at_once() {
    let mut bench = running_apart();
    assert_eq!(bench.want(1, Phase::Absent).asked(), ["delete Job"]);
    bench.answer(Outcome::Accepted).see(job(1).running().deleting().seen());
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1).running().deleting().released()))));
    assert!(bench.asked().is_empty(), "its pods may still run");
    assert_eq!(bench.see(gone(Kind::Job, 1)).asked(), ["delete Workload"]);
}

#[test]
fn a_workload_that_nobody_owns_goes_when_the_end_of_its_job_is_known() {
    let mut bench = running_apart();
    bench.see(job(1).ended(true).seen());
    assert_eq!(bench.heard(), [(1, State::Succeeded)]);
    bench.persist().want(1, Phase::Absent);
    assert_eq!(bench.asked(), ["release Job", "delete Workload"]);
}

#[test]
fn an_agent_that_begins_anew_collects_what_is_left_of_either() {
    for left in [job(1).ended(true).released().seen(), workload(1).admitted().seen()] {
        let mut bench = Bench::new();
        bench.see(left).connect();
        bench.heard();
        bench.persist().want(1, Phase::Absent);
        assert_eq!(bench.asked().len(), 1, "{:?}", bench.asked());
        assert!(bench.asked()[0].starts_with("delete"), "{:?}", bench.asked());
    }
}

#[test]
fn a_reservation_withdrawn_is_deleted_at_once() {
    let mut bench = Bench::open();
    bench
        .want(1, Phase::Reserve)
        .answer(Outcome::Object(Box::new(Object::Workload(workload(1).admitted()))));
    assert_eq!(bench.want(1, Phase::Absent).asked(), ["delete Workload"]);
    bench.answer(Outcome::Gone);
    assert_eq!(bench.heard(), [(1, State::Reserved), (1, State::Gone)]);
}

#[test]
fn a_tombstone_for_what_never_was_is_answered_at_once_and_again_in_each_session() {
    let mut bench = Bench::open();
    bench.want(4, Phase::Absent);
    assert_eq!(bench.heard(), [(4, State::Gone)]);
    bench.connect();
    assert_eq!(bench.heard(), [(4, State::Gone)]);
    bench.persist();
    assert!(bench.ledger.is_empty());
}

#[test]
fn a_higher_attempt_tears_the_lower_down_before_it_begins() {
    let mut bench = Bench::running();
    assert_eq!(bench.want(2, Phase::Run).asked(), ["delete Job"]);
    bench.answer(Outcome::Accepted).see(job(1).deleting().seen());
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1).deleting().released()))));
    bench.see(gone(Kind::Workload, 1));
    assert!(bench.asked().is_empty(), "its job is still there");
    assert_eq!(bench.see(gone(Kind::Job, 1)).asked(), ["create Workload"]);
}

#[test]
fn a_higher_attempt_does_not_run_on_the_reservation_of_a_lower_one() {
    let mut bench = Bench::open();
    bench
        .want(1, Phase::Reserve)
        .answer(Outcome::Object(Box::new(Object::Workload(workload(1).admitted()))));
    assert_eq!(bench.want(2, Phase::Run).asked(), ["delete Workload"]);
}

#[rstest]
#[case::a_lower_attempt_to_run(1, Phase::Run)]
#[case::a_lower_attempts_tombstone(1, Phase::Absent)]
#[case::a_step_back_within_the_attempt(2, Phase::Reserve)]
fn what_is_late_changes_nothing(#[case] attempt: u64, #[case] phase: Phase) {
    let mut bench = Bench::open();
    bench.want(2, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(2)))));
    bench.see(workload(2).admitted().seen()).answer(Outcome::Object(Box::new(Object::Job(job(2)))));
    bench.heard();
    bench.want(attempt, phase);
    assert!(bench.asked().is_empty());
    assert!(bench.heard().is_empty());
}

#[test]
fn objects_of_a_higher_attempt_than_the_hub_remembers_are_reported_and_left_alone() {
    let mut bench = Bench::new();
    bench.see(workload(5).admitted().owned().seen()).see(job(5).running().seen());
    bench.connect();
    assert_eq!(bench.heard(), [(5, State::Running)]);
    bench.want(3, Phase::Absent).want(4, Phase::Run);
    assert!(bench.asked().is_empty());
    assert_eq!(bench.want(5, Phase::Absent).asked(), ["delete Job"]);
}

#[test]
fn what_a_snapshot_does_not_name_is_reported_and_never_deleted() {
    let mut bench = Bench::running();
    bench.desire(Vec::new(), true).unwrap();
    assert!(bench.asked().is_empty());
    bench.see(job(1).ended(true).seen());
    assert_eq!(bench.heard(), [(1, State::Succeeded)]);
    bench.pass(Time::from_secs(3600));
    assert!(bench.asked().is_empty());
}

#[test]
fn the_end_of_what_is_not_desired_is_kept_until_somebody_wants_it() {
    let mut bench = Bench::running();
    bench.desire(Vec::new(), true).unwrap();
    bench.see(job(1).ended(true).seen());
    let told = bench.told();
    let origin = told[0].origin.clone().expect("what it was made of");
    assert_eq!(
        (origin.kind.as_str(), origin.job_name.as_str(), origin.has_job),
        ("batch/v1, Kind=Job", "a", true)
    );
    assert!(
        bench.persist().asked().is_empty(),
        "a hub that has forgotten it may come to know it again"
    );
    assert_eq!(bench.want(1, Phase::Absent).asked(), ["release Job"]);
}

#[test]
fn a_job_without_its_workload_still_says_what_it_was_made_of() {
    let mut bench = Bench::running();
    bench.see(gone(Kind::Workload, 1)).connect();
    bench.desire(Vec::new(), true).unwrap();
    let told = bench.told();
    assert_eq!(
        told[0].origin.as_ref().map(|origin| (origin.job_name.as_str(), origin.has_job)),
        Some(("a", true))
    );
}

#[test]
fn a_job_that_nobody_asks_for_runs_on_without_its_workload_until_it_is_stopped() {
    let mut bench = Bench::new();
    bench.see(job(3).running().seen()).connect();
    let told = bench.told();
    let said: Vec<_> =
        told.iter().map(|it| (it.attempt, it.state(), it.reasons[0].code.as_str())).collect();
    assert_eq!(
        said,
        [(3, State::Running, DELETED_ON_WORKER)],
        "its hub must not take it for one that is over"
    );
    assert_eq!(bench.see(job(3).seen()).heard(), [(3, State::Evicted)]);
    assert!(bench.asked().is_empty());
}

#[test]
fn a_job_that_is_being_made_may_be_there() {
    let mut bench = Bench::open();
    bench.want(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    let has_job = |bench: &mut Bench| {
        bench.told().pop().and_then(|told| told.origin).expect("its origin").has_job
    };
    bench.connect();
    assert!(!has_job(&mut bench));
    assert_eq!(
        bench.see(workload(1).admitted().seen()).asked().last().map(String::as_str),
        Some("create Job")
    );
    bench.connect();
    assert!(has_job(&mut bench));
}

#[test]
fn an_end_that_is_not_persisted_goes_before_a_tombstone() {
    let mut bench = Bench::running();
    bench.see(job(1).ended(true).seen()).want(1, Phase::Absent);
    assert!(bench.asked().is_empty(), "the hub does not know of it");
    assert_eq!(bench.heard(), [(1, State::Succeeded)]);
    assert_eq!(bench.persist().asked(), ["release Job"]);
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1).ended(true).released()))));
    let verbs: Vec<&Verb> = bench.actions.iter().map(|action| &action.verb).collect();
    assert_eq!(verbs, [&Verb::Delete { target: target(Kind::Job, UID, 1), foreground: false }]);
}

#[test]
fn an_end_is_kept_until_it_is_persisted_and_told_in_every_session() {
    let mut bench = Bench::running();
    bench.see(job(1).ended(false).seen());
    assert_eq!(bench.heard(), [(1, State::Failed)]);
    bench.connect();
    assert_eq!(bench.heard(), [(1, State::Failed)], "the inventory of the next session");
    assert!(bench.asked().is_empty());
    assert_eq!(bench.persist().asked(), ["release Job"]);
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1).ended(false).released()))));
    bench.see(gone(Kind::Job, 1)).see(gone(Kind::Workload, 1));
    assert!(bench.asked().is_empty(), "it never runs again");
}

#[test]
fn an_acknowledgement_of_what_came_before_the_end_does_not_release_it() {
    let mut bench = Bench::running();
    let before = bench.sequence;
    bench.see(job(1).ended(true).seen()).heard();
    bench.say(switchyard_proto::v1::hub_message::Kind::ObservedAck(before)).unwrap();
    assert!(bench.asked().is_empty());
}

#[test]
fn a_job_deleted_by_somebody_else_ends_the_attempt_and_is_not_made_again() {
    let mut bench = Bench::running();
    bench.see(job(1).running().deleting().seen());
    assert_eq!(bench.asked(), ["delete Job"], "its pods go first");
    assert!(matches!(bench.actions[0].verb, Verb::Delete { foreground: true, .. }));
    assert!(bench.answer(Outcome::Accepted).asked().is_empty(), "held until the hub knows");
    let told = bench.told();
    assert_eq!(
        (told[0].state(), told[0].reasons[0].code.as_str()),
        (State::Evicted, DELETED_ON_WORKER)
    );
    assert_eq!(bench.persist().asked(), ["release Job"]);
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1).deleting().released()))));
    bench.see(gone(Kind::Job, 1)).see(gone(Kind::Workload, 1));
    assert!(bench.asked().is_empty());
    assert_eq!(bench.want(2, Phase::Run).asked(), ["create Workload"]);
}

#[test]
fn a_copy_under_another_name_is_not_ours() {
    let mut bench = Bench::running();
    let mut copy = job(1).running();
    copy.meta.target =
        Target { name: "copy".to_owned(), uid: "copy".to_owned(), ..copy.meta.target };
    bench.see(copy.seen()).want(1, Phase::Absent);
    let verbs: Vec<&Verb> = bench.actions.iter().map(|action| &action.verb).collect();
    assert_eq!(verbs, [&Verb::Delete { target: target(Kind::Job, UID, 1), foreground: true }]);
}

#[test]
fn what_a_new_list_lacks_is_read_again() {
    let mut bench = Bench::running();
    let uids = std::collections::BTreeSet::new();
    bench.see(Seen::Listed { kind: Kind::Job, gvk: JOB_GVK.into(), uids });
    assert_eq!(bench.asked(), ["reread Job"]);
    bench.answer(Outcome::Gone);
    assert_eq!(bench.heard(), [(1, State::Evicted)]);
    assert!(bench.asked().is_empty(), "its pods may still run: the hub has to begin a new attempt");
}

#[test]
fn what_a_new_list_lacks_is_read_again_until_somebody_answers() {
    let mut bench = Bench::running();
    let lacks = || Seen::Listed {
        kind: Kind::Job,
        gvk: JOB_GVK.into(),
        uids: std::collections::BTreeSet::new(),
    };
    bench.see(lacks()).answer(Outcome::Failed("no answer".to_owned()));
    assert!(bench.asked().is_empty());
    assert_eq!(bench.pass(Time::from_secs(1)).asked(), ["reread Job"]);
    bench.answer(Outcome::Failed("no answer".to_owned())).pass(Time::from_secs(2));
    bench.answer(Outcome::Gone);
    assert_eq!(bench.heard(), [(1, State::Evicted)]);

    // While something else is under way for it, it waits.
    let mut bench = Bench::running();
    bench.want(1, Phase::Absent);
    assert_eq!(bench.asked(), ["delete Job"]);
    bench.see(lacks()).answer(Outcome::Failed("no answer".to_owned()));
    assert_eq!(bench.pass(Time::from_secs(1)).asked(), ["reread Job"]);
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1).running()))));
    assert_eq!(bench.asked(), ["delete Job"], "it is there, and goes");
}

#[test]
fn an_older_state_of_an_object_is_ignored() {
    let mut bench = Bench::running();
    let mut newer = job(1).ended(true);
    newer.meta.version = 20;
    let mut older = job(1).running();
    older.meta.version = 10;
    bench.see(newer.seen()).see(older.seen());
    assert_eq!(bench.heard(), [(1, State::Succeeded)]);
    let mut newer = workload(1).pending("WaitingForQuota", "");
    newer.meta.version = 20;
    let mut older = workload(1).admitted();
    older.meta.version = 10;
    let mut bench = Bench::open();
    bench.want(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(newer))));
    assert!(bench.see(older.seen()).asked().is_empty());
}

#[test]
fn a_late_lower_attempt_does_not_replace_the_higher_one() {
    let mut bench = Bench::open();
    bench.want(2, Phase::Reserve).answer(Outcome::Failed("down".to_owned()));
    bench.want(1, Phase::Reserve).pass(Time::from_secs(1));
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
fn an_object_that_lost_our_marks_is_never_touched_again() {
    let mut bench = Bench::running();
    bench.see(Seen::Disowned { kind: Kind::Job, target: target(Kind::Job, UID, 1) });
    assert_eq!(bench.heard(), [(1, State::Evicted)]);
    bench.persist().want(1, Phase::Absent);
    assert!(bench.asked().iter().all(|action| !action.ends_with("Job")), "{:?}", bench.asked());
}

#[test]
fn late_news_of_an_earlier_attempts_job_is_not_said_of_the_later_one() {
    let mut bench = Bench::open();
    bench.want(2, Phase::Reserve).answer(Outcome::Object(Box::new(Object::Workload(workload(2)))));
    assert_eq!(bench.heard(), [(2, State::Waiting)]);
    bench.see(job(1).running().seen()).see(workload(2).admitted().seen());
    assert_eq!(
        bench.heard(),
        [],
        "it would say that the earlier one is gone, or that the later one runs"
    );
    bench.see(gone(Kind::Job, 1));
    assert_eq!(bench.heard(), [(2, State::Reserved)]);
}

#[rstest::rstest]
#[case::sent_at_once(0)]
#[case::that_waited_long_for_its_turn(100)]
fn a_creation_that_was_not_answered_may_yet_come_for_a_minute(#[case] waited: u64) {
    let lost = || {
        let mut bench = Bench::open();
        bench
            .want(1, Phase::Reserve)
            .pass(Time::from_secs(waited))
            .answer(Outcome::Failed("no answer".to_owned()));
        assert_eq!(bench.want(1, Phase::Absent).asked(), ["find Workload"]);
        bench.answer(Outcome::Gone);
        assert_eq!(bench.heard(), [], "to say that it is gone would let the hub begin elsewhere");
        assert_eq!(bench.pass(Time::from_secs(30)).asked(), ["find Workload"]);
        bench
    };
    let mut comes = lost();
    comes.answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    assert_eq!(comes.asked(), ["delete Workload"]);

    let mut never = lost();
    never.answer(Outcome::Gone).pass(Time::from_secs(30));
    never.answer(Outcome::Gone);
    assert_eq!(never.heard(), [(1, State::Gone)]);
}
