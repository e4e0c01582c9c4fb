//! The edits of a step, and what controllers do about them.

use serde_json::Value;
use switchyard_scheduler::{
    CheckPhase, CheckState, Event, LocalQueue, LocalQueueKey, StopPolicy, Time, Workload,
};

use crate::play::Player;
use crate::{objects, topology};

/// Why an evicted workload must not be queued yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Away {
    /// Its ClusterQueue was stopped; the queue's restart ends it.
    Stopped,
    /// Its LocalQueue was stopped, likewise.
    DoorStopped,
    /// An admission check sent it away.
    Check,
}

impl Player {
    /// Steps 2 to 5 of the scenarios' rules.
    pub(crate) fn edit(&mut self, step: &Value) -> Result<(), String> {
        for name in names(&step["finish"]) {
            if self.reserved.contains_key(name) {
                self.delete(name);
            }
        }
        for name in names(&step["delete"]) {
            self.delete(name);
        }
        for (name, pods) in step["reclaim"].as_object().into_iter().flatten() {
            let reclaimable = objects::reclaimable(pods)?;
            if self.reserved.contains_key(name) {
                self.change(name, |workload| workload.reclaimable = reclaimable);
                self.retry_beside(name);
            }
        }
        for (name, priority) in step["priority"].as_object().into_iter().flatten() {
            let priority = priority
                .as_i64()
                .and_then(|p| i32::try_from(p).ok())
                .ok_or("a priority is a number")?;
            self.change(name, |workload| workload.priority = priority);
            if self.reserved.contains_key(name) {
                self.retry_beside(name);
            }
        }
        for object in objects::list(&step["apply"]) {
            self.put(object)?;
        }
        for name in names(&step["remove"]) {
            self.apply(Event::CohortDeleted { name: name.into() });
        }
        self.edit_nodes(step)?;
        for (name, answers) in step["checks"].as_object().into_iter().flatten() {
            if self.reserved.contains_key(name) {
                self.answer(name, answers)?;
            }
        }
        for name in names(&step["requeue"]) {
            if self.away.remove(name).is_some() {
                self.change(name, |workload| workload.requeued = Some(true));
            }
        }
        for object in objects::list(&step["submit"]) {
            let workload = objects::workload(object)?;
            self.workloads.insert(workload.key.to_string(), workload.clone());
            self.apply(Event::Workload(Box::new(workload)));
        }
        self.engine.flush_inadmissible(self.now);
        Ok(())
    }

    /// Creates or replaces an object that is no workload.
    fn put(&mut self, object: &Value) -> Result<(), String> {
        match object["kind"].as_str() {
            Some("Cohort") => self.apply(Event::Cohort(objects::cohort(object)?)),
            Some("ResourceFlavor") => {
                self.note_flavor(object)?;
                self.apply(Event::ResourceFlavor(objects::resource_flavor(object)?));
            }
            Some("Topology") => self.put_topology(object)?,
            Some("AdmissionCheck") => {
                self.apply(Event::AdmissionCheck(objects::admission_check(object)?))
            }
            Some("Namespace") => {
                let labels = objects::labels(&object["metadata"]["labels"])?;
                self.apply(Event::Namespace { name: objects::name(object)?, labels });
            }
            Some("LocalQueue") => self.put_local_queue(objects::local_queue(object)?),
            Some("ClusterQueue") => {
                let queue = objects::cluster_queue(object)?;
                let (cluster_queue, policy) = (queue.name.clone(), queue.stop_policy);
                self.apply(Event::ClusterQueue(queue));
                // Applying what is there already is an event for Kueue's queues, though not for ours.
                self.apply(Event::RetryAll { cluster_queue: cluster_queue.clone() });
                let before = self.cluster_queues.insert(cluster_queue.to_string(), policy);
                self.stop_or_restart(&cluster_queue, before.unwrap_or_default(), policy);
            }
            kind => return Err(format!("cannot apply a {kind:?}")),
        }
        Ok(())
    }

    pub(crate) fn delete(&mut self, name: &str) {
        self.reserved.remove(name);
        self.updates.remove(name);
        self.away.remove(name);
        if let Some(workload) = self.workloads.remove(name) {
            self.apply(Event::WorkloadDeleted { key: workload.key });
        }
    }

    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut Workload)) {
        let Some(workload) = self.workloads.get_mut(name) else { return };
        change(workload);
        let event = Event::Workload(Box::new(workload.clone()));
        self.apply(event);
    }

    /// The scenarios' rules take any edit of a workload with quota for one that may let others in, even one that says
    /// what is there already. The engine does not: no controller would see such an edit.
    fn retry_beside(&mut self, name: &str) {
        if let Some(cluster_queue) = self.queue_of(name) {
            self.apply(Event::RetryAll { cluster_queue });
        }
    }

    fn queue_of(&self, name: &str) -> Option<switchyard_scheduler::Name> {
        self.door_of(name).map(|door| door.cluster_queue.clone())
    }

    fn door_of(&self, name: &str) -> Option<&LocalQueue> {
        let workload = self.workloads.get(name)?;
        let queue =
            LocalQueueKey::new(workload.key.namespace.clone(), workload.queue_name.as_str());
        self.local_queues.get(&queue)
    }

    /// What a stopped queue does to its workloads: quota that is only reserved goes, admitted ones are drained. A
    /// queue that goes on takes those back that its stop sent away.
    fn stop_or_restart(&mut self, queue: &str, before: StopPolicy, now: StopPolicy) {
        if now == StopPolicy::None {
            if before != StopPolicy::None {
                // Those behind a closed door are not found, and come back only with the next restart.
                let open = |player: &Self, name: &str| {
                    let door =
                        player.door_of(name).filter(|door| door.stop_policy == StopPolicy::None);
                    door.is_some_and(|door| &*door.cluster_queue == queue)
                };
                self.call_back(Away::Stopped, open);
            }
        } else if now != before {
            let held =
                self.reserved.iter().filter(|(_, admission)| &*admission.cluster_queue == queue);
            let held = held.map(|(name, _)| name.clone()).collect();
            self.stop(held, now, Away::Stopped);
        }
    }

    fn put_local_queue(&mut self, queue: LocalQueue) {
        let (key, now) = (queue.key.clone(), queue.stop_policy);
        let known = self.local_queues.insert(key.clone(), queue.clone());
        let before = known.map_or(StopPolicy::None, |known| known.stop_policy);
        self.apply(Event::LocalQueue(queue));
        let inside = |workload: &Workload| {
            workload.key.namespace == key.namespace && workload.queue_name.as_str() == &*key.name
        };
        if now == StopPolicy::None {
            self.call_back(Away::DoorStopped, |player, name| {
                player.workloads.get(name).is_some_and(inside)
            });
        } else if now != before {
            let held =
                self.reserved.keys().filter(|name| self.workloads.get(*name).is_some_and(inside));
            let held = held.cloned().collect();
            self.stop(held, now, Away::DoorStopped);
        }
    }

    fn stop(&mut self, held: Vec<String>, policy: StopPolicy, why: Away) {
        for name in held {
            let admitted = self.workloads.get(&name).is_some_and(|workload| workload.admitted);
            if !admitted {
                self.take_back(&name, |_| {});
            } else if policy == StopPolicy::HoldAndDrain {
                self.send_away(&name, why, |_| {});
            }
        }
    }

    fn call_back(&mut self, from: Away, of: impl Fn(&Self, &str) -> bool) {
        let gone = self.away.iter().filter(|(name, why)| **why == from && of(self, name));
        for name in gone.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.away.remove(&name);
            self.change(&name, |workload| workload.requeued = Some(true));
        }
    }

    /// An admission check answered: all Ready admits, Retry evicts, Rejected deactivates.
    fn answer(&mut self, name: &str, answers: &Value) -> Result<(), String> {
        self.note_check(name, answers)?;
        let Some(workload) = self.workloads.get_mut(name) else { return Ok(()) };
        for check in &mut workload.checks {
            let answer = &answers[&*check.name];
            check.state = match answer.as_str().or(answer["state"].as_str()) {
                None => check.state,
                Some("Pending") => CheckPhase::Pending,
                Some("Ready") => CheckPhase::Ready,
                Some("Retry") => CheckPhase::Retry,
                Some("Rejected") => CheckPhase::Rejected,
                Some(other) => return Err(format!("unknown state {other} of a check")),
            };
        }
        self.collect_updates(name);
        let Some(workload) = self.workloads.get(name) else { return Ok(()) };
        let has = |state| workload.checks.iter().any(|check| check.state == state);
        if has(CheckPhase::Rejected) {
            self.send_away(name, Away::Check, |workload| workload.active = false);
            self.away.remove(name);
        } else if has(CheckPhase::Retry) {
            let now: Time = self.now;
            // Such an eviction sends to the end of the queue.
            self.send_away(name, Away::Check, |workload| workload.queue_time = now);
        } else {
            let pending = self.reserved.get(name).is_some_and(topology::is_pending);
            self.change(name, |workload| {
                workload.admitted = all_ready(&workload.checks) && !pending
            });
        }
        Ok(())
    }

    /// Evicts a workload that must not be queued until something ends it.
    fn send_away(&mut self, name: &str, why: Away, change: impl FnOnce(&mut Workload)) {
        self.away.insert(name.to_owned(), why);
        self.take_back(name, |workload| {
            workload.evicted = true;
            workload.requeued = Some(false);
            change(workload);
        });
    }

    /// Takes back the quota of a workload, which the API showed.
    fn take_back(&mut self, name: &str, change: impl FnOnce(&mut Workload)) {
        let Some(admission) = self.reserved.remove(name) else { return };
        self.updates.remove(name);
        self.change(name, |workload| workload.reservation = Some(admission));
        self.change(name, |workload| {
            (workload.reservation, workload.reserved_at) = (None, None);
            reset(workload);
            change(workload);
        });
    }
}

fn names(value: &Value) -> impl Iterator<Item = &str> {
    objects::list(value).iter().filter_map(Value::as_str)
}

/// Whether checks admit.
pub(crate) fn all_ready(checks: &[CheckState]) -> bool {
    checks.iter().all(|check| check.state == CheckPhase::Ready)
}

/// What losing quota does to the admission and its checks.
pub(crate) fn reset(workload: &mut Workload) {
    workload.admitted = false;
    workload.unhealthy_nodes.clear();
    workload.pod_set_updates.clear();
    for check in &mut workload.checks {
        check.state = CheckPhase::Pending;
    }
}
