//! Keeps two MultiKueueClusters from leading to one worker cluster. Pure.
//!
//! Each session would report the jobs of the other MultiKueueCluster. The hub would take them for
//! orphans, and its tombstones would delete running jobs.

use std::collections::BTreeMap;

/// A MultiKueueCluster that exists, with or without a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownCluster {
    /// Creation time in seconds, and name. The older object wins an equal claim.
    pub rank: (i64, String),
    /// The uid of the worker cluster in its status.
    pub worker: Option<String>,
    /// The session id in its status.
    pub session: Option<u64>,
}

/// Orders claims to a worker cluster; the least wins. A claim in the status goes before a new one,
/// a session before none, an older MultiKueueCluster before a younger one.
type ClaimOrder = (bool, bool, (i64, String));

/// Which MultiKueueCluster claims which worker cluster.
#[derive(Debug, Default)]
pub(super) struct WorkerClaims {
    known_clusters: BTreeMap<String, KnownCluster>,
    /// The session of each MultiKueueCluster, and the uid of the worker cluster that it reported.
    live: BTreeMap<String, (u64, String)>,
    /// The worker cluster for which a session of this MultiKueueCluster was refused.
    refused: BTreeMap<String, String>,
    /// For each MultiKueueCluster with an agent in the wrong place: the worker cluster that has its
    /// jobs, and the one where the agent was last.
    wrong_worker: BTreeMap<String, (String, String)>,
}

impl WorkerClaims {
    /// Takes in a change of a MultiKueueCluster; None if it is gone.
    pub(super) fn update_cluster(&mut self, cluster: &str, known: Option<KnownCluster>) {
        if let Some(known) = known {
            self.known_clusters.insert(cluster.to_owned(), known);
        } else {
            self.known_clusters.remove(cluster);
            self.refused.remove(cluster);
            self.wrong_worker.remove(cluster);
        }
    }

    /// The worker cluster in the status of a MultiKueueCluster.
    pub(super) fn known_worker(&self, cluster: &str) -> Option<String> {
        self.known_clusters.get(cluster)?.worker.clone()
    }

    /// The worker cluster of a MultiKueueCluster, if known and not `worker`. A live session counts
    /// before the status shows it.
    pub(super) fn known_elsewhere(&self, cluster: &str, worker: &str) -> Option<String> {
        let live = || self.live.get(cluster).map(|(_, its)| its.clone());
        self.known_worker(cluster).or_else(live).filter(|known| known != worker)
    }

    /// Records that an agent runs in a worker cluster without its jobs. Returns whether this is
    /// new.
    pub(super) fn record_wrong_worker(&mut self, cluster: &str, known: &str, found: &str) -> bool {
        let uids = (known.to_owned(), found.to_owned());
        self.wrong_worker.insert(cluster.to_owned(), uids.clone()) != Some(uids)
    }

    /// The worker cluster that has the jobs, and the one where the agent runs instead.
    pub(super) fn wrong_worker(&self, cluster: &str) -> Option<(String, String)> {
        self.wrong_worker.get(cluster).cloned()
    }

    /// The other MultiKueueCluster that holds a worker cluster.
    pub(super) fn holder(&self, cluster: &str, worker: &str) -> Option<String> {
        let mine = self.order(cluster, worker);
        let others = self.claimants(worker).filter(|name| *name != cluster);
        others
            .map(|name| (self.order(name, worker), name))
            .filter(|(other, _)| *other < mine)
            .min()
            .map(|(_, name)| name.to_owned())
    }

    /// Claims a worker cluster for a session. Returns the clusters whose sessions must close for
    /// it.
    ///
    /// # Errors
    /// The name of the MultiKueueCluster that holds the worker cluster.
    pub(super) fn claim(
        &mut self,
        cluster: &str,
        session_id: u64,
        worker: &str,
    ) -> Result<Vec<String>, String> {
        if let Some(holder) = self.holder(cluster, worker) {
            self.refused.insert(cluster.to_owned(), worker.to_owned());
            return Err(holder);
        }
        self.refused.remove(cluster);
        self.wrong_worker.remove(cluster);
        self.live.insert(cluster.to_owned(), (session_id, worker.to_owned()));
        let same = |(name, (_, its)): &(&String, &(u64, String))| *name != cluster && its == worker;
        Ok(self.live.iter().filter(same).map(|(name, _)| name.clone()).collect())
    }

    pub(super) fn leave(&mut self, cluster: &str, session_id: u64) {
        if self.live.get(cluster).is_some_and(|(live, _)| *live == session_id) {
            self.live.remove(cluster);
        }
    }

    /// The MultiKueueCluster that holds the worker cluster for which `cluster` was refused.
    pub(super) fn holder_of_refused(&self, cluster: &str) -> Option<String> {
        self.holder(cluster, self.refused.get(cluster)?)
    }

    /// For each refused MultiKueueCluster, the one that holds its worker cluster.
    pub(super) fn holders_of_refused(&self) -> BTreeMap<String, String> {
        let held = |cluster: &String| Some((cluster.clone(), self.holder_of_refused(cluster)?));
        self.refused.keys().filter_map(held).collect()
    }

    fn claimants(&self, worker: &str) -> impl Iterator<Item = &str> {
        let known = self
            .known_clusters
            .iter()
            .filter(move |(_, it)| it.worker.as_deref() == Some(worker))
            .map(|(name, _)| name);
        let live =
            self.live.iter().filter(move |(_, (_, its))| its == worker).map(|(name, _)| name);
        known.chain(live).map(String::as_str)
    }

    fn order(&self, cluster: &str, worker: &str) -> ClaimOrder {
        let known = self.known_clusters.get(cluster);
        let unproven = known.is_none_or(|it| it.worker.as_deref() != Some(worker));
        let absent = self.live.get(cluster).is_none_or(|(_, its)| its != worker);
        let rank = known.map_or_else(|| (i64::MAX, cluster.to_owned()), |it| it.rank.clone());
        (unproven, unproven && absent, rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(known_clusters: &[(i64, &str, Option<&str>)]) -> WorkerClaims {
        let mut claims = WorkerClaims::default();
        for (age, name, worker) in known_clusters {
            add_cluster(&mut claims, *age, name, *worker);
        }
        claims
    }

    fn add_cluster(claims: &mut WorkerClaims, age: i64, name: &str, worker: Option<&str>) {
        let known = KnownCluster {
            rank: (age, name.to_owned()),
            worker: worker.map(str::to_owned),
            session: None,
        };
        claims.update_cluster(name, Some(known));
    }

    #[test]
    fn first_of_two_new_clusters_holds_the_worker() {
        let mut claims = claims(&[(1, "old", None), (2, "young", None)]);
        assert_eq!(claims.claim("young", 1, "w"), Ok(Vec::new()));
        assert_eq!(claims.claim("young", 2, "w"), Ok(Vec::new()), "a newer session of its own");
        assert_eq!(claims.claim("old", 3, "w"), Err("young".to_owned()));
        assert_eq!(claims.holder_of_refused("old").as_deref(), Some("young"));
        assert_eq!(claims.claim("old", 4, "v"), Ok(Vec::new()), "another worker cluster");
        assert_eq!(claims.holder_of_refused("old"), None);
        claims.leave("young", 1);
        assert_eq!(
            claims.holder("old", "w").as_deref(),
            Some("young"),
            "the end of a superseded session"
        );
        claims.leave("young", 2);
        assert_eq!(claims.claim("old", 5, "w"), Ok(Vec::new()));
    }

    #[test]
    fn cluster_in_status_keeps_its_worker_until_deleted() {
        let mut claims = claims(&[(1, "old", None), (2, "young", Some("w"))]);
        assert_eq!(claims.claim("old", 1, "w"), Err("young".to_owned()), "its jobs are there");
        assert_eq!(claims.claim("young", 2, "w"), Ok(Vec::new()));
        add_cluster(&mut claims, 1, "old", Some("w"));
        assert_eq!(
            claims.claim("young", 3, "w"),
            Err("old".to_owned()),
            "of two that were, the older"
        );
        claims.update_cluster("old", None);
        assert_eq!(claims.claim("young", 4, "w"), Ok(Vec::new()));
        assert_eq!(claims.holder_of_refused("young"), None);
    }

    #[test]
    fn session_closes_for_the_cluster_in_the_status() {
        let mut claims = claims(&[(1, "old", None)]);
        // The watch has not shown `young` yet.
        assert_eq!(claims.claim("old", 1, "w"), Ok(Vec::new()));
        add_cluster(&mut claims, 2, "young", Some("w"));
        assert_eq!(claims.claim("young", 2, "w"), Ok(vec!["old".to_owned()]));
        claims.leave("old", 1);
        assert_eq!(claims.claim("old", 3, "w"), Err("young".to_owned()));
    }
}
