//! What keeps the hub from tearing down a fleet by mistake: a circuit breaker, and a bound on how fast it gives up.
//!
//! When much is lost at once, it is more likely that the hub cannot see than that it is all gone. Then nothing is given up
//! any more until people say so, or until all that were lost are back.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::Entry;
use super::machine::Dispatcher;
use super::{Action, Name, Time, Uid};

/// When to stop, and how fast to go. Times in milliseconds.
#[derive(Debug, Clone)]
pub struct Caution {
    /// It opens when more than this share of the clusters, in percent, and at least two, are lost at about one time.
    pub clusters: u32,
    /// It opens when more than this share of the running workloads, in percent, are lost at about one time.
    pub workloads: u32,
    /// Fewer workloads than this never open it.
    pub least_workloads: usize,
    /// What "at about one time" means.
    pub window: i64,
    /// Workloads given up in a minute.
    pub evictions_per_minute: u32,
    /// Workloads given up at once.
    pub burst: u32,
}

impl Default for Caution {
    fn default() -> Self {
        Self {
            clusters: 34,
            workloads: 67,
            least_workloads: 100,
            window: 300_000,
            evictions_per_minute: 600,
            burst: 100,
        }
    }
}

/// An open breaker, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Since when.
    pub since: Time,
    /// Why.
    pub message: String,
    /// The clusters that were lost.
    pub lost: BTreeSet<Name>,
}

#[derive(Debug, Default)]
pub(super) struct Breaker {
    open: Option<Open>,
    /// Losses up to then have been looked at by people.
    pardoned: Time,
    /// Workloads that a connected cluster lost, and when.
    vanished: BTreeMap<Uid, Time>,
    /// Workloads that would have been given up.
    held: BTreeSet<Uid>,
    /// When all that was allowed will have been paced out.
    paced: Time,
    /// When running workloads were last counted.
    counted: Option<Time>,
}

impl Dispatcher {
    /// Why nothing is given up at present.
    pub fn breaker(&self) -> Option<&Open> {
        self.breaker.open.as_ref()
    }

    /// Whether a workload may be given up on a cluster that is lost, or that has lost it. If not, it will be looked at
    /// again.
    pub(super) fn may_give_up(
        &mut self,
        entry: &mut Entry,
        cluster: &Name,
        now: Time,
        out: &mut Vec<Action>,
    ) -> bool {
        let declared =
            self.clusters.get(cluster).is_some_and(|it| it.exists && it.rules.declared_lost);
        if !declared {
            if self.clusters.get(cluster).is_some_and(|it| it.up) {
                self.breaker.vanished.entry(entry.facts.uid.clone()).or_insert(now);
            }
            self.judge(entry, cluster, now, out);
            if self.breaker.open.is_some() {
                self.breaker.held.insert(entry.facts.uid.clone());
                return false;
            }
        }
        self.in_pace(entry, now)
    }

    /// Whether one more may be taken away now. If not, the timer is set.
    pub(super) fn in_pace(&mut self, entry: &mut Entry, now: Time) -> bool {
        let each = 60_000 / i64::from(self.settings.caution.evictions_per_minute.max(1));
        let ahead = each * i64::from(self.settings.caution.burst.max(1) - 1);
        let free = self.breaker.paced - ahead;
        if free > now {
            entry.wake_at(free);
            return false;
        }
        self.breaker.paced = self.breaker.paced.max(now) + each;
        true
    }

    /// Opens the breaker if too much is lost together with this cluster.
    fn judge(&mut self, entry: &Entry, cluster: &Name, now: Time, out: &mut Vec<Action>) {
        if self.breaker.open.is_some() {
            return;
        }
        let caution = &self.settings.caution;
        let (window, pardoned) = (caution.window, self.breaker.pardoned);
        self.breaker.vanished.retain(|_, at| *at > now - window && *at > pardoned);
        let about = self.clusters.get(cluster).filter(|it| !it.up).map_or(now, |it| it.since);
        let lost: BTreeSet<Name> = self
            .clusters
            .iter()
            .filter(|(_, it)| it.met && it.exists && !it.up && !it.rules.declared_lost)
            .filter(|(_, it)| it.since > pardoned && (it.since - about).abs() <= window)
            .map(|(name, _)| name.clone())
            .collect();
        let all = self.clusters.values().filter(|it| it.exists && (it.met || it.up)).count();
        let message = if lost.len() > 1 && exceeds(lost.len(), all, caution.clusters) {
            Some(format!("{} of {all} clusters were lost at about one time", lost.len()))
        } else {
            self.count_workloads(entry, &lost, now)
        };
        let Some(message) = message else { return };
        out.push(Action::Breaker { open: Some(message.clone()) });
        self.breaker.open = Some(Open { since: now, message, lost });
    }

    /// Goes through all workloads, so not too often.
    fn count_workloads(
        &mut self,
        entry: &Entry,
        lost: &BTreeSet<Name>,
        now: Time,
    ) -> Option<String> {
        let caution = &self.settings.caution;
        let enough = self.entries.len() + 1 >= caution.least_workloads;
        if !enough || self.breaker.counted.is_some_and(|at| now < at + 1_000) {
            return None;
        }
        self.breaker.counted = Some(now);
        let running =
            self.entries.values().chain([entry]).filter(|it| !it.gone && !it.facts.finished);
        let (mut all, mut gone) = (0, 0);
        for it in running {
            let Some(cluster) = &it.facts.cluster else { continue };
            all += 1;
            gone += usize::from(
                lost.contains(cluster) || self.breaker.vanished.contains_key(&it.facts.uid),
            );
        }
        (gone >= caution.least_workloads && exceeds(gone, all, caution.workloads))
            .then(|| format!("{gone} of {all} running workloads were lost at about one time"))
    }

    /// People have looked: what is lost by now may be given up.
    pub(super) fn release_breaker(&mut self, now: Time, out: &mut Vec<Action>) {
        self.breaker.pardoned = now;
        self.breaker.vanished.clear();
        self.close_breaker(out);
    }

    /// A cluster is back: once all that were lost are, there is nothing to be careful about.
    pub(super) fn mend_breaker(&mut self, out: &mut Vec<Action>) {
        let Some(open) = &self.breaker.open else { return };
        let back = |name: &Name| self.clusters.get(name).is_none_or(|it| it.up || !it.exists);
        if !open.lost.is_empty() && open.lost.iter().all(back) {
            self.close_breaker(out);
        }
    }

    fn close_breaker(&mut self, out: &mut Vec<Action>) {
        if self.breaker.open.take().is_some() {
            out.push(Action::Breaker { open: None });
            let held = std::mem::take(&mut self.breaker.held);
            self.dirty.extend(held);
        }
    }
}

fn exceeds(part: usize, whole: usize, percent: u32) -> bool {
    part * 100 > whole * percent as usize
}
