//! What a search for flavors found: for each pod set the flavors, how they would be used, and why others were not.

use std::collections::BTreeMap;

use super::by_name::ByName;
use super::fungibility::Mode;
use crate::flavor_resource::Fr;
use crate::preemption::Possibility;
use crate::queue::equivalence::ClassId;
use crate::{
    Admission, Amount, Cause, DelayedTopology, Name, NoFitKind, PodSetAssignment, PodSetReason,
    TopologyAssignment,
};

/// What an assignment allows, over all its pod sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fitness {
    /// Nothing.
    NoFit,
    /// Admission after others gave way, if anybody may be preempted.
    Preempt,
    /// Admission once the preemptions of this cycle are done.
    DeferredFit,
    /// Admission.
    Fit,
}

impl From<Mode> for Fitness {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::NoFit => Self::NoFit,
            Mode::NoCandidates | Mode::Preempt | Mode::Reclaim => Self::Preempt,
            Mode::Fit => Self::Fit,
        }
    }
}

/// Flavors for all pod sets of a workload, or for those up to the first that fits nowhere.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    pub(crate) pod_sets: Vec<PodSetFlavors>,
    pub(crate) fitness: Fitness,
    /// How far the furthest quota is borrowed from; 0 is not at all.
    pub(crate) borrow: usize,
    /// What it would use, in the order of pairs.
    pub(crate) usage: Vec<(Fr, Amount)>,
    /// Where to go on next time, unless all flavors were tried.
    pub(crate) scan: Option<Scan>,
}

/// How much of a pair there is in a list in the order of pairs.
pub(super) fn amount_of(usage: &[(Fr, Amount)], fr: Fr) -> Amount {
    usage.binary_search_by_key(&fr, |(fr, _)| *fr).map_or(Amount::ZERO, |at| usage[at].1)
}

/// Flavors for one pod set.
#[derive(Clone, Debug)]
pub(crate) struct PodSetFlavors {
    /// Which pod set of the workload.
    pub(crate) at: usize,
    pub(crate) name: Name,
    pub(crate) count: i32,
    pub(crate) requests: BTreeMap<Name, Amount>,
    pub(crate) flavors: ByName<Picked>,
    pub(crate) causes: Vec<Cause>,
    pub(crate) attempts: Vec<Attempt>,
    /// Some resource got no flavor.
    pub(crate) failed: bool,
    /// Where the pods go.
    pub(crate) topology: Option<TopologyAssignment>,
    /// Whether that is found out after the reservation.
    pub(crate) delayed: Option<DelayedTopology>,
}

/// The flavor of one resource.
#[derive(Clone, Debug)]
pub(crate) struct Picked {
    pub(crate) flavor: Name,
    pub(crate) fr: Fr,
    pub(crate) mode: Mode,
    pub(crate) borrow: usize,
    /// The flavor that the search ended at, if others come after it.
    pub(crate) ended_at: Option<usize>,
}

/// One flavor that was looked at.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) flavor: Name,
    /// Which resource group.
    pub(crate) group: usize,
    pub(crate) fitness: Fitness,
    pub(crate) possibility: Option<Possibility>,
    pub(crate) borrow: usize,
    pub(crate) kind: Option<NoFitKind>,
    pub(crate) causes: Vec<Cause>,
}

/// Where the search for flavors ended, kept across cycles.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Scan {
    /// Per pod set and resource the last flavor tried, where others come after it.
    pub(crate) tried: Vec<(usize, Name, usize)>,
    pub(crate) class: ClassId,
    /// The ClusterQueue's generation then.
    pub(crate) generation: u64,
    /// The cycle.
    pub(crate) cycle: u64,
}

impl Scan {
    /// The flavor to begin with.
    pub(super) fn next(&self, pod_set: usize, resource: &str) -> usize {
        let tried = self.tried.iter().find(|(at, name, _)| *at == pod_set && &**name == resource);
        tried.map_or(0, |(_, _, last)| last + 1)
    }

    /// Whether it no longer describes the state: another shape, or older than the last cycle (older at all, where it is not
    /// preserved) and quota has changed.
    pub(crate) fn is_outdated(
        &self,
        class: ClassId,
        generation: u64,
        cycle: u64,
        preserved: bool,
    ) -> bool {
        let recent = preserved && cycle.saturating_sub(self.cycle) <= 1;
        self.class != class || (!recent && generation > self.generation)
    }
}

impl PodSetFlavors {
    /// All its flavors are used in this way.
    pub(super) fn set_mode(&mut self, mode: Mode) {
        for picked in self.flavors.values_mut() {
            picked.mode = mode;
        }
    }

    pub(super) fn fitness(&self) -> Fitness {
        if self.failed {
            return Fitness::NoFit;
        }
        let misplaced = || self.flavors.values().any(|picked| picked.mode == Mode::NoFit);
        if self.causes.is_empty() && !misplaced() {
            return Fitness::Fit;
        }
        self.flavors.values().map(|picked| picked.mode.into()).min().unwrap_or(Fitness::NoFit)
    }

    /// The hardest obstacle over the resource groups, where each group counts its mildest.
    fn no_fit_kind(&self) -> NoFitKind {
        if !self.failed && self.flavors.values().any(|picked| picked.mode == Mode::NoFit) {
            return NoFitKind::TopologyPlacementFailed;
        }
        let mut by_group: BTreeMap<usize, NoFitKind> = BTreeMap::new();
        for attempt in self.attempts.iter().filter(|attempt| attempt.fitness == Fitness::NoFit) {
            let kind = attempt.kind.unwrap_or(NoFitKind::TopologyPlacementFailed);
            by_group
                .entry(attempt.group)
                .and_modify(|mildest| *mildest = kind.min(*mildest))
                .or_insert(kind);
        }
        by_group.into_values().max().unwrap_or(NoFitKind::NoMatchingFlavor)
    }
}

impl Assignment {
    /// Pods have places: those of pod sets by their position.
    pub(super) fn place(&mut self, places: Vec<(usize, TopologyAssignment)>) {
        for (at, topology) in places {
            if let Some(pod_set) = self.pod_sets.get_mut(at) {
                pod_set.topology = Some(topology);
                pod_set.delayed = pod_set.delayed.map(|_| DelayedTopology::Ready);
            }
        }
    }

    /// Adds a pod set with its flavors, and what it would use.
    pub(super) fn add(&mut self, pod_set: PodSetFlavors) {
        for (resource, picked) in pod_set.flavors.iter() {
            self.borrow = self.borrow.max(picked.borrow);
            self.charge(picked.fr, pod_set.requests.get(resource).copied().unwrap_or_default());
        }
        self.pod_sets.push(pod_set);
    }

    /// Adds to what it would use.
    fn charge(&mut self, fr: Fr, amount: Amount) {
        match self.usage.binary_search_by_key(&fr, |(fr, _)| *fr) {
            Ok(at) => self.usage[at].1 = self.usage[at].1 + amount,
            Err(at) => self.usage.insert(at, (fr, amount)),
        }
    }

    /// Why not, if it fits nowhere.
    pub(crate) fn no_fit_kind(&self) -> NoFitKind {
        let failing = self.pod_sets.iter().filter(|pod_set| pod_set.fitness() == Fitness::NoFit);
        failing.map(PodSetFlavors::no_fit_kind).max().unwrap_or(NoFitKind::NoMatchingFlavor)
    }

    /// The pod sets in the way, with the causes.
    pub(crate) fn reasons(&self) -> Vec<PodSetReason> {
        (self.pod_sets.iter())
            .filter(|pod_set| !pod_set.causes.is_empty())
            .map(|pod_set| PodSetReason {
                name: pod_set.name.clone(),
                causes: pod_set.causes.clone(),
            })
            .collect()
    }

    /// The admission it comes to.
    pub(crate) fn admission(&self, cluster_queue: &Name) -> Admission {
        let pod_sets = (self.pod_sets.iter())
            .map(|pod_set| PodSetAssignment {
                name: pod_set.name.clone(),
                flavors: (pod_set.flavors.iter())
                    .map(|(name, picked)| (name.clone(), picked.flavor.clone()))
                    .collect(),
                usage: (pod_set.requests.iter())
                    .filter(|(name, _)| pod_set.flavors.contains(name))
                    .map(|(name, amount)| (name.clone(), *amount))
                    .collect(),
                count: pod_set.count,
                topology: pod_set.topology.clone(),
                delayed: pod_set.delayed,
            })
            .collect();
        Admission { cluster_queue: cluster_queue.clone(), pod_sets }
    }

    /// The flavor of each pod set's resources, to hold on to when the assignment is made anew.
    pub(crate) fn nomination(&self) -> Vec<BTreeMap<Name, Name>> {
        let last = self.pod_sets.iter().map(|pod_set| pod_set.at + 1).max().unwrap_or(0);
        let mut all = vec![BTreeMap::new(); last];
        for pod_set in &self.pod_sets {
            let flavors =
                pod_set.flavors.iter().map(|(name, picked)| (name.clone(), picked.flavor.clone()));
            if let Some(place) = all.get_mut(pod_set.at) {
                *place = flavors.collect();
            }
        }
        all
    }

    /// The pairs for which others would have to give way.
    pub(crate) fn contested(&self) -> Vec<Fr> {
        let picked = self.pod_sets.iter().flat_map(|pod_set| pod_set.flavors.values());
        let mut frs: Vec<_> = picked
            .filter(|picked| Fitness::from(picked.mode) == Fitness::Preempt)
            .map(|picked| picked.fr)
            .collect();
        frs.sort_unstable();
        frs.dedup();
        frs
    }

    /// The flavors that were looked at and not simply taken, as Kueue's `QuotaReserved` event lists them.
    pub(crate) fn note(&self) -> String {
        let of_pod_set = |pod_set: &PodSetFlavors| {
            let mut attempts: Vec<_> = (pod_set.attempts.iter())
                .filter(|attempt| attempt.fitness != Fitness::Fit || attempt.borrow > 0)
                .collect();
            attempts.sort_by(|a, b| a.flavor.cmp(&b.flavor));
            let texts: Vec<_> = attempts.into_iter().map(Attempt::text).collect();
            (!texts.is_empty()).then(|| format!("{}: {}", pod_set.name, texts.join(", ")))
        };
        self.pod_sets.iter().filter_map(of_pod_set).collect::<Vec<_>>().join(" | ")
    }
}

impl Attempt {
    fn text(&self) -> String {
        let mut parts = vec![match (self.possibility, self.fitness) {
            (Some(possibility), _) => format!("preemptionMode={}", possibility.name()),
            (None, Fitness::NoFit) => "NoFit".to_owned(),
            (None, Fitness::Preempt) => "Preempt".to_owned(),
            (None, Fitness::DeferredFit) => "DeferredFit".to_owned(),
            (None, Fitness::Fit) => "Fit".to_owned(),
        }];
        if self.borrow > 0 {
            parts.push(format!("borrow={}", self.borrow));
        }
        let mut causes: Vec<_> = self.causes.iter().map(Cause::message).collect();
        causes.sort();
        parts.extend(causes);
        format!("{}({})", self.flavor, parts.join(";"))
    }
}
