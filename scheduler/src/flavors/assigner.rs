//! The search for flavors. Kueue's `flavorassigner.go` is the rule.

use std::collections::BTreeMap;

use super::assignment::{Assignment, Attempt, Fitness, Picked, PodSetFlavors, Scan, amount_of};
use super::by_name::ByName;
use super::filters;
use super::fungibility::{Grade, Mode};
use crate::cluster_queue::{Cq, Group, GroupFlavor};
use crate::intern::Fr;
use crate::preemption::{Oracle, Possibility};
use crate::queue::hash::Class;
use crate::status::World;
use crate::tree::Tree;
use crate::{Admission, Amount, Cause, Name, NoFitKind, PodSet, PreemptionPolicy, QuotaCheckStrategy, Settings};

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
    pub(crate) cycle: u64,
}

/// Which pod set a resource group is looked through for.
struct Seeker<'a> {
    at: usize,
    pod_set: &'a PodSet,
    /// The resource that led to the group.
    resource: &'a Name,
    /// Whether it has no pods for now.
    is_empty: bool,
}

/// What looking through a resource group found.
struct Found {
    flavors: ByName<Picked>,
    causes: Vec<Cause>,
    attempts: Vec<Attempt>,
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
    pub(crate) fn assign(&self, tree: &mut Tree, oracle: &mut dyn Oracle, counts: &[i32]) -> Assignment {
        let mut result = Assignment {
            pod_sets: Vec::with_capacity(self.class.pod_sets.len()),
            fitness: Fitness::Fit,
            borrow: 0,
            usage: Vec::new(),
            scan: None,
        };
        for (at, (pod_set, count)) in self.class.pod_sets.iter().zip(counts).enumerate() {
            let assigned = self.pod_set(tree, oracle, at, pod_set, *count, &result.usage);
            for (resource, picked) in assigned.flavors.iter() {
                result.borrow = result.borrow.max(picked.borrow);
                result.charge(picked.fr, assigned.requests.get(resource).copied().unwrap_or_default());
            }
            let failed = assigned.failed;
            result.pod_sets.push(assigned);
            if failed {
                break;
            }
        }
        self.refuse_without_flavors(&mut result);
        result.fitness = result.pod_sets.iter().map(PodSetFlavors::fitness).min().unwrap_or(Fitness::NoFit);
        result.scan = self.progress(&result);
        result
    }

    /// A queue without flavors admits no pods that ask for nothing at all, not even for zero of something.
    fn refuse_without_flavors(&self, result: &mut Assignment) {
        if self.cq.groups.is_empty() && result.pod_sets.iter().all(|pod_set| pod_set.requests.is_empty()) {
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
            .flat_map(|(at, pod_set)| pod_set.flavors.iter().map(move |(name, picked)| (at, name, picked)))
            .filter_map(|(at, name, picked)| Some((at, name.clone(), picked.ended_at?)))
            .collect();
        (!tried.is_empty()).then_some(Scan {
            tried,
            class: self.class.id,
            generation: self.cq.generation,
            cycle: self.cycle,
        })
    }

    fn pod_set(
        &self,
        tree: &mut Tree,
        oracle: &mut dyn Oracle,
        at: usize,
        pod_set: &PodSet,
        count: i32,
        earlier: &[(Fr, Amount)],
    ) -> PodSetFlavors {
        let mut result = PodSetFlavors {
            name: pod_set.name.clone(),
            count,
            requests: total_requests(pod_set, count, self.cq.group_of("pods").is_some()),
            flavors: ByName::default(),
            causes: Vec::new(),
            attempts: Vec::new(),
            failed: false,
        };
        for (resource, amount) in &result.requests {
            let Some(group) = self.cq.groups.iter().position(|group| group.resources.contains(resource)) else {
                if *amount == Amount::ZERO || self.settings.quota_check == QuotaCheckStrategy::IgnoreUndeclared {
                    continue;
                }
                result.causes = vec![Cause::ResourceUnavailable { resource: resource.clone() }];
                result.failed = true;
                break;
            };
            if result.flavors.contains(resource) {
                continue;
            }
            let seeker = Seeker { at, pod_set, resource, is_empty: count == 0 };
            let found = self.group(tree, oracle, &seeker, group, &result.requests, earlier);
            result.attempts.extend(found.attempts);
            if found.flavors.is_empty() {
                result.causes = found.causes;
                if result.causes.is_empty() {
                    result.causes = vec![Cause::ResourceUnavailable { resource: resource.clone() }];
                }
                result.failed = true;
                break;
            }
            result.flavors.extend(found.flavors);
            result.causes.extend(found.causes);
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
        let Seeker { at, pod_set, resource, .. } = *seeker;
        let mut found = Found { flavors: ByName::default(), causes: Vec::new(), attempts: Vec::new() };
        let Some(group) = self.cq.groups.get(index) else { return found };
        let fungibility = self.cq.object.fungibility;
        let mut best = Grade::WORST;
        let mut ended_at = None;
        let mut too_small = None;
        // The list may have become shorter since.
        let fungible = self.settings.gates.flavor_fungibility;
        let first = self.scan.filter(|_| fungible).map_or(0, |scan| scan.next(at, resource));
        let first = if first < group.flavors.len() { first } else { 0 };
        for (number, flavor) in group.flavors.iter().enumerate().skip(first) {
            ended_at = Some(number);
            if !self.is_nominated(at, resource, &flavor.name) {
                let (flavor, resource) = (flavor.name.clone(), resource.clone());
                found.causes.push(Cause::NotNominated { flavor, resource });
                continue;
            }
            if self.class.flavors.as_ref().is_some_and(|allowed| !allowed.contains(&flavor.name)) {
                found.causes.push(Cause::NotAllowed { flavor: flavor.name.clone() });
                continue;
            }
            let refused = self.mismatch(&flavor.name, pod_set);
            if let Some(cause) = refused.or_else(|| self.departs(&flavor.name, pod_set, group, requests)) {
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
            let tried = self.flavor(tree, oracle, group, flavor, requests, earlier);
            found.causes.extend(tried.causes.iter().cloned());
            found.attempts.push(tried.attempt(flavor, index));
            let (last, better) = match fungible {
                true => (!tried.grade.try_next(fungibility), tried.grade.beats(best, fungibility)),
                false => (tried.grade.mode == Mode::Fit, tried.grade.mode > best.mode),
            };
            if last || better {
                (found.flavors, best) = (tried.flavors, tried.grade);
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
        self.nominated.is_none_or(|all| all.get(at).and_then(|flavors| flavors.get(resource)) == Some(flavor))
    }

    fn mismatch(&self, flavor: &Name, pod_set: &PodSet) -> Option<Cause> {
        match self.world.flavors.get(flavor) {
            Some(object) => filters::mismatch(object, pod_set),
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
        let requests = seeker.is_empty.then_some(&seeker.pod_set.requests)?;
        group.resources.iter().zip(&flavor.frs).find_map(|(resource, fr)| {
            let asked = requests.get(resource).copied()?;
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
        let kept = asked.filter_map(|resource| before.flavors.get(resource)).find(|kept| *kept != flavor)?;
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
        let mut tried =
            Tried { grade: Grade::BEST, flavors: ByName::default(), causes: Vec::new(), kind: None, borrow: 0 };
        for (resource, fr) in group.resources.iter().zip(&flavor.frs) {
            let Some(amount) = requests.get(resource).copied() else { continue };
            let earlier = amount_of(earlier, *fr);
            let fits = self.fits(tree, oracle, &Ask { fr: *fr, flavor: &flavor.name, resource, earlier, amount });
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
            let cause = Cause::TooMuch { flavor, resource, earlier: ask.earlier, asked: ask.amount, most };
            let grade = Grade { mode: Mode::NoFit, borrow: 0 };
            return Fits { grade, cause: Some((cause, Some(NoFitKind::ExceedsMaxQuota))) };
        }
        let (borrow, may_reclaim) = tree.borrow_height(node, ask.fr, asked);
        if asked <= free {
            return Fits { grade: Grade { mode: Mode::Fit, borrow }, cause: None };
        }
        let cause = Cause::Insufficient { flavor, resource, asked, free, most };
        if tree.quota(node, ask.fr).nominal >= asked || may_reclaim || self.can_preempt_while_borrowing() {
            let (possibility, borrow) = oracle.simulate(tree, ask.fr, asked);
            return Fits { grade: Grade { mode: possibility.into(), borrow }, cause: Some((cause, None)) };
        }
        let grade = Grade { mode: Mode::NoFit, borrow };
        Fits { grade, cause: Some((cause, Some(NoFitKind::WaitingForQuota))) }
    }

    fn can_preempt_while_borrowing(&self) -> bool {
        let rules = self.cq.object.preemption;
        rules.borrow_within_cohort.policy != PreemptionPolicy::Never
            || (self.settings.fair_sharing && rules.reclaim_within_cohort != PreemptionPolicy::Never)
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
    fn attempt(&self, flavor: &GroupFlavor, group: usize) -> Attempt {
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
            causes: self.causes.clone(),
        }
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

/// What all pods of a set ask for. Negative requests count as none.
pub(crate) fn total_requests(pod_set: &PodSet, count: i32, with_pods: bool) -> BTreeMap<Name, Amount> {
    let count = count.max(0);
    let mut requests: BTreeMap<_, _> = (pod_set.requests.iter())
        .map(|(name, amount)| (name.clone(), (*amount).max(Amount::ZERO).times(count)))
        .collect();
    if with_pods {
        requests.insert("pods".into(), Amount::new(i64::from(count)));
    }
    requests
}
