//! The jobs that run on the workers, observed all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use switchyard_e2e::{Cluster, job};
use tokio::task::JoinSet;

use super::queues::NAMESPACE;

/// Looks are this far apart.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// A look that takes longer is given up.
const ANSWER: Duration = Duration::from_secs(3);

/// The state of a worker when its API server last answered. While it is silent, its pods run on.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Jobs with a pod that has not ended.
    pub(super) live: BTreeSet<String>,
    /// Jobs with a pod that runs and is to run on.
    pub(super) running: BTreeSet<String>,
    /// The Jobs that there are.
    pub(super) jobs: BTreeSet<String>,
    /// All pods that there ever were, by job.
    pub(super) pods: BTreeMap<String, BTreeSet<String>>,
    /// Whether the API server answered the last time.
    pub(super) fresh: bool,
}

/// Watches workers until it is dropped.
pub(super) struct Observer {
    seen: Arc<Mutex<BTreeMap<String, Seen>>>,
    _tasks: JoinSet<()>,
}

impl Observer {
    pub(super) fn start<'a>(workers: impl IntoIterator<Item = &'a Cluster>) -> Self {
        let seen = Arc::<Mutex<BTreeMap<String, Seen>>>::default();
        let mut tasks = JoinSet::new();
        for worker in workers {
            tasks.spawn(watch(worker.name().to_owned(), worker.admin.clone(), seen.clone()));
        }
        Self { seen, _tasks: tasks }
    }

    /// The present state of a worker.
    pub(super) fn of(&self, worker: &str) -> Seen {
        self.seen.lock().get(worker).cloned().unwrap_or_default()
    }
}

async fn watch(name: String, client: Client, seen: Arc<Mutex<BTreeMap<String, Seen>>>) {
    loop {
        let found = tokio::time::timeout(ANSWER, look(&client))
            .await
            .context("no answer")
            .and_then(|found| found);
        {
            let mut seen = seen.lock();
            let known = seen.entry(name.clone()).or_default();
            known.fresh = found.is_ok();
            if let Ok((pods, jobs)) = found {
                known.take(pods, jobs);
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn look(client: &Client) -> anyhow::Result<(Vec<Pod>, BTreeSet<String>)> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let jobs: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
    let params = ListParams::default();
    let (pods, jobs) = futures::try_join!(pods.list(&params), jobs.list_metadata(&params))?;
    Ok((pods.items, jobs.items.iter().map(ResourceExt::name_any).collect()))
}

impl Seen {
    fn take(&mut self, pods: Vec<Pod>, jobs: BTreeSet<String>) {
        (self.live, self.running, self.jobs) = (BTreeSet::new(), BTreeSet::new(), jobs);
        for pod in pods {
            let Some(job) = pod.labels().get(job::JOB_NAME).cloned() else { continue };
            self.pods.entry(job.clone()).or_default().insert(pod.metadata.uid.unwrap_or_default());
            let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
            if phase == "Running" && pod.metadata.deletion_timestamp.is_none() {
                self.running.insert(job.clone());
            }
            if !matches!(phase.as_str(), "Succeeded" | "Failed") {
                self.live.insert(job);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(job: &str, uid: &str, phase: &str, going: bool) -> Pod {
        let mut pod = json!({
            "metadata": {"uid": uid, "labels": {job::JOB_NAME: job}}, "status": {"phase": phase},
        });
        if going {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_pod_that_goes_is_live_until_it_is_gone_and_is_remembered() {
        let mut seen = Seen::default();
        let set = |jobs: &[&str]| jobs.iter().map(|job| (*job).to_owned()).collect::<BTreeSet<_>>();
        seen.take(
            vec![pod("a", "1", "Running", true), pod("b", "2", "Succeeded", false)],
            set(&["a", "b"]),
        );
        assert_eq!((&seen.live, &seen.running), (&set(&["a"]), &set(&[])));
        seen.take(vec![pod("a", "3", "Running", false)], set(&["a"]));
        assert_eq!((&seen.live, &seen.running), (&set(&["a"]), &set(&["a"])));
        assert_eq!((seen.pods["a"].len(), seen.pods["b"].len()), (2, 1));
    }
}
