//! How often what waits for a cluster is looked through at the word of one cluster.
//!
//! What waits may be thousands, and a cluster may report all the time. Each cluster has a budget of workloads looked at, so its
//! reports cost others the same whether it sends two or a thousand of them.

use super::machine::Dispatcher;
use super::{Action, Name, Time};

/// Workloads that one cluster's reports may have looked at, in a millisecond.
const PER_MILLISECOND: usize = 10;

/// One cluster's budget.
#[derive(Debug, Clone, Default)]
pub(super) struct Look {
    /// When its reports may have what waits looked through again.
    next: Time,
    /// There is news since the last look.
    due: bool,
    /// The news may let workloads fit that were given back.
    wakes: bool,
}

impl Dispatcher {
    /// A cluster has news for what waits: it is looked through now, or when the cluster's budget allows. `wakes`: workloads that
    /// were given back may fit now.
    pub(super) fn look_through(
        &mut self,
        name: &Name,
        wakes: bool,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        let work = self.nominating.len() + self.parked.len() + self.waiting_for_word.len();
        let Some(cluster) = self.clusters.get_mut(name) else { return self.touch_nominating() };
        let look = &mut cluster.look;
        look.wakes |= wakes;
        if now < look.next {
            if !look.due {
                look.due = true;
                self.looks.insert((look.next, name.clone()));
            }
            return;
        }
        if std::mem::take(&mut look.due) {
            self.looks.remove(&(look.next, name.clone()));
        }
        look.next = now.saturating_add(i64::try_from(work / PER_MILLISECOND).unwrap_or(i64::MAX));
        let wakes = std::mem::take(&mut look.wakes);
        self.touch_nominating();
        self.dirty.extend(self.waiting_for_word.iter().cloned());
        if wakes {
            self.wake_parked(name, now, out);
        }
    }

    /// Takes the looks that had to wait.
    pub(super) fn look_when_due(&mut self, now: Time, out: &mut Vec<Action>) {
        while let Some((at, name)) = self.looks.first().cloned().filter(|(at, _)| *at <= now) {
            self.looks.remove(&(at, name.clone()));
            if self
                .clusters
                .get_mut(&name)
                .is_some_and(|cluster| std::mem::take(&mut cluster.look.due))
            {
                self.look_through(&name, false, now, out);
            }
        }
    }
}
