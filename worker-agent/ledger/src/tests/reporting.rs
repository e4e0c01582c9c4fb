//! Reports to the hub, and errors that end a session.

use switchyard_proto::digest::{Digest, bucket};
use switchyard_proto::v1::{self, HubMessage, Phase, State, agent_message, hub_message};

use super::build::*;
use crate::ledger::MAX_UNPERSISTED_ENDS;
use crate::*;

#[test]
fn states_reach_slow_hub_in_order() {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench
        .observe(workload(1).admitted().applied())
        .answer(Outcome::Object(Box::new(Object::Job(job(1)))));
    bench.observe(job(1).ended(true).applied());
    assert_eq!(
        bench.reported_states(),
        [(1, State::Waiting), (1, State::Reserved), (1, State::Running), (1, State::Succeeded)]
    );
}

#[test]
fn status_change_reports_newest_once_per_second() {
    let mut bench = Bench::running();
    let see = |bench: &mut Bench, rounds: std::ops::Range<u8>| {
        for round in rounds {
            let mut changed = job(1).running();
            changed.status = vec![round];
            bench.observe(changed.applied());
        }
    };
    see(&mut bench, 0..3);
    let reports = bench.reported();
    assert_eq!(
        (reports.len(), reports[0].job_status.as_slice()),
        (1, &[2][..]),
        "the first change follows soon"
    );
    see(&mut bench, 3..5);
    assert!(bench.reported().is_empty(), "the last report was just sent");
    bench.now += Time::from_millis(750);
    let reports = bench.reported();
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].job_status, [4]);
    assert!(reports[0].workload_status.is_empty(), "it has not changed");
}

#[test]
fn running_report_waits_for_first_status() {
    let mut bench = Bench::open();
    bench
        .assign(1, Phase::Run)
        .answer(Outcome::Object(Box::new(Object::Workload(workload(1).admitted()))));
    bench.reported_states();
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1)))));
    assert_eq!(bench.ledger.next_message(bench.now), None);
    let mut first = job(1).running();
    first.status = b"active".to_vec();
    bench.observe(first.applied());
    let reports = bench.reported();
    assert_eq!(
        (reports.len(), reports[0].state(), reports[0].job_status.as_slice()),
        (1, State::Running, &b"active"[..])
    );
}

#[test]
fn inventory_reports_all_once_before_later_states() {
    let mut bench = Bench::new();
    bench.observe(workload(3).admitted().owned().applied()).observe(job(3).running().applied());
    bench.connect();
    let Some(agent_message::Kind::Observed(inventory)) = bench.ledger.next_message(bench.now)
    else {
        panic!()
    };
    assert!(inventory.inventory && !inventory.more);
    assert_eq!((inventory.sequence, inventory.observations.len()), (1, 1));
    assert_eq!(inventory.observations[0].name, format!("job-{UID}"));
    bench.observe(job(3).ended(true).applied());
    assert_eq!(bench.reported_states(), [(3, State::Succeeded)]);
    assert_eq!(bench.sequence, 2);
}

/// The hub lost its store. Its assignments end only after the inventory, and until then a report has
/// no origin.
#[test]
fn origin_of_an_unassigned_copy_is_reported() {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Reserve);
    bench.answer(Outcome::Rejected(Rejection::refused("Why", "not here")));
    bench.connect();
    assert_eq!(bench.reported_states(), [(1, State::Refused)]);
    bench.observe(workload(1).admitted().applied());
    let before = bench.reported();
    assert_eq!((before[0].state(), &before[0].origin), (State::Reserved, &None));
    bench.desire(Vec::new(), true).unwrap();
    let reports = bench.pass(Time::from_secs(1)).reported();
    assert_eq!((reports.len(), reports[0].state()), (1, State::Reserved));
    assert!(reports[0].origin.as_ref().is_some_and(|origin| !origin.has_job));
}

#[test]
fn large_inventory_is_split() {
    let mut bench = Bench::new();
    for index in 0..600 {
        let mut other = workload(1);
        other.meta.workload_uid = format!("u{index:04}");
        bench.observe(other.applied());
    }
    bench.connect();
    let mut parts = Vec::new();
    while let Some(agent_message::Kind::Observed(part)) = bench.ledger.next_message(bench.now) {
        parts.push((part.observations.len(), part.more, part.sequence));
    }
    assert_eq!(parts, [(256, true, 1), (256, true, 2), (88, false, 3)]);
}

#[test]
fn digest_covers_reports_and_resend_repeats_them() {
    let mut bench = Bench::running();
    bench.reported_states();
    bench.now += Time::from_secs(60);
    let Some(agent_message::Kind::Digest(digest)) = bench.ledger.next_message(bench.now) else {
        panic!()
    };
    assert!(Digest::of([(UID, 1, State::Running)]).differing_buckets(&digest).is_empty());
    let other = (u32::from(bucket(UID)) + 1) % 256;
    bench.receive(hub_message::Kind::Resend(v1::Resend { buckets: vec![other] })).unwrap();
    assert!(bench.reported().is_empty());
    bench
        .receive(hub_message::Kind::Resend(v1::Resend { buckets: vec![u32::from(bucket(UID))] }))
        .unwrap();
    let reports = bench.reported();
    assert_eq!((reports.len(), reports[0].state()), (1, State::Running));
    assert!(!reports[0].job_status.is_empty() && !reports[0].workload_status.is_empty());
}

#[test]
fn deposed_leader_is_rejected() {
    let mut bench = Bench::running();
    bench.epoch = 5;
    bench.assign(1, Phase::Run);
    bench.epoch = 4;
    let deposed = bench.desire(vec![assignment(UID, 1, Phase::Absent)], true);
    assert_eq!(deposed, Err(SessionError::Deposed { got: 4, seen: 5 }));
    assert!(bench.new_actions().is_empty());
    bench.ledger.session_opened();
    let welcome = v1::Welcome {
        version: 1,
        hub_id: "hub".to_owned(),
        session_id: 8,
        lease: None,
        snapshot: true,
    };
    let refused = bench.receive(hub_message::Kind::Welcome(welcome));
    assert_eq!(refused, Err(SessionError::Deposed { got: 4, seen: 5 }), "nor in another session");
}

#[test]
fn other_sessions_messages_are_dropped() {
    let mut bench = Bench::running();
    let desired = v1::Desired { revision: 9, snapshot: true, ..v1::Desired::default() };
    let message =
        HubMessage { session_id: 6, epoch: 1, kind: Some(hub_message::Kind::Desired(desired)) };
    assert_eq!(bench.ledger.on_hub_message(message, bench.now), Ok(Vec::new()));
    assert_ne!(bench.ledger.last_session().revision, 9);
}

#[test]
fn other_hub_or_version_ends_session() {
    let open = |hub_id: &str, version| {
        let mut bench = Bench::new();
        bench.ledger.session_opened();
        let hub_id = hub_id.to_owned();
        let welcome = v1::Welcome { version, hub_id, session_id: 1, lease: None, snapshot: true };
        bench.receive(hub_message::Kind::Welcome(welcome))
    };
    assert_eq!(open("hub", 1), Ok(()));
    assert_eq!(open("hub", 2), Err(SessionError::Version(2)));
    assert!(matches!(open("other", 1), Err(SessionError::OtherHub { .. })));
}

#[test]
fn revision_gap_ends_session_and_asks_for_snapshot() {
    let mut bench = Bench::running();
    let delta = v1::Desired { revision: 50, base_revision: 49, ..v1::Desired::default() };
    let gap = bench.receive(hub_message::Kind::Desired(delta));
    assert!(matches!(gap, Err(SessionError::Gap { base: 49, .. })));
    assert_eq!(
        bench.ledger.last_session(),
        LastSession { hub_id: "hub".to_owned(), epoch: 1, revision: 0 }
    );
}

#[test]
fn missing_or_corrupt_payload_ends_session() {
    let mut bench = Bench::open();
    let mut unknown = assignment(UID, 1, Phase::Reserve);
    unknown.payload_hash = vec![1];
    assert_eq!(
        bench.desire(vec![unknown], false),
        Err(SessionError::PayloadMissing(UID.to_owned()))
    );
    let mut bench = Bench::open();
    let corrupt = v1::Payload { job: b"other".to_vec(), ..payload() };
    let desired = v1::Desired {
        revision: 9,
        snapshot: true,
        payloads: vec![corrupt],
        ..v1::Desired::default()
    };
    assert_eq!(
        bench.receive(hub_message::Kind::Desired(desired)),
        Err(SessionError::PayloadCorrupt)
    );
}

#[test]
fn oversized_payload_is_refused() {
    let mut bench = Bench::open();
    let huge = v1::Payload {
        hash: vec![9],
        workload: vec![0; switchyard_proto::MAX_PAYLOAD],
        job: vec![0],
    };
    let mut named = assignment(UID, 1, Phase::Reserve);
    named.payload_hash = vec![9];
    let payloads = vec![huge];
    let desired = v1::Desired {
        revision: 9,
        snapshot: true,
        payloads,
        assignments: vec![named],
        ..v1::Desired::default()
    };
    bench.receive(hub_message::Kind::Desired(desired)).unwrap();
    let reports = bench.reported();
    assert_eq!(
        (reports[0].state(), reports[0].reasons[0].code.as_str()),
        (State::Refused, "PayloadTooLarge")
    );
    assert!(bench.new_actions().is_empty());
}

#[test]
fn incomplete_snapshot_drops_nothing() {
    let mut bench = Bench::running();
    let part = v1::Desired { revision: 9, snapshot: true, more: true, ..v1::Desired::default() };
    bench.receive(hub_message::Kind::Desired(part)).unwrap();
    assert_ne!(bench.ledger.last_session().revision, 9);
    bench.connect();
    assert_eq!(bench.reported_states(), [(1, State::Running)]);
    bench.assign(1, Phase::Absent);
    assert_eq!(bench.new_actions(), ["delete Job"], "it is still desired, and so it can be ended");
}

#[test]
fn inventory_includes_objects_listed_after_welcome() {
    let mut bench = Bench::new();
    bench.ledger =
        Ledger::new(Rules { hub_id: "hub".to_owned(), namespaces: AllowedNamespaces::All });
    bench.connect();
    bench.observe(workload(1).admitted().applied()).observe(job(1).running().applied());
    assert!(bench.reported().is_empty(), "there may be more");
    bench.observe(WatchEvent::Synced);
    let said =
        std::iter::from_fn(|| bench.ledger.next_message(bench.now)).find_map(|kind| match kind {
            agent_message::Kind::Observed(observed) => Some(observed),
            _ => None,
        });
    let said = said.unwrap();
    assert_eq!((said.inventory, said.more, said.observations.len()), (true, false, 1));
}

#[test]
fn late_answer_does_not_revive_deleted_object() {
    let mut bench = Bench::running();
    bench.assign(1, Phase::Absent).answer(Outcome::Accepted);
    let going = || job(1).running().deleting();
    bench.observe(going().applied());
    assert_eq!(bench.new_actions(), ["release Job"]);
    bench
        .observe(gone(ObjectKind::Job, 1))
        .answer(Outcome::Object(Box::new(Object::Job(going().released()))));
    bench.observe(gone(ObjectKind::Workload, 1));
    assert_eq!(bench.reported_states(), [(1, State::Gone)]);
}

/// A lagging watch still shows the quota of a deleted Workload. A restarted hub would commit to it.
#[test]
fn workload_being_deleted_reports_waiting() {
    let mut bench = Bench::open();
    bench
        .assign(1, Phase::Reserve)
        .answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench.observe(workload(1).admitted().applied());
    assert_eq!(bench.reported_states(), [(1, State::Waiting), (1, State::Reserved)]);
    bench.assign(1, Phase::Absent);
    assert_eq!(bench.new_actions(), ["delete Workload"]);
    bench.answer(Outcome::Accepted).connect();
    bench.desire(Vec::new(), true).unwrap();
    assert_eq!(bench.reported_states().last(), Some(&(1, State::Waiting)));
}

#[test]
fn inventory_includes_objects_being_deleted() {
    let mut bench = Bench::running();
    bench.assign(1, Phase::Absent).answer(Outcome::Accepted);
    bench.connect();
    let reports = bench.reported();
    assert_eq!(
        (reports.len(), reports[0].attempt, reports[0].state()),
        (1, 1, State::Running),
        "a hub that has just begun would think that it is gone"
    );
    let origin = reports[0]
        .origin
        .as_ref()
        .expect("a hub that has forgotten it knows it by what it was made of");
    assert_eq!((origin.job_name.as_str(), origin.has_job), ("a", true));
    bench.observe(gone(ObjectKind::Job, 1)).observe(gone(ObjectKind::Workload, 1));
    assert_eq!(bench.reported_states(), [(1, State::Gone)]);
}

#[test]
fn inventory_reports_end_of_job_being_deleted() {
    let mut bench = Bench::running();
    bench.observe(job(1).ended(true).applied()).reported_states();
    bench.persist().assign(1, Phase::Absent).connect();
    assert_eq!(
        bench.reported_states(),
        [(1, State::Succeeded)],
        "a hub that has forgotten it would let it run again"
    );
}

#[test]
fn inventory_includes_unanswered_creations() {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Reserve).assign(1, Phase::Absent).connect();
    assert_eq!(bench.reported_states(), [(1, State::Waiting)], "its Workload is being made");
    bench.answer(Outcome::Unknown("no answer".to_owned()));
    assert!(bench.reported_states().is_empty());
    bench.pass(Time::from_secs(1)).answer(Outcome::Gone);
    assert!(bench.reported_states().is_empty(), "it may be on its way");
    bench.pass(Time::from_secs(60)).answer(Outcome::Gone);
    assert_eq!(bench.reported_states(), [(1, State::Gone)]);
}

#[test]
fn job_without_own_completion_ends_with_workload() {
    for (reports_completion, want) in [(true, vec![]), (false, vec![(1, State::Succeeded)])] {
        let mut bench = Bench::running();
        bench.observe(RemoteJob { reports_completion, ..job(1).running() }.applied());
        bench.reported_states();
        bench.observe(workload(1).admitted().finished("Succeeded").applied());
        assert_eq!(bench.reported_states(), want, "tells: {reports_completion}");
    }
}

/// The `index`th of many unassigned objects is created, perhaps ends, and is deleted.
fn come_and_go(bench: &mut Bench, index: usize, ended: bool) {
    let mut it = if ended { job(1).ended(true) } else { job(1).running() };
    it.meta.workload_uid = format!("forged-{index}");
    it.meta.target.uid = format!("j-{index}");
    let (workload_uid, target) = (it.meta.workload_uid.clone(), it.meta.target.clone());
    bench.observe(it.applied());
    bench.observe(WatchEvent::Deleted { kind: ObjectKind::Job, workload_uid, target });
}

#[test]
fn unassigned_object_reports_gone_and_is_forgotten() {
    let mut bench = Bench::open();
    bench.observe(workload(3).admitted().owned().applied()).observe(job(3).running().applied());
    assert_eq!(bench.reported_states(), [(3, State::Reserved), (3, State::Running)]);
    bench.observe(gone(ObjectKind::Job, 3)).observe(gone(ObjectKind::Workload, 3));
    assert_eq!(bench.reported_states().last(), Some(&(3, State::Gone)));
    assert!(bench.ledger.is_empty());
}

#[test]
fn unassigned_end_reports_gone_once_persisted() {
    let mut bench = Bench::open();
    bench.observe(job(3).ended(true).applied()).observe(gone(ObjectKind::Job, 3));
    assert_eq!(bench.reported_states(), [(3, State::Succeeded)]);
    assert_eq!(bench.ledger.len(), 1, "the end is not persisted");
    bench.persist();
    assert_eq!(bench.reported_states(), [(3, State::Gone)]);
    assert!(bench.ledger.is_empty());
}

#[test]
fn forged_objects_leave_ledger_bounded() {
    for (case, ended, left) in
        [("running ones", false, 0), ("ended ones", true, MAX_UNPERSISTED_ENDS)]
    {
        let mut bench = Bench::new();
        for index in 0..MAX_UNPERSISTED_ENDS + 500 {
            come_and_go(&mut bench, index, ended);
        }
        assert_eq!(bench.ledger.len(), left, "{case}, without a session");
        let mut bench = Bench::open();
        let mut longest = 0;
        for round in 0..50 {
            for index in 0..100 {
                come_and_go(&mut bench, round * 100 + index, ended);
            }
            bench.reported();
            bench.persist();
            bench.reported();
            longest = longest.max(bench.ledger.len());
        }
        assert_eq!(longest, 0, "{case}, in a session");
    }
}
