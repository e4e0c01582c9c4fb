//! Cache of reported job statuses, ends and troubles until the hub has written them.
//!
//! [`ObservationCache::record`] turns a report of the agent protocol into an [`Observation`] for the
//! dispatcher and keeps the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use switchyard_proto::v1 as proto;
use switchyard_syntax::flavor_pins::FlavorPins;

use super::{
    CopyOrigin, Dispatcher, Name, Observation, PreemptionGate, Reason, State, Uid, WorkloadFacts,
    is_terminal,
};

/// The last report of a workload, as far as the hub writes it.
#[derive(Debug, Clone, Default)]
pub struct LastObservation {
    pub attempt: u64,
    pub job_status: Option<Arc<Value>>,
    /// Reason of the job's end.
    pub reason: Option<Reason>,
    /// Why the job does not start, within the bounds of the protocol.
    pub troubles: Vec<proto::JobTrouble>,
}

/// The last observations, by cluster and the hub's uid.
#[derive(Debug, Default)]
pub struct ObservationCache {
    last: BTreeMap<(Name, Uid), LastObservation>,
    /// Also keep observations of unknown workloads: after a store loss they may be adopted.
    forgetful: bool,
    /// A job status could not be parsed.
    unreadable: bool,
}

impl ObservationCache {
    /// `forgetful`: a store was lost, so also keep observations of unknown workloads.
    pub fn new(forgetful: bool) -> Self {
        Self { last: BTreeMap::new(), forgetful, unreadable: false }
    }

    /// Records a report and converts it. Call [`Self::prune`] after the dispatcher has applied it.
    pub fn record(
        &mut self,
        dispatcher: &Dispatcher,
        cluster: &Name,
        report: &proto::Observation,
    ) -> Observation {
        let cluster_uid = Uid::from(report.workload_uid.as_str());
        let uid = dispatcher.hub_uid(&cluster_uid);
        let reasons = report.reasons.clone();
        // After an adoption, reports under the adopter's own uid concern an earlier offer.
        let wanted =
            (self.forgetful || dispatcher.knows(&uid)) && !dispatcher.is_aliased(&cluster_uid);
        let job_status = wanted && self.remember(cluster, &uid, report, &reasons);
        Observation {
            uid: cluster_uid,
            namespace: report.namespace.as_str().into(),
            name: report.name.as_str().into(),
            attempt: report.attempt,
            state: report.state(),
            reasons,
            job_status,
            no_ready_pod: report.no_ready_pod,
            origin: report.origin.as_ref().map(CopyOrigin::from),
            gate: report.preemption_gate.as_ref().map(PreemptionGate::from),
            flavors: wanted.then(|| admitted_flavors(&report.workload_status)).flatten(),
        }
    }

    /// Whether a job status could not be parsed since the last call.
    pub fn take_unreadable_status(&mut self) -> bool {
        std::mem::take(&mut self.unreadable)
    }

    /// Returns whether the job's status changed.
    fn remember(
        &mut self,
        cluster: &Name,
        uid: &Uid,
        observation: &proto::Observation,
        reasons: &[Reason],
    ) -> bool {
        let key = (cluster.clone(), uid.clone());
        if observation.state() == State::Gone {
            self.last.remove(&key);
            return false;
        }
        let report = self.last.entry(key).or_default();
        if report.attempt != observation.attempt {
            *report =
                LastObservation { attempt: observation.attempt, ..LastObservation::default() };
        }
        report.troubles.clone_from(&observation.troubles);
        if is_terminal(observation.state()) {
            report.reason = reasons.first().cloned();
        }
        let status = parse_status(&observation.job_status);
        self.unreadable |= status.is_none() && !observation.job_status.is_empty();
        let news = status.is_some();
        if let Some(status) = status {
            report.job_status = Some(Arc::new(status));
        }
        news
    }

    /// Forgets the observation if it will never be written.
    pub fn prune(&mut self, dispatcher: &Dispatcher, cluster: &Name, uid: &Uid) {
        if !is_of_use(dispatcher, cluster, uid) {
            self.forget(cluster, uid);
        }
    }

    /// Forgets the observations of a cluster that will never be written.
    pub fn prune_cluster(&mut self, dispatcher: &Dispatcher, cluster: &Name) {
        let from = (cluster.clone(), Uid::from(""));
        let there = self.last.range(from..).map(|(key, _)| key).take_while(|(at, _)| at == cluster);
        let useless: Vec<_> =
            there.filter(|(at, uid)| !is_of_use(dispatcher, at, uid)).cloned().collect();
        for key in useless {
            self.last.remove(&key);
        }
    }

    pub fn forget(&mut self, cluster: &Name, uid: &Uid) {
        self.last.remove(&(cluster.clone(), uid.clone()));
    }

    /// Moves the observations of an adopted copy to the workload that adopted it, unless that one
    /// has newer ones.
    pub fn move_to_adopter(&mut self, facts: &WorkloadFacts) {
        let (Some(cluster_uid), Some(cluster)) = (&facts.state.cluster_uid, &facts.state.cluster)
        else {
            return;
        };
        for before in facts.replaces.iter().chain([cluster_uid]) {
            if let Some(report) = self.last.remove(&(cluster.clone(), before.clone())) {
                self.last.entry((cluster.clone(), facts.uid.clone())).or_insert(report);
            }
        }
    }

    /// The last observation of an attempt.
    pub fn get(&self, cluster: &Name, uid: &Uid, attempt: u64) -> Option<&LastObservation> {
        self.last.get(&(cluster.clone(), uid.clone())).filter(|report| report.attempt == attempt)
    }
}

fn is_of_use(dispatcher: &Dispatcher, cluster: &Name, uid: &Uid) -> bool {
    dispatcher.knows(uid) || dispatcher.has_orphan(cluster, uid)
}

/// The flavors by pod set and resource in the admission of a Workload's status. A cluster may send
/// anything: what cannot be flavors is none.
fn admitted_flavors(status: &[u8]) -> Option<Arc<FlavorPins>> {
    #[derive(Deserialize)]
    struct Status {
        admission: Admission,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Admission {
        pod_set_assignments: Vec<Assignment>,
    }
    #[derive(Deserialize)]
    struct Assignment {
        name: String,
        #[serde(default)]
        flavors: BTreeMap<String, String>,
    }
    if status.is_empty() {
        return None;
    }
    let status: Status = serde_json::from_slice(status).ok()?;
    let rows = status.admission.pod_set_assignments.iter().flat_map(|of| {
        of.flavors.iter().map(|(resource, flavor)| (&*of.name, &**resource, &**flavor))
    });
    FlavorPins::from_rows(rows).ok().map(Arc::new)
}

/// None if the agent sent no JSON object.
fn parse_status(bytes: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Value>(bytes).ok().filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::super::DispatcherSettings;
    use super::*;

    #[test]
    fn copy_observation_moves_to_adopter_unless_newer_exists() {
        let (west, old, new) = (Name::from("west"), Uid::from("w"), Uid::from("x"));
        let taken = || WorkloadFacts {
            replaces: Some(old.clone()),
            ..super::super::tests::committed("x", "west", 1)
                .with(|it| it.cluster_uid = Some(old.clone()))
        };
        let report = |cache: &ObservationCache| {
            cache.get(&west, &new, 1).and_then(|report| report.job_status.clone())
        };
        let status = |active: i32| Some(Arc::new(serde_json::json!({"active": active})));
        let tell = |cache: &mut ObservationCache, uid: &Uid, active: i32| {
            let report = LastObservation {
                attempt: 1,
                job_status: status(active),
                ..LastObservation::default()
            };
            cache.last.insert((west.clone(), uid.clone()), report);
        };
        let mut cache = ObservationCache::new(false);
        tell(&mut cache, &old, 1);
        cache.move_to_adopter(&taken());
        assert_eq!(report(&cache), status(1));
        tell(&mut cache, &new, 2);
        tell(&mut cache, &old, 1);
        cache.move_to_adopter(&taken());
        assert_eq!(report(&cache), status(2));
        assert!(cache.get(&west, &old, 1).is_none());
    }

    #[test]
    fn unknown_workload_is_cached_only_after_store_loss() {
        let report = proto::Observation {
            workload_uid: "u".into(),
            attempt: 1,
            state: State::Running.into(),
            job_status: br#"{"active": 1}"#.to_vec(),
            ..proto::Observation::default()
        };
        let (west, uid) = (Name::from("west"), Uid::from("u"));
        for forgetful in [false, true] {
            let dispatcher = Dispatcher::new(DispatcherSettings::default(), 0);
            let mut cache = ObservationCache::new(forgetful);
            assert_eq!(cache.record(&dispatcher, &west, &report).job_status, forgetful);
            assert_eq!(cache.get(&west, &uid, 1).is_some(), forgetful);
            assert!(cache.get(&west, &uid, 2).is_none(), "of another attempt nothing was told");
            cache.prune(&dispatcher, &west, &uid);
            assert!(cache.get(&west, &uid, 1).is_none(), "the dispatcher has no use for it");
        }
    }
}
