//! The engine's figures, published for readers. Each queue's figures are one immutable value.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;
use switchyard_scheduler::{
    Amount, ChangedQueues, CohortView, Engine, InactiveCause, LargestFreeDomain, LocalQueueKey,
    Name, PastUsage, ResourceQuota, ResourceUsage,
};

use crate::{
    engine::capacity::{Capacity, FlavorCapacity, FlavorInfo, LevelCapacity, LocalQueueCapacity},
    stores::Stores,
};
use switchyard_platform::{store::Key, work_queue::Queue};

/// A ClusterQueue's figures at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterQueueFigures {
    /// Empty when active; else all causes. The first gives the condition's reason.
    pub inactive: Vec<InactiveCause>,
    /// `status.flavorsReservation`, in the order of the spec.
    pub reservation: Vec<ResourceUsage>,
    /// `status.flavorsUsage`.
    pub usage: Vec<ResourceUsage>,
    /// Quota and what is left of it.
    pub quota: Vec<ResourceQuota>,
    /// Pending workloads that will be attempted.
    pub pending_active: usize,
    /// Pending workloads that are inadmissible until something changes.
    pub pending_inadmissible: usize,
    /// The inadmissible ones by LocalQueue, without zeros.
    pub parked: BTreeMap<LocalQueueKey, usize>,
    /// Requests of all pending workloads by resource. Empty if those metrics are off.
    pub pending_requests: BTreeMap<Name, Amount>,
    /// Workloads with reserved quota, unwritten reservations included.
    pub reserving: usize,
    pub admitted: usize,
    /// `status.fairSharing.weightedShare`: borrowed share of lendable quota by weight, in
    /// thousandths. `i64::MAX` for weight zero.
    pub weighted_share: i64,
    /// The same before rounding up. Infinite for weight zero.
    pub precise_share: f64,
    /// The parent Cohort and the root Cohort.
    pub cohorts: Option<(String, String)>,
}

/// A LocalQueue's figures at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalQueueFigures {
    pub cluster_queue: String,
    /// `None` when active.
    pub inactive: Option<InactiveCause>,
    /// `status.flavorsReservation`.
    pub reservation: Vec<ResourceUsage>,
    /// `status.flavorsUsage`.
    pub usage: Vec<ResourceUsage>,
    pub pending: usize,
    /// Workloads with reserved quota.
    pub reserving: usize,
    pub admitted: usize,
    /// Past usage, with admission fair sharing.
    pub past_usage: Option<PastUsage>,
    /// Past usage by weight, pending penalties included. Infinite for weight zero.
    pub weighted_usage: Option<f64>,
}

/// The newest figures of every queue. Cheap to read; only the engine's task writes.
#[derive(Debug, Default)]
pub struct Views {
    // Whether `pending_requests` are published.
    resources: bool,
    cluster_queues: RwLock<BTreeMap<String, Arc<ClusterQueueFigures>>>,
    local_queues: RwLock<BTreeMap<Key, Arc<LocalQueueFigures>>>,
    cohorts: RwLock<BTreeMap<String, Arc<CohortView>>>,
    topologies: RwLock<Arc<Vec<LargestFreeDomain>>>,
    /// Names of changed ClusterQueues.
    pub(crate) cluster_queue_changes: Queue<Key>,
    /// Names of changed LocalQueues.
    pub(crate) local_queue_changes: Queue<Key>,
    /// Names of changed Cohorts.
    pub(crate) cohort_changes: Queue<Key>,
    // Names of ClusterQueues that became active or inactive.
    activity: Queue<Key>,
}

impl Views {
    /// Empty views. `resources`: whether to publish `pending_requests`.
    pub(crate) fn new(resources: bool) -> Self {
        Self { resources, ..Self::default() }
    }

    #[must_use]
    pub fn cluster_queue(&self, name: &str) -> Option<Arc<ClusterQueueFigures>> {
        self.cluster_queues.read().get(name).cloned()
    }

    #[must_use]
    pub fn local_queue(&self, namespace: &str, name: &str) -> Option<Arc<LocalQueueFigures>> {
        self.local_queues.read().get(&Key::new(namespace, name)).cloned()
    }

    #[must_use]
    pub fn cluster_queues(&self) -> BTreeMap<String, Arc<ClusterQueueFigures>> {
        self.cluster_queues.read().clone()
    }

    #[must_use]
    pub fn local_queues(&self) -> BTreeMap<Key, Arc<LocalQueueFigures>> {
        self.local_queues.read().clone()
    }

    /// The figures of a Cohort, with or without an object.
    #[must_use]
    pub fn cohort(&self, name: &str) -> Option<Arc<CohortView>> {
        self.cohorts.read().get(name).cloned()
    }

    #[must_use]
    pub fn cohorts(&self) -> BTreeMap<String, Arc<CohortView>> {
        self.cohorts.read().clone()
    }

    /// The largest free domain of each level of each flavor with a topology.
    #[must_use]
    pub fn largest_free_domains(&self) -> Arc<Vec<LargestFreeDomain>> {
        self.topologies.read().clone()
    }

    /// Publishes the largest free domains. Returns whether they changed.
    pub(crate) fn update_topologies(&self, engine: &Engine) -> bool {
        let now = engine.largest_free_domains();
        let mut known = self.topologies.write();
        let changed = **known != now;
        if changed {
            *known = Arc::new(now);
        }
        changed
    }

    /// Queue of the ClusterQueues that became active or inactive.
    pub(crate) fn activity(&self) -> Queue<Key> {
        self.activity.clone()
    }

    pub(crate) fn update(&self, engine: &Engine, changed: &ChangedQueues) {
        for name in &changed.cohorts {
            let view = engine.cohort(name);
            let mut cohorts = self.cohorts.write();
            match view {
                Some(view) => drop(cohorts.insert(name.to_string(), Arc::new(view))),
                None => drop(cohorts.remove(&**name)),
            }
            drop(cohorts);
            self.cohort_changes.add(Key::new("", name));
        }
        for name in &changed.cluster_queues {
            let figures = cluster_queue(engine, name, self.resources);
            let active = figures.as_ref().map(|figures| figures.inactive.is_empty());
            let mut queues = self.cluster_queues.write();
            let before = match figures {
                Some(figures) => queues.insert(name.to_string(), Arc::new(figures)),
                None => queues.remove(&**name),
            };
            drop(queues);
            if before.map(|figures| figures.inactive.is_empty()) != active {
                self.activity.add(Key::new("", name));
            }
            self.cluster_queue_changes.add(Key::new("", name));
        }
        for key in &changed.local_queues {
            let figures = local_queue(engine, key);
            let slot = Key { namespace: key.namespace.clone(), name: key.name.clone() };
            let mut queues = self.local_queues.write();
            match figures {
                Some(figures) => drop(queues.insert(slot.clone(), Arc::new(figures))),
                None => drop(queues.remove(&slot)),
            }
            drop(queues);
            self.local_queue_changes.add(slot);
        }
    }

    /// The capacity of each LocalQueue. It reads the engine, because what a queue can borrow
    /// changes with other queues.
    pub(crate) fn capacity(&self, engine: &Engine, stores: &Stores) -> Capacity {
        let names = self.cluster_queues().into_keys();
        let cluster_queues: BTreeMap<String, ClusterQueueFigures> = names
            .filter_map(|name| cluster_queue(engine, &name, false).map(|figures| (name, figures)))
            .collect();
        let mut capacity = Capacity::default();
        let domains = self.largest_free_domains();
        for (key, local) in self.local_queues() {
            let behind = cluster_queues.get(&local.cluster_queue);
            let inactive = local.inactive.as_ref().map(|inactive| inactive.message.clone());
            let queue = LocalQueueCapacity {
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
                cluster_queue: local.cluster_queue.clone(),
                inactive: inactive
                    .or_else(|| behind?.inactive.first().map(|inactive| inactive.message.clone())),
                amounts: behind
                    .map(|queue| {
                        queue.quota.iter().map(|quota| flavor_capacity(quota, &domains)).collect()
                    })
                    .unwrap_or_default(),
                pending: behind.map_or(0, |queue| {
                    u32::try_from(queue.pending_active + queue.pending_inadmissible)
                        .unwrap_or(u32::MAX)
                }),
            };
            for amount in &queue.amounts {
                if let Some(flavor) = stores.resource_flavors.get("", &amount.flavor) {
                    let info = FlavorInfo {
                        labels: flavor.spec.node_labels.clone(),
                        taints: flavor.spec.node_taints.clone(),
                    };
                    capacity.flavors.insert(amount.flavor.clone(), info);
                }
            }
            capacity.local_queues.push(queue);
        }
        capacity
    }
}

fn flavor_capacity(quota: &ResourceQuota, domains: &[LargestFreeDomain]) -> FlavorCapacity {
    let own = domains
        .iter()
        .filter(|domain| domain.flavor == quota.flavor && domain.resource == quota.resource);
    let level = |domain: &LargestFreeDomain| LevelCapacity {
        level: domain.level.to_string(),
        largest_free: domain.free.get(),
        total_free: domain.total.get(),
    };
    FlavorCapacity {
        flavor: quota.flavor.to_string(),
        resource: quota.resource.to_string(),
        nominal: quota.nominal.get(),
        used: quota.reserved.get(),
        available: quota.available.get(),
        potential: quota.potential.get(),
        levels: own.map(level).collect(),
    }
}

fn cluster_queue(engine: &Engine, name: &str, resources: bool) -> Option<ClusterQueueFigures> {
    let view = engine.cluster_queue(name)?;
    Some(ClusterQueueFigures {
        inactive: view.active.err().unwrap_or_default(),
        reservation: view.reservation,
        usage: view.usage,
        quota: view.quota,
        pending_active: view.pending_active,
        pending_inadmissible: view.pending_inadmissible,
        parked: engine.parked_by_local_queue(name),
        pending_requests: if resources { engine.pending_requests(name) } else { BTreeMap::new() },
        reserving: view.reserving,
        admitted: view.admitted,
        weighted_share: view.weighted_share,
        precise_share: view.precise_share,
        cohorts: engine
            .cohorts_above(name)
            .map(|(parent, root)| (parent.to_string(), root.to_string())),
    })
}

fn local_queue(engine: &Engine, key: &LocalQueueKey) -> Option<LocalQueueFigures> {
    let view = engine.local_queue(key)?;
    Some(LocalQueueFigures {
        cluster_queue: view.cluster_queue.to_string(),
        inactive: view.active.err(),
        reservation: view.reservation,
        usage: view.usage,
        pending: view.pending,
        reserving: view.reserving,
        admitted: view.admitted,
        weighted_usage: view.past_usage.as_ref().map(|_| engine.weighted_usage(key)),
        past_usage: view.past_usage,
    })
}
