use super::*;
use proptest::prelude::*;

fn assignment(uid: &str, attempt: u64, phase: Phase) -> Assignment {
    Assignment {
        workload_uid: uid.into(),
        namespace: "ns".into(),
        name: format!("w-{uid}"),
        attempt,
        phase: phase.into(),
        ..Assignment::default()
    }
}

fn payload(text: &str) -> Option<Arc<Payload>> {
    Some(Arc::new(Payload::new(text.as_bytes().to_vec(), b"job".to_vec())))
}

fn drain(outbox: &mut Outbox, limits: MessageLimits) -> Vec<Desired> {
    std::iter::from_fn(|| outbox.next(limits)).collect()
}

fn uids(message: &Desired) -> Vec<&str> {
    message.assignments.iter().map(|a| a.workload_uid.as_str()).collect()
}

#[test]
fn new_session_gets_a_snapshot_even_if_empty() {
    let mut outbox = Outbox::new(100);
    assert!(outbox.next(MessageLimits::default()).is_none(), "no session, no messages");
    assert!(outbox.open(None));
    let messages = drain(&mut outbox, MessageLimits::default());
    assert_eq!(messages.len(), 1);
    assert!(messages[0].snapshot && !messages[0].more);
    assert_eq!((messages[0].revision, messages[0].base_revision), (100, 0));
}

#[test]
fn changes_are_sent_as_coalesced_deltas() {
    let mut outbox = Outbox::new(0);
    outbox.open(None);
    drain(&mut outbox, MessageLimits::default());
    assert!(outbox.set(assignment("a", 1, Phase::Reserve), payload("a")));
    assert!(outbox.set(assignment("b", 1, Phase::Reserve), payload("b")));
    assert!(outbox.set(assignment("a", 1, Phase::Run), payload("a")));
    assert!(!outbox.set(assignment("a", 1, Phase::Run), payload("a")), "no news");
    let messages = drain(&mut outbox, MessageLimits::default());
    assert_eq!(messages.len(), 1);
    assert_eq!(
        (messages[0].base_revision, messages[0].revision, messages[0].snapshot),
        (0, 3, false)
    );
    assert_eq!(uids(&messages[0]), ["b", "a"]);
    assert_eq!(messages[0].assignments[1].phase(), Phase::Run);
    assert!(outbox.next(MessageLimits::default()).is_none());
}

#[test]
fn payload_is_replaced_while_the_workload_runs() {
    let mut outbox = Outbox::new(0);
    outbox.open(None);
    outbox.set(assignment("a", 1, Phase::Run), payload("a"));
    drain(&mut outbox, MessageLimits::default());
    let more = payload("more").unwrap();
    assert!(
        outbox.replace_payload("a", more.clone()) && !outbox.replace_payload("a", more.clone()),
        "once"
    );
    let messages = drain(&mut outbox, MessageLimits::default());
    let sent = &messages[0].assignments[0];
    assert_eq!((sent.attempt, sent.phase(), &sent.payload_hash), (1, Phase::Run, &more.hash));
    assert_eq!(messages[0].payloads.len(), 1);
    outbox.set(assignment("a", 1, Phase::Absent), None);
    assert!(
        !outbox.replace_payload("a", more.clone()) && !outbox.replace_payload("b", more),
        "nothing is made of a tombstone"
    );
}

#[test]
fn payload_is_sent_once_in_a_session() {
    let mut outbox = Outbox::new(0);
    outbox.open(None);
    outbox.set(assignment("a", 1, Phase::Reserve), payload("a"));
    let first = drain(&mut outbox, MessageLimits::default());
    assert_eq!(first[0].payloads.len(), 1);
    assert_eq!(first[0].payloads[0].hash, first[0].assignments[0].payload_hash);
    outbox.set(assignment("a", 1, Phase::Run), payload("a"));
    assert_eq!(drain(&mut outbox, MessageLimits::default())[0].payloads.len(), 0);
    outbox.close();
    assert!(!outbox.open(Some(outbox.revision())), "the agent kept what it knew");
    outbox.set(assignment("a", 2, Phase::Reserve), payload("a"));
    let again = drain(&mut outbox, MessageLimits::default());
    assert_eq!(again[0].payloads.len(), 1, "a new session has no payloads");
}

#[test]
fn agent_with_known_revision_gets_a_delta() {
    let mut outbox = Outbox::new(1000);
    outbox.set(assignment("a", 1, Phase::Run), payload("a"));
    let known = outbox.revision();
    outbox.set(assignment("b", 1, Phase::Run), payload("b"));
    for (case, remembered, snapshot) in [
        ("what we gave", Some(known), false),
        ("an earlier process's revision", Some(999), true),
        ("one from the future", Some(5000), true),
        ("nothing", None, true),
    ] {
        assert_eq!(outbox.open(remembered), snapshot, "{case}");
        let messages = drain(&mut outbox, MessageLimits::default());
        let expected: &[&str] = if snapshot { &["a", "b"] } else { &["b"] };
        assert_eq!(uids(&messages[0]), expected, "{case}");
    }
    outbox.open(Some(outbox.revision()));
    let messages = drain(&mut outbox, MessageLimits::default());
    assert_eq!(
        (messages.len(), messages[0].assignments.len(), messages[0].more),
        (1, 0, false),
        "up to date"
    );
}

#[test]
fn tombstone_stays_until_the_workload_is_gone() {
    let mut outbox = Outbox::new(0);
    outbox.set(assignment("a", 3, Phase::Run), payload("a"));
    assert!(!outbox.forget("a", 3), "not a tombstone");
    outbox.set(assignment("a", 3, Phase::Absent), payload("a"));
    assert!(outbox.get("a").unwrap().payload_hash.is_empty());
    assert!(!outbox.forget("a", 2), "gone is the attempt before");
    assert!(outbox.forget("a", 3));
    assert!(outbox.is_empty());
}

#[test]
fn desired_state_never_goes_back_to_a_lower_attempt() {
    let mut outbox = Outbox::new(0);
    outbox.set(assignment("a", 3, Phase::Absent), None);
    assert!(!outbox.set(assignment("a", 2, Phase::Run), payload("a")));
    assert_eq!(outbox.get("a").unwrap().attempt, 3);
}

#[test]
fn outbox_messages_stay_within_limits() {
    let mut outbox = Outbox::new(0);
    for index in 0..10 {
        outbox.set(
            assignment(&format!("w{index}"), 1, Phase::Reserve),
            payload(&"x".repeat(1000 + index)),
        );
    }
    outbox.open(None);
    let limits = MessageLimits { bytes: 3000, assignments: 3 };
    let messages = drain(&mut outbox, limits);
    assert!(messages.len() >= 4);
    assert!(
        messages
            .iter()
            .all(|m| m.assignments.len() <= 3 && m.snapshot && m.revision == outbox.revision())
    );
    assert!(messages.iter().rev().skip(1).all(|m| m.more) && !messages.last().unwrap().more);
    let mut huge = Outbox::new(0);
    huge.set(assignment("a", 1, Phase::Reserve), payload(&"x".repeat(100_000)));
    huge.open(None);
    assert_eq!(drain(&mut huge, limits).len(), 1, "one that is larger than the limit still goes");
}

/// The state of an agent that has received the messages.
#[derive(Default)]
struct Model {
    assignments: BTreeMap<String, Assignment>,
    pending: BTreeMap<String, Assignment>,
    revision: u64,
    payloads: BTreeSet<Vec<u8>>,
}

impl Model {
    fn take(&mut self, message: &Desired) {
        if !message.snapshot {
            assert_eq!(message.base_revision, self.revision, "no gap");
        }
        self.payloads.extend(message.payloads.iter().map(|p| p.hash.clone()));
        for assignment in &message.assignments {
            if assignment.phase() != Phase::Absent {
                assert!(
                    self.payloads.contains(&assignment.payload_hash),
                    "the payload comes first"
                );
            }
            self.pending.insert(assignment.workload_uid.clone(), assignment.clone());
        }
        if !message.more {
            if message.snapshot {
                self.assignments.clear();
            }
            self.assignments.append(&mut self.pending);
            self.revision = message.revision;
        }
    }
}

proptest! {
    /// After any changes between and within messages and sessions, the agent holds the desired
    /// state.
    #[test]
    fn agent_state_equals_desired_state_after_any_changes(steps in proptest::collection::vec((0u8..12, 0u8..6, 0u8..4), 1..120)) {
        let mut outbox = Outbox::new(50);
        let mut model = Model::default();
        let limits = MessageLimits { bytes: 700, assignments: 2 };
        for (kind, workload, extra) in steps {
            let uid = format!("w{workload}");
            match kind {
                0..=5 => {
                    let attempt = outbox.get(&uid).map_or(1, |a| a.attempt) + u64::from(extra / 3);
                    let phase = [Phase::Reserve, Phase::Run, Phase::Suspend, Phase::Absent][usize::from(extra)];
                    outbox.set(assignment(&uid, attempt, phase), payload(&format!("{uid}-{attempt}")));
                }
                6 => {
                    outbox.close();
                    model.pending.clear();
                    model.payloads.clear();
                    outbox.open((extra > 0 && model.revision > 0).then_some(model.revision));
                }
                _ => {
                    if let Some(message) = outbox.next(limits) {
                        model.take(&message);
                    }
                }
            }
        }
        if outbox.sending.is_none() {
            outbox.open(None);
        }
        while let Some(message) = outbox.next(limits) {
            model.take(&message);
        }
        for (uid, item) in &outbox.items {
            prop_assert_eq!(model.assignments.get(uid), Some(&item.assignment));
        }
    }
}
