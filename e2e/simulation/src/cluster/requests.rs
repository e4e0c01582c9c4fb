//! The agent's requests to the worker's API server.

use switchyard_flags::simulate::Mutation;
use switchyard_ledger::{
    Action, Object, ObjectKind, Outcome, Rejection, RemoteWorkload, Target, Verb,
};
use switchyard_proto::timestamp;
use switchyard_proto::v1::PreemptionGate;

use super::meta_mut;
use crate::names::number;
use crate::state::{Event, Stored, World};
use crate::time::LATE;
use crate::violation::Law;

impl World {
    pub(crate) fn request(&mut self, cluster: usize, action: Action) {
        let slow = self.clusters[cluster].slow > 0;
        let longest = self.plan.noise.delay;
        let delay = self.dice(1 + cluster).between(1, if slow { longest * 20 } else { longest });
        let it = &mut self.clusters[cluster];
        it.next_request += 1;
        let id = it.next_request;
        it.agent.asked.insert(id, action.clone());
        it.requests.insert(id, action);
        self.after(delay, Event::Act { cluster, id });
    }

    /// A request arrives, unless its sender crashed and it was lost.
    pub(crate) fn act(&mut self, cluster: usize, id: u64) {
        let noise = self.plan.noise.clone();
        let lost = self.dice(1 + cluster).chance(noise.lost_requests);
        let unanswered = self.dice(1 + cluster).chance(noise.lost_answers);
        let outage = self.clusters[cluster].outage > 0;
        let Some(action) = self.clusters[cluster].requests.remove(&id) else { return };
        let boot = self.clusters[cluster].agent.boot;
        if outage || lost {
            let wait = self.dice(1 + cluster).between(1, 5_000);
            self.was_unable(cluster, self.now + wait);
            let outcome = Outcome::Unknown("no answer".to_owned());
            return self.after(wait, Event::Done { cluster, boot, id, outcome });
        }
        if self.dice(1 + cluster).chance(noise.late) {
            let (wait, more) =
                (self.dice(1 + cluster).between(1, 5_000), self.dice(1 + cluster).between(1, LATE));
            self.was_unable(cluster, self.now + wait + more);
            let outcome = Outcome::Unknown("no answer".to_owned());
            self.after(wait, Event::Done { cluster, boot, id, outcome });
            return self.after(wait + more, Event::ActLate { cluster, boot, action });
        }
        let mut outcome = self.perform(cluster, &action);
        if unanswered && !matches!(action.verb, Verb::Find { .. } | Verb::Reread { .. }) {
            outcome = Outcome::Unknown("the answer was lost".to_owned());
        }
        let delay = self.dice(1 + cluster).between(1, noise.delay);
        self.after(delay, Event::Done { cluster, boot, id, outcome });
    }

    /// Performs a request after the agent's timeout. Never performed if the agent crashed since.
    pub(crate) fn act_late(&mut self, cluster: usize, boot: u32, action: &Action) {
        if self.clusters[cluster].outage == 0 && self.clusters[cluster].agent.boot == boot {
            self.note(|| format!("c{cluster}: late, {}", action.verb.name()));
            self.perform(cluster, action);
        }
    }

    /// After a crash of the agent, its requests happen at once or never.
    pub(crate) fn drop_requests(&mut self, cluster: usize) {
        for (_, action) in std::mem::take(&mut self.clusters[cluster].requests) {
            if self.clusters[cluster].outage == 0 && self.dice(1 + cluster).chance(500) {
                self.perform(cluster, &action);
            }
        }
    }

    fn perform(&mut self, cluster: usize, action: &Action) -> Outcome {
        let kind = action.kind;
        self.note(|| {
            format!(
                "c{cluster}: agent asks: {} {kind:?} of {}",
                action.verb.name(),
                action.workload_uid
            )
        });
        match &action.verb {
            Verb::Create { name, attempt, gated, pins, .. } => {
                let fresh = !self.clusters[cluster].objects.contains_key(&(kind, number(name)));
                let made = self.create(cluster, kind, number(name), &action.workload_uid, *attempt);
                let stored = self.clusters[cluster].objects.get_mut(&(kind, number(name)));
                if let Some(stored) = stored.filter(|_| fresh) {
                    stored.pin = pins.first().map(|pin| pin.flavor.clone());
                }
                match self.clusters[cluster].workload(number(name)).filter(|_| fresh && *gated) {
                    Some(workload) if kind == ObjectKind::Workload => {
                        workload.gate = Some(PreemptionGate::default());
                        self.current_version(cluster, kind, number(name))
                    }
                    _ => made,
                }
            }
            Verb::Find { name, .. } => match self.clusters[cluster]
                .objects
                .get(&(kind, number(name)))
            {
                Some(it) if !it.foreign && it.object.meta().workload_uid == action.workload_uid => {
                    Outcome::Object(Box::new(it.object.clone()))
                }
                _ => Outcome::Gone,
            },
            Verb::Delete { target, foreground } => {
                let foreground = *foreground && !self.mutated(Mutation::DeleteFirst);
                self.delete(cluster, kind, target, foreground)
            }
            Verb::RemoveFinalizer { target, .. } => {
                self.edit(cluster, kind, target, |object| meta_mut(object).finalizer_index = None)
            }
            Verb::SetActive { target, active } => {
                if !*active && self.clusters[cluster].has_pods(number(&target.name)) {
                    self.reached("a fence stops a job");
                }
                self.edit(cluster, kind, target, |object| {
                    if let Object::Workload(workload) = object {
                        (workload.active, workload.suspended_by_agent) = (*active, !*active);
                    }
                })
            }
            Verb::SetFence { target, after } => self.edit(cluster, kind, target, |object| {
                if let Object::Workload(workload) = object {
                    workload.fence_after = *after;
                }
            }),
            Verb::SetPriority { target, priority } => self.edit(cluster, kind, target, |object| {
                if let Object::Workload(workload) = object {
                    workload.priority = Some(priority.clone());
                }
            }),
            Verb::OpenGate { target, at } => {
                let closed =
                    self.clusters[cluster].workload(number(&target.name)).is_some_and(|it| {
                        it.meta.target.uid == target.uid
                            && it.gate.is_some_and(|gate| gate.opened.is_none())
                    });
                if closed {
                    self.check_opened(cluster, number(&target.name), *at);
                }
                self.edit(cluster, kind, target, |object| {
                    if let Object::Workload(RemoteWorkload { gate: Some(gate), .. }) = object {
                        gate.opened = Some(timestamp(*at));
                    }
                })
            }
            Verb::Reread { target } => self.edit(cluster, kind, target, |_| ()),
        }
    }

    fn create(
        &mut self,
        cluster: usize,
        kind: ObjectKind,
        index: usize,
        workload_uid: &str,
        attempt: u64,
    ) -> Outcome {
        if let Some(there) = self.clusters[cluster].objects.get(&(kind, index)) {
            let meta = there.object.meta();
            return match (there.foreign, meta.workload_uid == workload_uid) {
                (true, _) => Outcome::Rejected(Rejection::refused(
                    "ObjectInTheWay",
                    "somebody else's object",
                )),
                (false, true) => Outcome::Object(Box::new(there.object.clone())),
                (false, false) => Outcome::Occupied { by: meta.workload_uid.clone() },
            };
        }
        if self.clusters[cluster].rejects_creations > 0 {
            self.reached("fault: turns down");
            return Outcome::Rejected(Rejection::refused(
                "Forbidden",
                "admission webhook denied the request",
            ));
        }
        if kind == ObjectKind::Job {
            self.check_made(cluster, index, attempt);
        }
        self.create_object(cluster, kind, index, workload_uid, attempt, false);
        if kind == ObjectKind::Job
            && self.mutated(Mutation::NoFinalizer)
            && let Some(job) = self.clusters[cluster].job(index)
        {
            job.meta.finalizer_index = None;
        }
        self.current_version(cluster, kind, index)
    }

    fn current_version(&self, cluster: usize, kind: ObjectKind, index: usize) -> Outcome {
        match self.clusters[cluster].objects.get(&(kind, index)) {
            Some(stored) => Outcome::Object(Box::new(stored.object.clone())),
            None => Outcome::Gone,
        }
    }

    /// Whether the store has exactly this object.
    fn is(&self, cluster: usize, kind: ObjectKind, target: &Target) -> bool {
        let there = self.clusters[cluster].objects.get(&(kind, number(&target.name)));
        there.is_some_and(|stored: &Stored| stored.object.meta().target.uid == target.uid)
    }

    fn delete(
        &mut self,
        cluster: usize,
        kind: ObjectKind,
        target: &Target,
        foreground: bool,
    ) -> Outcome {
        if !self.is(cluster, kind, target) && !self.mutated(Mutation::DeleteByName) {
            return Outcome::Gone;
        }
        let index = number(&target.name);
        let Some(stored) = self.clusters[cluster].objects.get_mut(&(kind, index)) else {
            return Outcome::Gone;
        };
        if stored.foreign || stored.object.meta().target.uid != target.uid {
            self.report_violation(
                Law::Foreign,
                format!("cluster {cluster}: an object that was not meant is deleted"),
            );
            return Outcome::Accepted;
        }
        meta_mut(&mut stored.object).deleting = true;
        stored.foreground |= foreground;
        self.touch(cluster, kind, index);
        Outcome::Accepted
    }

    fn edit(
        &mut self,
        cluster: usize,
        kind: ObjectKind,
        target: &Target,
        edit: impl FnOnce(&mut Object),
    ) -> Outcome {
        if !self.is(cluster, kind, target) {
            return Outcome::Gone;
        }
        let index = number(&target.name);
        let Some(stored) = self.clusters[cluster].objects.get_mut(&(kind, index)) else {
            return Outcome::Gone;
        };
        let before = stored.object.clone();
        edit(&mut stored.object);
        let after = stored.object.clone();
        if before != after {
            self.touch(cluster, kind, index);
        }
        match self.current_version(cluster, kind, index) {
            // Only its finalizer held it: the answer is its last state.
            Outcome::Gone => Outcome::Object(Box::new(after)),
            there => there,
        }
    }
}
