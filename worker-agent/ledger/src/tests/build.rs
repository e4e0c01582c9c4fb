//! A test bench: a ledger between a hub and a cluster that the test plays.

use switchyard_proto::timestamp;
use switchyard_proto::v1::{self, HubMessage, Phase, State, agent_message, hub_message};

use crate::*;

pub(super) const WORKLOAD_GVK: &str = "kueue.x-k8s.io/v1beta2, Kind=Workload";
pub(super) const JOB_GVK: &str = "batch/v1, Kind=Job";
pub(super) const UID: &str = "u1";

/// The payload of every test's assignment.
pub(super) fn payload() -> v1::Payload {
    v1::Payload::new(b"{}".to_vec(), b"{}".to_vec())
}

pub(super) fn assignment(uid: &str, attempt: u64, phase: Phase) -> v1::Assignment {
    v1::Assignment {
        workload_uid: uid.to_owned(),
        namespace: "ns".to_owned(),
        name: format!("job-{uid}"),
        attempt,
        phase: phase.into(),
        payload_hash: if phase == Phase::Absent { Vec::new() } else { payload().hash },
        ..v1::Assignment::default()
    }
}

/// An assignment to run, with a fence.
pub(super) fn fenced(uid: &str, attempt: u64, after: Time) -> v1::Assignment {
    let policy = v1::on_disconnect::Policy::Fence.into();
    let rule = v1::OnDisconnect { policy, after: after.try_into().ok() };
    v1::Assignment { on_disconnect: Some(rule), ..assignment(uid, attempt, Phase::Run) }
}

pub(super) fn target(kind: ObjectKind, uid: &str, attempt: u64) -> Target {
    let (gvk, prefix) = match kind {
        ObjectKind::Workload => (WORKLOAD_GVK, "w"),
        ObjectKind::Job => (JOB_GVK, "j"),
    };
    Target {
        gvk: gvk.into(),
        namespace: "ns".to_owned(),
        name: format!("job-{uid}"),
        uid: format!("{prefix}-{uid}-{attempt}"),
    }
}

fn meta(kind: ObjectKind, attempt: u64) -> Meta {
    Meta {
        target: target(kind, UID, attempt),
        version: 0,
        workload_uid: UID.to_owned(),
        attempt,
        deleting: false,
        finalizer_index: None,
        owners: Vec::new(),
    }
}

pub(super) fn yes(reason: &str) -> Option<Condition> {
    Some(Condition { is_true: true, reason: reason.to_owned(), message: String::new() })
}

pub(super) fn no(reason: &str, message: &str) -> Option<Condition> {
    Some(Condition { is_true: false, reason: reason.to_owned(), message: message.to_owned() })
}

/// A Workload that the worker has not considered.
pub(super) fn workload(attempt: u64) -> RemoteWorkload {
    RemoteWorkload {
        meta: meta(ObjectKind::Workload, attempt),
        active: true,
        suspended_by_agent: false,
        is_follower: false,
        fence_after: None,
        priority: None,
        gate: None,
        quota_reserved: None,
        admitted: None,
        evicted: None,
        finished: None,
        unready_checks: Vec::new(),
        status: b"w".to_vec(),
        origin: v1::Origin {
            kind: "batch/v1, Kind=Job".into(),
            job_name: "a".into(),
            pod_sets: vec![1],
            has_job: false,
            created: Some(timestamp(5)),
        },
        slice: None,
    }
}

impl RemoteWorkload {
    pub(super) fn admitted(mut self) -> Self {
        self.quota_reserved = yes("QuotaReserved");
        self.admitted = yes("Admitted");
        self
    }

    pub(super) fn finished(mut self, reason: &str) -> Self {
        self.finished = yes(reason);
        self
    }

    pub(super) fn owned(mut self) -> Self {
        self.meta.owners = vec![target(ObjectKind::Job, UID, self.meta.attempt).uid];
        self
    }

    pub(super) fn fenced(mut self, after: Time) -> Self {
        self.fence_after = Some(after);
        self
    }

    pub(super) fn pending(mut self, reason: &str, message: &str) -> Self {
        self.quota_reserved = no(reason, message);
        self
    }

    pub(super) fn applied(self) -> WatchEvent {
        WatchEvent::Applied(Box::new(Object::Workload(self)))
    }
}

pub(super) fn job(attempt: u64) -> RemoteJob {
    let meta = Meta { finalizer_index: Some(0), ..meta(ObjectKind::Job, attempt) };
    RemoteJob {
        meta,
        suspended: true,
        active: false,
        reports_completion: true,
        may_change: false,
        has_lost_member: false,
        end: None,
        status: b"j".to_vec(),
    }
}

impl RemoteJob {
    pub(super) fn running(mut self) -> Self {
        (self.suspended, self.active) = (false, true);
        self
    }

    pub(super) fn ended(mut self, success: bool) -> Self {
        let reason = if success { "Succeeded" } else { "Failed" }.to_owned();
        (self.suspended, self.active) = (false, false);
        self.end = Some(JobEnd { success, reason, message: "done".to_owned() });
        self
    }

    pub(super) fn deleting(mut self) -> Self {
        self.meta.deleting = true;
        self
    }

    pub(super) fn released(mut self) -> Self {
        self.meta.finalizer_index = None;
        self
    }

    pub(super) fn applied(self) -> WatchEvent {
        WatchEvent::Applied(Box::new(Object::Job(self)))
    }
}

pub(super) fn gone(kind: ObjectKind, attempt: u64) -> WatchEvent {
    WatchEvent::Deleted { kind, workload_uid: UID.to_owned(), target: target(kind, UID, attempt) }
}

pub(super) struct Bench {
    pub(super) ledger: Ledger,
    pub(super) now: Time,
    pub(super) epoch: u64,
    revision: u64,
    /// Actions without an outcome.
    pub(super) actions: Vec<Action>,
    /// The sequence number of the last report.
    pub(super) sequence: u64,
}

impl Bench {
    /// A synced ledger without a session.
    pub(super) fn new() -> Self {
        let rules = Rules { hub_id: "hub".to_owned(), namespaces: AllowedNamespaces::All };
        let mut bench = Self {
            ledger: Ledger::new(rules),
            now: Time::from_secs(100),
            epoch: 1,
            revision: 0,
            actions: Vec::new(),
            sequence: 0,
        };
        bench.observe(WatchEvent::Synced);
        bench
    }

    /// A synced ledger in a session whose empty inventory is sent.
    pub(super) fn open() -> Self {
        let mut bench = Self::new();
        bench.connect();
        bench.reported_states();
        bench
    }

    pub(super) fn connect(&mut self) {
        self.ledger.session_opened();
        let welcome = v1::Welcome {
            version: 1,
            hub_id: "hub".to_owned(),
            session_id: 7,
            lease: None,
            snapshot: true,
        };
        self.receive(hub_message::Kind::Welcome(welcome)).unwrap();
        self.sequence = 0;
    }

    pub(super) fn receive(&mut self, kind: hub_message::Kind) -> Result<(), SessionError> {
        let message = HubMessage { session_id: 7, epoch: self.epoch, kind: Some(kind) };
        self.actions.extend(self.ledger.on_hub_message(message, self.now)?);
        Ok(())
    }

    pub(super) fn desire(
        &mut self,
        assignments: Vec<v1::Assignment>,
        snapshot: bool,
    ) -> Result<(), SessionError> {
        let base_revision = self.revision;
        self.revision += 1;
        let desired = v1::Desired {
            revision: self.revision,
            snapshot,
            base_revision,
            payloads: vec![payload()],
            assignments,
            more: false,
        };
        self.receive(hub_message::Kind::Desired(desired))
    }

    /// Sends an assignment of the test's workload.
    pub(super) fn assign(&mut self, attempt: u64, phase: Phase) -> &mut Self {
        self.desire(vec![assignment(UID, attempt, phase)], false).unwrap();
        self
    }

    /// As [`Self::assign`], with this job as payload.
    pub(super) fn assign_job(&mut self, attempt: u64, phase: Phase, job: &[u8]) -> &mut Self {
        self.assign_payload(assignment(UID, attempt, phase), job)
    }

    /// Assigns this job to run, with a fence.
    pub(super) fn assign_fenced_job(&mut self, attempt: u64, after: Time, job: &[u8]) -> &mut Self {
        self.assign_payload(fenced(UID, attempt, after), job)
    }

    fn assign_payload(&mut self, assignment: v1::Assignment, job: &[u8]) -> &mut Self {
        let workload = payload().workload;
        let payload = v1::Payload::new(workload, job.to_vec());
        let wanted = v1::Assignment { payload_hash: payload.hash.clone(), ..assignment };
        let base_revision = self.revision;
        self.revision += 1;
        let (revision, payloads) = (self.revision, vec![payload]);
        let assignments = vec![wanted];
        let desired = v1::Desired {
            revision,
            snapshot: false,
            base_revision,
            payloads,
            assignments,
            more: false,
        };
        self.receive(hub_message::Kind::Desired(desired)).unwrap();
        self
    }

    pub(super) fn observe(&mut self, seen: WatchEvent) -> &mut Self {
        self.actions.extend(self.ledger.on_watch_event(seen, self.now));
        self
    }

    pub(super) fn pass(&mut self, time: Time) -> &mut Self {
        self.now += time;
        self.actions.extend(self.ledger.tick(self.now));
        self
    }

    /// The actions since the last call, in words.
    pub(super) fn new_actions(&mut self) -> Vec<String> {
        self.actions
            .iter()
            .map(|action| format!("{} {:?}", action.verb.name(), action.kind))
            .collect()
    }

    /// Sets the outcome of the only running action.
    pub(super) fn answer(&mut self, outcome: Outcome) -> &mut Self {
        assert_eq!(self.actions.len(), 1, "{:?}", self.actions);
        let action = self.actions.remove(0);
        self.actions.extend(self.ledger.on_outcome(&action, outcome, self.now));
        self
    }

    /// The observations sent since the last call. Lets a moment pass, because `RUNNING` waits for
    /// one.
    pub(super) fn reported(&mut self) -> Vec<v1::Observation> {
        self.now += Time::from_millis(250);
        let mut reports = Vec::new();
        while let Some(kind) = self.ledger.next_message(self.now) {
            match kind {
                agent_message::Kind::Observed(observed) => {
                    self.sequence = observed.sequence;
                    reports.extend(observed.observations);
                }
                agent_message::Kind::DesiredAck(_) | agent_message::Kind::Digest(_) => {}
                other => panic!("{other:?}"),
            }
        }
        reports
    }

    /// As [`Self::reported`], reduced to attempt and state.
    pub(super) fn reported_states(&mut self) -> Vec<(u64, State)> {
        self.reported()
            .iter()
            .map(|observation| (observation.attempt, observation.state()))
            .collect()
    }

    /// The hub acknowledges all reports.
    pub(super) fn persist(&mut self) -> &mut Self {
        self.receive(hub_message::Kind::ObservedAck(self.sequence)).unwrap();
        self
    }

    /// A bench whose job runs under attempt 1.
    pub(super) fn running() -> Self {
        let mut bench = Self::open();
        bench
            .assign(1, Phase::Run)
            .answer(Outcome::Object(Box::new(Object::Workload(workload(1)))));
        bench
            .observe(workload(1).admitted().applied())
            .answer(Outcome::Object(Box::new(Object::Job(job(1)))));
        bench.observe(workload(1).admitted().owned().applied()).observe(job(1).running().applied());
        assert_eq!(bench.reported_states().last(), Some(&(1, State::Running)));
        bench
    }
}
