//! Explains why one workload waits. Computed on demand on a copy of the quota tree; the engine does
//! not change.

use std::collections::BTreeMap;

use super::Engine;
use crate::cluster_queue::{ClusterQueueEntry, FlavorGroup, GroupFlavor};
use crate::flavor_resource::FlavorResource;
use crate::flavors::{self, Assignment, AssignmentMode, PlacementContext, total_requests};
use crate::ids::{NodeId, WorkloadId};
use crate::preemption::candidates::Preemptor;
use crate::preemption::classical::ClassicalPreemption;
use crate::preemption::fair::FairPreemption;
use crate::preemption::non_candidates::{self, PreemptionStrategy, RequestedAmount};
use crate::queue::PendingState;
use crate::tree::QuotaTree;
use crate::workloads::WorkloadEntry;
use crate::{
    Amount, Cause, Explanation, FlavorOutlook, Name, Outlook, PlacementOutlook, PodSet,
    PodSetOutlook, PreemptionPolicy, QueueHead, QueuePosition, Reason, ReservedQuota,
    ResourceOutlook, Time, Verdict, Victim, WorkloadKey,
};

/// The outcome for a workload as the only head.
#[derive(Default)]
struct SoloEvaluation {
    reason: Option<Reason>,
    victims: Vec<Victim>,
    assignment: Option<Assignment>,
    placement: Option<PlacementOutlook>,
}

/// Inputs for the outlooks of one workload.
struct OutlookBuilder<'a> {
    engine: &'a Engine,
    cq: &'a ClusterQueueEntry,
    chooser: Option<PreemptionStrategy<'a>>,
    tree: QuotaTree,
}

impl Engine {
    /// Why a workload waits, or what quota it has, at `now`. `None` if the workload is unknown.
    ///
    /// Costs a copy of the quota tree and one nomination. Also grows with the workloads that have
    /// quota in the tree and with those that wait in the queue.
    pub fn explain(&self, key: &WorkloadKey, now: Time) -> Option<Explanation> {
        let id = self.workloads.id(key)?;
        let wl = self.workloads.get(id)?;
        let lq = self.local_queues.get(wl.queue)?;
        let cluster_queue = match (&wl.reservation, &lq.object) {
            (Some(reservation), _) => Some(reservation.admission.cluster_queue.clone()),
            (None, object) => object.as_ref().map(|object| object.cluster_queue.clone()),
        };
        let cq = cluster_queue
            .as_ref()
            .and_then(|name| self.cluster_queues.get(self.cluster_queue_ids.get(name)?));
        let waits = wl.reservation.is_none() && !wl.flags.finished;
        let tried = cq.filter(|_| waits);
        let solo = tried.map(|cq| self.evaluate_solo(id, cq.node));
        let place = tried.and_then(|cq| self.position_of(id, wl, cq, now));
        let assignment = solo.as_ref().and_then(|solo| solo.assignment.as_ref());
        let pod_sets = tried
            .map(|cq| {
                self.outlook_builder(cq, wl, self.placement(cq, wl).as_ref())
                    .pod_sets(wl, assignment)
            })
            .unwrap_or_default();
        let not_tried = self.not_queued_reason(wl).is_some()
            || place.as_ref().is_none_or(|place| !place.may_be_tried(now));
        let SoloEvaluation { reason: solo_reason, victims, placement, .. } =
            solo.filter(|_| !not_tried).unwrap_or_default();
        Some(Explanation {
            key: wl.key.clone(),
            uid: wl.uid.clone(),
            local_queue: lq.key.clone(),
            cluster_queue,
            inactive: cq.map(|cq| cq.inactive.clone()).unwrap_or_default(),
            priority: wl.class.priority,
            outlook: outlook(wl, not_tried, solo_reason.as_ref()),
            reason: self.reason_of(key, place.as_ref(), solo_reason.as_ref()),
            solo_reason,
            held: wl.reservation.as_ref().map(|reservation| ReservedQuota {
                admission: reservation.admission.clone(),
                since: reservation.since,
                evicted: wl.is_being_evicted(),
            }),
            place,
            pod_sets,
            victims,
            placement,
        })
    }

    /// The reason of its condition. For a head without an attempt so far, the outcome of an
    /// attempt.
    fn reason_of(
        &self,
        key: &WorkloadKey,
        place: Option<&QueuePosition>,
        solo_reason: Option<&Reason>,
    ) -> Option<Reason> {
        let reason = self.why(key)?.into_owned();
        let first = place.is_some_and(|place| place.head.is_none());
        match (&reason, solo_reason) {
            (Reason::Waiting { .. }, Some(solo_reason)) if first => Some(solo_reason.clone()),
            _ => Some(reason),
        }
    }

    fn evaluate_solo(&self, id: WorkloadId, cq: NodeId) -> SoloEvaluation {
        let mut tree = self.tree.clone();
        let (assignment, targets) = match self.dry_run(&mut tree, id, cq) {
            Ok(found) => found,
            Err(reason) => {
                return SoloEvaluation { reason: Some(reason), ..SoloEvaluation::default() };
            }
        };
        let Some((wl, queue)) = self.workloads.get(id).zip(self.cluster_queues.get(&cq)) else {
            return SoloEvaluation::default();
        };
        let pod_sets = || assignment.reasons();
        let reason = match assignment.fitness {
            AssignmentMode::NoFit => {
                Some(Reason::NoFit { kind: assignment.no_fit_kind(), pod_sets: pod_sets() })
            }
            AssignmentMode::Preempt if targets.is_empty() => {
                Some(Reason::NoCandidates { pod_sets: pod_sets() })
            }
            AssignmentMode::Preempt if wl.flags.gates_closed => Some(Reason::PreemptionGated),
            AssignmentMode::Preempt => {
                Some(Reason::Preempting { pod_sets: pod_sets(), victims: targets.len() })
            }
            AssignmentMode::DeferredFit | AssignmentMode::Fit => None,
        };
        let placement = self.placement(queue, wl);
        let victims = non_candidates::victims(
            &self.preemptor(queue, wl, placement.as_ref()),
            &tree,
            &targets,
        );
        let outlook = placement.as_ref().and_then(|placement| placement.outlook(&assignment));
        SoloEvaluation { reason, victims, assignment: Some(assignment), placement: outlook }
    }

    pub(super) fn preemptor<'a>(
        &'a self,
        cq: &'a ClusterQueueEntry,
        wl: &'a WorkloadEntry,
        placement: Option<&'a PlacementContext<'a>>,
    ) -> Preemptor<'a> {
        let (cluster_queues, workloads) = (&self.cluster_queues, &self.workloads);
        let replaced = self.replaced(wl, cq.node).unwrap_or_default();
        let (class, queue_time, gates) = (&wl.class, wl.queue_time, self.settings.gates);
        Preemptor { cluster_queues, workloads, cq, class, queue_time, replaced, placement, gates }
    }

    fn outlook_builder<'a>(
        &'a self,
        cq: &'a ClusterQueueEntry,
        wl: &'a WorkloadEntry,
        placement: Option<&'a PlacementContext<'a>>,
    ) -> OutlookBuilder<'a> {
        let preemptor = self.preemptor(cq, wl, placement);
        let mut tree = self.tree.clone();
        preemptor.shift_replaced(&mut tree, -1);
        let chooser = self.preemption.as_ref().map(|preemption| match self.settings.fair_sharing {
            true => PreemptionStrategy::FairPreemption(FairPreemption::new(
                preemptor,
                &preemption.fair_strategies,
            )),
            false => PreemptionStrategy::ClassicalPreemption(ClassicalPreemption::new(preemptor)),
        });
        OutlookBuilder { engine: self, cq, chooser, tree }
    }

    fn position_of(
        &self,
        id: WorkloadId,
        wl: &WorkloadEntry,
        cq: &ClusterQueueEntry,
        now: Time,
    ) -> Option<QueuePosition> {
        let order: Vec<_> = cq.queue.in_order().collect();
        let in_cluster_queue = order.iter().position(|(other, _)| *other == id)?;
        let same = |(other, _): &&(WorkloadId, PendingState)| {
            self.workloads.get(*other).is_some_and(|wl2| wl2.queue == wl.queue)
        };
        let state = order.get(in_cluster_queue).map(|(_, state)| *state);
        let first = cq.queue.head().or_else(|| order.first().map(|(first, _)| *first));
        let head = first.filter(|first| *first != id).and_then(|first| {
            let wl = self.workloads.get(first)?;
            let solo_reason = self.evaluate_solo(first, cq.node).reason;
            Some(QueueHead { key: wl.key.clone(), priority: wl.class.priority, solo_reason })
        });
        Some(QueuePosition {
            in_cluster_queue,
            of_cluster_queue: order.len(),
            in_local_queue: order.iter().take(in_cluster_queue).filter(same).count(),
            of_local_queue: order.iter().filter(same).count(),
            head,
            strict: cq.object.strategy == crate::QueueingStrategy::StrictFIFO,
            parked: state == Some(PendingState::Parked),
            backing_off_until: wl
                .wakes_at()
                .filter(|at| wl.is_backing_off(now) && *at < Time::NEVER),
        })
    }
}

impl QueuePosition {
    fn may_be_tried(&self, now: Time) -> bool {
        self.backing_off_until.is_none_or(|until| until <= now)
    }
}

fn outlook(wl: &WorkloadEntry, not_tried: bool, solo_reason: Option<&Reason>) -> Outlook {
    match (&wl.reservation, solo_reason) {
        _ if wl.flags.finished => Outlook::Finished,
        (Some(_), _) if wl.flags.admitted => Outlook::Admitted,
        (Some(_), _) => Outlook::QuotaReserved,
        _ if not_tried => Outlook::NotTried,
        (None, None) => Outlook::Fits,
        (None, Some(Reason::Preempting { .. })) => Outlook::Preempts,
        (None, Some(_)) => Outlook::Blocked,
    }
}

impl OutlookBuilder<'_> {
    fn pod_sets(
        mut self,
        wl: &WorkloadEntry,
        assignment: Option<&Assignment>,
    ) -> Vec<PodSetOutlook> {
        let mut earlier: BTreeMap<FlavorResource, Amount> = BTreeMap::new();
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
        earlier: &BTreeMap<FlavorResource, Amount>,
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
        group: &FlavorGroup,
        flavor: &GroupFlavor,
        pod_set: &PodSet,
        requests: &BTreeMap<Name, Amount>,
        earlier: &BTreeMap<FlavorResource, Amount>,
    ) -> FlavorOutlook {
        let mismatch = match self.engine.referenced.flavors.get(&flavor.name) {
            Some(object) => flavors::mismatch(object, pod_set),
            None => Some(Cause::FlavorMissing { flavor: flavor.name.clone() }),
        };
        let mismatch = mismatch
            .or_else(|| flavors::pin_not_listed(&self.cq.groups, group, pod_set, requests))
            .or_else(|| flavors::pinned_elsewhere(&flavor.name, group, pod_set, requests));
        let mut resources = Vec::new();
        for (resource, fr) in group.resources.iter().zip(&flavor.flavor_resources) {
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
        fr: FlavorResource,
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
            withheld: tree.withheld_from(node, fr),
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

    /// Adds the outcome of preemption for a resource without enough quota.
    fn preemption(&mut self, fr: FlavorResource, amount: Amount, outlook: &mut ResourceOutlook) {
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
        let found = chooser.outlook(&mut self.tree, RequestedAmount { fr, amount, may_preempt });
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
