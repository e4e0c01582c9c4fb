//! Choosing the clusters that a workload is offered to, and the one that gets it.

use switchyard_syntax::conditions::messages;

use super::capacity::{Score, Verdict};
use super::entry::{Entry, Nomination, Writing};
use super::machine::Dispatcher;
use super::{Action, Mode, Name, Phase, Reason, State, Time};

/// What speaks for or against a cluster now.
#[derive(Debug, Clone)]
enum Standing {
    /// It fits now.
    Fits(Score),
    /// It may fit later; the number waits there already.
    Waits(Vec<Reason>, u32),
    /// It cannot, or is not there.
    No(Vec<Reason>),
    /// It is not known yet: it has just connected, or the hub has just started.
    Unknown(Vec<Reason>),
}

impl Dispatcher {
    /// Looks for a cluster: offers, commits, records, or gives back.
    pub(super) fn nominate(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) {
        if entry.writing.is_some() {
            return;
        }
        if self.wait_for_first(entry, now, out) || !self.other_checks_passed(entry, now, out) {
            return;
        }
        if entry.nomination.is_none() {
            entry.nomination =
                Some(Nomination { attempt: entry.top + 1, since: now, rounds: 0, next_round: now });
        }
        if entry.facts.waits_for_job {
            self.record_late(entry, now, out, |_, _| {
                "Waiting for the job that this Workload is for".to_owned()
            });
            return;
        }
        if self.take_over(entry, now, out)
            || self.recall(entry, now, out)
            || self.join_first(entry, now, out)
        {
            return;
        }
        self.retire(entry, now, out);
        if self.commit(entry, now, out) || self.has_nowhere_to_go(entry, now, out) {
            return;
        }
        match self.settings.mode {
            Mode::BestFit => self.best_fit(entry, now, out),
            Mode::AllAtOnce | Mode::Incremental { .. } | Mode::External => {
                self.as_nominated(entry, now, out);
                self.open_gates(entry, now, out);
            }
        }
    }

    /// Clusters are asked only when all other checks have passed; for those to be looked at, the reservation must be
    /// in the API.
    fn other_checks_passed(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) -> bool {
        match &entry.memory {
            Some(reserved) if reserved.other_checks => {
                let standings = self.standings(entry, now);
                let is_no = |(_, standing): &(Name, Standing)| matches!(standing, Standing::No(_));
                if self.settings.mode == Mode::BestFit && standings.iter().all(is_no) {
                    // Other checks, such as one that adds nodes, are not begun for what no cluster can run.
                    self.give_back(entry, none_can(&standings), now, out);
                } else if self.may_write(entry, now) {
                    entry.writing = Some(Writing::Record);
                    out.push(Action::Record {
                        uid: entry.facts.uid.clone(),
                        message: None,
                        nominated: None,
                    });
                }
                false
            }
            Some(_) => true,
            None => entry.facts.others_ready,
        }
    }

    /// Takes back offers to clusters that went away, said no, or are no longer allowed. With Kueue's dispatchers a cluster that cannot run it now keeps its
    /// copy, and so does one that is only out of reach: what keeps it there may pass.
    fn retire(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) {
        let Some(attempt) = entry.nomination.as_ref().map(|nomination| nomination.attempt) else {
            return;
        };
        let offered: Vec<(Name, Option<State>, u64)> = entry
            .remotes
            .iter()
            .filter(|(_, remote)| remote.phase != Some(Phase::Absent))
            .map(|(cluster, remote)| (cluster.clone(), remote.state, remote.attempt))
            .collect();
        for (cluster, state, at) in offered {
            let keeps = self.settings.mode.keeps_copies();
            let said_no = match state {
                Some(State::Gone | State::Succeeded | State::Failed) => true,
                Some(State::Unfit | State::Refused | State::Evicted) => {
                    !(keeps
                        && entry.remotes.get(&cluster).is_some_and(|remote| remote.may_still_fit()))
                }
                _ => false,
            };
            let known = self.clusters.get(&cluster);
            let away =
                !known.is_some_and(|known| if keeps { known.wanted() } else { known.usable() });
            let barred = self.ruled_out(&entry.facts, &cluster).is_some();
            // Something of an earlier attempt is no offer of ours.
            let stale = at != attempt;
            if said_no && !stale {
                self.refused_by(entry, &cluster, now);
            }
            if said_no || away || stale || barred {
                entry.want(&cluster, at, Phase::Absent, now, out);
                if let Some(known) = self.clusters.get_mut(&cluster) {
                    known.capacity.unassume(&entry.facts.uid);
                }
                if state.is_some_and(super::terminal) {
                    out.push(Action::Ack { cluster, uid: entry.facts.uid.clone(), attempt: at });
                }
            }
        }
    }

    /// Commits one of the clusters that hold quota, if nothing of an earlier attempt may run elsewhere.
    fn commit(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) -> bool {
        let Some(attempt) = entry.nomination.as_ref().map(|nomination| nomination.attempt) else {
            return false;
        };
        let holds = |remote: &super::entry::Remote| {
            remote.attempt == attempt
                && remote.phase == Some(Phase::Reserve)
                && remote.state == Some(State::Reserved)
        };
        let order = self.order(entry, now);
        let usable =
            |cluster: &Name| self.clusters.get(cluster).is_some_and(|known| known.usable());
        // Of several, the first to have been asked; then the order of the configuration.
        let winner = entry
            .remotes
            .iter()
            .filter(|(cluster, remote)| holds(remote) && usable(cluster))
            .min_by_key(|(cluster, remote)| {
                (remote.since, order.iter().position(|name| name == *cluster))
            })
            .map(|(cluster, _)| cluster.clone());
        let Some(winner) = winner else { return false };
        let still_running =
            entry.remotes.iter().any(|(cluster, remote)| *cluster != winner && remote.may_run());
        if still_running || !self.sure(entry, now) || !self.may_write(entry, now) {
            return true;
        }
        entry.writing = Some(Writing::Commit { cluster: winner.clone(), attempt });
        out.push(Action::Commit {
            uid: entry.facts.uid.clone(),
            cluster: winner,
            attempt,
            adopts: None,
        });
        true
    }

    // === BestFit

    fn best_fit(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) {
        let standings = self.standings(entry, now);
        let offers = self.offers(entry);
        // An offer stands alone until it is answered, or is late.
        let (mut open, mut in_turn) = (false, false);
        for cluster in &offers {
            let Some(remote) = entry.remotes.get(cluster).filter(|remote| remote.unanswered())
            else {
                continue;
            };
            let (late, turn) = self.patience(cluster, remote.since);
            if now < late.max(turn) {
                open = true;
                in_turn |= now < turn;
                entry.wake_at(late.max(turn));
            }
        }
        if open {
            // In a burst most have a cluster before anybody asks why they do not: no write for those.
            if !in_turn {
                self.record_if_late(entry, now, out);
            }
            return;
        }
        let best = standings
            .iter()
            .enumerate()
            .filter(|(_, (cluster, _))| !offers.contains(cluster))
            .filter_map(|(index, (cluster, standing))| match standing {
                Standing::Fits(score) => {
                    Some((self.rank(&entry.facts, cluster), *score, index, cluster.clone()))
                }
                _ => None,
            })
            .min();
        if let Some((.., cluster)) = best {
            self.offer(entry, &cluster, now, out);
        } else if offers.is_empty() {
            let shortest = standings
                .iter()
                .enumerate()
                .filter_map(|(index, (cluster, standing))| match standing {
                    Standing::Waits(_, pending) => {
                        Some((self.rank(&entry.facts, cluster), *pending, index, cluster.clone()))
                    }
                    _ => None,
                })
                .min();
            if let Some((.., cluster)) = shortest {
                self.offer(entry, &cluster, now, out);
            } else if standings.iter().any(|(_, standing)| matches!(standing, Standing::Unknown(_)))
            {
                entry.wake_at((self.started + self.settings.start_grace).max(now + 500));
            } else {
                self.give_back(entry, none_can(&standings), now, out);
                return;
            }
        }
        if let Some(at) = self.next_question(entry, now) {
            entry.wake_at(at);
        }
        self.record_if_late(entry, now, out);
    }

    /// Until when an offer of that time may stay unanswered: in any case, and while the cluster keeps taking others, which
    /// says that this one only waits for its turn.
    fn patience(&self, cluster: &Name, since: Time) -> (Time, Time) {
        let within = self.settings.answer_within;
        let moved = self.clusters.get(cluster).map_or(0, |known| known.moved);
        (since + within, (moved + within).min(since + 10 * within))
    }

    /// Where the workload is offered now.
    pub(super) fn offers(&self, entry: &Entry) -> Vec<Name> {
        let attempt = entry.nomination.as_ref().map_or(0, |nomination| nomination.attempt);
        entry
            .remotes
            .iter()
            .filter(|(_, remote)| remote.attempt == attempt && remote.phase == Some(Phase::Reserve))
            .map(|(cluster, _)| cluster.clone())
            .collect()
    }

    fn offer(&mut self, entry: &mut Entry, cluster: &Name, now: Time, out: &mut Vec<Action>) {
        let Some(attempt) = entry.nomination.as_ref().map(|nomination| nomination.attempt) else {
            return;
        };
        if let Some(known) = self.clusters.get_mut(cluster) {
            let facts = &entry.facts;
            known.capacity.assume(&facts.uid, &facts.namespace, &facts.queue, &facts.pod_sets);
        }
        // The tombstone of this very attempt may still be under way there, or not forgotten yet; a higher one is not
        // mistaken for it.
        let buried = entry
            .remotes
            .get(cluster)
            .is_some_and(|r| r.attempt >= attempt && r.phase == Some(Phase::Absent))
            || entry.cleared.get(cluster).is_some_and(|at| *at >= attempt);
        let attempt = if buried { self.renew(entry, now, out) } else { attempt };
        self.ask(entry, cluster, attempt, now, out);
        entry.wake_at(now + self.settings.answer_within);
    }

    /// Goes on with a fresh attempt, offers that stand included.
    fn renew(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) -> u64 {
        let fresh = entry.top + 1;
        let standing = self.offers(entry);
        if let Some(nomination) = &mut entry.nomination {
            nomination.attempt = fresh;
        }
        for cluster in standing {
            self.ask(entry, &cluster, fresh, now, out);
        }
        entry.top = fresh;
        fresh
    }

    fn ask(
        &self,
        entry: &mut Entry,
        cluster: &Name,
        attempt: u64,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        entry.want(cluster, attempt, Phase::Reserve, now, out);
        if let Some(remote) = entry.remotes.get_mut(cluster) {
            remote.gate.there = self.settings.preemption_timeout.is_some();
        }
    }

    pub(super) fn give_back(
        &mut self,
        entry: &mut Entry,
        message: String,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        if !self.may_write(entry, now) {
            return;
        }
        entry.nomination = None;
        let uid = entry.facts.uid.clone();
        if entry.memory.take().is_some() {
            let retry_at = self.try_again_at(entry, now);
            self.park(entry.facts.clone());
            out.push(Action::GiveBack { uid, message, retry_at });
        } else {
            // The delay begins when it has quota in memory again: it ends at once when a cluster may take the workload, which one in
            // the API does not.
            entry.writing = Some(Writing::Retry);
            out.push(Action::Retry { uid, message, left: None });
        }
    }

    /// When a workload that no cluster can take is tried again, if nothing changes before: when the first cluster that refused it is
    /// to be asked again, or after a delay that doubles each time.
    fn try_again_at(&self, entry: &mut Entry, now: Time) -> Time {
        let (first, longest) = self.settings.give_back;
        // A later replica is woken when the first has quota.
        if entry.facts.is_behind() {
            return now + longest;
        }
        if let Some(at) = self.next_question(entry, now) {
            return at.min(now + longest);
        }
        let delay = first.saturating_mul(1 << entry.given_back.min(10)).min(longest);
        entry.given_back = entry.given_back.saturating_add(1);
        now + delay
    }

    /// Writes the reservation down when the search takes long, so that people see what it waits for.
    fn record_if_late(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) {
        self.record_late(entry, now, out, |this, entry| waits_for(&this.standings(entry, now)));
    }

    /// Writes the reservation down with what it waits for, when that takes long.
    pub(super) fn record_late(
        &mut self,
        entry: &mut Entry,
        now: Time,
        out: &mut Vec<Action>,
        message: impl FnOnce(&Self, &Entry) -> String,
    ) {
        let Some(since) = entry.nomination.as_ref().map(|nomination| nomination.since) else {
            return;
        };
        let due = match &entry.recorded {
            None => since + self.settings.record_after,
            // Reasons change with every report: not each change is worth a write.
            Some((_, at)) => at + 10 * self.settings.record_after.max(1_000),
        };
        if now < due {
            entry.wake_at(due);
            return;
        }
        let message = message(self, entry);
        if entry.recorded.as_ref().is_some_and(|(recorded, _)| *recorded == message) {
            return;
        }
        if entry.writing.is_none() && self.may_write(entry, now) {
            entry.recorded = Some((message.clone(), now));
            entry.writing = Some(Writing::Record);
            out.push(Action::Record {
                uid: entry.facts.uid.clone(),
                message: Some(message),
                nominated: None,
            });
        }
    }

    // === Kueue's dispatchers

    /// Offers to the clusters that `status.nominatedClusterNames` lists, after writing the list if it is ours.
    fn as_nominated(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) {
        let wanted = match self.settings.mode {
            Mode::AllAtOnce => {
                let mut all = self.within_reach(entry, now);
                all.sort();
                Some(all)
            }
            Mode::Incremental { step, round } => Some(self.next_round(entry, step, round, now)),
            Mode::BestFit | Mode::External => None,
        };
        let outdated = wanted
            .as_ref()
            .is_some_and(|wanted| !wanted.is_empty() && *wanted != entry.facts.nominated);
        if outdated || entry.memory.is_some() {
            if self.may_write(entry, now) {
                entry.writing = Some(Writing::Record);
                let message =
                    entry.memory.is_some().then(|| waits_for(&self.standings(entry, now)));
                let nominated = if outdated { wanted } else { None };
                out.push(Action::Record { uid: entry.facts.uid.clone(), message, nominated });
            }
            return;
        }
        let order = self.order(entry, now);
        let nominated = entry.facts.nominated.clone();
        for cluster in self.offers(entry) {
            if !nominated.contains(&cluster) {
                let attempt = entry.top;
                entry.want(&cluster, attempt, Phase::Absent, now, out);
            }
        }
        for cluster in nominated {
            let asked = self.offers(entry).contains(&cluster);
            let refused = self.refusal(entry, &cluster, now).map(|refusal| refusal.until);
            let usable = self.clusters.get(&cluster).is_some_and(|known| known.usable());
            match refused {
                Some(until) => entry.wake_at(until),
                None if usable && !asked && order.contains(&cluster) => {
                    self.offer(entry, &cluster, now, out)
                }
                None => {}
            }
        }
    }

    fn next_round(&self, entry: &mut Entry, step: usize, round: i64, now: Time) -> Vec<Name> {
        let order = self.order(entry, now);
        let mut names: Vec<Name> =
            entry.facts.nominated.iter().filter(|name| order.contains(name)).cloned().collect();
        let Some(nomination) = &mut entry.nomination else { return names };
        let mut left: Vec<Name> =
            order.iter().filter(|name| !names.contains(name)).cloned().collect();
        if self.settings.by_name {
            left.sort();
        }
        // The round's beginning is kept in memory only, as in Kueue: a restart begins the next at once.
        if (names.is_empty() || now >= nomination.next_round) && !left.is_empty() {
            names.extend(left.into_iter().take(step.max(1)));
            nomination.rounds += 1;
            nomination.next_round = now + round;
        }
        let next = nomination.next_round;
        if next > now {
            entry.wake_at(next);
        }
        names
    }

    // === what clusters there are

    /// The clusters that may be asked, in the order of the configuration.
    pub(super) fn order(&self, entry: &Entry, now: Time) -> Vec<Name> {
        self.moves_to(entry, now).map_or_else(|| self.allowed(entry), |to| vec![to])
    }

    /// Where somebody wants it, unless that cluster has refused it since.
    fn moves_to(&self, entry: &Entry, now: Time) -> Option<Name> {
        let (attempt, to) = entry.facts.moving.as_ref()?;
        let counts = *attempt == entry.facts.attempt && self.settings.mode != Mode::External;
        (counts && self.takes(entry, to, now)).then(|| to.clone())
    }

    /// The clusters of the workload's check, in the order of its configuration.
    pub(super) fn configured(&self, entry: &Entry) -> Vec<Name> {
        let check = match (&entry.memory, &entry.facts.check) {
            (Some(reserved), _) => Some(&reserved.check),
            (None, Some((check, _))) => Some(check),
            (None, None) => None,
        };
        check.and_then(|check| self.checks.get(check)).cloned().unwrap_or_default()
    }

    /// Whether a cluster that somebody wants a workload on may be asked for it: it is one of those allowed, has not
    /// refused it lately, and does not say that it can never run it.
    pub(super) fn takes(&self, entry: &Entry, cluster: &Name, now: Time) -> bool {
        let facts = &entry.facts;
        if !self.allowed(entry).contains(cluster) || self.refusal(entry, cluster, now).is_some() {
            return false;
        }
        self.clusters.get(cluster).filter(|known| known.usable()).is_some_and(|known| {
            let verdict = known.capacity.judge(&facts.namespace, &facts.queue, &facts.pod_sets);
            !known.reported || !matches!(verdict, Verdict::Never(_))
        })
    }

    /// The clusters that can be asked, and those that have been and are only out of reach.
    fn within_reach(&self, entry: &Entry, now: Time) -> Vec<Name> {
        let offers = self.offers(entry);
        let usable = |name: &Name| self.clusters.get(name).is_some_and(|known| known.usable());
        self.order(entry, now)
            .into_iter()
            .filter(|name| usable(name) || offers.contains(name))
            .collect()
    }

    /// Of the clusters that may be asked, and of those that a rule excludes.
    fn standings(&self, entry: &Entry, now: Time) -> Vec<(Name, Standing)> {
        let order = self.moves_to(entry, now).map_or_else(|| self.configured(entry), |to| vec![to]);
        order.into_iter().map(|name| (name.clone(), self.standing(entry, &name, now))).collect()
    }

    fn standing(&self, entry: &Entry, name: &Name, now: Time) -> Standing {
        let starting = now < self.started + self.settings.start_grace;
        let no = |code: &str, message: &str| {
            let reasons = vec![Reason::new(code, message)];
            if starting { Standing::Unknown(reasons) } else { Standing::No(reasons) }
        };
        let Some(cluster) = self.clusters.get(name).filter(|cluster| cluster.exists) else {
            return Standing::No(vec![Reason::new(
                "ClusterNotFound",
                "there is no MultiKueueCluster of that name",
            )]);
        };
        if let Some(reason) = self.ruled_out(&entry.facts, name) {
            return Standing::No(vec![reason]);
        }
        if cluster.rules.cordoned {
            return Standing::No(vec![Reason::new("Cordoned", "cordoned")]);
        }
        if !cluster.up {
            return no("NotConnected", "not connected");
        }
        if cluster.unable.is_some() {
            return Standing::No(vec![Reason::new(
                "AgentUnable",
                "its agent does not reach its own API server",
            )]);
        }
        if !cluster.synced || !cluster.reported {
            // It has connected and will speak in a moment; if not for long, the next look says so.
            let reasons =
                vec![Reason::new("NotReported", "connected, has not reported its capacity yet")];
            let fresh = now < cluster.since.max(self.started) + self.settings.start_grace;
            return match (fresh, cluster.synced) {
                (true, _) => Standing::Unknown(reasons),
                // It never reports: ask it, it will answer.
                (false, true) => Standing::Waits(reasons, 0),
                (false, false) => Standing::No(reasons),
            };
        }
        if let Some(refusal) = self.refusal(entry, name, now) {
            return Standing::No(refusal.reasons.clone());
        }
        let facts = &entry.facts;
        // What is assumed for this workload itself does not stand in its way.
        if self.offers(entry).contains(name) {
            let said =
                entry.remotes.get(name).map(|remote| remote.reasons.clone()).unwrap_or_default();
            let said = if said.is_empty() { vec![Reason::new("Asked", "was asked")] } else { said };
            return Standing::Waits(said, 0);
        }
        match self.verdict(facts, &cluster.capacity) {
            Verdict::Fits(score) => Standing::Fits(score),
            Verdict::Waits { reasons, pending } => Standing::Waits(reasons, pending),
            Verdict::Never(reasons) => Standing::No(reasons),
        }
    }
}

impl Dispatcher {
    /// That no cluster is allowed, and by which rule each is not.
    pub(super) fn none_allowed(&self, entry: &Entry, now: Time) -> String {
        format!("No worker cluster is allowed: {}", each(&self.standings(entry, now)))
    }
}

fn each(standings: &[(Name, Standing)]) -> String {
    let why = |standing: &Standing| match standing {
        Standing::Fits(_) => "fits".to_owned(),
        Standing::Waits(reasons, _) | Standing::No(reasons) | Standing::Unknown(reasons) => {
            reasons.iter().map(|reason| reason.message.as_str()).collect::<Vec<_>>().join(", ")
        }
    };
    let parts: Vec<String> =
        standings.iter().map(|(name, standing)| format!("{name}: {}", why(standing))).collect();
    if parts.is_empty() { "no clusters are configured".to_owned() } else { parts.join("; ") }
}

fn none_can(standings: &[(Name, Standing)]) -> String {
    format!("{}{}", messages::NO_CLUSTER, each(standings))
}

fn waits_for(standings: &[(Name, Standing)]) -> String {
    format!("{}{}", messages::WAITS_FOR_CLUSTER, each(standings))
}
