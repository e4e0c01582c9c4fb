//! The agents' states, and the statuses of MultiKueueClusters that show them: the production
//! registry and status, with slow and failing writes.

use switchyard_dispatcher::DispatchEvent;
use switchyard_flags::simulate::Mutation;
use switchyard_hub::multikueue_cluster::agent_status;
use switchyard_hub::server::KnownCluster;

use crate::names::name;
use crate::state::{Event, World};

/// The longest delay of a status write.
const WRITTEN_WITHIN: u64 = 400;

impl World {
    /// A value that statuses show has changed.
    pub(crate) fn statuses_soon(&mut self, hub: usize) {
        let delay = self.dice(0).between(1, WRITTEN_WITHIN);
        let boot = self.hubs[hub].boot;
        self.after(delay, Event::Statuses { hub, boot });
    }

    /// The leader writes the outdated statuses.
    pub(crate) fn write_statuses(&mut self, hub: usize, boot: u32) {
        let it = &self.hubs[hub];
        if !self.hub_is(hub, boot) || it.cut > 0 || it.term.is_none() {
            return;
        }
        for cluster in 0..self.clusters.len() {
            let (it, key) = (&self.hubs[hub], name(cluster));
            let left =
                it.registry.left_unable(&key).filter(|_| !self.mutated(Mutation::ForgetWord));
            let last = self.api.agents.get(&cluster);
            let wanted = agent_status(it.registry.get(&key).as_ref(), left, last, None);
            if self.clusters[cluster].unstored_unable == Some((hub, boot)) {
                self.clusters[cluster].reported_unable = true;
            }
            if last == wanted.as_ref() {
                continue;
            }
            self.note(|| format!("hub {hub}: status of {key}: {wanted:?}"));
            self.api.agents.extend(wanted.map(|wanted| (cluster, wanted)));
            for hub in 0..self.hubs.len() {
                self.read_statuses(hub);
            }
        }
    }

    /// A replica reads the MultiKueueClusters.
    pub(crate) fn read_statuses(&mut self, hub: usize) {
        let it = &self.hubs[hub];
        if !it.up || it.cut > 0 {
            return;
        }
        for cluster in 0..self.clusters.len() {
            let status = self.api.agents.get(&cluster);
            let session = status.and_then(|status| status.session_id.as_deref()?.parse().ok());
            let rank = (0, name(cluster));
            it.registry
                .update_cluster(&name(cluster), Some(KnownCluster { rank, worker: None, session }));
        }
    }

    /// Tells the dispatcher of a new term which agents cannot act, as far as known.
    pub(super) fn recall_unable(&mut self, hub: usize) {
        let boot = self.hubs[hub].boot;
        for cluster in &mut self.clusters {
            // A report that another process received and did not store is lost.
            cluster.unstored_unable.take_if(|said| *said != (hub, boot));
        }
        if self.mutated(Mutation::ForgetUnable) {
            return;
        }
        let unable = |(_, status): &(&usize, &switchyard_api::v1beta2::AgentStatus)| {
            status.unable_since.is_some()
        };
        let mut unable: Vec<String> =
            self.api.agents.iter().filter(unable).map(|(cluster, _)| name(*cluster)).collect();
        if !self.mutated(Mutation::ForgetWord) {
            unable.extend(self.hubs[hub].registry.all_unable());
        }
        let now = self.now;
        for name in unable {
            if let Some(term) = &mut self.hubs[hub].term {
                term.unable.entry(crate::names::number(&name)).or_insert(now);
            }
            self.dispatch(hub, DispatchEvent::AgentWasNotReady { name: name.as_str().into() });
        }
    }

    /// An agent reports whether it can act. Returns whether that is news.
    pub(super) fn says_able(
        &mut self,
        hub: usize,
        cluster: usize,
        session: u64,
        able: bool,
    ) -> bool {
        let news = self.hubs[hub].registry.set_able(&name(cluster), session, able);
        if news {
            let boot = self.hubs[hub].boot;
            self.clusters[cluster].unstored_unable = (!able).then_some((hub, boot));
            self.statuses_soon(hub);
        }
        news
    }

    /// The dispatcher counts the agent as able to act.
    pub(super) fn counts_as_able(&mut self, cluster: usize) {
        // A new session also replaces the reports of earlier ones.
        (self.clusters[cluster].unstored_unable, self.clusters[cluster].reported_unable) =
            (None, false);
    }

    /// A crashed process loses the reports that it has not stored.
    pub(super) fn forgets_words(&mut self, hub: usize) {
        for cluster in &mut self.clusters {
            cluster.unstored_unable.take_if(|(of, _)| *of == hub);
        }
    }
}
