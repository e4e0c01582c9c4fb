//! What should be on one cluster, and what of it the cluster still has to be told. Pure.
//!
//! A map from workload to its assignment with a revision that grows with each change. A session takes messages out of
//! it: first a snapshot, or a delta if the agent kept what it knew; then deltas. Between two messages, changes of
//! the same workload coalesce: the latest wins, so a slow cluster costs memory for its workloads and nothing more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use switchyard_proto::v1::{Assignment, Desired, Payload, Phase};

/// What is to be created on the cluster, named by its hash.
#[derive(Debug, PartialEq, Eq)]
pub struct Content {
    /// [`switchyard_proto::payload_hash`] of both.
    pub hash: Vec<u8>,
    /// JSON of the Workload.
    pub workload: Vec<u8>,
    /// JSON of the job.
    pub job: Vec<u8>,
}

impl Content {
    /// Takes both parts and names them.
    pub fn new(workload: Vec<u8>, job: Vec<u8>) -> Self {
        Self { hash: switchyard_proto::payload_hash(&workload, &job), workload, job }
    }

    fn size(&self) -> usize {
        self.workload.len() + self.job.len() + 64
    }
}

/// Bounds of a message.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// A message is cut before it grows over this, in bytes; a single assignment with its payload may be larger.
    pub bytes: usize,
    /// Assignments in a message.
    pub assignments: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 2 << 20, assignments: 512 }
    }
}

#[derive(Debug)]
struct Item {
    assignment: Assignment,
    content: Option<Arc<Content>>,
    /// The revision at which it became what it is.
    revision: u64,
}

/// What a session has been told.
#[derive(Debug, Default)]
struct Sending {
    /// The message sequence under way, if a revision took more than one.
    batch: Option<Batch>,
    /// Up to here everything has been sent.
    sent: u64,
    snapshot: bool,
    /// Nothing has been said yet: the first message tells that all was told, even if there is nothing to tell.
    silent: bool,
    payloads: BTreeSet<Vec<u8>>,
}

#[derive(Debug)]
struct Batch {
    revision: u64,
    base: u64,
    snapshot: bool,
    left: std::collections::VecDeque<String>,
}

/// The desired state of one cluster.
#[derive(Debug)]
pub struct Outbox {
    /// The revision of this outbox when it was empty. Nothing older was given by it.
    first: u64,
    revision: u64,
    items: BTreeMap<String, Item>,
    /// Items by the revision of their last change.
    changes: BTreeMap<u64, String>,
    sending: Option<Sending>,
    acked: u64,
}

impl Outbox {
    /// An empty one. `start` must be larger than any revision that an earlier process of this hub has given to the
    /// cluster: microseconds since the epoch serve.
    pub fn new(start: u64) -> Self {
        Self {
            first: start,
            revision: start,
            items: BTreeMap::new(),
            changes: BTreeMap::new(),
            sending: None,
            acked: 0,
        }
    }

    /// The latest revision.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision that the cluster said it has taken over.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// How many workloads the cluster is told about, tombstones included.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the cluster is told nothing.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The assignment of a workload.
    pub fn get(&self, workload_uid: &str) -> Option<&Assignment> {
        self.items.get(workload_uid).map(|item| &item.assignment)
    }

    /// The content that goes with a workload's assignment.
    pub fn content(&self, workload_uid: &str) -> Option<Arc<Content>> {
        self.items.get(workload_uid)?.content.clone()
    }

    /// Sets what should be for one workload. Returns whether that is news.
    ///
    /// A lower attempt than the one that stands is refused: desired state never goes back. A tombstone needs no
    /// content; any other assignment gets the hash of its content filled in.
    pub fn set(&mut self, mut assignment: Assignment, content: Option<Arc<Content>>) -> bool {
        let absent = assignment.phase == Phase::Absent as i32;
        let content = if absent { None } else { content };
        assignment.payload_hash =
            content.as_ref().map(|content| content.hash.clone()).unwrap_or_default();
        if let Some(item) = self.items.get(&assignment.workload_uid) {
            if item.assignment.attempt > assignment.attempt || item.assignment == assignment {
                return false;
            }
            self.changes.remove(&item.revision);
            // The agent keeps what no assignment names for a while only: should the workload come back, it goes again.
            if let (true, Some(content), Some(sending)) = (absent, &item.content, &mut self.sending)
            {
                sending.payloads.remove(&content.hash);
            }
        }
        self.revision += 1;
        let uid = assignment.workload_uid.clone();
        self.changes.insert(self.revision, uid.clone());
        self.items.insert(uid, Item { assignment, content, revision: self.revision });
        true
    }

    /// Exchanges what is to be created for a workload, at the attempt and in the phase that stand. Returns whether that is
    /// news. A tombstone stays one.
    pub fn exchange(&mut self, workload_uid: &str, content: Arc<Content>) -> bool {
        let Some(item) = self.items.get(workload_uid) else { return false };
        let assignment = item.assignment.clone();
        assignment.phase != Phase::Absent as i32 && self.set(assignment, Some(content))
    }

    /// Forgets a tombstone, once the cluster said that nothing is left. Anything but a tombstone stays.
    pub fn forget(&mut self, workload_uid: &str, attempt: u64) -> bool {
        let Some(item) = self.items.get(workload_uid) else { return false };
        if item.assignment.phase != Phase::Absent as i32 || item.assignment.attempt > attempt {
            return false;
        }
        self.changes.remove(&item.revision);
        self.items.remove(workload_uid);
        true
    }

    /// Begins a session. `known` is the revision that the agent remembers from this very hub process's term, if any.
    /// Returns whether a snapshot follows; if not, deltas from `known`. Either is sent even if it is empty: it tells the
    /// agent that it is up to date.
    pub fn open(&mut self, known: Option<u64>) -> bool {
        let known = known.filter(|revision| (self.first..=self.revision).contains(revision));
        let snapshot = known.is_none();
        self.sending = Some(Sending {
            sent: known.unwrap_or(0),
            snapshot,
            silent: true,
            ..Sending::default()
        });
        snapshot
    }

    /// Ends the session. What was sent and not taken over will be sent again.
    pub fn close(&mut self) {
        self.sending = None;
    }

    /// The cluster has taken over everything up to `revision`.
    pub fn ack(&mut self, revision: u64) {
        self.acked = self.acked.max(revision.min(self.revision));
    }

    /// The next message, if there is something to say and a session to say it in.
    pub fn next(&mut self, limits: Limits) -> Option<Desired> {
        let sending = self.sending.as_mut()?;
        let mut batch = match sending.batch.take() {
            Some(batch) => batch,
            None if sending.snapshot => {
                sending.snapshot = false;
                Batch {
                    revision: self.revision,
                    base: 0,
                    snapshot: true,
                    left: self.items.keys().cloned().collect(),
                }
            }
            None if sending.silent || self.changes.range(sending.sent + 1..).next().is_some() => {
                Batch {
                    revision: self.revision,
                    base: sending.sent,
                    snapshot: false,
                    left: self
                        .changes
                        .range(sending.sent + 1..)
                        .map(|(_, uid)| uid.clone())
                        .collect(),
                }
            }
            None => return None,
        };
        sending.silent = false;

        let mut message = Desired {
            revision: batch.revision,
            snapshot: batch.snapshot,
            base_revision: batch.base,
            ..Desired::default()
        };
        let mut bytes = 0;
        while let Some(uid) = batch.left.front() {
            // It may have been forgotten, or replaced, since the batch was begun: what is sent is what stands now.
            let Some(item) = self.items.get(uid) else {
                batch.left.pop_front();
                continue;
            };
            let payload =
                item.content.as_ref().filter(|content| !sending.payloads.contains(&content.hash));
            let size = size(&item.assignment) + payload.map_or(0, |content| content.size());
            let full =
                bytes + size > limits.bytes || message.assignments.len() >= limits.assignments;
            if full && !message.assignments.is_empty() {
                break;
            }
            bytes += size;
            if let Some(content) = payload {
                sending.payloads.insert(content.hash.clone());
                message.payloads.push(Payload {
                    hash: content.hash.clone(),
                    workload: content.workload.clone(),
                    job: content.job.clone(),
                });
            }
            message.assignments.push(item.assignment.clone());
            batch.left.pop_front();
        }
        message.more = !batch.left.is_empty();
        if message.more {
            sending.batch = Some(batch);
        } else {
            sending.sent = batch.revision;
            // Payloads of workloads that are no longer here need not be remembered for ever.
            if sending.payloads.len() > 2 * self.items.len() + 1024 {
                let live: BTreeSet<_> = self
                    .items
                    .values()
                    .filter_map(|item| Some(item.content.as_ref()?.hash.clone()))
                    .collect();
                sending.payloads.retain(|hash| live.contains(hash));
            }
        }
        Some(message)
    }
}

/// About what an assignment takes on the wire, in bytes.
fn size(assignment: &Assignment) -> usize {
    let pins: usize = assignment
        .flavor_pins
        .iter()
        .map(|pin| pin.pod_set.len() + pin.resource.len() + pin.flavor.len() + 12)
        .sum();
    128 + assignment.namespace.len()
        + assignment.name.len()
        + assignment.eviction_message.len()
        + pins
}

#[cfg(test)]
mod tests {
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

    fn content(text: &str) -> Option<Arc<Content>> {
        Some(Arc::new(Content::new(text.as_bytes().to_vec(), b"job".to_vec())))
    }

    fn drain(outbox: &mut Outbox, limits: Limits) -> Vec<Desired> {
        std::iter::from_fn(|| outbox.next(limits)).collect()
    }

    fn uids(message: &Desired) -> Vec<&str> {
        message.assignments.iter().map(|a| a.workload_uid.as_str()).collect()
    }

    #[test]
    fn a_new_session_gets_a_snapshot_even_of_nothing() {
        let mut outbox = Outbox::new(100);
        assert!(outbox.next(Limits::default()).is_none(), "no session, no messages");
        assert!(outbox.open(None));
        let messages = drain(&mut outbox, Limits::default());
        assert_eq!(messages.len(), 1);
        assert!(messages[0].snapshot && !messages[0].more);
        assert_eq!((messages[0].revision, messages[0].base_revision), (100, 0));
    }

    #[test]
    fn changes_follow_as_deltas_and_coalesce() {
        let mut outbox = Outbox::new(0);
        outbox.open(None);
        drain(&mut outbox, Limits::default());
        assert!(outbox.set(assignment("a", 1, Phase::Reserve), content("a")));
        assert!(outbox.set(assignment("b", 1, Phase::Reserve), content("b")));
        assert!(outbox.set(assignment("a", 1, Phase::Run), content("a")));
        assert!(!outbox.set(assignment("a", 1, Phase::Run), content("a")), "no news");
        let messages = drain(&mut outbox, Limits::default());
        assert_eq!(messages.len(), 1);
        assert_eq!(
            (messages[0].base_revision, messages[0].revision, messages[0].snapshot),
            (0, 3, false)
        );
        assert_eq!(uids(&messages[0]), ["b", "a"]);
        assert_eq!(messages[0].assignments[1].phase(), Phase::Run);
        assert!(outbox.next(Limits::default()).is_none());
    }

    #[test]
    fn what_a_workload_is_made_of_may_be_exchanged_while_it_runs() {
        let mut outbox = Outbox::new(0);
        outbox.open(None);
        outbox.set(assignment("a", 1, Phase::Run), content("a"));
        drain(&mut outbox, Limits::default());
        let more = content("more").unwrap();
        assert!(outbox.exchange("a", more.clone()) && !outbox.exchange("a", more.clone()), "once");
        let messages = drain(&mut outbox, Limits::default());
        let sent = &messages[0].assignments[0];
        assert_eq!((sent.attempt, sent.phase(), &sent.payload_hash), (1, Phase::Run, &more.hash));
        assert_eq!(messages[0].payloads.len(), 1);
        outbox.set(assignment("a", 1, Phase::Absent), None);
        assert!(
            !outbox.exchange("a", more.clone()) && !outbox.exchange("b", more),
            "nothing is made of a tombstone"
        );
    }

    #[test]
    fn a_payload_goes_once_a_session() {
        let mut outbox = Outbox::new(0);
        outbox.open(None);
        outbox.set(assignment("a", 1, Phase::Reserve), content("a"));
        let first = drain(&mut outbox, Limits::default());
        assert_eq!(first[0].payloads.len(), 1);
        assert_eq!(first[0].payloads[0].hash, first[0].assignments[0].payload_hash);
        outbox.set(assignment("a", 1, Phase::Run), content("a"));
        assert_eq!(drain(&mut outbox, Limits::default())[0].payloads.len(), 0);
        outbox.close();
        assert!(!outbox.open(Some(outbox.revision())), "the agent kept what it knew");
        outbox.set(assignment("a", 2, Phase::Reserve), content("a"));
        let again = drain(&mut outbox, Limits::default());
        assert_eq!(again[0].payloads.len(), 1, "a new session has no payloads");
    }

    #[test]
    fn an_agent_that_kept_its_state_gets_what_changed_since() {
        let mut outbox = Outbox::new(1000);
        outbox.set(assignment("a", 1, Phase::Run), content("a"));
        let known = outbox.revision();
        outbox.set(assignment("b", 1, Phase::Run), content("b"));
        for (case, remembered, snapshot) in [
            ("what we gave", Some(known), false),
            ("an earlier process's revision", Some(999), true),
            ("one from the future", Some(5000), true),
            ("nothing", None, true),
        ] {
            assert_eq!(outbox.open(remembered), snapshot, "{case}");
            let messages = drain(&mut outbox, Limits::default());
            let expected: &[&str] = if snapshot { &["a", "b"] } else { &["b"] };
            assert_eq!(uids(&messages[0]), expected, "{case}");
        }
        outbox.open(Some(outbox.revision()));
        let messages = drain(&mut outbox, Limits::default());
        assert_eq!(
            (messages.len(), messages[0].assignments.len(), messages[0].more),
            (1, 0, false),
            "up to date"
        );
    }

    #[test]
    fn a_tombstone_stays_until_nothing_is_left() {
        let mut outbox = Outbox::new(0);
        outbox.set(assignment("a", 3, Phase::Run), content("a"));
        assert!(!outbox.forget("a", 3), "not a tombstone");
        outbox.set(assignment("a", 3, Phase::Absent), content("a"));
        assert!(outbox.get("a").unwrap().payload_hash.is_empty());
        assert!(!outbox.forget("a", 2), "gone is the attempt before");
        assert!(outbox.forget("a", 3));
        assert!(outbox.is_empty());
    }

    #[test]
    fn desired_state_never_goes_back_to_a_lower_attempt() {
        let mut outbox = Outbox::new(0);
        outbox.set(assignment("a", 3, Phase::Absent), None);
        assert!(!outbox.set(assignment("a", 2, Phase::Run), content("a")));
        assert_eq!(outbox.get("a").unwrap().attempt, 3);
    }

    #[test]
    fn messages_are_bounded() {
        let mut outbox = Outbox::new(0);
        for index in 0..10 {
            outbox.set(
                assignment(&format!("w{index}"), 1, Phase::Reserve),
                content(&"x".repeat(1000 + index)),
            );
        }
        outbox.open(None);
        let limits = Limits { bytes: 3000, assignments: 3 };
        let messages = drain(&mut outbox, limits);
        assert!(messages.len() >= 4);
        assert!(
            messages
                .iter()
                .all(|m| m.assignments.len() <= 3 && m.snapshot && m.revision == outbox.revision())
        );
        assert!(messages.iter().rev().skip(1).all(|m| m.more) && !messages.last().unwrap().more);
        let mut huge = Outbox::new(0);
        huge.set(assignment("a", 1, Phase::Reserve), content(&"x".repeat(100_000)));
        huge.open(None);
        assert_eq!(
            drain(&mut huge, limits).len(),
            1,
            "one that is larger than the limit still goes"
        );
    }

    /// What an agent would hold after the messages it got.
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
        /// Whatever changes between and within messages and sessions, once drained the agent holds what is desired.
        #[test]
        fn the_agent_ends_with_what_is_desired(steps in proptest::collection::vec((0u8..12, 0u8..6, 0u8..4), 1..120)) {
            let mut outbox = Outbox::new(50);
            let mut model = Model::default();
            let limits = Limits { bytes: 700, assignments: 2 };
            for (kind, workload, extra) in steps {
                let uid = format!("w{workload}");
                match kind {
                    0..=5 => {
                        let attempt = outbox.get(&uid).map_or(1, |a| a.attempt) + u64::from(extra / 3);
                        let phase = [Phase::Reserve, Phase::Run, Phase::Suspend, Phase::Absent][usize::from(extra)];
                        outbox.set(assignment(&uid, attempt, phase), content(&format!("{uid}-{attempt}")));
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
}
