//! The jobs of one policy, look by look.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::observer::Seen;

/// The state at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) west: Seen,
    pub(super) east: Seen,
}

/// The jobs of one policy.
#[derive(Debug)]
pub(super) struct Track {
    jobs: BTreeSet<String>,
    look: Look,
    /// Since when a job has had no pod, on the clock of [`Track::take`].
    without: BTreeMap<String, Duration>,
    still: Duration,
    twice: BTreeSet<String>,
    moved: Option<f64>,
    during: bool,
    healed: Option<Duration>,
}

impl Track {
    pub(super) fn new(jobs: impl Iterator<Item = String>) -> Self {
        Self {
            jobs: jobs.collect(),
            look: Look::default(),
            without: BTreeMap::new(),
            still: Duration::ZERO,
            twice: BTreeSet::new(),
            moved: None,
            during: false,
            healed: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// The fault begins, and with it the clock.
    pub(super) fn begin(&mut self) {
        (self.during, self.still) = (true, Duration::ZERO);
        self.without.clear();
        self.twice.clear();
    }

    /// The fault ends, and the clock starts again.
    pub(super) fn end(&mut self) {
        self.during = false;
        // Jobs without a pod count from now on; the time before is kept.
        self.without.values_mut().for_each(|since| *since = Duration::ZERO);
    }

    /// Takes what was seen, so long after the fault's beginning or end.
    pub(super) fn take(&mut self, look: &Look, at: Duration) {
        self.look = look.clone();
        for job in &self.jobs {
            let (west, east) =
                (self.look.west.live.contains(job), self.look.east.live.contains(job));
            if west && east {
                self.twice.insert(job.clone());
            }
            if west || east {
                self.without.remove(job);
            } else {
                let since = *self.without.entry(job.clone()).or_insert(at);
                self.still = self.still.max(at.saturating_sub(since));
            }
        }
        if self.during && self.jobs.is_subset(&self.look.east.running) {
            self.moved.get_or_insert(at.as_secs_f64());
        }
    }

    /// Notes since when all is well: the system works, each job runs on one cluster, and nothing is left on the other.
    pub(super) fn well(&mut self, works: bool, at: Duration) {
        let fresh = self.look.west.fresh && self.look.east.fresh;
        let well = works && fresh && self.jobs.iter().all(|job| self.once(job));
        if well {
            self.healed.get_or_insert(at);
        } else {
            self.healed = None;
        }
    }

    fn once(&self, job: &String) -> bool {
        let on = |seen: &Seen| seen.running.contains(job) && seen.jobs.contains(job);
        let off = |seen: &Seen| !seen.live.contains(job) && !seen.jobs.contains(job);
        let Look { west, east } = &self.look;
        (on(west) && off(east)) || (off(west) && on(east))
    }

    pub(super) fn on_west(&self) -> bool {
        self.jobs.is_subset(&self.look.west.running) && self.jobs.is_disjoint(&self.look.east.live)
    }

    pub(super) fn moved(&self) -> Option<f64> {
        self.moved
    }

    pub(super) fn healed(&self) -> Option<Duration> {
        self.healed
    }

    pub(super) fn twice(&self) -> usize {
        self.twice.len()
    }

    /// For how long a job had no pod, in seconds.
    pub(super) fn still(&self) -> f64 {
        self.still.as_secs_f64()
    }

    /// Jobs with more than one pod.
    pub(super) fn anew(&self) -> usize {
        let pods = |seen: &Seen, job: &String| seen.pods.get(job).map_or(0, BTreeSet::len);
        let count = |job: &&String| pods(&self.look.west, job) + pods(&self.look.east, job) > 1;
        self.jobs.iter().filter(count).count()
    }

    /// Jobs that have no pod.
    pub(super) fn lost(&self) -> usize {
        let live = |job: &&String| {
            self.look.west.live.contains(*job) || self.look.east.live.contains(*job)
        };
        self.jobs.len() - self.jobs.iter().filter(live).count()
    }
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |seen: &Seen| self.jobs.intersection(&seen.live).count();
        write!(f, "{} west, {} east", count(&self.look.west), count(&self.look.east))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(jobs: &[(&str, &str)]) -> Seen {
        let set: BTreeSet<String> = jobs.iter().map(|(job, _)| (*job).to_owned()).collect();
        let pods = jobs
            .iter()
            .map(|(job, uid)| ((*job).to_owned(), BTreeSet::from([(*uid).to_owned()])))
            .collect();
        Seen { live: set.clone(), running: set.clone(), jobs: set, pods, fresh: true }
    }

    fn look(west: &[(&str, &str)], east: &[(&str, &str)]) -> Look {
        Look { west: seen(west), east: seen(east) }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn moved_job_restarts_and_is_well_when_no_copy_is_left() {
        let mut track = Track::new(["a".to_owned()].into_iter());
        track.take(&look(&[("a", "1")], &[]), at(0));
        assert!(track.on_west());
        track.begin();
        track.take(&look(&[], &[]), at(30));
        track.take(&look(&[], &[("a", "2")]), at(50));
        assert_eq!((track.moved(), track.twice(), track.still()), (Some(50.0), 0, 0.0));
        track.end();
        let mut left = look(&[], &[("a", "2")]);
        left.west.jobs.insert("a".to_owned());
        left.west.pods = seen(&[("a", "1")]).pods;
        track.take(&left, at(1));
        track.well(true, at(1));
        assert_eq!(track.healed(), None);
        left.west.jobs.clear();
        track.take(&left, at(2));
        track.well(true, at(2));
        assert_eq!((track.healed(), track.anew(), track.lost()), (Some(at(2)), 1, 0));
        track.well(false, at(3));
        assert_eq!(track.healed(), None, "it has to stay so");
    }

    #[test]
    fn job_on_two_clusters_runs_twice_and_on_none_stalls() {
        let mut track = Track::new(["a", "b"].map(str::to_owned).into_iter());
        track.begin();
        track.take(&look(&[("a", "1")], &[("a", "2")]), at(10));
        assert_eq!((track.twice(), track.moved()), (1, None));
        track.take(&look(&[("a", "1")], &[]), at(25));
        assert_eq!((track.still(), track.lost()), (15.0, 1));
    }
}
