//! Room on nodes: whether pods would fit on the nodes of a flavor now.
//!
//! Input: counted bins of free amounts, as the cluster reports them, and the shapes of pods. Output:
//! a verdict. It is a preference of the dispatcher and never a refusal: an autoscaler may add nodes,
//! and a report may be late.
//!
//! # Guarantees
//! - `Fits` has a packing: each pod has a node whose reported room it fits in.
//! - For pods of one shape the packing is exact: if they fit in the reported bins, the verdict is
//!   `Fits`. For several shapes it is first-fit by decreasing size, which may miss a packing.
//! - Bins are rounded down by the cluster; see `Capacity.rooms` of the protocol.
//! - A flavor whose bins were merged or dropped, by the cluster or here, is never `Full`. A large
//!   cluster with many different nodes is `Unknown` for pods that do not fit in its bins.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use switchyard_scheduler::{PodSet, Taint, Toleration};

use crate::Name;

/// Resource of a node's remaining number of pods.
const PODS: &str = "pods";

/// The most bins of a flavor after deductions, which split bins. The smallest are dropped.
pub(super) const MAX_BINS: usize = 128;

/// Nodes that have the same amounts free.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeBin {
    pub nodes: i64,
    /// On each of them, by resource.
    pub free: BTreeMap<Name, i64>,
    /// Taints that the flavor does not name.
    pub taints: Vec<Taint>,
}

impl NodeBin {
    /// The number of pods of one shape that fit on each node.
    fn pods_on_each(&self, shape: &PodShape) -> i64 {
        let takes = self.taints.iter().all(|taint| shape.tolerates(taint));
        if takes { pods_on(&self.free, &shape.requests) } else { 0 }
    }
}

/// Room on the nodes of one flavor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlavorRoom {
    pub bins: Vec<NodeBin>,
    /// Some of the nodes are also nodes of another flavor.
    pub shared: bool,
    /// Some nodes have more free than `bins` says.
    pub coarse: bool,
}

/// Whether pods would fit on nodes now. The first is best.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeFit {
    /// They would, on the reported room.
    Fits,
    /// Unknown: the cluster does not report it, or not exactly enough, or the pods select nodes by
    /// more than their flavor.
    #[default]
    Unknown,
    /// No packing was found.
    Full,
}

/// The properties of a pod that decide where it fits.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodShape {
    pub(super) flavor: Name,
    /// Amounts above zero.
    pub(super) requests: BTreeMap<Name, i64>,
    pub(super) tolerations: Vec<Toleration>,
}

impl PodShape {
    /// Whether the pod tolerates the taint, or gets a toleration on its cluster. Where Kubernetes'
    /// admission plugin `ExtendedResourceToleration` is on, pods get one for a taint that is named
    /// like a device that they request. Reports do not say whether it is on: assume that it is.
    fn tolerates(&self, taint: &Taint) -> bool {
        self.requests.contains_key(taint.key.as_str()) || !taint.repels(&self.tolerations)
    }
}

/// Equal pods in one flavor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EqualPods {
    pub(super) shape: PodShape,
    pub(super) count: i64,
}

impl EqualPods {
    /// The pods of a pod set in its flavor. None if the flavor does not decide about nodes alone.
    pub(super) fn of(
        pod_set: &PodSet,
        flavor: &Name,
        flavor_labels: &BTreeMap<String, String>,
    ) -> Option<Self> {
        let by_flavor =
            pod_set.node_selector.iter().all(|(key, value)| flavor_labels.get(key) == Some(value));
        if !by_flavor || !pod_set.affinity.is_empty() || pod_set.topology.is_some() {
            return None;
        }
        let requests = pod_set.requests_of_pod();
        let requests = requests.iter().map(|(name, amount)| (name.clone(), amount.get()));
        let shape = PodShape {
            flavor: flavor.clone(),
            requests: requests.filter(|(_, amount)| *amount > 0).collect(),
            tolerations: pod_set.tolerations.clone(),
        };
        Some(Self { shape, count: i64::from(pod_set.count.max(0)) })
    }
}

/// Room by flavor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rooms(pub(super) BTreeMap<Name, FlavorRoom>);

impl Rooms {
    /// Whether all pods would fit. `None` in `pods` stands for pods that cannot be checked.
    pub(super) fn verdict(&self, pods: &[Option<EqualPods>]) -> NodeFit {
        let mut by_flavor: BTreeMap<&Name, Vec<&EqualPods>> = BTreeMap::new();
        for pods in pods {
            let Some(pods) = pods else { return NodeFit::Unknown };
            if pods.count > 0 {
                by_flavor.entry(&pods.shape.flavor).or_default().push(pods);
            }
        }
        let several = by_flavor.len() > 1;
        let mut verdict = NodeFit::Fits;
        for (flavor, pods) in by_flavor {
            let Some(room) = self.0.get(flavor).filter(|room| !(several && room.shared)) else {
                return NodeFit::Unknown;
            };
            // A resource that no node offers is not one of nodes, such as the output of a
            // transformation.
            let offered = |name: &Name| room.bins.iter().any(|bin| bin.free.contains_key(name));
            if !room.bins.is_empty()
                && pods.iter().any(|pods| pods.shape.requests.keys().any(|name| !offered(name)))
            {
                return NodeFit::Unknown;
            }
            let (fits, is_coarse) = match pods[..] {
                [one] => (number_that_fits(&room.bins, &one.shape) >= one.count, room.coarse),
                _ => {
                    let mut room = room.clone();
                    (pack(&mut room, &pods), room.coarse)
                }
            };
            if !fits {
                verdict = verdict.max(if is_coarse { NodeFit::Unknown } else { NodeFit::Full });
            }
        }
        verdict
    }

    /// Deducts pods as far as they fit.
    pub(super) fn deduct(&mut self, pods: &[EqualPods]) {
        let mut by_flavor: BTreeMap<&Name, Vec<&EqualPods>> = BTreeMap::new();
        for pods in pods {
            by_flavor.entry(&pods.shape.flavor).or_default().push(pods);
        }
        for (flavor, pods) in by_flavor {
            if let Some(room) = self.0.get_mut(flavor) {
                pack(room, &pods);
                if room.bins.len() > MAX_BINS / 2 {
                    merge(room);
                }
            }
        }
    }
}

/// The number of pods of one shape that fit in all bins together.
fn number_that_fits(bins: &[NodeBin], shape: &PodShape) -> i64 {
    let number = |bin: &NodeBin| bin.pods_on_each(shape).max(0).saturating_mul(bin.nodes);
    bins.iter().map(number).fold(0, i64::saturating_add)
}

/// Puts pods into bins, the largest pods first, each into the smallest bins that take it. Returns
/// whether all fit. A shape splits at most two bins, so there are never more than `MAX_BINS` + 2.
fn pack(room: &mut FlavorRoom, pods: &[&EqualPods]) -> bool {
    let largest = largest(&room.bins);
    let mut pods = pods.to_vec();
    pods.sort_by_cached_key(|pods| Reverse(share(&pods.shape.requests, &largest)));
    let mut all = true;
    for pods in pods {
        all &= place(&mut room.bins, pods, &largest);
        if room.bins.len() > MAX_BINS {
            merge(room);
        }
    }
    all
}

/// Places equal pods. Returns whether all fit.
fn place(bins: &mut Vec<NodeBin>, pods: &EqualPods, largest: &BTreeMap<Name, i64>) -> bool {
    bins.sort_by_cached_key(|bin| share(&bin.free, largest));
    let mut left = pods.count;
    let mut after = Vec::with_capacity(bins.len() + 2);
    for bin in bins.drain(..) {
        let each = if left > 0 { bin.pods_on_each(&pods.shape).min(left) } else { 0 };
        if each <= 0 {
            after.push(bin);
            continue;
        }
        let full = (left / each).min(bin.nodes);
        left -= full * each;
        // A last node takes the rest.
        let rest = if full < bin.nodes { left } else { 0 };
        left -= rest;
        let untouched = bin.nodes - full - i64::from(rest > 0);
        let with = |nodes: i64, pods_on_it: i64| NodeBin {
            nodes,
            free: reduced(&bin.free, &pods.shape.requests, pods_on_it),
            taints: bin.taints.clone(),
        };
        after.extend((full > 0).then(|| with(full, each)));
        after.extend((rest > 0).then(|| with(1, rest)));
        after.extend((untouched > 0).then(|| NodeBin { nodes: untouched, ..bin.clone() }));
    }
    *bins = after;
    left == 0
}

/// Merges equal bins, and drops the smallest above [`MAX_BINS`].
fn merge(room: &mut FlavorRoom) {
    let bins = &mut room.bins;
    let mut merged: BTreeMap<(Vec<Taint>, BTreeMap<Name, i64>), i64> = BTreeMap::new();
    for NodeBin { nodes, free, taints } in bins.drain(..) {
        let sum = merged.entry((taints, free)).or_default();
        *sum = sum.saturating_add(nodes);
    }
    bins.extend(merged.into_iter().map(|((taints, free), nodes)| NodeBin { nodes, free, taints }));
    let largest = largest(bins);
    bins.sort_by_cached_key(|bin| Reverse(share(&bin.free, &largest)));
    room.coarse |= bins.len() > MAX_BINS;
    bins.truncate(MAX_BINS);
}

/// The number of pods of one shape that fit on one node.
fn pods_on(free: &BTreeMap<Name, i64>, requests: &BTreeMap<Name, i64>) -> i64 {
    let of = |name: &str, amount: i64| free.get(name).copied().unwrap_or(0).max(0) / amount.max(1);
    let fit = requests.iter().map(|(name, amount)| of(name, *amount)).min().unwrap_or(i64::MAX);
    free.get(PODS).map_or(fit, |pods| fit.min(*pods))
}

fn reduced(
    free: &BTreeMap<Name, i64>,
    requests: &BTreeMap<Name, i64>,
    pods: i64,
) -> BTreeMap<Name, i64> {
    let mut left = free.clone();
    for (name, amount) in requests {
        if let Some(free) = left.get_mut(name) {
            *free = free.saturating_sub(amount.saturating_mul(pods));
        }
    }
    if let Some(free) = left.get_mut(PODS).filter(|_| !requests.contains_key(PODS)) {
        *free = free.saturating_sub(pods);
    }
    left
}

/// The largest amount of each resource on any node.
fn largest(bins: &[NodeBin]) -> BTreeMap<Name, i64> {
    let mut largest: BTreeMap<Name, i64> = BTreeMap::new();
    for (name, amount) in bins.iter().flat_map(|bin| &bin.free) {
        let most = largest.entry(name.clone()).or_default();
        *most = (*most).max(*amount);
    }
    largest
}

/// The size relative to the largest node, in thousandths of its dominant resource. The number of
/// pods does not count.
fn share(amounts: &BTreeMap<Name, i64>, largest: &BTreeMap<Name, i64>) -> i64 {
    let of = |(name, amount): (&Name, &i64)| {
        let most = i128::from(largest.get(name).copied().unwrap_or(0).max(1));
        i64::try_from(i128::from(*amount) * 1000 / most).unwrap_or(i64::MAX)
    };
    amounts.iter().filter(|(name, _)| &***name != PODS).map(of).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use switchyard_scheduler::TaintEffect;

    use super::*;

    fn amounts(cpu: i64, gpu: i64, pods: Option<i64>) -> BTreeMap<Name, i64> {
        let mut all = BTreeMap::from([("cpu".into(), cpu), ("nvidia.com/gpu".into(), gpu)]);
        all.extend(pods.map(|pods| (Name::from(PODS), pods)));
        all
    }

    fn pods(cpu: i64, gpu: i64, count: i64) -> EqualPods {
        let mut requests = amounts(cpu, gpu, None);
        requests.retain(|_, amount| *amount > 0);
        let shape = PodShape { flavor: "f".into(), requests, tolerations: Vec::new() };
        EqualPods { shape, count }
    }

    fn bin(nodes: i64, free: BTreeMap<Name, i64>) -> NodeBin {
        NodeBin { nodes, free, taints: Vec::new() }
    }

    fn rooms(bins: Vec<NodeBin>) -> Rooms {
        Rooms(BTreeMap::from([("f".into(), FlavorRoom { bins, ..FlavorRoom::default() })]))
    }

    /// Whether the pods, one by one, fit on the nodes, one by one, by trying everything.
    fn fits_by_force(nodes: &mut [BTreeMap<Name, i64>], pods: &[BTreeMap<Name, i64>]) -> bool {
        let Some((pod, others)) = pods.split_first() else { return true };
        for index in 0..nodes.len() {
            if nodes[..index].contains(&nodes[index]) || pods_on(&nodes[index], pod) < 1 {
                continue;
            }
            let before = nodes[index].clone();
            nodes[index] = reduced(&before, pod, 1);
            if fits_by_force(nodes, others) {
                nodes[index] = before;
                return true;
            }
            nodes[index] = before;
        }
        false
    }

    /// A small world: bins of few nodes, and up to three shapes of few pods.
    fn world(random: &mut StdRng) -> (Vec<NodeBin>, Vec<EqualPods>) {
        let mut bins = Vec::new();
        for _ in 0..random.random_range(0..4) {
            let pods = random.random_bool(0.5).then(|| random.random_range(0..4));
            let free = amounts(random.random_range(0..9), random.random_range(0..5), pods);
            bins.push(bin(random.random_range(1..3), free));
        }
        let mut shapes: Vec<EqualPods> = Vec::new();
        for _ in 0..random.random_range(1..4) {
            let (cpu, gpu) = (random.random_range(0..6), random.random_range(0..3));
            shapes.push(pods(cpu, gpu, random.random_range(0..4)));
        }
        (bins, shapes)
    }

    fn by_force(bins: &[NodeBin], shapes: &[EqualPods]) -> bool {
        let nodes = bins.iter().flat_map(|bin| (0..bin.nodes).map(|_| bin.free.clone()));
        let pods = shapes.iter().flat_map(|it| (0..it.count).map(|_| it.shape.requests.clone()));
        fits_by_force(&mut nodes.collect::<Vec<_>>(), &pods.collect::<Vec<_>>())
    }

    #[test]
    fn verdict_agrees_with_brute_force_in_random_worlds() {
        let mut random = StdRng::seed_from_u64(7);
        let (mut fits, mut missed, mut worlds) = (0, 0, 0);
        for _ in 0..20_000 {
            let (bins, shapes) = world(&mut random);
            let verdict =
                rooms(bins.clone()).verdict(&shapes.iter().cloned().map(Some).collect::<Vec<_>>());
            let force = by_force(&bins, &shapes);
            if verdict == NodeFit::Unknown {
                continue;
            }
            worlds += 1;
            fits += i32::from(force);
            assert!(verdict != NodeFit::Fits || force, "{bins:?} takes no {shapes:?}");
            let kinds = shapes.iter().filter(|shape| shape.count > 0).count();
            if force && verdict == NodeFit::Full {
                assert!(kinds > 1, "one shape is exact: {bins:?} {shapes:?}");
                missed += 1;
            }
        }
        println!("{worlds} worlds, {fits} fit, {missed} of them missed");
        assert!(fits > 2_000 && missed * 100 < fits, "{missed} of {fits} missed");
    }

    #[test]
    fn deducted_pods_leave_what_brute_force_leaves() {
        let mut random = StdRng::seed_from_u64(11);
        for _ in 0..5_000 {
            let (bins, shapes) = world(&mut random);
            let mut rooms = rooms(bins.clone());
            let (first, others) = shapes.split_at(1);
            if !by_force(&bins, first) {
                continue;
            }
            rooms.deduct(first);
            let others = others.to_vec();
            let verdict = rooms.verdict(&others.iter().cloned().map(Some).collect::<Vec<_>>());
            let force = by_force(&bins, &shapes);
            assert!(verdict != NodeFit::Fits || force, "{bins:?} takes no {shapes:?}");
        }
    }

    #[test]
    fn large_counts_are_packed_by_division() {
        let node = bin(5_000, amounts(64_000, 8, Some(110)));
        let rooms = rooms(vec![node]);
        let verdict = |cpu, gpu, count| rooms.verdict(&[Some(pods(cpu, gpu, count))]);
        assert_eq!(verdict(8_000, 1, 40_000), NodeFit::Fits);
        assert_eq!(verdict(8_000, 1, 40_001), NodeFit::Full);
        assert_eq!(verdict(1, 0, 550_001), NodeFit::Full, "110 pods on each");
        assert_eq!(verdict(64_001, 0, 1), NodeFit::Full, "no node is as large");
    }

    #[test]
    fn what_the_report_does_not_decide_is_unknown() {
        let node = || bin(1, amounts(8_000, 0, None));
        let mut rooms = rooms(vec![node()]);
        assert_eq!(rooms.verdict(&[None]), NodeFit::Unknown);
        let mut other = pods(1, 0, 1);
        other.shape.flavor = "g".into();
        assert_eq!(rooms.verdict(&[Some(other.clone())]), NodeFit::Unknown);
        let mut credits = pods(1, 0, 1);
        credits.shape.requests.insert("example.com/credits".into(), 1);
        assert_eq!(rooms.verdict(&[Some(credits)]), NodeFit::Unknown, "no node has any");
        rooms.0.insert("g".into(), FlavorRoom { bins: vec![node()], shared: true, coarse: false });
        assert_eq!(rooms.verdict(&[Some(other.clone())]), NodeFit::Fits);
        let both = [Some(pods(1, 0, 1)), Some(other)];
        assert_eq!(rooms.verdict(&both), NodeFit::Unknown, "both may stand for one node");
        rooms.0.insert("f".into(), FlavorRoom::default());
        assert_eq!(rooms.verdict(&[Some(pods(1, 0, 1))]), NodeFit::Full, "no node takes pods");
    }

    #[test]
    fn room_decides_by_count_size_and_taint() {
        let free = || amounts(8_000, 2, Some(110));
        let taint = |key: &str, effect| Taint { key: key.into(), value: "a".into(), effect };
        let tainted = |key: &str| NodeBin {
            taints: vec![taint(key, TaintEffect::NoSchedule)],
            ..bin(1, free())
        };
        let tolerant = |key: &str, pods: EqualPods| {
            let toleration = Toleration {
                key: key.into(),
                operator: switchyard_scheduler::TolerationOperator::Exists,
                ..Toleration::default()
            };
            let shape = PodShape { tolerations: vec![toleration], ..pods.shape };
            EqualPods { shape, ..pods }
        };
        let soft =
            NodeBin { taints: vec![taint("x", TaintEffect::PreferNoSchedule)], ..bin(1, free()) };
        let absurd = || bin(i64::from(u32::MAX), amounts(i64::MAX, i64::MAX, Some(i64::MAX)));
        use NodeFit::{Fits, Full};
        let cases = [
            ("gang over several nodes", vec![bin(3, free())], pods(4_000, 0, 6), Fits),
            ("gang with one pod too many", vec![bin(3, free())], pods(4_000, 0, 7), Full),
            ("enough in total, on no node", vec![bin(3, free())], pods(8_001, 0, 1), Full),
            ("one device short", vec![bin(3, free())], pods(1, 1, 7), Full),
            ("no node is open", vec![], pods(1, 0, 1), Full),
            ("taint not tolerated", vec![tainted("team")], pods(1, 0, 1), Full),
            ("taint tolerated", vec![tainted("team")], tolerant("team", pods(1, 0, 1)), Fits),
            ("another taint tolerated", vec![tainted("team")], tolerant("x", pods(1, 0, 1)), Full),
            ("taint of the device", vec![tainted("nvidia.com/gpu")], pods(1, 1, 1), Fits),
            ("soft taint", vec![soft], pods(1, 0, 1), Fits),
            ("part of the nodes", vec![bin(1, free()), tainted("team")], pods(4_000, 0, 3), Full),
            ("absurd amounts", vec![absurd(), absurd()], pods(i64::MAX, 1, i64::MAX), Full),
            ("absurd room", vec![absurd(), absurd()], pods(1, 1, i64::MAX), Fits),
        ];
        for (name, bins, pods, expected) in cases {
            let mut rooms = rooms(bins);
            assert_eq!(rooms.verdict(&[Some(pods.clone())]), expected, "{name}");
            rooms.deduct(&[pods.clone(), pods]);
        }
    }

    #[test]
    fn coarse_room_fits_or_is_unknown() {
        let mut rooms = rooms(vec![bin(1, amounts(8_000, 0, None))]);
        let verdict = |rooms: &Rooms, pods: &[EqualPods]| {
            rooms.verdict(&pods.iter().cloned().map(Some).collect::<Vec<_>>())
        };
        let (small, large) = (pods(1, 0, 1), pods(9_000, 0, 1));
        let both = [small.clone(), large.clone()];
        assert_eq!(verdict(&rooms, &both), NodeFit::Full);
        rooms.0.get_mut("f").unwrap().coarse = true;
        assert_eq!(verdict(&rooms, std::slice::from_ref(&small)), NodeFit::Fits);
        assert_eq!(verdict(&rooms, &[large]), NodeFit::Unknown);
        assert_eq!(verdict(&rooms, &both), NodeFit::Unknown);
        rooms.0.insert("g".into(), FlavorRoom::default());
        let mut other = small;
        other.shape.flavor = "g".into();
        assert_eq!(verdict(&rooms, &[other, pods(9_000, 0, 1)]), NodeFit::Full, "g is exact");

        // The hub drops bins.
        let mut rooms = self::rooms(vec![bin(10_000, amounts(64_000, 8, Some(110)))]);
        for cpu in 0..1_000 {
            rooms.deduct(&[pods(1_000 + 50 * cpu, 1, 1 + cpu % 5)]);
        }
        assert_eq!(verdict(&rooms, &[pods(64_001, 0, 1)]), NodeFit::Unknown);
    }

    #[test]
    fn deductions_keep_bins_few() {
        let mut rooms = rooms(vec![bin(10_000, amounts(64_000, 8, Some(110)))]);
        for cpu in 0..1_000 {
            rooms.deduct(&[pods(1_000 + 50 * cpu, 1, 1 + cpu % 5)]);
        }
        let bins = &rooms.0["f"].bins;
        assert!(bins.len() <= MAX_BINS + 2, "{}", bins.len());
        assert!(bins.iter().all(|bin| bin.nodes > 0 && bin.free.values().all(|free| *free >= 0)));
    }
}
