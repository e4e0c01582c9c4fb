//! The charges of Workloads.

use std::collections::{BTreeMap, BTreeSet};

use switchyard_api::quantity::try_amount_of;
use switchyard_api::v1beta2::{PodSetAssignment, Workload};
use switchyard_jobs::elastic;

use crate::amounts::Amounts;
use crate::cluster::key;
use crate::workload::reservation;

/// The longest chain of slices with quota. Real chains have three, for a moment; longer ones are
/// forged.
const MAX_SLICES: usize = 8;

/// By index in the list of Workloads.
pub(crate) struct Charges(Vec<Option<Amounts>>);

impl Charges {
    pub(crate) fn of(workloads: &[Workload]) -> Self {
        let replaced = replaced(workloads);
        let charge = |(index, workload)| {
            if replaced.contains(&index) { Some(Amounts::default()) } else { charge(workload) }
        };
        Self(workloads.iter().enumerate().map(charge).collect())
    }

    /// `None` if an amount of the Workload is unreadable.
    pub(crate) fn get(&self, index: usize) -> Option<&Amounts> {
        self.0.get(index)?.as_ref()
    }

    /// `None` if one of the charges is unreadable.
    pub(crate) fn sum(&self, indices: impl IntoIterator<Item = usize>) -> Option<Amounts> {
        let mut sum = Amounts::default();
        for index in indices {
            sum.add_all(self.get(index)?);
        }
        Some(sum)
    }
}

/// The charge of a Workload by itself: its admission without reclaimable pods.
fn charge(workload: &Workload) -> Option<Amounts> {
    let mut charged = Amounts::default();
    let assignments =
        reservation(workload).map(|admission| admission.pod_set_assignments.as_slice());
    for assignment in assignments.unwrap_or_default() {
        let (count, needed) =
            (i64::from(assignment.count.unwrap_or(0)), needed(workload, assignment));
        for (resource, flavor) in &assignment.flavors {
            let total =
                assignment.resource_usage.get(resource).map(|total| try_amount_of(resource, total));
            let total = total.transpose().ok()?.unwrap_or(0);
            let part = if count > 0 && needed < count {
                (total / count).saturating_mul(needed)
            } else {
                total
            };
            charged.add(flavor, resource, part);
        }
    }
    Some(charged)
}

/// A pod set's count without `status.reclaimablePods`.
fn needed(workload: &Workload, assignment: &PodSetAssignment) -> i64 {
    let Some(pod_set) =
        workload.spec.pod_sets.iter().find(|pod_set| pod_set.name == assignment.name)
    else {
        return i64::from(assignment.count.unwrap_or(0));
    };
    let reclaimable = workload.status.iter().flat_map(|status| &status.reclaimable_pods);
    let mut of_set = reclaimable
        .filter(|pods| pods.name == pod_set.name && !elastic::is_outdated(workload, pods));
    let gone = of_set.next_back().map_or(0, |pods| i64::from(pods.count));
    let count = i64::from(pod_set.count).max(0);
    count - gone.clamp(0, count)
}

/// The replaced slices of elastic jobs. They charge nothing, because a newer slice has quota of the
/// same ClusterQueue.
fn replaced(workloads: &[Workload]) -> BTreeSet<usize> {
    let by_key: BTreeMap<_, _> =
        workloads.iter().enumerate().map(|(index, it)| (key(&it.metadata), index)).collect();
    let old_of = |new: &Workload| {
        let queue = &reservation(new).filter(|_| elastic::is_slice(new))?.cluster_queue;
        let old_key = elastic::replacement_for(new)?.split_once('/')?;
        let old = *by_key.get(&old_key).filter(|_| old_key.0 == key(&new.metadata).0)?;
        (reservation(workloads.get(old)?)?.cluster_queue == *queue).then_some(old)
    };
    let old_of: BTreeMap<usize, usize> = workloads
        .iter()
        .enumerate()
        .filter_map(|(new, workload)| Some((new, old_of(workload)?)))
        .collect();
    old_of
        .iter()
        .filter(|(new, old)| ends_without(&old_of, **old, **new))
        .map(|(_, old)| *old)
        .collect()
}

/// Whether the chain of slices from `old` ends without reaching `new`.
fn ends_without(old_of: &BTreeMap<usize, usize>, old: usize, new: usize) -> bool {
    let mut chain =
        std::iter::successors(Some(old), |at| old_of.get(at).copied()).take(MAX_SLICES + 1);
    let mut length = 0;
    chain.all(|at| {
        length += 1;
        at != new && length <= MAX_SLICES
    })
}
