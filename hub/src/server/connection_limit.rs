//! Bounds the open connections. Above a bound, the oldest connection is closed: an honest agent
//! ends its handshake within a moment, an attacker holds its connection for as long as it can.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The connections that share one bound.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum PeerClass {
    /// Connections from this address that have shown no client certificate (yet).
    Newcomers(IpAddr),
    /// Connections with a certificate of the cluster with this uid. By name, the certificate of a
    /// deleted cluster could take the slots of a new cluster with the same name.
    Cluster(String),
}

/// Bounds the connections of each [`PeerClass`], and of all peers without a certificate.
#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    newcomers: usize,
    per_address: usize,
    per_cluster: usize,
    connections: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Connections {
    next: u64,
    /// Connections of each class by id. Ids grow with age, so the first is the oldest.
    members: BTreeMap<PeerClass, BTreeMap<u64, CancellationToken>>,
}

impl Connections {
    /// If there are more than `most` connections without a certificate: the oldest one of the
    /// address that has most of them.
    fn oldest_beyond(&mut self, most: usize) -> Option<(u64, CancellationToken)> {
        let newcomers =
            self.members.iter_mut().filter(|(class, _)| matches!(class, PeerClass::Newcomers(_)));
        let newcomers: Vec<_> = newcomers.map(|(_, members)| members).collect();
        if newcomers.iter().map(|members| members.len()).sum::<usize>() <= most {
            return None;
        }
        newcomers.into_iter().max_by_key(|members| members.len())?.pop_first()
    }
}

/// One open connection. Dropping it frees its slot.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    limiter: Arc<ConnectionLimiter>,
    class: PeerClass,
    id: u64,
    evicted: CancellationToken,
}

impl ConnectionLimiter {
    /// Bounds connections without a certificate (in total and for each address), and connections of
    /// each cluster.
    pub(super) fn new(newcomers: usize, per_address: usize, per_cluster: usize) -> Arc<Self> {
        let [newcomers, per_address, per_cluster] =
            [newcomers, per_address, per_cluster].map(|most| most.max(1));
        Arc::new(Self { newcomers, per_address, per_cluster, connections: Mutex::default() })
    }

    /// A slot for a new connection, known by its address alone.
    pub(super) fn newcomer(self: &Arc<Self>, source: IpAddr) -> ConnectionSlot {
        self.enter(PeerClass::Newcomers(source))
    }

    /// A slot for a connection of the cluster with this uid.
    pub(super) fn of(self: &Arc<Self>, uid: &str) -> ConnectionSlot {
        self.enter(PeerClass::Cluster(uid.to_owned()))
    }

    fn enter(self: &Arc<Self>, class: PeerClass) -> ConnectionSlot {
        let is_new = matches!(class, PeerClass::Newcomers(_));
        let limit = if is_new { self.per_address } else { self.per_cluster };
        let evicted = CancellationToken::new();
        let mut connections = self.connections.lock();
        let id = connections.next;
        connections.next += 1;
        let members = connections.members.entry(class.clone()).or_default();
        members.insert(id, evicted.clone());
        let mut oldest = if members.len() > limit { members.pop_first() } else { None };
        if is_new && oldest.is_none() {
            oldest = connections.oldest_beyond(self.newcomers);
        }
        drop(connections);
        if let Some((_, oldest)) = oldest {
            tracing::debug!(crowd = ?class, limit, "too many connections, the oldest one is closed");
            oldest.cancel();
        }
        ConnectionSlot { limiter: self.clone(), class, id, evicted }
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.connections.lock().members.values().map(BTreeMap::len).sum()
    }
}

impl ConnectionSlot {
    /// Cancelled when a younger connection takes this slot.
    pub(super) fn evicted(&self) -> CancellationToken {
        self.evicted.clone()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut connections = self.limiter.connections.lock();
        if let Some(members) = connections.members.get_mut(&self.class) {
            members.remove(&self.id);
            if members.is_empty() {
                connections.members.remove(&self.class);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(limiter: &[ConnectionSlot]) -> Vec<bool> {
        limiter.iter().map(|slot| !slot.evicted.is_cancelled()).collect()
    }

    #[test]
    fn oldest_connection_of_the_same_class_is_evicted() {
        let limiter = ConnectionLimiter::new(2, 2, 1);
        let east = limiter.of("east");
        let newcomers: Vec<ConnectionSlot> = (0..4).map(|_| limiter.newcomer(source(1))).collect();
        assert_eq!(there(&newcomers), [false, false, true, true]);
        assert!(!east.evicted.is_cancelled());
        let west = [limiter.of("west"), limiter.of("west")];
        assert_eq!(there(&west), [false, true]);
        assert!(!east.evicted.is_cancelled());
        drop((newcomers, west, east));
        assert_eq!(limiter.count(), 0);
        let again = [limiter.newcomer(source(1)), limiter.newcomer(source(1))];
        assert_eq!(there(&again), [true, true]);
    }

    fn source(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn connection_flood_evicts_only_its_own_address() {
        let limiter = ConnectionLimiter::new(8, 4, 1);
        let honest = [limiter.newcomer(source(1)), limiter.newcomer(source(2))];
        let stream: Vec<ConnectionSlot> = (0..1_000).map(|_| limiter.newcomer(source(3))).collect();
        assert_eq!(there(&honest), [true, true]);
        assert_eq!(there(&stream).into_iter().filter(|there| *there).count(), 4);
        // With many addresses, the address with most connections loses one first.
        let many: Vec<ConnectionSlot> =
            (10..110).map(|last| limiter.newcomer(source(last))).collect();
        let all = [&honest[..], &stream, &many]
            .into_iter()
            .flat_map(there)
            .filter(|there| *there)
            .count();
        assert_eq!(all, 8);
    }
}
