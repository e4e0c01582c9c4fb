//! Circuit breaker and rate limit for giving workloads up.
//!
//! When much is lost at once, the hub itself has probably lost its view. Then the breaker opens,
//! and nothing is given up until an administrator releases it, or until all lost clusters are back.

use std::collections::{BTreeMap, BTreeSet};

use super::Dispatcher;
use super::tracked_workload::TrackedWorkload;
use crate::{DispatchAction, Name, Uid, UnixMillis};

/// An open breaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerTrip {
    pub since: UnixMillis,
    pub message: String,
    /// The breaker closes when all of these are back.
    pub lost: BTreeSet<Name>,
}

#[derive(Debug, Default)]
pub(crate) struct Breaker {
    open: Option<BreakerTrip>,
    /// An administrator has accepted all losses up to this time.
    accepted_until: UnixMillis,
    /// When a connected cluster reported that a committed workload is gone.
    lost_by_cluster: BTreeMap<Uid, UnixMillis>,
    /// Workloads to reconcile when it closes.
    waiting: BTreeSet<Uid>,
    /// Rate limit: when all evictions granted so far would have happened at the configured rate.
    rate_used_until: UnixMillis,
    /// When running workloads were last counted.
    counted_at: Option<UnixMillis>,
}

impl Dispatcher {
    /// The open breaker, if it is open.
    pub fn breaker(&self) -> Option<&BreakerTrip> {
        self.breaker.open.as_ref()
    }

    /// Whether the workload may be given up on a cluster that is lost, or that lost the workload.
    /// Otherwise a timer or the closing of the breaker reconciles it again.
    pub(super) fn may_give_up(
        &mut self,
        entry: &mut TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> bool {
        let declared =
            self.clusters.get(cluster).is_some_and(|it| it.exists && it.config.declared_lost);
        if !declared {
            if self.clusters.get(cluster).is_some_and(|it| it.is_connected) {
                self.breaker.lost_by_cluster.entry(entry.facts.uid.clone()).or_insert(now);
            }
            self.trip_if_too_much_is_lost(entry, cluster, now, out);
            if self.breaker.open.is_some() {
                self.breaker.waiting.insert(entry.facts.uid.clone());
                return false;
            }
        }
        self.is_within_rate(entry, now)
    }

    /// Whether the rate allows another eviction now. Sets the timer if not.
    pub(super) fn is_within_rate(&mut self, entry: &mut TrackedWorkload, now: UnixMillis) -> bool {
        let each = 60_000 / i64::from(self.settings.breaker_limits.evictions_per_minute.max(1));
        let ahead = each * i64::from(self.settings.breaker_limits.burst.max(1) - 1);
        let free = self.breaker.rate_used_until - ahead;
        if free > now {
            entry.wake_at(free);
            return false;
        }
        self.breaker.rate_used_until = self.breaker.rate_used_until.max(now) + each;
        true
    }

    /// Opens the breaker if too much is lost together with this cluster.
    fn trip_if_too_much_is_lost(
        &mut self,
        entry: &TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        if self.breaker.open.is_some() {
            return;
        }
        let limits = &self.settings.breaker_limits;
        let (window, accepted_until) = (limits.window, self.breaker.accepted_until);
        self.breaker.lost_by_cluster.retain(|_, at| *at > now - window && *at > accepted_until);
        let about =
            self.clusters.get(cluster).filter(|it| !it.is_connected).map_or(now, |it| it.since);
        let lost: BTreeSet<Name> = self
            .clusters
            .iter()
            .filter(|(_, it)| {
                it.has_been_used && it.exists && !it.is_connected && !it.config.declared_lost
            })
            .filter(|(_, it)| it.since > accepted_until && (it.since - about).abs() <= window)
            .map(|(name, _)| name.clone())
            .collect();
        let all = self
            .clusters
            .values()
            .filter(|it| it.exists && (it.has_been_used || it.is_connected))
            .count();
        let message = if lost.len() > 1 && exceeds(lost.len(), all, limits.clusters) {
            Some(format!("{} of {all} clusters were lost at about one time", lost.len()))
        } else {
            self.count_workloads(entry, &lost, now)
        };
        let Some(message) = message else { return };
        out.push(DispatchAction::BreakerChanged { open: Some(message.clone()) });
        self.breaker.open = Some(BreakerTrip { since: now, message, lost });
    }

    /// Visits all workloads, so at most once a second.
    fn count_workloads(
        &mut self,
        entry: &TrackedWorkload,
        lost: &BTreeSet<Name>,
        now: UnixMillis,
    ) -> Option<String> {
        let limits = &self.settings.breaker_limits;
        let enough = self.entries.len() + 1 >= limits.least_workloads;
        if !enough || self.breaker.counted_at.is_some_and(|at| now < at + 1_000) {
            return None;
        }
        self.breaker.counted_at = Some(now);
        let running = self
            .entries
            .values()
            .chain([entry])
            .filter(|it| !it.is_deleted && !it.facts.state.finished);
        let (mut all, mut gone) = (0, 0);
        for it in running {
            let Some(cluster) = &it.facts.state.cluster else { continue };
            all += 1;
            gone += usize::from(
                lost.contains(cluster) || self.breaker.lost_by_cluster.contains_key(&it.facts.uid),
            );
        }
        (gone >= limits.least_workloads && exceeds(gone, all, limits.workloads))
            .then(|| format!("{gone} of {all} running workloads were lost at about one time"))
    }

    /// An administrator released the breaker: give up what is lost by now.
    pub(super) fn release_breaker(&mut self, now: UnixMillis, out: &mut Vec<DispatchAction>) {
        self.breaker.accepted_until = now;
        self.breaker.lost_by_cluster.clear();
        self.close_breaker(out);
    }

    /// Closes the breaker when all lost clusters are back or deleted.
    pub(super) fn update_breaker(&mut self, out: &mut Vec<DispatchAction>) {
        let Some(open) = &self.breaker.open else { return };
        let back =
            |name: &Name| self.clusters.get(name).is_none_or(|it| it.is_connected || !it.exists);
        if !open.lost.is_empty() && open.lost.iter().all(back) {
            self.close_breaker(out);
        }
    }

    fn close_breaker(&mut self, out: &mut Vec<DispatchAction>) {
        if self.breaker.open.take().is_some() {
            out.push(DispatchAction::BreakerChanged { open: None });
            let waiting = std::mem::take(&mut self.breaker.waiting);
            self.dirty.extend(waiting);
        }
    }
}

fn exceeds(part: usize, whole: usize, percent: u32) -> bool {
    part * 100 > whole * percent as usize
}
