//! Settings of the dispatcher.
//!
//! The hub builds them once from its configuration file and flags. The dispatcher never changes
//! them.

use super::UnixMillis;

/// How long after a store loss the hub waits for silent clusters, in milliseconds.
pub(crate) const RECOVERY_WINDOW: i64 = 60 * 60_000;

/// Choice of the clusters that get an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DispatchMode {
    /// The dispatcher: the cluster that the workload fits best, by reported capacity.
    BestFit,
    /// All connected clusters at once. Kueue's default.
    AllAtOnce,
    /// Kueue's incremental dispatcher: `step` more clusters each round, in the order of the
    /// MultiKueueConfig.
    Incremental {
        /// Clusters added in a round.
        step: usize,
        /// Length of a round in milliseconds.
        round: i64,
    },
    /// Another program, which writes `status.nominatedClusterNames`.
    External,
}

impl DispatchMode {
    /// Whether each nominated cluster keeps its copy until one of them admits it, as in Kueue.
    /// Otherwise the dispatcher withdraws the copy of a cluster that refuses, and asks that cluster
    /// again later.
    pub fn keeps_copies(self) -> bool {
        match self {
            Self::BestFit => false,
            Self::AllAtOnce | Self::Incremental { .. } | Self::External => true,
        }
    }
}

/// Settings of the dispatcher. Times are in milliseconds.
#[derive(Debug, Clone)]
pub struct DispatcherSettings {
    pub mode: DispatchMode,
    /// How long a cluster may be disconnected before [`super::LossPolicy::GiveUp`] applies
    /// (`multiKueue.workerLostTimeout`).
    pub worker_lost_timeout: i64,
    /// A reservation without a cluster for this long is written to the Workload, with the reasons.
    pub record_after: i64,
    /// An unanswered offer blocks the next offer for this long.
    pub answer_within: i64,
    /// After a start, or after its connection was lost, an unconnected cluster counts as unknown
    /// for this long, not as unable.
    pub start_grace: i64,
    /// First and longest delay of a refusal or eviction, after which the hub asks the cluster
    /// again.
    pub refusal_backoff: (i64, i64),
    /// First and longest delay until a workload that no cluster can take is tried again.
    pub return_backoff: (i64, i64),
    /// How long an orphan stays on a cluster before the dispatcher removes it.
    pub orphan_grace: i64,
    /// Length of an agent's lease, from the sending of the last answered ping.
    pub lease: i64,
    /// How long an agent may take to stop a job after its fence, besides the grace period of the
    /// pods.
    pub fence_margin: i64,
    /// No workload is given up for this long after a start.
    pub restart_grace: i64,
    pub breaker_limits: BreakerLimits,
    /// Set if the hub's store was lost or restored from a backup.
    pub store_loss: Option<StoreLoss>,
    /// If set, copies on several clusters have a preemption gate, and this long lies between two
    /// openings for one workload. Kueue's feature `MultiKueueOrchestratedPreemption`.
    pub preemption_timeout: Option<i64>,
    /// Whether incremental rounds add clusters by name instead of in the order of the
    /// MultiKueueConfig.
    pub nominate_by_name: bool,
    /// How far a cluster's clock may be behind the hub's. A copy created this shortly after a store
    /// loss may be older than the loss.
    pub clock_skew: i64,
}

/// A lost or restored store: clusters may run workloads that the hub does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLoss {
    /// When the current store began, by the API server's clock. Copies from before are not removed
    /// as orphans.
    pub remembers_since: UnixMillis,
    /// Until when the hub waits for clusters that have not reported, by this process' clock.
    pub recovery_until: UnixMillis,
}

impl StoreLoss {
    /// `api_now` is the API server's time when this process' clock shows `now`.
    pub fn new(remembers_since: UnixMillis, api_now: UnixMillis, now: UnixMillis) -> Self {
        let age = api_now.saturating_sub(remembers_since);
        Self {
            remembers_since,
            recovery_until: now.saturating_add(RECOVERY_WINDOW).saturating_sub(age),
        }
    }
}

impl DispatcherSettings {
    /// Creation times on clusters before this may be older than the hub's store. None if no store
    /// was lost.
    pub(crate) fn forgotten_until(&self) -> Option<UnixMillis> {
        self.store_loss.map(|loss| loss.remembers_since.saturating_add(self.clock_skew))
    }
}

/// The hub takes `lease` from its session server, `store_loss` from its cluster, and some values
/// from its configuration and flags. The other values apply to the hub too.
impl Default for DispatcherSettings {
    fn default() -> Self {
        Self {
            mode: DispatchMode::BestFit,
            worker_lost_timeout: 15 * 60_000,
            record_after: 1_000,
            answer_within: 3_000,
            start_grace: 10_000,
            refusal_backoff: (10_000, 320_000),
            return_backoff: (10_000, 320_000),
            orphan_grace: 15 * 60_000,
            lease: 30_000,
            fence_margin: 10_000,
            restart_grace: 60_000,
            breaker_limits: BreakerLimits::default(),
            store_loss: None,
            preemption_timeout: None,
            nominate_by_name: false,
            clock_skew: 5 * 60_000,
        }
    }
}

/// When the breaker opens, and how fast workloads are given up. Times are in milliseconds.
#[derive(Debug, Clone)]
pub struct BreakerLimits {
    /// Opens when more than this percentage of the clusters, and at least two, are lost within
    /// `window`.
    pub clusters: u32,
    /// Opens when more than this percentage of the running workloads are lost within `window`.
    pub workloads: u32,
    /// Losing fewer workloads than this never opens it.
    pub least_workloads: usize,
    /// Losses this close together count as one.
    pub window: i64,
    pub evictions_per_minute: u32,
    /// Workloads given up at once before the rate applies.
    pub burst: u32,
}

impl Default for BreakerLimits {
    fn default() -> Self {
        Self {
            clusters: 34,
            workloads: 67,
            least_workloads: 100,
            window: 300_000,
            evictions_per_minute: 600,
            burst: 100,
        }
    }
}
