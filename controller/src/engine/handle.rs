//! The handle to the engine's task.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use switchyard_scheduler::{
    Engine, Explanation, LocalQueueKey, PendingEntry, Reason, RefusedReason, Time, WorkloadKey,
};
use tokio::sync::{mpsc, oneshot};

use super::{inbox::Inbox, views::Views};

/// Questions that wait for the engine.
const QUESTIONS: usize = 256;
/// An engine that does not answer within this is stuck.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// Runs on the engine's task between two cycles.
pub(super) type Question = Box<dyn FnOnce(&Engine) + Send>;

/// Sends events and questions to the engine's task.
#[derive(Clone)]
pub struct EngineHandle {
    inbox: Arc<Inbox>,
    questions: mpsc::Sender<Question>,
    views: Arc<Views>,
}

impl std::fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineHandle").finish_non_exhaustive()
    }
}

/// A pending workload and its positions in the order of its queues.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingPosition {
    pub key: WorkloadKey,
    /// Name of its LocalQueue.
    pub local_queue: String,
    pub priority: i32,
    /// Counts from 0.
    pub position_in_cluster_queue: usize,
    /// Counts from 0.
    pub position_in_local_queue: usize,
}

/// Selects a range of the pending workloads of a ClusterQueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingPage {
    pub cluster_queue: String,
    /// Selects only the workloads of this LocalQueue.
    pub local_queue: Option<LocalQueueKey>,
    /// How many workloads to skip.
    pub offset: usize,
    /// How many workloads to return at most.
    pub limit: usize,
}

impl PendingPage {
    /// Stops at the last workload of the page, because a ClusterQueue may have 100,000 pending
    /// workloads.
    fn read(&self, engine: &Engine) -> Vec<PendingPosition> {
        let in_local_queue = self
            .local_queue
            .as_ref()
            .map(|key| engine.local_queue(key).map_or(0, |queue| queue.pending));
        let take = in_local_queue
            .map_or(self.limit, |count| count.saturating_sub(self.offset).min(self.limit));
        let is_selected = |entry: &PendingEntry<'_>| {
            self.local_queue.as_ref().is_none_or(|queue| {
                entry.key.namespace == queue.namespace && *entry.local_queue == *queue.name
            })
        };
        let to_owned = |entry: PendingEntry<'_>| PendingPosition {
            key: entry.key.clone(),
            local_queue: entry.local_queue.into(),
            priority: entry.priority,
            position_in_cluster_queue: entry.position_in_cluster_queue,
            position_in_local_queue: entry.position_in_local_queue,
        };
        engine
            .pending(&self.cluster_queue)
            .filter(is_selected)
            .skip(self.offset)
            .take(take)
            .map(to_owned)
            .collect()
    }
}

impl EngineHandle {
    /// A handle and the questions that come through it.
    pub(super) fn new(inbox: Arc<Inbox>, views: Arc<Views>) -> (Self, mpsc::Receiver<Question>) {
        let (sender, questions) = mpsc::channel(QUESTIONS);
        (Self { inbox, questions: sender, views }, questions)
    }

    /// A handle without an engine, for tests: events have no effect and questions fail.
    #[must_use]
    pub fn disconnected() -> Self {
        Self { inbox: Arc::default(), questions: mpsc::channel(1).0, views: Arc::default() }
    }

    /// Gives the reservation that this cycle decided back to the engine. Does not block.
    pub fn refuse(&self, key: WorkloadKey, cycle: u64, reason: RefusedReason) {
        self.inbox.refuse(key, cycle, reason);
    }

    /// Reports that a decided eviction was not written, so that the engine decides again. Does not
    /// block.
    pub fn preemption_failed(&self, key: WorkloadKey) {
        self.inbox.preemption_failed(key);
    }

    /// Queues an inadmissible workload for another attempt. Does not block.
    pub fn retry(&self, key: WorkloadKey) {
        self.inbox.retry(key);
    }

    /// Why a workload has no quota. `None` if it has quota or the engine does not know it.
    ///
    /// # Errors
    /// When the engine has ended or does not answer in time.
    pub async fn why(&self, key: WorkloadKey) -> anyhow::Result<Option<Reason>> {
        self.ask(move |engine| engine.why(&key).map(std::borrow::Cow::into_owned)).await
    }

    /// All reasons why a workload waits at `now`. `None` if the engine does not know it.
    ///
    /// # Errors
    /// When the engine has ended or does not answer in time.
    pub async fn explain(
        &self,
        key: WorkloadKey,
        now: Time,
    ) -> anyhow::Result<Option<Explanation>> {
        self.ask(move |engine| engine.explain(&key, now)).await
    }

    /// The pending workloads of a page in queue order, inadmissible ones included. No cycle runs
    /// while the engine walks to the end of the page.
    ///
    /// # Errors
    /// When the engine has ended or does not answer in time.
    pub async fn pending(&self, page: PendingPage) -> anyhow::Result<Vec<PendingPosition>> {
        self.ask(move |engine| page.read(engine)).await
    }

    /// The published figures of all queues, some tens of milliseconds old at most.
    #[must_use]
    pub fn views(&self) -> &Arc<Views> {
        &self.views
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let (sender, answer) = oneshot::channel();
        let question: Question = Box::new(move |engine| {
            // Fails if the caller has gone, which loses nothing.
            let _ = sender.send(question(engine));
        });
        let exchange = async {
            self.questions.send(question).await.ok().context("the engine has ended")?;
            answer.await.context("the engine has ended")
        };
        tokio::time::timeout(ANSWER_DEADLINE, exchange)
            .await
            .context("the engine does not answer")?
    }
}
