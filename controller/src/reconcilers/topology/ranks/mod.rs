//! Decides which gated pod of a workload goes to which domain. Pure.
//!
//! If the job numbers its pods, the pod of rank i gets the i-th place, so that neighbours run near
//! each other. If that fails for any pod of a pod set, its pods take free places in the order of
//! their names. As Kueue's `pkg/controller/tas/topology_ungater.go`.

use std::{collections::BTreeMap, sync::Arc};

use switchyard_api::{
    names,
    v1beta2::{PodSetAssignment, PodSetTopologyRequest, TopologyAssignment, Workload},
};

use crate::stores::pods::PodRecord;

pub(crate) use switchyard_scheduler::HOSTNAME_LABEL as HOSTNAME;

#[derive(Debug, Clone)]
pub(crate) struct Ungating<'a> {
    pub(crate) pod: &'a Arc<PodRecord>,
    pub(crate) selector: BTreeMap<String, String>,
}

/// Gated pods that can go, with their node selectors. `pods`: all pods of the workload.
pub(crate) fn pods_to_ungate<'a>(
    workload: &Workload,
    pods: &'a [Arc<PodRecord>],
) -> Vec<Ungating<'a>> {
    let Some(admission) = workload.status.as_ref().and_then(|status| status.admission.as_ref())
    else {
        return Vec::new();
    };
    let failed = workload.status.iter().flat_map(|status| &status.unhealthy_nodes);
    let failed: Vec<&str> = failed.map(|node| node.name.as_str()).collect();
    let mut all = Vec::new();
    for assignment in &admission.pod_set_assignments {
        let Some(topology) = &assignment.topology_assignment else { continue };
        let mut own: Vec<_> = pods.iter().filter(|pod| is_of(pod, &assignment.name)).collect();
        own.sort_by(|a, b| name(a).cmp(name(b)));
        let places = Domains::of(topology);
        let numbering = Numbering::of(workload, &admission.pod_set_assignments, assignment, &own);
        let by_rank = numbering.and_then(|numbering| numbering.places(&own, &places));
        let placed = by_rank.unwrap_or_else(|| places.fill_free(&own));
        let placed = placed.into_iter().filter(|(_, place)| !places.is_on(*place, &failed));
        all.extend(placed.map(|(pod, place)| Ungating { pod, selector: places.selector(place) }));
    }
    all
}

fn is_of(pod: &PodRecord, pod_set: &str) -> bool {
    pod.pod_set() == pod_set && pod.placed().is_some_and(|placed| !placed.ended)
}

fn name(pod: &PodRecord) -> &str {
    kube::Resource::meta(pod).name.as_deref().unwrap_or_default()
}

fn is_gated(pod: &PodRecord) -> bool {
    pod.placed().is_some_and(|placed| placed.is_gated())
}

struct Domains<'a> {
    levels: &'a [String],
    /// Level values and pod count of each domain.
    domains: Vec<(Vec<String>, usize)>,
}

impl<'a> Domains<'a> {
    fn of(topology: &'a TopologyAssignment) -> Self {
        let domains =
            topology.domains().map(|it| (it.values, usize::try_from(it.count).unwrap_or_default()));
        Self { levels: &topology.levels, domains: domains.collect() }
    }

    fn selector(&self, place: usize) -> BTreeMap<String, String> {
        let values =
            self.domains.get(place).map(|(values, _)| values.as_slice()).unwrap_or_default();
        self.levels.iter().cloned().zip(values.iter().cloned()).collect()
    }

    /// The domain that a pod's node selector names.
    fn domain_of(&self, pod: &PodRecord) -> Option<usize> {
        let selector = &pod.placed()?.node_selector;
        let is_it = |values: &[String]| {
            self.levels
                .iter()
                .zip(values)
                .all(|(level, value)| selector.get(level).is_some_and(|it| it == value))
        };
        self.domains.iter().position(|(values, _)| is_it(values))
    }

    fn is_on(&self, place: usize, nodes: &[&str]) -> bool {
        let by_host = self.levels.last().is_some_and(|level| level == HOSTNAME);
        let host = self.domains.get(place).and_then(|(values, _)| values.last());
        by_host && host.is_some_and(|host| nodes.contains(&host.as_str()))
    }

    fn pods(&self) -> usize {
        self.domains.iter().map(|(_, count)| count).sum()
    }

    /// The domain of each rank below `ranks`.
    fn by_rank(&self, ranks: usize) -> Vec<usize> {
        let places = self.domains.iter().enumerate();
        places
            .flat_map(|(place, (_, count))| std::iter::repeat_n(place, (*count).min(ranks)))
            .take(ranks)
            .collect()
    }

    /// Gives gated pods, ordered by name, the places that other pods leave free.
    fn fill_free<'p>(&self, pods: &[&'p Arc<PodRecord>]) -> Vec<(&'p Arc<PodRecord>, usize)> {
        let mut taken = vec![0; self.domains.len()];
        for place in pods.iter().filter(|pod| !is_gated(pod)).filter_map(|pod| self.domain_of(pod))
        {
            if let Some(taken) = taken.get_mut(place) {
                *taken += 1;
            }
        }
        let free = self.domains.iter().zip(taken).enumerate();
        let free = free.flat_map(|(place, ((_, count), taken))| {
            std::iter::repeat_n(place, count.saturating_sub(taken).min(pods.len()))
        });
        pods.iter().copied().filter(|pod| is_gated(pod)).zip(free).collect()
    }
}

/// How the pods of a pod set are numbered.
struct Numbering<'a> {
    request: &'a PodSetTopologyRequest,
    label: &'a str,
    /// Pods of the pod set.
    count: u64,
    /// The first number.
    offset: u64,
    /// One past the last number.
    end: u64,
}

impl<'a> Numbering<'a> {
    /// `None` if the pods are not numbered.
    fn of(
        workload: &'a Workload,
        all: &[PodSetAssignment],
        assignment: &PodSetAssignment,
        pods: &[&Arc<PodRecord>],
    ) -> Option<Self> {
        let request = request(workload, &assignment.name)?;
        let label = request.pod_index_label.as_deref()?;
        let count = count(assignment);
        let mut numbering = Self { request, label, count, offset: 0, end: count };
        if let Some(group) = &request.pod_set_group_name {
            numbering.within(workload, all, assignment, group);
        }
        if let Some(offset) = pods.first().and_then(|pod| pod.annotation(names::POD_INDEX_OFFSET)) {
            let offset: u64 = offset.parse().ok()?;
            numbering.offset = numbering.offset.saturating_add(offset);
            numbering.end = numbering.end.saturating_add(offset);
        }
        Some(numbering)
    }

    /// In a group of a leader and its workers, the smaller pod set is numbered first.
    fn within(
        &mut self,
        workload: &Workload,
        all: &[PodSetAssignment],
        own: &PodSetAssignment,
        group: &str,
    ) {
        let in_group = |it: &&PodSetAssignment| {
            request(workload, &it.name)
                .is_some_and(|request| request.pod_set_group_name.as_deref() == Some(group))
        };
        let mut members: Vec<_> = all.iter().filter(in_group).collect();
        members.sort_by_key(|it| count(it));
        if let [smaller, larger] = members.as_slice()
            && larger.name == own.name
        {
            self.offset = count(smaller);
            self.end = self.offset.saturating_add(self.count);
        }
    }

    fn rank(&self, pod: &PodRecord) -> Option<usize> {
        let number = |label: &str| pod.label(label)?.parse::<u64>().ok();
        let index = number(self.label).filter(|index| *index < self.end)?;
        let rank = match self.request.sub_group_index_label.as_deref() {
            None => index,
            Some(label) => {
                let groups = u64::try_from(self.request.sub_group_count?).ok()?;
                let group = number(label).filter(|group| *group < groups)?;
                let each = self.count.checked_div(groups)?;
                if index >= each {
                    return None;
                }
                index.checked_add(group.checked_mul(each)?)?
            }
        };
        let rank = rank.checked_sub(self.offset).filter(|rank| *rank < self.count)?;
        usize::try_from(rank).ok()
    }

    /// The domain of each gated pod. `None` if the numbers are incomplete or ambiguous, or another
    /// pod is not where its number says.
    fn places<'p>(
        &self,
        pods: &[&'p Arc<PodRecord>],
        places: &Domains<'_>,
    ) -> Option<Vec<(&'p Arc<PodRecord>, usize)>> {
        let ranks: Vec<usize> = pods.iter().map(|pod| self.rank(pod)).collect::<Option<_>>()?;
        let mut seen = ranks.clone();
        seen.sort_unstable();
        seen.dedup();
        if seen.len() != ranks.len() || seen.last().is_some_and(|last| *last >= places.pods()) {
            return None;
        }
        let by_rank = places.by_rank(seen.last().map_or(0, |last| last + 1));
        let placed =
            pods.iter().copied().zip(&ranks).map(|(pod, rank)| Some((pod, *by_rank.get(*rank)?)));
        let placed: Vec<_> = placed.collect::<Option<_>>()?;
        let is_there = |(pod, place): &&(&Arc<PodRecord>, usize)| {
            let selector = places.selector(*place);
            let has = pod.placed().map(|placed| &placed.node_selector);
            has.is_some_and(|has| {
                selector.iter().all(|(level, value)| has.get(level) == Some(value))
            })
        };
        let (gated, others): (Vec<_>, Vec<_>) =
            placed.into_iter().partition(|(pod, _)| is_gated(pod));
        others.iter().all(|other| is_there(&other)).then_some(gated)
    }
}

fn request<'a>(workload: &'a Workload, pod_set: &str) -> Option<&'a PodSetTopologyRequest> {
    let pod_set = workload.spec.pod_sets.iter().find(|it| it.name == pod_set)?;
    pod_set.topology_request.as_ref()
}

fn count(assignment: &PodSetAssignment) -> u64 {
    assignment.count.and_then(|count| u64::try_from(count).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
