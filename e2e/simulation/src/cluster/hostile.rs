//! Attackers, within their rights: tenants of a worker, and an agent.

use switchyard_ledger::{Object, ObjectKind};
use switchyard_proto::v1::{AgentMessage, agent_message};

use super::meta_mut;
use crate::names::FORGED;
use crate::state::{Event, World};
use crate::time::Ms;

/// Forged objects per attack.
const FORGERIES: usize = 3;

impl World {
    /// Creates objects with the hub's marks, in the watched range, of workloads that the hub does
    /// not know: one waits, one runs, one has ended.
    pub(crate) fn forge(&mut self, cluster: usize) {
        for index in FORGED..FORGED + FORGERIES {
            if self.clusters[cluster].objects.contains_key(&(ObjectKind::Job, index)) {
                continue;
            }
            let attempt = self.dice(1 + cluster).between(1, 9);
            self.create_object(
                cluster,
                ObjectKind::Job,
                index,
                &format!("f{index}"),
                attempt,
                false,
            );
            if let Some(job) = self.clusters[cluster].job(index) {
                (job.suspended, job.active) = (index == FORGED, index == FORGED + 1);
                job.end = (index == FORGED + 2).then(|| switchyard_ledger::JobEnd {
                    success: true,
                    reason: "Succeeded".to_owned(),
                    message: "forged".to_owned(),
                });
            }
            self.touch(cluster, ObjectKind::Job, index);
        }
    }

    /// Removes the remaining forged objects, finalizers included.
    pub(crate) fn remove_forged(&mut self, cluster: usize) {
        for index in FORGED..FORGED + FORGERIES {
            let Some(stored) = self.clusters[cluster].objects.get_mut(&(ObjectKind::Job, index))
            else {
                continue;
            };
            if let Object::Job(job) = &mut stored.object {
                job.active = false;
            }
            let meta = meta_mut(&mut stored.object);
            (meta.deleting, meta.finalizer_index) = (true, None);
            self.touch(cluster, ObjectKind::Job, index);
        }
    }

    /// The agent repeats its observations of this session, with changing capacity.
    pub(crate) fn flood(&mut self, cluster: usize, until: Ms) {
        if self.now >= until {
            return;
        }
        let delay = self.dice(1 + cluster).between(20, 500);
        self.after(delay, Event::Flood { cluster, until });
        let open = self.network.links.iter().find(|(_, link)| {
            link.cluster == cluster && link.hub_open && link.agent_open && link.session.is_some()
        });
        let Some((id, hub)) = open.map(|(id, link)| (*id, link.hub)) else { return };
        let same =
            self.network.links.get(&id).is_some_and(|link| link.hub_boot == self.hubs[hub].boot);
        if !same
            || !self.hubs[hub].up
            || self.hubs[hub].frozen.is_some()
            || self.network.is_cut(cluster, true)
        {
            return;
        }
        self.reached("fault: flood");
        let again: Vec<AgentMessage> =
            self.network.old_up.get(&cluster).into_iter().flatten().cloned().collect();
        let is_hello = |message: &AgentMessage| {
            matches!(message.kind, Some(agent_message::Kind::Hello(_)) | None)
        };
        for message in
            again.into_iter().filter(|message| message.session_id != 0 && !is_hello(message))
        {
            self.hub_handles(id, hub, cluster, message);
        }
        let Some(session_id) = self
            .network
            .links
            .get(&id)
            .and_then(|link| link.session.as_ref())
            .map(|session| session.id)
        else {
            return;
        };
        let mut capacity = self.capacity(cluster);
        let most = self.clusters[cluster].capacity;
        let used = i64::try_from(self.dice(1 + cluster).between(0, most)).unwrap_or(0);
        for flavor in capacity.queues.iter_mut().flat_map(|queue| &mut queue.flavors) {
            (flavor.used, flavor.available) = (used, flavor.nominal - used);
        }
        let kind = Some(agent_message::Kind::Capacity(capacity));
        self.hub_handles(id, hub, cluster, AgentMessage { session_id, kind });
        let boot = self.clusters[cluster].agent.boot;
        if self.now + delay >= until {
            // The last message is true.
            self.after(delay, Event::CapacityChanged { cluster, boot });
        }
    }
}
