//! How many connections there may be. Where there are too many, the oldest goes: a newcomer that means well has done its
//! handshake in a moment, one that means ill stays as long as it may.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

/// Whose connections are counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Crowd {
    /// Without a certificate, as yet or at all, from this address.
    Newcomers(IpAddr),
    /// With a certificate of the cluster with this uid. Its name would let the certificate of a deleted cluster take the
    /// places of a new one of that name.
    Cluster(String),
}

/// The places of all connections.
#[derive(Debug)]
pub(super) struct Places {
    newcomers: usize,
    of_a_source: usize,
    of_a_cluster: usize,
    crowds: Mutex<Crowds>,
}

#[derive(Debug, Default)]
struct Crowds {
    next: u64,
    /// By age.
    members: BTreeMap<Crowd, BTreeMap<u64, CancellationToken>>,
}

impl Crowds {
    /// Where there are more newcomers than this: the oldest of the address that has most of them.
    fn oldest_beyond(&mut self, most: usize) -> Option<(u64, CancellationToken)> {
        let newcomers =
            self.members.iter_mut().filter(|(crowd, _)| matches!(crowd, Crowd::Newcomers(_)));
        let newcomers: Vec<_> = newcomers.map(|(_, members)| members).collect();
        if newcomers.iter().map(|members| members.len()).sum::<usize>() <= most {
            return None;
        }
        newcomers.into_iter().max_by_key(|members| members.len())?.pop_first()
    }
}

/// The place of one connection. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    crowd: Crowd,
    id: u64,
    taken: CancellationToken,
}

impl Places {
    /// So many connections without a certificate, so many of them of one address, and so many of each cluster.
    pub(super) fn new(newcomers: usize, of_a_source: usize, of_a_cluster: usize) -> Arc<Self> {
        let [newcomers, of_a_source, of_a_cluster] =
            [newcomers, of_a_source, of_a_cluster].map(|most| most.max(1));
        Arc::new(Self { newcomers, of_a_source, of_a_cluster, crowds: Mutex::default() })
    }

    /// A place for a connection of which nothing is known but its address.
    pub(super) fn newcomer(self: &Arc<Self>, source: IpAddr) -> Place {
        self.enter(Crowd::Newcomers(source))
    }

    /// A place for a connection of the cluster with this uid.
    pub(super) fn of(self: &Arc<Self>, uid: &str) -> Place {
        self.enter(Crowd::Cluster(uid.to_owned()))
    }

    fn enter(self: &Arc<Self>, crowd: Crowd) -> Place {
        let is_new = matches!(crowd, Crowd::Newcomers(_));
        let limit = if is_new { self.of_a_source } else { self.of_a_cluster };
        let taken = CancellationToken::new();
        let mut crowds = self.lock();
        let id = crowds.next;
        crowds.next += 1;
        let members = crowds.members.entry(crowd.clone()).or_default();
        members.insert(id, taken.clone());
        let mut oldest = if members.len() > limit { members.pop_first() } else { None };
        if is_new && oldest.is_none() {
            oldest = crowds.oldest_beyond(self.newcomers);
        }
        drop(crowds);
        if let Some((_, oldest)) = oldest {
            tracing::debug!(?crowd, limit, "too many connections, the oldest one is closed");
            oldest.cancel();
        }
        Place { places: self.clone(), crowd, id, taken }
    }

    // A panic while it is held would have been between two plain changes: what is there can be used.
    fn lock(&self) -> MutexGuard<'_, Crowds> {
        self.crowds.lock()
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.lock().members.values().map(BTreeMap::len).sum()
    }
}

impl Place {
    /// Cancelled when it was given to a younger connection.
    pub(super) fn taken(&self) -> CancellationToken {
        self.taken.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut crowds = self.places.lock();
        if let Some(members) = crowds.members.get_mut(&self.crowd) {
            members.remove(&self.id);
            if members.is_empty() {
                crowds.members.remove(&self.crowd);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(places: &[Place]) -> Vec<bool> {
        places.iter().map(|place| !place.taken.is_cancelled()).collect()
    }

    #[test]
    fn the_oldest_makes_room_and_no_crowd_takes_the_places_of_another() {
        let places = Places::new(2, 2, 1);
        let east = places.of("east");
        let newcomers: Vec<Place> = (0..4).map(|_| places.newcomer(source(1))).collect();
        assert_eq!(there(&newcomers), [false, false, true, true]);
        assert!(!east.taken.is_cancelled());
        let west = [places.of("west"), places.of("west")];
        assert_eq!(there(&west), [false, true]);
        assert!(!east.taken.is_cancelled());
        drop((newcomers, west, east));
        assert_eq!(places.count(), 0);
        let again = [places.newcomer(source(1)), places.newcomer(source(1))];
        assert_eq!(there(&again), [true, true]);
    }

    fn source(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn fast_stream_of_one_address_takes_its_own_places() {
        let places = Places::new(8, 4, 1);
        let honest = [places.newcomer(source(1)), places.newcomer(source(2))];
        let stream: Vec<Place> = (0..1_000).map(|_| places.newcomer(source(3))).collect();
        assert_eq!(there(&honest), [true, true]);
        assert_eq!(there(&stream).into_iter().filter(|there| *there).count(), 4);
        // Many addresses share what is there; the one with most of it goes first.
        let many: Vec<Place> = (10..110).map(|last| places.newcomer(source(last))).collect();
        let all = [&honest[..], &stream, &many]
            .into_iter()
            .flat_map(there)
            .filter(|there| *there)
            .count();
        assert_eq!(all, 8);
    }
}
