//! Whether pods fit while workloads are taken away and put back one at a time: the search for
//! victims. Each step counts only the leaves of one workload.

use std::collections::BTreeMap;

use super::count_cache::{Loan, borrow_counts};
use super::counts::{Assumed, Change, Counts, Demands, Within};
use super::forest::DomainUsage;
use super::place::{LeaderAndWorkers, PlacementRequest, Placer, grouped, roles};
use super::plan::PlacementPlan;
use super::resources::Amounts;
use super::search::DomainSearch;
use super::tree::DomainId;

/// The search for one group of pods.
pub(crate) struct VictimTrial<'a> {
    placer: Placer<'a>,
    workers: PlacementRequest<'a>,
    plan: PlacementPlan,
    demands: Demands,
    counts: Counts,
    loan: Loan,
    /// The usage of the workloads that are away, as negative amounts.
    freed: BTreeMap<DomainId, Amounts>,
}

impl<'a> Placer<'a> {
    /// `None` if the requests need a search that does more than to look for capacity: several
    /// groups, pods that stay in place, balanced placement.
    pub(crate) fn try_victims(&self, requests: &[PlacementRequest<'a>]) -> Option<VictimTrial<'a>> {
        let groups = grouped(requests.iter().map(|ask| ask.request?.group.as_ref()));
        let [members] = &groups[..] else { return None };
        let (workers, leader) = roles(requests, members).ok()?;
        let workers = requests.get(workers)?;
        let group = LeaderAndWorkers { workers, leader: leader.and_then(|at| requests.get(at)) };
        let plan = self.plan(&group).ok()?;
        let is_balanced = self.options.balanced && !plan.required && !plan.unconstrained;
        if is_balanced || workers.previous.is_some() || workers.bad_update.is_some() {
            return None;
        }
        let demands = self.demands(&group);
        let wanted = demands.wanted(&workers.filter, Within::Anywhere, self.options.empty);
        let (counts, loan) = borrow_counts(self.tree, &plan, &wanted, &Assumed::new());
        let (placer, workers, freed) = (*self, workers.clone(), BTreeMap::new());
        Some(VictimTrial { placer, workers, plan, demands, counts, loan, freed })
    }
}

impl VictimTrial<'_> {
    /// Takes usage away (-1) or puts it back (1).
    pub(crate) fn shift<'u>(&mut self, places: impl Iterator<Item = &'u DomainUsage>, sign: i128) {
        let tree = self.placer.tree;
        let mut changes = Vec::new();
        for place in places {
            let Some(id) = tree.leaf_id(&place.leaf) else { continue };
            self.freed.entry(id).or_default().add_all(&place.amounts, sign);
            changes.push((id, Change::Usage));
        }
        let wanted =
            self.demands.wanted(&self.workers.filter, Within::Anywhere, self.placer.options.empty);
        let freed = &self.freed;
        self.counts.recount(tree, &self.plan, &wanted, &changes, &|id| freed.get(&id));
    }

    pub(crate) fn fits(&mut self) -> bool {
        let counts = std::mem::take(&mut self.counts);
        let search = DomainSearch { tree: self.placer.tree, plan: &self.plan, counts };
        let fits = search.finds_domains();
        self.counts = search.counts;
        fits
    }

    /// The end of the search.
    pub(crate) fn end(self) {
        self.loan.give_back(self.placer.tree, self.counts);
    }
}
