//! The hub: API server and replicas; in the leader, the production dispatcher and cluster channels.

mod election;
mod recovery;
mod sessions;
mod show;
mod statuses;
mod term;
mod users;
mod writes;

use std::time::Instant;

use switchyard_dispatcher::Uid;

use crate::state::{Change, Event, Hub, Object, Term, World};
use crate::time::{Ms, START};

impl World {
    /// The hub's own clock: started with the wall clock, runs at its own speed.
    pub(crate) fn hub_now(&self, hub: usize) -> i64 {
        let it = &self.hubs[hub];
        let since = (self.now - it.started) * self.plan.hubs[hub] / 1000;
        START + it.skew + (it.started + since) as i64
    }

    /// Milliseconds until the hub's own clock shows `at`.
    fn hub_until(&self, hub: usize, at: i64) -> Ms {
        let left = u64::try_from(at - self.hub_now(hub)).unwrap_or(0);
        1 + left * 1000 / self.plan.hubs[hub]
    }

    /// The hub's monotonic clock, for the election.
    fn hub_instant(&self, hub: usize) -> Instant {
        let milliseconds = u64::try_from(self.hub_now(hub) - START + 10_000_000).unwrap_or(0);
        epoch() + std::time::Duration::from_millis(milliseconds)
    }

    pub(crate) fn hub_is(&self, hub: usize, boot: u32) -> bool {
        let it = &self.hubs[hub];
        it.up && it.boot == boot
    }

    /// The term, if it still lasts.
    fn term(&mut self, hub: usize, boot: u32, epoch: u64) -> Option<&mut Term> {
        let it = &mut self.hubs[hub];
        let same = it.up && it.boot == boot;
        it.term.as_mut().filter(|term| same && term.epoch == epoch)
    }

    /// Starts a replica's process.
    pub(crate) fn hub_boot(&mut self, hub: usize) {
        let now = self.now;
        let it = &mut self.hubs[hub];
        *it = Hub {
            up: true,
            boot: it.boot + 1,
            started: now,
            skew: it.skew,
            cut: it.cut,
            ..Hub::default()
        };
        let boot = it.boot;
        self.note(|| format!("hub {hub} begins"));
        let delay = self.dice(0).between(1, 200);
        self.after(delay, Event::Elect { hub, boot });
        self.read_statuses(hub);
        self.hub_lists(hub);
    }

    /// A replica's process crashes. Its requests happen at once or never.
    pub(crate) fn crash_hub(&mut self, hub: usize, fin: bool) {
        self.note(|| format!("hub {hub} dies"));
        let it = &mut self.hubs[hub];
        it.up = false;
        it.frozen = None;
        it.term = None;
        self.forgets_words(hub);
        let links: Vec<u64> = self
            .network
            .links
            .iter()
            .filter(|(_, link)| link.hub == hub)
            .map(|(id, _)| *id)
            .collect();
        for link in links {
            self.close_hub_end(link, fin);
        }
        self.moved = true;
    }

    /// The hub lists all Workloads: at its start, and when the API server is back. Events of the
    /// watch before the list no longer arrive.
    pub(crate) fn hub_lists(&mut self, hub: usize) {
        if self.hubs[hub].cut > 0 {
            return;
        }
        self.hubs[hub].lists += 1;
        let known: Vec<Uid> = self.hubs[hub].store.keys().cloned().collect();
        let all: Vec<Change> = self
            .api
            .objects
            .iter()
            .filter(|(_, object)| !object.deleted)
            .map(|(_, object)| Change::Is(Box::new(object.facts.clone())))
            .chain(
                known
                    .into_iter()
                    .filter(|uid| self.api.objects.get(uid).is_none_or(|it| it.deleted))
                    .map(Change::Gone),
            )
            .collect();
        for change in all {
            self.notify_hub(hub, change);
        }
    }

    /// A change of a Workload goes to each replica's watch, and triggers the controllers.
    pub(crate) fn api_changed(&mut self, uid: &Uid) {
        self.moved = true;
        self.api.version += 1;
        let version = self.api.version;
        let Some(object) = self.api.objects.get_mut(uid) else { return };
        object.facts.version = version;
        if object.facts.state.finished {
            object.finished_at.get_or_insert(self.now);
        }
        let change = change_of(object);
        self.note(|| format!("api: {}", describe(&change)));
        self.notify_hubs(&change);
        let delay = self.dice(0).between(1, 300);
        self.after(delay, Event::Lifecycle { uid: uid.clone() });
    }

    /// Each replica's watch shows the change.
    fn notify_hubs(&mut self, change: &Change) {
        for hub in 0..self.hubs.len() {
            if self.hubs[hub].up && self.hubs[hub].cut == 0 {
                self.notify_hub(hub, change.clone());
            }
        }
    }

    fn notify_hub(&mut self, hub: usize, change: Change) {
        let stale = self.plan.noise.stale;
        let delay = self.dice(0).between(1, stale);
        let now = self.now;
        let it = &mut self.hubs[hub];
        it.watched = it.watched.max(now + delay);
        let (at, boot, lists) = (it.watched, it.boot, it.lists);
        self.at(at, Event::HubWatch { hub, boot, lists, change: Box::new(change) });
    }
}

fn change_of(object: &Object) -> Change {
    match object.deleted {
        true => Change::Gone(object.facts.uid.clone()),
        false => Change::Is(Box::new(object.facts.clone())),
    }
}

/// One instant for the whole process; only differences count.
fn epoch() -> Instant {
    static EPOCH: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// For the trace.
pub(crate) fn describe(change: &Change) -> String {
    match change {
        Change::Gone(uid) => format!("{uid} is gone"),
        Change::Is(facts) => {
            let mut words =
                vec![format!("{} v{} attempt {}", facts.uid, facts.version, facts.state.attempt)];
            let flags = [
                (facts.state.reserved, "reserved"),
                (facts.state.evicted, "evicted"),
                (facts.state.finished, "finished"),
                (facts.state.deleting, "deleting"),
            ];
            words.extend(flags.iter().filter(|(is, _)| *is).map(|(_, word)| (*word).to_owned()));
            words.extend(facts.state.cluster.as_ref().map(|cluster| format!("on {cluster}")));
            words.extend(facts.state.check.as_ref().map(|(_, check)| format!("check {check:?}")));
            words.join(" ")
        }
    }
}
