//! Nomination: offers a workload that has quota to clusters, and commits the first that reserves.
//!
//! Input: a [`TrackedWorkload`] with quota and no cluster, and the answers of the clusters
//! (`cluster_answers.rs`). Output: assignments in phase `Reserve`, a commit, or the returned
//! reservation. Other modules decide first: replicas, workload slices and adoption.

use super::Dispatcher;
use super::cluster_answers::{ClusterAnswer, none_can, waits_for};
use super::pins::{PinCheck, pins_by};
use super::tracked_workload::{Nomination, TrackedWorkload};
use crate::capacity::NodeFit;
use crate::{DispatchAction, DispatchMode, Name, Phase, State, UnixMillis, WorkloadWrite};

impl Dispatcher {
    /// Looks for a cluster: offers, commits, records what it waits for, or returns the reservation.
    pub(super) fn nominate(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        if entry.pending_write.is_some() {
            return;
        }
        if self.wait_for_first_replica(entry, now, out)
            || !self.other_checks_passed(entry, now, out)
        {
            return;
        }
        if entry.nomination.is_none() {
            entry.nomination = Some(Nomination {
                attempt: entry.highest_attempt + 1,
                since: now,
                rounds: 0,
                next_round: now,
            });
        }
        if entry.facts.waits_for_job {
            self.record_when_late(entry, now, out, |_, _| {
                "Waiting for the job that this Workload is for".to_owned()
            });
            return;
        }
        if self.wait_for_replacement(entry, now, out)
            || self.take_over_copy(entry, now, out)
            || self.recover(entry, now, out)
            || self.join_first_replica(entry, now, out)
        {
            return;
        }
        self.withdraw_stale_offers(entry, now, out);
        if self.commit(entry, now, out)
            || self.return_if_none_allowed(entry, now, out)
            || self.return_if_flavors_unusable(entry, now, out)
        {
            return;
        }
        match self.settings.mode {
            DispatchMode::BestFit => self.best_fit(entry, now, out),
            DispatchMode::AllAtOnce | DispatchMode::Incremental { .. } | DispatchMode::External => {
                self.offer_to_nominated(entry, now, out);
                self.open_gates(entry, now, out);
            }
        }
    }

    /// The dispatcher offers only when all other checks are Ready. Other check controllers act only
    /// on a reservation that is in the API.
    fn other_checks_passed(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> bool {
        match &entry.reservation {
            Some(reserved) if reserved.needs_other_checks => {
                let answers = self.answers(entry, now);
                let cannot = |(_, answer): &(Name, ClusterAnswer)| {
                    matches!(answer, ClusterAnswer::No(_) | ClusterAnswer::Unknown(_))
                };
                if self.settings.mode == DispatchMode::BestFit && answers.iter().all(cannot) {
                    // Do not start other checks, such as one that adds nodes, for a workload that
                    // no cluster can run.
                    self.return_or_wait(entry, &answers, now, out);
                } else if self.may_write(entry, now) {
                    entry
                        .start_write(WorkloadWrite::Record { message: None, nominated: None }, out);
                }
                false
            }
            Some(_) => true,
            None => entry.facts.other_checks_ready,
        }
    }

    /// Withdraws offers to clusters that disconnected, refused, or are excluded now. With Kueue's
    /// dispatchers, a copy that cannot be admitted now stays, also on a disconnected cluster.
    fn withdraw_stale_offers(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let Some(attempt) = entry.nomination.as_ref().map(|nomination| nomination.attempt) else {
            return;
        };
        let offered: Vec<(Name, Option<State>, u64, bool)> = entry
            .remotes
            .iter()
            .filter(|(_, remote)| remote.phase != Some(Phase::Absent))
            .map(|(cluster, remote)| {
                let (state, is_earlier) =
                    (remote.state, remote.is_waiting_copy_of_earlier_leader());
                (cluster.clone(), state, remote.attempt, is_earlier)
            })
            .collect();
        for (cluster, state, at, is_earlier) in offered {
            let keeps = self.settings.mode.keeps_copies();
            let refuses = match state {
                Some(State::Gone | State::Succeeded | State::Failed) => true,
                Some(State::Unfit | State::Refused | State::Evicted) => {
                    !(keeps
                        && entry.remotes.get(&cluster).is_some_and(|remote| remote.may_still_fit()))
                }
                _ => false,
            };
            let known = self.clusters.get(&cluster);
            let away =
                !known.is_some_and(
                    |known| if keeps { known.takes_new_work() } else { known.is_usable() },
                );
            let barred = self.ruled_out(&entry.facts, &cluster).is_some();
            // An offer of an earlier attempt does not count, nor one of an earlier leader, whose pins
            // may be others. Where pins mean nothing, the copy keeps its place in the queue.
            let may_pin = known.is_none_or(|it| !it.has_reported || it.capacity.enforces_pins());
            let stale = at != attempt || (is_earlier && may_pin);
            let mismatched = self.pin_check(entry, &cluster, now) == PinCheck::Mismatch;
            if mismatched && !entry.has_new_pins && !stale {
                self.record_mismatch(entry, &cluster, now);
            }
            let outdated = entry.has_new_pins || mismatched;
            if refuses && !stale && !outdated {
                self.record_refusal(entry, &cluster, now);
            }
            if refuses || away || stale || barred || outdated {
                entry.request(&cluster, at, Phase::Absent, now, out);
                if let Some(known) = self.clusters.get_mut(&cluster) {
                    known.capacity.unassume(&entry.facts.uid);
                }
                if state.is_some_and(crate::is_terminal) {
                    out.push(DispatchAction::AcknowledgeEnd {
                        cluster,
                        uid: entry.facts.uid.clone(),
                        attempt: at,
                    });
                }
            }
        }
        entry.has_new_pins = false;
    }

    /// Commits a cluster that reserved quota, once nothing of an earlier attempt can run elsewhere.
    fn commit(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> bool {
        let Some(attempt) = entry.nomination.as_ref().map(|nomination| nomination.attempt) else {
            return false;
        };
        let holds = |remote: &super::tracked_workload::Remote| {
            remote.attempt == attempt
                && remote.phase == Some(Phase::Reserve)
                && remote.state == Some(State::Reserved)
        };
        let order = self.candidates(entry, now);
        let mut decided_at = None;
        let mut usable = |cluster: &Name| {
            let known = self.clusters.get(cluster).is_some_and(|known| known.is_usable());
            let check = self.pin_check(entry, cluster, now);
            if let PinCheck::Undecided { until } = check {
                decided_at = Some(until.min(decided_at.unwrap_or(until)));
            }
            known && check == PinCheck::Passed
        };
        // The oldest offer wins, then the order of the MultiKueueConfig.
        let winner = entry
            .remotes
            .iter()
            .filter(|(cluster, remote)| holds(remote) && usable(cluster))
            .min_by_key(|(cluster, remote)| {
                (remote.since, order.iter().position(|name| name == *cluster))
            })
            .map(|(cluster, _)| cluster.clone());
        if let Some(at) = decided_at {
            entry.wake_at(at);
        }
        let Some(winner) = winner else { return false };
        let still_running =
            entry.remotes.iter().any(|(cluster, remote)| *cluster != winner && remote.may_run());
        if still_running || !self.knows_all_clusters(entry, now) || !self.may_write(entry, now) {
            return true;
        }
        entry.start_commit(winner, attempt, None, out);
        true
    }

    fn best_fit(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        self.clusters.values_mut().for_each(|cluster| cluster.capacity.expire(now));
        let answers = self.answers(entry, now);
        let offers = self.offers(entry);
        // The next offer waits until the cluster answers this one or is late.
        let (mut open, mut in_turn) = (false, false);
        for cluster in &offers {
            let Some(remote) = entry.remotes.get(cluster).filter(|remote| remote.is_unanswered())
            else {
                continue;
            };
            let (late, turn) = self.answer_deadlines(cluster, remote.since);
            if now < late.max(turn) {
                open = true;
                in_turn |= now < turn;
                entry.wake_at(late.max(turn));
            }
        }
        if open {
            // In a burst, most workloads get a cluster before anybody asks why they wait: spare
            // their writes.
            if !in_turn {
                self.record_answers_when_late(entry, now, out);
            }
            return;
        }
        let best = answers
            .iter()
            .enumerate()
            .filter(|(_, (cluster, _))| !offers.contains(cluster))
            .filter_map(|(index, (cluster, answer))| match answer {
                ClusterAnswer::Fits(score) => Some((
                    // Last, whatever preferences and cost say: its pods would wait there for a node.
                    score.nodes == NodeFit::Full,
                    self.preference_rank(&entry.facts, cluster),
                    *score,
                    index,
                    cluster.clone(),
                )),
                _ => None,
            })
            .min();
        if let Some((.., cluster)) = best {
            self.offer(entry, &cluster, now, out);
        } else if offers.is_empty() {
            let shortest = answers
                .iter()
                .enumerate()
                .filter_map(|(index, (cluster, answer))| match answer {
                    ClusterAnswer::Waits(_, pending) => Some((
                        self.preference_rank(&entry.facts, cluster),
                        *pending,
                        index,
                        cluster.clone(),
                    )),
                    _ => None,
                })
                .min();
            if let Some((.., cluster)) = shortest {
                self.offer(entry, &cluster, now, out);
            } else if self.return_or_wait(entry, &answers, now, out) {
                return;
            }
        }
        if let Some(at) = self.next_retry(entry, now) {
            entry.wake_at(at);
        }
        self.record_answers_when_late(entry, now, out);
    }

    /// No cluster can take it now: waits until the first unknown answer is known, or returns the
    /// reservation if there is none. Returns whether it did the latter.
    fn return_or_wait(
        &mut self,
        entry: &mut TrackedWorkload,
        answers: &[(Name, ClusterAnswer)],
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> bool {
        let known = self.first_known(answers);
        match known {
            Some(known) => entry.wake_at(known.max(now + 500)),
            None => self.return_reservation(entry, none_can(answers), now, out),
        }
        known.is_none()
    }

    /// Two deadlines for an answer to an offer sent at `since`: the usual one, and a later one
    /// while the cluster keeps taking other workloads.
    fn answer_deadlines(&self, cluster: &Name, since: UnixMillis) -> (UnixMillis, UnixMillis) {
        let within = self.settings.answer_within;
        let moved = self.clusters.get(cluster).map_or(0, |known| known.progressed_at);
        (since + within, (moved + within).min(since + 10 * within))
    }

    /// The clusters with an open offer.
    pub(super) fn offers(&self, entry: &TrackedWorkload) -> Vec<Name> {
        let attempt = entry.nomination.as_ref().map_or(0, |nomination| nomination.attempt);
        entry
            .remotes
            .iter()
            .filter(|(_, remote)| remote.attempt == attempt && remote.phase == Some(Phase::Reserve))
            .map(|(cluster, _)| cluster.clone())
            .collect()
    }

    pub(super) fn offer(
        &mut self,
        entry: &mut TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let Some(attempt) = entry.nomination.as_ref().map(|nomination| nomination.attempt) else {
            return;
        };
        self.assume(entry, cluster);
        // The tombstone of this attempt may still be under way, and does not affect a higher
        // attempt.
        let buried = entry
            .remotes
            .get(cluster)
            .is_some_and(|r| r.attempt >= attempt && r.phase == Some(Phase::Absent))
            || entry.cleared_attempts.get(cluster).is_some_and(|at| *at >= attempt);
        let attempt = if buried { self.renew(entry, now, out) } else { attempt };
        self.ask(entry, cluster, attempt, now, out);
        entry.wake_at(now + self.settings.answer_within);
    }

    /// Deducts the workload from a cluster's capacity until a report counts it.
    pub(super) fn assume(&mut self, entry: &TrackedWorkload, cluster: &Name) {
        let facts = &entry.facts;
        let pins = pins_by(&self.pin_rules, facts, entry.check(), cluster);
        if let Some(known) = self.clusters.get_mut(cluster) {
            let place = (&facts.namespace, &facts.queue);
            known.capacity.assume(&facts.uid, place, &facts.pod_sets, pins);
        }
    }

    /// Raises the attempt of the search and of its open offers.
    fn renew(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> u64 {
        let fresh = entry.highest_attempt + 1;
        let offered = self.offers(entry);
        if let Some(nomination) = &mut entry.nomination {
            nomination.attempt = fresh;
        }
        for cluster in offered {
            self.ask(entry, &cluster, fresh, now, out);
        }
        entry.highest_attempt = fresh;
        fresh
    }

    fn ask(
        &self,
        entry: &mut TrackedWorkload,
        cluster: &Name,
        attempt: u64,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        entry.request(cluster, attempt, Phase::Reserve, now, out);
        if let Some(remote) = entry.remotes.get_mut(cluster) {
            remote.gate.exists = self.settings.preemption_timeout.is_some();
        }
    }

    /// Writes what the clusters answered, if the search takes long.
    fn record_answers_when_late(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        self.record_when_late(entry, now, out, |this, entry| waits_for(&this.answers(entry, now)));
    }

    /// Writes the reservation and what it waits for, if that takes long.
    pub(super) fn record_when_late(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
        message: impl FnOnce(&Self, &TrackedWorkload) -> String,
    ) {
        let Some(since) = entry.nomination.as_ref().map(|nomination| nomination.since) else {
            return;
        };
        let due = match &entry.last_recorded {
            None => since + self.settings.record_after,
            // Reasons change with every report. Writing each change would cost too many writes.
            Some((_, at)) => at + 10 * self.settings.record_after.max(1_000),
        };
        if now < due {
            entry.wake_at(due);
            return;
        }
        let message = message(self, entry);
        if entry.last_recorded.as_ref().is_some_and(|(recorded, _)| *recorded == message) {
            return;
        }
        let is_first = entry.last_recorded.is_none();
        if entry.pending_write.is_none()
            && self.may_write(entry, now)
            && (is_first || self.has_turn(entry, now))
        {
            entry.last_recorded = Some((message.clone(), now));
            entry.start_write(
                WorkloadWrite::Record { message: Some(message), nominated: None },
                out,
            );
        }
    }
}
