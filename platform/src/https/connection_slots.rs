//! How many connections there may be. Where there are too many, the one that is used least goes: API servers ask, and ask again.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

use super::activity::Activity;

/// The places of one server's connections.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    of_a_source: usize,
    crowd: Mutex<Crowd>,
}

#[derive(Debug, Default)]
struct Crowd {
    next: u64,
    /// By age.
    members: BTreeMap<u64, Member>,
}

#[derive(Debug)]
struct Member {
    source: IpAddr,
    activity: Arc<Activity>,
    taken: CancellationToken,
}

/// The place of one connection. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    id: u64,
    /// Cancelled when another connection has got it.
    pub(super) taken: CancellationToken,
}

impl Places {
    /// So many connections, and so many of one address.
    pub(super) fn new(most: usize, of_a_source: usize) -> Arc<Self> {
        Arc::new(Self {
            most: most.max(1),
            of_a_source: of_a_source.max(1),
            crowd: Mutex::default(),
        })
    }

    /// A place for a connection from this address. There always is one: another connection may lose its own.
    pub(super) fn enter(self: &Arc<Self>, source: IpAddr, activity: Arc<Activity>) -> Place {
        let mut crowd = self.lock();
        if crowd.of(source) >= self.of_a_source {
            crowd.close(|member| member.source == source);
        }
        if crowd.members.len() >= self.most {
            crowd.close(|_| true);
        }
        let (id, taken) = (crowd.next, CancellationToken::new());
        crowd.next += 1;
        crowd.members.insert(id, Member { source, activity, taken: taken.clone() });
        drop(crowd);
        Place { places: self.clone(), id, taken }
    }

    fn lock(&self) -> MutexGuard<'_, Crowd> {
        self.crowd.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Crowd {
    fn of(&self, source: IpAddr) -> usize {
        self.members.values().filter(|member| member.source == source).count()
    }

    /// Closes the one of these that is used least; of several, the oldest.
    fn close(&mut self, may: impl Fn(&Member) -> bool) {
        let candidates = self.members.iter().filter(|(_, member)| may(member));
        let least = candidates
            .min_by_key(|(id, member)| (member.activity.use_of(), **id))
            .map(|(id, _)| *id);
        if let Some(member) = least.and_then(|id| self.members.remove(&id)) {
            member.taken.cancel();
        }
    }
}

impl Drop for Place {
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

    fn enter(places: &Arc<Places>, from: u8) -> (Place, Arc<Activity>) {
        let activity = Activity::new(Instant::now());
        (places.enter(source(from), activity.clone()), activity)
    }

    fn open(all: &[(Place, Arc<Activity>)]) -> Vec<bool> {
        all.iter().map(|(place, _)| !place.taken.is_cancelled()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn connection_that_asks_keeps_its_place_among_silent_ones() {
        let places = Places::new(4, 100);
        let kept = [enter(&places, 1), enter(&places, 1)];
        drop(kept[0].1.begin());
        let _request = kept[1].1.begin();
        let silent: Vec<_> = (0..100).map(|_| enter(&places, 2)).collect();
        assert_eq!(open(&kept), [true, true]);
        assert_eq!(open(&silent).into_iter().filter(|open| *open).count(), 2);
        assert_eq!(open(&silent[98..]), [true, true], "the oldest go first");
        assert_eq!(places.lock().members.len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_takes_no_more_than_its_share() {
        let places = Places::new(100, 3);
        let other = [enter(&places, 1)];
        let many: Vec<_> = (0..50).map(|_| enter(&places, 2)).collect();
        assert_eq!(open(&many).into_iter().filter(|open| *open).count(), 3);
        assert_eq!(open(&other), [true]);
        drop(other);
        drop(many);
        assert!(places.lock().members.is_empty(), "places are given back");
    }

    #[tokio::test(start_paused = true)]
    async fn newcomer_gets_a_place_where_all_are_busy() {
        let places = Places::new(2, 2);
        let all = [enter(&places, 1), enter(&places, 1)];
        let _requests = [all[0].1.begin(), all[1].1.begin()];
        let next = [enter(&places, 1)];
        assert_eq!((open(&all), open(&next)), (vec![false, true], vec![true]));
    }
}
