//! Which agents cannot write to their own API server, as they last reported. Pure.
//!
//! An agent that cannot write reports it in its session, and does not dial while it lasts. The
//! session may end before the report is in the status of the MultiKueueCluster, where other hub
//! replicas read it. This memory bridges that gap.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// The agent's report that it cannot write to its own API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InabilityReport {
    /// The session of the report. Session ids grow, also across hub replicas.
    pub(super) session: u64,
    pub(super) since: Timestamp,
}

/// At most one report for each MultiKueueCluster.
#[derive(Debug, Default)]
pub(super) struct AgentHealth {
    clusters: BTreeMap<String, Option<InabilityReport>>,
}

impl AgentHealth {
    /// Takes in a change of a MultiKueueCluster.
    ///
    /// `session` is None if the object is gone. Else it holds the session id in the object's
    /// status.
    pub(super) fn update_cluster(&mut self, cluster: &str, session: Option<Option<u64>>) {
        let Some(session) = session else {
            self.clusters.remove(cluster);
            return;
        };
        let report = self.clusters.entry(cluster.to_owned()).or_default();
        // A later session at another replica makes the report obsolete.
        report.take_if(|report| session.is_some_and(|session| session > report.session));
    }

    /// Keeps the report of a session that ended. Reports of deleted MultiKueueClusters are dropped.
    pub(super) fn keep(&mut self, cluster: &str, said: InabilityReport) {
        if let Some(report) = self.clusters.get_mut(cluster) {
            *report = Some(said);
        }
    }

    /// Forgets the report: the agent has a session again.
    pub(super) fn clear(&mut self, cluster: &str) {
        if let Some(report) = self.clusters.get_mut(cluster) {
            *report = None;
        }
    }

    /// Since when the agent could not write when its session ended.
    pub(super) fn left_unable(&self, cluster: &str) -> Option<Timestamp> {
        self.clusters.get(cluster)?.map(|report| report.since)
    }

    /// The clusters with a report.
    pub(super) fn all(&self) -> Vec<String> {
        self.clusters
            .iter()
            .filter(|(_, report)| report.is_some())
            .map(|(name, _)| name.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inability_report_is_kept_until_newer_information() {
        type Later = fn(&mut AgentHealth);
        let cases: [(&str, Later, bool); 6] = [
            ("nothing happens", |_| {}, true),
            (
                "the status is written, and names no session",
                |health| health.update_cluster("west", Some(None)),
                true,
            ),
            (
                "the status still names the session that has ended",
                |health| health.update_cluster("west", Some(Some(7))),
                true,
            ),
            (
                "another process had a session with it",
                |health| health.update_cluster("west", Some(Some(8))),
                false,
            ),
            ("it has a session again", |health| health.clear("west"), false),
            (
                "its MultiKueueCluster is made anew",
                |health| {
                    health.update_cluster("west", None);
                    health.update_cluster("west", Some(None));
                },
                false,
            ),
        ];
        for (case, later, kept) in cases {
            let mut health = AgentHealth::default();
            health.update_cluster("west", Some(None));
            health.keep("west", InabilityReport { session: 7, since: Timestamp::UNIX_EPOCH });
            later(&mut health);
            assert_eq!(health.left_unable("west").is_some(), kept, "{case}");
        }
    }

    #[test]
    fn deleted_cluster_keeps_no_report() {
        let mut health = AgentHealth::default();
        health.update_cluster("west", Some(None));
        health.update_cluster("west", None);
        health.keep("west", InabilityReport { session: 7, since: Timestamp::UNIX_EPOCH });
        assert!(health.all().is_empty() && health.clusters.is_empty());
    }
}
