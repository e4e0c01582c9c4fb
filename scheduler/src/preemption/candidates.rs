//! Who may be preempted by policy, and in which order candidates are taken.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::afs::Usage;
use crate::cluster_queue::Cq;
use crate::intern::Fr;
use crate::queue::hash::Class;
use crate::tree::{NodeId, Tree};
use crate::workloads::{Wl, WlId, Workloads};
use crate::{PreemptionPolicy, Time};

/// The workload that others may have to go for, and all that it is weighed against.
#[derive(Clone, Copy)]
pub(crate) struct Preemptor<'a> {
    pub(crate) cqs: &'a BTreeMap<NodeId, Cq>,
    pub(crate) workloads: &'a Workloads,
    pub(crate) cq: &'a Cq,
    pub(crate) class: &'a Class,
    pub(crate) queue_time: Time,
    /// Workloads that count as gone already.
    pub(crate) gone: &'a BTreeSet<WlId>,
}

/// A workload that may be preempted, with what orders it.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) id: WlId,
    pub(crate) cq: NodeId,
    pub(crate) evicted: bool,
    priority: i32,
    since: Time,
    uid: &'a str,
    /// Weighted past use of its LocalQueue.
    usage: Usage,
}

impl<'a> Candidate<'a> {
    /// Those already evicted first, then those of other queues than `own`, then those of `own` whose LocalQueue used
    /// the most, then low priority, then the newest. Kueue looks at past use in other queues as well, but only between
    /// two workloads of one queue, which is no order.
    pub(crate) fn order(&self, own: NodeId) -> impl Ord + use<'a> {
        let heaviest = Reverse(if self.cq == own { self.usage } else { Usage::default() });
        (!self.evicted, self.cq == own, heaviest, self.priority, Reverse(self.since), self.uid, self.id)
    }

    pub(crate) fn priority(&self) -> i32 {
        self.priority
    }
}

impl<'a> Preemptor<'a> {
    /// The workloads of a queue that use a contested pair and that the policy allows to preempt.
    pub(crate) fn candidates_in(&self, cq: &Cq, policy: PreemptionPolicy, contested: &[Fr]) -> Vec<Candidate<'a>> {
        if policy == PreemptionPolicy::Never {
            return Vec::new();
        }
        let candidate = |id: &WlId| {
            let wl = self.workloads.get(*id).filter(|_| !self.gone.contains(id))?;
            let hold = wl.hold.as_ref()?;
            let uses = hold.charge.iter().any(|(fr, _)| contested.contains(fr));
            (uses && self.allows(policy, wl)).then(|| Candidate {
                id: *id,
                cq: cq.node,
                evicted: wl.flags.evicted,
                priority: wl.class.priority,
                since: hold.since,
                uid: &wl.uid,
                usage: cq.queue.usage_of(wl.queue),
            })
        };
        cq.workloads.iter().filter_map(candidate).collect()
    }

    /// Whether the policy allows to preempt a workload.
    pub(crate) fn allows(&self, policy: PreemptionPolicy, wl: &Wl) -> bool {
        let (own, other) = (self.class.priority, wl.class.priority);
        match policy {
            PreemptionPolicy::Never => false,
            PreemptionPolicy::LowerPriority => own > other,
            PreemptionPolicy::LowerOrNewerEqualPriority => own > other || (own == other && self.queue_time < wl.age()),
            PreemptionPolicy::Any => true,
        }
    }

    /// Takes a workload's usage out of the tree (-1) or puts it back (1).
    pub(crate) fn shift(&self, tree: &mut Tree, id: WlId, sign: i128) {
        let Some(hold) = self.workloads.get(id).and_then(|wl| wl.hold.as_ref()) else { return };
        let Some(cq) = hold.charged else { return };
        for (fr, amount) in &hold.charge {
            tree.shift(cq, *fr, i128::from(*amount) * sign);
        }
    }
}

/// Whether a node uses no more than it has, of all these pairs.
pub(crate) fn within_nominal(tree: &Tree, node: NodeId, frs: &[Fr]) -> bool {
    !frs.iter().any(|fr| tree.exceeds(node, *fr, crate::Amount::ZERO))
}
