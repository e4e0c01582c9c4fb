//! Budget of scans of waiting workloads, per cluster.
//!
//! A report may let waiting workloads fit, so all of them are reconciled. There may be thousands,
//! and a cluster may report all the time. The budget bounds what one cluster's reports cost, so
//! that they do not slow down other clusters.

use super::Dispatcher;
use crate::{DispatchAction, Name, UnixMillis};

/// Workloads that one cluster's reports may scan in a millisecond.
const PER_MILLISECOND: usize = 10;

#[derive(Debug, Clone, Default)]
pub(super) struct ScanBudget {
    /// When the next scan is allowed.
    next: UnixMillis,
    /// A scan is waiting for `next`.
    due: bool,
    /// The next scan also checks workloads whose reservation was returned.
    wakes: bool,
}

impl Dispatcher {
    /// Marks waiting workloads now, or when the cluster's budget allows. `wakes`: also requeue
    /// workloads whose reservation was returned and that may fit now.
    pub(super) fn scan_waiting(
        &mut self,
        name: &Name,
        wakes: bool,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let work = self.nominating.len() + self.parked.len() + self.waiting_for_inventories.len();
        let Some(cluster) = self.clusters.get_mut(name) else { return self.mark_nominating() };
        let look = &mut cluster.scan;
        look.wakes |= wakes;
        if now < look.next {
            if !look.due {
                look.due = true;
                self.due_scans.insert((look.next, name.clone()));
            }
            return;
        }
        if std::mem::take(&mut look.due) {
            self.due_scans.remove(&(look.next, name.clone()));
        }
        look.next = now.saturating_add(i64::try_from(work / PER_MILLISECOND).unwrap_or(i64::MAX));
        let wakes = std::mem::take(&mut look.wakes);
        self.mark_nominating();
        self.mark_waiting_for_inventories();
        if wakes {
            self.wake_parked(name, now, out);
        }
    }

    /// Runs postponed scans.
    pub(super) fn run_due_scans(&mut self, now: UnixMillis, out: &mut Vec<DispatchAction>) {
        while let Some((at, name)) = self.due_scans.first().cloned().filter(|(at, _)| *at <= now) {
            self.due_scans.remove(&(at, name.clone()));
            if self
                .clusters
                .get_mut(&name)
                .is_some_and(|cluster| std::mem::take(&mut cluster.scan.due))
            {
                self.scan_waiting(&name, false, now, out);
            }
        }
    }
}
