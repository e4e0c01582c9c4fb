//! The task that owns the dispatcher: feeds it from the stores, the engine and the sessions, and performs what it
//! decides. One term of leadership, one dispatcher: all that it knows is in the API and on the clusters.

mod assignment;
mod facts;
mod fair_queue;
mod inbox;
mod leader_term;
mod mirror;
mod payload;
mod replicas;
mod spec_propagation;
mod status_mirror_queue;
mod topology;
mod troubles;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use switchyard_controller::engine_task::EngineHandle;
use switchyard_controller::{Context, Leadership};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

pub use assignment::{assignment, gated};
pub use inbox::Inbox;
pub(crate) use replicas::follows;

use crate::cluster_channel::Ports;
use crate::cluster_reports::Reports;
use crate::dispatch::{Settings, Time, Uid, Written};
use crate::metrics::HubMetrics;
use crate::server::{Registry, SessionEvent};
use fair_queue::FairQueue;
use leader_term::TermState;
use mirror::Show;
use troubles::Wrote;

/// Messages of sessions that wait for us. Beyond it sessions wait, and through them the agents.
pub const SESSION_EVENTS: usize = 1024;
/// Answers of writes that wait for us.
const ANSWERS: usize = 1024;
/// Writes in flight. The API server's own fairness does the rest.
const WRITERS: usize = 64;

/// Where the shell's parts come from.
pub struct Parts {
    /// The controller's.
    pub ctx: Arc<Context>,
    /// The quota engine.
    pub engine: EngineHandle,
    /// Connected to the stores, and given to the controller as its placement.
    pub inbox: Arc<Inbox>,
    /// The clusters' outboxes.
    pub ports: Arc<Ports>,
    /// Live sessions.
    pub registry: Arc<Registry>,
    /// Tells sessions whether they may begin.
    pub term: watch::Sender<Option<u64>>,
    /// What clusters report, for their status.
    pub reports: Arc<Reports>,
    /// The dispatcher's.
    pub settings: Settings,
    /// What is counted.
    pub metrics: Arc<HubMetrics>,
}

/// A task has ended.
enum Answer {
    Written(Written),
    Shown { uid: Uid, unshown: Option<Show>, written: Option<Written> },
    Troubled { uid: Uid, wrote: Wrote },
}

/// What every task of the shell shares.
#[derive(Clone)]
struct Hands {
    ctx: Arc<Context>,
    writers: Arc<Semaphore>,
    answers: mpsc::Sender<(u64, Answer)>,
    metrics: Arc<HubMetrics>,
}

/// A clock that never goes back and begins with the wall's time.
#[derive(Debug, Clone, Copy)]
struct Clock {
    wall: i64,
    start: Instant,
}

impl Clock {
    fn new(now: Timestamp) -> Self {
        Self { wall: now.as_millisecond(), start: Instant::now() }
    }

    fn now(&self) -> Time {
        self.wall
            .saturating_add(i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    fn instant(&self, at: Time) -> Instant {
        self.start + Duration::from_millis(u64::try_from(at.saturating_sub(self.wall)).unwrap_or(0))
    }
}

/// Runs until shutdown. `sessions` has the events of all sessions.
///
/// # Errors
/// When a channel that never ends has ended.
pub async fn run(
    parts: Parts,
    sessions: mpsc::Receiver<SessionEvent>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut sessions = FairQueue::new(sessions);
    let (answers, mut answered) = mpsc::channel(ANSWERS);
    let writers = Arc::new(Semaphore::new(WRITERS));
    let hands = Hands { ctx: parts.ctx.clone(), writers, answers, metrics: parts.metrics.clone() };
    let mut leadership = parts.ctx.leadership.clone();
    let clock = Clock::new(parts.ctx.clock.now());
    let mut state: Option<TermState> = None;
    loop {
        let Leadership { leading, epoch, .. } = *leadership.borrow_and_update();
        if state.as_ref().is_some_and(|state| !leading || state.epoch != epoch)
            && let Some(state) = state.take()
        {
            state.end(&parts);
        }
        if leading && state.is_none() {
            state = Some(TermState::begin(&parts, hands.clone(), epoch, clock));
        }
        let wake = state.as_ref().and_then(TermState::next_wakeup);
        let timer = async {
            match wake {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            // A process that always leads has no one to tell it of a change.
            changed = leadership.changed() => if changed.is_err() {
                let last = *leadership.borrow();
                leadership = hold(last);
            },
            Some((epoch, answer)) = answered.recv() => {
                if let Some(state) = state.as_mut().filter(|state| state.epoch == epoch) {
                    state.answered(answer);
                    while let Ok((_, answer)) = answered.try_recv() {
                        state.answered(answer);
                    }
                }
            }
            () = parts.inbox.rung() => if let Some(state) = &mut state { state.changed(parts.inbox.take()) },
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

/// A leadership that stays as it is.
fn hold(leadership: Leadership) -> watch::Receiver<Leadership> {
    let (sender, receiver) = watch::channel(leadership);
    // Kept for the life of the process, so that nobody is told that it ended.
    tokio::spawn(async move { sender.closed().await });
    receiver
}
