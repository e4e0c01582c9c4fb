//! The search for flavors. Kueue's `flavorassigner.go` is the rule.

use std::collections::BTreeMap;

use super::assignment::{Assignment, Attempt, Fitness, Picked, PodSetFlavors, Scan, amount_of};
use super::by_name::ByName;
use super::filters;
use super::fungibility::{Grade, Mode};
use super::topology::Site;
use crate::cluster_queue::{Cq, Group, GroupFlavor};
use crate::flavor_resource::Fr;
use crate::preemption::{Oracle, Possibility};
use crate::queue::equivalence::Class;
use crate::referenced::World;
use crate::topology::grouped;
use crate::tree::Tree;
use crate::{
    Admission, Amount, Cause, Name, NoFitKind, PodSet, PreemptionPolicy, QuotaCheckStrategy,
    Settings,
};

/// Searches flavors for one workload in one ClusterQueue.
pub(crate) struct Assigner<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) world: &'a World,
    pub(crate) cq: &'a Cq,
    pub(crate) class: &'a Class,
    /// Where the last search ended.
    pub(crate) scan: Option<&'a Scan>,
    /// The flavors that an earlier search of the same cycle chose: only these are looked at.
    pub(crate) nominated: Option<&'a [BTreeMap<Name, Name>]>,
    /// What the workload has whose place this one takes: it gets the same flavors. Not in the tree meanwhile.
    pub(crate) kept: Option<&'a Admission>,
    /// Where pods may run, with topology-aware scheduling.
    pub(crate) site: Option<&'a Site<'a>>,
    pub(crate) cycle: u64,
}

/// The pod sets for which flavors are looked for: one, or those of a group.
struct Members<'a> {
    at: &'a [usize],
    /// Whether they have no pods for now.
    are_empty: bool,
}

/// What a resource group is looked through for.
struct Seeker<'a> {
    members: &'a Members<'a>,
    /// The resource that led to the group.
    resource: &'a Name,
}

/// What looking through a resource group found.
struct Found {
    flavors: ByName<Picked>,
    causes: Vec<Cause>,
    attempts: Vec<Attempt>,
    /// Some resource got no flavor.
    failed: bool,
}

/// What looking at one flavor found.
struct Tried {
    grade: Grade,
    flavors: ByName<Picked>,
    causes: Vec<Cause>,
    kind: Option<NoFitKind>,
    borrow: usize,
}

/// One resource on one flavor, and what is asked of it.
struct Ask<'a> {
    fr: Fr,
    flavor: &'a Name,
    resource: &'a Name,
    earlier: Amount,
    amount: Amount,
}

/// How a resource fits on a flavor.
struct Fits {
    grade: Grade,
    cause: Option<(Cause, Option<NoFitKind>)>,
}

impl Assigner<'_> {
    /// Looks for flavors for these counts of pods. Stops at the first pod set that fits nowhere.
    pub(crate) fn assign(
        &self,
        tree: &mut Tree,
        oracle: &mut dyn Oracle,
        counts: &[i32],
    ) -> Assignment {
        let mut result = Assignment {
            pod_sets: Vec::with_capacity(self.class.pod_sets.len()),
            fitness: Fitness::Fit,
            borrow: 0,
            usage: Vec::new(),
            scan: None,
        };
        if self.is_grouped() {
            for members in grouped(self.class.pod_sets.iter().map(group_of)) {
                if self.group_of_pod_sets(tree, oracle, &members, counts, &mut result) {
                    break;
                }
            }
        } else {
            for at in 0..self.class.pod_sets.len() {
                if self.pod_set(tree, oracle, at, counts, &mut result) {
                    break;
                }
            }
        }
        self.refuse_without_flavors(&mut result);
        result.fitness =
            result.pod_sets.iter().map(PodSetFlavors::fitness).min().unwrap_or(Fitness::NoFit);
        if let Some(site) = self.site {
            site.complete(&mut result);
        }
        result.scan = self.progress(&result);
        result
    }

    /// A queue without flavors admits no pods that ask for nothing at all, not even for zero of something.
    fn refuse_without_flavors(&self, result: &mut Assignment) {
        if self.cq.groups.is_empty()
            && result.pod_sets.iter().all(|pod_set| pod_set.requests.is_empty())
        {
            let some = result.pod_sets.iter_mut().filter(|pod_set| pod_set.count > 0);
            for pod_set in some {
                (pod_set.failed, pod_set.causes) = (true, vec![Cause::NoFlavors]);
            }
        }
    }

    fn progress(&self, result: &Assignment) -> Option<Scan> {
        // Of flavors that are kept there is no other to go on with.
        if self.kept.is_some() {
            return None;
        }
        let tried: Vec<_> = (result.pod_sets.iter().enumerate())
            .flat_map(|(at, pod_set)| {
                pod_set.flavors.iter().map(move |(name, picked)| (at, name, picked))
            })
            .filter_map(|(at, name, picked)| Some((at, name.clone(), picked.ended_at?)))
            .collect();
        (!tried.is_empty()).then_some(Scan {
            tried,
            class: self.class.id,
            generation: self.cq.generation,
            cycle: self.cycle,
        })
    }

    fn is_grouped(&self) -> bool {
        let in_group = |pod_set: &PodSet| {
            pod_set.topology.as_deref().is_some_and(|request| request.group.is_some())
        };
        self.site.is_some() && self.class.pod_sets.iter().any(in_group)
    }

    /// Looks for flavors of one pod set. Whether there are none.
    fn pod_set(
        &self,
        tree: &mut Tree,
        oracle: &mut dyn Oracle,
        at: usize,
        counts: &[i32],
        result: &mut Assignment,
    ) -> bool {
        let Some(mut given) = counts.get(at).and_then(|count| self.blank(at, *count)) else {
            return false;
        };
        let asking = Members { at: &[at], are_empty: given.count == 0 };
        let held = self.held_flavors(std::slice::from_ref(&given));
        let found = self.all_groups(tree, oracle, &asking, &given.requests, held, &result.usage);
        given.failed = found.failed;
        (given.flavors, given.causes, given.attempts) =
            (found.flavors, found.causes, found.attempts);
        result.add(given);
        found.failed
    }

    /// Looks for flavors of the pod sets of a group, together. Whether there are none.
    fn group_of_pod_sets(
        &self,
        tree: &mut Tree,
        oracle: &mut dyn Oracle,
        members: &[usize],
        counts: &[i32],
        result: &mut Assignment,
    ) -> bool {
        if let [at] = members {
            return self.pod_set(tree, oracle, *at, counts, result);
        }
        let given: Vec<_> =
            members.iter().filter_map(|at| self.blank(*at, *counts.get(*at)?)).collect();
        let asking =
            Members { at: members, are_empty: given.iter().all(|pod_set| pod_set.count == 0) };
        let held = self.held_flavors(&given);
        let found = self.all_groups(tree, oracle, &asking, &sum_of(&given), held, &result.usage);
        for mut pod_set in given {
            pod_set.failed = found.failed;
            (pod_set.attempts, pod_set.causes) = (found.attempts.clone(), found.causes.clone());
            self.take_part(&mut pod_set, &found.flavors);
            result.add(pod_set);
        }
        found.failed
    }

    /// A member of a group gets the flavors of what it asks for; one that asks for nothing those with a topology.
    fn take_part(&self, pod_set: &mut PodSetFlavors, of_group: &ByName<Picked>) {
        let has_topology = |name: &Name| {
            self.world.flavors.get(name).is_some_and(|flavor| flavor.topology_name.is_some())
        };
        for (resource, picked) in of_group.iter() {
            let takes = match pod_set.requests.is_empty() {
                true => has_topology(&picked.flavor),
                false => pod_set.requests.contains_key(resource),
            };
            if takes {
                pod_set.flavors.insert(resource.clone(), picked.clone());
            }
        }
    }

    /// The flavors that a workload has already whose pods are placed after its reservation.
    fn held_flavors(&self, given: &[PodSetFlavors]) -> ByName<Picked> {
        let mut flavors = ByName::default();
        let Some(held) = self.site.and_then(|site| site.held) else { return flavors };
        let of = |name: &Name| held.pod_sets.iter().find(|assigned| assigned.name == *name);
        for (resource, flavor) in
            given.iter().filter_map(|pod_set| of(&pod_set.name)).flat_map(|a| &a.flavors)
        {
            let Some(group) = self.cq.group_of(resource) else { continue };
            let pairs = group.flavors.iter().find(|known| known.name == *flavor);
            let at = group.resources.iter().position(|known| known == resource);
            let Some(fr) = pairs.zip(at).and_then(|(pairs, at)| pairs.frs.get(at)) else {
                continue;
            };
            let picked = Picked {
                flavor: flavor.clone(),
                fr: *fr,
                mode: Mode::Fit,
                borrow: 0,
                ended_at: None,
            };
            flavors.insert(resource.clone(), picked);
        }
        flavors
    }

    /// A pod set without flavors, where it is if it was placed before.
    fn blank(&self, at: usize, count: i32) -> Option<PodSetFlavors> {
        let pod_set = self.class.pod_sets.get(at)?;
        let held = self.site.and_then(|site| site.held);
        let held = held
            .and_then(|held| held.pod_sets.iter().find(|assigned| assigned.name == pod_set.name));
        Some(PodSetFlavors {
            at,
            name: pod_set.name.clone(),
            count,
            requests: total_requests(pod_set, count, self.cq.group_of("pods").is_some()),
            flavors: ByName::default(),
            causes: Vec::new(),
            attempts: Vec::new(),
            failed: false,
            topology: held.and_then(|held| held.topology.clone()),
            delayed: held.and_then(|held| held.delayed),
        })
    }

    /// Looks for flavors of all resources, group of resources by group.
    fn all_groups(
        &self,
        tree: &mut Tree,
        oracle: &mut dyn Oracle,
        members: &Members<'_>,
        requests: &BTreeMap<Name, Amount>,
        held: ByName<Picked>,
        earlier: &[(Fr, Amount)],
    ) -> Found {
        let mut result =
            Found { flavors: held, causes: Vec::new(), attempts: Vec::new(), failed: false };
        for (resource, amount) in requests {
            let Some(group) =
                self.cq.groups.iter().position(|group| group.resources.contains(resource))
            else {
                if *amount == Amount::ZERO
                    || self.settings.quota_check == QuotaCheckStrategy::IgnoreUndeclared
                {
                    continue;
                }
                result.causes = vec![Cause::ResourceUnavailable { resource: resource.clone() }];
                result.failed = true;
                break;
            };
            if result.flavors.contains(resource) {
                continue;
            }
            let seeker = Seeker { members, resource };
            let found = self.group(tree, oracle, &seeker, group, requests, earlier);
            append(&mut result.attempts, found.attempts);
            if found.flavors.is_empty() {
                result.causes = found.causes;
                if result.causes.is_empty() {
                    result.causes = vec![Cause::ResourceUnavailable { resource: resource.clone() }];
                }
                result.failed = true;
                break;
            }
            result.flavors.extend(found.flavors);
            append(&mut result.causes, found.causes);
        }
        if result.failed {
            result.flavors = ByName::default();
        }
        result
    }

    /// Looks through the flavors of one group, for all of the requested resources that it covers.
    fn group(
        &self,
        tree: &mut Tree,
        oracle: &mut dyn Oracle,
        seeker: &Seeker<'_>,
        index: usize,
        requests: &BTreeMap<Name, Amount>,
        earlier: &[(Fr, Amount)],
    ) -> Found {
        let Seeker { members: Members { at: members, .. }, resource } = *seeker;
        let mut found = Found {
            flavors: ByName::default(),
            causes: Vec::new(),
            attempts: Vec::new(),
            failed: false,
        };
        let Some(group) = self.cq.groups.get(index) else { return found };
        let fungibility = self.cq.object.fungibility;
        let mut best = Grade::WORST;
        let mut ended_at = None;
        let mut too_small = None;
        // The list may have become shorter since.
        let fungible = self.settings.gates.flavor_fungibility;
        let first = self
            .scan
            .filter(|_| fungible)
            .zip(members.first())
            .map_or(0, |(scan, at)| scan.next(*at, resource));
        let first = if first < group.flavors.len() { first } else { 0 };
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
            let mut pod_sets = members.iter().filter_map(|at| self.class.pod_sets.get(*at));
            let refused =
                pod_sets.clone().find_map(|pod_set| self.mismatch(&flavor.name, pod_set, group));
            let departs = || {
                pod_sets.find_map(|pod_set| self.departs(&flavor.name, pod_set, group, requests))
            };
            if let Some(cause) = refused.or_else(departs) {
                found.causes.push(cause.clone());
                found.attempts.push(no_match(flavor, index, cause));
                continue;
            }
            if let Some(cause) = self.too_small_for_a_pod(tree, group, flavor, seeker) {
                too_small = too_small.or(Some(flavor));
                found.causes.push(cause.clone());
                let kind = Some(NoFitKind::ExceedsMaxQuota);
                found.attempts.push(Attempt { kind, ..no_match(flavor, index, cause) });
                continue;
            }
            let mut tried = self.flavor(tree, oracle, group, flavor, requests, earlier);
            let (flavors, grade) = (std::mem::take(&mut tried.flavors), tried.grade);
            found.causes.extend(tried.causes.iter().cloned());
            found.attempts.push(tried.into_attempt(flavor, index));
            let (last, better) = match fungible {
                true => (!grade.try_next(fungibility), grade.beats(best, fungibility)),
                false => (grade.mode == Mode::Fit, grade.mode > best.mode),
            };
            if last || better {
                (found.flavors, best) = (flavors, grade);
            }
            if last {
                break;
            }
        }
        // An empty pod set runs nothing: it is held back by no flavor's quota, and waits once it grows.
        if let Some(flavor) = too_small.filter(|_| found.flavors.is_empty()) {
            let tried = self.flavor(tree, oracle, group, flavor, requests, earlier);
            (found.flavors, best) = (tried.flavors, tried.grade);
        }
        let ended_at = ended_at.filter(|number| fungible && number + 1 < group.flavors.len());
        for picked in found.flavors.values_mut() {
            picked.ended_at = ended_at;
        }
        if best.mode == Mode::Fit {
            found.causes.clear();
        }
        found
    }

    fn is_nominated(&self, at: usize, resource: &str, flavor: &Name) -> bool {
        self.nominated
            .is_none_or(|all| all.get(at).and_then(|flavors| flavors.get(resource)) == Some(flavor))
    }

    fn mismatch(&self, flavor: &Name, pod_set: &PodSet, group: &Group) -> Option<Cause> {
        match self.world.flavors.get(flavor) {
            Some(object) => {
                let of_topology = self.site.and_then(|site| site.mismatch(flavor, pod_set, group));
                of_topology.or_else(|| filters::mismatch(object, pod_set))
            }
            None => Some(Cause::FlavorMissing { flavor: flavor.clone() }),
        }
    }

    /// Why not even one pod of an empty pod set could ever have this flavor. What the set asks for comes to zero, which
    /// fits anywhere, and it grows where it was put.
    fn too_small_for_a_pod(
        &self,
        tree: &Tree,
        group: &Group,
        flavor: &GroupFlavor,
        seeker: &Seeker<'_>,
    ) -> Option<Cause> {
        let empty = seeker.members.at.iter().filter(|_| seeker.members.are_empty);
        let pods: Vec<&PodSet> = empty.filter_map(|at| self.class.pod_sets.get(*at)).collect();
        group.resources.iter().zip(&flavor.frs).find_map(|(resource, fr)| {
            let asked =
                pods.iter().filter_map(|pod_set| pod_set.requests.get(resource)).max().copied()?;
            let most = tree.potential(self.cq.node, *fr);
            (asked > most).then(|| {
                let (flavor, resource) = (flavor.name.clone(), resource.clone());
                Cause::TooMuch { flavor, resource, earlier: Amount::ZERO, asked, most }
            })
        })
    }

    /// Why a flavor is not the one that the pod set has already.
    fn departs(
        &self,
        flavor: &Name,
        pod_set: &PodSet,
        group: &Group,
        requests: &BTreeMap<Name, Amount>,
    ) -> Option<Cause> {
        let before = self.kept?.pod_sets.iter().find(|before| before.name == pod_set.name)?;
        let asked = group.resources.iter().filter(|resource| requests.contains_key(*resource));
        let kept = asked
            .filter_map(|resource| before.flavors.get(resource))
            .find(|kept| *kept != flavor)?;
        Some(Cause::OtherThanReplaced { flavor: flavor.clone(), kept: kept.clone() })
    }

    /// One flavor is as good as its worst resource.
    fn flavor(
        &self,
        tree: &mut Tree,
        oracle: &mut dyn Oracle,
        group: &Group,
        flavor: &GroupFlavor,
        requests: &BTreeMap<Name, Amount>,
        earlier: &[(Fr, Amount)],
    ) -> Tried {
        let mut tried = Tried {
            grade: Grade::BEST,
            flavors: ByName::default(),
            causes: Vec::new(),
            kind: None,
            borrow: 0,
        };
        for (resource, fr) in group.resources.iter().zip(&flavor.frs) {
            let Some(amount) = requests.get(resource).copied() else { continue };
            let earlier = amount_of(earlier, *fr);
            let fits = self.fits(
                tree,
                oracle,
                &Ask { fr: *fr, flavor: &flavor.name, resource, earlier, amount },
            );
            if let Some((cause, kind)) = fits.cause {
                tried.causes.push(cause);
                tried.kind = tried.kind.max(kind);
            }
            tried.borrow = tried.borrow.max(fits.grade.borrow);
            if tried.grade.beats(fits.grade, self.cq.object.fungibility) {
                tried.grade = fits.grade;
            }
            let picked = Picked {
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

    fn fits(&self, tree: &mut Tree, oracle: &mut dyn Oracle, ask: &Ask<'_>) -> Fits {
        let node = self.cq.node;
        let free = tree.available(node, ask.fr).max(Amount::ZERO);
        let most = tree.potential(node, ask.fr);
        let asked = ask.earlier + ask.amount;
        let (flavor, resource) = (ask.flavor.clone(), ask.resource.clone());
        if asked > most {
            let cause =
                Cause::TooMuch { flavor, resource, earlier: ask.earlier, asked: ask.amount, most };
            let grade = Grade { mode: Mode::NoFit, borrow: 0 };
            return Fits { grade, cause: Some((cause, Some(NoFitKind::ExceedsMaxQuota))) };
        }
        let (borrow, may_reclaim) = tree.borrow_height(node, ask.fr, asked);
        if asked <= free {
            return Fits { grade: Grade { mode: Mode::Fit, borrow }, cause: None };
        }
        let cause = Cause::Insufficient { flavor, resource, asked, free, most };
        if tree.quota(node, ask.fr).nominal >= asked
            || may_reclaim
            || self.can_preempt_while_borrowing()
        {
            let (possibility, borrow) = oracle.simulate(tree, ask.fr, asked);
            return Fits {
                grade: Grade { mode: possibility.into(), borrow },
                cause: Some((cause, None)),
            };
        }
        let grade = Grade { mode: Mode::NoFit, borrow };
        Fits { grade, cause: Some((cause, Some(NoFitKind::WaitingForQuota))) }
    }

    fn can_preempt_while_borrowing(&self) -> bool {
        let rules = self.cq.object.preemption;
        rules.borrow_within_cohort.policy != PreemptionPolicy::Never
            || (self.settings.fair_sharing
                && rules.reclaim_within_cohort != PreemptionPolicy::Never)
    }
}

impl From<Possibility> for Mode {
    fn from(possibility: Possibility) -> Self {
        match possibility {
            Possibility::NoCandidates => Self::NoCandidates,
            Possibility::Preempt => Self::Preempt,
            Possibility::Reclaim => Self::Reclaim,
        }
    }
}

impl Tried {
    fn into_attempt(self, flavor: &GroupFlavor, group: usize) -> Attempt {
        let possibility = match self.grade.mode {
            Mode::NoCandidates => Some(Possibility::NoCandidates),
            Mode::Preempt => Some(Possibility::Preempt),
            Mode::Reclaim => Some(Possibility::Reclaim),
            Mode::NoFit | Mode::Fit => None,
        };
        Attempt {
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

/// Takes the second list as it is where the first is empty.
fn append<T>(all: &mut Vec<T>, more: Vec<T>) {
    if all.is_empty() {
        *all = more;
    } else {
        all.extend(more);
    }
}

fn no_match(flavor: &GroupFlavor, group: usize, cause: Cause) -> Attempt {
    Attempt {
        flavor: flavor.name.clone(),
        group,
        fitness: Fitness::NoFit,
        possibility: None,
        borrow: 0,
        kind: Some(NoFitKind::NoMatchingFlavor),
        causes: vec![cause],
    }
}

fn group_of(pod_set: &PodSet) -> Option<&Name> {
    pod_set.topology.as_deref()?.group.as_ref()
}

fn sum_of(pod_sets: &[PodSetFlavors]) -> BTreeMap<Name, Amount> {
    let mut sum: BTreeMap<Name, Amount> = BTreeMap::new();
    for (name, amount) in pod_sets.iter().flat_map(|pod_set| &pod_set.requests) {
        let known = sum.entry(name.clone()).or_default();
        *known = *known + *amount;
    }
    sum
}

/// What all pods of a set ask for. Negative requests count as none.
pub(crate) fn total_requests(
    pod_set: &PodSet,
    count: i32,
    with_pods: bool,
) -> BTreeMap<Name, Amount> {
    let count = count.max(0);
    let mut requests: BTreeMap<_, _> = (pod_set.requests.iter())
        .map(|(name, amount)| (name.clone(), (*amount).max(Amount::ZERO).times(count)))
        .collect();
    if with_pods {
        requests.insert("pods".into(), Amount::new(i64::from(count)));
    }
    requests
}
