//! Workloads with our hub's id on a cluster, of which the hub does not know: reported first, removed much later.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;

use super::machine::Dispatcher;
use super::{Action, Name, Observation, Phase, Settings, State, Time, Uid, terminal};

/// Unknown workloads remembered at once. A cluster that makes up more is not listened to.
const MAX_ORPHANS: usize = 20_000;

/// A cluster of which the hub knows less than it does not know, and of that at least this much, is left as it is: it is
/// more likely that the hub's store was lost or is an old one.
const MANY_ORPHANS: usize = 10;

/// A workload of ours that we do not know.
#[derive(Debug, Clone)]
pub(super) struct Orphan {
    /// What was last said of it.
    last: Observation,
    /// When it was first heard of.
    first: Time,
    /// From when on its time runs.
    since: Time,
    /// Its end has been acknowledged.
    acked: bool,
    removing: bool,
}

impl Orphan {
    /// The attempt whose end holds up the acknowledgement of all that its cluster said since, if one does.
    fn holds(&self) -> Option<u64> {
        (terminal(self.last.state) && !self.acked).then_some(self.last.attempt)
    }

    /// When something is to be done about it, if nothing happens before. An end may be the end of a workload that we are
    /// about to hear of: it is not let go at once.
    pub(super) fn due(&self, settings: &Settings) -> Option<Time> {
        if self.removing {
            return None;
        }
        let wait = if self.holds().is_some() {
            settings.start_grace.min(settings.orphan_after)
        } else {
            settings.orphan_after
        };
        Some(self.since.saturating_add(wait))
    }
}

/// A workload of ours that we do not know, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanView {
    /// The uid that it has, or had, on the hub.
    pub uid: Uid,
    /// Where it lies on the cluster.
    pub namespace: Name,
    /// Where it lies on the cluster.
    pub name: Name,
    /// The attempt.
    pub attempt: u64,
    /// What its cluster says of it.
    pub state: State,
    /// Since when we know of it.
    pub since: Time,
}

impl Dispatcher {
    /// Whether a cluster is there and has told all that it has.
    pub fn has_told(&self, cluster: &str) -> bool {
        self.clusters.get(cluster).is_some_and(|it| it.up && it.synced)
    }

    /// The orphans of a cluster, the first so many by their uids.
    pub fn orphans_of(&self, cluster: &str, most: usize) -> Vec<OrphanView> {
        let from = (Name::from(cluster), Uid::from(""));
        let there = self.orphans.range(from..).take_while(|((name, _), _)| **name == *cluster);
        let view = |((_, uid), orphan): (&(Name, Uid), &Orphan)| OrphanView {
            uid: uid.clone(),
            namespace: orphan.last.namespace.clone(),
            name: orphan.last.name.clone(),
            attempt: orphan.last.attempt,
            state: orphan.last.state,
            since: orphan.first,
        };
        there.take(most).map(view).collect()
    }

    pub(super) fn orphaned(&mut self, cluster: &Name, observation: Observation, now: Time, out: &mut Vec<Action>) {
        let key = (cluster.clone(), observation.uid.clone());
        if observation.state == State::Gone {
            let Some(orphan) = self.orphans.remove(&key) else { return };
            let (uid, attempt) = (observation.uid, observation.attempt);
            if let Some(attempt) = orphan.holds() {
                out.push(Action::Ack { cluster: cluster.clone(), uid: uid.clone(), attempt });
            }
            if orphan.removing {
                out.push(Action::Forget { cluster: cluster.clone(), uid, attempt });
            }
            return;
        }
        let full = !self.orphans.contains_key(&key) && self.orphans.len() >= MAX_ORPHANS;
        // Acknowledgements are in order: one that is not given holds up all behind it.
        let let_go = self.orphans.get(&key).is_some_and(|orphan| orphan.acked || orphan.removing);
        if terminal(observation.state) && (full || let_go) {
            let (uid, attempt) = (observation.uid.clone(), observation.attempt);
            out.push(Action::Ack { cluster: cluster.clone(), uid, attempt });
        }
        if full {
            return;
        }
        match self.orphans.entry(key) {
            MapEntry::Vacant(vacant) => {
                let (uid, attempt) = (observation.uid.clone(), observation.attempt);
                out.push(Action::Orphan { cluster: cluster.clone(), uid, attempt });
                vacant.insert(Orphan { last: observation, first: now, since: now, acked: false, removing: false });
            }
            MapEntry::Occupied(mut known) if observation.attempt >= known.get().last.attempt => {
                if let Some(attempt) = known.get().holds() {
                    if attempt == observation.attempt {
                        // An end that is not acknowledged stays until it is.
                        return;
                    }
                    out.push(Action::Ack { cluster: cluster.clone(), uid: observation.uid.clone(), attempt });
                }
                known.get_mut().last = observation;
            }
            MapEntry::Occupied(_) => {}
        }
    }

    /// Workloads that we have come to know are no orphans: what clusters said of them counts.
    pub(super) fn adopt(&mut self, now: Time, out: &mut Vec<Action>) {
        let known: Vec<(Name, Uid)> =
            self.orphans.keys().filter(|(_, uid)| self.entries.contains_key(uid)).cloned().collect();
        for (cluster, uid) in known {
            let Some(orphan) = self.orphans.remove(&(cluster.clone(), uid.clone())) else { continue };
            self.observed(&cluster, orphan.last, now, out);
            if orphan.removing
                && let Some(remote) = self.entries.get_mut(&uid).and_then(|entry| entry.remotes.get_mut(&cluster))
            {
                remote.phase = Some(Phase::Absent);
            }
        }
    }

    pub(super) fn sweep_orphans(&mut self, now: Time, out: &mut Vec<Action>) {
        let (mut strange, mut known) = (BTreeMap::<Name, usize>::new(), BTreeMap::<Name, usize>::new());
        let due = |orphan: &Orphan| orphan.due(&self.settings).is_some_and(|due| now >= due);
        if !self.orphans.values().any(due) {
            return;
        }
        for (cluster, _) in self.orphans.keys() {
            *strange.entry(cluster.clone()).or_default() += 1;
        }
        for cluster in self.entries.values().flat_map(|entry| entry.remotes.keys()) {
            *known.entry(cluster.clone()).or_default() += 1;
        }
        for ((cluster, uid), orphan) in &mut self.orphans {
            if orphan.due(&self.settings).is_none_or(|due| now < due) {
                continue;
            }
            let Observation { namespace, name, attempt, .. } = orphan.last.clone();
            if orphan.holds().is_some() {
                orphan.acked = true;
                out.push(Action::Ack { cluster: cluster.clone(), uid: uid.clone(), attempt });
            }
            if now < orphan.since.saturating_add(self.settings.orphan_after) {
                continue;
            }
            let many = strange.get(cluster).copied().unwrap_or(0);
            if many >= MANY_ORPHANS && many > known.get(cluster).copied().unwrap_or(0) {
                // It is the hub that has forgotten.
                orphan.since = now;
                continue;
            }
            orphan.removing = true;
            let (cluster, uid, phase) = (cluster.clone(), uid.clone(), Phase::Absent);
            out.push(Action::Desire { cluster, uid, namespace, name, attempt, phase });
        }
    }
}
