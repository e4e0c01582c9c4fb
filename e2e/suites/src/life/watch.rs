//! The auditor beside the run: what it finds, and what lasts.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::{Duration, Instant};

use kube::Client;
use parking_lot::Mutex;
use switchyard_audit::Finding;
use switchyard_e2e::auditor::{self, FindingKind, Memory};
use switchyard_e2e::fleet::Fleet;

use super::empty;
use super::log::Log;

/// How often all clusters are listed.
const EVERY: Duration = Duration::from_secs(4);
/// How long a finding may last: the longest end of a pod, a program that is away, and what that leads to.
const GRACE: Duration = Duration::from_secs(30);
/// How long a queue may take to know its new quota.
const SETTLES: Duration = Duration::from_secs(5);

/// The observations so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Audits of all clusters.
    pub(crate) audits: u32,
    /// Findings that the audit before did not have.
    pub(crate) new: usize,
    /// Findings that outlasted the grace, in words.
    pub(crate) lasting: Vec<String>,
}

/// Audits until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    seen: Mutex<Seen>,
    /// Clusters on which a quota was lowered, and not everything was seen within its quota since.
    lowered: Mutex<BTreeMap<String, Instant>>,
}

impl Watch {
    /// Allows more charge than quota on a cluster until there is none: nothing is evicted when a quota is lowered.
    pub(crate) fn lowered(&self, cluster: &str) {
        self.lowered.lock().insert(cluster.to_owned(), Instant::now());
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }

    /// Audits without end.
    pub(crate) async fn follow(&self, fleet: &Fleet, log: &Log) -> Infallible {
        let clusters: Vec<(String, Client)> = fleet
            .environment()
            .clusters()
            .iter()
            .map(|it| (it.name().to_owned(), it.admin.clone()))
            .collect();
        let (mut memory, mut told, mut before) =
            (Memory::default(), BTreeSet::new(), BTreeSet::new());
        loop {
            tokio::time::sleep(EVERY).await;
            let begun = Instant::now();
            let (seen, mut found) = auditor::audit_once(clusters.clone()).await;
            self.forgive(begun, &mut found);
            let now: BTreeSet<String> = found.keys().cloned().collect();
            let new = now.difference(&before).count();
            before = now;
            let lasting: Vec<(String, String)> = memory
                .lasting(found, GRACE)
                .into_iter()
                .filter(|(key, _)| told.insert(key.clone()))
                .collect();
            for (_, text) in &lasting {
                log.tell(&format!("FOUND {text}"));
            }
            let number = {
                let mut state = self.seen.lock();
                state.audits += u32::from(seen == clusters.len());
                state.new += new;
                state.lasting.extend(lasting.iter().map(|(_, text)| text.clone()));
                state.lasting.len()
            };
            if !lasting.is_empty() {
                empty::keep(fleet, log, &format!("found-{number}")).await;
            }
        }
    }

    /// Leaves out what a lowered quota explains, in an audit that began at this time.
    fn forgive(&self, begun: Instant, found: &mut BTreeMap<String, Finding>) {
        let mut lowered = self.lowered.lock();
        lowered.retain(|cluster, at| {
            let above = found
                .values()
                .any(|it| it.kind == FindingKind::ChargedAboveQuota && it.cluster == *cluster);
            above || begun < *at + SETTLES
        });
        found.retain(|_, it| {
            it.kind != FindingKind::ChargedAboveQuota || !lowered.contains_key(&it.cluster)
        });
    }
}

#[cfg(test)]
mod tests {
    use switchyard_audit::audit;

    use super::*;

    /// A ClusterQueue of one CPU whose only Workload is charged three.
    fn above_quota() -> BTreeMap<String, Finding> {
        let queue = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "a"},
            "spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1"}]},
            ]}]},
        }));
        let workload = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "w", "namespace": "ns", "uid": "u"},
            "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]},
            "status": {
                "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                    "lastTransitionTime": "2026-11-25T10:00:00Z"}],
                "admission": {"clusterQueue": "a", "podSetAssignments": [
                    {"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}},
                ]},
            },
        }));
        let cluster = switchyard_audit::Cluster {
            name: "hub".to_owned(),
            cluster_queues: vec![queue.unwrap()],
            workloads: vec![workload.unwrap()],
            ..Default::default()
        };
        let above = |finding: &Finding| finding.kind == FindingKind::ChargedAboveQuota;
        audit(&cluster).into_iter().filter(above).map(|it| (it.key(), it)).collect()
    }

    #[test]
    fn more_charge_than_quota_is_forgiven_until_it_was_within_once() {
        let watch = Watch::default();
        let left = |at: Instant, found: BTreeMap<String, Finding>| {
            let mut found = found;
            watch.forgive(at, &mut found);
            found.len()
        };
        let now = Instant::now();
        assert_eq!(left(now, above_quota()), 1, "no quota was lowered");
        watch.lowered("hub");
        let later = Instant::now() + SETTLES;
        assert_eq!(left(later, above_quota()), 0, "it was lowered below what is charged");
        assert_eq!(left(now, BTreeMap::new()), 0);
        assert_eq!(left(later, above_quota()), 0, "a look that began before says nothing of it");
        assert_eq!(left(later, BTreeMap::new()), 0);
        assert_eq!(left(later, above_quota()), 1, "it was within its quota since");
    }
}
