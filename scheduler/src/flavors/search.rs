//! The search through the flavors of one resource group. Kueue: `findFlavorForPodSets` in
//! `flavorassigner.go`.

use std::collections::BTreeMap;

use super::assigner::{FlavorAssigner, PodSetGroup};
use super::assignment::{AssignmentMode, FlavorAssignment, FlavorAttempt, amount_of};
use super::by_name::ByName;
use super::filters;
use super::fungibility::{GranularMode, PreemptionMode};
use super::oracle::{PreemptionOracle, PreemptionPossibility};
use crate::cluster_queue::{FlavorGroup, GroupFlavor};
use crate::flavor_resource::FlavorResource;
use crate::tree::QuotaTree;
use crate::{Amount, Cause, Name, NoFitKind, PodSet, PreemptionPolicy};

pub(super) struct GroupSearch<'a> {
    pub(super) members: &'a PodSetGroup<'a>,
    /// The resource that selected the resource group.
    pub(super) resource: &'a Name,
}

/// The outcome of a search.
pub(super) struct GroupFlavors {
    pub(super) flavors: ByName<FlavorAssignment>,
    pub(super) causes: Vec<Cause>,
    pub(super) attempts: Vec<FlavorAttempt>,
    /// A resource got no flavor.
    pub(super) failed: bool,
}

/// The outcome for one flavor.
struct FlavorResult {
    grade: GranularMode,
    flavors: ByName<FlavorAssignment>,
    causes: Vec<Cause>,
    kind: Option<NoFitKind>,
    borrow: usize,
}

/// A request for one resource of one flavor.
struct ResourceRequest<'a> {
    fr: FlavorResource,
    flavor: &'a Name,
    resource: &'a Name,
    earlier: Amount,
    amount: Amount,
}

/// How a request fits.
struct ResourceFit {
    grade: GranularMode,
    cause: Option<(Cause, Option<NoFitKind>)>,
}

impl FlavorAssigner<'_> {
    /// Searches the flavors of one resource group, for all requested resources that it covers.
    pub(super) fn search_group(
        &self,
        tree: &mut QuotaTree,
        oracle: &mut dyn PreemptionOracle,
        search: &GroupSearch<'_>,
        index: usize,
        requests: &BTreeMap<Name, Amount>,
        earlier: &[(FlavorResource, Amount)],
    ) -> GroupFlavors {
        let GroupSearch { members: PodSetGroup { at: members, .. }, resource } = *search;
        let mut found = GroupFlavors {
            flavors: ByName::default(),
            causes: Vec::new(),
            attempts: Vec::new(),
            failed: false,
        };
        let Some(group) = self.cq.groups.get(index) else { return found };
        let fungibility = self.cq.object.fungibility;
        let mut best = GranularMode::WORST;
        let mut ended_at = None;
        let mut too_small = None;
        // The flavor list may have become shorter since the last search.
        let fungible = self.settings.gates.flavor_fungibility;
        let first = self
            .scan
            .filter(|_| fungible)
            .zip(members.first())
            .map_or(0, |(scan, at)| scan.next(*at, resource));
        let first = if first < group.flavors.len() { first } else { 0 };
        let pod_sets = || members.iter().filter_map(|at| self.class.pod_sets.get(*at));
        let not_listed =
            |pod_set| filters::pin_not_listed(&self.cq.groups, group, pod_set, requests);
        if let Some(cause) = pod_sets().find_map(not_listed) {
            found
                .attempts
                .extend(group.flavors.first().map(|it| no_match(it, index, cause.clone())));
            found.causes.push(cause);
            return found;
        }
        for (number, flavor) in group.flavors.iter().enumerate().skip(first) {
            ended_at = Some(number);
            if !members.iter().any(|at| self.is_nominated(*at, resource, &flavor.name)) {
                let (flavor, resource) = (flavor.name.clone(), resource.clone());
                found.causes.push(Cause::NotNominated { flavor, resource });
                continue;
            }
            if self.class.flavors.as_ref().is_some_and(|allowed| !allowed.contains(&flavor.name)) {
                found.causes.push(Cause::NotAllowed { flavor: flavor.name.clone() });
                continue;
            }
            let refused = pod_sets().find_map(|pod_set| {
                filters::pinned_elsewhere(&flavor.name, group, pod_set, requests)
                    .or_else(|| self.mismatch(&flavor.name, pod_set, group))
            });
            let differs = || {
                pod_sets().find_map(|pod_set| {
                    self.differs_from_replaced(&flavor.name, pod_set, group, requests)
                })
            };
            if let Some(cause) = refused.or_else(differs) {
                found.causes.push(cause.clone());
                found.attempts.push(no_match(flavor, index, cause));
                continue;
            }
            if let Some(cause) = self.too_small_for_a_pod(tree, group, flavor, search) {
                too_small = too_small.or(Some(flavor));
                found.causes.push(cause.clone());
                let kind = Some(NoFitKind::ExceedsMaxQuota);
                found.attempts.push(FlavorAttempt { kind, ..no_match(flavor, index, cause) });
                continue;
            }
            let mut tried = self.try_flavor(tree, oracle, group, flavor, requests, earlier);
            let (flavors, grade) = (std::mem::take(&mut tried.flavors), tried.grade);
            found.causes.extend(tried.causes.iter().cloned());
            found.attempts.push(tried.into_attempt(flavor, index));
            let (last, better) = match fungible {
                true => (!grade.try_next(fungibility), grade.beats(best, fungibility)),
                false => (grade.mode == PreemptionMode::Fit, grade.mode > best.mode),
            };
            if last || better {
                (found.flavors, best) = (flavors, grade);
            }
            if last {
                break;
            }
        }
        // An empty pod set uses nothing, so no flavor's quota excludes it. It waits once it grows.
        if let Some(flavor) = too_small.filter(|_| found.flavors.is_empty()) {
            let tried = self.try_flavor(tree, oracle, group, flavor, requests, earlier);
            (found.flavors, best) = (tried.flavors, tried.grade);
        }
        // Pinned pods have no further flavor to try: a recorded place would bring the workload back
        // to the head of its queue for nothing.
        let is_pinned = pod_sets().any(|pod_set| filters::is_pinned(group, pod_set, requests));
        let ended_at =
            ended_at.filter(|number| fungible && !is_pinned && number + 1 < group.flavors.len());
        for picked in found.flavors.values_mut() {
            picked.ended_at = ended_at;
        }
        if best.mode == PreemptionMode::Fit {
            found.causes.clear();
        }
        found
    }

    fn is_nominated(&self, at: usize, resource: &str, flavor: &Name) -> bool {
        self.nominated
            .is_none_or(|all| all.get(at).and_then(|flavors| flavors.get(resource)) == Some(flavor))
    }

    fn mismatch(&self, flavor: &Name, pod_set: &PodSet, group: &FlavorGroup) -> Option<Cause> {
        match self.referenced.flavors.get(flavor) {
            Some(object) => {
                let of_topology =
                    self.placement.and_then(|placement| placement.mismatch(flavor, pod_set, group));
                of_topology.or_else(|| filters::mismatch(object, pod_set))
            }
            None => Some(Cause::FlavorMissing { flavor: flavor.clone() }),
        }
    }

    /// Why the flavor's quota could never fit a single pod of an empty pod set. The requests of an
    /// empty set are zero and would fit any flavor, but the set later grows in its flavor.
    fn too_small_for_a_pod(
        &self,
        tree: &QuotaTree,
        group: &FlavorGroup,
        flavor: &GroupFlavor,
        search: &GroupSearch<'_>,
    ) -> Option<Cause> {
        let empty = search.members.at.iter().filter(|_| search.members.are_empty);
        let pods: Vec<&PodSet> = empty.filter_map(|at| self.class.pod_sets.get(*at)).collect();
        group.resources.iter().zip(&flavor.flavor_resources).find_map(|(resource, fr)| {
            let asked =
                pods.iter().filter_map(|pod_set| pod_set.requests.get(resource)).max().copied()?;
            let most = tree.potential(self.cq.node, *fr);
            (asked > most).then(|| {
                let (flavor, resource) = (flavor.name.clone(), resource.clone());
                Cause::ExceedsMaxCapacity { flavor, resource, earlier: Amount::ZERO, asked, most }
            })
        })
    }

    /// Why a flavor differs from that of the replaced slice.
    fn differs_from_replaced(
        &self,
        flavor: &Name,
        pod_set: &PodSet,
        group: &FlavorGroup,
        requests: &BTreeMap<Name, Amount>,
    ) -> Option<Cause> {
        let before = self.kept?.pod_sets.iter().find(|before| before.name == pod_set.name)?;
        let asked = group.resources.iter().filter(|resource| requests.contains_key(*resource));
        let kept = asked
            .filter_map(|resource| before.flavors.get(resource))
            .find(|kept| *kept != flavor)?;
        Some(Cause::DiffersFromReplaced { flavor: flavor.clone(), kept: kept.clone() })
    }

    /// A flavor is as good as its worst resource.
    fn try_flavor(
        &self,
        tree: &mut QuotaTree,
        oracle: &mut dyn PreemptionOracle,
        group: &FlavorGroup,
        flavor: &GroupFlavor,
        requests: &BTreeMap<Name, Amount>,
        earlier: &[(FlavorResource, Amount)],
    ) -> FlavorResult {
        let mut tried = FlavorResult {
            grade: GranularMode::BEST,
            flavors: ByName::default(),
            causes: Vec::new(),
            kind: None,
            borrow: 0,
        };
        for (resource, fr) in group.resources.iter().zip(&flavor.flavor_resources) {
            let Some(amount) = requests.get(resource).copied() else { continue };
            let earlier = amount_of(earlier, *fr);
            let fits = self.try_resource(
                tree,
                oracle,
                &ResourceRequest { fr: *fr, flavor: &flavor.name, resource, earlier, amount },
            );
            if let Some((cause, kind)) = fits.cause {
                tried.causes.push(cause);
                tried.kind = tried.kind.max(kind);
            }
            tried.borrow = tried.borrow.max(fits.grade.borrow);
            if tried.grade.beats(fits.grade, self.cq.object.fungibility) {
                tried.grade = fits.grade;
            }
            let picked = FlavorAssignment {
                flavor: flavor.name.clone(),
                fr: *fr,
                mode: fits.grade.mode,
                borrow: fits.grade.borrow,
                ended_at: None,
            };
            tried.flavors.insert(resource.clone(), picked);
        }
        tried
    }

    fn try_resource(
        &self,
        tree: &mut QuotaTree,
        oracle: &mut dyn PreemptionOracle,
        ask: &ResourceRequest<'_>,
    ) -> ResourceFit {
        let node = self.cq.node;
        let free = tree.available(node, ask.fr).max(Amount::ZERO);
        let most = tree.potential(node, ask.fr);
        let asked = ask.earlier + ask.amount;
        let (flavor, resource) = (ask.flavor.clone(), ask.resource.clone());
        if asked > most {
            let cause = Cause::ExceedsMaxCapacity {
                flavor,
                resource,
                earlier: ask.earlier,
                asked: ask.amount,
                most,
            };
            let grade = GranularMode { mode: PreemptionMode::NoFit, borrow: 0 };
            return ResourceFit { grade, cause: Some((cause, Some(NoFitKind::ExceedsMaxQuota))) };
        }
        let (borrow, may_reclaim) = tree.borrow_height(node, ask.fr, asked);
        if asked <= free {
            return ResourceFit {
                grade: GranularMode { mode: PreemptionMode::Fit, borrow },
                cause: None,
            };
        }
        let cause = Cause::Insufficient { flavor, resource, asked, free, most };
        if tree.quota(node, ask.fr).nominal >= asked
            || may_reclaim
            || self.can_preempt_while_borrowing()
        {
            let (possibility, borrow) = oracle.simulate(tree, ask.fr, asked);
            return ResourceFit {
                grade: GranularMode { mode: possibility.into(), borrow },
                cause: Some((cause, None)),
            };
        }
        let grade = GranularMode { mode: PreemptionMode::NoFit, borrow };
        ResourceFit { grade, cause: Some((cause, Some(NoFitKind::WaitingForQuota))) }
    }

    fn can_preempt_while_borrowing(&self) -> bool {
        let rules = self.cq.object.preemption;
        rules.borrow_within_cohort.policy != PreemptionPolicy::Never
            || (self.settings.fair_sharing
                && rules.reclaim_within_cohort != PreemptionPolicy::Never)
    }
}

impl From<PreemptionPossibility> for PreemptionMode {
    fn from(possibility: PreemptionPossibility) -> Self {
        match possibility {
            PreemptionPossibility::NoCandidates => Self::NoCandidates,
            PreemptionPossibility::Preempt => Self::Preempt,
            PreemptionPossibility::Reclaim => Self::Reclaim,
        }
    }
}

impl FlavorResult {
    fn into_attempt(self, flavor: &GroupFlavor, group: usize) -> FlavorAttempt {
        let possibility = match self.grade.mode {
            PreemptionMode::NoCandidates => Some(PreemptionPossibility::NoCandidates),
            PreemptionMode::Preempt => Some(PreemptionPossibility::Preempt),
            PreemptionMode::Reclaim => Some(PreemptionPossibility::Reclaim),
            PreemptionMode::NoFit | PreemptionMode::Fit => None,
        };
        FlavorAttempt {
            flavor: flavor.name.clone(),
            group,
            fitness: self.grade.mode.into(),
            possibility,
            borrow: self.borrow,
            kind: self.kind,
            causes: self.causes,
        }
    }
}

fn no_match(flavor: &GroupFlavor, group: usize, cause: Cause) -> FlavorAttempt {
    FlavorAttempt {
        flavor: flavor.name.clone(),
        group,
        fitness: AssignmentMode::NoFit,
        possibility: None,
        borrow: 0,
        kind: Some(NoFitKind::NoMatchingFlavor),
        causes: vec![cause],
    }
}
