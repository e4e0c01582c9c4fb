//! What one cluster can take: its last report, less what has been sent there since.

#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeMap;

use switchyard_scheduler::{Amount, NodeSelectorTerm, PodSet, Requirement, Taint, TaintEffect};

use super::{Name, Reason, Uid};

pub use wire::from_wire;

/// One (flavor, resource) of a ClusterQueue. Amounts are milli-units for cpu, base units otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// The ClusterQueue's own.
    pub nominal: i64,
    /// In use.
    pub used: i64,
    /// Free now, borrowing included.
    pub available: i64,
    /// The most that could ever be free, borrowing included.
    pub potential: i64,
}

/// A flavor as a LocalQueue offers it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flavor {
    /// Its name.
    pub name: Name,
    /// Labels of its nodes.
    pub labels: BTreeMap<String, String>,
    /// Taints that pods must tolerate.
    pub taints: Vec<Taint>,
    /// By resource.
    pub resources: BTreeMap<Name, Quota>,
}

/// What is seen through one LocalQueue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue {
    /// Behind it.
    pub cluster_queue: Name,
    /// Why it takes nothing now.
    pub inactive: Option<String>,
    /// Workloads waiting in it.
    pub pending: u32,
    /// In the order in which they are tried.
    pub flavors: Vec<Flavor>,
}

/// Namespace and name of a LocalQueue.
pub type Place = (Name, Name);

impl Queue {
    /// Whether workloads that did not fit the earlier queue may fit this one, whatever is in use.
    fn differs(&self, earlier: &Self) -> bool {
        let limits = |quota: &Quota| (quota.nominal, quota.potential);
        let is_like = |flavor: &Flavor, earlier: &Flavor| {
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

type Charge = ((Name, Name, Name), i64);

#[derive(Debug, Clone)]
struct Assumed {
    charges: Vec<Charge>,
    /// The cluster has taken it: its next report counts it.
    counted: bool,
}

/// The capacity of one cluster.
#[derive(Debug, Clone, Default)]
pub struct Capacity {
    queues: BTreeMap<(Name, Name), Queue>,
    assumed: BTreeMap<Uid, Assumed>,
    /// Sum of `assumed` by ClusterQueue, flavor and resource.
    sums: BTreeMap<(Name, Name, Name), i64>,
}

/// Whether, and how well, a workload fits a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Now.
    Fits(Score),
    /// Not now, but when others have left.
    Waits {
        /// Why not now.
        reasons: Vec<Reason>,
        /// How many wait there already.
        pending: u32,
    },
    /// Not as things are configured.
    Never(Vec<Reason>),
}

/// How well a workload fits: the smallest is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    /// It would borrow from a cohort what others may want back.
    pub borrows: bool,
    /// Resources such as GPUs that the flavors have free and the workload does not ask for: not to be blocked by it.
    pub spare: usize,
    /// What would stay free of the resource with the most left, in twentieths of its potential: tightest first.
    pub left: i64,
    /// How many it was given that are not in its report yet: of clusters that are about as tight, the least busy, so that
    /// the API servers of all of them take their share of a burst.
    pub busy: usize,
}

/// Which amounts are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    Now,
    Ever,
}

impl Capacity {
    /// Takes a report in. What the cluster has admitted before is in it, and no longer assumed. Returns the queues that are new, or
    /// another than before.
    pub fn report(&mut self, queues: BTreeMap<Place, Queue>) -> Vec<Place> {
        let before = std::mem::replace(&mut self.queues, queues);
        let is_new = |(place, queue): &(&Place, &Queue)| {
            before.get(place).is_none_or(|before| queue.differs(before))
        };
        let changed = self.queues.iter().filter(is_new).map(|(place, _)| place.clone()).collect();
        let counted: Vec<Uid> = self
            .assumed
            .iter()
            .filter(|(_, assumed)| assumed.counted)
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in counted {
            self.unassume(&uid);
        }
        changed
    }

    /// The queues of the last report.
    pub fn queues(&self) -> &BTreeMap<(Name, Name), Queue> {
        &self.queues
    }

    /// Deducts what a workload will take, until it is known to be counted, or not to come.
    pub fn assume(&mut self, uid: &Uid, namespace: &Name, queue: &Name, pod_sets: &[PodSet]) {
        self.unassume(uid);
        let Some(target) = self.queues.get(&(namespace.clone(), queue.clone())) else { return };
        let Ok(placed) = self.place(target, pod_sets, View::Now) else { return };
        for (key, amount) in &placed.charges {
            *self.sums.entry(key.clone()).or_default() += amount;
        }
        self.assumed.insert(uid.clone(), Assumed { charges: placed.charges, counted: false });
    }

    /// The cluster has taken the workload: its next report has it.
    pub fn counted(&mut self, uid: &Uid) {
        if let Some(assumed) = self.assumed.get_mut(uid) {
            assumed.counted = true;
        }
    }

    /// The workload does not come.
    pub fn unassume(&mut self, uid: &Uid) {
        let Some(assumed) = self.assumed.remove(uid) else { return };
        for (key, amount) in assumed.charges {
            if let Some(sum) = self.sums.get_mut(&key) {
                *sum -= amount;
                if *sum == 0 {
                    self.sums.remove(&key);
                }
            }
        }
    }

    /// Whether a workload fits through the LocalQueue of that place.
    pub fn judge(&self, namespace: &Name, queue: &Name, pod_sets: &[PodSet]) -> Verdict {
        let Some(target) = self.queues.get(&(namespace.clone(), queue.clone())) else {
            return Verdict::Never(vec![Reason::new(
                "LocalQueueNotFound",
                format!("the cluster has no LocalQueue {namespace}/{queue}"),
            )]);
        };
        if let Some(why) = &target.inactive {
            // An admin may resume it at any time, so this is no "never".
            let reasons = vec![Reason::new("QueueInactive", why.clone())];
            return Verdict::Waits { reasons, pending: target.pending };
        }
        let reasons = match self.place(target, pod_sets, View::Now) {
            Ok(placed) => return Verdict::Fits(placed.score),
            Err(reasons) => reasons,
        };
        match self.place(target, pod_sets, View::Ever) {
            Ok(_) => Verdict::Waits { reasons, pending: target.pending },
            Err(reasons) => Verdict::Never(reasons),
        }
    }

    fn place(&self, queue: &Queue, pod_sets: &[PodSet], view: View) -> Result<Placed, Vec<Reason>> {
        let groups = groups(&queue.flavors);
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
            for group in &groups {
                let wanted: Vec<(&Name, i64)> = requests
                    .iter()
                    .filter(|(resource, _)| group.resources.contains(resource.as_ref()))
                    .map(|(resource, amount)| (*resource, *amount))
                    .collect();
                if wanted.is_empty() {
                    continue;
                }
                let mut refusals = Vec::new();
                let chosen = group.flavors.iter().copied().find(|flavor| {
                    let refusal =
                        self.refusal(queue, group, flavor, pod_set, &wanted, &taken, view);
                    refusals.extend(refusal.clone());
                    refusal.is_none()
                });
                let Some(flavor) = chosen else { return Err(refusals) };
                for (resource, amount) in wanted {
                    let sum = taken.entry((flavor.name.clone(), resource.clone())).or_default();
                    *sum = sum.saturating_add(amount);
                }
            }
        }
        Ok(self.placed(queue, &taken))
    }

    /// Why `flavor` does not do for the pod set.
    #[allow(clippy::too_many_arguments)] // one step of `place`, split off to be readable
    fn refusal(
        &self,
        queue: &Queue,
        group: &Group<'_>,
        flavor: &Flavor,
        pod_set: &PodSet,
        wanted: &[(&Name, i64)],
        taken: &BTreeMap<(Name, Name), i64>,
        view: View,
    ) -> Option<Reason> {
        let untolerated = flavor.taints.iter().find(|taint| {
            taint.effect != TaintEffect::PreferNoSchedule
                && !pod_set.tolerations.iter().any(|t| t.tolerates(taint))
        });
        if let Some(taint) = untolerated {
            let message = format!("untolerated taint {} in flavor {}", taint.key, flavor.name);
            return Some(for_pod_set(pod_set, "NoMatchingFlavor", &message));
        }
        if !matches(pod_set, flavor, group) {
            let message = format!("flavor {} doesn't match node affinity", flavor.name);
            return Some(for_pod_set(pod_set, "NoMatchingFlavor", &message));
        }
        for (resource, amount) in wanted {
            let Some(quota) = flavor.resources.get(*resource) else {
                let message = format!("resource {resource} unavailable in flavor {}", flavor.name);
                return Some(for_pod_set(pod_set, "NoMatchingFlavor", &message));
            };
            let own = taken.get(&(flavor.name.clone(), (*resource).clone())).copied().unwrap_or(0);
            let (free, code) = match view {
                View::Now => (self.free(queue, flavor, resource, quota), "WaitingForQuota"),
                View::Ever => (quota.potential, "ExceedsMaxQuota"),
            };
            let missing = amount.saturating_sub(free.saturating_sub(own).max(0));
            if missing > 0 {
                let kind = if view == View::Now { "unused quota" } else { "quota" };
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

    fn free(&self, queue: &Queue, flavor: &Flavor, resource: &Name, quota: &Quota) -> i64 {
        let key = (queue.cluster_queue.clone(), flavor.name.clone(), resource.clone());
        quota.available.saturating_sub(self.sums.get(&key).copied().unwrap_or(0))
    }

    fn placed(&self, queue: &Queue, taken: &BTreeMap<(Name, Name), i64>) -> Placed {
        let mut score = Score { borrows: false, spare: 0, left: 0, busy: self.assumed.len() };
        let mut charges = Vec::new();
        for flavor in &queue.flavors {
            if !taken.keys().any(|(name, _)| *name == flavor.name) {
                continue;
            }
            for (resource, quota) in &flavor.resources {
                let free = self.free(queue, flavor, resource, quota);
                match taken.get(&(flavor.name.clone(), resource.clone())) {
                    Some(amount) => {
                        score.borrows |= quota.used.saturating_add(*amount) > quota.nominal;
                        let left = i128::from(free.saturating_sub(*amount).max(0));
                        let twentieths =
                            (left * 20 / i128::from(quota.potential.max(1))).min(20) as i64;
                        score.left = score.left.max(twentieths);
                        let key =
                            (queue.cluster_queue.clone(), flavor.name.clone(), resource.clone());
                        charges.push((key, *amount));
                    }
                    // Names with a slash are extended resources: devices.
                    None if resource.contains('/') && free > 0 => score.spare += 1,
                    None => {}
                }
            }
        }
        Placed { score, charges }
    }
}

struct Placed {
    score: Score,
    charges: Vec<Charge>,
}

/// Flavors that share resources: of each group a pod set gets one flavor.
struct Group<'a> {
    resources: std::collections::BTreeSet<&'a str>,
    flavors: Vec<&'a Flavor>,
    label_keys: std::collections::BTreeSet<&'a str>,
}

fn groups(flavors: &[Flavor]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for flavor in flavors {
        let position = groups
            .iter()
            .position(|g| flavor.resources.keys().any(|r| g.resources.contains(r.as_ref())));
        let group = match position {
            Some(index) => &mut groups[index],
            None => {
                groups.push(Group {
                    resources: Default::default(),
                    flavors: Vec::new(),
                    label_keys: Default::default(),
                });
                let last = groups.len() - 1;
                &mut groups[last]
            }
        };
        group.resources.extend(flavor.resources.keys().map(|r| r.as_ref()));
        group.label_keys.extend(flavor.labels.keys().map(String::as_str));
        group.flavors.push(flavor);
    }
    groups
}

/// Whether node selector and required affinity allow the flavor. Only labels that some flavor of the group defines
/// count: the others are the nodes' business.
fn matches(pod_set: &PodSet, flavor: &Flavor, group: &Group<'_>) -> bool {
    let known = |key: &str| group.label_keys.contains(key);
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

/// An amount for people: cpu in cores.
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
