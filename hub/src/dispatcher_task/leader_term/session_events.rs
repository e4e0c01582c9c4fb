//! What clusters say in their sessions.

use std::sync::Arc;

use switchyard_api::v1beta2::Workload;
use switchyard_dispatcher::{DispatchEvent, Name, Uid, capacity};
use switchyard_proto::v1 as proto;

use super::TermState;
use crate::server::SessionEvent;

/// Orphans that a cluster's status shows: its schema's limit.
const ORPHANS: usize = 64;

impl TermState {
    /// A session has something to say; only the newest of each cluster counts.
    pub(in crate::dispatcher_task) fn session(&mut self, event: SessionEvent) {
        let cluster = event.cluster().to_owned();
        self.take_in(event);
        // Before it has told all that it has, and once it is away, what was last known stays.
        if self.dispatcher.has_reported_inventory(&cluster) {
            self.reports.set_orphans(&cluster, self.dispatcher.orphans_of(&cluster, ORPHANS));
        }
        self.hands
            .metrics
            .sessions
            .set(i64::try_from(self.live.clusters().count()).unwrap_or(i64::MAX));
        self.start_slots();
    }

    fn take_in(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Up(info) => {
                let events = self.live.open(&info.cluster.as_str().into(), info.live.session_id);
                if !events.is_empty() {
                    self.reports.bell.notify_one();
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
                    self.told.prune_cluster(&self.dispatcher, &name);
                    self.fell_quiet(&name);
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
                    self.told.prune_cluster(&self.dispatcher, &name);
                    self.was_heard(&name);
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
                        self.was_heard(&name);
                    } else {
                        self.fell_quiet(&name);
                    }
                }
            }
            SessionEvent::Capacity { cluster, session_id, capacity, weight: _weight } => {
                if self.live.is_live(&cluster, session_id) {
                    let queues = capacity::from_wire(capacity.clone());
                    self.reports.set(&cluster, capacity);
                    self.apply(DispatchEvent::CapacityReported {
                        cluster: cluster.as_str().into(),
                        queues,
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
        let observation = self.told.record(&self.dispatcher, cluster, observation);
        if self.told.take_unreadable_status()
            && let Some(left_out) = self.may_log(cluster)
        {
            tracing::warn!(%cluster, left_out, "an agent sent a job status that is no JSON object, ignored");
        }
        self.apply(DispatchEvent::Observed { cluster: cluster.clone(), observation });
        if !known {
            self.told.prune(&self.dispatcher, cluster, &uid);
        }
        self.review_trouble(&uid);
    }

    /// A cluster speaks of a workload that the dispatcher has nothing to do with: is it one of ours?
    fn learn(&mut self, observation: &proto::Observation, uid: &Uid) {
        let stores = &self.ctx.stores.workloads;
        let is_it = |workload: &Arc<Workload>| workload.metadata.uid.as_deref() == Some(uid);
        let named = stores.get(&observation.namespace, &observation.name).filter(is_it);
        // Its cluster may give it any name, or none.
        let found =
            named.or_else(|| self.living.get(uid).and_then(|key| stores.by_key(key)).filter(is_it));
        if let Some(workload) = found {
            let facts = self.facts(&workload);
            self.place(&facts);
            self.dispatcher.track(facts);
        }
    }
}
