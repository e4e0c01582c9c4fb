//! Workloads that clusters have refused, and when the hub asks again.
//!
//! A cluster that refused or evicted a workload is asked again at once when something has changed there that may matter: it is
//! back, uncordoned, or its agent can act again; or the workload's queue was made, opened or given other quota. Without such a
//! change it is asked again after a delay that doubles with each refusal.
//!
//! Only a cluster's own word counts. One that was lost, drained, or left on request has refused nothing.

use std::collections::BTreeMap;

use super::entry::Entry;
use super::machine::Dispatcher;
use super::{Name, Reason, State, Time};

/// One cluster's no to one workload.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    /// In the cluster's words.
    pub(super) reasons: Vec<Reason>,
    /// Without a change there, it is asked again then.
    pub(super) until: Time,
    delay: i64,
    /// During which event the dispatcher recorded it.
    event: u64,
}

/// The last no of each cluster to one workload.
#[derive(Debug, Clone, Default)]
pub(super) struct Refusals(BTreeMap<Name, Refusal>);

impl Refusals {
    fn add(
        &mut self,
        cluster: &Name,
        reasons: Vec<Reason>,
        event: u64,
        now: Time,
        (first, longest): (i64, i64),
    ) {
        self.0.retain(|_, refusal| now < refusal.until.saturating_add(longest));
        let delay =
            self.0.get(cluster).map_or(first, |last| last.delay.saturating_mul(2).min(longest));
        self.0.insert(
            cluster.clone(),
            Refusal { reasons, until: now.saturating_add(delay), delay, event },
        );
    }

    /// Has all clusters asked again now.
    pub(super) fn forget_all(&mut self) {
        self.0.clear();
    }

    /// Has a cluster asked again now.
    pub(super) fn forget(&mut self, cluster: &Name) {
        self.0.remove(cluster);
    }
}

/// The reasons that a cluster gave with a state, or the meaning of that state where it gave none.
fn words(state: Option<State>, said: Vec<Reason>) -> Vec<Reason> {
    if !said.is_empty() {
        return said;
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
    /// Records what a cluster last said of the workload as its no.
    pub(super) fn refused_by(&self, entry: &mut Entry, cluster: &Name, now: Time) {
        let Some(remote) = entry.remotes.get(cluster) else { return };
        let reasons = words(remote.state, remote.reasons.clone());
        entry.refusals.add(cluster, reasons, self.events, now, self.settings.refused_for);
    }

    /// A cluster's no, if it still counts.
    pub(super) fn refusal<'a>(
        &self,
        entry: &'a Entry,
        cluster: &Name,
        now: Time,
    ) -> Option<&'a Refusal> {
        let refusal = entry.refusals.0.get(cluster).filter(|refusal| now < refusal.until)?;
        let facts = &entry.facts;
        let changed = self
            .clusters
            .get(cluster)
            .map_or(0, |known| known.changed_for(&facts.namespace, &facts.queue));
        (changed <= refusal.event).then_some(refusal)
    }

    /// When the first of the workload's clusters that said no is asked again; none if none did.
    pub(super) fn next_question(&self, entry: &Entry, now: Time) -> Option<Time> {
        let ends = self.configured(entry);
        ends.iter()
            .filter_map(|cluster| self.refusal(entry, cluster, now))
            .map(|refusal| refusal.until)
            .min()
    }
}
