//! The times of each Job's steps, from watches of the API servers.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use switchyard_e2e::{Cluster, job};
use switchyard_flags::bench::burst::Form;
use tokio::task::{AbortHandle, JoinSet};

use super::setup::number;
use super::system::System;

/// A step in the life of a Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It is on a worker, unsuspended.
    Dispatched,
    /// It has a pod there.
    Pod,
    /// Its user sees that it is Complete.
    Finished,
}

/// Times since the burst began, by the Jobs' numbers.
#[derive(Debug, Clone)]
pub(super) struct Timeline {
    start: Option<Instant>,
    created: Vec<Option<Duration>>,
    dispatched: Vec<Option<Duration>>,
    pod: Vec<Option<Duration>>,
    finished: Vec<Option<Duration>>,
    failed: Option<String>,
}

/// How many Jobs have come how far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) created: usize,
    pub(super) dispatched: usize,
    pub(super) finished: usize,
}

impl Timeline {
    pub(super) fn new(jobs: usize) -> Self {
        let none = || vec![None; jobs];
        Self {
            start: None,
            created: none(),
            dispatched: none(),
            pod: none(),
            finished: none(),
            failed: None,
        }
    }

    /// The burst begins.
    pub(super) fn begin(&mut self) -> Instant {
        *self.start.insert(Instant::now())
    }

    /// A Job is about to be created.
    pub(super) fn created(&mut self, index: usize, at: Instant) {
        let since = self.start.map(|start| at.saturating_duration_since(start));
        if let Some(time) = self.created.get_mut(index) {
            *time = since;
        }
    }

    /// Notes what has happened to a Job, the first time it is seen.
    pub(super) fn note(&mut self, step: Step, name: &str, at: Instant) {
        let Some(since) = self.start.map(|start| at.saturating_duration_since(start)) else {
            return;
        };
        let times = match step {
            Step::Dispatched => &mut self.dispatched,
            Step::Pod => &mut self.pod,
            Step::Finished => &mut self.finished,
        };
        if let Some(time) = number(name).and_then(|index| times.get_mut(index)) {
            time.get_or_insert(since);
        }
    }

    /// How far it is.
    ///
    /// # Errors
    /// A Job has failed: then nothing is measured.
    pub(super) fn progress(&self) -> anyhow::Result<Progress> {
        if let Some(failed) = &self.failed {
            bail!("job {failed} failed");
        }
        let count = |times: &[Option<Duration>]| times.iter().flatten().count();
        Ok(Progress {
            created: count(&self.created),
            dispatched: count(&self.dispatched),
            finished: count(&self.finished),
        })
    }

    /// The time at which the last Job reached a step.
    pub(super) fn last(&self, step: Step) -> Option<Duration> {
        self.times(step).iter().flatten().max().copied()
    }

    /// From each Job's creation to a step; those that did not get there are left out.
    pub(super) fn waits(&self, step: Step) -> Vec<Duration> {
        self.waits_of(step, 0..self.created.len())
    }

    /// The same, for some of the Jobs.
    pub(super) fn waits_of(&self, step: Step, jobs: Range<usize>) -> Vec<Duration> {
        let pairs = self.created.iter().zip(self.times(step)).skip(jobs.start).take(jobs.len());
        pairs.filter_map(|(from, to)| Some(to.as_ref()?.saturating_sub((*from)?))).collect()
    }

    fn times(&self, step: Step) -> &[Option<Duration>] {
        match step {
            Step::Dispatched => &self.dispatched,
            Step::Pod => &self.pod,
            Step::Finished => &self.finished,
        }
    }
}

impl Progress {
    /// Whether all Jobs are where the clock stops.
    pub(super) fn is_done(self, form: Form, jobs: usize) -> bool {
        match form {
            Form::Dispatch => self.dispatched == jobs,
            Form::Finish => self.finished == jobs,
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} created, {} dispatched, {} finished",
            self.created, self.dispatched, self.finished
        )
    }
}

/// The watches that tell. They end with it.
#[derive(Default)]
pub(super) struct Watches {
    tasks: JoinSet<()>,
    handles: Vec<AbortHandle>,
}

impl Watches {
    /// Watches what the form needs, and returns once each watch has begun.
    pub(super) async fn start(
        system: &System,
        form: Form,
        timeline: &Arc<Mutex<Timeline>>,
    ) -> anyhow::Result<Self> {
        let mut watches = Self::default();
        let mut begun = Vec::new();
        let on_workers = system.ends_on_workers();
        for worker in system.workers() {
            begun.push(watches.jobs(worker, system.namespace(), timeline, true, on_workers));
            if form == Form::Finish {
                begun.push(watches.pods(worker, system.namespace(), timeline));
            }
        }
        if form == Form::Finish && !on_workers {
            begun.push(watches.jobs(system.hub(), system.namespace(), timeline, false, true));
        }
        for one in begun {
            tokio::time::timeout(Duration::from_secs(30), one).await??;
        }
        Ok(watches)
    }

    /// Watches the pods of a namespace, and returns once the watch has begun.
    pub(super) async fn pods_of(
        cluster: &Cluster,
        namespace: &str,
        timeline: &Arc<Mutex<Timeline>>,
    ) -> anyhow::Result<Self> {
        let mut watches = Self::default();
        let begun = watches.pods(cluster, namespace, timeline);
        tokio::time::timeout(Duration::from_secs(30), begun).await??;
        Ok(watches)
    }

    /// Fails when a watch has ended.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.handles.iter().any(AbortHandle::is_finished), "a watch ended");
        Ok(())
    }

    fn jobs(
        &mut self,
        cluster: &Cluster,
        namespace: &str,
        timeline: &Arc<Mutex<Timeline>>,
        dispatched: bool,
        finished: bool,
    ) -> tokio::sync::oneshot::Receiver<()> {
        let jobs: Api<Job> = Api::namespaced(cluster.admin.clone(), namespace);
        let see = move |timeline: &mut Timeline, job: &Job, now: Instant| {
            let suspended = job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false);
            let name = job.name_any();
            if dispatched && !suspended {
                timeline.note(Step::Dispatched, &name, now);
            }
            if finished && job::has_condition(job, "Complete") {
                timeline.note(Step::Finished, &name, now);
            }
            if job::has_condition(job, "Failed") {
                timeline.failed = Some(name);
            }
        };
        self.follow(watcher(jobs, watcher::Config::default()), timeline, see)
    }

    fn pods(
        &mut self,
        cluster: &Cluster,
        namespace: &str,
        timeline: &Arc<Mutex<Timeline>>,
    ) -> tokio::sync::oneshot::Receiver<()> {
        let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(cluster.admin.clone(), namespace);
        self.follow(watcher(pods, watcher::Config::default()), timeline, |timeline, pod, now| {
            if let Some(name) = pod.labels().get(job::JOB_NAME) {
                timeline.note(Step::Pod, name, now);
            }
        })
    }

    fn follow<K: Send + 'static>(
        &mut self,
        events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
        timeline: &Arc<Mutex<Timeline>>,
        see: impl Fn(&mut Timeline, &K, Instant) + Send + 'static,
    ) -> tokio::sync::oneshot::Receiver<()> {
        let (begun, begins) = tokio::sync::oneshot::channel();
        let timeline = timeline.clone();
        let mut begun = Some(begun);
        let handle = self.tasks.spawn(async move {
            let mut events = events.default_backoff().boxed();
            loop {
                match events.try_next().await {
                    Ok(Some(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) => {
                        let mut timeline = timeline.lock();
                        see(&mut timeline, &object, Instant::now());
                    }
                    Ok(Some(watcher::Event::InitDone)) => {
                        let _ = begun.take().map(|begun| begun.send(()));
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => return,
                    Err(error) => tracing::debug!(%error, "a watch broke and begins again"),
                }
            }
        });
        self.handles.push(handle);
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_start_at_first_sight_and_show_waits() {
        let mut timeline = Timeline::new(3);
        let start = timeline.begin();
        let at = |ms: u64| start + Duration::from_millis(ms);
        timeline.created(0, at(0));
        timeline.created(1, at(10));
        for (step, name, ms) in [
            (Step::Dispatched, "job-00001", 30),
            (Step::Dispatched, "job-00000", 50),
            (Step::Dispatched, "job-00001", 90),
            (Step::Pod, "job-00009", 1),
            (Step::Finished, "other", 1),
        ] {
            timeline.note(step, name, at(ms));
        }
        assert_eq!(timeline.waits(Step::Dispatched), [50, 20].map(Duration::from_millis));
        assert_eq!(timeline.waits_of(Step::Dispatched, 1..3), [Duration::from_millis(20)]);
        assert_eq!(timeline.last(Step::Dispatched), Some(Duration::from_millis(50)));
        let progress = timeline.progress().unwrap();
        assert_eq!(progress.to_string(), "2 created, 2 dispatched, 0 finished");
        assert!(!progress.is_done(Form::Dispatch, 3) && progress.is_done(Form::Dispatch, 2));
    }
}
