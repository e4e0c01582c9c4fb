//! Why those who hold what is wanted need not go.

use std::collections::{BTreeMap, BTreeSet};

use super::Target;
use super::candidates::Preemptor;
use super::classical::Classical;
use super::fair::Fair;
use super::victim_search::{Choice, Need};
use crate::cluster_queue::Cq;
use crate::flavor_resource::Fr;
use crate::tree::{NodeId, Tree};
use crate::workloads::{Wl, WlId};
use crate::{Amount, Obstacle, PreemptionOutlook, PreemptionPolicy, Refusal, Victim};

/// What is asked of the holders.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) fr: Fr,
    pub(crate) amount: Amount,
    /// The request is within what the queue may preempt for: its own quota, or what it may reclaim or borrow.
    pub(crate) may_preempt: bool,
}

/// How victims are chosen, by what the engine does.
pub(crate) enum Chooser<'a> {
    Classical(Classical<'a>),
    Fair(Fair<'a>),
}

impl Chooser<'_> {
    fn preemptor(&self) -> &Preemptor<'_> {
        match self {
            Self::Classical(classical) => &classical.preemptor,
            Self::Fair(fair) => &fair.preemptor,
        }
    }

    /// Who would have to go for one resource on one flavor; empty if nobody may, or if it would not help.
    fn victims(&self, tree: &mut Tree, need: &Need<'_>) -> Vec<Target> {
        match self {
            Self::Classical(classical) => classical.victims(tree, need),
            Self::Fair(fair) => fair.victims(tree, need),
        }
    }

    /// What preemption could do about it.
    pub(crate) fn outlook(&self, tree: &mut Tree, wanted: Wanted) -> PreemptionOutlook {
        let need =
            Need { contested: &[wanted.fr], usage: &[(wanted.fr, wanted.amount)], pods: None };
        let targets = if wanted.may_preempt { self.victims(tree, &need) } else { Vec::new() };
        // Once enough of them go, the others stay because nobody needs them.
        let refused =
            if targets.is_empty() { self.refusals(tree, wanted, &need) } else { Vec::new() };
        PreemptionOutlook { victims: victims(self.preemptor(), tree, &targets), refused }
    }

    fn refusals(&self, tree: &mut Tree, wanted: Wanted, need: &Need<'_>) -> Vec<Refusal> {
        let only_without_borrowing = match self {
            Self::Classical(classical) => classical.only_without_borrowing(tree, need),
            Self::Fair(_) => BTreeSet::new(),
        };
        let preemptor = self.preemptor();
        let mut groups: BTreeMap<(NodeId, Obstacle), Refusal> = BTreeMap::new();
        let mut order = Vec::new();
        for node in tree.queues_of_tree(preemptor.cq.node) {
            let Some(cq) = preemptor.cqs.get(&node) else { continue };
            for (id, wl, amount) in holders(preemptor, cq, wanted.fr) {
                let obstacle = self.obstacle(tree, wanted, cq, (id, wl), &only_without_borrowing);
                // Workloads of many priorities are one group; the lowest is told.
                let (kind, lowest) = split(obstacle);
                let key = (node, kind.clone());
                let refusal = groups.entry(key.clone()).or_insert_with(|| {
                    order.push(key);
                    Refusal {
                        cluster_queue: cq.object.name.clone(),
                        workloads: 0,
                        holds: Amount::ZERO,
                        example: wl.key.clone(),
                        obstacle: joined(kind, lowest),
                    }
                });
                refusal.workloads += 1;
                refusal.holds = refusal.holds + Amount::new(amount);
                if let (Obstacle::Priority { lowest: least, .. }, Some(priority)) =
                    (&mut refusal.obstacle, lowest)
                {
                    *least = priority.min(*least);
                }
            }
        }
        order.into_iter().filter_map(|key| groups.remove(&key)).collect()
    }

    fn obstacle(
        &self,
        tree: &mut Tree,
        wanted: Wanted,
        cq: &Cq,
        (id, wl): (WlId, &Wl),
        only_without_borrowing: &BTreeSet<WlId>,
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
        if let Some(name) = (!own).then(|| self.not_borrowing(tree, cq.node, wanted.fr)).flatten() {
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
            Self::Fair(fair) if !own => fair
                .spares(tree, (wanted.fr, wanted.amount), cq.node, id)
                .unwrap_or(Obstacle::NotEnough),
            _ => Obstacle::NotEnough,
        }
    }

    /// The first of a queue and the Cohorts above it, below where the preemptor's path joins, that uses no more than
    /// it has.
    fn not_borrowing(&self, tree: &Tree, queue: NodeId, fr: Fr) -> Option<crate::Name> {
        let own = tree.path(self.preemptor().cq.node);
        let path = tree.path(queue);
        let below = path.iter().take_while(|node| !own.contains(node));
        let idle =
            below.into_iter().find(|node| super::candidates::within_nominal(tree, **node, &[fr]));
        idle.and_then(|node| tree.name(*node)).cloned()
    }
}

/// The targets as they are shown.
pub(crate) fn victims(preemptor: &Preemptor<'_>, tree: &Tree, targets: &[Target]) -> Vec<Victim> {
    let victim = |target: &Target| {
        let wl = preemptor.workloads.get(target.id)?;
        let cluster_queue = tree.name(wl.hold.as_ref()?.charged?)?.clone();
        Some(Victim {
            key: wl.key.clone(),
            cluster_queue,
            priority: wl.class.priority,
            reason: target.reason,
        })
    };
    targets.iter().filter_map(victim).collect()
}

/// The workloads of a queue that hold some of a pair, and how much.
fn holders<'a>(preemptor: &Preemptor<'a>, cq: &Cq, fr: Fr) -> Vec<(WlId, &'a Wl, i64)> {
    let workloads = preemptor.workloads;
    let others = cq.workloads.iter().filter(|id| preemptor.replaced != Some(**id));
    let held = others.filter_map(|id| {
        let wl = workloads.get(*id)?;
        let charge = wl.hold.as_ref()?.charge.iter();
        let amount = charge
            .filter(|(pair, _)| *pair == fr)
            .fold(0_i64, |sum, (_, amount)| sum.saturating_add(*amount));
        (amount > 0).then_some((*id, wl, amount))
    });
    held.collect()
}

/// An obstacle without the priority of the one it is about.
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
