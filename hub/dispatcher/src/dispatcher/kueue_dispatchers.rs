//! Kueue's dispatchers AllAtOnce, Incremental and External: offers follow
//! `status.nominatedClusterNames`.
//!
//! Kueue: `pkg/controller/workloaddispatcher`, KEP-693. The nominated clusters are written first,
//! also by an external dispatcher; the offers follow when the API shows them.

use super::Dispatcher;
use super::cluster_answers::waits_for;
use super::tracked_workload::TrackedWorkload;
use crate::{DispatchAction, DispatchMode, Name, Phase, UnixMillis, WorkloadWrite};

impl Dispatcher {
    /// Writes the nominated clusters, unless an external dispatcher does, and offers to them.
    pub(super) fn offer_to_nominated(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let wanted = match self.settings.mode {
            DispatchMode::AllAtOnce => {
                let mut all = self.within_reach(entry, now);
                all.sort();
                Some(all)
            }
            DispatchMode::Incremental { step, round } => {
                Some(self.next_round(entry, step, round, now))
            }
            DispatchMode::BestFit | DispatchMode::External => None,
        };
        let outdated = wanted
            .as_ref()
            .is_some_and(|wanted| !wanted.is_empty() && *wanted != entry.facts.nominated);
        if outdated || entry.reservation.is_some() {
            if self.may_write(entry, now) {
                let message =
                    entry.reservation.is_some().then(|| waits_for(&self.answers(entry, now)));
                let nominated = if outdated { wanted } else { None };
                entry.start_write(WorkloadWrite::Record { message, nominated }, out);
            }
            return;
        }
        let order = self.candidates(entry, now);
        let nominated = entry.facts.nominated.clone();
        for cluster in self.offers(entry) {
            if !nominated.contains(&cluster) {
                let attempt = entry.highest_attempt;
                entry.request(&cluster, attempt, Phase::Absent, now, out);
            }
        }
        for cluster in nominated {
            let asked = self.offers(entry).contains(&cluster);
            let refused = self.refusal(entry, &cluster, now).map(|refusal| refusal.until);
            let usable = self.clusters.get(&cluster).is_some_and(|known| known.is_usable());
            match refused {
                Some(until) => entry.wake_at(until),
                None if usable && !asked && order.contains(&cluster) => {
                    self.offer(entry, &cluster, now, out)
                }
                None => {}
            }
        }
    }

    fn next_round(
        &self,
        entry: &mut TrackedWorkload,
        step: usize,
        round: i64,
        now: UnixMillis,
    ) -> Vec<Name> {
        let order = self.candidates(entry, now);
        let mut names: Vec<Name> =
            entry.facts.nominated.iter().filter(|name| order.contains(name)).cloned().collect();
        let Some(nomination) = &mut entry.nomination else { return names };
        let mut left: Vec<Name> =
            order.iter().filter(|name| !names.contains(name)).cloned().collect();
        if self.settings.nominate_by_name {
            left.sort();
        }
        // A round's begin is only in memory, as in Kueue: after a restart the next round begins at
        // once.
        if (names.is_empty() || now >= nomination.next_round) && !left.is_empty() {
            names.extend(left.into_iter().take(step.max(1)));
            nomination.rounds += 1;
            nomination.next_round = now + round;
        }
        let next = nomination.next_round;
        if next > now {
            entry.wake_at(next);
        }
        names
    }
}
