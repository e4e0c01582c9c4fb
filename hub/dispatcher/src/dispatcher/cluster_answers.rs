//! The answer of each cluster to one workload, and the candidate clusters.
//!
//! The answers choose the next offer and explain, in the check's message, why a workload waits.

use switchyard_syntax::conditions::messages;

use super::Dispatcher;
use super::cluster_state::ClusterState;
use super::tracked_workload::TrackedWorkload;
use crate::capacity::{Fit, FitScore};
use crate::{DispatchMode, Name, Reason, UnixMillis};

/// One cluster's answer to one workload.
#[derive(Debug, Clone)]
pub(super) enum ClusterAnswer {
    /// Fits now.
    Fits(FitScore),
    /// May fit later. The value is the number of workloads that already wait there.
    Waits(Vec<Reason>, u32),
    /// Cannot run it, or is not available.
    No(Vec<Reason>),
    /// Unknown: the cluster was just connected or lost, or the hub just started.
    Unknown(Vec<Reason>),
}

/// A cluster that is open to a workload.
pub(super) enum OpenOffer {
    /// It has reported its capacity.
    Reported(Fit),
    /// It never reported its capacity.
    Unreported,
}

impl Dispatcher {
    /// The candidate clusters, in the order of the MultiKueueConfig.
    pub(super) fn candidates(&self, entry: &TrackedWorkload, now: UnixMillis) -> Vec<Name> {
        self.move_target(entry, now).map_or_else(|| self.allowed_clusters(entry), |to| vec![to])
    }

    /// The target of a move request, unless that cluster has refused since.
    pub(super) fn move_target(&self, entry: &TrackedWorkload, now: UnixMillis) -> Option<Name> {
        let (attempt, to) = entry.facts.move_request.as_ref()?;
        let counts =
            *attempt == entry.facts.state.attempt && self.settings.mode != DispatchMode::External;
        (counts && self.accepts(entry, to, now)).then(|| to.clone())
    }

    /// The clusters of the workload's check, in the order of its MultiKueueConfig.
    pub(super) fn configured_clusters(&self, entry: &TrackedWorkload) -> Vec<Name> {
        entry.check().and_then(|check| self.checks.get(check)).cloned().unwrap_or_default()
    }

    /// Whether the target of a move request is a candidate: allowed, without a current refusal, and
    /// large enough as far as known.
    pub(super) fn accepts(&self, entry: &TrackedWorkload, cluster: &Name, now: UnixMillis) -> bool {
        self.configured_clusters(entry).contains(cluster)
            && self.open_offer(entry, cluster, now).is_some_and(|offer| match offer {
                OpenOffer::Reported(fit) => !matches!(fit, Fit::Never(_)),
                OpenOffer::Unreported => true,
            })
    }

    /// How a configured cluster fits the workload. None if it is not usable, a rule excludes it, or
    /// it has refused.
    pub(super) fn open_offer(
        &self,
        entry: &TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
    ) -> Option<OpenOffer> {
        let facts = &entry.facts;
        let known = self.clusters.get(cluster).filter(|known| known.is_usable())?;
        if self.ruled_out(facts, cluster).is_some() || self.refusal(entry, cluster, now).is_some() {
            return None;
        }
        Some(if known.has_reported {
            let pins = self.cluster_pins(facts, entry.check(), cluster);
            let fit = known.capacity.fit(&facts.namespace, &facts.queue, &facts.pod_sets, pins);
            OpenOffer::Reported(fit)
        } else {
            OpenOffer::Unreported
        })
    }

    /// The usable clusters, and those with an open offer that are only disconnected.
    pub(super) fn within_reach(&self, entry: &TrackedWorkload, now: UnixMillis) -> Vec<Name> {
        let offers = self.offers(entry);
        let usable = |name: &Name| self.clusters.get(name).is_some_and(|known| known.is_usable());
        self.candidates(entry, now)
            .into_iter()
            .filter(|name| usable(name) || offers.contains(name))
            .collect()
    }

    /// The answers of all configured clusters, also of those that affinity excludes.
    pub(super) fn answers(
        &self,
        entry: &TrackedWorkload,
        now: UnixMillis,
    ) -> Vec<(Name, ClusterAnswer)> {
        let order = self
            .move_target(entry, now)
            .map_or_else(|| self.configured_clusters(entry), |to| vec![to]);
        order.into_iter().map(|name| (name.clone(), self.answer(entry, &name, now))).collect()
    }

    /// The end of the grace period after the start of the hub, or after the cluster was connected or
    /// lost.
    fn unknown_until(&self, cluster: &ClusterState) -> UnixMillis {
        let changed = match cluster.is_connected {
            true => cluster.since,
            false => cluster.lost_at.unwrap_or(cluster.since),
        };
        changed.max(self.started).saturating_add(self.settings.start_grace)
    }

    /// When the first unknown answer becomes known.
    pub(super) fn first_known(&self, answers: &[(Name, ClusterAnswer)]) -> Option<UnixMillis> {
        answers
            .iter()
            .filter(|(_, answer)| matches!(answer, ClusterAnswer::Unknown(_)))
            .filter_map(|(name, _)| self.clusters.get(name))
            .map(|cluster| self.unknown_until(cluster))
            .min()
    }

    fn answer(&self, entry: &TrackedWorkload, name: &Name, now: UnixMillis) -> ClusterAnswer {
        let Some(cluster) = self.clusters.get(name).filter(|cluster| cluster.exists) else {
            return ClusterAnswer::No(vec![Reason::new(
                "ClusterNotFound",
                "there is no MultiKueueCluster of that name",
            )]);
        };
        if let Some(reason) = self.ruled_out(&entry.facts, name) {
            return ClusterAnswer::No(vec![reason]);
        }
        if cluster.config.cordoned {
            return ClusterAnswer::No(vec![Reason::new("Cordoned", "cordoned")]);
        }
        let is_in_grace = now < self.unknown_until(cluster);
        if !cluster.is_connected {
            // A short interruption, such as a new kubeconfig, costs no workload its quota.
            let reasons = vec![Reason::new("NotConnected", "not connected")];
            return match is_in_grace {
                true => ClusterAnswer::Unknown(reasons),
                false => ClusterAnswer::No(reasons),
            };
        }
        if cluster.not_ready_since.is_some() {
            return ClusterAnswer::No(vec![Reason::new(
                "AgentUnable",
                "its agent does not reach its own API server",
            )]);
        }
        if !cluster.has_synced || !cluster.has_reported {
            // The cluster just connected and reports soon.
            let reasons =
                vec![Reason::new("NotReported", "connected, has not reported its capacity yet")];
            return match (is_in_grace, cluster.has_synced) {
                (true, _) => ClusterAnswer::Unknown(reasons),
                // The cluster never reports capacity: ask it.
                (false, true) => ClusterAnswer::Waits(reasons, 0),
                (false, false) => ClusterAnswer::No(reasons),
            };
        }
        if let Some(refusal) = self.refusal(entry, name, now) {
            return ClusterAnswer::No(refusal.reasons.clone());
        }
        let facts = &entry.facts;
        // The capacity assumed for this workload does not block it.
        if self.offers(entry).contains(name) {
            let reported =
                entry.remotes.get(name).map(|remote| remote.reasons.clone()).unwrap_or_default();
            let reported = if reported.is_empty() {
                vec![Reason::new("Asked", "was asked")]
            } else {
                reported
            };
            return ClusterAnswer::Waits(reported, 0);
        }
        let pins = self.cluster_pins(facts, entry.check(), name);
        match self.verdict(facts, &cluster.capacity, pins) {
            Fit::Now(score) => ClusterAnswer::Fits(score),
            Fit::Later { reasons, pending } => ClusterAnswer::Waits(reasons, pending),
            Fit::Never(reasons) => ClusterAnswer::No(reasons),
        }
    }
}

impl Dispatcher {
    /// Message: no cluster is allowed, and which rule excludes each.
    pub(super) fn none_allowed(&self, entry: &TrackedWorkload, now: UnixMillis) -> String {
        format!("No worker cluster is allowed: {}", each(&self.answers(entry, now)))
    }
}

fn each(answers: &[(Name, ClusterAnswer)]) -> String {
    let why = |answer: &ClusterAnswer| match answer {
        ClusterAnswer::Fits(_) => "fits".to_owned(),
        ClusterAnswer::Waits(reasons, _)
        | ClusterAnswer::No(reasons)
        | ClusterAnswer::Unknown(reasons) => {
            reasons.iter().map(|reason| reason.message.as_str()).collect::<Vec<_>>().join(", ")
        }
    };
    let parts: Vec<String> =
        answers.iter().map(|(name, answer)| format!("{name}: {}", why(answer))).collect();
    if parts.is_empty() { "no clusters are configured".to_owned() } else { parts.join("; ") }
}

pub(super) fn none_can(answers: &[(Name, ClusterAnswer)]) -> String {
    format!("{}{}", messages::NO_CLUSTER, each(answers))
}

pub(super) fn waits_for(answers: &[(Name, ClusterAnswer)]) -> String {
    format!("{}{}", messages::WAITS_FOR_CLUSTER, each(answers))
}
