//! Capacity of one cluster: its last report, minus what was sent there since.
//!
//! Input: reports of quota per LocalQueue and flavor. Output: whether, and how well, a workload
//! fits. The rules are those of the worker's own quota engine, for one workload and without
//! preemption.

mod node_room;
mod pins;
mod room;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::{BTreeMap, BTreeSet};

use switchyard_scheduler::{Amount, NodeSelectorTerm, PodSet, Requirement, Taint};

use super::{ClusterPins, Name, Reason, Uid, UnixMillis};
use node_room::NodeRoom;
use pins::GroupPins;
use room::EqualPods;

pub use pins::PinMatch;
pub use room::{FlavorRoom, NodeBin, NodeFit};
pub use wire::from_wire;

/// Quota of one flavor and resource in a ClusterQueue. Amounts are milli-units for cpu, base units
/// otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlavorQuota {
    /// The nominal quota of the ClusterQueue itself.
    pub nominal: i64,
    pub used: i64,
    /// Free now, including what it may borrow.
    pub available: i64,
    /// The most that can ever be free, including what it may borrow.
    pub potential: i64,
}

/// A flavor of a LocalQueue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueFlavor {
    pub name: Name,
    /// Labels of its nodes.
    pub labels: BTreeMap<String, String>,
    /// Taints that pods must tolerate.
    pub taints: Vec<Taint>,
    pub resources: BTreeMap<Name, FlavorQuota>,
}

/// Capacity of one LocalQueue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalQueueCapacity {
    pub cluster_queue: Name,
    /// Why it admits nothing now.
    pub inactive: Option<String>,
    /// Number of pending workloads.
    pub pending: u32,
    /// In the order in which they are tried.
    pub flavors: Vec<QueueFlavor>,
}

pub type LocalQueueKey = (Name, Name);

impl LocalQueueCapacity {
    /// Whether the limits, flavors or state differ from `earlier`, so that a workload that did not
    /// fit may fit now. Usage is ignored.
    fn differs(&self, earlier: &Self) -> bool {
        let limits = |quota: &FlavorQuota| (quota.nominal, quota.potential);
        let is_like = |flavor: &QueueFlavor, earlier: &QueueFlavor| {
            let resources = flavor.resources.iter().map(|(name, quota)| (name, limits(quota)));
            let earlier_resources =
                earlier.resources.iter().map(|(name, quota)| (name, limits(quota)));
            flavor.name == earlier.name
                && flavor.labels == earlier.labels
                && flavor.taints == earlier.taints
                && resources.eq(earlier_resources)
        };
        self.cluster_queue != earlier.cluster_queue
            || self.inactive.is_some() != earlier.inactive.is_some()
            || self.flavors.len() != earlier.flavors.len()
            || !self
                .flavors
                .iter()
                .zip(&earlier.flavors)
                .all(|(flavor, earlier)| is_like(flavor, earlier))
    }
}

/// A cluster's report of its capacity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapacityReport {
    /// By namespace and name of the LocalQueue.
    pub queues: BTreeMap<LocalQueueKey, LocalQueueCapacity>,
    /// The cluster's admission uses no flavors but the pinned ones. False for stock Kueue.
    pub enforces_pins: bool,
    /// Room on nodes, by flavor. A flavor without an entry is not known.
    pub rooms: BTreeMap<Name, FlavorRoom>,
}

type Charge = ((Name, Name, Name), i64);

#[derive(Debug, Clone)]
struct Assumed {
    charges: Vec<Charge>,
    /// When the cluster reserved quota for it: the next report of quota includes it.
    counted: Option<UnixMillis>,
}

/// Milliseconds after a reservation until the last report is assumed to include it: the report may
/// have come before the observation.
const COUNTED_AT_LAST: i64 = 10_000;

#[derive(Debug, Clone, Default)]
pub struct ClusterCapacity {
    queues: BTreeMap<(Name, Name), LocalQueueCapacity>,
    enforces_pins: bool,
    node_room: NodeRoom,
    assumed: BTreeMap<Uid, Assumed>,
    /// Assumed workloads with quota, by the time of their reservation.
    counted: BTreeSet<(UnixMillis, Uid)>,
    /// Sum of `assumed` by ClusterQueue, flavor and resource.
    sums: BTreeMap<(Name, Name, Name), i64>,
}

/// Whether, and how well, a workload fits a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// Fits now.
    Now(FitScore),
    /// Does not fit now, but may when other workloads have left.
    Later {
        /// Why not now.
        reasons: Vec<Reason>,
        /// Number of workloads that wait there.
        pending: u32,
    },
    /// Cannot fit with the current configuration.
    Never(Vec<Reason>),
}

/// How well a workload fits. The smallest is best. The order of the fields is the order of
/// comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FitScore {
    /// Whether its pods would fit on nodes.
    pub nodes: NodeFit,
    /// Whether it would use the flavors that the hub charged.
    pub pins: PinMatch,
    /// It would borrow from the cohort, whose owner may reclaim it.
    pub borrows: bool,
    /// Number of kinds of devices, by flavor, that are free and not requested, in the flavors that
    /// it would use. Fewer is better, so that jobs that need them find them.
    pub spare: usize,
    /// Free share, in twentieths, of the resource with the most left. Prefers the tightest fit.
    pub left: i64,
    /// Workloads offered there that no report counts yet. Spreads a burst over equally tight
    /// clusters.
    pub busy: usize,
}

/// The amounts that a fit is checked against.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Horizon {
    Now,
    Ever,
}

impl ClusterCapacity {
    /// Replaces the report. Workloads that the cluster already counts are no longer assumed, unless
    /// the report [changes only rooms](Self::changes_only_rooms): its quota may be older than they
    /// are. Returns the queues that are new or changed.
    pub fn report(&mut self, report: CapacityReport, now: UnixMillis) -> Vec<LocalQueueKey> {
        let only_rooms = self.changes_only_rooms(&report);
        self.enforces_pins = report.enforces_pins;
        self.node_room.report(report.rooms, now);
        let before = std::mem::replace(&mut self.queues, report.queues);
        let is_new = |(place, queue): &(&LocalQueueKey, &LocalQueueCapacity)| {
            before.get(place).is_none_or(|before| queue.differs(before))
        };
        let changed = self.queues.iter().filter(is_new).map(|(place, _)| place.clone()).collect();
        if !only_rooms {
            self.release_counted_until(now);
        }
        changed
    }

    /// Whether the report changes the room on nodes and nothing else.
    pub fn changes_only_rooms(&self, report: &CapacityReport) -> bool {
        self.node_room.differs(&report.rooms)
            && self.enforces_pins == report.enforces_pins
            && self.queues == report.queues
    }

    pub fn queues(&self) -> &BTreeMap<(Name, Name), LocalQueueCapacity> {
        &self.queues
    }

    pub fn enforces_pins(&self) -> bool {
        self.enforces_pins
    }

    /// Deducts a workload until a report counts it or it does not come.
    pub fn assume(
        &mut self,
        uid: &Uid,
        (namespace, queue): (&Name, &Name),
        pod_sets: &[PodSet],
        pins: ClusterPins<'_>,
    ) {
        self.unassume(uid);
        let Some(target) = self.queues.get(&(namespace.clone(), queue.clone())) else { return };
        let Ok(placed) = self.place(target, pod_sets, pins, Horizon::Now) else { return };
        for (key, amount) in &placed.charges {
            *self.sums.entry(key.clone()).or_default() += amount;
        }
        self.node_room.send(uid, placed.pods.into_iter().flatten().collect());
        let assumed = Assumed { charges: placed.charges, counted: None };
        self.assumed.insert(uid.clone(), assumed);
    }

    /// The cluster reserved quota for the workload: the next report of quota includes it.
    pub fn counted(&mut self, uid: &Uid, now: UnixMillis) {
        self.node_room.reserve(uid, now);
        if let Some(assumed) = self.assumed.get_mut(uid).filter(|it| it.counted.is_none()) {
            assumed.counted = Some(now);
            self.counted.insert((now, uid.clone()));
        }
    }

    /// The workload does not come.
    pub fn unassume(&mut self, uid: &Uid) {
        self.node_room.withdraw(uid);
        self.release_quota(uid);
    }

    /// Ends deductions that have lasted too long. A cluster where nothing changes sends no report.
    pub fn expire(&mut self, now: UnixMillis) {
        self.node_room.expire(now);
        self.release_counted_until(now.saturating_sub(COUNTED_AT_LAST));
    }

    fn release_counted_until(&mut self, time: UnixMillis) {
        while let Some((_, uid)) = self.counted.first().filter(|(at, _)| *at <= time) {
            self.release_quota(&uid.clone());
        }
    }

    fn release_quota(&mut self, uid: &Uid) {
        let Some(assumed) = self.assumed.remove(uid) else { return };
        if let Some(at) = assumed.counted {
            self.counted.remove(&(at, uid.clone()));
        }
        for (key, amount) in assumed.charges {
            if let Some(sum) = self.sums.get_mut(&key) {
                *sum -= amount;
                if *sum == 0 {
                    self.sums.remove(&key);
                }
            }
        }
    }

    /// Whether a workload fits through this LocalQueue.
    pub fn fit(
        &self,
        namespace: &Name,
        queue: &Name,
        pod_sets: &[PodSet],
        pins: ClusterPins<'_>,
    ) -> Fit {
        let Some(target) = self.queues.get(&(namespace.clone(), queue.clone())) else {
            return Fit::Never(vec![Reason::new(
                "LocalQueueNotFound",
                format!("the cluster has no LocalQueue {namespace}/{queue}"),
            )]);
        };
        if let Some(why) = &target.inactive {
            // An administrator may resume the queue at any time, so it is not `Never`.
            let reasons = vec![Reason::new("QueueInactive", why.clone())];
            return Fit::Later { reasons, pending: target.pending };
        }
        let reasons = match self.place(target, pod_sets, pins, Horizon::Now) {
            Ok(placed) => {
                let nodes = self.node_room.fit(&placed.pods);
                return Fit::Now(FitScore { nodes, ..placed.score });
            }
            Err(reasons) => reasons,
        };
        match self.place(target, pod_sets, pins, Horizon::Ever) {
            Ok(_) => Fit::Later { reasons, pending: target.pending },
            Err(reasons) => Fit::Never(reasons),
        }
    }

    fn place(
        &self,
        queue: &LocalQueueCapacity,
        pod_sets: &[PodSet],
        pins: ClusterPins<'_>,
        horizon: Horizon,
    ) -> Result<Placement, Vec<Reason>> {
        let groups = groups(&queue.flavors);
        let mut pin_match = PinMatch::Kept;
        let mut pods = Vec::new();
        let mut taken: BTreeMap<(Name, Name), i64> = BTreeMap::new();
        for pod_set in pod_sets {
            if pod_set.count <= 0 {
                continue;
            }
            let requests: BTreeMap<&Name, i64> = pod_set
                .requests
                .iter()
                .map(|(resource, amount)| (resource, times(*amount, pod_set.count)))
                .filter(|(_, amount)| *amount > 0)
                .collect();
            let uncovered = requests
                .keys()
                .find(|r| !groups.iter().any(|group| group.resources.contains(r.as_ref())));
            if let Some(resource) = uncovered {
                let message = format!(
                    "resource {resource} unavailable in ClusterQueue {}",
                    queue.cluster_queue
                );
                return Err(vec![for_pod_set(pod_set, "NoMatchingFlavor", &message)]);
            }
            let mut chosen_flavors: Vec<&QueueFlavor> = Vec::new();
            for group in &groups {
                let wanted: Vec<(&Name, i64)> = requests
                    .iter()
                    .filter(|(resource, _)| group.resources.contains(resource.as_ref()))
                    .map(|(resource, amount)| (*resource, *amount))
                    .collect();
                if wanted.is_empty() {
                    continue;
                }
                let pins = GroupPins::of(pod_set, &wanted, pins);
                let request =
                    GroupRequest { queue, group, pod_set, wanted: &wanted, taken: &taken, horizon };
                let flavor = self.first_fitting(&request, &pins)?;
                if !self.enforces_pins {
                    pin_match = pin_match.max(pins.match_of(flavor, pod_set, group));
                }
                if !chosen_flavors.iter().any(|it| it.name == flavor.name) {
                    chosen_flavors.push(flavor);
                }
                for (resource, amount) in wanted {
                    let sum = taken.entry((flavor.name.clone(), resource.clone())).or_default();
                    *sum = sum.saturating_add(amount);
                }
            }
            // Pods in several flavors need nodes of all of them.
            pods.push(match chosen_flavors[..] {
                [flavor] => EqualPods::of(pod_set, &flavor.name, &flavor.labels),
                _ => None,
            });
        }
        let mut placed = self.placed(queue, &taken);
        placed.score.pins = pin_match;
        placed.pods = pods;
        Ok(placed)
    }

    /// The first flavor that fits. Otherwise why each does not.
    fn first_fitting<'q>(
        &self,
        request: &GroupRequest<'_, 'q>,
        pins: &GroupPins<'_>,
    ) -> Result<&'q QueueFlavor, Vec<Reason>> {
        let GroupRequest { queue, group, pod_set, .. } = *request;
        if let Some(reason) = pins.missing(queue, group).filter(|_| self.enforces_pins) {
            return Err(vec![for_pod_set(pod_set, "NoMatchingFlavor", &reason)]);
        }
        let mut refusals = Vec::new();
        for flavor in group.flavors.iter().copied() {
            let pinned = pins
                .elsewhere(flavor)
                .filter(|_| self.enforces_pins)
                .map(|reason| for_pod_set(pod_set, "NoMatchingFlavor", &reason));
            match pinned.or_else(|| self.refusal(request, flavor)) {
                None => return Ok(flavor),
                Some(reason) => refusals.push(reason),
            }
        }
        Err(refusals)
    }

    /// Why the pod set cannot use `flavor`.
    fn refusal(&self, request: &GroupRequest<'_, '_>, flavor: &QueueFlavor) -> Option<Reason> {
        let GroupRequest { queue, pod_set, wanted, taken, horizon, .. } = *request;
        if let Some(taint) = untolerated(pod_set, flavor) {
            let message = format!("untolerated taint {} in flavor {}", taint.key, flavor.name);
            return Some(for_pod_set(pod_set, "NoMatchingFlavor", &message));
        }
        if !matches(pod_set, flavor) {
            let message = format!("flavor {} doesn't match node affinity", flavor.name);
            return Some(for_pod_set(pod_set, "NoMatchingFlavor", &message));
        }
        for (resource, amount) in wanted {
            let Some(quota) = flavor.resources.get(*resource) else {
                let message = format!("resource {resource} unavailable in flavor {}", flavor.name);
                return Some(for_pod_set(pod_set, "NoMatchingFlavor", &message));
            };
            let own = taken.get(&(flavor.name.clone(), (*resource).clone())).copied().unwrap_or(0);
            let (free, code) = match horizon {
                Horizon::Now => {
                    let assumed = self.assumed(queue, flavor, resource);
                    (quota.available.saturating_sub(assumed), "WaitingForQuota")
                }
                Horizon::Ever => (quota.potential, "ExceedsMaxQuota"),
            };
            let missing = amount.saturating_sub(free.saturating_sub(own).max(0));
            if missing > 0 {
                let kind = if horizon == Horizon::Now { "unused quota" } else { "quota" };
                let message = format!(
                    "insufficient {kind} for {resource} in flavor {}, {} more needed",
                    flavor.name,
                    render(resource, missing)
                );
                return Some(for_pod_set(pod_set, code, &message));
            }
        }
        None
    }

    /// Quota that workloads sent since the last report take.
    fn assumed(&self, queue: &LocalQueueCapacity, flavor: &QueueFlavor, resource: &Name) -> i64 {
        let key = (queue.cluster_queue.clone(), flavor.name.clone(), resource.clone());
        self.sums.get(&key).copied().unwrap_or(0)
    }

    fn placed(&self, queue: &LocalQueueCapacity, taken: &BTreeMap<(Name, Name), i64>) -> Placement {
        let mut score = FitScore {
            nodes: NodeFit::Unknown,
            pins: PinMatch::Kept,
            borrows: false,
            spare: 0,
            left: 0,
            busy: self.assumed.len(),
        };
        let mut charges = Vec::new();
        for flavor in &queue.flavors {
            if !taken.keys().any(|(name, _)| *name == flavor.name) {
                continue;
            }
            for (resource, quota) in &flavor.resources {
                let assumed = self.assumed(queue, flavor, resource);
                let free = quota.available.saturating_sub(assumed);
                match taken.get(&(flavor.name.clone(), resource.clone())) {
                    Some(amount) => {
                        let used = quota.used.saturating_add(assumed).saturating_add(*amount);
                        score.borrows |= used > quota.nominal;
                        let left = i128::from(free.saturating_sub(*amount).max(0));
                        let twentieths =
                            (left * 20 / i128::from(quota.potential.max(1))).min(20) as i64;
                        score.left = score.left.max(twentieths);
                        let key =
                            (queue.cluster_queue.clone(), flavor.name.clone(), resource.clone());
                        charges.push((key, *amount));
                    }
                    // Names with a slash are extended resources, that is devices.
                    None if resource.contains('/') && free > 0 => score.spare += 1,
                    None => {}
                }
            }
        }
        Placement { score, charges, pods: Vec::new() }
    }
}

/// The request of one pod set to one resource group.
#[derive(Clone, Copy)]
struct GroupRequest<'a, 'q> {
    queue: &'a LocalQueueCapacity,
    group: &'a ResourceGroup<'q>,
    pod_set: &'a PodSet,
    /// Amounts of all its pods together.
    wanted: &'a [(&'a Name, i64)],
    /// Amounts of the earlier pod sets, by flavor and resource.
    taken: &'a BTreeMap<(Name, Name), i64>,
    horizon: Horizon,
}

struct Placement {
    score: FitScore,
    charges: Vec<Charge>,
    /// By pod set. None for pods that select nodes by more than their flavor.
    pods: Vec<Option<EqualPods>>,
}

/// Flavors that share resources. A pod set gets one flavor of each group.
struct ResourceGroup<'a> {
    resources: std::collections::BTreeSet<&'a str>,
    flavors: Vec<&'a QueueFlavor>,
}

fn groups(flavors: &[QueueFlavor]) -> Vec<ResourceGroup<'_>> {
    let mut groups: Vec<ResourceGroup<'_>> = Vec::new();
    for flavor in flavors {
        let position = groups
            .iter()
            .position(|g| flavor.resources.keys().any(|r| g.resources.contains(r.as_ref())));
        let group = match position {
            Some(index) => &mut groups[index],
            None => {
                groups.push(ResourceGroup { resources: Default::default(), flavors: Vec::new() });
                let last = groups.len() - 1;
                &mut groups[last]
            }
        };
        group.resources.extend(flavor.resources.keys().map(|r| r.as_ref()));
        group.flavors.push(flavor);
    }
    groups
}

/// A taint of the flavor that keeps the pods off.
fn untolerated<'a>(pod_set: &PodSet, flavor: &'a QueueFlavor) -> Option<&'a Taint> {
    flavor.taints.iter().find(|taint| taint.repels(&pod_set.tolerations))
}

/// Whether node selector and required node affinity allow the flavor. Only label keys of the
/// flavor count, because nodes may have others. Kueue: `flavorSelector` in `flavorassigner.go`.
fn matches(pod_set: &PodSet, flavor: &QueueFlavor) -> bool {
    let known = |key: &str| flavor.labels.contains_key(key);
    let selected = pod_set
        .node_selector
        .iter()
        .filter(|(key, _)| known(key))
        .all(|(key, value)| flavor.labels.get(key) == Some(value));
    let term_matches = |term: &NodeSelectorTerm| {
        let relevant: Vec<&Requirement> =
            term.match_expressions.iter().filter(|r| known(&r.key)).collect();
        relevant.iter().all(|requirement| requirement.matches(&flavor.labels))
    };
    selected && (pod_set.affinity.is_empty() || pod_set.affinity.iter().any(term_matches))
}

fn times(amount: Amount, count: i32) -> i64 {
    amount.get().saturating_mul(i64::from(count))
}

fn for_pod_set(pod_set: &PodSet, code: &str, message: &str) -> Reason {
    Reason::new(code, format!("couldn't assign flavors to pod set {}: {message}", pod_set.name))
}

/// An amount in a message: cpu in cores.
fn render(resource: &str, amount: i64) -> String {
    match (resource, amount % 1000) {
        ("cpu", 0) => (amount / 1000).to_string(),
        ("cpu", _) => format!("{amount}m"),
        ("memory" | "ephemeral-storage", _) if amount % (1 << 30) == 0 => {
            format!("{}Gi", amount >> 30)
        }
        ("memory" | "ephemeral-storage", _) if amount % (1 << 20) == 0 => {
            format!("{}Mi", amount >> 20)
        }
        _ => amount.to_string(),
    }
}
