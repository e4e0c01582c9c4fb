//! The task that owns the dispatcher. It feeds the dispatcher with events of stores, engine and
//! sessions, and performs its decisions. Each leader term has a new dispatcher: the API and the
//! clusters hold all that it must know.
//!
//! # A reservation's way
//! 1. The engine reserves quota and hands the reservation to [`Inbox`].
//! 2. `LeaderTerm::reserved` gathers what the dispatcher must know of the workload (`gather::facts`).
//! 3. The dispatcher decides: `Dispatcher::apply` takes the event and the time, and returns actions.
//! 4. `LeaderTerm::perform` performs each action. An assignment goes into the cluster's channel, from
//!    which the session takes its next message. A write runs in a task (`workload_writes`).
//! 5. A cluster's answer (`leader_term/session_events.rs`) and a write's result are events again.

mod assignment;
mod cluster_set;
mod fair_queue;
mod gather;
mod inbox;
mod job_changes;
mod job_status;
mod leader_term;
mod payload;
mod replicas;
mod status_mirror_queue;
mod troubles;
mod workload_view;
mod workload_writes;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use switchyard_controller::Context;
use switchyard_controller::engine::EngineHandle;
use switchyard_dispatcher::{DispatcherSettings, Uid, UnixMillis, WriteResult};
use switchyard_platform::lease::Leadership;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

pub use assignment::{assignment, with_flavor_pins, with_preemption_gate};
pub use inbox::Inbox;
pub(crate) use replicas::{first_replica, is_later_replica};

use crate::cluster_channel::ClusterChannels;
use crate::cluster_reports::ClusterReports;
use crate::metrics::HubMetrics;
use crate::server::{Registry, SessionEvent};
use fair_queue::FairQueue;
use job_status::JobStatus;
use leader_term::LeaderTerm;
use troubles::TroubleOutcome;

/// Session events that may wait for the task. Then sessions wait, and through them the agents.
pub const SESSION_EVENTS: usize = 1024;
/// Results of writes that may wait for the task.
const RESULTS: usize = 1024;
/// Concurrent writes. The API server's priority and fairness does the rest.
const WRITERS: usize = 64;

/// Parts of the hub that the task uses.
pub struct TaskInputs {
    pub ctx: Arc<Context>,
    pub engine: EngineHandle,
    /// Connected to the stores, and the controller's
    /// [`Placement`](switchyard_controller::engine::placement::Placement).
    pub inbox: Arc<Inbox>,
    pub channels: Arc<ClusterChannels>,
    pub registry: Arc<Registry>,
    /// Tells sessions the term in which they may start.
    pub term: watch::Sender<Option<u64>>,
    pub reports: Arc<ClusterReports>,
    pub settings: DispatcherSettings,
    pub metrics: Arc<HubMetrics>,
}

/// The result of a write task.
enum TaskResult {
    Written(WriteResult),
    StatusShown { uid: Uid, unshown: Option<JobStatus>, written: Option<WriteResult> },
    TroubleWritten { uid: Uid, wrote: TroubleOutcome },
}

/// Shared by all write tasks.
#[derive(Clone)]
struct WriteContext {
    ctx: Arc<Context>,
    permits: Arc<Semaphore>,
    /// Results with the epoch of their term.
    results: mpsc::Sender<(u64, TaskResult)>,
    metrics: Arc<HubMetrics>,
}

/// A monotonic clock that starts at the wall clock's time.
#[derive(Debug, Clone, Copy)]
struct TermClock {
    wall: i64,
    start: Instant,
}

impl TermClock {
    fn new(now: Timestamp) -> Self {
        Self { wall: now.as_millisecond(), start: Instant::now() }
    }

    fn now(&self) -> UnixMillis {
        self.wall
            .saturating_add(i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    fn instant(&self, at: UnixMillis) -> Instant {
        self.start + Duration::from_millis(u64::try_from(at.saturating_sub(self.wall)).unwrap_or(0))
    }
}

/// Runs until shutdown. `sessions` receives the events of all sessions.
///
/// # Errors
/// All senders of a channel are gone.
pub async fn run(
    parts: TaskInputs,
    sessions: mpsc::Receiver<SessionEvent>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut sessions = FairQueue::new(sessions);
    let (results, mut finished) = mpsc::channel(RESULTS);
    let permits = Arc::new(Semaphore::new(WRITERS));
    let writer =
        WriteContext { ctx: parts.ctx.clone(), permits, results, metrics: parts.metrics.clone() };
    let mut leadership = parts.ctx.leadership.clone();
    let clock = TermClock::new(parts.ctx.clock.now());
    let mut state: Option<LeaderTerm> = None;
    loop {
        let Leadership { leading, epoch, .. } = *leadership.borrow_and_update();
        if state.as_ref().is_some_and(|state| !leading || state.epoch != epoch)
            && let Some(state) = state.take()
        {
            state.end(&parts);
        }
        if leading && state.is_none() {
            state = Some(LeaderTerm::begin(&parts, writer.clone(), epoch, clock));
        }
        let wake = state.as_ref().and_then(LeaderTerm::next_wakeup);
        let timer = async {
            match wake {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            // The sender is gone: this process leads without an election.
            changed = leadership.changed() => if changed.is_err() {
                let last = *leadership.borrow();
                leadership = hold(last);
            },
            Some(first) = finished.recv() => if let Some(state) = &mut state {
                let mut next = Some(first);
                while let Some((epoch, result)) = next {
                    // A task of an earlier term may end in this one.
                    if epoch == state.epoch {
                        state.task_ended(result);
                    }
                    next = finished.try_recv().ok();
                }
            },
            () = parts.inbox.changed() => if let Some(state) = &mut state { state.changed(parts.inbox.take()) },
            more = sessions.ready() => {
                anyhow::ensure!(more, "no session can come any more");
                let round = sessions.round();
                if let Some(state) = &mut state {
                    for event in round {
                        state.session(event);
                    }
                }
            }
            () = timer => if let Some(state) = &mut state { state.tick() },
        }
    }
    if let Some(state) = state.take() {
        state.end(&parts);
    }
    Ok(())
}

/// A leadership that never changes.
fn hold(leadership: Leadership) -> watch::Receiver<Leadership> {
    let (sender, receiver) = watch::channel(leadership);
    // Keeps the sender for the life of the process, so that the receiver never sees it closed.
    tokio::spawn(async move { sender.closed().await });
    receiver
}
