//! The jobs that may run and have unready pods, and when to examine each. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use switchyard_proto::v1::JobTrouble;
use tokio::time::Instant;

use switchyard_jobs::CountedPods;
use switchyard_ledger::{Meta, Target};

/// Seconds before each examination of a job. The last value repeats.
const DELAYS: [u64; 6] = [3, 3, 5, 8, 13, 20];
/// The delay if a trouble is too young to be reported.
const YOUNG: Duration = Duration::from_secs(2);
/// The longest delay while a trouble is reported, so that its end is noticed soon.
const REPORTED_DELAY: Duration = Duration::from_secs(8);
/// The interval of reports of a changed count.
const COUNT: Duration = Duration::from_secs(60);
/// The most jobs of one namespace that are examined: any user can create objects that look like a
/// hub's jobs.
const PER_NAMESPACE: usize = 2_000;
/// The most jobs of all namespaces that are examined.
const MAX_JOBS: usize = 50_000;

/// A job to examine.
#[derive(Debug, Clone)]
pub(super) struct JobToExamine {
    pub(super) workload_uid: String,
    pub(super) attempt: u64,
    /// The job's kind.
    pub(super) kind: &'static str,
    pub(super) target: Target,
    /// The name of the worker's Workload, which its pods carry.
    pub(super) workload: String,
    /// A selector that all its pods match. Empty if none is known.
    pub(super) labels: String,
    pub(super) pods: CountedPods,
}

/// How to find the pods of a job, beside the marks of its object.
#[derive(Debug, Default)]
pub(super) struct PodsOf<'a> {
    pub(super) kind: &'static str,
    /// See [`JobToExamine::workload`].
    pub(super) workload: &'a str,
    /// See [`JobToExamine::labels`].
    pub(super) labels: String,
}

/// The pods that the job's objects count together.
fn counted<'a>(objects: impl Iterator<Item = &'a CountedPods>) -> CountedPods {
    objects.fold(CountedPods::default(), |all, it| CountedPods {
        may_exist: all.may_exist || it.may_exist,
        has_succeeded: all.has_succeeded || it.has_succeeded,
    })
}

/// The state of a job's object after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// It runs with ready pods, has ended, or may not run.
    Settled,
    /// Its pods are not ready, or it has none yet.
    Unready(CountedPods),
}

/// The result of an examination.
#[derive(Debug, PartialEq)]
pub(super) enum Examined {
    /// The API server gave no answer.
    Unknown,
    /// All troubles. `young`: others may pass at once. `no_ready_pod`: no pod is ready or has
    /// succeeded.
    Found { troubles: Vec<JobTrouble>, young: bool, no_ready_pod: bool },
}

/// The report of an examination.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Report {
    pub(super) troubles: Vec<JobTrouble>,
    pub(super) no_ready_pod: bool,
}

impl Report {
    /// Whether nothing has to be taken back when the job is ready.
    fn is_empty(&self) -> bool {
        self.troubles.is_empty() && !self.no_ready_pod
    }
}

#[derive(Debug)]
struct UnreadyJob {
    to_examine: JobToExamine,
    /// The uids of the job's unready objects, and the pods that each counts.
    unready: BTreeMap<String, CountedPods>,
    examinations: usize,
    /// None during the examination.
    due: Option<Instant>,
    reported: Report,
    reported_at: Instant,
}

/// The times of the next examinations, by namespace. Namespaces take turns, so that a namespace
/// with many unready jobs delays only its own.
#[derive(Debug, Default)]
struct Due {
    namespaces: BTreeMap<String, BTreeSet<(Instant, String)>>,
    /// The namespace of the last turn.
    last: String,
}

impl Due {
    fn insert(&mut self, namespace: &str, at: Instant, workload_uid: &str) {
        self.namespaces
            .entry(namespace.to_owned())
            .or_default()
            .insert((at, workload_uid.to_owned()));
    }

    fn remove(&mut self, namespace: &str, at: Instant, workload_uid: &str) {
        let Some(due) = self.namespaces.get_mut(namespace) else { return };
        due.remove(&(at, workload_uid.to_owned()));
        if due.is_empty() {
            self.namespaces.remove(namespace);
        }
    }

    fn next(&self) -> Option<Instant> {
        self.namespaces.values().filter_map(|due| due.first()).map(|(at, _)| *at).min()
    }

    fn take(&mut self, now: Instant) -> Option<String> {
        let first =
            |due: &BTreeSet<(Instant, String)>| due.first().cloned().filter(|(at, _)| *at <= now);
        let after = (Bound::Excluded(self.last.clone()), Bound::Unbounded);
        let mut turns = self.namespaces.range(after).chain(&self.namespaces);
        let (namespace, (at, workload_uid)) =
            turns.find_map(|(namespace, due)| Some((namespace.clone(), first(due)?)))?;
        self.remove(&namespace, at, &workload_uid);
        self.last = namespace;
        Some(workload_uid)
    }
}

/// By the uid of the hub's Workload.
#[derive(Debug, Default)]
pub(super) struct UnreadyJobs {
    jobs: BTreeMap<String, UnreadyJob>,
    due: Due,
    /// The number of jobs, by namespace.
    counts: BTreeMap<String, usize>,
    /// Workloads and attempts whose reported trouble is over.
    over: Vec<(String, u64)>,
}

impl UnreadyJobs {
    /// Records whether an object of a job has unready pods.
    pub(super) fn note(
        &mut self,
        PodsOf { kind, workload, labels }: PodsOf<'_>,
        meta: &Meta,
        readiness: Readiness,
        now: Instant,
    ) {
        let known = self.jobs.get(&meta.workload_uid).map(|job| job.to_examine.attempt);
        match known {
            Some(attempt) if meta.attempt < attempt => return,
            Some(attempt) if meta.attempt > attempt => self.end(&meta.workload_uid),
            _ => {}
        }
        let Readiness::Unready(pods) = readiness else {
            if let Some(job) = self.jobs.get_mut(&meta.workload_uid)
                && job.unready.remove(&meta.target.uid).is_some()
                && job.unready.is_empty()
            {
                self.end(&meta.workload_uid);
            }
            return;
        };
        if let Some(job) = self.jobs.get_mut(&meta.workload_uid) {
            job.unready.insert(meta.target.uid.clone(), pods);
            // The first ready pod shows in the job's status: examine the job soon.
            if let Some(due) = job.due.filter(|due| job.reported.no_ready_pod && *due > now + YOUNG)
            {
                job.due = Some(now + YOUNG);
                self.due.remove(&meta.target.namespace, due, &meta.workload_uid);
                self.due.insert(&meta.target.namespace, now + YOUNG, &meta.workload_uid);
            }
            return;
        }
        let namespace = &meta.target.namespace;
        let count = self.counts.get(namespace).copied().unwrap_or_default();
        if count >= PER_NAMESPACE || self.jobs.len() >= MAX_JOBS {
            return;
        }
        self.counts.insert(namespace.clone(), count + 1);
        let workload_uid = meta.workload_uid.clone();
        let due = now + delay(0);
        self.due.insert(namespace, due, &workload_uid);
        let to_examine = JobToExamine {
            workload_uid: workload_uid.clone(),
            attempt: meta.attempt,
            kind,
            target: meta.target.clone(),
            workload: workload.to_owned(),
            labels,
            pods,
        };
        let unready = BTreeMap::from([(meta.target.uid.clone(), pods)]);
        let job = UnreadyJob {
            to_examine,
            unready,
            examinations: 0,
            due: Some(due),
            reported: Report::default(),
            reported_at: now,
        };
        self.jobs.insert(workload_uid, job);
    }

    /// Removes objects of a kind that are not among these.
    pub(super) fn keep(&mut self, gvk: &str, uids: &BTreeSet<String>) {
        let mut over = Vec::new();
        for (workload_uid, job) in &mut self.jobs {
            if &*job.to_examine.target.gvk == gvk {
                job.unready.retain(|uid, _| uids.contains(uid));
                if job.unready.is_empty() {
                    over.push(workload_uid.clone());
                }
            }
        }
        over.iter().for_each(|workload_uid| self.end(workload_uid));
    }

    fn end(&mut self, workload_uid: &str) {
        let Some(job) = self.jobs.remove(workload_uid) else { return };
        let namespace = &job.to_examine.target.namespace;
        if let Some(due) = job.due {
            self.due.remove(namespace, due, workload_uid);
        }
        if let Some(count) = self.counts.get_mut(namespace) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(namespace);
            }
        }
        if !job.reported.is_empty() {
            self.over.push((job.to_examine.workload_uid, job.to_examine.attempt));
        }
    }

    /// Workloads and attempts without trouble any more, each once.
    pub(super) fn take_resolved(&mut self) -> Vec<(String, u64)> {
        std::mem::take(&mut self.over)
    }

    /// When to examine the next job.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.next()
    }

    /// The next job to examine, if its time has come. It is not due again before
    /// [`Self::examined`].
    pub(super) fn take(&mut self, now: Instant) -> Option<JobToExamine> {
        let workload_uid = self.due.take(now)?;
        let job = self.jobs.get_mut(&workload_uid)?;
        job.due = None;
        job.to_examine.pods = counted(job.unready.values());
        Some(job.to_examine.clone())
    }

    /// Records an examination. Returns the troubles to report, if they changed.
    pub(super) fn examined(
        &mut self,
        of: &JobToExamine,
        found: Examined,
        now: Instant,
    ) -> Option<Report> {
        let job = self
            .jobs
            .get_mut(&of.workload_uid)
            .filter(|job| job.to_examine.attempt == of.attempt)?;
        job.examinations += 1;
        let mut delay = delay(job.examinations);
        let mut news = None;
        // Without an answer, a pod may have become ready.
        let found = match found {
            Examined::Unknown if job.reported.no_ready_pod => Examined::Found {
                troubles: job.reported.troubles.clone(),
                young: false,
                no_ready_pod: false,
            },
            found => found,
        };
        if let Examined::Found { troubles, young, no_ready_pod } = found {
            let report = Report { troubles, no_ready_pod };
            let same = is_same(&job.reported.troubles, &report.troubles)
                && job.reported.no_ready_pod == no_ready_pod;
            if !same || (job.reported != report && now >= job.reported_at + COUNT) {
                (job.reported, job.reported_at) = (report, now);
                news = Some(job.reported.clone());
            }
            if young {
                delay = delay.min(YOUNG);
            } else if !job.reported.is_empty() {
                delay = delay.min(REPORTED_DELAY);
            }
        }
        let due = now + delay;
        // The job may have become ready and unready again meanwhile.
        if let Some(planned) = job.due.replace(due) {
            self.due.remove(&of.target.namespace, planned, &of.workload_uid);
        }
        self.due.insert(&of.target.namespace, due, &of.workload_uid);
        news
    }
}

fn delay(examinations: usize) -> Duration {
    Duration::from_secs(DELAYS[examinations.min(DELAYS.len() - 1)])
}

/// Whether they differ only in counts and times.
fn is_same(before: &[JobTrouble], now: &[JobTrouble]) -> bool {
    let words = |of: &[JobTrouble]| {
        of.iter().map(|it| (it.reason.clone(), it.message.clone())).collect::<Vec<_>>()
    };
    words(before) == words(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: PodsOf<'_> = PodsOf { kind: "Job", workload: "w", labels: String::new() };

    fn meta(attempt: u64, uid: &str) -> Meta {
        let target = Target {
            gvk: "batch/v1, Kind=Job".into(),
            namespace: "ns".into(),
            name: "a".into(),
            uid: uid.into(),
        };
        let workload_uid = "w".to_owned();
        Meta {
            target,
            version: 1,
            workload_uid,
            attempt,
            deleting: false,
            finalizer_index: None,
            owners: Vec::new(),
        }
    }

    fn readiness(waits: bool) -> Readiness {
        match waits {
            true => Readiness::Unready(CountedPods { may_exist: true, has_succeeded: false }),
            false => Readiness::Settled,
        }
    }

    fn found(reason: &str, count: u32) -> Examined {
        let trouble = JobTrouble { reason: reason.into(), count, ..JobTrouble::default() };
        let troubles = if reason.is_empty() { Vec::new() } else { vec![trouble] };
        Examined::Found { troubles, young: false, no_ready_pod: false }
    }

    struct Bench {
        unready_jobs: UnreadyJobs,
        now: Instant,
    }

    impl Bench {
        fn waiting() -> Self {
            let mut bench = Self { unready_jobs: UnreadyJobs::default(), now: Instant::now() };
            bench.note(1, "j", true);
            bench
        }

        fn note(&mut self, attempt: u64, uid: &str, waits: bool) {
            self.unready_jobs.note(JOB, &meta(attempt, uid), readiness(waits), self.now);
        }

        /// Examines the job when it is due. Returns the seconds that passed, and whether there was
        /// a report.
        fn examine(&mut self, found: Examined) -> (u64, bool) {
            let due = self.unready_jobs.next().unwrap();
            let passed = due.duration_since(self.now).as_secs();
            self.now = due;
            let job = self.unready_jobs.take(due).unwrap();
            (passed, self.unready_jobs.examined(&job, found, due).is_some())
        }
    }

    #[test]
    fn pods_are_read_if_one_object_may_have_them() {
        let mut bench = Bench::waiting();
        for (uid, may_have_pods, expected) in
            [("j", false, false), ("k", true, true), ("k", false, false)]
        {
            let pods = CountedPods { may_exist: may_have_pods, has_succeeded: false };
            let readiness = Readiness::Unready(pods);
            bench.unready_jobs.note(JOB, &meta(1, uid), readiness, bench.now);
            bench.now = bench.unready_jobs.next().unwrap();
            let job = bench.unready_jobs.take(bench.now).unwrap();
            assert_eq!(job.pods.may_exist, expected, "{uid} {may_have_pods}");
            bench.unready_jobs.examined(&job, found("", 0), bench.now);
        }
    }

    #[test]
    fn ready_job_is_not_examined() {
        let mut bench = Bench::waiting();
        bench.note(1, "j", false);
        assert_eq!(
            (bench.unready_jobs.next(), bench.unready_jobs.take_resolved()),
            (None, Vec::new())
        );
    }

    #[test]
    fn examinations_become_rarer_while_nothing_is_found() {
        let mut bench = Bench::waiting();
        let seconds: Vec<_> = (0..7).map(|_| bench.examine(found("", 0))).collect();
        assert_eq!(seconds, [3, 3, 5, 8, 13, 20, 20].map(|seconds| (seconds, false)));
    }

    #[test]
    fn trouble_is_reported_once_and_its_count_rarely() {
        let mut bench = Bench::waiting();
        assert_eq!(bench.examine(Examined::Unknown), (3, false));
        assert_eq!(bench.examine(found("Unschedulable", 1)), (3, true));
        let reported: Vec<_> =
            (0..8).map(|count| bench.examine(found("Unschedulable", count + 1))).collect();
        assert_eq!(reported.iter().filter(|(_, news)| *news).count(), 1, "{reported:?}");
        assert!(
            reported.iter().all(|(seconds, _)| *seconds <= REPORTED_DELAY.as_secs()),
            "{reported:?}"
        );
        assert!(bench.examine(found("CrashLoop", 1)).1, "another one");
        assert!(bench.examine(found("", 0)).1, "none any more");
    }

    #[test]
    fn end_of_reported_trouble_is_reported_once() {
        for (case, end) in [
            (
                "its pods are ready",
                (|bench: &mut Bench| bench.note(1, "j", false)) as fn(&mut Bench),
            ),
            ("its next attempt waits", |bench| bench.note(2, "k", true)),
            ("a list lacks it", |bench| {
                bench.unready_jobs.keep("batch/v1, Kind=Job", &BTreeSet::new())
            }),
        ] {
            let mut bench = Bench::waiting();
            bench.examine(found("FailedCreate", 1));
            end(&mut bench);
            assert_eq!(bench.unready_jobs.take_resolved(), [("w".to_owned(), 1)], "{case}");
            assert_eq!(bench.unready_jobs.take_resolved(), [], "{case}");
        }
    }

    #[test]
    fn job_without_ready_pod_is_examined_soon_after_a_change() {
        let none = || Examined::Found { troubles: Vec::new(), young: false, no_ready_pod: true };
        let mut bench = Bench::waiting();
        assert_eq!(bench.examine(none()), (3, true));
        assert_eq!(bench.examine(none()), (3, false), "once");
        bench.note(1, "j", true);
        assert_eq!(bench.examine(found("", 0)), (YOUNG.as_secs(), true), "a pod is ready");
        bench.examine(none());
        bench.note(1, "j", false);
        assert_eq!(bench.unready_jobs.take_resolved(), [("w".to_owned(), 1)]);
    }

    #[test]
    fn late_examination_of_earlier_attempt_is_ignored() {
        let mut bench = Bench::waiting();
        bench.now += delay(0);
        let job = bench.unready_jobs.take(bench.now).unwrap();
        bench.note(2, "k", true);
        assert_eq!(bench.unready_jobs.examined(&job, found("Volume", 1), bench.now), None);
        bench.note(1, "j", true);
        assert_eq!(bench.unready_jobs.jobs["w"].to_examine.attempt, 2);
    }

    #[test]
    fn flooding_namespace_delays_only_its_own_jobs() {
        let (mut unready_jobs, now) = (UnreadyJobs::default(), Instant::now());
        let mut note = |namespace: &str, index: usize, waits: bool| {
            let mut meta = meta(1, "j");
            (meta.workload_uid, meta.target.namespace) =
                (format!("{namespace}-{index}"), namespace.to_owned());
            unready_jobs.note(JOB, &meta, readiness(waits), now);
        };
        (0..2 * PER_NAMESPACE).for_each(|index| note("loud", index, true));
        note("quiet", 0, true);
        (0..10).for_each(|index| note("gone", index, true));
        (0..10).for_each(|index| note("gone", index, false));
        assert_eq!(unready_jobs.jobs.len(), PER_NAMESPACE + 1);
        assert_eq!(unready_jobs.counts.keys().collect::<Vec<_>>(), ["loud", "quiet"]);
        let turns: Vec<String> =
            (0..3).map(|_| unready_jobs.take(now + delay(0)).unwrap().workload_uid).collect();
        assert_eq!(turns, ["loud-0", "quiet-0", "loud-1"]);
    }

    #[test]
    fn group_waits_until_all_its_pods_are_ready() {
        let mut bench = Bench::waiting();
        bench.note(1, "k", true);
        bench.note(1, "j", false);
        assert!(bench.unready_jobs.next().is_some());
        bench.note(1, "k", false);
        assert!(bench.unready_jobs.next().is_none());
    }
}
