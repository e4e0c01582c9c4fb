//! Why one workload waits, worked out on demand on a copy of the tree: nothing is kept, and nothing changes.

use std::collections::BTreeMap;

use super::Engine;
use crate::cluster_queue::{Cq, Group, GroupFlavor};
use crate::flavor_resource::Fr;
use crate::flavors::{self, Assignment, Fitness, Site, total_requests};
use crate::preemption::candidates::Preemptor;
use crate::preemption::classical::Classical;
use crate::preemption::fair::Fair;
use crate::preemption::non_candidates::{self, Chooser, Wanted};
use crate::queue::Spot;
use crate::tree::{NodeId, Tree};
use crate::workloads::{Wl, WlId};
use crate::{
    Amount, Cause, Explanation, FlavorOutlook, Head, Held, Name, Outlook, Place, PodSet,
    PodSetOutlook, PreemptionPolicy, Reason, ResourceOutlook, Time, Verdict, Victim, WorkloadKey,
};

/// What trying a workload as the only head comes to.
struct Alone {
    reason: Option<Reason>,
    victims: Vec<Victim>,
    assignment: Option<Assignment>,
}

/// What the outlooks of one workload are worked out from.
struct Desk<'a> {
    engine: &'a Engine,
    cq: &'a Cq,
    chooser: Option<Chooser<'a>>,
    tree: Tree,
}

impl Engine {
    /// Why a workload waits, or what it holds, as things are at `now`; `None` if it is not known. Decides and changes
    /// nothing. Costs a copy of the quota tree and one nomination, and grows with the workloads that hold quota in the
    /// tree and with those that wait in the queue.
    pub fn explain(&self, key: &WorkloadKey, now: Time) -> Option<Explanation> {
        let id = self.workloads.id(key)?;
        let wl = self.workloads.get(id)?;
        let lq = self.lqs.get(wl.queue)?;
        let cluster_queue = match (&wl.hold, &lq.object) {
            (Some(hold), _) => Some(hold.admission.cluster_queue.clone()),
            (None, object) => object.as_ref().map(|object| object.cluster_queue.clone()),
        };
        let cq = cluster_queue.as_ref().and_then(|name| self.cqs.get(self.cq_ids.get(name)?));
        let waits = wl.hold.is_none() && !wl.flags.finished;
        let tried = cq.filter(|_| waits);
        let alone = tried.map(|cq| self.alone(id, cq.node));
        let place = tried.and_then(|cq| self.place_of(id, wl, cq, now));
        let assignment = alone.as_ref().and_then(|alone| alone.assignment.as_ref());
        let pod_sets = tried
            .map(|cq| self.desk(cq, wl, self.site(cq, wl).as_ref()).pod_sets(wl, assignment))
            .unwrap_or_default();
        let not_tried = self.not_queued(wl).is_some()
            || place.as_ref().is_none_or(|place| !place.may_be_tried(now));
        let (alone, victims) = match alone {
            Some(alone) if !not_tried => (alone.reason, alone.victims),
            _ => (None, Vec::new()),
        };
        Some(Explanation {
            key: wl.key.clone(),
            uid: wl.uid.clone(),
            local_queue: lq.key.clone(),
            cluster_queue,
            inactive: cq.map(|cq| cq.inactive.clone()).unwrap_or_default(),
            priority: wl.class.priority,
            outlook: outlook(wl, not_tried, alone.as_ref()),
            reason: self.reason_of(key, place.as_ref(), alone.as_ref()),
            alone,
            held: wl.hold.as_ref().map(|hold| Held {
                admission: hold.admission.clone(),
                since: hold.since,
                evicted: wl.is_leaving(),
            }),
            place,
            pod_sets,
            victims,
        })
    }

    /// What is said of it; a head that was not tried yet will be told what trying it comes to.
    fn reason_of(
        &self,
        key: &WorkloadKey,
        place: Option<&Place>,
        alone: Option<&Reason>,
    ) -> Option<Reason> {
        let reason = self.why(key)?.into_owned();
        let first = place.is_some_and(|place| place.head.is_none());
        match (&reason, alone) {
            (Reason::Waiting { .. }, Some(alone)) if first => Some(alone.clone()),
            _ => Some(reason),
        }
    }

    fn alone(&self, id: WlId, cq: NodeId) -> Alone {
        let mut tree = self.tree.clone();
        let (assignment, targets) = match self.dry_run(&mut tree, id, cq) {
            Ok(found) => found,
            Err(reason) => {
                return Alone { reason: Some(reason), victims: Vec::new(), assignment: None };
            }
        };
        let Some((wl, queue)) = self.workloads.get(id).zip(self.cqs.get(&cq)) else {
            return Alone { reason: None, victims: Vec::new(), assignment: None };
        };
        let pod_sets = || assignment.reasons();
        let reason = match assignment.fitness {
            Fitness::NoFit => {
                Some(Reason::NoFit { kind: assignment.no_fit_kind(), pod_sets: pod_sets() })
            }
            Fitness::Preempt if targets.is_empty() => {
                Some(Reason::NoCandidates { pod_sets: pod_sets() })
            }
            Fitness::Preempt if wl.flags.gates_closed => Some(Reason::PreemptionGated),
            Fitness::Preempt => {
                Some(Reason::Preempting { pod_sets: pod_sets(), victims: targets.len() })
            }
            Fitness::DeferredFit | Fitness::Fit => None,
        };
        let site = self.site(queue, wl);
        let victims =
            non_candidates::victims(&self.preemptor(queue, wl, site.as_ref()), &tree, &targets);
        Alone { reason, victims, assignment: Some(assignment) }
    }

    pub(super) fn preemptor<'a>(
        &'a self,
        cq: &'a Cq,
        wl: &'a Wl,
        site: Option<&'a Site<'a>>,
    ) -> Preemptor<'a> {
        let (cqs, workloads) = (&self.cqs, &self.workloads);
        let replaced = self.replaced(wl, cq.node).unwrap_or_default();
        let (class, queue_time, gates) = (&wl.class, wl.queue_time, self.settings.gates);
        Preemptor { cqs, workloads, cq, class, queue_time, replaced, site, gates }
    }

    fn desk<'a>(&'a self, cq: &'a Cq, wl: &'a Wl, site: Option<&'a Site<'a>>) -> Desk<'a> {
        let preemptor = self.preemptor(cq, wl, site);
        let mut tree = self.tree.clone();
        preemptor.shift_replaced(&mut tree, -1);
        let chooser = self.preemption.as_ref().map(|preemption| match self.settings.fair_sharing {
            true => Chooser::Fair(Fair::new(preemptor, &preemption.fair_strategies)),
            false => Chooser::Classical(Classical::new(preemptor)),
        });
        Desk { engine: self, cq, chooser, tree }
    }

    fn place_of(&self, id: WlId, wl: &Wl, cq: &Cq, now: Time) -> Option<Place> {
        let order: Vec<_> = cq.queue.in_order().collect();
        let in_cluster_queue = order.iter().position(|(other, _)| *other == id)?;
        let same = |(other, _): &&(WlId, Spot)| {
            self.workloads.get(*other).is_some_and(|wl2| wl2.queue == wl.queue)
        };
        let spot = order.get(in_cluster_queue).map(|(_, spot)| *spot);
        let first = cq.queue.head().or_else(|| order.first().map(|(first, _)| *first));
        let head = first.filter(|first| *first != id).and_then(|first| {
            let wl = self.workloads.get(first)?;
            let alone = self.alone(first, cq.node).reason;
            Some(Head { key: wl.key.clone(), priority: wl.class.priority, alone })
        });
        Some(Place {
            in_cluster_queue,
            of_cluster_queue: order.len(),
            in_local_queue: order.iter().take(in_cluster_queue).filter(same).count(),
            of_local_queue: order.iter().filter(same).count(),
            head,
            strict: cq.object.strategy == crate::QueueingStrategy::StrictFIFO,
            parked: spot == Some(Spot::Parked),
            backing_off_until: wl
                .wakes_at()
                .filter(|at| wl.is_backing_off(now) && *at < Time::NEVER),
        })
    }
}

impl Place {
    fn may_be_tried(&self, now: Time) -> bool {
        self.backing_off_until.is_none_or(|until| until <= now)
    }
}

fn outlook(wl: &Wl, not_tried: bool, alone: Option<&Reason>) -> Outlook {
    match (&wl.hold, alone) {
        _ if wl.flags.finished => Outlook::Finished,
        (Some(_), _) if wl.flags.admitted => Outlook::Admitted,
        (Some(_), _) => Outlook::QuotaReserved,
        _ if not_tried => Outlook::NotTried,
        (None, None) => Outlook::Fits,
        (None, Some(Reason::Preempting { .. })) => Outlook::Preempts,
        (None, Some(_)) => Outlook::Blocked,
    }
}

impl Desk<'_> {
    fn pod_sets(mut self, wl: &Wl, assignment: Option<&Assignment>) -> Vec<PodSetOutlook> {
        let mut earlier: BTreeMap<Fr, Amount> = BTreeMap::new();
        let mut outlooks = Vec::new();
        for (at, (pod_set, count)) in wl.class.pod_sets.iter().zip(&wl.class.counts).enumerate() {
            let assigned = assignment.and_then(|assignment| assignment.pod_sets.get(at));
            let chosen = |resource: &Name| Some(&assigned?.flavors.get(resource)?.flavor);
            outlooks.push(self.pod_set(pod_set, *count, &earlier, chosen));
            for (resource, picked) in
                assigned.into_iter().flat_map(|assigned| assigned.flavors.iter())
            {
                let used = assigned
                    .and_then(|assigned| assigned.requests.get(resource))
                    .copied()
                    .unwrap_or_default();
                let sum = earlier.entry(picked.fr).or_default();
                *sum = *sum + used;
            }
        }
        outlooks
    }

    fn pod_set<'n>(
        &mut self,
        pod_set: &PodSet,
        count: i32,
        earlier: &BTreeMap<Fr, Amount>,
        chosen: impl Fn(&Name) -> Option<&'n Name>,
    ) -> PodSetOutlook {
        let cq = self.cq;
        let requests = total_requests(pod_set, count, cq.group_of("pods").is_some());
        let counted =
            |resource: &&Name| requests.get(*resource).is_some_and(|amount| *amount > Amount::ZERO);
        let uncovered =
            requests.keys().filter(counted).filter(|resource| cq.group_of(resource).is_none());
        let uncovered = uncovered.cloned().collect();
        let mut flavors = Vec::new();
        for group in cq
            .groups
            .iter()
            .filter(|group| group.resources.iter().any(|name| requests.contains_key(name)))
        {
            let taken = group.resources.iter().find_map(&chosen);
            for flavor in &group.flavors {
                let mut outlook = self.flavor(group, flavor, pod_set, &requests, earlier);
                outlook.chosen = taken == Some(&flavor.name);
                flavors.push(outlook);
            }
        }
        PodSetOutlook {
            name: pod_set.name.clone(),
            count,
            min_count: pod_set.min_count,
            problem: pod_set.problem.clone(),
            requests,
            uncovered,
            flavors,
        }
    }

    fn flavor(
        &mut self,
        group: &Group,
        flavor: &GroupFlavor,
        pod_set: &PodSet,
        requests: &BTreeMap<Name, Amount>,
        earlier: &BTreeMap<Fr, Amount>,
    ) -> FlavorOutlook {
        let mismatch = match self.engine.world.flavors.get(&flavor.name) {
            Some(object) => flavors::mismatch(object, pod_set),
            None => Some(Cause::FlavorMissing { flavor: flavor.name.clone() }),
        };
        let mut resources = Vec::new();
        for (resource, fr) in group.resources.iter().zip(&flavor.frs) {
            let Some(asked) = requests.get(resource).copied() else { continue };
            let earlier = earlier.get(fr).copied().unwrap_or_default();
            resources.push(self.resource(*fr, resource, asked, earlier, mismatch.is_none()));
        }
        let worst =
            resources.iter().map(|resource| resource.verdict).min().unwrap_or(Verdict::Fits);
        let verdict = if mismatch.is_some() { Verdict::Mismatch } else { worst };
        FlavorOutlook { flavor: flavor.name.clone(), verdict, chosen: false, mismatch, resources }
    }

    fn resource(
        &mut self,
        fr: Fr,
        name: &Name,
        asked: Amount,
        earlier: Amount,
        usable: bool,
    ) -> ResourceOutlook {
        let (node, tree) = (self.cq.node, &mut self.tree);
        let (quota, used) = (tree.quota(node, fr), tree.usage(node, fr));
        let free = tree.available(node, fr).max(Amount::ZERO);
        let own = (quota.nominal - used).max(Amount::ZERO).min(free);
        let mut outlook = ResourceOutlook {
            resource: name.clone(),
            verdict: Verdict::Fits,
            asked,
            earlier,
            nominal: quota.nominal,
            used,
            free,
            borrowable: free - own,
            most: tree.potential(node, fr),
            borrowing_limit: quota.borrowing_limit,
            lending_limit: quota.lending_limit,
            bound: tree.bound(node, fr),
            kept: tree.kept_from(node, fr),
            preemption: None,
        };
        let amount = asked + earlier;
        if amount > outlook.most {
            outlook.verdict = Verdict::ExceedsMaxQuota;
        } else if amount > free && usable {
            self.preemption(fr, amount, &mut outlook);
        } else if amount > free {
            outlook.verdict = Verdict::WaitingForQuota;
        }
        outlook
    }

    /// What preemption could do about a lack.
    fn preemption(&mut self, fr: Fr, amount: Amount, outlook: &mut ResourceOutlook) {
        let (node, rules) = (self.cq.node, self.cq.object.preemption);
        let (_, may_reclaim) = self.tree.borrow_height(node, fr, amount);
        let while_borrowing = rules.borrow_within_cohort.policy != PreemptionPolicy::Never
            || (self.engine.settings.fair_sharing
                && rules.reclaim_within_cohort != PreemptionPolicy::Never);
        let may_preempt = outlook.nominal >= amount || may_reclaim || while_borrowing;
        let Some(chooser) = &self.chooser else {
            outlook.verdict =
                if may_preempt { Verdict::NoCandidates } else { Verdict::WaitingForQuota };
            return;
        };
        let found = chooser.outlook(&mut self.tree, Wanted { fr, amount, may_preempt });
        let own = |victim: &Victim| victim.cluster_queue == self.cq.object.name;
        outlook.verdict = match &found.victims[..] {
            _ if !may_preempt => Verdict::WaitingForQuota,
            [] => Verdict::NoCandidates,
            some if some.iter().any(own) => Verdict::Preempt,
            _ => Verdict::Reclaim,
        };
        outlook.preemption = Some(found);
    }
}
