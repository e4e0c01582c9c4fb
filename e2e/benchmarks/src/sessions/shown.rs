//! The status of remote jobs on the hub, and its lag.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use parking_lot::Mutex;
use switchyard_e2e::Cluster;
use switchyard_e2e::wait::{eventually, never};
use tokio::task::JoinSet;

use super::agent::Board;

/// How late a report may be before the run fails.
const LATEST: Duration = Duration::from_secs(300);

/// Watches the hub's Jobs. Dropping it ends the watch.
pub(crate) struct Shown {
    state: Arc<Mutex<State>>,
    watching: JoinSet<anyhow::Result<()>>,
}

#[derive(Default)]
struct State {
    active: BTreeSet<String>,
    /// When each change was reported, by job and number.
    said: BTreeMap<(String, i32), Instant>,
    lags: Vec<Duration>,
}

impl Shown {
    pub(crate) fn start(hub: &Cluster) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let mut watching = JoinSet::new();
        watching.spawn(watch(Api::all(hub.admin.clone()), state.clone()));
        Self { state, watching }
    }

    /// How many Jobs are shown as running.
    pub(crate) fn active(&self) -> usize {
        self.state.lock().active.len()
    }

    /// Has the jobs of a board change their status, one after another, so often in a second and for so long. Gives how
    /// late the hub showed each change: it may skip those that are followed by another, and then shows them with it.
    ///
    /// # Errors
    /// When no job runs, or a change is not shown within five minutes.
    pub(crate) async fn change(
        &mut self,
        board: &Board,
        rate: u32,
        time: Duration,
    ) -> anyhow::Result<Vec<Duration>> {
        let jobs = board.jobs();
        ensure!(!jobs.is_empty(), "no job runs");
        let start = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
        for (number, job) in (1..).flat_map(|number| jobs.iter().map(move |job| (number, job))) {
            ticks.tick().await;
            if start.elapsed() >= time {
                break;
            }
            self.state.lock().said.insert((job.clone(), number), Instant::now());
            board.say(job, number).await?;
        }
        eventually(LATEST, "all changes to be shown", async || {
            self.check().map_err(never)?;
            let left = self.state.lock().said.len();
            ensure!(left == 0, "{left} are not");
            Ok(())
        })
        .await?;
        Ok(std::mem::take(&mut self.state.lock().lags))
    }

    /// Fails when the watch has ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        match self.watching.try_join_next() {
            None => Ok(()),
            Some(ended) => ended?
                .and_then(|()| anyhow::bail!("it ended"))
                .context("the watch of the hub's Jobs"),
        }
    }
}

async fn watch(jobs: Api<Job>, state: Arc<Mutex<State>>) -> anyhow::Result<()> {
    let changes = watcher(jobs, watcher::Config::default()).default_backoff().applied_objects();
    let mut changes = std::pin::pin!(changes);
    // The backoff begins a broken watch again; its error is no end.
    loop {
        match changes.try_next().await {
            Ok(Some(job)) => state.lock().see(job, Instant::now()),
            Ok(None) => return Ok(()),
            Err(error) => tracing::debug!(%error, "the watch broke and begins again"),
        }
    }
}

impl State {
    fn see(&mut self, job: Job, now: Instant) {
        let (Some(name), Some(status)) = (job.metadata.name, job.status) else { return };
        if status.active == Some(1) {
            self.active.insert(name.clone());
        }
        let Some(number) = status.failed else { return };
        // A later one also shows the earlier ones.
        let shown: Vec<(String, i32)> = self
            .said
            .range((name.clone(), 0)..=(name, number))
            .map(|(key, _)| key.clone())
            .collect();
        for key in shown {
            if let Some(at) = self.said.remove(&key) {
                self.lags.push(now.duration_since(at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn late_change_shows_earlier_changes_of_its_job_alone() {
        let mut state = State::default();
        let start = Instant::now();
        for (job, number) in [("a", 1), ("a", 2), ("a", 3), ("b", 1)] {
            state.said.insert((job.to_owned(), number), start);
        }
        let job = json!({"metadata": {"name": "a"}, "status": {"active": 1, "failed": 2}});
        state.see(serde_json::from_value(job).unwrap(), start + Duration::from_millis(70));
        assert_eq!(state.lags, [Duration::from_millis(70); 2]);
        assert_eq!(
            state.said.keys().map(|(job, number)| (job.as_str(), *number)).collect::<Vec<_>>(),
            [("a", 3), ("b", 1)]
        );
        assert!(state.active.contains("a"));
    }
}
