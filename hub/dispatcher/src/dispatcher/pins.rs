//! Which flavors a cluster must use for a workload.

use super::Dispatcher;
use super::tracked_workload::TrackedWorkload;
use crate::flavor_pins::ClusterPins;
use crate::{DispatchAction, Name, PinRules, Reason, State, UnixMillis, WorkloadFacts};
use switchyard_syntax::flavor_pins::FlavorPins;

/// Whether a copy may be committed by the flavors of its quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PinCheck {
    Passed,
    Undecided { until: UnixMillis },
    Contradicted,
}

impl Dispatcher {
    /// The flavors that a cluster must use for a workload of this check.
    pub(super) fn cluster_pins<'a>(
        &'a self,
        facts: &'a WorkloadFacts,
        check: Option<&Name>,
        cluster: &'a str,
    ) -> ClusterPins<'a> {
        let rules = check.and_then(|check| self.pin_rules.get(check));
        ClusterPins::new(&facts.charged, rules, cluster)
    }

    /// The flavors that a cluster must use for a workload, under the cluster's names.
    pub fn flavor_pins(&self, uid: &str, cluster: &str) -> FlavorPins {
        let Some(entry) = self.entries.get(uid) else { return FlavorPins::default() };
        self.cluster_pins(&entry.facts, entry.check(), cluster).to_pins()
    }

    /// The flavors of a copy's quota that differ from those that its cluster must use: pod set,
    /// resource, the flavor that it must use, and the one in use.
    pub fn other_flavors(&self, uid: &str, cluster: &str) -> Vec<[String; 4]> {
        self.entries.get(uid).map(|entry| self.others(entry, cluster)).unwrap_or_default()
    }

    fn others(&self, entry: &TrackedWorkload, cluster: &str) -> Vec<[String; 4]> {
        let Some(used) = entry.remotes.get(cluster).and_then(|remote| remote.flavors.as_deref())
        else {
            return Vec::new();
        };
        let pins = self.cluster_pins(&entry.facts, entry.check(), cluster);
        let row = |(pod_set, resource, pin, used): (&str, &str, &str, &str)| {
            [pod_set, resource, pin, used].map(ToOwned::to_owned)
        };
        pins.contradictions(used).map(row).collect()
    }

    /// A copy is withdrawn for the flavors of its quota. The first time, an earlier leader made it. A
    /// cluster that does so again refuses what it must use.
    pub(super) fn note_contradiction(
        &self,
        entry: &mut TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
    ) {
        if !entry.contradicted_by.contains(cluster) {
            return entry.contradicted_by.push(cluster.clone());
        }
        let other = |[pod_set, resource, pin, used]: &[String; 4]| {
            format!("{resource} of pod set {pod_set} has quota in flavor {used}, not in {pin}")
        };
        let others = self.others(entry, cluster);
        let message = others.iter().take(3).map(other).collect::<Vec<_>>().join("; ");
        if let Some(remote) = entry.remotes.get_mut(cluster) {
            remote.reasons = vec![Reason::new("OtherFlavor", message)];
        }
        self.record_refusal(entry, cluster, now);
    }

    /// Whether a cluster that keeps to pins reserved quota in other flavors than it must use now. An
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
            self.clusters.get(cluster).filter(|_| pins.contradictions(used).next().is_some())
        else {
            return PinCheck::Passed;
        };
        let reports_by = known.since.max(self.started) + self.settings.start_grace;
        if known.has_reported && known.capacity.keeps_pins() {
            PinCheck::Contradicted
        } else if !known.has_reported && now < reports_by {
            // The cluster just connected, and says soon whether it keeps to pins.
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
        for entry in self.entries.values_mut().filter(|entry| entry.check() == Some(check)) {
            entry.refusals.forget_all();
            entry.has_new_pins = true;
        }
        self.mark_nominating();
        for cluster in self.checks.get(check).cloned().unwrap_or_default() {
            self.wake_parked(&cluster, now, out);
        }
    }
}
