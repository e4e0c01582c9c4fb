//! Limits concurrent connections. If a server is full, it evicts its least used connection, because
//! API servers reconnect.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::activity::Activity;

/// The connections of one server.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    most: usize,
    per_address: usize,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    /// Ordered by age.
    connections: BTreeMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    source: IpAddr,
    activity: Arc<Activity>,
    taken: CancellationToken,
}

/// The slot of one connection. Dropping it frees the slot.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    id: u64,
    /// Cancelled when another connection takes the slot.
    pub(super) taken: CancellationToken,
}

impl ConnectionSlots {
    /// At most `most` connections, and `per_address` of one address.
    pub(super) fn new(most: usize, per_address: usize) -> Arc<Self> {
        Arc::new(Self {
            most: most.max(1),
            per_address: per_address.max(1),
            open: Mutex::default(),
        })
    }

    /// A slot for a connection from this address. It always succeeds: another connection may be
    /// evicted.
    pub(super) fn enter(
        self: &Arc<Self>,
        source: IpAddr,
        activity: Arc<Activity>,
    ) -> ConnectionSlot {
        let mut open = self.open.lock();
        if open.of(source) >= self.per_address {
            open.close(|connection| connection.source == source);
        }
        if open.connections.len() >= self.most {
            open.close(|_| true);
        }
        let (id, taken) = (open.next, CancellationToken::new());
        open.next += 1;
        open.connections.insert(id, Connection { source, activity, taken: taken.clone() });
        drop(open);
        ConnectionSlot { slots: self.clone(), id, taken }
    }
}

impl OpenConnections {
    fn of(&self, source: IpAddr) -> usize {
        self.connections.values().filter(|connection| connection.source == source).count()
    }

    /// Evicts the least used of the matching connections, or the oldest of several.
    fn close(&mut self, may: impl Fn(&Connection) -> bool) {
        let candidates = self.connections.iter().filter(|(_, connection)| may(connection));
        let least = candidates
            .min_by_key(|(id, connection)| (connection.activity.usage(), **id))
            .map(|(id, _)| *id);
        if let Some(connection) = least.and_then(|id| self.connections.remove(&id)) {
            connection.taken.cancel();
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.open.lock().connections.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn source(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    fn enter(slots: &Arc<ConnectionSlots>, from: u8) -> (ConnectionSlot, Arc<Activity>) {
        let activity = Activity::new(Instant::now());
        (slots.enter(source(from), activity.clone()), activity)
    }

    fn open(all: &[(ConnectionSlot, Arc<Activity>)]) -> Vec<bool> {
        all.iter().map(|(slot, _)| !slot.taken.is_cancelled()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn active_connection_keeps_its_slot_among_idle_ones() {
        let slots = ConnectionSlots::new(4, 100);
        let kept = [enter(&slots, 1), enter(&slots, 1)];
        drop(kept[0].1.start_request());
        let _request = kept[1].1.start_request();
        let silent: Vec<_> = (0..100).map(|_| enter(&slots, 2)).collect();
        assert_eq!(open(&kept), [true, true]);
        assert_eq!(open(&silent).into_iter().filter(|open| *open).count(), 2);
        assert_eq!(open(&silent[98..]), [true, true], "the oldest go first");
        assert_eq!(slots.open.lock().connections.len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_gets_no_more_than_its_share() {
        let slots = ConnectionSlots::new(100, 3);
        let other = [enter(&slots, 1)];
        let many: Vec<_> = (0..50).map(|_| enter(&slots, 2)).collect();
        assert_eq!(open(&many).into_iter().filter(|open| *open).count(), 3);
        assert_eq!(open(&other), [true]);
        drop(other);
        drop(many);
        assert!(slots.open.lock().connections.is_empty(), "slots are given back");
    }

    #[tokio::test(start_paused = true)]
    async fn new_connection_gets_a_slot_when_all_are_busy() {
        let slots = ConnectionSlots::new(2, 2);
        let all = [enter(&slots, 1), enter(&slots, 1)];
        let _requests = [all[0].1.start_request(), all[1].1.start_request()];
        let next = [enter(&slots, 1)];
        assert_eq!((open(&all), open(&next)), (vec![false, true], vec![true]));
    }
}
