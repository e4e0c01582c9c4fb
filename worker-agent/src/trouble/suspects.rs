//! Jobs that may run and whose pods are not all ready, and when to examine each. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use switchyard_proto::v1::JobTrouble;
use tokio::time::Instant;

use switchyard_ledger::{Meta, Target};

/// Seconds before the examinations of one job. Later ones have the last.
const DELAYS: [u64; 6] = [3, 3, 5, 8, 13, 20];
/// The delay where a trouble is too young to be told.
const YOUNG: Duration = Duration::from_secs(2);
/// The longest delay while trouble is told: it is to end soon after it is over.
const TOLD: Duration = Duration::from_secs(8);
/// A count alone is told this often.
const COUNT: Duration = Duration::from_secs(60);
/// More jobs of one namespace are not examined: anybody may make objects that look like a hub's jobs.
const PER_NAMESPACE: usize = 2_000;
/// More jobs of all namespaces together are not examined.
const MAX_SUSPECTS: usize = 50_000;

/// A job to be examined.
#[derive(Debug, Clone)]
pub(super) struct Patient {
    pub(super) workload_uid: String,
    pub(super) attempt: u64,
    /// Of the job.
    pub(super) kind: &'static str,
    pub(super) target: Target,
    /// The Workload of this cluster, which pods name that were started for it.
    pub(super) workload: String,
}

/// The result of an examination.
#[derive(Debug, PartialEq)]
pub(super) enum Examined {
    /// The API server did not say.
    Unknown,
    /// All troubles. `young`: some others may pass in a moment.
    Found { troubles: Vec<JobTrouble>, young: bool },
}

#[derive(Debug)]
struct Suspect {
    patient: Patient,
    /// The job's objects that have pods that are not ready, by uid.
    unready: BTreeSet<String>,
    looks: usize,
    /// None while it is examined.
    due: Option<Instant>,
    told: Vec<JobTrouble>,
    told_at: Instant,
}

/// When jobs are due, by namespace. Namespaces take turns: who has many jobs in trouble delays their own.
#[derive(Debug, Default)]
struct Due {
    namespaces: BTreeMap<String, BTreeSet<(Instant, String)>>,
    /// The namespace that had the last turn.
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

/// All of them, by the hub's workload.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    jobs: BTreeMap<String, Suspect>,
    due: Due,
    /// How many there are, by namespace.
    counts: BTreeMap<String, usize>,
    /// Workloads and attempts of which trouble was told that is over.
    over: Vec<(String, u64)>,
}

impl Suspects {
    /// An object of a job waits for its pods, or does not.
    pub(super) fn note(
        &mut self,
        (kind, workload): (&'static str, &str),
        meta: &Meta,
        waits: bool,
        now: Instant,
    ) {
        let known = self.jobs.get(&meta.workload_uid).map(|job| job.patient.attempt);
        match known {
            Some(attempt) if meta.attempt < attempt => return,
            Some(attempt) if meta.attempt > attempt => self.end(&meta.workload_uid),
            _ => {}
        }
        if !waits {
            if let Some(job) = self.jobs.get_mut(&meta.workload_uid)
                && job.unready.remove(&meta.target.uid)
                && job.unready.is_empty()
            {
                self.end(&meta.workload_uid);
            }
            return;
        }
        if let Some(job) = self.jobs.get_mut(&meta.workload_uid) {
            job.unready.insert(meta.target.uid.clone());
            return;
        }
        let namespace = &meta.target.namespace;
        let count = self.counts.get(namespace).copied().unwrap_or_default();
        if count >= PER_NAMESPACE || self.jobs.len() >= MAX_SUSPECTS {
            return;
        }
        self.counts.insert(namespace.clone(), count + 1);
        let workload_uid = meta.workload_uid.clone();
        let due = now + delay(0);
        self.due.insert(namespace, due, &workload_uid);
        let patient = Patient {
            workload_uid: workload_uid.clone(),
            attempt: meta.attempt,
            kind,
            target: meta.target.clone(),
            workload: workload.to_owned(),
        };
        let unready = BTreeSet::from([meta.target.uid.clone()]);
        let suspect =
            Suspect { patient, unready, looks: 0, due: Some(due), told: Vec::new(), told_at: now };
        self.jobs.insert(workload_uid, suspect);
    }

    /// Of this kind there are these objects only.
    pub(super) fn keep(&mut self, gvk: &str, uids: &BTreeSet<String>) {
        let mut over = Vec::new();
        for (workload_uid, job) in &mut self.jobs {
            if &*job.patient.target.gvk == gvk {
                job.unready.retain(|uid| uids.contains(uid));
                if job.unready.is_empty() {
                    over.push(workload_uid.clone());
                }
            }
        }
        over.iter().for_each(|workload_uid| self.end(workload_uid));
    }

    fn end(&mut self, workload_uid: &str) {
        let Some(job) = self.jobs.remove(workload_uid) else { return };
        let namespace = &job.patient.target.namespace;
        if let Some(due) = job.due {
            self.due.remove(namespace, due, workload_uid);
        }
        if let Some(count) = self.counts.get_mut(namespace) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(namespace);
            }
        }
        if !job.told.is_empty() {
            self.over.push((job.patient.workload_uid, job.patient.attempt));
        }
    }

    /// Workloads and attempts that have no trouble any more, each once.
    pub(super) fn take_over(&mut self) -> Vec<(String, u64)> {
        std::mem::take(&mut self.over)
    }

    /// When the next job is to be examined.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.next()
    }

    /// The next job to examine, if its time has come. It rests until [`Self::examined`].
    pub(super) fn take(&mut self, now: Instant) -> Option<Patient> {
        let workload_uid = self.due.take(now)?;
        let job = self.jobs.get_mut(&workload_uid)?;
        job.due = None;
        Some(job.patient.clone())
    }

    /// Records an examination. Returns the troubles to report, if they are news.
    pub(super) fn examined(
        &mut self,
        of: &Patient,
        found: Examined,
        now: Instant,
    ) -> Option<Vec<JobTrouble>> {
        let job =
            self.jobs.get_mut(&of.workload_uid).filter(|job| job.patient.attempt == of.attempt)?;
        job.looks += 1;
        let mut delay = delay(job.looks);
        let mut news = None;
        if let Examined::Found { troubles, young } = found {
            let same = is_same(&job.told, &troubles);
            if !same || (job.told != troubles && now >= job.told_at + COUNT) {
                (job.told, job.told_at) = (troubles, now);
                news = Some(job.told.clone());
            }
            if young {
                delay = delay.min(YOUNG);
            } else if !job.told.is_empty() {
                delay = delay.min(TOLD);
            }
        }
        let due = now + delay;
        // It may have become ready and unready again meanwhile.
        if let Some(planned) = job.due.replace(due) {
            self.due.remove(&of.target.namespace, planned, &of.workload_uid);
        }
        self.due.insert(&of.target.namespace, due, &of.workload_uid);
        news
    }
}

fn delay(looks: usize) -> Duration {
    Duration::from_secs(DELAYS[looks.min(DELAYS.len() - 1)])
}

/// Whether they differ in nothing but counts and times.
fn is_same(before: &[JobTrouble], now: &[JobTrouble]) -> bool {
    let words = |of: &[JobTrouble]| {
        of.iter().map(|it| (it.reason.clone(), it.message.clone())).collect::<Vec<_>>()
    };
    words(before) == words(now)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            held: None,
            owners: Vec::new(),
        }
    }

    fn found(reason: &str, count: u32) -> Examined {
        let trouble = JobTrouble { reason: reason.into(), count, ..JobTrouble::default() };
        let troubles = if reason.is_empty() { Vec::new() } else { vec![trouble] };
        Examined::Found { troubles, young: false }
    }

    struct Bench {
        suspects: Suspects,
        now: Instant,
    }

    impl Bench {
        fn waiting() -> Self {
            let mut bench = Self { suspects: Suspects::default(), now: Instant::now() };
            bench.note(1, "j", true);
            bench
        }

        fn note(&mut self, attempt: u64, uid: &str, waits: bool) {
            self.suspects.note(("Job", "w"), &meta(attempt, uid), waits, self.now);
        }

        /// Examines when it is due; the seconds that passed, and whether there was news.
        fn examine(&mut self, found: Examined) -> (u64, bool) {
            let due = self.suspects.next().unwrap();
            let passed = due.duration_since(self.now).as_secs();
            self.now = due;
            let patient = self.suspects.take(due).unwrap();
            (passed, self.suspects.examined(&patient, found, due).is_some())
        }
    }

    #[test]
    fn ready_job_is_not_examined() {
        let mut bench = Bench::waiting();
        bench.note(1, "j", false);
        assert_eq!((bench.suspects.next(), bench.suspects.take_over()), (None, Vec::new()));
    }

    #[test]
    fn examinations_become_rarer_while_nothing_is_found() {
        let mut bench = Bench::waiting();
        let seconds: Vec<_> = (0..7).map(|_| bench.examine(found("", 0))).collect();
        assert_eq!(seconds, [3, 3, 5, 8, 13, 20, 20].map(|seconds| (seconds, false)));
    }

    #[test]
    fn trouble_is_told_once_and_its_count_now_and_then() {
        let mut bench = Bench::waiting();
        assert_eq!(bench.examine(Examined::Unknown), (3, false));
        assert_eq!(bench.examine(found("Unschedulable", 1)), (3, true));
        let told: Vec<_> =
            (0..8).map(|count| bench.examine(found("Unschedulable", count + 1))).collect();
        assert_eq!(told.iter().filter(|(_, news)| *news).count(), 1, "{told:?}");
        assert!(told.iter().all(|(seconds, _)| *seconds <= TOLD.as_secs()), "{told:?}");
        assert!(bench.examine(found("CrashLoop", 1)).1, "another one");
        assert!(bench.examine(found("", 0)).1, "none any more");
    }

    #[test]
    fn end_of_told_trouble_is_said_once() {
        for (case, end) in [
            (
                "its pods are ready",
                (|bench: &mut Bench| bench.note(1, "j", false)) as fn(&mut Bench),
            ),
            ("its next attempt waits", |bench| bench.note(2, "k", true)),
            ("a list lacks it", |bench| {
                bench.suspects.keep("batch/v1, Kind=Job", &BTreeSet::new())
            }),
        ] {
            let mut bench = Bench::waiting();
            bench.examine(found("FailedCreate", 1));
            end(&mut bench);
            assert_eq!(bench.suspects.take_over(), [("w".to_owned(), 1)], "{case}");
            assert_eq!(bench.suspects.take_over(), [], "{case}");
        }
    }

    #[test]
    fn late_examination_of_an_earlier_attempt_tells_nothing() {
        let mut bench = Bench::waiting();
        bench.now += delay(0);
        let patient = bench.suspects.take(bench.now).unwrap();
        bench.note(2, "k", true);
        assert_eq!(bench.suspects.examined(&patient, found("Volume", 1), bench.now), None);
        bench.note(1, "j", true);
        assert_eq!(bench.suspects.jobs["w"].patient.attempt, 2);
    }

    #[test]
    fn flood_of_one_namespace_delays_its_own_jobs_alone() {
        let (mut suspects, now) = (Suspects::default(), Instant::now());
        let mut note = |namespace: &str, index: usize, waits: bool| {
            let mut meta = meta(1, "j");
            (meta.workload_uid, meta.target.namespace) =
                (format!("{namespace}-{index}"), namespace.to_owned());
            suspects.note(("Job", "w"), &meta, waits, now);
        };
        (0..2 * PER_NAMESPACE).for_each(|index| note("loud", index, true));
        note("quiet", 0, true);
        (0..10).for_each(|index| note("gone", index, true));
        (0..10).for_each(|index| note("gone", index, false));
        assert_eq!(suspects.jobs.len(), PER_NAMESPACE + 1);
        assert_eq!(suspects.counts.keys().collect::<Vec<_>>(), ["loud", "quiet"]);
        let turns: Vec<String> =
            (0..3).map(|_| suspects.take(now + delay(0)).unwrap().workload_uid).collect();
        assert_eq!(turns, ["loud-0", "quiet-0", "loud-1"]);
    }

    #[test]
    fn group_waits_until_all_its_pods_are_ready() {
        let mut bench = Bench::waiting();
        bench.note(1, "k", true);
        bench.note(1, "j", false);
        assert!(bench.suspects.next().is_some());
        bench.note(1, "k", false);
        assert!(bench.suspects.next().is_none());
    }
}
