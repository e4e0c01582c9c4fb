//! Fences: jobs that the agent stops after the lease expired.

use switchyard_proto::v1::{Phase, State, hub_message};

use super::build::*;
use crate::*;

const AFTER: Time = Time::from_secs(20);
const LEASE: Time = Time::from_secs(10);

fn workload_of(attempt: u64) -> RemoteWorkload {
    workload(attempt).fenced(AFTER).admitted().owned()
}

fn stopped(attempt: u64) -> RemoteWorkload {
    let mut workload = workload_of(attempt);
    (workload.active, workload.suspended_by_agent) = (false, true);
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
            .observe(workload(1).fenced(AFTER).admitted().applied())
            .answer(Outcome::Object(Box::new(Object::Job(job(1)))));
        bench.observe(workload_of(1).applied()).observe(job(1).running().applied());
        assert_eq!(bench.reported_states().last(), Some(&(1, State::Running)));
        bench
    }

    /// Restarts the agent with what the previous process wrote down.
    fn begin_anew(&mut self, lease: Option<Time>) -> &mut Self {
        self.ledger =
            Ledger::new(Rules { hub_id: "hub".to_owned(), namespaces: AllowedNamespaces::All });
        self.actions.clear();
        if let Some(lease) = lease {
            self.ledger.restore(self.epoch, lease);
        }
        self.observe(workload_of(1).applied()).observe(job(1).running().applied())
    }
}

#[test]
fn fenced_job_stops_after_lease_and_resumes_on_renewal() {
    let mut bench = Bench::fenced();
    bench.ledger.session_closed();
    let before = Time::from_millis(29_500);
    assert!(bench.pass(before).new_actions().is_empty());
    assert_eq!(bench.pass(Time::from_millis(500)).new_actions(), ["deactivate Workload"]);
    bench.answer(Outcome::Object(Box::new(Object::Workload(stopped(1)))));
    assert!(bench.pass(LEASE).new_actions().is_empty(), "once");
    assert_eq!(bench.renew().new_actions(), ["activate Workload"]);
}

/// A controller ignores a job that is being deleted, so it would not suspend it.
#[test]
fn job_deleted_by_others_is_still_fenced() {
    let mut bench = Bench::new();
    bench
        .observe(workload(1).admitted().fenced(Time::from_secs(30)).applied())
        .observe(job(1).running().applied());
    bench.actions.clear();
    assert_eq!(bench.observe(job(1).running().deleting().applied()).new_actions(), ["delete Job"]);
}

#[test]
fn lease_renewal_moves_fence() {
    let mut bench = Bench::fenced();
    assert!(bench.pass(LEASE).renew().pass(Time::from_secs(29)).new_actions().is_empty());
    assert_eq!(bench.pass(Time::from_secs(1)).new_actions(), ["deactivate Workload"]);
}

#[test]
fn fence_precedes_any_input_after_long_sleep() {
    let late = Time::from_secs(60);
    let first = |bench: &Bench| {
        let action = bench.actions.first().expect("something is done");
        (action.verb.name(), action.kind)
    };
    let mut seen = Bench::fenced();
    seen.now += late;
    seen.observe(job(1).running().applied());
    assert_eq!(first(&seen), ("deactivate", ObjectKind::Workload));

    let mut said = Bench::fenced();
    said.now += late;
    said.desire(vec![assignment("u2", 1, Phase::Reserve)], false).unwrap();
    assert_eq!(first(&said), ("deactivate", ObjectKind::Workload));

    let mut refused = Bench::fenced();
    refused.now += late;
    refused.epoch = 0;
    refused.receive(hub_message::Kind::ObservedAck(1)).unwrap_err();
    assert_eq!(refused.ledger.next_wakeup(), Some(Time::ZERO), "not lost with the session");
    assert_eq!(refused.pass(Time::ZERO).new_actions(), ["deactivate Workload"]);
}

#[test]
fn job_past_its_fence_is_not_started() {
    let mut bench = Bench::open();
    bench.desire(vec![fenced(UID, 1, AFTER)], false).unwrap();
    bench.answer(Outcome::Object(Box::new(Object::Workload(workload(1).fenced(AFTER).admitted()))));
    assert!(bench.new_actions().is_empty(), "no lease, no job");
    assert_eq!(bench.renew().new_actions(), ["create Job"]);
    assert_eq!(
        bench.actions[0].deadline,
        Some(bench.now + LEASE + AFTER),
        "and not when it comes too late"
    );
    // Without an answer, the job may run.
    bench.answer(Outcome::Unknown("no answer".to_owned())).pass(LEASE + AFTER);
    assert!(
        bench.new_actions().contains(&"deactivate Workload".to_owned()),
        "{:?}",
        bench.new_actions()
    );
}

#[test]
fn fence_is_recorded_before_job_and_updated() {
    let mut bench = Bench::open();
    bench.renew().desire(vec![fenced(UID, 1, AFTER)], false).unwrap();
    let Verb::Create { fence_after, .. } = &bench.actions[0].verb else {
        panic!("{:?}", bench.actions)
    };
    assert_eq!(*fence_after, Some(AFTER));
    // By an earlier agent, or for another fence.
    bench.answer(Outcome::Object(Box::new(Object::Workload(workload(1).admitted()))));
    assert_eq!(bench.new_actions(), ["record the fence of Workload"]);
    bench.answer(Outcome::Object(Box::new(Object::Workload(workload(1).fenced(AFTER).admitted()))));
    assert_eq!(bench.new_actions(), ["create Job"]);
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1).running()))));
    bench.assign(1, Phase::Run);
    assert_eq!(bench.new_actions(), ["record the fence of Workload"], "it has none any more");
}

#[test]
fn restarted_agent_without_hub_fences() {
    let mut bench = Bench::fenced();
    let lease = bench.now + LEASE;
    bench.begin_anew(Some(lease)).observe(WatchEvent::Synced);
    assert!(bench.pass(Time::from_millis(29_500)).new_actions().is_empty());
    assert_eq!(bench.pass(Time::from_millis(500)).new_actions(), ["deactivate Workload"]);
    // The hub still assigns it to this cluster.
    bench.answer(Outcome::Object(Box::new(Object::Workload(stopped(1)))));
    bench.connect();
    bench.renew().desire(vec![fenced(UID, 1, AFTER)], true).unwrap();
    assert_eq!(bench.new_actions(), ["activate Workload"]);
}

/// A hub that lost its store assigns nothing, and the record on the Workload still counts.
#[test]
fn lease_is_remembered_for_jobs_that_are_not_assigned() {
    let mut bench = Bench::fenced();
    bench.begin_anew(Some(bench.now + LEASE)).observe(WatchEvent::Synced);
    bench.connect();
    bench.desire(Vec::new(), true).unwrap();
    bench.renew();
    assert_eq!(bench.ledger.lease_end(), Some(bench.now + LEASE));
    bench.observe(gone(ObjectKind::Job, 1)).observe(gone(ObjectKind::Workload, 1));
    assert_eq!(bench.ledger.lease_end(), None, "nothing has a fence");
}

#[test]
fn agent_restarted_late_fences_before_messages() {
    let mut bench = Bench::fenced();
    let lease = bench.now + LEASE;
    bench.now += Time::from_secs(60);
    bench.begin_anew(Some(lease)).connect();
    bench.renew();
    assert!(bench.new_actions().is_empty(), "not everything is known");
    assert_eq!(bench.observe(WatchEvent::Synced).new_actions(), ["deactivate Workload"]);
}

#[test]
fn agent_without_memory_stops_fenced_jobs() {
    let mut bench = Bench::fenced();
    assert_eq!(
        bench.begin_anew(None).observe(WatchEvent::Synced).new_actions(),
        ["deactivate Workload"]
    );
}

#[test]
fn restored_epoch_rejects_deposed_leader() {
    let mut bench = Bench::new();
    bench.ledger.restore(5, Time::ZERO);
    assert_eq!(bench.ledger.last_session().epoch, 5);
    bench.ledger.session_opened();
    bench.epoch = 4;
    let error = bench.receive(hub_message::Kind::ObservedAck(1)).unwrap_err();
    assert_eq!(error, SessionError::Deposed { got: 4, seen: 5 });
}

#[test]
fn job_without_fence_keeps_running() {
    let mut bench = Bench::running();
    bench.ledger.session_closed();
    assert!(bench.pass(Time::from_secs(1_000_000)).new_actions().is_empty());
}

#[test]
fn fenced_job_resumes_only_after_complete_desired_state() {
    let stop = |bench: &mut Bench| {
        bench.ledger.session_closed();
        bench.pass(LEASE + AFTER).answer(Outcome::Object(Box::new(Object::Workload(stopped(1)))));
        bench.connect();
        assert!(bench.renew().new_actions().is_empty(), "the hub may have sent it elsewhere");
    };
    let mut wanted = Bench::fenced();
    stop(&mut wanted);
    wanted.desire(vec![fenced(UID, 1, AFTER)], true).unwrap();
    assert_eq!(wanted.new_actions(), ["activate Workload"]);

    let mut given_up = Bench::fenced();
    stop(&mut given_up);
    given_up.desire(vec![assignment(UID, 1, Phase::Absent)], true).unwrap();
    assert_eq!(given_up.new_actions(), ["delete Job"]);
}

#[test]
fn fenced_job_resumes_in_same_attempt() {
    let mut bench = Bench::fenced();
    let evicted = |active: bool| {
        let mut workload =
            workload(1).fenced(AFTER).owned().pending("Deactivated", "The workload is deactivated");
        (workload.active, workload.suspended_by_agent, workload.evicted) =
            (active, !active, yes("Deactivated"));
        workload
    };
    bench.pass(LEASE + AFTER).answer(Outcome::Object(Box::new(Object::Workload(stopped(1)))));
    bench.observe(evicted(false).applied()).observe(job(1).applied());
    assert_eq!(bench.reported_states().last(), Some(&(1, State::Suspended)));
    // Admission has not yet noticed that it is active again.
    bench.renew().answer(Outcome::Object(Box::new(Object::Workload(evicted(true)))));
    assert_eq!(bench.reported_states(), [(1, State::Waiting)]);
    bench.observe(workload_of(1).applied()).observe(job(1).running().applied());
    assert_eq!(bench.reported_states().last(), Some(&(1, State::Running)));
}

#[test]
fn follower_is_fenced_and_not_created_past_its_fence() {
    let follower = || RemoteWorkload { is_follower: true, ..workload(1).fenced(AFTER) };
    let mut bench = Bench::open();
    bench.renew().assign_fenced_job(1, AFTER, b"");
    assert_eq!(bench.new_actions(), ["create Workload"]);
    bench.answer(Outcome::Object(Box::new(Object::Workload(follower()))));
    assert!(bench.observe(follower().admitted().applied()).new_actions().is_empty());
    bench.ledger.session_closed();
    assert_eq!(bench.pass(LEASE + AFTER).new_actions(), ["deactivate Workload"]);

    let mut bench = Bench::open();
    bench.renew();
    bench.pass(LEASE + AFTER).assign_fenced_job(1, AFTER, b"");
    assert!(bench.new_actions().is_empty(), "its pods would start with it");
    assert_eq!(bench.renew().new_actions(), ["create Workload"]);
}
