//! Who may be preempted by policy, and in which order candidates are taken.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use crate::afs::Usage;
use crate::cluster_queue::Cq;
use crate::flavor_resource::Fr;
use crate::flavors::Site;
use crate::preemption_order::Holder;
use crate::queue::equivalence::Class;
use crate::tree::{NodeId, Tree};
use crate::workloads::{Hold, LqId, Wl, WlId, Workloads};
use crate::{Gates, PreemptionPolicy, Time};

/// The workload that others may have to go for, and all that it is weighed against.
#[derive(Clone, Copy)]
pub(crate) struct Preemptor<'a> {
    pub(crate) cqs: &'a BTreeMap<NodeId, Cq>,
    pub(crate) workloads: &'a Workloads,
    pub(crate) cq: &'a Cq,
    pub(crate) class: &'a Class,
    pub(crate) queue_time: Time,
    /// The workload whose place it takes: what that holds is its own, so that it is no victim.
    pub(crate) replaced: Option<WlId>,
    /// Where its pods may run, with topology-aware scheduling.
    pub(crate) site: Option<&'a Site<'a>>,
    pub(crate) gates: Gates,
}

/// By how much a workload has to be newer than one of its priority that preempts it, where that counts.
const TIMESTAMP_BUFFER: Duration = Duration::from_secs(5 * 60);

/// A workload that may be preempted, with what orders it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) id: WlId,
    pub(crate) cq: NodeId,
    pub(crate) hold: &'a Hold,
    pub(super) evicted: bool,
    priority: i32,
    holder: &'a Holder,
}

/// The candidates of one queue, found as they are asked for.
pub(crate) type Line<'a> = Box<dyn Iterator<Item = Candidate<'a>> + 'a>;

impl<'a> Candidate<'a> {
    /// Those already evicted first, then those of other queues than the preemptor's own, then low priority, then the
    /// newest.
    pub(super) fn order(&self, is_own: bool) -> impl Ord + use<'a> {
        (!self.evicted, is_own, self.priority, self.holder)
    }

    pub(crate) fn priority(&self) -> i32 {
        self.priority
    }
}

impl<'a> Preemptor<'a> {
    /// The workloads of a queue that use a contested pair and that the policy allows to preempt, in order.
    pub(crate) fn candidates_in<'n>(
        &self,
        cq: &'n Cq,
        policy: PreemptionPolicy,
        contested: &'n [Fr],
    ) -> Line<'n>
    where
        'a: 'n,
    {
        let of = |running| self.candidates_of(cq, policy, contested, running);
        Box::new(of(false).chain(of(true)))
    }

    /// The part of them that runs, or that is being evicted.
    pub(super) fn candidates_of<'n>(
        &self,
        cq: &'n Cq,
        policy: PreemptionPolicy,
        contested: &'n [Fr],
        running: bool,
    ) -> Line<'n>
    where
        'a: 'n,
    {
        let all = self.by_priority(cq, policy, contested, running);
        match cq.queue.weighs_use() {
            true => Box::new(self.by_use(cq, all.collect()).into_iter()),
            false => Box::new(all),
        }
    }

    /// Where past use of LocalQueues counts, it goes before priority.
    fn by_use<'n>(&self, cq: &Cq, mut all: Vec<Candidate<'n>>) -> Vec<Candidate<'n>> {
        let queue = |candidate: &Candidate<'_>| self.workloads.get(candidate.id).map(|wl| wl.queue);
        let ranks = Self::ranks(cq, all.iter().filter_map(queue).collect());
        // Stable: those of one rank stay in their order.
        all.sort_by_cached_key(|candidate| {
            queue(candidate).and_then(|queue| ranks.get(&queue)).copied()
        });
        all
    }

    /// The places of LocalQueues among each other, those that used most first.
    fn ranks(cq: &Cq, queues: BTreeSet<LqId>) -> BTreeMap<LqId, Reverse<Usage>> {
        queues.into_iter().map(|id| (id, Reverse(cq.queue.usage_of(id)))).collect()
    }

    fn by_priority<'n>(
        &self,
        cq: &'n Cq,
        policy: PreemptionPolicy,
        contested: &'n [Fr],
        running: bool,
    ) -> impl Iterator<Item = Candidate<'n>> + use<'a, 'n>
    where
        'a: 'n,
    {
        let preemptor = *self;
        let own = self.class.priority;
        let most = match policy {
            PreemptionPolicy::Never => None,
            PreemptionPolicy::LowerPriority => own.checked_sub(1),
            PreemptionPolicy::LowerOrNewerEqualPriority => Some(own),
            PreemptionPolicy::Any => Some(i32::MAX),
        };
        let candidate = move |(priority, holder): (i32, &'n Holder)| {
            if preemptor.replaced == Some(holder.id) {
                return None;
            }
            let wl = preemptor.workloads.get(holder.id)?;
            let hold = wl.hold.as_deref()?;
            let uses = hold.charge.iter().any(|(fr, _)| contested.contains(fr));
            (uses && preemptor.allows(policy, wl)).then_some(Candidate {
                id: holder.id,
                cq: cq.node,
                hold,
                evicted: !running,
                priority,
                holder,
            })
        };
        most.into_iter().flat_map(move |most| cq.holders.up_to(most, running)).filter_map(candidate)
    }

    /// Whether the policy allows to preempt a workload.
    pub(crate) fn allows(&self, policy: PreemptionPolicy, wl: &Wl) -> bool {
        let (own, other) = (self.class.priority, wl.class.priority);
        match policy {
            PreemptionPolicy::Never => false,
            PreemptionPolicy::LowerPriority => own > other,
            PreemptionPolicy::LowerOrNewerEqualPriority => {
                own > other || (own == other && self.is_older_than(wl))
            }
            PreemptionPolicy::Any => true,
        }
    }

    fn is_older_than(&self, wl: &Wl) -> bool {
        match self.gates.timestamp_buffer {
            true => wl.age().since(self.queue_time) > TIMESTAMP_BUFFER,
            false => self.queue_time < wl.age(),
        }
    }

    /// Takes the usage of the workload that it replaces out of the tree (-1) or puts it back (1).
    pub(crate) fn shift_replaced(&self, tree: &mut Tree, sign: i128) {
        if let Some(replaced) = self.replaced {
            self.shift(tree, replaced, sign);
        }
    }

    /// Takes a workload's usage out of the tree (-1) or puts it back (1).
    pub(crate) fn shift(&self, tree: &mut Tree, id: WlId, sign: i128) {
        if let Some(hold) = self.workloads.get(id).and_then(|wl| wl.hold.as_ref()) {
            shift(tree, hold, sign);
        }
    }
}

/// Takes the usage of a reservation out of the tree (-1) or puts it back (1).
pub(crate) fn shift(tree: &mut Tree, hold: &Hold, sign: i128) {
    let Some(cq) = hold.charged else { return };
    for (fr, amount) in &hold.charge {
        tree.shift(cq, *fr, i128::from(*amount) * sign);
    }
}

/// Whether a node uses no more than it has, of all these pairs.
pub(crate) fn within_nominal(tree: &Tree, node: NodeId, frs: &[Fr]) -> bool {
    !frs.iter().any(|fr| tree.exceeds(node, *fr, crate::Amount::ZERO))
}

/// The lines of several queues as one. None may be of the preemptor's own queue.
pub(super) struct Merged<'n, T> {
    fronts: BinaryHeap<Reverse<Front<'n, T>>>,
}

/// The first of a line, and the rest of it.
struct Front<'n, T> {
    candidate: Candidate<'n>,
    rest: Line<'n>,
    of: T,
}

impl<'n, T: Copy> Merged<'n, T> {
    /// Merges lines; each candidate comes with what is said of its line.
    pub(super) fn new(lines: impl IntoIterator<Item = (Line<'n>, T)>) -> Self {
        let front = |(mut rest, of): (Line<'n>, T)| {
            Some(Reverse(Front { candidate: rest.next()?, rest, of }))
        };
        Self { fronts: lines.into_iter().filter_map(front).collect() }
    }

    /// The next candidate.
    pub(super) fn first(&self) -> Option<(Candidate<'n>, T)> {
        self.fronts.peek().map(|Reverse(front)| (front.candidate, front.of))
    }

    /// Takes the next candidate out.
    pub(super) fn pop(&mut self) {
        let Some(mut front) = self.fronts.peek_mut() else { return };
        match front.0.rest.next() {
            Some(candidate) => front.0.candidate = candidate,
            None => drop(std::collections::binary_heap::PeekMut::pop(front)),
        }
    }

    /// Takes out all that is left of the next candidate's queue.
    pub(super) fn drop_line(&mut self) {
        self.fronts.pop();
    }
}

impl<T> PartialEq for Front<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<T> Eq for Front<'_, T> {}
impl<T> PartialOrd for Front<'_, T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Front<'_, T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.candidate.order(false).cmp(&other.candidate.order(false))
    }
}
