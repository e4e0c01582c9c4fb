//! Takes in what clusters report in their sessions.

use std::sync::Arc;

use switchyard_api::v1beta2::Workload;
use switchyard_dispatcher::{DispatchEvent, Name, Uid, capacity};
use switchyard_proto::v1 as proto;

use super::LeaderTerm;
use crate::server::SessionEvent;

/// The CRD's limit of orphans in a cluster's status.
const ORPHANS: usize = 64;

impl LeaderTerm {
    /// Takes in a session's event. Only the newest session of each cluster counts.
    pub(in crate::dispatcher_task) fn session(&mut self, event: SessionEvent) {
        let cluster = event.cluster().to_owned();
        self.session_event(event);
        // Before the cluster's inventory, and while it is disconnected, the last known orphans
        // stay.
        if self.dispatcher.has_reported_inventory(&cluster) {
            self.reports.set_orphans(&cluster, self.dispatcher.orphans_of(&cluster, ORPHANS));
        }
        self.writer
            .metrics
            .sessions
            .set(i64::try_from(self.live.clusters().count()).unwrap_or(i64::MAX));
        self.start_due_writes();
    }

    fn session_event(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Up(info) => {
                let events = self.live.open(&info.cluster.as_str().into(), info.live.session_id);
                if !events.is_empty() {
                    self.reports.changed.notify_one();
                    if let Some(uid) = &info.live.worker {
                        let name = info.cluster.as_str().into();
                        self.apply(DispatchEvent::ClusterIdentified {
                            name,
                            uid: uid.as_str().into(),
                        });
                    }
                }
                for event in events {
                    self.apply(event);
                }
            }
            SessionEvent::Down { cluster, session_id, .. } => {
                let name = Name::from(cluster.as_str());
                if let Some(event) = self.live.close(&name, session_id) {
                    let exists = self.ctx.stores.multi_kueue_clusters.get("", &cluster).is_some();
                    self.reports.left(&cluster, exists);
                    self.apply(event);
                    self.observations.prune_cluster(&self.dispatcher, &name);
                    self.mark_silent(&name);
                }
            }
            SessionEvent::Observed {
                cluster,
                session_id,
                observations,
                inventory,
                weight: _weight,
            } => {
                if !self.live.is_live(&cluster, session_id) {
                    return;
                }
                let name = Name::from(cluster.as_str());
                for observation in &observations {
                    self.observed(&name, observation);
                }
                if let Some(uids) = inventory {
                    self.apply(DispatchEvent::InventoryComplete { cluster: name.clone(), uids });
                    self.observations.prune_cluster(&self.dispatcher, &name);
                    self.mark_contact(&name);
                }
            }
            SessionEvent::Able { cluster, session_id, able } => {
                if self.live.is_live(&cluster, session_id) {
                    if able {
                        tracing::info!(cluster, "the agent reaches its own API server again");
                    } else {
                        tracing::warn!(cluster, "the agent does not reach its own API server");
                    }
                    let name = Name::from(cluster.as_str());
                    self.apply(DispatchEvent::AgentReadiness { name: name.clone(), ready: able });
                    if able {
                        self.mark_contact(&name);
                    } else {
                        self.mark_silent(&name);
                    }
                }
            }
            SessionEvent::Capacity { cluster, session_id, capacity, weight: _weight } => {
                if self.live.is_live(&cluster, session_id) {
                    let report = capacity::from_wire(capacity.clone());
                    self.reports.set(&cluster, capacity);
                    self.apply(DispatchEvent::CapacityReported {
                        cluster: cluster.as_str().into(),
                        report,
                    });
                }
            }
        }
    }

    pub(super) fn observed(&mut self, cluster: &Name, observation: &proto::Observation) {
        let theirs = Uid::from(observation.workload_uid.as_str());
        let uid = self.dispatcher.hub_uid(&theirs);
        if !self.dispatcher.knows(&uid) {
            self.learn(observation, &uid);
        }
        let known = self.dispatcher.knows(&uid);
        let observation = self.observations.record(&self.dispatcher, cluster, observation);
        if self.observations.take_unreadable_status()
            && let Some(left_out) = self.may_log(cluster)
        {
            tracing::warn!(%cluster, left_out, "an agent sent a job status that is no JSON object, ignored");
        }
        self.apply(DispatchEvent::Observed { cluster: cluster.clone(), observation });
        if !known {
            self.observations.prune(&self.dispatcher, cluster, &uid);
        }
        self.review_trouble(&uid);
    }

    /// Looks for the Workload of an observation that the dispatcher does not know.
    fn learn(&mut self, observation: &proto::Observation, uid: &Uid) {
        let stores = &self.ctx.stores.workloads;
        let is_it = |workload: &Arc<Workload>| workload.metadata.uid.as_deref() == Some(uid);
        let named = stores.get(&observation.namespace, &observation.name).filter(is_it);
        // The cluster may report any name, or none.
        let found = named
            .or_else(|| self.all_keys.get(uid).and_then(|key| stores.by_key(key)).filter(is_it));
        if let Some(workload) = found {
            let facts = self.facts(&workload);
            self.remember_key(&facts);
            self.dispatcher.track(facts);
        }
    }
}
