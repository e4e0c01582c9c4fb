//! Why workloads that use a requested resource are no preemption candidates.

use std::collections::{BTreeMap, BTreeSet};

use super::Target;
use super::candidates::Preemptor;
use super::classical::ClassicalPreemption;
use super::fair::FairPreemption;
use super::victim_search::{Need, VictimSearch};
use crate::cluster_queue::ClusterQueueEntry;
use crate::flavor_resource::FlavorResource;
use crate::ids::{NodeId, WorkloadId};
use crate::tree::QuotaTree;
use crate::workloads::WorkloadEntry;
use crate::{Amount, NonCandidates, Obstacle, PreemptionOutlook, PreemptionPolicy, Victim};

#[derive(Clone, Copy)]
pub(crate) struct RequestedAmount {
    pub(crate) fr: FlavorResource,
    pub(crate) amount: Amount,
    /// The queue may preempt for this amount: it is within nominal quota, or the queue may reclaim
    /// or borrow.
    pub(crate) may_preempt: bool,
}

pub(crate) enum PreemptionStrategy<'a> {
    ClassicalPreemption(ClassicalPreemption<'a>),
    FairPreemption(FairPreemption<'a>),
}

impl PreemptionStrategy<'_> {
    fn preemptor(&self) -> &Preemptor<'_> {
        match self {
            Self::ClassicalPreemption(classical) => &classical.preemptor,
            Self::FairPreemption(fair) => &fair.preemptor,
        }
    }

    /// Empty if no workload may be preempted, or if preemption does not free enough.
    fn victims(&self, tree: &mut QuotaTree, need: &Need<'_>) -> Vec<Target> {
        match self {
            Self::ClassicalPreemption(classical) => classical.victims(tree, need),
            Self::FairPreemption(fair) => fair.victims(tree, need),
        }
    }

    /// The outcome of preemption for a request.
    pub(crate) fn outlook(
        &self,
        tree: &mut QuotaTree,
        wanted: RequestedAmount,
    ) -> PreemptionOutlook {
        let need =
            Need { contested: &[wanted.fr], usage: &[(wanted.fr, wanted.amount)], pods_fit: None };
        let targets = if wanted.may_preempt { self.victims(tree, &need) } else { Vec::new() };
        // With enough victims, the engine needs none of the other workloads.
        let non_candidates =
            if targets.is_empty() { self.non_candidates(tree, wanted, &need) } else { Vec::new() };
        PreemptionOutlook { victims: victims(self.preemptor(), tree, &targets), non_candidates }
    }

    fn non_candidates(
        &self,
        tree: &mut QuotaTree,
        wanted: RequestedAmount,
        need: &Need<'_>,
    ) -> Vec<NonCandidates> {
        let only_without_borrowing = match self {
            Self::ClassicalPreemption(classical) => classical.only_without_borrowing(tree, need),
            Self::FairPreemption(_) => BTreeSet::new(),
        };
        let preemptor = self.preemptor();
        let mut groups: BTreeMap<(NodeId, Obstacle), NonCandidates> = BTreeMap::new();
        let mut order = Vec::new();
        for node in tree.queues_of_tree(preemptor.cq.node) {
            let Some(cq) = preemptor.cluster_queues.get(&node) else { continue };
            for (id, wl, amount) in preemption_order(preemptor, cq, wanted.fr) {
                let obstacle = self.obstacle(tree, wanted, cq, (id, wl), &only_without_borrowing);
                // Priorities are merged into one group, which shows the lowest.
                let (kind, lowest) = split(obstacle);
                let key = (node, kind.clone());
                let group = groups.entry(key.clone()).or_insert_with(|| {
                    order.push(key);
                    NonCandidates {
                        cluster_queue: cq.object.name.clone(),
                        workloads: 0,
                        holds: Amount::ZERO,
                        example: wl.key.clone(),
                        obstacle: joined(kind, lowest),
                    }
                });
                group.workloads += 1;
                group.holds = group.holds + Amount::new(amount);
                if let (Obstacle::Priority { lowest: least, .. }, Some(priority)) =
                    (&mut group.obstacle, lowest)
                {
                    *least = priority.min(*least);
                }
            }
        }
        order.into_iter().filter_map(|key| groups.remove(&key)).collect()
    }

    fn obstacle(
        &self,
        tree: &mut QuotaTree,
        wanted: RequestedAmount,
        cq: &ClusterQueueEntry,
        (id, wl): (WorkloadId, &WorkloadEntry),
        only_without_borrowing: &BTreeSet<WorkloadId>,
    ) -> Obstacle {
        let preemptor = self.preemptor();
        let rules = preemptor.cq.object.preemption;
        let own = cq.node == preemptor.cq.node;
        let (field, policy) = match own {
            true => ("withinClusterQueue", rules.within_cluster_queue),
            false => ("reclaimWithinCohort", rules.reclaim_within_cohort),
        };
        if policy == PreemptionPolicy::Never {
            return if own {
                Obstacle::WithinClusterQueueNever
            } else {
                Obstacle::ReclaimWithinCohortNever
            };
        }
        if !own && !cq.is_active() {
            return Obstacle::QueueInactive;
        }
        if let Some(name) =
            (!own).then(|| self.non_borrowing_node(tree, cq.node, wanted.fr)).flatten()
        {
            return Obstacle::NotBorrowing { name };
        }
        if !preemptor.allows(policy, wl) {
            return Obstacle::Priority {
                field,
                policy,
                own: preemptor.class.priority,
                lowest: wl.class.priority,
            };
        }
        let would_borrow = tree.exceeds(preemptor.cq.node, wanted.fr, wanted.amount);
        if !wanted.may_preempt || (only_without_borrowing.contains(&id) && would_borrow) {
            let rule = rules.borrow_within_cohort;
            let max_priority_threshold = rule.max_priority_threshold;
            return Obstacle::WhileBorrowing { policy: rule.policy, max_priority_threshold };
        }
        match self {
            Self::FairPreemption(fair) if !own => fair
                .protecting_shares(tree, (wanted.fr, wanted.amount), cq.node, id)
                .unwrap_or(Obstacle::NotEnough),
            _ => Obstacle::NotEnough,
        }
    }

    /// The first node, from the queue up to below the common ancestor, that stays within its quota.
    fn non_borrowing_node(
        &self,
        tree: &QuotaTree,
        queue: NodeId,
        fr: FlavorResource,
    ) -> Option<crate::Name> {
        let own = tree.path(self.preemptor().cq.node);
        let path = tree.path(queue);
        let below = path.iter().take_while(|node| !own.contains(node));
        let idle =
            below.into_iter().find(|node| super::candidates::within_nominal(tree, **node, &[fr]));
        idle.and_then(|node| tree.name(*node)).cloned()
    }
}

pub(crate) fn victims(
    preemptor: &Preemptor<'_>,
    tree: &QuotaTree,
    targets: &[Target],
) -> Vec<Victim> {
    let victim = |target: &Target| {
        let wl = preemptor.workloads.get(target.id)?;
        let cluster_queue = tree.name(wl.reservation.as_ref()?.charged?)?.clone();
        Some(Victim {
            key: wl.key.clone(),
            cluster_queue,
            priority: wl.class.priority,
            reason: target.reason,
        })
    };
    targets.iter().filter_map(victim).collect()
}

/// The workloads of a queue that use a pair, with their amount.
fn preemption_order<'a>(
    preemptor: &Preemptor<'a>,
    cq: &ClusterQueueEntry,
    fr: FlavorResource,
) -> Vec<(WorkloadId, &'a WorkloadEntry, i64)> {
    let workloads = preemptor.workloads;
    let others = cq.workloads.iter().filter(|id| preemptor.replaced != Some(**id));
    let held = others.filter_map(|id| {
        let wl = workloads.get(*id)?;
        let charge = wl.reservation.as_ref()?.charge.iter();
        let amount = charge
            .filter(|(pair, _)| *pair == fr)
            .fold(0_i64, |sum, (_, amount)| sum.saturating_add(*amount));
        (amount > 0).then_some((*id, wl, amount))
    });
    held.collect()
}

/// An obstacle without its priority, for grouping.
fn split(obstacle: Obstacle) -> (Obstacle, Option<i32>) {
    match obstacle {
        Obstacle::Priority { field, policy, own, lowest } => {
            (Obstacle::Priority { field, policy, own, lowest: 0 }, Some(lowest))
        }
        other => (other, None),
    }
}

fn joined(obstacle: Obstacle, priority: Option<i32>) -> Obstacle {
    match (obstacle, priority) {
        (Obstacle::Priority { field, policy, own, .. }, Some(lowest)) => {
            Obstacle::Priority { field, policy, own, lowest }
        }
        (other, _) => other,
    }
}
