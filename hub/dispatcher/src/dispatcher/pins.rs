//! Which flavors a cluster must use for a workload.

use std::collections::BTreeMap;

use super::Dispatcher;
use super::cluster_answers::none_can;
use super::tracked_workload::TrackedWorkload;
use crate::capacity::Fit;
use crate::flavor_pins::{ClusterPins, FlavorMismatch};
use crate::{DispatchAction, Name, PinRules, Reason, State, UnixMillis, WorkloadFacts};
use switchyard_syntax::flavor_pins::FlavorPins;

/// Whether a copy may be committed by the flavors of its quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PinCheck {
    Passed,
    Undecided { until: UnixMillis },
    Mismatch,
}

/// The flavors that a cluster must use for a workload of this check.
pub(super) fn pins_by<'a>(
    rules: &'a BTreeMap<Name, PinRules>,
    facts: &'a WorkloadFacts,
    check: Option<&Name>,
    cluster: &'a str,
) -> ClusterPins<'a> {
    ClusterPins::new(&facts.charged, check.and_then(|check| rules.get(check)), cluster)
}

impl Dispatcher {
    /// The flavors that a cluster must use for a workload of this check.
    pub(super) fn cluster_pins<'a>(
        &'a self,
        facts: &'a WorkloadFacts,
        check: Option<&Name>,
        cluster: &'a str,
    ) -> ClusterPins<'a> {
        pins_by(&self.pin_rules, facts, check, cluster)
    }

    /// The flavors that a cluster must use for a workload, under the cluster's names.
    pub fn flavor_pins(&self, uid: &str, cluster: &str) -> FlavorPins {
        let Some(entry) = self.entries.get(uid) else { return FlavorPins::default() };
        self.cluster_pins(&entry.facts, entry.check(), cluster).to_pins()
    }

    /// The flavors of a copy's quota that differ from those that its cluster must use.
    pub fn flavor_mismatches(&self, uid: &str, cluster: &str) -> Vec<FlavorMismatch> {
        self.entries.get(uid).map(|entry| self.mismatches(entry, cluster)).unwrap_or_default()
    }

    fn mismatches(&self, entry: &TrackedWorkload, cluster: &str) -> Vec<FlavorMismatch> {
        let Some(used) = entry.remotes.get(cluster).and_then(|remote| remote.flavors.as_deref())
        else {
            return Vec::new();
        };
        self.cluster_pins(&entry.facts, entry.check(), cluster).mismatches(used).collect()
    }

    /// Why a cluster can never take the workload in the flavors that it must use. None if it may, or
    /// has not reported its capacity.
    fn never_fits(&self, entry: &TrackedWorkload, cluster: &str) -> Option<Vec<Reason>> {
        let facts = &entry.facts;
        let known = self.clusters.get(cluster).filter(|it| it.has_reported)?;
        let pins = self.cluster_pins(facts, entry.check(), cluster);
        match known.capacity.fit(&facts.namespace, &facts.queue, &facts.pod_sets, pins) {
            Fit::Never(reasons) => Some(reasons),
            Fit::Now(_) | Fit::Later { .. } => None,
        }
    }

    /// Why the charged flavors alone keep the workload from a cluster that enforces pins.
    pub(super) fn flavors_unusable(
        &self,
        entry: &TrackedWorkload,
        cluster: &str,
    ) -> Option<Vec<Reason>> {
        let facts = &entry.facts;
        let reasons = self.never_fits(entry, cluster)?;
        let capacity = &self.clusters.get(cluster)?.capacity;
        let unpinned = ClusterPins::new(&facts.charged, None, cluster);
        let fit = capacity.fit(&facts.namespace, &facts.queue, &facts.pod_sets, unpinned);
        (!matches!(fit, Fit::Never(_))).then_some(reasons)
    }

    /// Whether the charged flavors alone keep the workload from one of its clusters.
    pub(super) fn depends_on_flavors(&self, entry: &TrackedWorkload) -> bool {
        let clusters = self.allowed_clusters(entry);
        clusters.iter().any(|cluster| self.flavors_unusable(entry, cluster).is_some())
    }

    /// With Kueue's dispatchers, a workload waits on its clusters whatever they report. If each has
    /// refused it or can never take it in the charged flavors, and one could in others, it would hold
    /// its quota for ever: returns the reservation.
    pub(super) fn return_if_flavors_unusable(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> bool {
        if !self.settings.mode.keeps_copies() {
            return false;
        }
        let reachable = self.within_reach(entry, now);
        let may_take = |cluster: &Name| {
            self.refusal(entry, cluster, now).is_none() && self.never_fits(entry, cluster).is_none()
        };
        if reachable.iter().any(may_take)
            || !reachable.iter().any(|cluster| self.flavors_unusable(entry, cluster).is_some())
        {
            return false;
        }
        let message = none_can(&self.answers(entry, now));
        self.return_reservation(entry, message, now, out);
        true
    }

    /// A copy is withdrawn for the flavors of its quota. The first time, an earlier leader made it. A
    /// cluster that reserves in other flavors again counts as refusing.
    pub(super) fn record_mismatch(
        &self,
        entry: &mut TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
    ) {
        if !entry.mismatched_on.contains(cluster) {
            return entry.mismatched_on.push(cluster.clone());
        }
        let text = |it: &FlavorMismatch| {
            let FlavorMismatch { pod_set, resource, pin, used } = it;
            format!("{resource} of pod set {pod_set} has quota in flavor {used}, not in {pin}")
        };
        let mismatches = self.mismatches(entry, cluster);
        let message = mismatches.iter().take(3).map(text).collect::<Vec<_>>().join("; ");
        if let Some(remote) = entry.remotes.get_mut(cluster) {
            remote.reasons = vec![Reason::new("OtherFlavor", message)];
        }
        self.record_refusal(entry, cluster, now);
    }

    /// Whether a cluster that enforces pins reserved quota in other flavors than it must use now. An
    /// earlier leader made the copy for another charge, or under other rules.
    pub(super) fn pin_check(
        &self,
        entry: &TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
    ) -> PinCheck {
        let remote = entry.remotes.get(cluster);
        let used = remote.filter(|remote| remote.state == Some(State::Reserved));
        let Some(used) = used.and_then(|remote| remote.flavors.as_deref()) else {
            return PinCheck::Passed;
        };
        let pins = self.cluster_pins(&entry.facts, entry.check(), cluster);
        let Some(known) =
            self.clusters.get(cluster).filter(|_| pins.mismatches(used).next().is_some())
        else {
            return PinCheck::Passed;
        };
        let reports_by = known.since.max(self.started) + self.settings.start_grace;
        if known.has_reported && known.capacity.enforces_pins() {
            PinCheck::Mismatch
        } else if !known.has_reported && now < reports_by {
            // The cluster just connected, and says soon whether it enforces pins.
            PinCheck::Undecided { until: reports_by }
        } else {
            PinCheck::Passed
        }
    }

    /// Takes the rules of a check. Open offers were made under the old ones: they are withdrawn,
    /// and refusals count no more.
    pub(super) fn configure_pins(
        &mut self,
        check: &Name,
        rules: PinRules,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let before = self.pin_rules.insert(check.clone(), rules);
        if before.is_none() || before.as_ref() == self.pin_rules.get(check) {
            return;
        }
        for (uid, entry) in &mut self.entries {
            // A returned reservation names no check any more: only the parked workload does. While
            // the workload waits for quota again, nothing names one.
            let parked = || self.parked.get(uid)?.check.as_ref();
            if entry.check().or_else(parked).is_none_or(|of| of == check) {
                entry.refusals.forget_all_but_stuck();
                entry.mismatched_on.clear();
                entry.has_new_pins = true;
            }
        }
        self.mark_nominating();
        for cluster in self.checks.get(check).cloned().unwrap_or_default() {
            self.wake_parked(&cluster, now, out);
        }
    }
}
