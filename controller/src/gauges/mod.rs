//! Gauges, read from the published views at each scrape.

mod cohorts;
mod shares;
mod topologies;
mod workloads;

use std::{fmt, sync::Arc};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, metrics::MetricType};
use switchyard_api::conditions::reasons;
use switchyard_scheduler::{Amount, InactiveCause, LocalQueueKey, ResourceUsage};

pub(crate) use self::shares::LastShares;
use crate::metrics::{
    Metrics,
    custom::{self, CustomLabels},
};
use crate::{
    engine::views::{ClusterQueueFigures, LocalQueueFigures, Views},
    stores::Stores,
};
use switchyard_platform::store::Key;

pub(crate) struct Gauges {
    pub(crate) views: Arc<Views>,
    pub(crate) stores: Arc<Stores>,
    pub(crate) metrics: std::sync::Weak<Metrics>,
    /// `metrics.enableClusterQueueResources`.
    pub(crate) resources: bool,
    /// Kueue's `UnadmittedWorkloadsObservability`: count unadmitted workloads by reason.
    pub(crate) unadmitted: bool,
    /// Fair sharing is on.
    pub(crate) fair: bool,
    /// The last rendered shares of ClusterQueues.
    pub(crate) shares: LastShares,
    /// Labels that split admitted workloads.
    pub(crate) custom: Option<Arc<CustomLabels>>,
}

impl fmt::Debug for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gauges").finish_non_exhaustive()
    }
}

type Labels = Vec<(&'static str, String)>;
type Series = Vec<((Labels, custom::Labels), f64)>;

/// All families of one scrape, in the order of their first series.
#[derive(Default)]
struct Families(Vec<(&'static str, &'static str, Series)>);

impl Families {
    fn add(&mut self, name: &'static str, help: &'static str, labels: Labels, value: f64) {
        self.add_with(name, help, (labels, custom::Labels::new()), value);
    }

    fn add_with(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: (Labels, custom::Labels),
        value: f64,
    ) {
        match self.0.iter_mut().find(|(known, ..)| *known == name) {
            Some((.., series)) => series.push((labels, value)),
            None => self.0.push((name, help, vec![(labels, value)])),
        }
    }
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let role = self.metrics.upgrade().map_or("standalone", |metrics| metrics.role().as_str());
        let mut families = Families::default();
        let mut by_labels = self.custom.as_ref().and_then(|custom| custom.admitted());
        for (name, figures) in self.views.cluster_queues() {
            self.cluster_queue(&mut families, &name, &figures, role);
            let admitted = match &mut by_labels {
                Some(by_labels) => by_labels.remove(&name).unwrap_or_default(),
                None => [(custom::Labels::new(), figures.admitted)].into(),
            };
            for (labels, count) in admitted {
                let labels = (of_cluster_queue(&name, role), labels);
                families.add_with(
                    "kueue_admitted_active_workloads",
                    "Admitted workloads",
                    labels,
                    number(count),
                );
            }
        }
        self.local_queues(&mut families, role);
        shares::add(self, &mut families, role);
        cohorts::add(self, &mut families, role);
        topologies::add(self, &mut families, role);
        workloads::add(self, &mut families, role);
        for (name, help, series) in families.0 {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, value) in series {
                family.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }
}

impl Gauges {
    fn cluster_queue(
        &self,
        families: &mut Families,
        name: &str,
        figures: &ClusterQueueFigures,
        role: &str,
    ) {
        let queue = || of_cluster_queue(name, role);
        let with = |key: &'static str, value: &str| {
            let mut labels = queue();
            labels.push((key, value.to_owned()));
            labels
        };
        // As in Kueue, an inactive queue has no active workloads.
        let (active, inadmissible) = match figures.inactive.is_empty() {
            true => (figures.pending_active, figures.pending_inadmissible),
            false => (0, figures.pending_active + figures.pending_inadmissible),
        };
        for (status, count) in [("active", active), ("inadmissible", inadmissible)] {
            families.add(
                "kueue_pending_workloads",
                "Pending workloads per ClusterQueue",
                with("status", status),
                number(count),
            );
        }
        families.add(
            "kueue_reserving_active_workloads",
            "Workloads that hold quota",
            queue(),
            number(figures.reserving),
        );
        let now = state(&figures.inactive);
        for status in ["pending", "active", "terminating"] {
            let value = f64::from(u8::from(status == now));
            families.add(
                "kueue_cluster_queue_status",
                "Which state a ClusterQueue is in",
                with("status", status),
                value,
            );
        }
        // Without a Cohort, or below a cycle of Cohorts, both are empty.
        let (parent, root) = figures.cohorts.clone().unwrap_or_default();
        let place = [queue(), vec![("parent_cohort", parent), ("root_cohort", root)]].concat();
        families.add("kueue_cluster_queue_info", "Where a ClusterQueue stands", place, 1.0);
        for (resource, requested) in &figures.pending_requests {
            families.add(
                "kueue_cluster_queue_resource_pending",
                "Requests of pending workloads per resource",
                with("resource", resource),
                amount(resource, *requested),
            );
        }
        if self.resources {
            self.cluster_queue_resources(families, name, figures, role);
        }
    }

    fn cluster_queue_resources(
        &self,
        families: &mut Families,
        name: &str,
        figures: &ClusterQueueFigures,
        role: &str,
    ) {
        let spec = self.stores.cluster_queues.get("", name);
        let cohort = spec.and_then(|queue| queue.spec.cohort_name.clone()).unwrap_or_default();
        let labels = |flavor: &str, resource: &str| {
            vec![
                ("cohort", cohort.clone()),
                ("cluster_queue", name.to_owned()),
                ("flavor", flavor.to_owned()),
                ("resource", resource.to_owned()),
                ("replica_role", role.to_owned()),
            ]
        };
        let mut used = |metric, help, usage: &[ResourceUsage]| {
            for entry in usage {
                families.add(
                    metric,
                    help,
                    labels(&entry.flavor, &entry.resource),
                    amount(&entry.resource, entry.total),
                );
            }
        };
        used(
            "kueue_cluster_queue_resource_reservation",
            "Reserved per flavor and resource",
            &figures.reservation,
        );
        used(
            "kueue_cluster_queue_resource_usage",
            "Used by admitted workloads per flavor and resource",
            &figures.usage,
        );
        for quota in &figures.quota {
            let place = || labels(&quota.flavor, &quota.resource);
            let limit = |limit: Option<Amount>| {
                limit.map_or(f64::INFINITY, |limit| amount(&quota.resource, limit))
            };
            let nominal = amount(&quota.resource, quota.nominal);
            families.add(
                "kueue_cluster_queue_nominal_quota",
                "Nominal quota per flavor and resource",
                place(),
                nominal,
            );
            let borrow = limit(quota.borrowing_limit);
            families.add(
                "kueue_cluster_queue_borrowing_limit",
                "Borrowing limit, +Inf when unlimited",
                place(),
                borrow,
            );
            let lend = limit(quota.lending_limit);
            families.add(
                "kueue_cluster_queue_lending_limit",
                "Lending limit, +Inf when unlimited",
                place(),
                lend,
            );
        }
    }

    /// A LocalQueue's active and inadmissible pending workloads. Inadmissible are parked ones, and
    /// all behind an inactive ClusterQueue. As in Kueue, a stopped LocalQueue has none.
    fn pending(
        &self,
        key: &Key,
        figures: &LocalQueueFigures,
    ) -> Option<[(&'static str, usize); 2]> {
        if figures
            .inactive
            .as_ref()
            .is_some_and(|inactive| inactive.reason == reasons::local_queue::STOPPED)
        {
            return None;
        }
        let behind = self.views.cluster_queue(&figures.cluster_queue);
        let of_queue = LocalQueueKey { namespace: key.namespace.clone(), name: key.name.clone() };
        let (pending, parked) = match &behind {
            None => (0, 0),
            Some(behind) if !behind.inactive.is_empty() => (figures.pending, figures.pending),
            Some(behind) => (
                figures.pending,
                behind.parked.get(&of_queue).copied().unwrap_or(0).min(figures.pending),
            ),
        };
        Some([("active", pending - parked), ("inadmissible", parked)])
    }

    fn shows(&self, key: &Key) -> bool {
        self.metrics.upgrade().is_none_or(|metrics| metrics.shows_local_queue(key))
    }

    fn local_queues(&self, families: &mut Families, role: &str) {
        for (key, figures) in
            self.views.local_queues().into_iter().filter(|(key, _)| self.shows(key))
        {
            let queue = of_local_queue(&key, role);
            let with = |key: &'static str, value: &str| {
                [queue.clone(), vec![(key, value.to_owned())]].concat()
            };
            for (status, count) in self.pending(&key, &figures).into_iter().flatten() {
                families.add(
                    "kueue_local_queue_pending_workloads",
                    "Pending per LocalQueue",
                    with("status", status),
                    number(count),
                );
            }
            let is_active = if figures.inactive.is_none() { "True" } else { "False" };
            for active in ["True", "False", "Unknown"] {
                let value = f64::from(u8::from(active == is_active));
                families.add(
                    "kueue_local_queue_status",
                    "Whether a LocalQueue is active",
                    with("active", active),
                    value,
                );
            }
            if let Some(used) = figures.weighted_usage {
                families.add(
                    "kueue_local_queue_admission_fair_sharing_usage",
                    "Past use by weight, pending penalties included: who has less goes first",
                    with("cluster_queue", &figures.cluster_queue),
                    used,
                );
            }
            // Quota belongs to the ClusterQueue.
            if self.views.cluster_queue(&figures.cluster_queue).is_some() {
                local_queue_quota(families, &queue, &figures);
            }
        }
    }
}

fn state(inactive: &[InactiveCause]) -> &'static str {
    match inactive.iter().any(|cause| cause.reason == reasons::cluster_queue::TERMINATING) {
        true => "terminating",
        false if inactive.is_empty() => "active",
        false => "pending",
    }
}

fn of_cluster_queue(name: &str, role: &str) -> Labels {
    vec![("cluster_queue", name.to_owned()), ("replica_role", role.to_owned())]
}

fn of_local_queue(key: &Key, role: &str) -> Labels {
    let (name, namespace) = (key.name.to_string(), key.namespace.to_string());
    vec![("name", name), ("namespace", namespace), ("replica_role", role.to_owned())]
}

fn local_queue_quota(families: &mut Families, queue: &Labels, figures: &LocalQueueFigures) {
    let reserving = number(figures.reserving);
    families.add(
        "kueue_local_queue_reserving_active_workloads",
        "Workloads that hold quota",
        queue.clone(),
        reserving,
    );
    let admitted = number(figures.admitted);
    families.add(
        "kueue_local_queue_admitted_active_workloads",
        "Admitted workloads",
        queue.clone(),
        admitted,
    );
    let mut used = |metric, help, usage: &[ResourceUsage]| {
        for entry in usage {
            let mut labels = queue.clone();
            labels.extend([
                ("flavor", entry.flavor.to_string()),
                ("resource", entry.resource.to_string()),
            ]);
            families.add(metric, help, labels, amount(&entry.resource, entry.total));
        }
    };
    used(
        "kueue_local_queue_resource_reservation",
        "Reserved per flavor and resource",
        &figures.reservation,
    );
    used("kueue_local_queue_resource_usage", "Used by admitted workloads", &figures.usage);
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn number(count: usize) -> f64 {
    count as f64
}

/// As in Kueue: cores for `cpu`, base units for other resources.
#[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
fn amount(resource: &str, amount: Amount) -> f64 {
    if amount.is_unlimited() {
        return f64::INFINITY;
    }
    if resource == "cpu" { amount.get() as f64 / 1000.0 } else { amount.get() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::active(&[], "active")]
    #[case::stopped(&["Stopped"], "pending")]
    #[case::terminating(&["Terminating"], "terminating")]
    #[case::cohort_cycle(&["CohortCycleDetected"], "pending")]
    fn cluster_queue_status_follows_inactive_causes(
        #[case] causes: &[&'static str],
        #[case] expected: &str,
    ) {
        let inactive = |reason: &&'static str| InactiveCause { reason, message: String::new() };
        assert_eq!(state(&causes.iter().map(inactive).collect::<Vec<_>>()), expected);
    }
}
