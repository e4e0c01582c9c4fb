//! Clusters that go on under another name: the MultiKueueCluster of the one is deleted, and that of the other leads to the
//! same cluster.
//!
//! What runs there is what the hub let run. It stays, and the hub writes the other name into the Workload, with the same
//! attempt. Where the other name may not have the job, by the configuration of the job's check, the copy stays all the same until
//! the policy of the lost name gives it up.
//!
//! # The same cluster
//! By its uid. A hub that began after the deletion does not know the uid of the deleted one: then a job of the committed attempt
//! tells, which nobody makes but the cluster that was told to run it.

use super::entry::{Entry, Remote, Writing};
use super::machine::Dispatcher;
use super::{Action, Check, Name, Phase, State, Time};

impl Remote {
    /// Whether it is what the hub let run as this attempt. `same`: it is on the cluster that was let run it, if that is known.
    fn is_committed_copy(&self, attempt: u64, same: Option<bool>) -> bool {
        let is_seen =
            self.attempt == attempt && matches!(self.phase, None | Some(Phase::Run)) && !self.lost;
        let is_there =
            !matches!(self.state, None | Some(State::Gone | State::Unfit | State::Refused));
        let has_job = || self.ahead_of(attempt.saturating_sub(1)).is_some();
        is_seen && is_there && same.unwrap_or_else(has_job)
    }
}

impl Dispatcher {
    /// A session says which cluster this is.
    pub(super) fn cluster_is(&mut self, name: &Name, uid: Name, now: Time) {
        self.clusters
            .entry(name.clone())
            .or_insert_with(|| super::cluster::Cluster::new(now))
            .uid = Some(uid);
    }

    /// Under which name the cluster that has the committed attempt goes on, if its own is gone.
    pub(super) fn name_now(&self, entry: &Entry) -> Option<Name> {
        let facts = &entry.facts;
        if entry.gone || facts.finished || facts.attempt == 0 {
            return None;
        }
        let from = match &facts.cluster {
            Some(from) => {
                self.clusters.get(from).filter(|it| it.exists).is_none().then_some(Some(from))?
            }
            // A name is taken away before another is written: a process of the hub ended in between.
            None => {
                let ready = matches!(facts.check, Some((_, Check::Ready)));
                (ready && facts.reserved && !facts.evicted).then_some(None)?
            }
        };
        let before = from.and_then(|from| self.clusters.get(from)?.uid.as_ref());
        let is_it = |name: &Name, remote: &Remote| {
            let Some(known) =
                self.clusters.get(name).filter(|known| known.exists && Some(name) != from)
            else {
                return false;
            };
            let same = before.zip(known.uid.as_ref()).map(|(before, now)| before == now);
            remote.is_committed_copy(facts.attempt, same)
        };
        entry
            .remotes
            .iter()
            .find(|(name, remote)| is_it(name, remote))
            .map(|(name, _)| name.clone())
    }

    /// Has the name written under which the cluster goes on that has the committed attempt. Whether there is nothing else to
    /// decide meanwhile.
    pub(super) fn follow_name(
        &mut self,
        entry: &mut Entry,
        now: Time,
        out: &mut Vec<Action>,
    ) -> bool {
        let Some(to) = self.name_now(entry) else { return false };
        let configured = self.configured(entry);
        if !configured.is_empty() && !configured.contains(&to) && !entry.facts.leaving() {
            entry.kept = Some(to);
            return false;
        }
        let attempt = entry.facts.attempt;
        if let Some(from) = entry.facts.cluster.clone() {
            // The other name has it all.
            entry.remotes.remove(&from);
            entry.cleared.insert(from, attempt);
        }
        if entry.facts.leaving() {
            return false;
        }
        entry.nomination = None;
        if entry.writing.is_none() && self.may_write(entry, now) {
            entry.writing = Some(Writing::Commit { cluster: to.clone(), attempt });
            let (uid, from) = (entry.facts.uid.clone(), entry.facts.cluster.clone());
            out.push(Action::Rename { uid, from, cluster: to, attempt });
        }
        true
    }
}
