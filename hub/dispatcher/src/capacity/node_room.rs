//! Room on the nodes of one cluster: its last report, without the pods that are on their way.
//!
//! A worker reserves quota seconds before its pods have nodes, and reports nodes only after that.
//! Until then the pods of a workload are deducted here. Otherwise a burst would fill one cluster's
//! quota on the room of a report that is older than the burst.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use super::room::{EqualPods, FlavorRoom, NodeFit, PodShape, Rooms};
use crate::{Name, Uid, UnixMillis};

/// Milliseconds after the reservation until a changed report is assumed to include the pods.
const BOUND_AFTER: i64 = 2_000;

/// Milliseconds after the reservation until any report is assumed to include the pods.
const BOUND_AT_LAST: i64 = 10_000;

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
}

impl NodeRoom {
    pub(super) fn differs(&self, rooms: &BTreeMap<Name, FlavorRoom>) -> bool {
        self.reported.0 != *rooms
    }

    pub(super) fn report(&mut self, rooms: BTreeMap<Name, FlavorRoom>, now: UnixMillis) {
        if self.differs(&rooms) {
            self.reported = Rooms(rooms);
            self.left.take();
            self.forget_reserved_before(now.saturating_sub(BOUND_AFTER));
        }
        self.expire(now);
    }

    /// Deducts the pods of a workload.
    pub(super) fn send(&mut self, uid: &Uid, pods: Vec<EqualPods>) {
        self.withdraw(uid);
        if self.reported.0.is_empty() || pods.is_empty() {
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
        self.left.take();
    }

    /// Ends the deductions whose pods have had time to get nodes.
    pub(super) fn expire(&mut self, now: UnixMillis) {
        self.forget_reserved_before(now.saturating_sub(BOUND_AT_LAST));
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
    use super::super::room::NodeBin;
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
        assert!(fits(&node_room, 1) && !fits(&node_room, 2));
        node_room.reserve(&"late".into(), 1_000);
        node_room.reserve(&"late".into(), 9_000);
        node_room.expire(10_999);
        assert!(!fits(&node_room, 2));
        node_room.expire(11_000);
        assert!(fits(&node_room, 2) && node_room.sums.is_empty() && node_room.reserved.is_empty());
    }
}
