//! The pods of a preemptor, while its victims are chosen.

use std::collections::BTreeSet;

use super::{PlacementContext, PlacementRequests, places_in};
use crate::Name;
use crate::flavors::Assignment;
use crate::ids::WorkloadId;
use crate::topology::{Placer, VictimTrial};
use crate::workloads::Workloads;

impl<'a> PlacementContext<'a> {
    /// The requests of an assignment, for a search for victims. `None` if it has none.
    pub(crate) fn victim_search(&self, assignment: &Assignment) -> Option<VictimPlacement<'a>> {
        let requests = self.request_all(assignment).0;
        let (flavor, asked) = requests.first_key_value()?;
        let placer = self.forest.tree(flavor).map(|tree| Placer {
            tree,
            resources: &self.forest.resources,
            options: self.options(false),
        });
        let list: Vec<_> = asked.iter().map(|(_, request)| request.clone()).collect();
        let is_plain = requests.len() == 1 && self.unhealthy_nodes().is_empty();
        let mut trial = placer.filter(|_| is_plain).and_then(|placer| placer.try_victims(&list));
        if let Some(trial) = &mut trial {
            trial.shift(places_in(flavor, self.gone.iter().copied()), -1);
        }
        let trial = trial.map(|trial| (flavor.clone(), trial));
        Some(VictimPlacement { context: *self, requests, trial, away: BTreeSet::new() })
    }
}

/// Whether the pods of a preemptor fit without the victims so far.
pub(crate) struct VictimPlacement<'a> {
    context: PlacementContext<'a>,
    requests: PlacementRequests<'a>,
    /// With the flavor, if the requests are plain enough.
    trial: Option<(Name, VictimTrial<'a>)>,
    /// The victims that the trial took away.
    away: BTreeSet<WorkloadId>,
}

impl VictimPlacement<'_> {
    /// Whether all requests fit without the victims.
    pub(crate) fn fits(&mut self, victims: &[WorkloadId], workloads: &Workloads) -> bool {
        let reservation = |id: &WorkloadId| workloads.get(*id)?.reservation.as_deref();
        let Some((flavor, trial)) = &mut self.trial else {
            let context = &self.context;
            let gone = context.gone.iter().copied();
            let gone: Vec<_> = gone.chain(victims.iter().filter_map(reservation)).collect();
            return context.place(&self.requests, &gone, false).failure.is_none();
        };
        let victims: BTreeSet<WorkloadId> = victims.iter().copied().collect();
        let back = self.away.difference(&victims).filter_map(reservation);
        trial.shift(places_in(flavor, back), 1);
        let gone = victims.difference(&self.away).filter_map(reservation);
        trial.shift(places_in(flavor, gone), -1);
        self.away = victims;
        trial.fits()
    }

    /// The end of the search.
    pub(crate) fn end(self) {
        if let Some((_, trial)) = self.trial {
            trial.end();
        }
    }
}
