//! Room on the nodes of one cluster: its last report, without the pods that are on their way.
//!
//! A worker reserves quota seconds before its pods have nodes, and reports nodes only after that.
//! Until then the pods of a workload are deducted here. Otherwise a burst would fill one cluster's
//! quota on the room of a report that is older than the burst.
//!
//! # Guarantees
//! - The work of one computation is bounded, whatever was sent: by `MAX_SHAPES` shapes, and by
//!   `MAX_BINS` bins of each flavor.
//! - Pods that do not come count for at most `RECOMPUTE` longer.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use super::room::{EqualPods, FlavorRoom, NodeFit, PodShape, Rooms};
use crate::{Name, Uid, UnixMillis};

/// Milliseconds after the reservation until a changed report is assumed to include the pods.
const BOUND_AFTER: i64 = 2_000;

/// Milliseconds after the reservation until any report is assumed to include the pods.
const BOUND_AT_LAST: i64 = 10_000;

/// The least milliseconds between two computations because of pods that do not come.
const RECOMPUTE: i64 = 500;

/// The most different shapes that are deducted. Pods of further ones are not.
const MAX_SHAPES: usize = 256;

/// The pods of a workload that was sent there.
#[derive(Debug, Clone)]
struct SentPods {
    pods: Vec<EqualPods>,
    reserved: Option<UnixMillis>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct NodeRoom {
    reported: Rooms,
    sent: BTreeMap<Uid, SentPods>,
    /// Sent workloads with quota, by the time of their reservation.
    reserved: BTreeSet<(UnixMillis, Uid)>,
    /// Number of sent pods by shape.
    sums: BTreeMap<PodShape, i64>,
    /// `reported` without `sums`. Computed when it is needed.
    left: OnceCell<Rooms>,
    /// `left` lacks the room of pods that were withdrawn.
    is_stale: bool,
    /// When `left` was last dropped because it was stale.
    dropped: Option<UnixMillis>,
}

impl NodeRoom {
    pub(super) fn differs(&self, rooms: &BTreeMap<Name, FlavorRoom>) -> bool {
        self.reported.0 != *rooms
    }

    pub(super) fn report(&mut self, rooms: BTreeMap<Name, FlavorRoom>, now: UnixMillis) {
        if self.differs(&rooms) {
            self.reported = Rooms(rooms);
            self.left.take();
            self.is_stale = false;
            self.forget_reserved_before(now.saturating_sub(BOUND_AFTER));
        }
        self.expire(now);
    }

    /// Deducts the pods of a workload.
    pub(super) fn send(&mut self, uid: &Uid, mut pods: Vec<EqualPods>) {
        self.withdraw(uid);
        if self.reported.0.is_empty() {
            return;
        }
        // The pods of one workload are of few shapes.
        pods.retain(|pods| self.sums.len() < MAX_SHAPES || self.sums.contains_key(&pods.shape));
        if pods.is_empty() {
            return;
        }
        if let Some(left) = self.left.get_mut() {
            left.deduct(&pods);
        }
        for EqualPods { shape, count } in &pods {
            let sum = self.sums.entry(shape.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.sent.insert(uid.clone(), SentPods { pods, reserved: None });
    }

    /// The cluster reserved quota for the workload: its pods follow.
    pub(super) fn reserve(&mut self, uid: &Uid, now: UnixMillis) {
        let Some(sent) = self.sent.get_mut(uid).filter(|sent| sent.reserved.is_none()) else {
            return;
        };
        sent.reserved = Some(now);
        self.reserved.insert((now, uid.clone()));
    }

    /// The pods do not come, or are gone.
    pub(super) fn withdraw(&mut self, uid: &Uid) {
        let Some(SentPods { pods, reserved }) = self.sent.remove(uid) else { return };
        if let Some(at) = reserved {
            self.reserved.remove(&(at, uid.clone()));
        }
        for EqualPods { shape, count } in pods {
            if let Some(sum) = self.sums.get_mut(&shape) {
                *sum = sum.saturating_sub(count);
                if *sum <= 0 {
                    self.sums.remove(&shape);
                }
            }
        }
        self.is_stale = true;
    }

    /// Ends the deductions whose pods have had time to get nodes. Then counts the room of pods that
    /// do not come, unless that was done just before.
    pub(super) fn expire(&mut self, now: UnixMillis) {
        self.forget_reserved_before(now.saturating_sub(BOUND_AT_LAST));
        let just_done =
            self.dropped.is_some_and(|at| (0..RECOMPUTE).contains(&now.saturating_sub(at)));
        if self.is_stale && !just_done {
            self.left.take();
            self.is_stale = false;
            self.dropped = Some(now);
        }
    }

    fn forget_reserved_before(&mut self, time: UnixMillis) {
        while let Some((_, uid)) = self.reserved.first().filter(|(at, _)| *at <= time) {
            self.withdraw(&uid.clone());
        }
    }

    /// Whether pods would fit beside those that are on their way.
    pub(super) fn fit(&self, pods: &[Option<EqualPods>]) -> NodeFit {
        if self.reported.0.is_empty() {
            return NodeFit::Unknown;
        }
        let left = self.left.get_or_init(|| {
            let sent: Vec<EqualPods> = self
                .sums
                .iter()
                .map(|(shape, count)| EqualPods { shape: shape.clone(), count: *count })
                .collect();
            let mut left = self.reported.clone();
            left.deduct(&sent);
            left
        });
        left.verdict(pods)
    }
}

#[cfg(test)]
mod tests {
    use super::super::room::{MAX_BINS, NodeBin};
    use super::*;

    /// Two nodes that take one pod each.
    fn room(nodes: i64) -> BTreeMap<Name, FlavorRoom> {
        let free = BTreeMap::from([("cpu".into(), 1_000)]);
        let bins = vec![NodeBin { nodes, free, taints: Vec::new() }];
        BTreeMap::from([("f".into(), FlavorRoom { bins, ..FlavorRoom::default() })])
    }

    fn pods(count: i64) -> Vec<EqualPods> {
        let requests = BTreeMap::from([("cpu".into(), 1_000)]);
        let shape = PodShape { flavor: "f".into(), requests, tolerations: Vec::new() };
        vec![EqualPods { shape, count }]
    }

    fn fits(room: &NodeRoom, count: i64) -> bool {
        room.fit(&pods(count).into_iter().map(Some).collect::<Vec<_>>()) == NodeFit::Fits
    }

    #[test]
    fn sent_pods_are_deducted_until_a_report_has_them() {
        let mut node_room = NodeRoom::default();
        node_room.send(&"early".into(), pods(2));
        assert_eq!(node_room.fit(&[]), NodeFit::Unknown, "nothing is reported");
        node_room.report(room(2), 0);
        assert!(fits(&node_room, 2) && !fits(&node_room, 3));
        node_room.send(&"w".into(), pods(1));
        assert!(fits(&node_room, 1) && !fits(&node_room, 2));
        node_room.reserve(&"w".into(), 1_000);
        // This report changes for another reason: the pods cannot have nodes yet.
        node_room.report(room(3), 1_500);
        assert!(fits(&node_room, 2) && !fits(&node_room, 3));
        node_room.report(room(3), 3_500);
        assert!(!fits(&node_room, 3), "the same report as before");
        node_room.report(room(2), 3_600);
        assert!(fits(&node_room, 2));
    }

    #[test]
    fn deduction_ends_when_pods_are_gone_or_late() {
        let mut node_room = NodeRoom::default();
        node_room.report(room(2), 0);
        node_room.send(&"gone".into(), pods(1));
        node_room.send(&"late".into(), pods(1));
        assert!(!fits(&node_room, 1));
        node_room.withdraw(&"gone".into());
        assert!(!fits(&node_room, 1), "computed before");
        node_room.expire(0);
        assert!(fits(&node_room, 1) && !fits(&node_room, 2));
        node_room.reserve(&"late".into(), 1_000);
        node_room.reserve(&"late".into(), 9_000);
        node_room.expire(10_999);
        assert!(!fits(&node_room, 2));
        node_room.expire(11_000);
        assert!(fits(&node_room, 2) && node_room.sums.is_empty() && node_room.reserved.is_empty());
    }

    /// Withdrawals in quick succession cause one computation.
    #[test]
    fn withdrawn_room_counts_after_a_pause() {
        let mut node_room = NodeRoom::default();
        node_room.report(room(2), 0);
        for uid in ["a", "b"] {
            node_room.send(&uid.into(), pods(1));
        }
        assert!(!fits(&node_room, 1));
        for (uid, time, expected) in [("a", 1_000, 1), ("b", 1_499, 1), ("none", 1_500, 2)] {
            node_room.withdraw(&uid.into());
            node_room.expire(time);
            assert!(fits(&node_room, expected) && !fits(&node_room, expected + 1), "{time}");
        }
    }

    #[test]
    fn many_shapes_keep_the_work_bounded() {
        let mut node_room = NodeRoom::default();
        let free = BTreeMap::from([("cpu".into(), 64_000), ("pods".into(), 110)]);
        let bins = vec![NodeBin { nodes: 10_000, free, taints: Vec::new() }];
        let room = FlavorRoom { bins, ..FlavorRoom::default() };
        node_room.report(BTreeMap::from([("f".into(), room)]), 0);
        let shape = |number: i64| {
            let requests = BTreeMap::from([("cpu".into(), 1_000 + number * 7)]);
            let shape = PodShape { flavor: "f".into(), requests, tolerations: Vec::new() };
            vec![EqualPods { shape, count: 1 + number % 5 }]
        };
        let uid = |number: i64| Uid::from(number.to_string().as_str());
        let check = |node_room: &NodeRoom| {
            assert!(node_room.sums.len() <= MAX_SHAPES && node_room.sent.len() <= MAX_SHAPES);
            node_room.fit(&shape(1).into_iter().map(Some).collect::<Vec<_>>());
            let bins = node_room.left.get().unwrap().0["f"].bins.len();
            assert!(bins <= MAX_BINS, "{bins}");
        };
        for number in 0..2_000 {
            node_room.send(&uid(number), shape(number));
            check(&node_room);
        }
        for number in (0..2_000).step_by(2) {
            node_room.withdraw(&uid(number));
            node_room.expire(number);
            check(&node_room);
        }
        assert_eq!(node_room.sums.len(), MAX_SHAPES / 2);
        node_room.send(&"late".into(), shape(3_000));
        assert!(node_room.sent.contains_key("late"), "there is place again");
    }
}
