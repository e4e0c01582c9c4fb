//! What one cluster can take: its last report, less what has been sent there since.

use std::collections::BTreeMap;

use switchyard_proto::v1 as proto;
use switchyard_scheduler::{Amount, NodeSelectorTerm, PodSet, Requirement, Taint, TaintEffect};

use super::{Name, Reason, Uid};

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
    /// What would stay free of the resource with the most left, in thousandths of its potential: tightest first.
    pub left: i64,
}

/// Which amounts are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    Now,
    Ever,
}

impl Capacity {
    /// Takes a report in. What the cluster has admitted before is in it, and no longer assumed.
    pub fn report(&mut self, queues: BTreeMap<(Name, Name), Queue>) {
        self.queues = queues;
        let counted: Vec<Uid> =
            self.assumed.iter().filter(|(_, assumed)| assumed.counted).map(|(uid, _)| uid.clone()).collect();
        for uid in counted {
            self.unassume(&uid);
        }
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
            let uncovered = requests.keys().find(|r| !groups.iter().any(|group| group.resources.contains(r.as_ref())));
            if let Some(resource) = uncovered {
                let message = format!("resource {resource} unavailable in ClusterQueue {}", queue.cluster_queue);
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
                    let refusal = self.refusal(queue, group, flavor, pod_set, &wanted, &taken, view);
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
            taint.effect != TaintEffect::PreferNoSchedule && !pod_set.tolerations.iter().any(|t| t.tolerates(taint))
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
        let mut score = Score { borrows: false, spare: 0, left: 0 };
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
                        let permille = (left * 1000 / i128::from(quota.potential.max(1))).min(1000) as i64;
                        score.left = score.left.max(permille);
                        let key = (queue.cluster_queue.clone(), flavor.name.clone(), resource.clone());
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
        let position = groups.iter().position(|g| flavor.resources.keys().any(|r| g.resources.contains(r.as_ref())));
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
        let relevant: Vec<&Requirement> = term.match_expressions.iter().filter(|r| known(&r.key)).collect();
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
        ("memory" | "ephemeral-storage", _) if amount % (1 << 30) == 0 => format!("{}Gi", amount >> 30),
        ("memory" | "ephemeral-storage", _) if amount % (1 << 20) == 0 => format!("{}Mi", amount >> 20),
        _ => amount.to_string(),
    }
}

/// Reads a report off the wire.
pub fn from_wire(capacity: proto::Capacity) -> BTreeMap<(Name, Name), Queue> {
    let queue = |queue: proto::QueueCapacity| {
        let mut flavors: Vec<Flavor> = Vec::new();
        for row in queue.flavors {
            let quota =
                Quota { nominal: row.nominal, used: row.used, available: row.available, potential: row.potential };
            let index = match flavors.iter().position(|flavor| *flavor.name == *row.flavor) {
                Some(index) => index,
                None => {
                    flavors.push(Flavor { name: row.flavor.as_str().into(), ..Flavor::default() });
                    flavors.len() - 1
                }
            };
            let flavor = &mut flavors[index];
            flavor.labels.extend(row.node_labels);
            for taint in row.taints.into_iter().map(taint) {
                if !flavor.taints.contains(&taint) {
                    flavor.taints.push(taint);
                }
            }
            flavor.resources.insert(row.resource.as_str().into(), quota);
        }
        let inactive = (!queue.active).then_some(queue.inactive_reason);
        let key = (Name::from(queue.namespace.as_str()), Name::from(queue.local_queue.as_str()));
        (key, Queue { cluster_queue: queue.cluster_queue.as_str().into(), inactive, pending: queue.pending, flavors })
    };
    capacity.queues.into_iter().map(queue).collect()
}

fn taint(taint: proto::Taint) -> Taint {
    let effect = match taint.effect.as_str() {
        "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
        "NoExecute" => TaintEffect::NoExecute,
        _ => TaintEffect::NoSchedule,
    };
    Taint { key: taint.key, value: taint.value, effect }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchyard_scheduler::{Operator, Toleration, TolerationOperator};

    fn row(flavor: &str, resource: &str, nominal: i64, available: i64) -> proto::FlavorCapacity {
        proto::FlavorCapacity {
            flavor: flavor.into(),
            resource: resource.into(),
            nominal,
            used: nominal - available,
            available,
            potential: nominal,
            ..proto::FlavorCapacity::default()
        }
    }

    fn labelled(mut row: proto::FlavorCapacity, key: &str, value: &str) -> proto::FlavorCapacity {
        row.node_labels.insert(key.into(), value.into());
        row
    }

    fn tainted(mut row: proto::FlavorCapacity, key: &str) -> proto::FlavorCapacity {
        row.taints.push(proto::Taint { key: key.into(), value: String::new(), effect: "NoSchedule".into() });
        row
    }

    fn capacity(flavors: Vec<proto::FlavorCapacity>) -> Capacity {
        let queue = proto::QueueCapacity {
            namespace: "ns".into(),
            local_queue: "lq".into(),
            cluster_queue: "cq".into(),
            active: true,
            flavors,
            ..proto::QueueCapacity::default()
        };
        let mut capacity = Capacity::default();
        capacity.report(from_wire(proto::Capacity { queues: vec![queue] }));
        capacity
    }

    fn pods(count: i32, requests: &[(&str, i64)]) -> PodSet {
        let requests = requests.iter().map(|(name, amount)| (Name::from(*name), Amount::new(*amount))).collect();
        PodSet { requests, ..PodSet::new("main", count) }
    }

    fn judge(capacity: &Capacity, pod_sets: &[PodSet]) -> Verdict {
        capacity.judge(&"ns".into(), &"lq".into(), pod_sets)
    }

    fn first_reason(verdict: &Verdict) -> String {
        match verdict {
            Verdict::Fits(_) => "fits".into(),
            Verdict::Waits { reasons, .. } => format!("waits: {}", reasons[0].message),
            Verdict::Never(reasons) => format!("never: {}", reasons[0].message),
        }
    }

    #[test]
    fn verdicts_and_their_reasons() {
        let cpu = |available| capacity(vec![row("default", "cpu", 8000, available)]);
        let toleration =
            Toleration { key: "spot".into(), operator: TolerationOperator::Exists, ..Toleration::default() };
        let spot = || capacity(vec![tainted(row("spot", "cpu", 8000, 8000), "spot")]);
        let zones = || {
            capacity(vec![
                labelled(row("a", "cpu", 1000, 1000), "zone", "a"),
                labelled(row("b", "cpu", 8000, 8000), "zone", "b"),
            ])
        };
        let selecting = |key: &str, value: &str| {
            let mut pods = pods(1, &[("cpu", 1000)]);
            pods.node_selector.insert(key.into(), value.into());
            pods
        };
        let requiring = |operator, value: &str| {
            let mut pods = pods(2, &[("cpu", 1000)]);
            let requirement = Requirement { key: "zone".into(), operator, values: vec![value.into()] };
            pods.affinity = vec![NodeSelectorTerm { match_expressions: vec![requirement], match_fields: Vec::new() }];
            pods
        };
        let p = "couldn't assign flavors to pod set main:";
        let cases: Vec<(&str, Capacity, Vec<PodSet>, String)> = vec![
            ("as much as is free", cpu(3000), vec![pods(3, &[("cpu", 1000)])], "fits".into()),
            (
                "more than is free",
                cpu(2500),
                vec![pods(3, &[("cpu", 1000)])],
                format!("waits: {p} insufficient unused quota for cpu in flavor default, 500m more needed"),
            ),
            (
                "more than there ever is",
                cpu(8000),
                vec![pods(9, &[("cpu", 1000)])],
                format!("never: {p} insufficient quota for cpu in flavor default, 1 more needed"),
            ),
            (
                "two pod sets together",
                cpu(3000),
                vec![pods(2, &[("cpu", 1000)]), pods(2, &[("cpu", 1000)])],
                format!("waits: {p} insufficient unused quota for cpu in flavor default, 1 more needed"),
            ),
            (
                "a resource nobody offers",
                cpu(8000),
                vec![pods(1, &[("nvidia.com/gpu", 1)])],
                format!("never: {p} resource nvidia.com/gpu unavailable in ClusterQueue cq"),
            ),
            ("nothing of a resource nobody offers", cpu(0), vec![pods(1, &[("x", 0)])], "fits".into()),
            (
                "a taint",
                spot(),
                vec![pods(1, &[("cpu", 1)])],
                format!("never: {p} untolerated taint spot in flavor spot"),
            ),
            (
                "a tolerated taint",
                spot(),
                vec![PodSet { tolerations: vec![toleration], ..pods(1, &[("cpu", 1)]) }],
                "fits".into(),
            ),
            ("the second flavor", zones(), vec![pods(2, &[("cpu", 1000)])], "fits".into()),
            ("a selector", zones(), vec![selecting("zone", "b")], "fits".into()),
            (
                "a selector nobody matches",
                zones(),
                vec![selecting("zone", "c")],
                format!("never: {p} flavor a doesn't match node affinity"),
            ),
            ("a selector on labels that no flavor has", zones(), vec![selecting("disk", "ssd")], "fits".into()),
            ("an affinity", zones(), vec![requiring(Operator::In, "b")], "fits".into()),
            (
                "an affinity to the small one",
                zones(),
                vec![requiring(Operator::NotIn, "b")],
                format!("never: {p} insufficient quota for cpu in flavor a, 1 more needed"),
            ),
            ("no pods", cpu(0), vec![pods(0, &[("cpu", 1000)])], "fits".into()),
        ];
        for (case, capacity, pod_sets, expected) in cases {
            assert_eq!(first_reason(&judge(&capacity, &pod_sets)), expected, "{case}");
        }
        assert_eq!(
            first_reason(&cpu(1).judge(&"other".into(), &"lq".into(), &[])),
            "never: the cluster has no LocalQueue other/lq"
        );
    }

    #[test]
    fn what_was_sent_is_deducted_until_a_report_counts_it() {
        let mut capacity = capacity(vec![row("default", "cpu", 4000, 4000)]);
        let ask = [pods(3, &[("cpu", 1000)])];
        let one = Uid::from("one");
        capacity.assume(&one, &"ns".into(), &"lq".into(), &ask);
        assert!(first_reason(&judge(&capacity, &ask)).starts_with("waits"));
        let report = capacity.queues().clone();
        capacity.report(report.clone());
        assert!(first_reason(&judge(&capacity, &ask)).starts_with("waits"), "a report that may not have it yet");
        capacity.counted(&one);
        capacity.report(report);
        assert_eq!(first_reason(&judge(&capacity, &ask)), "fits", "a report that has it");
        capacity.assume(&one, &"ns".into(), &"lq".into(), &ask);
        capacity.unassume(&one);
        assert_eq!(first_reason(&judge(&capacity, &ask)), "fits");
        assert!(capacity.sums.is_empty());
    }

    #[test]
    fn the_tightest_is_the_best() {
        let score = |flavors: Vec<proto::FlavorCapacity>| match judge(&capacity(flavors), &[pods(1, &[("cpu", 1000)])])
        {
            Verdict::Fits(score) => score,
            other => panic!("{other:?}"),
        };
        let roomy = score(vec![row("f", "cpu", 8000, 8000)]);
        let tight = score(vec![row("f", "cpu", 8000, 1500)]);
        let gpus = score(vec![row("f", "cpu", 8000, 1500), row("f", "nvidia.com/gpu", 8, 8)]);
        let mut borrowed = row("f", "cpu", 8000, 1500);
        borrowed.nominal = 6000;
        let borrowing = score(vec![borrowed]);
        let mut order = [borrowing, gpus, roomy, tight];
        order.sort();
        assert_eq!(order, [tight, roomy, gpus, borrowing]);
    }
}
