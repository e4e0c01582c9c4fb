//! Refusals: clusters that refused or evicted a workload, and when the hub asks them again.
//!
//! The hub asks a cluster again at once when something changed there: it reconnected, was
//! uncordoned, its agent became ready, or the LocalQueue was created, opened or got other quota.
//! Otherwise the hub waits for a delay that doubles with each refusal. Lost and drained clusters,
//! and move requests, are no refusals. A cluster where no pod became ready counts as refusing.
//!
//! A refusal concerns the flavors that the hub charged then. With other flavors the hub asks the
//! cluster at once. The refusal counts again once the hub charges the earlier flavors again: the
//! engine may charge flavors in turn. An object that the cluster does not accept concerns all
//! flavors.

use std::collections::BTreeMap;
use std::sync::Arc;

use switchyard_syntax::flavor_pins::FlavorPins;

use super::Dispatcher;
use super::tracked_workload::TrackedWorkload;
use crate::{Name, Reason, STUCK, State, UnixMillis};

/// One cluster's refusal of one workload.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    /// The cluster's reasons.
    pub(super) reasons: Vec<Reason>,
    /// When the refusal ends if nothing changes.
    pub(super) until: UnixMillis,
    delay: i64,
    /// Number of the event that recorded it.
    event: u64,
}

impl Refusal {
    fn is_stuck(&self) -> bool {
        self.reasons.iter().any(|reason| reason.code == STUCK)
    }
}

/// The most charges for which a workload keeps refusals of one cluster.
const MAX_CHARGES: usize = 8;

/// The flavors that a refusal concerns. None: all.
type Concerned = Option<Arc<FlavorPins>>;

/// The last refusal of each cluster, by the flavors that the hub had charged.
#[derive(Debug, Clone, Default)]
pub(super) struct Refusals(BTreeMap<(Name, Concerned), Refusal>);

impl Refusals {
    pub(super) fn add(
        &mut self,
        (cluster, flavors): (&Name, Concerned),
        reasons: Vec<Reason>,
        event: u64,
        now: UnixMillis,
        (first, longest): (i64, i64),
    ) {
        self.0.retain(|_, refusal| now < refusal.until.saturating_add(longest));
        let key = (cluster.clone(), flavors);
        let delay =
            self.0.get(&key).map_or(first, |last| last.delay.saturating_mul(2).min(longest));
        self.0.insert(key, Refusal { reasons, until: now.saturating_add(delay), delay, event });
        let of_cluster = || self.0.iter().filter(|((name, _), _)| name == cluster);
        if of_cluster().count() > MAX_CHARGES {
            let oldest = of_cluster().min_by_key(|(_, refusal)| refusal.event);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.and_then(|key| self.0.remove(&key));
        }
    }

    pub(super) fn forget_all(&mut self) {
        self.0.clear();
    }

    /// Forgets what clusters said about the flavors, but not where no pod became ready.
    pub(super) fn forget_all_but_stuck(&mut self) {
        self.0.retain(|_, refusal| refusal.is_stuck());
    }

    pub(super) fn forget(&mut self, cluster: &Name) {
        self.0.retain(|(name, _), _| name != cluster);
    }

    /// Forgets that no pod became ready there. Refusals by the cluster itself stay.
    pub(super) fn forget_stuck(&mut self, cluster: &Name) {
        self.0.retain(|(name, _), refusal| name != cluster || !refusal.is_stuck());
    }
}

/// The reported reasons, or a default for the state.
fn refusal_reasons(state: Option<State>, reported: Vec<Reason>) -> Vec<Reason> {
    if !reported.is_empty() {
        return reported;
    }
    let (code, message) = match state {
        Some(State::Evicted) => ("Evicted", "evicted it, and gives no reason"),
        Some(State::Gone) => ("GoneOnWorker", "its copy was deleted there"),
        Some(State::Succeeded | State::Failed) => {
            ("Ended", "reports an end of an attempt that was not to run")
        }
        _ => ("Refused", "refused it, and gives no reason"),
    };
    vec![Reason::new(code, message)]
}

impl Dispatcher {
    /// Records the cluster's last report as a refusal.
    pub(super) fn record_refusal(
        &self,
        entry: &mut TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
    ) {
        let Some(remote) = entry.remotes.get(cluster) else { return };
        let reasons = refusal_reasons(remote.state, remote.reasons.clone());
        let depends = remote.state != Some(State::Refused);
        let flavors = depends.then(|| entry.facts.charged.clone());
        let backoff = self.settings.refusal_backoff;
        entry.refusals.add((cluster, flavors), reasons, self.events, now, backoff);
    }

    /// A cluster's refusal, if it still counts.
    pub(super) fn refusal<'a>(
        &self,
        entry: &'a TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
    ) -> Option<&'a Refusal> {
        let facts = &entry.facts;
        let changed = self
            .clusters
            .get(cluster)
            .map_or(0, |known| known.changed_for(&facts.namespace, &facts.queue));
        let of = |flavors| entry.refusals.0.get(&(cluster.clone(), flavors));
        let both = [of(None), of(Some(facts.charged.clone()))].into_iter().flatten();
        let counts = |it: &&Refusal| now < it.until && changed <= it.event;
        both.filter(counts).max_by_key(|refusal| refusal.until)
    }

    /// When the first refusal of the workload's clusters ends.
    pub(super) fn next_retry(
        &self,
        entry: &TrackedWorkload,
        now: UnixMillis,
    ) -> Option<UnixMillis> {
        let ends = self.configured_clusters(entry);
        ends.iter()
            .filter_map(|cluster| self.refusal(entry, cluster, now))
            .map(|refusal| refusal.until)
            .min()
    }
}
