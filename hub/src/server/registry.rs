//! The live sessions, by cluster. Many connection tasks insert, look up and remove at once; no guard is held across an
//! await or another access.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use std::collections::BTreeSet;
use std::sync::Arc;

use dashmap::DashMap;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::agent_health::{Word, Words};
use super::duplicate_clusters::{Member, Workers};

/// Ends one session from outside.
#[derive(Debug, Clone, Default)]
pub struct Cut {
    token: CancellationToken,
    reason: Arc<Mutex<Option<String>>>,
}

impl Cut {
    /// Ends the session; the first reason counts.
    pub fn now(&self, reason: &str) {
        self.reason.lock().get_or_insert_with(|| reason.to_owned());
        self.token.cancel();
    }

    /// Waits for it, and says why.
    pub async fn happened(&self) -> String {
        self.token.cancelled().await;
        self.reason.lock().clone().unwrap_or_default()
    }
}

/// A live session, for people.
#[derive(Debug, Clone)]
pub struct Live {
    /// Grows with every session of the cluster.
    pub session_id: u64,
    /// When it began.
    pub since: Timestamp,
    /// The agent's build.
    pub software: String,
    /// The protocol version that was agreed.
    pub version: u32,
    /// Where it comes from; `hosted` in this process.
    pub address: String,
    /// The uid of the worker cluster, if it was told.
    pub worker: Option<String>,
    /// Since when its agent cannot act on its cluster; none: it can.
    pub unable: Option<Timestamp>,
    /// Whether only what has a proof counts as a copy there.
    pub proves: bool,
}

/// The cluster that a metric is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabel {
    cluster: String,
}

/// All live sessions.
#[derive(Debug, Default)]
pub struct Registry {
    dropped: Family<ClusterLabel, Counter>,
    sessions: DashMap<String, (Live, Cut)>,
    workers: Mutex<Workers>,
    /// What agents last said of themselves in sessions that are over.
    words: Mutex<Words>,
    /// Rung when a cluster was refused because another one leads to its worker cluster, or is not any more; and when its
    /// agent has changed its word, or left with one that has to be written down.
    pub bell: Notify,
}

impl Registry {
    /// Takes a session in. An older one of the cluster is cut.
    ///
    /// # Errors
    /// Another cluster leads to its worker cluster: the name of that one.
    pub fn enter(&self, cluster: &str, mut live: Live) -> Result<Cut, String> {
        if live.worker.is_none() {
            // One that cannot tell is taken for what it was known to be, lest another takes its place.
            live.worker = self.workers().known(cluster);
        }
        if let Some(worker) = &live.worker {
            let before = self.refused(cluster);
            let claimed = self.workers().claim(cluster, live.session_id, worker);
            if before.as_ref() != claimed.as_ref().err() {
                self.bell.notify_one();
            }
            for twin in claimed? {
                self.cut(
                    &twin,
                    "another MultiKueueCluster was known to lead to its worker cluster",
                );
            }
        }
        let cut = Cut::default();
        let before = self.sessions.insert(cluster.to_owned(), (live, cut.clone()));
        // It dials only while it can act: what it said before is over, also in a session that has not ended yet.
        self.words().take_back(cluster);
        if let Some((_, older)) = before {
            older.now("superseded by a newer session");
        }
        Ok(cut)
    }

    /// Shows its metrics from now on.
    pub fn show(&self, shown: &mut prometheus_client::registry::Registry) {
        shown.sub_registry_with_prefix("switchyard").register(
            "observations_dropped",
            "What agents said of workloads that no hub can have given out, by cluster",
            self.dropped.clone(),
        );
    }

    /// So much of what an agent said was dropped.
    pub(super) fn note_dropped(&self, cluster: &str, observations: usize) {
        if observations == 0 {
            return;
        }
        let label = ClusterLabel { cluster: cluster.to_owned() };
        self.dropped.get_or_create(&label).inc_by(u64::try_from(observations).unwrap_or(u64::MAX));
    }

    /// What is known of a MultiKueueCluster; none: it is gone.
    pub fn know(&self, cluster: &str, member: Option<Member>) {
        self.words().know(cluster, member.as_ref().map(|it| it.session));
        self.workers().know(cluster, member);
    }

    /// Since when the agent of a cluster without a session cannot act there, as it said in its last one; none: it could, or
    /// has a session, or it was another process that it told.
    pub fn left_unable(&self, cluster: &str) -> Option<Timestamp> {
        self.words().left_unable(cluster)
    }

    /// All clusters whose agent cannot act there, as it last said to this process.
    pub fn all_unable(&self) -> BTreeSet<String> {
        let unable = self.sessions.iter().filter(|entry| entry.0.unable.is_some());
        let live: BTreeSet<String> = unable.map(|entry| entry.key().clone()).collect();
        self.words().all().into_iter().chain(live).collect()
    }

    /// Which other cluster leads to this worker cluster, if one does that goes before.
    pub fn holder(&self, cluster: &str, worker: &str) -> Option<String> {
        self.workers().holder(cluster, worker)
    }

    /// Which other cluster leads to the worker cluster of one that was refused for it.
    pub fn refused(&self, cluster: &str) -> Option<String> {
        self.workers().refused(cluster)
    }

    /// The worker cluster that a cluster is known to lead to, if that is not this one.
    pub(super) fn known_elsewhere(&self, cluster: &str, worker: &str) -> Option<String> {
        self.workers().known_elsewhere(cluster, worker)
    }

    /// An agent was refused: it is not in the worker cluster that has the jobs.
    pub(super) fn note_strange(&self, cluster: &str, known: &str, found: &str) {
        if self.workers().note_strange(cluster, known, found) {
            self.bell.notify_one();
        }
    }

    /// The worker cluster that has the jobs of a cluster, and the one in which its agent is instead, by their uids.
    pub fn strange(&self, cluster: &str) -> Option<(String, String)> {
        self.workers().strange(cluster)
    }

    // A panic while one of these is held would have been between two plain changes: what is there can be used.
    fn words(&self) -> MutexGuard<'_, Words> {
        self.words.lock()
    }

    fn workers(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock()
    }

    /// Notes whether the agent of a session can act on its cluster. Returns whether that is news.
    pub fn set_able(&self, cluster: &str, session_id: u64, able: bool) -> bool {
        let Some(mut entry) = self.sessions.get_mut(cluster) else { return false };
        let live = &mut entry.0;
        if live.session_id != session_id || live.unable.is_none() == able {
            return false;
        }
        live.unable = (!able).then(Timestamp::now);
        drop(entry);
        self.bell.notify_one();
        true
    }

    /// Takes a session out, unless another has taken its place.
    ///
    /// That its agent could not act is kept until it has a session again: the status of its MultiKueueCluster, by which
    /// other processes know it, may not say so yet.
    pub fn leave(&self, cluster: &str, session_id: u64) {
        let left = self.sessions.remove_if(cluster, |_, (live, _)| live.session_id == session_id);
        self.workers().leave(cluster, session_id);
        if let Some(since) = left.and_then(|(_, (live, _))| live.unable) {
            self.words().keep(cluster, Word { session: session_id, since });
            self.bell.notify_one();
        }
    }

    /// Ends the session of a cluster, if it has one.
    pub fn cut(&self, cluster: &str, reason: &str) {
        let cut = self.sessions.get(cluster).map(|entry| entry.1.clone());
        if let Some(cut) = cut {
            cut.now(reason);
        }
    }

    /// Ends all sessions.
    pub fn cut_all(&self, reason: &str) {
        let cuts: Vec<Cut> = self.sessions.iter().map(|entry| entry.1.clone()).collect();
        for cut in cuts {
            cut.now(reason);
        }
    }

    /// The session of a cluster.
    pub fn get(&self, cluster: &str) -> Option<Live> {
        self.sessions.get(cluster).map(|entry| entry.0.clone())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(session_id: u64) -> Live {
        let (software, address) = (String::new(), String::new());
        let since = Timestamp::UNIX_EPOCH;
        Live {
            session_id,
            since,
            software,
            version: 1,
            address,
            worker: None,
            unable: None,
            proves: false,
        }
    }

    fn member(name: &str) -> Member {
        Member { rank: (1, name.to_owned()), worker: None, session: None }
    }

    #[tokio::test]
    async fn the_newer_session_supersedes_and_the_older_one_leaves_nothing_behind() {
        let registry = Registry::default();
        let older = registry.enter("a", live(1)).unwrap();
        let newer = registry.enter("a", live(2)).unwrap();
        assert_eq!(older.happened().await, "superseded by a newer session");
        registry.leave("a", 1);
        assert_eq!(registry.get("a").unwrap().session_id, 2);
        registry.cut("a", "deleted");
        registry.cut("a", "again");
        assert_eq!(newer.happened().await, "deleted");
        registry.leave("a", 2);
        assert!(registry.is_empty());
    }

    #[tokio::test]
    async fn two_clusters_that_are_one_have_one_session() {
        let registry = Registry::default();
        let at = |session_id| Live { worker: Some("w".to_owned()), ..live(session_id) };
        let first = registry.enter("a", at(1)).unwrap();
        assert_eq!(registry.enter("b", at(2)).unwrap_err(), "a");
        assert_eq!((registry.refused("b").as_deref(), registry.len()), (Some("a"), 1));
        registry.know("b", Some(Member { worker: Some("w".to_owned()), ..member("b") }));
        let _second = registry.enter("b", at(3)).unwrap();
        assert_eq!(
            first.happened().await,
            "another MultiKueueCluster was known to lead to its worker cluster"
        );
    }

    #[test]
    fn a_session_that_does_not_tell_its_worker_keeps_the_one_that_was_known() {
        let registry = Registry::default();
        registry.know("west", Some(Member { worker: Some("w".to_owned()), ..member("west") }));
        let _session = registry.enter("west", live(1)).unwrap();
        assert_eq!(registry.get("west").unwrap().worker.as_deref(), Some("w"));
        let twin = Live { worker: Some("w".to_owned()), ..live(2) };
        assert_eq!(registry.enter("twin", twin).unwrap_err(), "west");
    }

    #[test]
    fn agent_in_another_cluster_is_named_until_the_known_one_comes() {
        let registry = Registry::default();
        registry.know("west", Some(Member { worker: Some("w".to_owned()), ..member("west") }));
        assert_eq!(registry.known_elsewhere("west", "w"), None);
        assert_eq!(registry.known_elsewhere("west", "v").as_deref(), Some("w"));
        assert_eq!(registry.known_elsewhere("new", "v"), None, "nothing is known of it");
        registry.note_strange("west", "w", "v");
        assert_eq!(registry.strange("west"), Some(("w".to_owned(), "v".to_owned())));
        let _session =
            registry.enter("west", Live { worker: Some("w".to_owned()), ..live(1) }).unwrap();
        assert_eq!(registry.strange("west"), None);
    }

    #[test]
    fn session_says_where_its_cluster_is_before_the_status_does() {
        let registry = Registry::default();
        registry.know("west", Some(member("west")));
        let _session =
            registry.enter("west", Live { worker: Some("w".to_owned()), ..live(1) }).unwrap();
        assert_eq!(registry.known_elsewhere("west", "v").as_deref(), Some("w"));
    }

    #[test]
    fn the_word_of_an_agent_that_cannot_act_outlives_its_session() {
        let registry = Registry::default();
        registry.know("west", Some(member("west")));
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
