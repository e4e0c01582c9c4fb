//! The edits of a step, and the reactions of controllers.

use serde_json::Value;
use switchyard_scheduler::{
    CheckPhase, CheckState, Event, LocalQueue, LocalQueueKey, StopPolicy, Time, Workload,
};

use crate::play::Player;
use crate::{objects, topology};

/// Why an evicted workload must not return to its queue yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionHold {
    /// Its ClusterQueue is stopped, until the queue resumes.
    Stopped,
    /// Its LocalQueue is stopped, until the queue resumes.
    LocalQueueStopped,
    /// An admission check evicted it.
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
                self.retry_tree_of(name);
            }
        }
        for (name, priority) in step["priority"].as_object().into_iter().flatten() {
            let priority = priority
                .as_i64()
                .and_then(|p| i32::try_from(p).ok())
                .ok_or("a priority is a number")?;
            self.change(name, |workload| workload.priority = priority);
            if self.reserved.contains_key(name) {
                self.retry_tree_of(name);
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
            if self.eviction_holds.remove(name).is_some() {
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

    /// Creates or replaces an object other than a workload.
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
                // For Kueue's queues, applying an unchanged object is an event; for the engine it
                // is not.
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
        self.eviction_holds.remove(name);
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

    /// In the scenarios' rules, any edit of a workload with quota may admit others, even an edit
    /// without a change. The engine sees no such edit, because no controller would.
    fn retry_tree_of(&mut self, name: &str) {
        if let Some(cluster_queue) = self.queue_of(name) {
            self.apply(Event::RetryAll { cluster_queue });
        }
    }

    fn queue_of(&self, name: &str) -> Option<switchyard_scheduler::Name> {
        self.local_queue_of(name).map(|door| door.cluster_queue.clone())
    }

    fn local_queue_of(&self, name: &str) -> Option<&LocalQueue> {
        let workload = self.workloads.get(name)?;
        let queue =
            LocalQueueKey::new(workload.key.namespace.clone(), workload.queue_name.as_str());
        self.local_queues.get(&queue)
    }

    /// The reaction of workloads to a stop: reserved quota is returned, and admitted workloads are
    /// drained. A queue that resumes queues these workloads again.
    fn stop_or_restart(&mut self, queue: &str, before: StopPolicy, now: StopPolicy) {
        if now == StopPolicy::None {
            if before != StopPolicy::None {
                // Workloads behind a stopped LocalQueue are not found, and return only with the
                // next restart.
                let open = |player: &Self, name: &str| {
                    let door = player
                        .local_queue_of(name)
                        .filter(|door| door.stop_policy == StopPolicy::None);
                    door.is_some_and(|door| &*door.cluster_queue == queue)
                };
                self.requeue_held(EvictionHold::Stopped, open);
            }
        } else if now != before {
            let held =
                self.reserved.iter().filter(|(_, admission)| &*admission.cluster_queue == queue);
            let held = held.map(|(name, _)| name.clone()).collect();
            self.stop(held, now, EvictionHold::Stopped);
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
            self.requeue_held(EvictionHold::LocalQueueStopped, |player, name| {
                player.workloads.get(name).is_some_and(inside)
            });
        } else if now != before {
            let held =
                self.reserved.keys().filter(|name| self.workloads.get(*name).is_some_and(inside));
            let held = held.cloned().collect();
            self.stop(held, now, EvictionHold::LocalQueueStopped);
        }
    }

    fn stop(&mut self, held: Vec<String>, policy: StopPolicy, why: EvictionHold) {
        for name in held {
            let admitted = self.workloads.get(&name).is_some_and(|workload| workload.admitted);
            if !admitted {
                self.remove_quota(&name, |_| {});
            } else if policy == StopPolicy::HoldAndDrain {
                self.evict_and_hold(&name, why, |_| {});
            }
        }
    }

    fn requeue_held(&mut self, from: EvictionHold, of: impl Fn(&Self, &str) -> bool) {
        let gone = self.eviction_holds.iter().filter(|(name, why)| **why == from && of(self, name));
        for name in gone.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.eviction_holds.remove(&name);
            self.change(&name, |workload| workload.requeued = Some(true));
        }
    }

    /// Applies answers of admission checks: all Ready admits, Retry evicts, Rejected deactivates.
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
            self.evict_and_hold(name, EvictionHold::Check, |workload| workload.active = false);
            self.eviction_holds.remove(name);
        } else if has(CheckPhase::Retry) {
            let now: Time = self.now;
            // This eviction moves the workload to the end of the queue.
            self.evict_and_hold(name, EvictionHold::Check, |workload| workload.queue_time = now);
        } else {
            let pending = self.reserved.get(name).is_some_and(topology::is_pending);
            self.change(name, |workload| {
                workload.admitted = all_ready(&workload.checks) && !pending
            });
        }
        Ok(())
    }

    /// Evicts a workload that must not return to its queue yet.
    fn evict_and_hold(
        &mut self,
        name: &str,
        why: EvictionHold,
        change: impl FnOnce(&mut Workload),
    ) {
        self.eviction_holds.insert(name.to_owned(), why);
        self.remove_quota(name, |workload| {
            workload.evicted = true;
            workload.requeued = Some(false);
            change(workload);
        });
    }

    /// Removes the quota of a workload.
    fn remove_quota(&mut self, name: &str, change: impl FnOnce(&mut Workload)) {
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

/// Whether the checks admit the workload.
pub(crate) fn all_ready(checks: &[CheckState]) -> bool {
    checks.iter().all(|check| check.state == CheckPhase::Ready)
}

/// Resets the admission and its checks after the loss of quota.
pub(crate) fn reset(workload: &mut Workload) {
    workload.admitted = false;
    workload.unhealthy_nodes.clear();
    workload.pod_set_updates.clear();
    for check in &mut workload.checks {
        check.state = CheckPhase::Pending;
    }
}
