//! Jobs that are stopped when the lease has lapsed.

use switchyard_proto::v1::{Phase, State, hub_message};

use super::super::*;
use super::build::*;

const AFTER: Time = Time::from_secs(20);
const LEASE: Time = Time::from_secs(10);

fn workload_of(attempt: u64) -> RemoteWorkload {
    workload(attempt).fenced(AFTER).admitted().owned()
}

fn stopped(attempt: u64) -> RemoteWorkload {
    let mut workload = workload_of(attempt);
    (workload.active, workload.suspended_by_us) = (false, true);
    workload
}

impl Bench {
    fn renew(&mut self) -> &mut Self {
        self.actions.extend(self.ledger.lease_renewed(self.now + LEASE, self.now));
        self
    }

    /// A fenced job that runs, and a lease that was just renewed.
    fn fenced() -> Self {
        let mut bench = Self::open();
        bench.renew().desire(vec![fenced(UID, 1, AFTER)], false).unwrap();
        bench.answer(Outcome::Object(Box::new(Object::Workload(workload(1).fenced(AFTER)))));
        bench
            .see(workload(1).fenced(AFTER).admitted().seen())
            .answer(Outcome::Object(Box::new(Object::Job(job(1)))));
        bench.see(workload_of(1).seen()).see(job(1).running().seen());
        assert_eq!(bench.heard().last(), Some(&(1, State::Running)));
        bench
    }

    /// Another process of this agent begins, with what the first one wrote down.
    fn begin_anew(&mut self, lease: Option<Time>) -> &mut Self {
        self.ledger =
            Ledger::new(Rules { hub_id: "hub".to_owned(), namespaces: AllowedNamespaces::All });
        self.actions.clear();
        if let Some(lease) = lease {
            self.ledger.recall(self.epoch, lease);
        }
        self.see(workload_of(1).seen()).see(job(1).running().seen())
    }
}

#[test]
fn it_is_stopped_when_the_lease_has_lapsed_for_long_enough_and_goes_on_after() {
    let mut bench = Bench::fenced();
    bench.ledger.session_closed();
    let before = Time::from_millis(29_500);
    assert!(bench.pass(before).asked().is_empty());
    assert_eq!(bench.pass(Time::from_millis(500)).asked(), ["deactivate Workload"]);
    bench.answer(Outcome::Object(Box::new(Object::Workload(stopped(1)))));
    assert!(bench.pass(LEASE).asked().is_empty(), "once");
    assert_eq!(bench.renew().asked(), ["activate Workload"]);
}

/// Its controller does nothing to a job that is being deleted: it would not suspend it.
#[test]
fn job_deleted_by_others_does_not_outrun_its_fence() {
    let mut bench = Bench::new();
    bench
        .see(workload(1).admitted().fenced(Time::from_secs(30)).seen())
        .see(job(1).running().seen());
    bench.actions.clear();
    assert_eq!(bench.see(job(1).running().deleting().seen()).asked(), ["delete Job"]);
}

#[test]
fn a_renewal_moves_the_fence() {
    let mut bench = Bench::fenced();
    assert!(bench.pass(LEASE).renew().pass(Time::from_secs(29)).asked().is_empty());
    assert_eq!(bench.pass(Time::from_secs(1)).asked(), ["deactivate Workload"]);
}

#[test]
fn whatever_comes_after_a_long_sleep_the_fence_comes_first() {
    let late = Time::from_secs(60);
    let first = |bench: &Bench| {
        let action = bench.actions.first().expect("something is done");
        (action.verb.name(), action.kind)
    };
    let mut seen = Bench::fenced();
    seen.now += late;
    seen.see(job(1).running().seen());
    assert_eq!(first(&seen), ("deactivate", Kind::Workload));

    let mut said = Bench::fenced();
    said.now += late;
    said.desire(vec![assignment("u2", 1, Phase::Reserve)], false).unwrap();
    assert_eq!(first(&said), ("deactivate", Kind::Workload));

    let mut refused = Bench::fenced();
    refused.now += late;
    refused.epoch = 0;
    refused.say(hub_message::Kind::ObservedAck(1)).unwrap_err();
    assert_eq!(refused.ledger.next_wakeup(), Some(Time::ZERO), "not lost with the session");
    assert_eq!(refused.pass(Time::ZERO).asked(), ["deactivate Workload"]);
}

#[test]
fn nothing_is_started_that_would_have_to_be_stopped_at_once() {
    let mut bench = Bench::open();
    bench.desire(vec![fenced(UID, 1, AFTER)], false).unwrap();
    bench.answer(Outcome::Object(Box::new(Object::Workload(workload(1).fenced(AFTER).admitted()))));
    assert!(bench.asked().is_empty(), "no lease, no job");
    assert_eq!(bench.renew().asked(), ["create Job"]);
    assert_eq!(
        bench.actions[0].until,
        Some(bench.now + LEASE + AFTER),
        "and not when it comes too late"
    );
    // Its answer never came: it may run.
    bench.answer(Outcome::Failed("no answer".to_owned())).pass(LEASE + AFTER);
    assert!(bench.asked().contains(&"deactivate Workload".to_owned()), "{:?}", bench.asked());
}

#[test]
fn the_fence_is_recorded_before_its_job_is_made_and_follows_the_hub() {
    let mut bench = Bench::open();
    bench.renew().desire(vec![fenced(UID, 1, AFTER)], false).unwrap();
    let Verb::Create { fence_after, .. } = &bench.actions[0].verb else {
        panic!("{:?}", bench.actions)
    };
    assert_eq!(*fence_after, Some(AFTER));
    // Made by an earlier agent, or for another rule.
    bench.answer(Outcome::Object(Box::new(Object::Workload(workload(1).admitted()))));
    assert_eq!(bench.asked(), ["record the fence of Workload"]);
    bench.answer(Outcome::Object(Box::new(Object::Workload(workload(1).fenced(AFTER).admitted()))));
    assert_eq!(bench.asked(), ["create Job"]);
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1).running()))));
    bench.want(1, Phase::Run);
    assert_eq!(bench.asked(), ["record the fence of Workload"], "it has none any more");
}

#[test]
fn an_agent_that_begins_anew_without_a_hub_fences_too() {
    let mut bench = Bench::fenced();
    let lease = bench.now + LEASE;
    bench.begin_anew(Some(lease)).see(Seen::Synced);
    assert!(bench.pass(Time::from_millis(29_500)).asked().is_empty());
    assert_eq!(bench.pass(Time::from_millis(500)).asked(), ["deactivate Workload"]);
    // The hub has it for this cluster still.
    bench.answer(Outcome::Object(Box::new(Object::Workload(stopped(1)))));
    bench.connect();
    bench.renew().desire(vec![fenced(UID, 1, AFTER)], true).unwrap();
    assert_eq!(bench.asked(), ["activate Workload"]);
}

#[test]
fn an_agent_that_begins_anew_too_late_fences_before_it_believes_its_hub() {
    let mut bench = Bench::fenced();
    let lease = bench.now + LEASE;
    bench.now += Time::from_secs(60);
    bench.begin_anew(Some(lease)).connect();
    bench.renew();
    assert!(bench.asked().is_empty(), "not everything is known");
    assert_eq!(bench.see(Seen::Synced).asked(), ["deactivate Workload"]);
}

#[test]
fn an_agent_that_remembers_nothing_lets_no_fenced_job_run_on() {
    let mut bench = Bench::fenced();
    assert_eq!(bench.begin_anew(None).see(Seen::Synced).asked(), ["deactivate Workload"]);
}

#[test]
fn what_an_earlier_process_obeyed_is_not_overruled_by_a_deposed_leader() {
    let mut bench = Bench::new();
    bench.ledger.recall(5, Time::ZERO);
    assert_eq!(bench.ledger.memory().epoch, 5);
    bench.ledger.session_opened();
    bench.epoch = 4;
    let error = bench.say(hub_message::Kind::ObservedAck(1)).unwrap_err();
    assert_eq!(error, SessionError::Deposed { got: 4, seen: 5 });
}

#[test]
fn jobs_without_a_fence_run_on() {
    let mut bench = Bench::running();
    bench.ledger.session_closed();
    assert!(bench.pass(Time::from_secs(1_000_000)).asked().is_empty());
}

#[test]
fn what_a_fence_has_stopped_goes_on_only_when_the_hub_has_said_all_that_it_wants_now() {
    let stop = |bench: &mut Bench| {
        bench.ledger.session_closed();
        bench.pass(LEASE + AFTER).answer(Outcome::Object(Box::new(Object::Workload(stopped(1)))));
        bench.connect();
        assert!(bench.renew().asked().is_empty(), "the hub may have sent it elsewhere");
    };
    let mut wanted = Bench::fenced();
    stop(&mut wanted);
    wanted.desire(vec![fenced(UID, 1, AFTER)], true).unwrap();
    assert_eq!(wanted.asked(), ["activate Workload"]);

    let mut given_up = Bench::fenced();
    stop(&mut given_up);
    given_up.desire(vec![assignment(UID, 1, Phase::Absent)], true).unwrap();
    assert_eq!(given_up.asked(), ["delete Job"]);
}

#[test]
fn what_a_fence_has_stopped_goes_on_in_the_same_attempt() {
    let mut bench = Bench::fenced();
    let evicted = |active: bool| {
        let mut workload =
            workload(1).fenced(AFTER).owned().pending("Deactivated", "The workload is deactivated");
        (workload.active, workload.suspended_by_us, workload.evicted) =
            (active, !active, yes("Deactivated"));
        workload
    };
    bench.pass(LEASE + AFTER).answer(Outcome::Object(Box::new(Object::Workload(stopped(1)))));
    bench.see(evicted(false).seen()).see(job(1).seen());
    assert_eq!(bench.heard().last(), Some(&(1, State::Suspended)));
    // Its admission has yet to see that it is active again.
    bench.renew().answer(Outcome::Object(Box::new(Object::Workload(evicted(true)))));
    assert_eq!(bench.heard(), [(1, State::Waiting)]);
    bench.see(workload_of(1).seen()).see(job(1).running().seen());
    assert_eq!(bench.heard().last(), Some(&(1, State::Running)));
}

#[test]
fn a_workload_whose_pods_come_with_anothers_job_is_stopped_by_its_fence_and_not_made_behind_it() {
    let follower = || RemoteWorkload { follows: true, ..workload(1).fenced(AFTER) };
    let mut bench = Bench::open();
    bench.renew().want_fenced_of(1, AFTER, b"");
    assert_eq!(bench.asked(), ["create Workload"]);
    bench.answer(Outcome::Object(Box::new(Object::Workload(follower()))));
    assert!(bench.see(follower().admitted().seen()).asked().is_empty());
    bench.ledger.session_closed();
    assert_eq!(bench.pass(LEASE + AFTER).asked(), ["deactivate Workload"]);

    let mut bench = Bench::open();
    bench.renew();
    bench.pass(LEASE + AFTER).want_fenced_of(1, AFTER, b"");
    assert!(bench.asked().is_empty(), "its pods would start with it");
    assert_eq!(bench.renew().asked(), ["create Workload"]);
}
