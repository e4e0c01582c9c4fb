//! Which worker cluster each MultiKueueCluster leads to. Pure.
//!
//! Two of them must not lead to one: each session would report the other one's jobs, the hub would take them for left over
//! there, and its tombstones would delete what runs.

use std::collections::BTreeMap;

/// A MultiKueueCluster, connected or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// When it was made, and its name: of two with the same claim, the older one's counts.
    pub rank: (i64, String),
    /// The uid of the worker cluster that it was known to lead to, by its status.
    pub worker: Option<String>,
    /// The session that stands, by its status.
    pub session: Option<u64>,
}

/// How good a claim is; less is better. A claim that was known goes before one that was only just made, a session that
/// stands before one that comes, the older cluster before the younger one.
type Order = (bool, bool, (i64, String));

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Workers {
    members: BTreeMap<String, Member>,
    /// By cluster: its session, and the worker cluster that it says it is.
    live: BTreeMap<String, (u64, String)>,
    /// By cluster: the worker cluster that it was refused for.
    refused: BTreeMap<String, String>,
    /// By cluster: the worker cluster that has its jobs, and the other one in which its agent was last.
    strange: BTreeMap<String, (String, String)>,
}

impl Workers {
    /// What is known of a cluster; none: it is gone.
    pub(super) fn know(&mut self, cluster: &str, member: Option<Member>) {
        if let Some(member) = member {
            self.members.insert(cluster.to_owned(), member);
        } else {
            self.members.remove(cluster);
            self.refused.remove(cluster);
            self.strange.remove(cluster);
        }
    }

    /// The worker cluster that a cluster was known to lead to.
    pub(super) fn known(&self, cluster: &str) -> Option<String> {
        self.members.get(cluster)?.worker.clone()
    }

    /// The worker cluster that a cluster leads to, if it is known and not this one. Its status may not say so yet.
    pub(super) fn known_elsewhere(&self, cluster: &str, worker: &str) -> Option<String> {
        let live = || self.live.get(cluster).map(|(_, its)| its.clone());
        self.known(cluster).or_else(live).filter(|known| known != worker)
    }

    /// An agent was in a worker cluster where the jobs of its cluster are not. Whether that is news.
    pub(super) fn note_strange(&mut self, cluster: &str, known: &str, found: &str) -> bool {
        let uids = (known.to_owned(), found.to_owned());
        self.strange.insert(cluster.to_owned(), uids.clone()) != Some(uids)
    }

    /// The worker cluster that has the jobs of a cluster, and the one in which its agent is instead.
    pub(super) fn strange(&self, cluster: &str) -> Option<(String, String)> {
        self.strange.get(cluster).cloned()
    }

    /// Which other cluster has a worker cluster, if one has.
    pub(super) fn holder(&self, cluster: &str, worker: &str) -> Option<String> {
        let mine = self.order(cluster, worker);
        let others = self.claimants(worker).filter(|name| *name != cluster);
        others
            .map(|name| (self.order(name, worker), name))
            .filter(|(other, _)| *other < mine)
            .min()
            .map(|(_, name)| name.to_owned())
    }

    /// A session says which worker cluster it is. Gives the clusters whose sessions have to go for it.
    ///
    /// # Errors
    /// Another cluster has it: its name.
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
        self.strange.remove(cluster);
        self.live.insert(cluster.to_owned(), (session_id, worker.to_owned()));
        let same = |(name, (_, its)): &(&String, &(u64, String))| *name != cluster && its == worker;
        Ok(self.live.iter().filter(same).map(|(name, _)| name.clone()).collect())
    }

    /// A session has ended.
    pub(super) fn leave(&mut self, cluster: &str, session_id: u64) {
        if self.live.get(cluster).is_some_and(|(live, _)| *live == session_id) {
            self.live.remove(cluster);
        }
    }

    /// Which other cluster has the worker cluster for which this one was refused.
    pub(super) fn refused(&self, cluster: &str) -> Option<String> {
        self.holder(cluster, self.refused.get(cluster)?)
    }

    fn claimants(&self, worker: &str) -> impl Iterator<Item = &str> {
        let known = self
            .members
            .iter()
            .filter(move |(_, it)| it.worker.as_deref() == Some(worker))
            .map(|(name, _)| name);
        let live =
            self.live.iter().filter(move |(_, (_, its))| its == worker).map(|(name, _)| name);
        known.chain(live).map(String::as_str)
    }

    fn order(&self, cluster: &str, worker: &str) -> Order {
        let known = self.members.get(cluster);
        let unproven = known.is_none_or(|it| it.worker.as_deref() != Some(worker));
        let absent = self.live.get(cluster).is_none_or(|(_, its)| its != worker);
        let rank = known.map_or_else(|| (i64::MAX, cluster.to_owned()), |it| it.rank.clone());
        (unproven, unproven && absent, rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(members: &[(i64, &str, Option<&str>)]) -> Workers {
        let mut workers = Workers::default();
        for (age, name, worker) in members {
            know(&mut workers, *age, name, *worker);
        }
        workers
    }

    fn know(workers: &mut Workers, age: i64, name: &str, worker: Option<&str>) {
        let member = Member {
            rank: (age, name.to_owned()),
            worker: worker.map(str::to_owned),
            session: None,
        };
        workers.know(name, Some(member));
    }

    #[test]
    fn of_two_newcomers_the_first_to_say_so_has_it_until_it_leaves() {
        let mut workers = workers(&[(1, "old", None), (2, "young", None)]);
        assert_eq!(workers.claim("young", 1, "w"), Ok(Vec::new()));
        assert_eq!(workers.claim("young", 2, "w"), Ok(Vec::new()), "a newer session of its own");
        assert_eq!(workers.claim("old", 3, "w"), Err("young".to_owned()));
        assert_eq!(workers.refused("old").as_deref(), Some("young"));
        assert_eq!(workers.claim("old", 4, "v"), Ok(Vec::new()), "another worker cluster");
        assert_eq!(workers.refused("old"), None);
        workers.leave("young", 1);
        assert_eq!(
            workers.holder("old", "w").as_deref(),
            Some("young"),
            "the end of a superseded session"
        );
        workers.leave("young", 2);
        assert_eq!(workers.claim("old", 5, "w"), Ok(Vec::new()));
    }

    #[test]
    fn the_one_that_was_known_to_be_it_has_it_connected_or_not_until_it_is_deleted() {
        let mut workers = workers(&[(1, "old", None), (2, "young", Some("w"))]);
        assert_eq!(workers.claim("old", 1, "w"), Err("young".to_owned()), "its jobs are there");
        assert_eq!(workers.claim("young", 2, "w"), Ok(Vec::new()));
        know(&mut workers, 1, "old", Some("w"));
        assert_eq!(
            workers.claim("young", 3, "w"),
            Err("old".to_owned()),
            "of two that were, the older"
        );
        workers.know("old", None);
        assert_eq!(workers.claim("young", 4, "w"), Ok(Vec::new()));
        assert_eq!(workers.refused("young"), None);
    }

    #[test]
    fn a_session_goes_for_one_that_was_known_to_be_it() {
        let mut workers = workers(&[(1, "old", None)]);
        // The store has not told of `young` yet.
        assert_eq!(workers.claim("old", 1, "w"), Ok(Vec::new()));
        know(&mut workers, 2, "young", Some("w"));
        assert_eq!(workers.claim("young", 2, "w"), Ok(vec!["old".to_owned()]));
        workers.leave("old", 1);
        assert_eq!(workers.claim("old", 3, "w"), Err("young".to_owned()));
    }
}
