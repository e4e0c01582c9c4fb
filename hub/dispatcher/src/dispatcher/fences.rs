//! Fences: which disconnect policy applies to a workload, and whether its agent knows the fence.
//!
//! The workload's policy overrides its queue's, and that one the cluster's. The dispatcher relies
//! on a fence only if the agent has received it: otherwise the job may run on.

use super::Dispatcher;
use super::cluster_state::has_delivered_since;
use super::tracked_workload::TrackedWorkload;
use crate::{DispatchAction, LossPolicy, Name, Phase, UnixMillis, WorkloadFacts};

/// The fence last announced to an agent with an attempt that it runs, in milliseconds after the end
/// of its lease. None: no fence.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AnnouncedFence {
    /// The attempt that it was announced with. Zero: nothing was announced.
    attempt: u64,
    announced: Option<i64>,
    announced_at: UnixMillis,
    /// A session has existed since, so the agent may have received it.
    may_be_delivered: bool,
    /// The latest fence among the one surely received and those announced after it.
    delivered: Option<i64>,
}

impl AnnouncedFence {
    /// The latest fence that the agent may follow.
    fn worst_case(&self) -> Option<i64> {
        if self.may_be_delivered {
            Self::worst(self.delivered, self.announced)
        } else {
            self.delivered
        }
    }

    /// The later of two. None is the latest: the job never stops.
    fn worst(a: Option<i64>, b: Option<i64>) -> Option<i64> {
        a.zip(b).map(|(a, b)| a.max(b))
    }
}

impl Dispatcher {
    /// The policy that is configured for the workload. A fence needs an agent: on a cluster without
    /// one, the cluster's policy applies.
    pub(super) fn policy(&self, cluster: &Name, facts: &WorkloadFacts) -> LossPolicy {
        let rules = self.clusters.get(cluster).map(|known| &known.config);
        match (facts.on_disconnect, rules) {
            (Some(LossPolicy::Fence { .. }), Some(rules)) if rules.unfenced => rules.on_disconnect,
            (Some(own), _) => own,
            (None, Some(rules)) => rules.on_disconnect,
            (None, None) => LossPolicy::default(),
        }
    }

    /// How long after the end of its lease the agent shall stop the workload. None: never.
    pub fn fence(&self, uid: &str, cluster: &Name) -> Option<i64> {
        self.policy(cluster, &self.entries.get(uid)?.facts).fence()
    }

    /// The policy that is safe to assume. A fence that the agent may not know, or could not carry
    /// out when it last reported, counts as [`LossPolicy::Hold`].
    pub(super) fn reliable_policy(&self, cluster: &Name, entry: &TrackedWorkload) -> LossPolicy {
        let known = self.clusters.get(cluster);
        let unable = known.is_some_and(|known| known.not_ready_since.is_some());
        let forgotten = self.settings.forgotten_until();
        let remote = entry.remotes.get(cluster);
        let fence = remote.map(|remote| remote.fence).filter(|fence| fence.attempt > 0);
        match (self.policy(cluster, &entry.facts), fence) {
            (LossPolicy::Fence { .. }, _) if unable => LossPolicy::Hold,
            (LossPolicy::Fence { after }, Some(fence)) => {
                fence.worst_case().map_or(LossPolicy::Hold, |delivered| LossPolicy::Fence {
                    after: after.max(delivered),
                })
            }
            (LossPolicy::Fence { .. }, None)
                if self.has_new_policy(cluster, entry.has_new_policy, &entry.facts)
                    || remote.is_some_and(|remote| remote.predates(forgotten)) =>
            {
                LossPolicy::Hold
            }
            // Assume that an earlier hub process announced the same fence.
            (policy, _) => policy,
        }
    }

    /// Whether the workload's policy on the cluster changed in this process. An agent that runs the
    /// workload by an order of an earlier process may follow another fence then.
    fn has_new_policy(&self, cluster: &Name, own: bool, facts: &WorkloadFacts) -> bool {
        let of_cluster = || self.clusters.get(cluster).is_some_and(|known| known.has_new_policy);
        own || facts.on_disconnect.is_none() && of_cluster()
    }

    /// Sends assignments again whose fence changed.
    pub(super) fn resend_changed_fences(
        &self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let mut again = Vec::new();
        let forgotten = self.settings.forgotten_until();
        for (name, remote) in &mut entry.remotes {
            let Some(phase @ (Phase::Run | Phase::Suspend)) = remote.phase else { continue };
            let fence = self.policy(name, &entry.facts).fence();
            let may_differ = self.has_new_policy(name, entry.has_new_policy, &entry.facts)
                || remote.predates(forgotten);
            let last = &mut remote.fence;
            if last.attempt != remote.attempt {
                // The assignment in phase `Run` carries the fence, so an agent that runs the job
                // by it has received it.
                let is_known = remote.was_offered || !may_differ;
                *last = AnnouncedFence {
                    attempt: remote.attempt,
                    announced: fence,
                    announced_at: now,
                    may_be_delivered: true,
                    delivered: fence.filter(|_| is_known),
                };
            } else if last.announced != fence {
                let cluster = self.clusters.get(name);
                if cluster.is_some_and(|it| it.has_delivered(last.announced_at, now)) {
                    last.delivered = last.announced;
                } else {
                    last.delivered = last.worst_case();
                }
                (last.announced, last.announced_at, last.may_be_delivered) =
                    (fence, now, cluster.is_some_and(|it| it.is_connected));
                again.push((name.clone(), remote.attempt, phase));
            }
        }
        out.extend(
            again.into_iter().map(|(name, attempt, phase)| entry.assignment(&name, attempt, phase)),
        );
    }

    /// A session began: it delivers the current assignments with their fences and gates.
    pub(super) fn open_session_of_copies(&mut self, name: &Name) {
        self.change_on(name, |remote| {
            remote.fence.may_be_delivered = true;
            remote.gate.open_session();
        });
    }

    /// A session ends: mark the fences that it surely delivered. Whether pods are ready is unknown
    /// from now on.
    pub(super) fn mark_contact(&mut self, name: &Name, now: UnixMillis) {
        let Some(cluster) = self.clusters.get(name).filter(|it| it.is_connected) else { return };
        let since = cluster.since;
        self.change_on(name, |remote| {
            (remote.stalled_since, remote.confirmed_at) = (None, None);
            let fence = &mut remote.fence;
            if has_delivered_since(since, fence.announced_at, now) {
                fence.delivered = fence.announced;
            }
        });
    }
}
