//! What the loss of a cluster means for one workload: its own word goes before its queue's, its queue's before the
//! cluster's. A fence stops only what its agent has heard of it for.

use super::cluster::{Loss, has_heard_since};
use super::entry::Entry;
use super::machine::Dispatcher;
use super::{Action, Facts, Name, Phase, Time};

/// The fence that an agent was told with an attempt that it runs, and by which others it may still go. Milliseconds after
/// the end of its lease; none: it is told of no fence.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    /// The attempt that it goes with; zero before anything was said.
    attempt: u64,
    said: Option<i64>,
    at: Time,
    /// There has been a session since: it may have been heard.
    sent: bool,
    /// The worst of what it was told before, from what it has surely heard on.
    heard: Option<i64>,
}

impl Told {
    /// The worst that the agent may go by.
    fn worst_case(&self) -> Option<i64> {
        if self.sent { Self::worst(self.heard, self.said) } else { self.heard }
    }

    /// The worst of two: none stops nothing, and the longer one stops later.
    fn worst(a: Option<i64>, b: Option<i64>) -> Option<i64> {
        a.zip(b).map(|(a, b)| a.max(b))
    }
}

impl Dispatcher {
    /// What the loss of a cluster means for a workload, as people have it now. A fence that nobody there could see to
    /// counts as not said.
    fn policy(&self, cluster: &Name, facts: &Facts) -> Loss {
        let rules = self.clusters.get(cluster).map(|known| &known.rules);
        match (facts.loss, rules) {
            (Some(Loss::Fence { .. }), Some(rules)) if rules.unfenced => rules.loss,
            (Some(own), _) => own,
            (None, Some(rules)) => rules.loss,
            (None, None) => Loss::default(),
        }
    }

    /// How long after the end of its lease the agent of a cluster is to stop a workload; none: not at all.
    pub fn fence(&self, uid: &str, cluster: &Name) -> Option<i64> {
        self.policy(cluster, &self.entries.get(uid)?.facts).fence()
    }

    /// The policy as it can be relied upon: by a fence that its agent may not have heard of, or could not see to when it
    /// was last heard, nothing is stopped.
    pub(super) fn relied_on(&self, cluster: &Name, entry: &Entry) -> Loss {
        let known = self.clusters.get(cluster);
        let unable = known.is_some_and(|known| known.unable.is_some());
        let changed = match entry.facts.loss {
            Some(_) => entry.changed_policy,
            None => entry.changed_policy || known.is_some_and(|known| known.changed_policy),
        };
        let told =
            entry.remotes.get(cluster).map(|remote| remote.fence).filter(|told| told.attempt > 0);
        match (self.policy(cluster, &entry.facts), told) {
            (Loss::Fence { .. }, _) if unable => Loss::Hold,
            (Loss::Fence { after }, Some(told)) => told
                .worst_case()
                .map_or(Loss::Hold, |heard| Loss::Fence { after: after.max(heard) }),
            (Loss::Fence { .. }, None) if changed => Loss::Hold,
            // What an earlier process told it was the same, as far as can be known.
            (policy, _) => policy,
        }
    }

    /// Tells clusters once more what they run, if the fence that goes with it has changed.
    pub(super) fn tell_fences(&self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) {
        let mut again = Vec::new();
        for (name, remote) in &mut entry.remotes {
            let Some(phase @ (Phase::Run | Phase::Suspend)) = remote.phase else { continue };
            let fence = self.policy(name, &entry.facts).fence();
            let told = &mut remote.fence;
            if told.attempt != remote.attempt {
                // The assignment that says to run it says this as well: without having heard it, nobody runs it.
                *told = Told {
                    attempt: remote.attempt,
                    said: fence,
                    at: now,
                    sent: true,
                    heard: fence,
                };
            } else if told.said != fence {
                let cluster = self.clusters.get(name);
                if cluster.is_some_and(|it| it.has_heard(told.at, now)) {
                    told.heard = told.said;
                } else {
                    told.heard = told.worst_case();
                }
                (told.said, told.at, told.sent) = (fence, now, cluster.is_some_and(|it| it.up));
                again.push((name.clone(), remote.attempt, phase));
            }
        }
        out.extend(
            again.into_iter().map(|(name, attempt, phase)| entry.desire(&name, attempt, phase)),
        );
    }

    /// A session has begun: what is said now is said in it.
    pub(super) fn say_again(&mut self, name: &Name) {
        self.change_there(name, |remote| remote.fence.sent = true);
    }

    /// A session ends, or another begins: what was said in it long enough ago has been heard.
    pub(super) fn note_heard(&mut self, name: &Name, now: Time) {
        let Some(cluster) = self.clusters.get(name).filter(|it| it.up) else { return };
        let since = cluster.since;
        self.change_there(name, |remote| {
            let told = &mut remote.fence;
            if has_heard_since(since, told.at, now) {
                told.heard = told.said;
            }
        });
    }
}
