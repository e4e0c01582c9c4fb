//! Jobs without a ready pod: when the hub withdraws one from its cluster (`onStuck`).
//!
//! Input: the policy, earlier moves, and since when the cluster reports no ready pod. Only time
//! counts in which the hub hears from the cluster. Output: the reason to withdraw the job. It goes
//! as any move: by a Retry, and elsewhere only when nothing of it is left. The replicas of one
//! object move together: the first one is withdrawn when no pod of any replica is ready, and the
//! others follow it.
//!
//! # Bounds
//! - A job is withdrawn only if another cluster may take it now, with all replicas. Else it stays.
//! - With BestFit, a cluster where it was stuck ranks behind the others that fit now, the latest one
//!   last.
//! - The time doubles with each return to a cluster, so that two clusters do not exchange a job.
//! - At most [`crate::StuckPolicy::times`] moves of one Workload, which its status counts.

use super::Dispatcher;
use super::cluster_answers::OpenOffer;
use super::tracked_workload::{Remote, TrackedWorkload};
use crate::capacity::Fit;
use crate::{DispatchMode, Name, Phase, Reason, STUCK, State, UnixMillis, WorkloadFacts};

/// Milliseconds until a stuck job without another cluster is checked again.
const RECHECK: i64 = 30_000;
/// The hub decides twice, this many milliseconds apart. After a pause of its process, it reads the
/// queued reports before the second decision.
const CONFIRM: i64 = 5_000;
/// The longest time without a ready pod, in milliseconds.
const LONGEST: i64 = 24 * 60 * 60_000;

/// The outlook of a job without a ready pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stuck {
    /// Since when its cluster reports no ready pod.
    pub since: UnixMillis,
    /// Moves so far, and the most allowed.
    pub moves: u32,
    pub times: u32,
    pub next: StuckOutlook,
}

/// The hub's next step for a job without a ready pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StuckOutlook {
    /// It is withdrawn at this time, for lack of a ready pod for `wait` milliseconds.
    Withdraw { at: UnixMillis, wait: i64 },
    /// It stays: no other cluster may take it.
    NoOtherCluster,
    /// It stays: it was moved as often as allowed.
    NoMovesLeft,
}

impl Remote {
    /// Records whether the last report shows a ready pod.
    pub(super) fn note_readiness(&mut self, no_ready_pod: bool, now: UnixMillis) {
        let is_stalled = match self.state {
            Some(State::Running) => no_ready_pod,
            // It does not run yet.
            Some(State::Reserved | State::Waiting) => true,
            _ => false,
        };
        self.stalled_since = is_stalled.then(|| self.stalled_since.unwrap_or(now));
        self.confirmed_at.take_if(|_| !is_stalled);
    }
}

impl Dispatcher {
    /// The outlook of a job with a policy, without a ready pod, and with a cluster that reports.
    pub fn stuck(&self, uid: &str, now: UnixMillis) -> Option<Stuck> {
        let entry = self.entries.get(uid)?;
        let cluster = entry.facts.state.cluster.clone()?;
        self.stuck_on(entry, &cluster, now)
    }

    fn stuck_on(&self, entry: &TrackedWorkload, cluster: &Name, now: UnixMillis) -> Option<Stuck> {
        let facts = &entry.facts;
        let policy = facts.stuck.policy?;
        // A later replica follows the first one, whose reports count the pods of all.
        if facts.follows_first() {
            return None;
        }
        let known = self.clusters.get(cluster)?;
        let is_heard = known.exists
            && known.is_connected
            && known.has_synced
            && known.not_ready_since.is_none();
        let remote = entry.remotes.get(cluster).filter(|remote| {
            is_heard && remote.attempt == facts.state.attempt && remote.phase == Some(Phase::Run)
        })?;
        // An offer has no pods.
        let since = remote.stalled_since?.max(remote.since);
        let next = if facts.stuck.moves >= policy.times {
            StuckOutlook::NoMovesLeft
        } else {
            match self.next_cluster(entry, cluster, now) {
                None => StuckOutlook::NoOtherCluster,
                Some(to) => {
                    let wait = wait(policy.after, facts.stuck_count(&to));
                    StuckOutlook::Withdraw { at: since.saturating_add(wait), wait }
                }
            }
        };
        Some(Stuck { since, moves: facts.stuck.moves, times: policy.times, next })
    }

    /// The best other cluster that may take the workload now.
    fn next_cluster(
        &self,
        entry: &TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
    ) -> Option<Name> {
        // The external dispatcher chooses, and may choose the same cluster again.
        if self.settings.mode == DispatchMode::External {
            return None;
        }
        let others = self.configured_clusters(entry).into_iter().filter(|name| name != cluster);
        let has_room = |name: &Name| match self.open_offer(entry, name, now) {
            Some(OpenOffer::Reported(Fit::Now(_))) => self.fits_all_replicas_now(entry, name),
            Some(OpenOffer::Unreported) => true,
            Some(OpenOffer::Reported(_)) | None => false,
        };
        others.filter(has_room).min_by_key(|name| self.preference_rank(&entry.facts, name))
    }

    /// Why the workload is withdrawn now for lack of a ready pod. Sets the timer if not yet.
    pub(super) fn reason_to_withdraw(
        &self,
        entry: &mut TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
    ) -> Option<(&'static str, String)> {
        let stuck = self.stuck_on(entry, cluster, now)?;
        match stuck.next {
            StuckOutlook::Withdraw { at, wait } if at - CONFIRM <= now => {
                let remote = entry.remotes.get_mut(cluster)?;
                // A `confirmed_at` more than CONFIRM ago is void: the process was paused, or the move
                // had to wait.
                let set = remote.confirmed_at.filter(|at| now <= at.saturating_add(CONFIRM));
                let confirmed = *remote.confirmed_at.insert(set.unwrap_or(now + CONFIRM));
                if now < at.max(confirmed) {
                    entry.wake_at(at.max(confirmed));
                    return None;
                }
                let (move_number, times) = (stuck.moves + 1, stuck.times);
                Some((
                    STUCK,
                    format!(
                        "No pod of it was ready on worker cluster \"{cluster}\" for {} (onStuck, move {move_number} of {times})",
                        duration(wait)
                    ),
                ))
            }
            StuckOutlook::Withdraw { at, .. } => {
                entry.wake_at(at - CONFIRM);
                None
            }
            StuckOutlook::NoOtherCluster => {
                entry.wake_at(now + RECHECK);
                None
            }
            StuckOutlook::NoMovesLeft => None,
        }
    }

    /// Refuses the cluster for the time that the message of the withdrawal names.
    pub(super) fn record_stuck(
        &self,
        entry: &mut TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
    ) {
        let stuck = self.stuck_on(entry, cluster, now);
        let Some(StuckOutlook::Withdraw { wait: delay, .. }) = stuck.map(|stuck| stuck.next) else {
            return;
        };
        let message = format!("no pod of it was ready there for {}", duration(delay));
        let reasons = vec![Reason::new(STUCK, message)];
        let longest = delay.max(self.settings.refusal_backoff.1);
        let concerns = (cluster, Some(entry.facts.charged.clone()));
        entry.refusals.add(concerns, reasons, self.events, now, (delay, longest));
    }
}

impl WorkloadFacts {
    /// How many times the workload was stuck on a cluster, as far as its status remembers.
    fn stuck_count(&self, cluster: &Name) -> usize {
        self.stuck.clusters.iter().filter(|name| *name == cluster).count()
    }

    /// Zero for a cluster where the workload was not stuck. The latest one is highest.
    pub(super) fn stuck_rank(&self, cluster: &Name) -> usize {
        self.stuck.clusters.iter().rposition(|name| name == cluster).map_or(0, |last| last + 1)
    }
}

/// `after`, doubled for each earlier time that the job was stuck on the cluster it goes to, at most
/// [`LONGEST`].
fn wait(after: i64, times_stuck_there: usize) -> i64 {
    let doubled = 1_i64 << times_stuck_there.min(16);
    after.saturating_mul(doubled).min(LONGEST.max(after))
}

/// For messages: `90s`, `10m`, `2h`.
fn duration(milliseconds: i64) -> String {
    let seconds = milliseconds / 1_000;
    match seconds {
        hours if hours > 0 && hours % 3_600 == 0 => format!("{}h", hours / 3_600),
        minutes if minutes > 0 && minutes % 60 == 0 => format!("{}m", minutes / 60),
        seconds => format!("{seconds}s"),
    }
}
