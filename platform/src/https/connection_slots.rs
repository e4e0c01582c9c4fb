//! Limits concurrent connections. If a server is full, it evicts its least used connection, because
//! API servers reconnect.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

use super::activity::Activity;

/// The connections of one server.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    most: usize,
    per_address: usize,
    crowd: Mutex<Crowd>,
}

#[derive(Debug, Default)]
struct Crowd {
    next: u64,
    /// Ordered by age.
    members: BTreeMap<u64, Member>,
}

#[derive(Debug)]
struct Member {
    source: IpAddr,
    activity: Arc<Activity>,
    taken: CancellationToken,
}

/// The slot of one connection. Dropping it frees the slot.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    places: Arc<ConnectionSlots>,
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
            crowd: Mutex::default(),
        })
    }

    /// A slot for a connection from this address. It always succeeds: another connection may be
    /// evicted.
    pub(super) fn enter(
        self: &Arc<Self>,
        source: IpAddr,
        activity: Arc<Activity>,
    ) -> ConnectionSlot {
        let mut crowd = self.lock();
        if crowd.of(source) >= self.per_address {
            crowd.close(|member| member.source == source);
        }
        if crowd.members.len() >= self.most {
            crowd.close(|_| true);
        }
        let (id, taken) = (crowd.next, CancellationToken::new());
        crowd.next += 1;
        crowd.members.insert(id, Member { source, activity, taken: taken.clone() });
        drop(crowd);
        ConnectionSlot { places: self.clone(), id, taken }
    }

    fn lock(&self) -> MutexGuard<'_, Crowd> {
        self.crowd.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Crowd {
    fn of(&self, source: IpAddr) -> usize {
        self.members.values().filter(|member| member.source == source).count()
    }

    /// Evicts the least used of the matching connections, or the oldest of several.
    fn close(&mut self, may: impl Fn(&Member) -> bool) {
        let candidates = self.members.iter().filter(|(_, member)| may(member));
        let least = candidates
            .min_by_key(|(id, member)| (member.activity.usage(), **id))
            .map(|(id, _)| *id);
        if let Some(member) = least.and_then(|id| self.members.remove(&id)) {
            member.taken.cancel();
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.places.lock().members.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn source(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    fn enter(places: &Arc<ConnectionSlots>, from: u8) -> (ConnectionSlot, Arc<Activity>) {
        let activity = Activity::new(Instant::now());
        (places.enter(source(from), activity.clone()), activity)
    }

    fn open(all: &[(ConnectionSlot, Arc<Activity>)]) -> Vec<bool> {
        all.iter().map(|(place, _)| !place.taken.is_cancelled()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn active_connection_keeps_its_slot_among_idle_ones() {
        let places = ConnectionSlots::new(4, 100);
        let kept = [enter(&places, 1), enter(&places, 1)];
        drop(kept[0].1.start_request());
        let _request = kept[1].1.start_request();
        let silent: Vec<_> = (0..100).map(|_| enter(&places, 2)).collect();
        assert_eq!(open(&kept), [true, true]);
        assert_eq!(open(&silent).into_iter().filter(|open| *open).count(), 2);
        assert_eq!(open(&silent[98..]), [true, true], "the oldest go first");
        assert_eq!(places.lock().members.len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_gets_no_more_than_its_share() {
        let places = ConnectionSlots::new(100, 3);
        let other = [enter(&places, 1)];
        let many: Vec<_> = (0..50).map(|_| enter(&places, 2)).collect();
        assert_eq!(open(&many).into_iter().filter(|open| *open).count(), 3);
        assert_eq!(open(&other), [true]);
        drop(other);
        drop(many);
        assert!(places.lock().members.is_empty(), "places are given back");
    }

    #[tokio::test(start_paused = true)]
    async fn new_connection_gets_a_slot_when_all_are_busy() {
        let places = ConnectionSlots::new(2, 2);
        let all = [enter(&places, 1), enter(&places, 1)];
        let _requests = [all[0].1.start_request(), all[1].1.start_request()];
        let next = [enter(&places, 1)];
        assert_eq!((open(&all), open(&next)), (vec![false, true], vec![true]));
    }
}
