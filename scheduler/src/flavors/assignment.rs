//! The outcome of a flavor search: flavors by pod set, their modes, and causes that exclude other
//! flavors.

use std::collections::BTreeMap;

use super::by_name::ByName;
use super::fungibility::PreemptionMode;
use super::oracle::PreemptionPossibility;
use crate::flavor_resource::FlavorResource;
use crate::flavor_scan::FlavorScan;
use crate::{
    Admission, Amount, Cause, DelayedTopology, Name, NoFitKind, PodSetAssignment, PodSetReason,
    TopologyAssignment,
};

/// The mode of a whole assignment. Kueue: `FlavorAssignmentMode` in `flavorassigner.go`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AssignmentMode {
    NoFit,
    /// Fits after preemption.
    Preempt,
    /// Fits once the preemptions of this cycle are complete.
    DeferredFit,
    Fit,
}

impl From<PreemptionMode> for AssignmentMode {
    fn from(mode: PreemptionMode) -> Self {
        match mode {
            PreemptionMode::NoFit => Self::NoFit,
            PreemptionMode::NoCandidates | PreemptionMode::Preempt | PreemptionMode::Reclaim => {
                Self::Preempt
            }
            PreemptionMode::Fit => Self::Fit,
        }
    }
}

/// Flavors for all pod sets of a workload, or up to the first pod set that fits no flavor.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    pub(crate) pod_sets: Vec<PodSetFlavors>,
    pub(crate) fitness: AssignmentMode,
    /// The greatest borrowing height of the pod sets; 0 without borrowing.
    pub(crate) borrow: usize,
    /// Sorted by pair.
    pub(crate) usage: Vec<(FlavorResource, Amount)>,
    /// Where the next search resumes; `None` if this one tried all flavors.
    pub(crate) scan: Option<FlavorScan>,
}

/// The amount of a pair in a list sorted by pair.
pub(super) fn amount_of(usage: &[(FlavorResource, Amount)], fr: FlavorResource) -> Amount {
    usage.binary_search_by_key(&fr, |(fr, _)| *fr).map_or(Amount::ZERO, |at| usage[at].1)
}

#[derive(Clone, Debug)]
pub(crate) struct PodSetFlavors {
    /// Index of the pod set in the workload.
    pub(crate) at: usize,
    pub(crate) name: Name,
    pub(crate) count: i32,
    pub(crate) requests: BTreeMap<Name, Amount>,
    pub(crate) flavors: ByName<FlavorAssignment>,
    pub(crate) causes: Vec<Cause>,
    pub(crate) attempts: Vec<FlavorAttempt>,
    /// A resource got no flavor.
    pub(crate) failed: bool,
    pub(crate) topology: Option<TopologyAssignment>,
    /// Set if placement follows the reservation.
    pub(crate) delayed: Option<DelayedTopology>,
}

#[derive(Clone, Debug)]
pub(crate) struct FlavorAssignment {
    pub(crate) flavor: Name,
    pub(crate) fr: FlavorResource,
    pub(crate) mode: PreemptionMode,
    pub(crate) borrow: usize,
    /// The last flavor of the search, if other flavors follow it.
    pub(crate) ended_at: Option<usize>,
}

/// One flavor that the search tried. Kueue: `flavor_assigner_attempts.go`.
#[derive(Clone, Debug)]
pub(crate) struct FlavorAttempt {
    pub(crate) flavor: Name,
    /// Index of the resource group.
    pub(crate) group: usize,
    pub(crate) fitness: AssignmentMode,
    pub(crate) possibility: Option<PreemptionPossibility>,
    pub(crate) borrow: usize,
    pub(crate) kind: Option<NoFitKind>,
    pub(crate) causes: Vec<Cause>,
}

impl PodSetFlavors {
    /// Sets the mode of all flavors.
    pub(super) fn set_mode(&mut self, mode: PreemptionMode) {
        for picked in self.flavors.values_mut() {
            picked.mode = mode;
        }
    }

    pub(super) fn fitness(&self) -> AssignmentMode {
        if self.failed {
            return AssignmentMode::NoFit;
        }
        let misplaced = || self.flavors.values().any(|picked| picked.mode == PreemptionMode::NoFit);
        if self.causes.is_empty() && !misplaced() {
            return AssignmentMode::Fit;
        }
        self.flavors
            .values()
            .map(|picked| picked.mode.into())
            .min()
            .unwrap_or(AssignmentMode::NoFit)
    }

    /// The hardest obstacle over the resource groups. Each group counts its mildest one.
    fn no_fit_kind(&self) -> NoFitKind {
        if !self.failed && self.flavors.values().any(|picked| picked.mode == PreemptionMode::NoFit)
        {
            return NoFitKind::TopologyPlacementFailed;
        }
        let mut by_group: BTreeMap<usize, NoFitKind> = BTreeMap::new();
        for attempt in
            self.attempts.iter().filter(|attempt| attempt.fitness == AssignmentMode::NoFit)
        {
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
    /// Sets the topology assignments of pod sets, by index.
    pub(super) fn place(&mut self, places: Vec<(usize, TopologyAssignment)>) {
        for (at, topology) in places {
            if let Some(pod_set) = self.pod_sets.get_mut(at) {
                pod_set.topology = Some(topology);
                pod_set.delayed = pod_set.delayed.map(|_| DelayedTopology::Ready);
            }
        }
    }

    /// Adds a pod set and its usage.
    pub(super) fn add(&mut self, pod_set: PodSetFlavors) {
        for (resource, picked) in pod_set.flavors.iter() {
            self.borrow = self.borrow.max(picked.borrow);
            self.charge(picked.fr, pod_set.requests.get(resource).copied().unwrap_or_default());
        }
        self.pod_sets.push(pod_set);
    }

    fn charge(&mut self, fr: FlavorResource, amount: Amount) {
        match self.usage.binary_search_by_key(&fr, |(fr, _)| *fr) {
            Ok(at) => self.usage[at].1 = self.usage[at].1 + amount,
            Err(at) => self.usage.insert(at, (fr, amount)),
        }
    }

    /// Why nothing fits.
    pub(crate) fn no_fit_kind(&self) -> NoFitKind {
        let failing =
            self.pod_sets.iter().filter(|pod_set| pod_set.fitness() == AssignmentMode::NoFit);
        failing.map(PodSetFlavors::no_fit_kind).max().unwrap_or(NoFitKind::NoMatchingFlavor)
    }

    /// The pod sets that do not fit, with the causes.
    pub(crate) fn reasons(&self) -> Vec<PodSetReason> {
        (self.pod_sets.iter())
            .filter(|pod_set| !pod_set.causes.is_empty())
            .map(|pod_set| PodSetReason {
                name: pod_set.name.clone(),
                causes: pod_set.causes.clone(),
            })
            .collect()
    }

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

    /// Flavor by resource for each pod set, as input of a second nomination.
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

    /// The pairs that need preemption.
    pub(crate) fn contested(&self) -> Vec<FlavorResource> {
        let picked = self.pod_sets.iter().flat_map(|pod_set| pod_set.flavors.values());
        let mut flavor_resources: Vec<_> = picked
            .filter(|picked| AssignmentMode::from(picked.mode) == AssignmentMode::Preempt)
            .map(|picked| picked.fr)
            .collect();
        flavor_resources.sort_unstable();
        flavor_resources.dedup();
        flavor_resources
    }

    /// For the `QuotaReserved` event: the tried flavors that do not simply fit, in Kueue's format.
    pub(crate) fn note(&self) -> String {
        let of_pod_set = |pod_set: &PodSetFlavors| {
            let mut attempts: Vec<_> = (pod_set.attempts.iter())
                .filter(|attempt| attempt.fitness != AssignmentMode::Fit || attempt.borrow > 0)
                .collect();
            attempts.sort_by(|a, b| a.flavor.cmp(&b.flavor));
            let texts: Vec<_> = attempts.into_iter().map(FlavorAttempt::text).collect();
            (!texts.is_empty()).then(|| format!("{}: {}", pod_set.name, texts.join(", ")))
        };
        self.pod_sets.iter().filter_map(of_pod_set).collect::<Vec<_>>().join(" | ")
    }
}

impl FlavorAttempt {
    fn text(&self) -> String {
        let mut parts = vec![match (self.possibility, self.fitness) {
            (Some(possibility), _) => format!("preemptionMode={}", possibility.name()),
            (None, AssignmentMode::NoFit) => "NoFit".to_owned(),
            (None, AssignmentMode::Preempt) => "Preempt".to_owned(),
            (None, AssignmentMode::DeferredFit) => "DeferredFit".to_owned(),
            (None, AssignmentMode::Fit) => "Fit".to_owned(),
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
