//! The live sessions, by cluster. Many connection tasks use it at once, so no guard is held across
//! an await or another access.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use std::collections::BTreeSet;
use std::sync::Arc;

use dashmap::DashMap;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::agent_health::{AgentHealth, InabilityReport};
use super::duplicate_clusters::{KnownCluster, WorkerClaims};

/// Closes one session from outside.
#[derive(Debug, Clone, Default)]
pub struct SessionCloser {
    token: CancellationToken,
    reason: Arc<Mutex<Option<String>>>,
}

impl SessionCloser {
    /// Closes the session. The first reason counts.
    pub fn close(&self, reason: &str) {
        self.reason.lock().get_or_insert_with(|| reason.to_owned());
        self.token.cancel();
    }

    /// Waits until the session is closed, and returns the reason.
    pub async fn closed(&self) -> String {
        self.token.cancelled().await;
        self.reason.lock().clone().unwrap_or_default()
    }
}

/// A live session.
#[derive(Debug, Clone)]
pub struct LiveSession {
    /// Grows with each session of the cluster.
    pub session_id: u64,
    pub since: Timestamp,
    /// The agent's name and version.
    pub software: String,
    /// The agreed protocol version.
    pub version: u32,
    /// The agent's address; `hosted` for an agent in this process.
    pub address: String,
    /// The uid of the worker cluster, if the agent can read it.
    pub worker: Option<String>,
    /// Since when the agent cannot write to its own API server. None if it can.
    pub unable: Option<Timestamp>,
    /// Whether the agent accepts only copies with a proof.
    pub proves: bool,
    /// Seconds by which the agent's clock was ahead of the hub's when the session began, negative
    /// if it was behind. None if the agent sent no time.
    pub skew: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabel {
    cluster: String,
}

#[derive(Debug, Default)]
pub struct Registry {
    dropped: Family<ClusterLabel, Counter>,
    wrong_rooms: Family<ClusterLabel, Counter>,
    sessions: DashMap<String, (LiveSession, SessionCloser)>,
    claims: Mutex<WorkerClaims>,
    /// The last health reports of agents whose sessions ended.
    health: Mutex<AgentHealth>,
    /// Notified when a cluster is refused as a duplicate or no longer is, when an agent's health
    /// changes, and when a session ends.
    pub changed: Notify,
}

impl Registry {
    /// Registers a session, and closes an older one of the same cluster.
    ///
    /// # Errors
    /// The name of another MultiKueueCluster that leads to the same worker cluster.
    pub fn enter(&self, cluster: &str, mut live: LiveSession) -> Result<SessionCloser, String> {
        if live.worker.is_none() {
            // Without a uid, assume the known worker, so that no other MultiKueueCluster takes it.
            live.worker = self.claims.lock().known_worker(cluster);
        }
        if let Some(worker) = &live.worker {
            let before = self.holder_of_refused(cluster);
            let claimed = self.claims.lock().claim(cluster, live.session_id, worker);
            if before.as_ref() != claimed.as_ref().err() {
                self.changed.notify_one();
            }
            for duplicate in claimed? {
                self.close(
                    &duplicate,
                    "another MultiKueueCluster was known to lead to its worker cluster",
                );
            }
        }
        let closer = SessionCloser::default();
        let before = self.sessions.insert(cluster.to_owned(), (live, closer.clone()));
        // An agent dials only while it can write. Its earlier report is obsolete.
        self.health.lock().clear(cluster);
        if let Some((_, older)) = before {
            older.close("superseded by a newer session");
        }
        Ok(closer)
    }

    /// Registers the metrics.
    pub fn show(&self, shown: &mut prometheus_client::registry::Registry) {
        let shown = shown.sub_registry_with_prefix("switchyard");
        shown.register(
            "observations_dropped",
            "Reports about workloads that no hub can have created, by cluster",
            self.dropped.clone(),
        );
        shown.register(
            "node_room_out_of_bounds",
            "Parts of reports of room on nodes that the hub dropped or clamped, by cluster",
            self.wrong_rooms.clone(),
        );
    }

    pub(super) fn count_dropped(&self, cluster: &str, observations: usize) {
        add(&self.dropped, cluster, observations);
    }

    pub(super) fn count_wrong_rooms(&self, cluster: &str, parts: usize) {
        add(&self.wrong_rooms, cluster, parts);
    }

    /// Takes in a change of a MultiKueueCluster; None if it is gone.
    pub fn update_cluster(&self, cluster: &str, member: Option<KnownCluster>) {
        self.health.lock().update_cluster(cluster, member.as_ref().map(|it| it.session));
        let mut claims = self.claims.lock();
        let before = claims.holders_of_refused();
        claims.update_cluster(cluster, member);
        let is_changed = claims.holders_of_refused() != before;
        drop(claims);
        if is_changed {
            self.changed.notify_one();
        }
    }

    /// Since when the agent of a cluster without a session cannot write, by its report in the last
    /// one. None if it could, has a session, or reported to another replica.
    pub fn left_unable(&self, cluster: &str) -> Option<Timestamp> {
        self.health.lock().left_unable(cluster)
    }

    /// The clusters whose agents last reported to this process that they cannot write.
    pub fn all_unable(&self) -> BTreeSet<String> {
        let unable = self.sessions.iter().filter(|entry| entry.0.unable.is_some());
        let live: BTreeSet<String> = unable.map(|entry| entry.key().clone()).collect();
        self.health.lock().all().into_iter().chain(live).collect()
    }

    /// The other MultiKueueCluster with the better claim to this worker cluster.
    pub fn holder(&self, cluster: &str, worker: &str) -> Option<String> {
        self.claims.lock().holder(cluster, worker)
    }

    /// The MultiKueueCluster that holds the worker cluster for which `cluster` was refused.
    pub fn holder_of_refused(&self, cluster: &str) -> Option<String> {
        self.claims.lock().holder_of_refused(cluster)
    }

    /// The worker cluster that a MultiKueueCluster is known to lead to, if not `worker`.
    pub(super) fn known_elsewhere(&self, cluster: &str, worker: &str) -> Option<String> {
        self.claims.lock().known_elsewhere(cluster, worker)
    }

    /// Records a refused agent that is not in the worker cluster with its jobs.
    pub(super) fn record_wrong_worker(&self, cluster: &str, known: &str, found: &str) {
        if self.claims.lock().record_wrong_worker(cluster, known, found) {
            self.changed.notify_one();
        }
    }

    /// The uids of the worker cluster that has the jobs, and of the one where the agent runs
    /// instead.
    pub fn wrong_worker(&self, cluster: &str) -> Option<(String, String)> {
        self.claims.lock().wrong_worker(cluster)
    }

    /// Records whether an agent can write to its API server. Returns whether this is new.
    pub fn set_able(&self, cluster: &str, session_id: u64, able: bool) -> bool {
        let Some(mut entry) = self.sessions.get_mut(cluster) else { return false };
        let live = &mut entry.0;
        if live.session_id != session_id || live.unable.is_none() == able {
            return false;
        }
        live.unable = (!able).then(Timestamp::now);
        drop(entry);
        self.changed.notify_one();
        true
    }

    /// Removes a session, unless a newer one has taken its place.
    ///
    /// A report that the agent cannot write outlives the session: the status of the
    /// MultiKueueCluster, where other replicas read it, may not show it yet.
    pub fn leave(&self, cluster: &str, session_id: u64) {
        let left = self.sessions.remove_if(cluster, |_, (live, _)| live.session_id == session_id);
        self.claims.lock().leave(cluster, session_id);
        let Some((_, (live, _))) = left else { return };
        if let Some(since) = live.unable {
            self.health.lock().keep(cluster, InabilityReport { session: session_id, since });
        }
        // The dispatcher's task may never have learned of the session.
        self.changed.notify_one();
    }

    /// Closes the session of a cluster.
    pub fn close(&self, cluster: &str, reason: &str) {
        let closer = self.sessions.get(cluster).map(|entry| entry.1.clone());
        if let Some(closer) = closer {
            closer.close(reason);
        }
    }

    /// Closes all sessions.
    pub fn close_all(&self, reason: &str) {
        let closers: Vec<SessionCloser> =
            self.sessions.iter().map(|entry| entry.1.clone()).collect();
        for closer in closers {
            closer.close(reason);
        }
    }

    pub fn get(&self, cluster: &str) -> Option<LiveSession> {
        self.sessions.get(cluster).map(|entry| entry.0.clone())
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }
}

/// A cluster without a count has no series.
fn add(family: &Family<ClusterLabel, Counter>, cluster: &str, count: usize) {
    if count > 0 {
        let label = ClusterLabel { cluster: cluster.to_owned() };
        family.get_or_create(&label).inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn live(session_id: u64) -> LiveSession {
        let (software, address) = (String::new(), String::new());
        let since = Timestamp::UNIX_EPOCH;
        LiveSession {
            session_id,
            since,
            software,
            version: 1,
            address,
            worker: None,
            unable: None,
            proves: false,
            skew: None,
        }
    }

    fn member(name: &str) -> KnownCluster {
        KnownCluster { rank: (1, name.to_owned()), worker: None, session: None }
    }

    #[tokio::test]
    async fn newer_session_supersedes_the_older_one() {
        let registry = Registry::default();
        let older = registry.enter("a", live(1)).unwrap();
        let newer = registry.enter("a", live(2)).unwrap();
        assert_eq!(older.closed().await, "superseded by a newer session");
        registry.leave("a", 1);
        assert_eq!(registry.get("a").unwrap().session_id, 2);
        registry.close("a", "deleted");
        registry.close("a", "again");
        assert_eq!(newer.closed().await, "deleted");
        registry.leave("a", 2);
        assert!(registry.is_empty());
    }

    #[tokio::test]
    async fn duplicate_clusters_have_one_session() {
        let registry = Registry::default();
        let at = |session_id| LiveSession { worker: Some("w".to_owned()), ..live(session_id) };
        let first = registry.enter("a", at(1)).unwrap();
        assert_eq!(registry.enter("b", at(2)).unwrap_err(), "a");
        assert_eq!((registry.holder_of_refused("b").as_deref(), registry.len()), (Some("a"), 1));
        registry.update_cluster(
            "b",
            Some(KnownCluster { worker: Some("w".to_owned()), ..member("b") }),
        );
        let _second = registry.enter("b", at(3)).unwrap();
        assert_eq!(
            first.closed().await,
            "another MultiKueueCluster was known to lead to its worker cluster"
        );
    }

    /// The dispatcher's task learns of a session after its registration, so maybe never.
    #[test]
    fn end_of_the_newest_session_is_notified() {
        let registry = Registry::default();
        let changed = || registry.changed.notified().now_or_never().is_some();
        let _older = registry.enter("a", live(1)).unwrap();
        let _newer = registry.enter("a", live(2)).unwrap();
        registry.leave("a", 1);
        assert!(!changed(), "the newer session goes on");
        registry.leave("a", 2);
        assert!(changed());
    }

    #[test]
    fn refused_duplicate_is_notified_when_the_holder_gives_up() {
        let registry = Registry::default();
        let changed = || registry.changed.notified().now_or_never().is_some();
        let holder = |worker: Option<&str>| KnownCluster {
            worker: worker.map(str::to_owned),
            ..member("west")
        };
        registry.update_cluster("west", Some(holder(Some("w"))));
        registry.update_cluster("twin", Some(member("twin")));
        let duplicate = LiveSession { worker: Some("w".to_owned()), ..live(1) };
        assert_eq!(registry.enter("twin", duplicate).unwrap_err(), "west");
        assert!(changed());
        registry.update_cluster("west", Some(holder(Some("w"))));
        assert!(!changed(), "nothing is new");
        // It is being deleted, or its status has lost its worker cluster.
        registry.update_cluster("west", Some(holder(None)));
        assert_eq!((changed(), registry.holder_of_refused("twin")), (true, None));
        registry.update_cluster("west", Some(holder(Some("w"))));
        assert!(changed());
        registry.update_cluster("west", None);
        assert_eq!((changed(), registry.holder_of_refused("twin")), (true, None));
    }

    #[test]
    fn session_without_worker_uid_keeps_the_known_worker() {
        let registry = Registry::default();
        registry.update_cluster(
            "west",
            Some(KnownCluster { worker: Some("w".to_owned()), ..member("west") }),
        );
        let _session = registry.enter("west", live(1)).unwrap();
        assert_eq!(registry.get("west").unwrap().worker.as_deref(), Some("w"));
        let duplicate = LiveSession { worker: Some("w".to_owned()), ..live(2) };
        assert_eq!(registry.enter("twin", duplicate).unwrap_err(), "west");
    }

    #[test]
    fn wrong_worker_is_reported_until_the_known_one_connects() {
        let registry = Registry::default();
        registry.update_cluster(
            "west",
            Some(KnownCluster { worker: Some("w".to_owned()), ..member("west") }),
        );
        assert_eq!(registry.known_elsewhere("west", "w"), None);
        assert_eq!(registry.known_elsewhere("west", "v").as_deref(), Some("w"));
        assert_eq!(registry.known_elsewhere("new", "v"), None, "nothing is known of it");
        registry.record_wrong_worker("west", "w", "v");
        assert_eq!(registry.wrong_worker("west"), Some(("w".to_owned(), "v".to_owned())));
        let _session = registry
            .enter("west", LiveSession { worker: Some("w".to_owned()), ..live(1) })
            .unwrap();
        assert_eq!(registry.wrong_worker("west"), None);
    }

    #[test]
    fn session_worker_is_known_before_the_status() {
        let registry = Registry::default();
        registry.update_cluster("west", Some(member("west")));
        let _session = registry
            .enter("west", LiveSession { worker: Some("w".to_owned()), ..live(1) })
            .unwrap();
        assert_eq!(registry.known_elsewhere("west", "v").as_deref(), Some("w"));
    }

    #[test]
    fn inability_report_outlives_its_session() {
        let registry = Registry::default();
        registry.update_cluster("west", Some(member("west")));
        let _session = registry.enter("west", live(1)).unwrap();
        assert!(registry.set_able("west", 1, false));
        assert_eq!(registry.left_unable("west"), None, "while the session stands, it has the word");
        assert_eq!(registry.all_unable().len(), 1);
        registry.leave("west", 1);
        assert!(registry.left_unable("west").is_some());
        assert_eq!(registry.all_unable().len(), 1);
        let _next = registry.enter("west", live(2)).unwrap();
        registry.leave("west", 2);
        assert_eq!(
            (registry.left_unable("west"), registry.all_unable().len()),
            (None, 0),
            "it could act again"
        );
    }
}
