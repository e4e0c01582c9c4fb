//! Pods that do not become ready, and the agent's examinations of them.

use std::collections::BTreeSet;

use switchyard_flags::simulate::Mutation;
use switchyard_ledger::{ObjectKind, WatchEvent};

use crate::state::{Event, World};
use crate::time::Ms;

/// The pause between two examinations.
const PAUSE: Ms = 5_000;

impl World {
    /// The fault ends: all pods become ready, and their jobs go on.
    pub(crate) fn pods_get_ready(&mut self, cluster: usize) {
        self.clusters[cluster].unready -= 1;
        if self.clusters[cluster].unready > 0 {
            return;
        }
        let now = self.now;
        let mut ready = Vec::new();
        for (object, pods) in &mut self.clusters[cluster].pods {
            if pods.ready.is_none() {
                pods.ready = Some(now);
                ready.push((object.clone(), pods.workload));
            }
        }
        for (object, workload) in ready {
            let stored = self.clusters[cluster].objects.get(&(ObjectKind::Job, workload));
            if let Some(run) = stored.map(|stored| stored.run) {
                let runs = self.plan.workloads[workload].runs;
                self.after(runs, Event::JobEnds { cluster, workload, object, run });
            }
        }
        self.examine_soon(cluster);
    }

    pub(crate) fn examine_soon(&mut self, cluster: usize) {
        let boot = self.clusters[cluster].agent.boot;
        let delay = self.dice(1 + cluster).between(500, 3_000);
        self.after(delay, Event::Examine { cluster, boot });
    }

    /// The agent reads the pods of all jobs, and reports those without a ready pod.
    pub(crate) fn examine(&mut self, cluster: usize, boot: u32) {
        let it = &self.clusters[cluster];
        if !it.agent.up || it.agent.boot != boot {
            return;
        }
        if it.outage > 0 {
            return self.after(PAUSE, Event::Examine { cluster, boot });
        }
        let blind = self.mutated(Mutation::UnreadyForEver);
        let jobs: Vec<(String, usize, u64, bool)> = it
            .pods
            .iter()
            .map(|(object, pods)| {
                (object.clone(), pods.workload, pods.attempt, pods.ready.is_none() || blind)
            })
            .collect();
        let mut unready = BTreeSet::new();
        for (object, workload, attempt, is_unready) in jobs {
            let Some(job) = self.clusters[cluster].job(workload) else { continue };
            if is_unready && job.meta.target.uid == object {
                unready.insert((job.meta.workload_uid.clone(), attempt));
            }
        }
        let reported =
            std::mem::replace(&mut self.clusters[cluster].agent.without_ready_pod, unready.clone());
        let changes = unready.symmetric_difference(&reported).cloned().collect::<Vec<_>>();
        for (workload_uid, attempt) in changes {
            let no_ready_pod = unready.contains(&(workload_uid.clone(), attempt));
            let troubles = Vec::new();
            let seen = WatchEvent::Troubles { workload_uid, attempt, troubles, no_ready_pod };
            self.agent_sees(cluster, boot, seen);
        }
        if !unready.is_empty() {
            self.after(PAUSE, Event::Examine { cluster, boot });
        }
    }
}
