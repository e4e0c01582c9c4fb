//! Flavors that the hub charged, within one resource group of a cluster's queue.

use super::{LocalQueueCapacity, QueueFlavor, ResourceGroup, matches, untolerated};
use crate::{ClusterPins, Name};
use switchyard_scheduler::{PinQueue, PodSet, not_the_pinned_flavor};

/// Whether a workload would use the flavors that the hub charged. The first is best.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PinMatch {
    /// It uses no others: the cluster enforces pins, or no other flavor matches its pods.
    #[default]
    Kept,
    /// The cluster would use them now, and others at another time.
    Likely,
    /// The cluster would use others.
    Unlikely,
}

/// The pins of one pod set for the resources that it requests of a group: resource and flavor.
pub(super) struct GroupPins<'a>(Vec<(&'a str, &'a str)>);

impl<'a> GroupPins<'a> {
    pub(super) fn of(pod_set: &PodSet, wanted: &[(&'a Name, i64)], pins: ClusterPins<'a>) -> Self {
        let pin = |resource: &'a Name| Some((&**resource, pins.get(&pod_set.name, resource)?));
        Self(wanted.iter().filter_map(|(resource, _)| pin(resource)).collect())
    }

    /// Why the flavor is not the pinned one.
    pub(super) fn elsewhere(&self, flavor: &QueueFlavor) -> Option<String> {
        let (resource, pin) = self.0.iter().find(|(_, pin)| *pin != &*flavor.name)?;
        Some(not_the_pinned_flavor(&flavor.name, pin, resource))
    }

    /// Set if the queue does not list a pinned flavor.
    pub(super) fn missing(
        &self,
        queue: &LocalQueueCapacity,
        group: &ResourceGroup<'_>,
    ) -> Option<String> {
        let is_listed = |pin: &str| group.flavors.iter().any(|flavor| &*flavor.name == pin);
        let (resource, pin) = self.0.iter().find(|(_, pin)| !is_listed(pin))?;
        let cluster_queue = PinQueue::OfWorker(&queue.cluster_queue);
        Some(match queue.flavors.iter().any(|flavor| &*flavor.name == *pin) {
            true => cluster_queue.lacks_resource(pin, resource),
            false => cluster_queue.not_listed(pin, resource),
        })
    }

    /// Whether a cluster that does not know pins would use the pinned flavor, if it would choose
    /// `chosen` now.
    pub(super) fn match_of(
        &self,
        chosen: &QueueFlavor,
        pod_set: &PodSet,
        group: &ResourceGroup<'_>,
    ) -> PinMatch {
        if self.0.is_empty() {
            return PinMatch::Kept;
        }
        if self.elsewhere(chosen).is_some() {
            return PinMatch::Unlikely;
        }
        let fits = |flavor: &&QueueFlavor| {
            untolerated(pod_set, flavor).is_none() && matches(pod_set, flavor)
        };
        if group.flavors.iter().filter(|flavor| fits(flavor)).count() > 1 {
            PinMatch::Likely
        } else {
            PinMatch::Kept
        }
    }
}
