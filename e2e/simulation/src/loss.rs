//! Lost clusters: what the hub may do without them, and which attempts the laws then excuse.

use std::collections::BTreeSet;

use switchyard_dispatcher::{ClusterConfig, LossPolicy};
use switchyard_flags::simulate::Mutation;

use crate::names::name;
use crate::state::{Event, World};
use crate::time::{LEASE, Ms, WORKER_LOST};
use crate::violation::Law;

/// How long an agent that was away, or could not act, may take to catch up.
pub(crate) const CATCH_UP: Ms = 60_000;
/// Clusters lost within this time count as lost at once. Smaller than the hub's own window, because
/// clocks differ.
const AT_ONCE: Ms = 250_000;
/// How long a new hub gives nothing up, except on a user's word.
const RESTART_GRACE: Ms = 60_000;
/// A session that outlasts a policy change by this has brought the change to the agent. Covers the
/// hub's own bound, the change's way to the hub, and the detection of a session's end.
const POLICY_KNOWN_WITHIN: Ms = 60_000;

impl World {
    /// The users' policy for a cluster.
    pub(crate) fn rules(&self, cluster: usize) -> ClusterConfig {
        let it = &self.clusters[cluster];
        let hold = self.mutated(Mutation::GiveUpHeld) && it.loss == LossPolicy::Hold;
        ClusterConfig {
            on_disconnect: if hold { LossPolicy::GiveUp } else { it.loss },
            unfenced: self.is_unfenced(cluster),
            declared_lost: it.declared,
            cordoned: it.drained > 0,
            draining: it.drained > 0,
            release: self.released.map(|at| at.to_string().into()),
            ..ClusterConfig::default()
        }
    }

    /// The leading hub received a message of a cluster.
    pub(crate) fn note_message_of(&mut self, cluster: usize) {
        self.update_excuses(cluster);
        self.clusters[cluster].heard = self.now;
    }

    /// Once a hub has seen a cluster lost for its policy's time, it may give the cluster up. The
    /// cluster's assignments may then also run elsewhere, or may have ended there unseen. This ends
    /// once the cluster is back.
    pub(crate) fn update_excuses(&mut self, cluster: usize) {
        self.end_excuses(cluster);
        let there: Vec<(usize, u64)> = self
            .laws_objects()
            .flat_map(|(index, object)| {
                object.committed.iter().map(move |(at, attempt)| (*at, index, *attempt))
            })
            .filter(|(at, workload, _)| *at == cluster && self.may_be_given_up(cluster, *workload))
            .map(|(_, workload, attempt)| (workload, attempt))
            .collect();
        self.clusters[cluster].excused_attempts.extend(there);
    }

    /// Whether a hub has seen a cluster lost for the longest time of any policy of a workload. LossPolicy
    /// counts by the knowledge of the hub's dispatcher: with a session, nothing is excused.
    pub(crate) fn may_be_given_up(&self, cluster: usize, workload: usize) -> bool {
        let patience = |loss: &LossPolicy| match loss {
            LossPolicy::Hold => None,
            LossPolicy::Fence { after } => Some(LEASE + u64::try_from(*after).unwrap_or(0)),
            LossPolicy::Duplicate { after } => Some(u64::try_from(*after).unwrap_or(0)),
            LossPolicy::GiveUp => Some(WORKER_LOST),
        };
        // Clocks differ.
        let over = |since: Ms, patience: Ms| self.now - since >= patience * 9 / 10;
        let losses = self.losses(cluster, workload);
        self.hubs.iter().filter_map(|hub| hub.term.as_ref()).any(|term| {
            let lost = |since: Ms| {
                losses.iter().any(|loss| patience(loss).is_some_and(|it| over(since, it)))
            };
            // `Duplicate` also does not wait for an agent that reports that it cannot act.
            let twice = losses.iter().filter(|loss| matches!(loss, LossPolicy::Duplicate { .. }));
            let unable = |since: Ms| {
                twice.clone().any(|loss| patience(loss).is_some_and(|it| over(since, it)))
            };
            let away = term.away.get(&cluster).copied();
            let given_up =
                away.is_some_and(lost) || term.unable.get(&cluster).copied().is_some_and(unable);
            given_up && over(term.begun, RESTART_GRACE)
                || away.is_some() && self.clusters[cluster].declared
        })
    }

    /// A cluster is back once it has been healthy long enough to catch up. From then on no
    /// duplicate runs there.
    fn end_excuses(&mut self, cluster: usize) {
        let well = self.is_well(cluster);
        let (now, it) = (self.now, &mut self.clusters[cluster]);
        if !well {
            it.well_since = None;
            return;
        }
        if now < *it.well_since.get_or_insert(now) + CATCH_UP {
            return;
        }
        let excused_attempts = std::mem::take(&mut it.excused_attempts);
        for (workload, attempt) in excused_attempts {
            if self.is_forgotten(cluster, workload) {
                // The hub removes nothing that it has forgotten.
                self.clusters[cluster].excused_attempts.insert((workload, attempt));
                continue;
            }
            self.reached("excuse over: the cluster is back");
            let dropped = self.law_of(&self.uid(workload)).is_some_and(|object| {
                object.has_later_commit(cluster, attempt)
                    && object.ended.contains(&(cluster, attempt))
            });
            if dropped {
                self.clusters[cluster].dropped.insert((workload, attempt));
            }
        }
        let it = &mut self.clusters[cluster];
        it.replaced_attempts.retain(|attempt| it.excused_attempts.contains(attempt));
        if it.excused_attempts.is_empty() {
            (it.was_declared_lost, it.unheard) = (false, BTreeSet::new());
            it.losses.retain(|loss| *loss == it.loss || now <= it.changed + POLICY_KNOWN_WITHIN);
        }
    }

    /// The hub adopts an attempt that may run beside a later one. From now on the attempt that ran
    /// instead is the duplicate, until its cluster had the time to remove it.
    pub(crate) fn excuse_replaced_duplicate(
        &mut self,
        workload: usize,
        (cluster, attempt): (usize, u64),
        adopted: (usize, u64),
    ) {
        if cluster != adopted.0 && self.excused(adopted.0, workload, adopted.1) {
            self.replace_attempt(cluster, workload, attempt);
        }
    }

    /// Another attempt counts from now on, and the cluster has the time to remove this one.
    pub(crate) fn replace_attempt(&mut self, cluster: usize, workload: usize, attempt: u64) {
        let it = &mut self.clusters[cluster];
        it.excused_attempts.insert((workload, attempt));
        it.replaced_attempts.insert((workload, attempt));
        it.well_since = None;
    }

    /// Whether the cluster itself is healthy: a leading hub hears it, and it can act.
    fn is_well(&self, cluster: usize) -> bool {
        let it = &self.clusters[cluster];
        let leads = |hub: &crate::state::Hub| {
            let heard = hub
                .term
                .as_ref()
                .is_some_and(|term| term.is_live(cluster) && !term.unable.contains_key(&cluster));
            hub.up && hub.cut == 0 && hub.frozen.is_none() && heard
        };
        let heard = !self.network.is_cut(cluster, true)
            && !self.network.is_cut(cluster, false)
            && it.expired == 0;
        let acts = it.agent.up
            && it.agent.frozen.is_none()
            && it.outage == 0
            && it.slow == 0
            && it.gap == 0;
        let one = self.hubs.iter().filter(|hub| hub.term.is_some()).count() == 1;
        heard && acts && one && self.now > it.unable_until && self.hubs.iter().any(leads)
    }

    /// No agent enforces a fence there.
    fn is_unfenced(&self, cluster: usize) -> bool {
        self.plan.clusters[cluster].loss == LossPolicy::GiveUp
    }

    /// All policies that a workload ever had on a cluster. The workload's own policy takes
    /// precedence, except for a fence that no agent enforces.
    fn losses(&self, cluster: usize, workload: usize) -> BTreeSet<LossPolicy> {
        let theirs = &self.clusters[cluster].losses;
        let said = self
            .law_of(&self.uid(workload))
            .map(|object| object.losses.clone())
            .unwrap_or_default();
        let of = |own: Option<LossPolicy>| match own {
            Some(own) if own.fence().is_none() || !self.is_unfenced(cluster) => {
                BTreeSet::from([own])
            }
            _ => theirs.clone(),
        };
        said.into_iter().flat_map(of).collect()
    }

    /// Users change a cluster's policy. Hubs learn it a moment later.
    pub(crate) fn change_rule(&mut self, cluster: usize, loss: LossPolicy) {
        self.update_excuses(cluster);
        let it = &mut self.clusters[cluster];
        (it.loss, it.changed) = (loss, self.now);
        it.losses.insert(loss);
        for hub in 0..self.hubs.len() {
            let longest = self.plan.noise.stale;
            let delay = self.dice(0).between(1, longest);
            let boot = self.hubs[hub].boot;
            self.after(delay, Event::Rules { hub, boot, cluster });
        }
    }

    /// A hub reads a MultiKueueCluster.
    pub(crate) fn read_rules(&mut self, hub: usize, boot: u32, cluster: usize) {
        if self.hub_is(hub, boot) && self.hubs[hub].cut == 0 {
            let (name, config) = (name(cluster).into(), self.rules(cluster));
            self.dispatch(
                hub,
                switchyard_dispatcher::DispatchEvent::ClusterConfigured { name, config },
            );
        }
    }

    /// A term begins. The last policy change of an earlier term may not have reached its agent; no
    /// guarantee covers it.
    pub(crate) fn note_unheard(&mut self) {
        for cluster in 0..self.clusters.len() {
            for workload in 0..self.plan.workloads.len() {
                let own = self.law_of(&self.uid(workload)).map_or(0, |object| object.changed);
                let it = &mut self.clusters[cluster];
                let changed = it.changed.max(own);
                if changed > 0 && it.heard < changed + POLICY_KNOWN_WITHIN {
                    it.unheard.insert(workload);
                }
            }
        }
    }

    /// Whether this attempt was rightly given up on the cluster.
    pub(crate) fn given_up(&self, cluster: usize, workload: usize, attempt: u64) -> bool {
        self.clusters[cluster].excused_attempts.contains(&(workload, attempt))
    }

    /// Whether no hub can know how this attempt ended on the cluster.
    pub(crate) fn is_end_lost(&self, cluster: usize, workload: usize, attempt: u64) -> bool {
        self.given_up(cluster, workload, attempt)
            || self.clusters[cluster].dropped.contains(&(workload, attempt))
    }

    /// The excuse for this attempt to run on the cluster beside a later one; `None` if there is
    /// none.
    pub(crate) fn excuse(
        &self,
        cluster: usize,
        workload: usize,
        attempt: u64,
    ) -> Option<&'static str> {
        if !self.given_up(cluster, workload, attempt) {
            return None;
        }
        let it = &self.clusters[cluster];
        let losses = self.losses(cluster, workload);
        let able = self.now > it.unable_until + CATCH_UP && self.is_able(cluster);
        Some(if losses.iter().any(|loss| matches!(loss, LossPolicy::Duplicate { .. })) {
            "excuse: two run, as the loss means Duplicate"
        } else if losses.contains(&LossPolicy::GiveUp) {
            "excuse: two run, as the loss means GiveUp"
        } else if it.was_declared_lost {
            "excuse: two run, as the cluster was declared lost"
        } else if it.replaced_attempts.contains(&(workload, attempt)) {
            "excuse: two run, as a duplicate was adopted"
        } else if it.unheard.contains(&workload) {
            "excuse: two run, as a policy was not heard"
        } else if !able {
            "excuse: two run, as the agent cannot act"
        } else if self.will_be_shown_as_forgotten(cluster, workload) {
            // It was given up while its agent could not act. The hub removes nothing that it has
            // forgotten.
            "excuse: two run, as the hub has forgotten one and shows it"
        } else {
            return None;
        })
    }

    /// Whether this attempt may run on the cluster beside a later one.
    pub(crate) fn excused(&self, cluster: usize, workload: usize, attempt: u64) -> bool {
        self.excuse(cluster, workload, attempt).is_some()
    }

    /// Whether the agent runs and reaches its own API server, or has reported that it does not.
    fn is_able(&self, cluster: usize) -> bool {
        let it = &self.clusters[cluster];
        it.agent.up
            && it.agent.frozen.is_none()
            && it.slow == 0
            && (it.outage == 0 || it.reported_unable)
    }

    /// The agent could not act on its cluster until `until`. An unreachable API server is no excuse
    /// once the hub has the report.
    pub(crate) fn was_unable(&mut self, cluster: usize, until: Ms) {
        if !self.clusters[cluster].reported_unable {
            self.clusters[cluster].unable_until = until;
        }
    }

    /// Operators declare a disconnected cluster lost. They may be wrong.
    pub(crate) fn declare_lost(&mut self, cluster: usize) {
        let connected =
            self.hubs.iter().filter_map(|hub| hub.term.as_ref()).any(|term| term.is_live(cluster));
        if !connected {
            self.reached("fault: declare lost");
            (self.clusters[cluster].declared, self.clusters[cluster].was_declared_lost) =
                (true, true);
            self.rules_changed(cluster);
        }
    }

    /// Operators release the circuit breaker.
    pub(crate) fn release_breaker(&mut self) {
        self.released = Some(self.now);
        for cluster in 0..self.clusters.len() {
            self.rules_changed(cluster);
        }
    }

    /// A cluster is about to be given up, by a decision of this term and time. Forbidden while
    /// other clusters were lost at about the same time, unless operators acted.
    pub(crate) fn check_careful(
        &mut self,
        (hub, epoch): (usize, u64),
        decided: Ms,
        cluster: usize,
    ) {
        let Some(term) = self.hubs[hub].term.as_ref().filter(|term| term.epoch == epoch) else {
            return;
        };
        if self.clusters[cluster].declared {
            return;
        }
        let Some(about) = term.lost.get(&cluster).copied() else { return };
        let counts = |at: Ms| at < decided && self.released.is_none_or(|released| at > released);
        let near = |at: Ms| at.abs_diff(about) <= AT_ONCE;
        let lost = term.lost.iter().filter(|(it, at)| {
            counts(**at) && near(**at) && !self.clusters[**it].was_declared_lost
        });
        let lost: Vec<usize> = lost.map(|(it, _)| *it).collect();
        if lost.contains(&cluster) && lost.len() > 1 {
            self.report_violation(
                Law::Careful,
                format!("{cluster} is given up while {lost:?} are lost"),
            );
        }
    }

    /// The declaration was about a loss that is over.
    pub(crate) fn is_back(&mut self, cluster: usize) {
        if std::mem::take(&mut self.clusters[cluster].declared) {
            self.update_excuses(cluster);
            self.rules_changed(cluster);
        }
    }

    /// Hubs read the MultiKueueCluster again.
    pub(crate) fn rules_changed(&mut self, cluster: usize) {
        self.update_excuses(cluster);
        for hub in 0..self.hubs.len() {
            let config = self.rules(cluster);
            let name = name(cluster).into();
            self.dispatch(
                hub,
                switchyard_dispatcher::DispatchEvent::ClusterConfigured { name, config },
            );
        }
    }
}
