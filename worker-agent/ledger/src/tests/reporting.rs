//! What the hub is told, and when a session must end.

use switchyard_proto::digest::{Digest, bucket};
use switchyard_proto::v1::{self, Phase, State, agent_message, hub_message};

use super::super::*;
use super::build::*;

#[test]
fn states_are_told_in_order_though_the_hub_was_slow() {
    let mut bench = Bench::open();
    bench.want(1, Phase::Run).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench.see(workload(1).admitted().seen()).answer(Outcome::Object(Box::new(Object::Job(job(1)))));
    bench.see(job(1).ended(true).seen());
    assert_eq!(
        bench.heard(),
        [(1, State::Waiting), (1, State::Reserved), (1, State::Running), (1, State::Succeeded)]
    );
}

#[test]
fn mere_status_is_told_now_and_then_and_only_the_newest() {
    let mut bench = Bench::running();
    let see = |bench: &mut Bench, rounds: std::ops::Range<u8>| {
        for round in rounds {
            let mut changed = job(1).running();
            changed.status = vec![round];
            bench.see(changed.seen());
        }
    };
    see(&mut bench, 0..3);
    let told = bench.told();
    assert_eq!(
        (told.len(), told[0].job_status.as_slice()),
        (1, &[2][..]),
        "the first change follows soon"
    );
    see(&mut bench, 3..5);
    assert!(bench.told().is_empty(), "the last was just told");
    bench.now += Time::from_millis(750);
    let told = bench.told();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].job_status, [4]);
    assert!(told[0].workload_status.is_empty(), "it has not changed");
}

#[test]
fn running_waits_a_moment_for_the_jobs_first_status() {
    let mut bench = Bench::open();
    bench
        .want(1, Phase::Run)
        .answer(Outcome::Object(Box::new(Object::Workload(workload(1).admitted()))));
    bench.heard();
    bench.answer(Outcome::Object(Box::new(Object::Job(job(1)))));
    assert_eq!(bench.ledger.outgoing(bench.now), None);
    let mut first = job(1).running();
    first.status = b"active".to_vec();
    bench.see(first.seen());
    let told = bench.told();
    assert_eq!(
        (told.len(), told[0].state(), told[0].job_status.as_slice()),
        (1, State::Running, &b"active"[..])
    );
}

#[test]
fn the_inventory_names_everything_once_and_later_states_follow_it() {
    let mut bench = Bench::new();
    bench.see(workload(3).admitted().owned().seen()).see(job(3).running().seen());
    bench.connect();
    let Some(agent_message::Kind::Observed(inventory)) = bench.ledger.outgoing(bench.now) else {
        panic!()
    };
    assert!(inventory.inventory && !inventory.more);
    assert_eq!((inventory.sequence, inventory.observations.len()), (1, 1));
    assert_eq!(inventory.observations[0].name, format!("job-{UID}"));
    bench.see(job(3).ended(true).seen());
    assert_eq!(bench.heard(), [(3, State::Succeeded)]);
    assert_eq!(bench.sequence, 2);
}

#[test]
fn a_large_inventory_comes_in_parts() {
    let mut bench = Bench::new();
    for index in 0..600 {
        let mut other = workload(1);
        other.meta.workload_uid = format!("u{index:04}");
        bench.see(other.seen());
    }
    bench.connect();
    let mut parts = Vec::new();
    while let Some(agent_message::Kind::Observed(part)) = bench.ledger.outgoing(bench.now) {
        parts.push((part.observations.len(), part.more, part.sequence));
    }
    assert_eq!(parts, [(256, true, 1), (256, true, 2), (88, false, 3)]);
}

#[test]
fn the_digest_covers_what_was_told_and_a_resend_tells_it_again() {
    let mut bench = Bench::running();
    bench.heard();
    bench.now += Time::from_secs(60);
    let Some(agent_message::Kind::Digest(digest)) = bench.ledger.outgoing(bench.now) else {
        panic!()
    };
    assert!(Digest::of([(UID, 1, State::Running)]).differing_buckets(&digest).is_empty());
    let other = (u32::from(bucket(UID)) + 1) % 256;
    bench.say(hub_message::Kind::Resend(v1::Resend { buckets: vec![other] })).unwrap();
    assert!(bench.told().is_empty());
    bench
        .say(hub_message::Kind::Resend(v1::Resend { buckets: vec![u32::from(bucket(UID))] }))
        .unwrap();
    let told = bench.told();
    assert_eq!((told.len(), told[0].state()), (1, State::Running));
    assert!(!told[0].job_status.is_empty() && !told[0].workload_status.is_empty());
}

#[test]
fn a_deposed_leader_is_not_obeyed() {
    let mut bench = Bench::running();
    bench.epoch = 5;
    bench.want(1, Phase::Run);
    bench.epoch = 4;
    let deposed = bench.desire(vec![assignment(UID, 1, Phase::Absent)], true);
    assert_eq!(deposed, Err(SessionError::Deposed { got: 4, seen: 5 }));
    assert!(bench.asked().is_empty());
    bench.ledger.session_opened();
    let welcome = v1::Welcome {
        version: 1,
        hub_id: "hub".to_owned(),
        session_id: 8,
        lease: None,
        snapshot: true,
    };
    let refused = bench.say(hub_message::Kind::Welcome(welcome));
    assert_eq!(refused, Err(SessionError::Deposed { got: 4, seen: 5 }), "nor in another session");
}

#[test]
fn messages_of_another_session_are_dropped() {
    let mut bench = Bench::running();
    let desired = v1::Desired { revision: 9, snapshot: true, ..v1::Desired::default() };
    let message =
        HubMessage { session_id: 6, epoch: 1, kind: Some(hub_message::Kind::Desired(desired)) };
    assert_eq!(bench.ledger.hub(message, bench.now), Ok(Vec::new()));
    assert_ne!(bench.ledger.memory().revision, 9);
}

#[test]
fn another_hub_and_another_protocol_are_refused() {
    let open = |hub_id: &str, version| {
        let mut bench = Bench::new();
        bench.ledger.session_opened();
        let hub_id = hub_id.to_owned();
        let welcome = v1::Welcome { version, hub_id, session_id: 1, lease: None, snapshot: true };
        bench.say(hub_message::Kind::Welcome(welcome))
    };
    assert_eq!(open("hub", 1), Ok(()));
    assert_eq!(open("hub", 2), Err(SessionError::Version(2)));
    assert!(matches!(open("other", 1), Err(SessionError::OtherHub { .. })));
}

#[test]
fn a_gap_ends_the_session_and_asks_for_everything() {
    let mut bench = Bench::running();
    let delta = v1::Desired { revision: 50, base_revision: 49, ..v1::Desired::default() };
    let gap = bench.say(hub_message::Kind::Desired(delta));
    assert!(matches!(gap, Err(SessionError::Gap { base: 49, .. })));
    assert_eq!(bench.ledger.memory(), Memory { hub_id: "hub".to_owned(), epoch: 1, revision: 0 });
}

#[test]
fn a_payload_that_is_missing_or_not_what_it_says_ends_the_session() {
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
    assert_eq!(bench.say(hub_message::Kind::Desired(desired)), Err(SessionError::PayloadCorrupt));
}

#[test]
fn a_payload_over_the_limit_is_refused_by_name() {
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
    bench.say(hub_message::Kind::Desired(desired)).unwrap();
    let told = bench.told();
    assert_eq!(
        (told[0].state(), told[0].reasons[0].code.as_str()),
        (State::Refused, "PayloadTooLarge")
    );
    assert!(bench.asked().is_empty());
}

#[test]
fn half_a_snapshot_drops_nothing() {
    let mut bench = Bench::running();
    let part = v1::Desired { revision: 9, snapshot: true, more: true, ..v1::Desired::default() };
    bench.say(hub_message::Kind::Desired(part)).unwrap();
    assert_ne!(bench.ledger.memory().revision, 9);
    bench.connect();
    assert_eq!(bench.heard(), [(1, State::Running)]);
    bench.want(1, Phase::Absent);
    assert_eq!(bench.asked(), ["delete Job"], "it is still desired, and so it can be ended");
}

#[test]
fn an_inventory_names_what_was_listed_after_the_session_had_begun() {
    let mut bench = Bench::new();
    bench.ledger =
        Ledger::new(Rules { hub_id: "hub".to_owned(), namespaces: AllowedNamespaces::All });
    bench.connect();
    bench.see(workload(1).admitted().seen()).see(job(1).running().seen());
    assert!(bench.told().is_empty(), "there may be more");
    bench.see(Seen::Synced);
    let said =
        std::iter::from_fn(|| bench.ledger.outgoing(bench.now)).find_map(|kind| match kind {
            agent_message::Kind::Observed(observed) => Some(observed),
            _ => None,
        });
    let said = said.unwrap();
    assert_eq!((said.inventory, said.more, said.observations.len()), (true, false, 1));
}

#[test]
fn a_late_answer_does_not_bring_back_what_is_gone() {
    let mut bench = Bench::running();
    bench.want(1, Phase::Absent).answer(Outcome::Accepted);
    let going = || job(1).running().deleting();
    bench.see(going().seen());
    assert_eq!(bench.asked(), ["release Job"]);
    bench
        .see(gone(Kind::Job, 1))
        .answer(Outcome::Object(Box::new(Object::Job(going().released()))));
    bench.see(gone(Kind::Workload, 1));
    assert_eq!(bench.heard(), [(1, State::Gone)]);
}

/// A watch that is behind still shows the quota of a Workload that was deleted. A hub that has begun anew would commit to
/// it.
#[test]
fn deleted_workload_waits_whatever_the_watch_shows() {
    let mut bench = Bench::open();
    bench.want(1, Phase::Reserve).answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
    bench.see(workload(1).admitted().seen());
    assert_eq!(bench.heard(), [(1, State::Waiting), (1, State::Reserved)]);
    bench.want(1, Phase::Absent);
    assert_eq!(bench.asked(), ["delete Workload"]);
    bench.answer(Outcome::Accepted).connect();
    bench.desire(Vec::new(), true).unwrap();
    assert_eq!(bench.heard().last(), Some(&(1, State::Waiting)));
}

#[test]
fn an_inventory_names_what_is_being_torn_down() {
    let mut bench = Bench::running();
    bench.want(1, Phase::Absent).answer(Outcome::Accepted);
    bench.connect();
    let told = bench.told();
    assert_eq!(
        (told.len(), told[0].attempt, told[0].state()),
        (1, 1, State::Running),
        "a hub that has just begun would think that it is gone"
    );
    let origin = told[0]
        .origin
        .as_ref()
        .expect("a hub that has forgotten it knows it by what it was made of");
    assert_eq!((origin.job_name.as_str(), origin.has_job), ("a", true));
    bench.see(gone(Kind::Job, 1)).see(gone(Kind::Workload, 1));
    assert_eq!(bench.heard(), [(1, State::Gone)]);
}

#[test]
fn an_inventory_tells_the_end_of_what_is_being_torn_down() {
    let mut bench = Bench::running();
    bench.see(job(1).ended(true).seen()).heard();
    bench.persist().want(1, Phase::Absent).connect();
    assert_eq!(
        bench.heard(),
        [(1, State::Succeeded)],
        "a hub that has forgotten it would let it run again"
    );
}

#[test]
fn an_inventory_names_what_may_yet_come_to_be() {
    let mut bench = Bench::open();
    bench.want(1, Phase::Reserve).want(1, Phase::Absent).connect();
    assert_eq!(bench.heard(), [(1, State::Waiting)], "its Workload is being made");
    bench.answer(Outcome::Failed("no answer".to_owned()));
    assert!(bench.heard().is_empty());
    bench.pass(Time::from_secs(1)).answer(Outcome::Gone);
    assert!(bench.heard().is_empty(), "it may be on its way");
    bench.pass(Time::from_secs(60)).answer(Outcome::Gone);
    assert_eq!(bench.heard(), [(1, State::Gone)]);
}

#[test]
fn a_job_that_does_not_tell_its_end_has_ended_when_its_workload_has() {
    for (tells_its_end, want) in [(true, vec![]), (false, vec![(1, State::Succeeded)])] {
        let mut bench = Bench::running();
        bench.see(RemoteJob { tells_its_end, ..job(1).running() }.seen());
        bench.heard();
        bench.see(workload(1).admitted().finished("Succeeded").seen());
        assert_eq!(bench.heard(), want, "tells: {tells_its_end}");
    }
}

/// The `index`th of many objects that nobody asked for: made, perhaps ended, and removed.
fn come_and_go(bench: &mut Bench, index: usize, ended: bool) {
    let mut it = if ended { job(1).ended(true) } else { job(1).running() };
    it.meta.workload_uid = format!("forged-{index}");
    it.meta.target.uid = format!("j-{index}");
    let (workload_uid, target) = (it.meta.workload_uid.clone(), it.meta.target.clone());
    bench.see(it.seen());
    bench.see(Seen::Deleted { kind: Kind::Job, workload_uid, target });
}

#[test]
fn unasked_object_that_goes_is_told_gone_and_forgotten() {
    let mut bench = Bench::open();
    bench.see(workload(3).admitted().owned().seen()).see(job(3).running().seen());
    assert_eq!(bench.heard(), [(3, State::Reserved), (3, State::Running)]);
    bench.see(gone(Kind::Job, 3)).see(gone(Kind::Workload, 3));
    assert_eq!(bench.heard().last(), Some(&(3, State::Gone)));
    assert!(bench.ledger.is_empty());
}

#[test]
fn unasked_end_is_told_gone_once_it_is_persisted() {
    let mut bench = Bench::open();
    bench.see(job(3).ended(true).seen()).see(gone(Kind::Job, 3));
    assert_eq!(bench.heard(), [(3, State::Succeeded)]);
    assert_eq!(bench.ledger.len(), 1, "the end is not persisted");
    bench.persist();
    assert_eq!(bench.heard(), [(3, State::Gone)]);
    assert!(bench.ledger.is_empty());
}

#[test]
fn forged_objects_that_come_and_go_leave_a_bounded_ledger() {
    for (case, ended, left) in [("running ones", false, 0), ("ended ones", true, MAX_KEPT)] {
        let mut bench = Bench::new();
        for index in 0..MAX_KEPT + 500 {
            come_and_go(&mut bench, index, ended);
        }
        assert_eq!(bench.ledger.len(), left, "{case}, without a session");
        let mut bench = Bench::open();
        let mut longest = 0;
        for round in 0..50 {
            for index in 0..100 {
                come_and_go(&mut bench, round * 100 + index, ended);
            }
            bench.told();
            bench.persist();
            bench.told();
            longest = longest.max(bench.ledger.len());
        }
        assert_eq!(longest, 0, "{case}, in a session");
    }
}
