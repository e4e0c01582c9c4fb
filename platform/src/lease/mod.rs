//! Leader election with a Lease, Kueue's by default, so that Kueue and Switchyard never lead at
//! once. `leaseTransitions` is the epoch that agents check.
//!
//! # Guarantees
//!
//! - At most one process leads, if clocks run at about the same speed. A leader stops
//!   `RENEW_DEADLINE` after it sent its last successful renewal. Another process takes over only a
//!   lease duration after it last saw the record change. Both use their own monotonic clock, never
//!   times of the record.
//! - A holder that released the Lease, or whose process has ended on this machine
//!   ([`holder_identity`]), loses the Lease at once.
//! - The epoch grows with every change of leader, and exceeds every epoch of [`EpochFloor`]. So
//!   others can reject lower epochs.
//!
//! # Caveats
//!
//! A write that was sent before leadership was lost may still arrive. Writers therefore use a
//! resourceVersion precondition where that matters.

pub mod holder_identity;
pub mod step;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use step::Timing;
use step::{LeaseAction, ObservedLease, State};

use crate::{clock::Clock, errors::with_root_cause};

/// Whether this process leads, and in which term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leadership {
    /// Only a leader may write.
    pub leading: bool,
    /// The process led until it could not renew the Lease in time, and has seen no other holder
    /// since. Most likely the API server is unreachable. It must not write, but may keep state that
    /// is expensive to rebuild.
    pub unsure: bool,
    /// How often the process became leader after another might have led. A new value invalidates
    /// what it knew before.
    pub begun: u64,
    /// Grows with every change of leader, never shrinks. Zero without leader election.
    pub epoch: u64,
}

/// The highest epoch that another component remembers. A Lease that was deleted, or restored from a
/// backup, counts from less. The next leader continues above the floor.
#[derive(Debug, Clone, Default)]
pub struct EpochFloor(Arc<AtomicU64>);

impl EpochFloor {
    /// The highest accepted epoch. `leaseTransitions` has 32 bits, and some terms must remain above
    /// it.
    pub const HIGHEST: u64 = (1 << 31) - (1 << 20);

    /// Raises the floor to `epoch`. A value above [`Self::HIGHEST`] is ignored.
    pub fn raise(&self, epoch: u64) {
        if epoch <= Self::HIGHEST {
            self.0.fetch_max(epoch, Ordering::Relaxed);
        }
    }

    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Leadership {
    /// The leadership of a process without leader election: it always leads, in epoch 0.
    #[must_use]
    pub fn alone() -> Self {
        Self { leading: true, ..Self::default() }
    }
}

/// Competes for the Lease until shutdown.
pub struct Elector {
    api: Api<Lease>,
    name: String,
    identity: String,
    timing: Timing,
    clock: Arc<dyn Clock>,
    leadership: watch::Sender<Leadership>,
    floor: EpochFloor,
}

impl Elector {
    /// An elector and its outcome. It does nothing before [`Elector::run`].
    #[must_use]
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: &str,
        timing: Timing,
        clock: Arc<dyn Clock>,
        floor: EpochFloor,
    ) -> (Self, watch::Receiver<Leadership>) {
        let (leadership, receiver) = watch::channel(Leadership::default());
        let api = Api::namespaced(client, namespace);
        (
            Self {
                api,
                name: name.into(),
                identity: identity.into(),
                timing,
                clock,
                leadership,
                floor,
            },
            receiver,
        )
    }

    /// Runs until `shutdown`, then releases the Lease so that another process can lead at once.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut state = State::default();
        let mut standby = String::new();
        loop {
            let round = self.round(&mut state, &mut standby);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = round => (),
            }
        }
        self.publish(Leadership { epoch: state.epoch(), ..Leadership::default() });
        if state.leading() {
            self.release(&state).await;
        }
    }

    async fn round(&self, state: &mut State, standby: &mut String) {
        // A leader must stop in time even while a request hangs.
        let patience = state.attempt_timeout(self.timing, self.clock.monotonic());
        let tried = tokio::time::timeout(patience, self.attempt(state)).await;
        let has_hung = tried.is_err();
        match tried {
            Ok(Ok(holder)) => self.log_standby(state, holder, standby),
            Ok(Err(error)) => {
                tracing::warn!(
                    error = with_root_cause(&error),
                    lease = self.name,
                    "lease not read or written"
                );
            }
            Err(_) => {
                tracing::warn!(lease = self.name, ?patience, "no answer about the lease in time")
            }
        }
        if state.expire(self.timing, self.clock.monotonic()) {
            tracing::error!(
                lease = self.name,
                "leadership lost: the lease could not be renewed in time"
            );
        }
        self.publish(state.leadership());
        // A request that hung has taken the time of the pause, and more.
        if !has_hung {
            tokio::time::sleep(state.pause(self.timing, self.clock.monotonic())).await;
        }
    }

    /// Logs once for whom this replica waits.
    fn log_standby(&self, state: &State, holder: String, standby: &mut String) {
        let holder = if state.leading() { String::new() } else { holder };
        if holder != *standby && !holder.is_empty() {
            tracing::info!(lease = self.name, holder, "another replica leads, standing by");
        }
        *standby = holder;
    }

    /// One attempt. Returns the previous holder.
    async fn attempt(&self, state: &mut State) -> kube::Result<String> {
        let lease = self.api.get_opt(&self.name).await?;
        let mut observed = lease.as_ref().map(observed);
        if let Some(observed) =
            observed.as_mut().filter(|observed| holder_identity::has_ended(&observed.holder))
        {
            // The holder's process has ended, so it cannot still act as the leader.
            observed.holder.clear();
        }
        // The term counts from before the write is sent, because the server may apply it later but
        // never earlier.
        let sent = self.clock.monotonic();
        let holder = observed.as_ref().map(|observed| observed.holder.clone()).unwrap_or_default();
        let action = state.step(observed, &self.identity, self.timing, sent);
        let transitions =
            action.transitions(observed_transitions(lease.as_ref()), self.floor.get());
        let tried = match action {
            LeaseAction::Wait => Ok(()),
            LeaseAction::Create => {
                let written = self
                    .api
                    .create(&PostParams::default(), &self.record(None, transitions, true))
                    .await;
                self.conclude(state, written, sent)
            }
            LeaseAction::Renew => {
                let written = self.replace(lease, transitions, false).await;
                self.conclude(state, written, sent)
            }
            LeaseAction::TakeOver => {
                let written = self.replace(lease, transitions, true).await;
                self.conclude(state, written, sent)
            }
        };
        tried.map(|()| holder)
    }

    fn conclude(
        &self,
        state: &mut State,
        written: kube::Result<Lease>,
        sent: Instant,
    ) -> kube::Result<()> {
        match written {
            Ok(lease) => {
                if state.won(observed(&lease), sent) {
                    tracing::info!(
                        lease = self.name,
                        identity = self.identity,
                        epoch = state.epoch(),
                        "leading"
                    );
                }
                Ok(())
            }
            // Another process wrote between the read and the write. The next attempt shows which.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                if state.lost() {
                    tracing::error!(
                        lease = self.name,
                        "leadership lost: another process wrote the lease"
                    );
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn replace(
        &self,
        lease: Option<Lease>,
        transitions: u64,
        acquired: bool,
    ) -> kube::Result<Lease> {
        let next = self.record(lease, transitions, acquired);
        self.api.replace(&self.name, &PostParams::default(), &next).await
    }

    fn record(&self, current: Option<Lease>, transitions: u64, acquired: bool) -> Lease {
        let mut lease = current.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            ..Lease::default()
        });
        let now = MicroTime(self.clock.now());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = i32::try_from(self.timing.lease.as_secs()).ok();
        spec.renew_time = Some(now.clone());
        if acquired || spec.acquire_time.is_none() {
            spec.acquire_time = Some(now);
        }
        spec.lease_transitions = i32::try_from(transitions).ok();
        lease
    }

    async fn release(&self, state: &State) {
        let released = async {
            let Some(mut lease) = self.api.get_opt(&self.name).await? else { return Ok(()) };
            if observed(&lease).holder != self.identity {
                return Ok(());
            }
            if let Some(spec) = lease.spec.as_mut() {
                spec.holder_identity = None;
                spec.lease_duration_seconds = Some(1);
                spec.renew_time = Some(MicroTime(self.clock.now()));
            }
            self.api.replace(&self.name, &PostParams::default(), &lease).await.map(drop)
        };
        match tokio::time::timeout(self.timing.retry, released).await {
            Ok(Ok(())) => {
                tracing::info!(lease = self.name, epoch = state.epoch(), "lease released")
            }
            Ok(Err(error)) => tracing::warn!(%error, lease = self.name, "lease not released"),
            Err(_) => tracing::warn!(lease = self.name, "lease not released in time"),
        }
    }

    fn publish(&self, leadership: Leadership) {
        self.leadership.send_if_modified(|current| {
            let changed = *current != leadership;
            *current = leadership;
            changed
        });
    }
}

fn observed_transitions(lease: Option<&Lease>) -> u64 {
    lease.map_or(0, |lease| observed(lease).transitions)
}

fn observed(lease: &Lease) -> ObservedLease {
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
    let duration = spec
        .and_then(|spec| spec.lease_duration_seconds)
        .and_then(|seconds| u64::try_from(seconds).ok());
    ObservedLease {
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        holder,
        duration: duration.map(Duration::from_secs),
        transitions: spec
            .and_then(|spec| spec.lease_transitions)
            .and_then(|n| u64::try_from(n).ok())
            .unwrap_or(0),
    }
}
