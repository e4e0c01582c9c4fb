//! Creations without an answer, and their late effects.

use switchyard_proto::v1::{Phase, State};

use super::build::*;
use crate::*;

const MINUTE: Time = Time::from_secs(60);

fn unanswered() -> Outcome {
    Outcome::Unknown("no answer".to_owned())
}

fn found(job: RemoteJob) -> Outcome {
    Outcome::Object(Box::new(Object::Job(job)))
}

/// Sets the outcome of the last of several actions.
fn answer_last(bench: &mut Bench, outcome: Outcome) {
    let action = bench.actions.pop().unwrap();
    let next = bench.ledger.on_outcome(&action, outcome, bench.now);
    bench.actions.extend(next);
}

/// A bench with a running job whose first creation was not answered, and whose second was.
fn made_twice() -> Bench {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench.observe(workload(1).admitted().applied()).answer(unanswered());
    assert_eq!(bench.pass(Time::from_millis(250)).new_actions(), ["create Job"]);
    bench.answer(found(job(1))).observe(job(1).running().applied());
    assert_eq!(bench.reported_states().last(), Some(&(1, State::Running)));
    bench
}

/// Continues to the job's persisted end and its tombstone.
fn ended_and_buried(owned: bool) -> Bench {
    let mut bench = made_twice();
    if owned {
        bench.observe(workload(1).admitted().owned().applied());
    }
    bench.observe(job(1).ended(true).applied()).reported_states();
    bench.persist().assign(1, Phase::Absent);
    bench
}

/// The object of a creation that takes effect once the first object of its name is deleted.
fn second(mut job: RemoteJob) -> RemoteJob {
    job.meta.target.uid = "second".to_owned();
    job
}

#[test]
fn ended_job_keeps_name_while_creation_is_late() {
    for owned in [false, true] {
        let mut bench = ended_and_buried(owned);
        assert_eq!(bench.new_actions(), ["delete Workload"], "its quota goes back");
        bench
            .answer(Outcome::Accepted)
            .observe(gone(ObjectKind::Workload, 1))
            .pass(Time::from_secs(50));
        assert!(bench.new_actions().is_empty(), "another job would take the name");
        assert_eq!(bench.pass(Time::from_secs(10)).new_actions(), ["release Job"]);
        bench.answer(found(job(1).ended(true).released()));
        assert_eq!(bench.new_actions(), ["delete Job"]);
        bench.answer(Outcome::Accepted);
        assert_eq!(bench.observe(gone(ObjectKind::Job, 1)).new_actions(), ["find Job"]);
        assert_eq!(bench.answer(Outcome::Gone).reported_states(), [(1, State::Gone)]);
    }
}

#[test]
fn gone_waits_for_late_creation_despite_later_answer() {
    let mut bench = made_twice();
    bench.assign(1, Phase::Absent).answer(Outcome::Accepted).observe(gone(ObjectKind::Job, 1));
    assert_eq!(bench.new_actions(), ["find Job", "delete Workload"]);
    answer_last(&mut bench, Outcome::Accepted);
    bench.answer(Outcome::Gone).observe(gone(ObjectKind::Workload, 1));
    assert!(bench.reported_states().is_empty());
    assert_eq!(bench.pass(MINUTE).new_actions(), ["find Job"]);
    assert_eq!(bench.answer(Outcome::Gone).reported_states(), [(1, State::Gone)]);
}

#[test]
fn late_object_is_removed_before_gone() {
    let mut bench = made_twice();
    bench.assign(1, Phase::Absent).answer(Outcome::Accepted).observe(gone(ObjectKind::Job, 1));
    assert_eq!(bench.new_actions(), ["find Job", "delete Workload"]);
    answer_last(&mut bench, Outcome::Accepted);
    assert_eq!(
        bench.answer(Outcome::Gone).observe(second(job(1)).applied()).new_actions(),
        ["delete Job"]
    );
    assert!(bench.reported_states().is_empty());
}

#[test]
fn second_unanswered_creation_may_follow_found_one() {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench.observe(workload(1).admitted().applied()).answer(unanswered());
    bench.pass(Time::from_millis(250)).answer(unanswered());
    bench.assign(1, Phase::Absent).reported_states();
    assert_eq!(bench.new_actions(), ["find Job", "delete Workload"]);
    answer_last(&mut bench, Outcome::Accepted);
    bench.answer(found(job(1))).answer(Outcome::Accepted);
    bench.observe(gone(ObjectKind::Workload, 1));
    assert_eq!(bench.observe(gone(ObjectKind::Job, 1)).new_actions(), ["find Job"]);
    assert!(bench.answer(Outcome::Gone).reported_states().is_empty());
}

#[test]
fn single_creation_takes_effect_once() {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench
        .observe(workload(1).admitted().applied())
        .answer(unanswered())
        .observe(job(1).running().applied())
        .reported_states();
    bench.observe(job(1).ended(true).applied()).reported_states();
    assert_eq!(
        bench.persist().assign(1, Phase::Absent).new_actions(),
        ["release Job", "delete Workload"]
    );
}

#[test]
fn answered_creation_is_not_awaited() {
    let mut bench = Bench::running();
    bench.observe(job(1).ended(true).applied()).reported_states();
    bench.persist().assign(1, Phase::Absent);
    bench.answer(found(job(1).ended(true).released())).answer(Outcome::Accepted);
    bench.observe(gone(ObjectKind::Job, 1)).observe(gone(ObjectKind::Workload, 1));
    assert_eq!(bench.reported_states(), [(1, State::Gone)]);
}

#[test]
fn repeated_tombstone_is_answered_again() {
    let mut bench = Bench::open();
    bench.assign(4, Phase::Absent);
    assert_eq!(bench.reported_states(), [(4, State::Gone)]);
    bench.assign(4, Phase::Run).pass(Time::from_secs(1));
    assert!(bench.new_actions().is_empty(), "an attempt that was buried does not come back");
    assert_eq!(bench.reported_states(), [(4, State::Gone)], "the hub must not wait for it");
    bench.assign(4, Phase::Absent).pass(Time::from_secs(1));
    assert_eq!(
        bench.reported_states(),
        [(4, State::Gone)],
        "the hub may have heard of it before it asked"
    );
}

#[test]
fn lower_tombstone_reports_gone() {
    let mut bench = Bench::open();
    bench.assign(5, Phase::Absent);
    assert_eq!(bench.reported_states(), [(5, State::Gone)]);
    bench.assign(4, Phase::Absent).pass(Time::from_secs(1));
    assert_eq!(
        bench.reported_states(),
        [(5, State::Gone)],
        "a hub whose store was lost asks for less than it did"
    );
    bench.assign(4, Phase::Run).pass(Time::from_secs(1));
    assert_eq!(bench.reported_states(), [(5, State::Gone)]);
}

#[test]
fn creation_not_applied_is_not_awaited() {
    let rejected = || Outcome::NotApplied("too many requests".to_owned());
    let reserving = || {
        let mut bench = Bench::open();
        bench.assign(1, Phase::Reserve);
        bench
    };
    let mut bench = reserving();
    bench.answer(rejected());
    assert!(
        bench.assign(1, Phase::Absent).new_actions().is_empty(),
        "there is nothing to look for"
    );
    assert_eq!(bench.reported_states(), [(1, State::Gone)]);

    let mut bench = reserving();
    assert!(bench.answer(rejected()).new_actions().is_empty());
    assert_eq!(
        bench.pass(Time::from_millis(250)).new_actions(),
        ["create Workload"],
        "it is tried again"
    );

    let mut bench = reserving();
    bench.answer(unanswered()).pass(Time::from_millis(250)).answer(rejected());
    assert_eq!(bench.reported_states(), [(1, State::Waiting)], "it fails again and again");
    assert_eq!(
        bench.assign(1, Phase::Absent).new_actions(),
        ["find Workload"],
        "the first try may have gone through"
    );
    bench.answer(rejected());
    assert!(bench.reported_states().is_empty());
    assert_eq!(bench.pass(MINUTE).new_actions(), ["find Workload"]);
    bench.answer(Outcome::Rejected(Rejection::refused("Forbidden", "nobody may look")));
    assert!(bench.reported_states().is_empty(), "what nobody may look for may be there");
}

#[test]
fn expired_creation_is_not_searched() {
    let mut bench = made_twice();
    bench.pass(MINUTE).pass(MINUTE).assign(1, Phase::Absent).answer(Outcome::Accepted);
    assert_eq!(bench.observe(gone(ObjectKind::Job, 1)).new_actions(), ["delete Workload"]);
    bench.answer(Outcome::Accepted).observe(gone(ObjectKind::Workload, 1));
    assert_eq!(bench.reported_states(), [(1, State::Gone)]);
}

/// A hub that lost its assignments decides by whether there is a job.
#[test]
fn unanswered_creation_counts_as_a_job_until_disproved() {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench.observe(workload(1).admitted().applied()).answer(unanswered()).connect();
    bench.desire(Vec::new(), true).unwrap();
    let has_job = |bench: &mut Bench| {
        bench.reported().pop().and_then(|reports| reports.origin).expect("its origin").has_job
    };
    assert!(has_job(&mut bench));
    assert_eq!(
        bench.pass(Time::from_secs(1)).new_actions(),
        ["find Job"],
        "nothing is wanted, and it is looked for"
    );
    assert!(bench.answer(Outcome::Gone).reported().is_empty(), "it may come yet");
    assert_eq!(bench.pass(MINUTE).new_actions(), ["find Job"]);
    bench.answer(Outcome::Gone);
    assert!(!has_job(&mut bench));
}

/// Another client removed the job while a second creation of it was running, which created it
/// again.
#[test]
fn end_of_late_created_job_counts() {
    let mut bench = made_twice();
    bench.observe(gone(ObjectKind::Job, 1));
    assert_eq!(bench.reported_states(), [(1, State::Evicted)]);
    assert!(bench.new_actions().iter().all(|asked| asked != "create Job"));
    bench.observe(second(job(1)).ended(true).applied());
    assert_eq!(bench.reported_states(), [(1, State::Succeeded)]);
}

/// The deletion of a reservation was not answered, and its hub is gone. The next hub assigns the
/// same reservation.
#[test]
fn workload_with_unanswered_deletion_is_recreated() {
    let mut bench = Bench::open();
    bench
        .assign(1, Phase::Reserve)
        .answer(Outcome::Object(Box::new(Object::Workload(workload(1)))))
        .reported_states();
    bench.assign(1, Phase::Absent);
    assert_eq!(bench.new_actions(), ["delete Workload"]);
    bench.answer(unanswered()).connect();
    bench.desire(Vec::new(), true).unwrap();
    bench.reported_states();
    bench.assign(1, Phase::Reserve).observe(workload(1).admitted().applied());
    assert!(
        !bench.reported_states().contains(&(1, State::Reserved)),
        "its quota counts for nothing"
    );
    assert_eq!(bench.pass(Time::from_secs(1)).new_actions(), ["delete Workload"]);
    bench.answer(Outcome::Accepted).observe(gone(ObjectKind::Workload, 1));
    assert_eq!(bench.new_actions(), ["create Workload"]);
}

/// The hub restarted and does not know what it had assigned.
#[test]
fn late_creation_is_remembered_without_assignment() {
    let mut bench = made_twice();
    bench.assign(1, Phase::Absent).answer(Outcome::Accepted).observe(gone(ObjectKind::Job, 1));
    answer_last(&mut bench, Outcome::Accepted);
    bench.answer(Outcome::Gone).observe(gone(ObjectKind::Workload, 1)).connect();
    bench.desire(Vec::new(), true).unwrap();
    assert_eq!(bench.reported_states(), [(1, State::Waiting)]);
    bench.assign(1, Phase::Absent);
    assert!(bench.reported_states().is_empty(), "the job may come yet");
    bench.pass(MINUTE).answer(Outcome::Gone);
    assert_eq!(bench.reported_states(), [(1, State::Gone)]);
}

#[test]
fn end_of_recreated_job_outranks_removal() {
    let mut bench = made_twice();
    assert_eq!(
        bench.observe(job(1).running().deleting().applied()).reported_states(),
        [(1, State::Evicted)]
    );
    bench.observe(gone(ObjectKind::Job, 1)).observe(second(job(1).running()).applied());
    assert_eq!(
        bench.observe(second(job(1).ended(true)).applied()).reported_states(),
        [(1, State::Succeeded)]
    );
    bench.connect();
    assert_eq!(
        bench.reported_states(),
        [(1, State::Succeeded)],
        "a hub that was away hears that only"
    );
}

/// The hub has the report of the removal. Only another job's end is news.
#[test]
fn end_after_acknowledged_removal_counts_for_another_job() {
    for is_other in [true, false] {
        let mut bench = made_twice();
        bench.observe(job(1).running().deleting().applied()).reported_states();
        bench.persist();
        let ended = match is_other {
            true => {
                bench.observe(gone(ObjectKind::Job, 1));
                second(job(1).ended(true))
            }
            false => job(1).deleting().ended(true),
        };
        bench.observe(ended.applied());
        let reports_end = bench.reported_states().contains(&(1, State::Succeeded));
        assert_eq!(reports_end, is_other);
    }
}
