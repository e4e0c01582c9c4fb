//! Adoption of copies that run since before the store loss.

use super::*;

pub(super) const HOUR: i64 = 3_600_000;

pub(super) fn subject(job: &str, pods: u8) -> JobIdentity {
    JobIdentity {
        kind: "batch/v1, Kind=Job".into(),
        job: job.into(),
        pod_sets: Arc::from(vec![pods]),
    }
}

/// A copy as its cluster reports it: old uid, attempt, state and job.
pub(super) struct Copy {
    pub(super) uid: &'static str,
    pub(super) attempt: u64,
    pub(super) state: State,
    pub(super) reasons: Vec<Reason>,
    pub(super) origin: Option<CopyOrigin>,
}

impl Copy {
    pub(super) fn of(uid: &'static str, job: &str) -> Self {
        let origin = CopyOrigin { subject: subject(job, 1), has_job: true, created: START - 1_000 };
        Self { uid, attempt: 3, state: State::Running, reasons: Vec::new(), origin: Some(origin) }
    }

    pub(super) fn attempt(self, attempt: u64) -> Self {
        Self { attempt, ..self }
    }

    pub(super) fn state(self, state: State) -> Self {
        Self { state, ..self }
    }

    /// Its Workload is deleted, and its pods still run.
    pub(super) fn going(self) -> Self {
        let reason = Reason::new(switchyard_proto::DELETED_ON_WORKER, "its pods are not gone yet");
        Self { reasons: vec![reason], ..self }
    }

    /// Its cluster does not know the job.
    pub(super) fn unknown(self) -> Self {
        Self { origin: None, ..self }
    }

    pub(super) fn with(mut self, change: impl FnMut(&mut CopyOrigin)) -> Self {
        self.origin.iter_mut().for_each(change);
        self
    }
}

impl Bench {
    /// A hub whose store begins now. No cluster has reported.
    pub(super) fn forgetful(clusters: &[&str]) -> Self {
        Self::forgetful_under(LossPolicy::Hold, clusters)
    }

    pub(super) fn forgetful_under(policy: LossPolicy, clusters: &[&str]) -> Self {
        let settings = DispatcherSettings {
            store_loss: Some(StoreLoss::new(START, START, START)),
            ..DispatcherSettings::default()
        };
        let mut bench =
            Self { dispatcher: Dispatcher::new(settings, START), now: START, log: Vec::new() };
        let names = clusters.iter().map(|name| Name::from(*name)).collect();
        bench.apply(DispatchEvent::CheckConfigured { name: "mk".into(), clusters: names });
        for cluster in clusters {
            bench.rules(cluster, policy);
        }
        bench
    }

    pub(super) fn tells(&mut self, cluster: &str, copies: Vec<Copy>) {
        self.apply(DispatchEvent::SessionOpened { name: cluster.into() });
        let uids = copies.iter().map(|copy| Uid::from(copy.uid)).collect();
        for Copy { uid, attempt, state, reasons, origin } in copies {
            let observation = Observation {
                name: "old".into(),
                reasons,
                job_status: true,
                origin,
                ..observation(uid, attempt, state)
            };
            self.observed(cluster, observation);
        }
        self.apply(DispatchEvent::InventoryComplete { cluster: cluster.into(), uids });
        self.capacity(cluster, 4000, 4000);
    }

    /// The job was applied again and has quota.
    pub(super) fn applied(&mut self) {
        self.reserve(again());
    }
}

pub(super) fn again() -> WorkloadFacts {
    WorkloadFacts { subject: Some(subject("train", 1)), ..facts("new") }
}

pub(super) fn adopted(cluster: &str, attempt: u64) -> WorkloadFacts {
    committed("new", cluster, attempt).with(|it| it.cluster_uid = Some("old".into()))
}

#[test]
fn reapplied_job_adopts_running_copy() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.tells("a", vec![Copy::of("old", "train")]);
    assert_eq!(bench.take(), ["orphan old/3 on a"]);
    bench.applied();
    assert_eq!(bench.take(), ["commit new/3 on a, known as old"]);
    bench.written(WriteOutcome::Done, adopted("a", 3));
    assert_eq!(bench.take(), ["mirror new/3 from a", "Run old/3 on a"]);
    assert_eq!(bench.dispatcher.cluster_view("a").orphans, 0);
    bench.observe("a", "old", 3, State::Succeeded);
    assert_eq!(bench.take(), ["finish new/3 from a: true"]);
    bench.written(WriteOutcome::Done, adopted("a", 3).with(|it| it.finished = true));
    assert_eq!(bench.take(), ["ack old/3 to a", "Absent old/3 on a", "ack old/3 to a"]);
    bench.observe("a", "old", 3, State::Gone);
    assert_eq!(bench.take(), ["forget old/3 on a"]);
}

#[test]
fn adoption_works_in_either_order_of_job_and_cluster() {
    let mut bench = Bench::forgetful(&["a"]);
    bench.applied();
    assert!(bench.take().is_empty());
    bench.tells("a", vec![Copy::of("old", "train")]);
    assert_eq!(bench.take(), ["orphan old/3 on a", "commit new/3 on a, known as old"]);
}

#[test]
fn end_of_adopted_copy_is_end_of_job() {
    let mut bench = Bench::forgetful(&["a"]);
    bench.tells("a", vec![Copy::of("old", "train").state(State::Failed)]);
    bench.later(20_000);
    assert_eq!(
        bench.take(),
        ["orphan old/3 on a", "ack old/3 to a"],
        "others' ends do not wait for it"
    );
    bench.later(24 * HOUR);
    assert!(bench.take().is_empty(), "and it stays");
    bench.applied();
    assert_eq!(bench.take(), ["commit new/3 on a, known as old"]);
    bench.written(WriteOutcome::Done, adopted("a", 3));
    assert_eq!(bench.take(), ["finish new/3 from a: false"]);
}

#[test]
fn adoption_survives_restart() {
    let mut bench = Bench::forgetful(&["a"]);
    bench.apply(DispatchEvent::WorkloadChanged(adopted("a", 3)));
    bench.tells("a", vec![Copy::of("old", "train")]);
    assert_eq!(bench.take(), ["mirror new/3 from a", "Run old/3 on a"]);
}

#[test]
fn adopted_workload_keeps_the_clusters_uid_elsewhere() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.apply(DispatchEvent::WorkloadChanged(adopted("a", 3)));
    bench.tells("a", vec![Copy::of("old", "train")]);
    bench.tells("b", vec![]);
    bench.take();
    bench.apply(DispatchEvent::WorkloadChanged(adopted("a", 3).with(|it| it.evicted = true)));
    assert_eq!(bench.take(), ["Absent old/3 on a"]);
    bench.observe("a", "old", 3, State::Gone);
    assert_eq!(bench.take(), ["forget old/3 on a", "release new"]);
    bench.written(
        WriteOutcome::Done,
        adopted("a", 3).with(|it| {
            it.cluster = None;
            it.reserved = false;
            it.check = None;
        }),
    );
    bench.reserve(again().with(|it| {
        it.attempt = 3;
        it.cluster_uid = Some("old".into());
    }));
    assert_eq!(bench.take(), ["Reserve old/4 on a"]);
}

/// Copies that are not adopted, and the workload that waits for them.
#[test]
fn differing_copy_is_not_adopted_and_blocks_start() {
    let copy = || Copy::of("old", "train");
    let cases: Vec<(&str, Copy, &str)> = vec![
        ("other pods", copy().with(|it| it.subject = subject("train", 2)), "wait"),
        ("another job", Copy::of("old", "other"), "Reserve new/1 on a"),
        (
            "another kind",
            copy().with(|it| it.subject.kind = "ray.io/v1, Kind=RayJob".into()),
            "Reserve new/1 on a",
        ),
        ("made since", copy().with(|it| it.created = START + HOUR), "Reserve new/1 on a"),
        ("an attempt that no hub gave out", copy().attempt(1 << 21), "wait"),
        (
            "no job",
            copy().state(State::Reserved).with(|it| it.has_job = false),
            "Absent old/3 on a",
        ),
    ];
    for (case, copy, expected) in cases {
        let mut bench = Bench::forgetful(&["a"]);
        bench.tells("a", vec![copy]);
        bench.take();
        bench.applied();
        match expected {
            "wait" => assert!(bench.take().is_empty(), "{case}"),
            expected => assert_eq!(bench.take(), [expected], "{case}"),
        }
    }
}

#[test]
fn differing_copy_shows_reason_and_adopts_on_request() {
    let mut bench = Bench::forgetful(&["a"]);
    bench.tells("a", vec![Copy::of("old", "train").with(|it| it.subject = subject("train", 2))]);
    bench.applied();
    bench.take();
    bench.later(1_000);
    let said = bench.take().join("\n");
    assert!(
        said.contains("\"a\" has a copy from before this hub's memory: its pod sets are others"),
        "{said}"
    );
    let note = bench.dispatcher.orphans_of("a", 1).remove(0).note.unwrap();
    assert!(note.starts_with("its pod sets are others"), "{note}");
    bench.written(WriteOutcome::Done, again().with(|it| it.reserved = true));
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        adopt: Some(AdoptRequest::Copy("a".into(), "old".into())),
        ..again().with(|it| it.reserved = true)
    }));
    assert_eq!(bench.take(), ["commit new/3 on a, known as old"]);
}

#[test]
fn highest_attempt_is_adopted_and_lower_ones_removed() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.tells("a", vec![Copy::of("old", "train")]);
    bench.tells("b", vec![Copy::of("old", "train").attempt(4)]);
    bench.take();
    bench.applied();
    assert_eq!(bench.take(), ["commit new/4 on b, known as old"]);
    bench.written(WriteOutcome::Done, adopted("b", 4));
    assert_eq!(bench.take(), ["mirror new/4 from b", "Absent old/3 on a", "Run old/4 on b"]);
}

#[test]
fn copy_is_remembered_while_cluster_is_disconnected() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.tells("a", vec![Copy::of("old", "train")]);
    bench.tells("b", vec![]);
    bench.down("a");
    bench.take();
    bench.applied();
    assert_eq!(bench.take(), ["commit new/3 on a, known as old"], "its policy says what follows");
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.tells("a", vec![Copy::of("old", "train")]);
    bench.tells("b", vec![]);
    bench.apply(DispatchEvent::ClusterDeleted { name: "a".into() });
    bench.take();
    bench.applied();
    assert_eq!(
        bench.take(),
        ["Reserve new/1 on b"],
        "nobody wants anything of a cluster that was deleted"
    );
}

#[test]
fn copy_from_before_store_loss_is_never_removed() {
    let mut bench = Bench::forgetful(&["a"]);
    let made_since =
        Copy { uid: "young", ..Copy::of("young", "young").with(|it| it.created = START + HOUR) };
    let silent = Copy { origin: None, ..Copy::of("silent", "silent") };
    bench.tells("a", vec![Copy::of("old", "train"), made_since, silent]);
    bench.take();
    bench.later(2 * 900_000);
    assert_eq!(bench.take(), ["Absent young/3 on a"]);
    let notes: Vec<bool> =
        bench.dispatcher.orphans_of("a", 9).iter().map(|it| it.note.is_some()).collect();
    assert_eq!(notes, [true, true, false]);
    bench.later(100 * HOUR);
    assert!(bench.take().is_empty());
}

#[test]
fn restored_api_learns_running_attempt() {
    let ahead = || {
        let mut bench = Bench::forgetful(&["a", "b"]);
        bench.tells("a", vec![]);
        bench
    };
    let runs = || vec![Copy::of("w", "train").attempt(4)];

    let mut bench = ahead();
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2)));
    assert!(bench.take().is_empty(), "another cluster may have it");
    bench.tells("b", runs());
    assert_eq!(bench.take(), ["commit w/4 on b, known as w"]);
    bench.written(WriteOutcome::Done, committed("w", "b", 4));
    assert_eq!(bench.take(), ["mirror w/4 from b", "Absent w/2 on a", "Run w/4 on b"]);

    let mut bench = ahead();
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2)));
    bench.tells("b", vec![Copy::of("w", "train").attempt(4).state(State::Succeeded)]);
    assert_eq!(bench.take(), ["commit w/4 on b, known as w"]);
    bench.written(WriteOutcome::Done, committed("w", "b", 4));
    assert_eq!(bench.take(), ["Absent w/2 on a", "finish w/4 from b: true"], "it has ended");

    let mut bench = ahead();
    bench.apply(DispatchEvent::WorkloadChanged(facts("w").with(|it| {
        it.reserved = true;
        it.attempt = 2;
    })));
    bench.tells("b", runs());
    assert_eq!(bench.take(), ["commit w/4 on b, known as w"], "it was waiting for a cluster");

    let mut bench = ahead();
    bench.dispatcher.track(facts("w").with(|it| it.attempt = 2));
    bench.tells("b", runs());
    assert!(bench.take().is_empty(), "it waits for quota, and runs on");
    bench.reserve(facts("w").with(|it| it.attempt = 2));
    assert_eq!(bench.take(), ["commit w/4 on b, known as w"]);

    let mut bench = ahead();
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2).with(|it| {
        it.evicted = true;
        it.cluster = None;
    })));
    bench.tells("b", runs());
    assert_eq!(
        bench.take(),
        ["release w"],
        "an eviction that was over long ago ends, and it runs on"
    );
    bench.written(
        WriteOutcome::Done,
        facts("w").with(|it| {
            it.attempt = 2;
            it.evicted = true;
        }),
    );
    bench.reserve(facts("w").with(|it| it.attempt = 2));
    assert_eq!(bench.take(), ["commit w/4 on b, known as w"]);

    let mut bench = ahead();
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2)));
    bench.tells("b", vec![]);
    assert_eq!(bench.take(), ["Run w/2 on a"], "all have spoken, and none has it");
}

#[test]
fn job_created_after_jobless_report_is_adoptable() {
    let mut bench = Bench::forgetful(&["a"]);
    bench.tells(
        "a",
        vec![Copy::of("old", "train").state(State::Reserved).with(|it| it.has_job = false)],
    );
    bench.observe("a", "old", 3, State::Running);
    bench.take();
    bench.later(2 * 900_000);
    assert!(bench.take().is_empty(), "it stays");
    bench.applied();
    assert_eq!(bench.take(), ["commit new/3 on a, known as old"]);
}

/// Before the removal, its cluster may report an eviction. A copy with a job may be evicted, too.
#[test]
fn copy_under_removal_is_not_adopted() {
    let mut bench = Bench::forgetful(&["a"]);
    bench.tells(
        "a",
        vec![Copy::of("old", "train").state(State::Reserved).with(|it| it.has_job = false)],
    );
    bench.take();
    bench.applied();
    assert_eq!(bench.take(), ["Absent old/3 on a"]);
    bench.observe("a", "old", 3, State::Evicted);
    bench.later(1_000);
    let said = bench.take().join("\n");
    assert!(said.contains("Waiting for worker cluster \"a\" to remove a copy"), "{said}");
    bench.written(WriteOutcome::Done, again().with(|it| it.reserved = true));
    bench.observe("a", "old", 3, State::Gone);
    assert!(bench.take().contains(&"Reserve new/1 on a".to_owned()));
}

#[test]
fn cluster_cannot_claim_foreign_copy() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.apply(DispatchEvent::CheckConfigured { name: "mk".into(), clusters: vec!["b".into()] });
    bench.tells("a", vec![Copy::of("old", "train")]);
    bench.tells("b", vec![]);
    bench.take();
    bench.applied();
    assert_eq!(bench.take(), ["Reserve new/1 on b"], "its check does not name that cluster");

    let later = |created: i64| {
        let mut bench = Bench::forgetful(&["a", "b"]);
        bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2)));
        bench.tells("a", vec![Copy::of("w", "train").attempt(2)]);
        bench.later(2 * HOUR);
        bench.take();
        bench.tells("b", vec![Copy::of("w", "train").attempt(3).with(|it| it.created = created)]);
        bench.take()
    };
    assert_eq!(later(START + HOUR), ["Absent w/3 on b"], "made since");
    assert_eq!(later(START - HOUR), ["commit w/3 on b, known as w"], "it was away for long");

    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.tells("a", vec![]);
    bench.apply(DispatchEvent::WorkloadChanged(facts("w").with(|it| {
        it.reserved = true;
        it.attempt = 2;
    })));
    let offer =
        Copy::of("w", "train").attempt(4).state(State::Failed).with(|it| it.has_job = false);
    bench.tells("b", vec![offer]);
    let said = bench.take();
    assert!(
        said.iter().all(|line| !line.starts_with("commit")),
        "an offer that failed is no end: {said:?}"
    );
}

#[test]
fn adopt_request_chooses_copy_or_none() {
    let two = |adopt: Option<AdoptRequest>| {
        let mut bench = Bench::forgetful(&["a", "b"]);
        bench.tells("a", vec![Copy::of("old", "train")]);
        bench.tells("b", vec![Copy::of("later", "train").with(|it| it.created = START)]);
        bench.take();
        bench.reserve(WorkloadFacts { adopt, ..again() });
        bench
    };
    let mut bench = two(None);
    assert_eq!(bench.take(), ["commit new/3 on b, known as later"]);
    let note = bench.dispatcher.orphans_of("a", 1).remove(0).note.unwrap();
    assert_eq!(note, "its job is the copy on worker cluster \"b\"; delete this one on its cluster");
    assert_eq!(
        two(Some(AdoptRequest::Copy("a".into(), "old".into()))).take(),
        ["commit new/3 on a, known as old"]
    );
    assert_eq!(two(Some(AdoptRequest::NoCopy)).take(), ["Reserve new/1 on a"]);
}

#[test]
fn offer_from_before_adoption_is_forgotten_when_gone() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.apply(DispatchEvent::WorkloadChanged(adopted("a", 3)));
    bench.tells("a", vec![Copy::of("old", "train")]);
    bench.tells("b", vec![]);
    bench.take();
    bench.observe("b", "new", 1, State::Gone);
    assert_eq!(bench.take(), ["forget new/1 on b"]);
}
