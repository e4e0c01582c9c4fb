//! Creations that were not answered, and what may yet come of them.

use switchyard_proto::v1::{Phase, State};

use super::super::*;
use super::build::*;

const MINUTE: Time = Time::from_secs(60);

fn unanswered() -> Outcome {
    Outcome::Failed("no answer".to_owned())
}

fn found(job: RemoteJob) -> Outcome {
    Outcome::Object(Box::new(Object::Job(job)))
}

/// Answers the last of several actions.
fn answer_last(bench: &mut Bench, outcome: Outcome) {
    let action = bench.actions.pop().unwrap();
    let next = bench.ledger.done(&action, outcome, bench.now);
    bench.actions.extend(next);
}

/// Up to a job whose first creation was not answered, whose second one was, and that runs.
fn made_twice() -> Bench {
    let mut bench = Bench::open();
    bench.want(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench.see(workload(1).admitted().seen()).answer(unanswered());
    assert_eq!(bench.pass(Time::from_millis(250)).asked(), ["create Job"]);
    bench.answer(found(job(1))).see(job(1).running().seen());
    assert_eq!(bench.heard().last(), Some(&(1, State::Running)));
    bench
}

/// Up to its end, which is known, and its tombstone.
fn ended_and_buried(owned: bool) -> Bench {
    let mut bench = made_twice();
    if owned {
        bench.see(workload(1).admitted().owned().seen());
    }
    bench.see(job(1).ended(true).seen()).heard();
    bench.persist().want(1, Phase::Absent);
    bench
}

/// What a creation makes that comes when the first object of its name is gone.
fn second(mut job: RemoteJob) -> RemoteJob {
    job.meta.target.uid = "second".to_owned();
    job
}

#[test]
fn while_a_creation_may_come_a_job_that_has_ended_keeps_its_name() {
    for owned in [false, true] {
        let mut bench = ended_and_buried(owned);
        assert_eq!(bench.asked(), ["delete Workload"], "its quota goes back");
        bench.answer(Outcome::Accepted).see(gone(Kind::Workload, 1)).pass(Time::from_secs(50));
        assert!(bench.asked().is_empty(), "another job would take the name");
        assert_eq!(bench.pass(Time::from_secs(10)).asked(), ["release Job"]);
        bench.answer(found(job(1).ended(true).released()));
        assert_eq!(bench.asked(), ["delete Job"]);
        bench.answer(Outcome::Accepted);
        assert_eq!(bench.see(gone(Kind::Job, 1)).asked(), ["find Job"]);
        assert_eq!(bench.answer(Outcome::Gone).heard(), [(1, State::Gone)]);
    }
}

#[test]
fn what_is_gone_is_not_said_to_be_while_a_creation_may_come_although_a_later_one_was_answered() {
    let mut bench = made_twice();
    bench.want(1, Phase::Absent).answer(Outcome::Accepted).see(gone(Kind::Job, 1));
    assert_eq!(bench.asked(), ["find Job", "delete Workload"]);
    answer_last(&mut bench, Outcome::Accepted);
    bench.answer(Outcome::Gone).see(gone(Kind::Workload, 1));
    assert!(bench.heard().is_empty());
    assert_eq!(bench.pass(MINUTE).asked(), ["find Job"]);
    assert_eq!(bench.answer(Outcome::Gone).heard(), [(1, State::Gone)]);
}

#[test]
fn what_comes_late_is_removed_before_anything_is_said_to_be_gone() {
    let mut bench = made_twice();
    bench.want(1, Phase::Absent).answer(Outcome::Accepted).see(gone(Kind::Job, 1));
    assert_eq!(bench.asked(), ["find Job", "delete Workload"]);
    answer_last(&mut bench, Outcome::Accepted);
    assert_eq!(bench.answer(Outcome::Gone).see(second(job(1)).seen()).asked(), ["delete Job"]);
    assert!(bench.heard().is_empty());
}

#[test]
fn of_two_creations_without_an_answer_one_is_found_and_the_other_may_come() {
    let mut bench = Bench::open();
    bench.want(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench.see(workload(1).admitted().seen()).answer(unanswered());
    bench.pass(Time::from_millis(250)).answer(unanswered());
    bench.want(1, Phase::Absent).heard();
    assert_eq!(bench.asked(), ["find Job", "delete Workload"]);
    answer_last(&mut bench, Outcome::Accepted);
    bench.answer(found(job(1))).answer(Outcome::Accepted);
    bench.see(gone(Kind::Workload, 1));
    assert_eq!(bench.see(gone(Kind::Job, 1)).asked(), ["find Job"]);
    assert!(bench.answer(Outcome::Gone).heard().is_empty());
}

#[test]
fn what_the_only_creation_has_made_comes_once() {
    let mut bench = Bench::open();
    bench.want(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench
        .see(workload(1).admitted().seen())
        .answer(unanswered())
        .see(job(1).running().seen())
        .heard();
    bench.see(job(1).ended(true).seen()).heard();
    assert_eq!(bench.persist().want(1, Phase::Absent).asked(), ["release Job", "delete Workload"]);
}

#[test]
fn a_creation_that_was_answered_is_not_waited_for() {
    let mut bench = Bench::running();
    bench.see(job(1).ended(true).seen()).heard();
    bench.persist().want(1, Phase::Absent);
    bench.answer(found(job(1).ended(true).released())).answer(Outcome::Accepted);
    bench.see(gone(Kind::Job, 1)).see(gone(Kind::Workload, 1));
    assert_eq!(bench.heard(), [(1, State::Gone)]);
}

#[test]
fn a_tombstone_that_is_told_again_is_answered_again() {
    let mut bench = Bench::open();
    bench.want(4, Phase::Absent);
    assert_eq!(bench.heard(), [(4, State::Gone)]);
    bench.want(4, Phase::Run).pass(Time::from_secs(1));
    assert!(bench.heard().is_empty(), "an attempt that was buried does not come back");
    bench.want(4, Phase::Absent).pass(Time::from_secs(1));
    assert_eq!(bench.heard(), [(4, State::Gone)], "the hub may have heard of it before it asked");
}

#[test]
fn a_lower_tombstone_is_answered_by_what_is_gone() {
    let mut bench = Bench::open();
    bench.want(5, Phase::Absent);
    assert_eq!(bench.heard(), [(5, State::Gone)]);
    bench.want(4, Phase::Absent).pass(Time::from_secs(1));
    assert_eq!(
        bench.heard(),
        [(5, State::Gone)],
        "a hub whose store was lost asks for less than it did"
    );
    bench.want(4, Phase::Run).pass(Time::from_secs(1));
    assert!(bench.heard().is_empty());
}

#[test]
fn a_creation_that_was_rejected_does_not_come() {
    let rejected = || Outcome::Rejected("too many requests".to_owned());
    let reserving = || {
        let mut bench = Bench::open();
        bench.want(1, Phase::Reserve);
        bench
    };
    let mut bench = reserving();
    bench.answer(rejected());
    assert!(bench.want(1, Phase::Absent).asked().is_empty(), "there is nothing to look for");
    assert_eq!(bench.heard(), [(1, State::Gone)]);

    let mut bench = reserving();
    assert!(bench.answer(rejected()).asked().is_empty());
    assert_eq!(
        bench.pass(Time::from_millis(250)).asked(),
        ["create Workload"],
        "it is tried again"
    );

    let mut bench = reserving();
    bench.answer(unanswered()).pass(Time::from_millis(250)).answer(rejected());
    assert_eq!(bench.heard(), [(1, State::Waiting)], "it fails again and again");
    assert_eq!(
        bench.want(1, Phase::Absent).asked(),
        ["find Workload"],
        "the first try may have gone through"
    );
    bench.answer(rejected());
    assert!(bench.heard().is_empty());
    assert_eq!(bench.pass(MINUTE).asked(), ["find Workload"]);
    bench.answer(Outcome::Refused(Trouble::refused("Forbidden", "nobody may look")));
    assert!(bench.heard().is_empty(), "what nobody may look for may be there");
}

#[test]
fn a_creation_that_can_have_come_long_ago_is_not_looked_for() {
    let mut bench = made_twice();
    bench.pass(MINUTE).pass(MINUTE).want(1, Phase::Absent).answer(Outcome::Accepted);
    assert_eq!(bench.see(gone(Kind::Job, 1)).asked(), ["delete Workload"]);
    bench.answer(Outcome::Accepted).see(gone(Kind::Workload, 1));
    assert_eq!(bench.heard(), [(1, State::Gone)]);
}

/// A hub that has forgotten what it wanted goes by whether there is a job.
#[test]
fn unanswered_creation_counts_as_a_job_until_disproved() {
    let mut bench = Bench::open();
    bench.want(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench.see(workload(1).admitted().seen()).answer(unanswered()).connect();
    bench.desire(Vec::new(), true).unwrap();
    let has_job = |bench: &mut Bench| {
        bench.told().pop().and_then(|told| told.origin).expect("its origin").has_job
    };
    assert!(has_job(&mut bench));
    assert_eq!(
        bench.pass(Time::from_secs(1)).asked(),
        ["find Job"],
        "nothing is wanted, and it is looked for"
    );
    assert!(bench.answer(Outcome::Gone).told().is_empty(), "it may come yet");
    assert_eq!(bench.pass(MINUTE).asked(), ["find Job"]);
    bench.answer(Outcome::Gone);
    assert!(!has_job(&mut bench));
}

/// The job was removed by others while another creation of it was under way, and that one made it again.
#[test]
fn end_of_a_job_that_a_late_creation_made_counts() {
    let mut bench = made_twice();
    bench.see(gone(Kind::Job, 1));
    assert_eq!(bench.heard(), [(1, State::Evicted)]);
    assert!(bench.asked().iter().all(|asked| asked != "create Job"));
    bench.see(second(job(1)).ended(true).seen());
    assert_eq!(bench.heard(), [(1, State::Succeeded)]);
}

/// The deletion of an offer had no answer, and the hub that asked for it is gone: the next one wants the same offer.
#[test]
fn workload_with_unanswered_deletion_is_recreated() {
    let mut bench = Bench::open();
    bench
        .want(1, Phase::Reserve)
        .answer(Outcome::Object(Box::new(Object::Workload(workload(1)))))
        .heard();
    bench.want(1, Phase::Absent);
    assert_eq!(bench.asked(), ["delete Workload"]);
    bench.answer(unanswered()).connect();
    bench.desire(Vec::new(), true).unwrap();
    bench.heard();
    bench.want(1, Phase::Reserve).see(workload(1).admitted().seen());
    assert!(!bench.heard().contains(&(1, State::Reserved)), "its quota counts for nothing");
    assert_eq!(bench.pass(Time::from_secs(1)).asked(), ["delete Workload"]);
    bench.answer(Outcome::Accepted).see(gone(Kind::Workload, 1));
    assert_eq!(bench.asked(), ["create Workload"]);
}

/// The hub has begun anew, and does not know what it wanted.
#[test]
fn what_may_come_late_is_not_forgotten_while_nothing_is_wanted() {
    let mut bench = made_twice();
    bench.want(1, Phase::Absent).answer(Outcome::Accepted).see(gone(Kind::Job, 1));
    answer_last(&mut bench, Outcome::Accepted);
    bench.answer(Outcome::Gone).see(gone(Kind::Workload, 1)).connect();
    bench.desire(Vec::new(), true).unwrap();
    assert_eq!(bench.heard(), [(1, State::Waiting)]);
    bench.want(1, Phase::Absent);
    assert!(bench.heard().is_empty(), "the job may come yet");
    bench.pass(MINUTE).answer(Outcome::Gone);
    assert_eq!(bench.heard(), [(1, State::Gone)]);
}

#[test]
fn end_of_job_made_again_outranks_its_removal() {
    let mut bench = made_twice();
    assert_eq!(bench.see(job(1).running().deleting().seen()).heard(), [(1, State::Evicted)]);
    bench.see(gone(Kind::Job, 1)).see(second(job(1).running()).seen());
    assert_eq!(bench.see(second(job(1).ended(true)).seen()).heard(), [(1, State::Succeeded)]);
    bench.connect();
    assert_eq!(bench.heard(), [(1, State::Succeeded)], "a hub that was away hears that only");
}
