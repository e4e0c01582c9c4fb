//! The cluster of the property test: an API server with unique names, finalizers and growing
//! versions, lagging watches, and the worker's own controllers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use switchyard_proto::v1::PreemptionGate;

use super::super::build::{JOB_GVK, WORKLOAD_GVK, yes};
use super::{CLASS, uid};
use crate::*;

#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) object: Object,
    /// Has no mark of the hub.
    pub(super) foreign: bool,
}

#[derive(Default)]
pub(super) struct Cluster {
    pub(super) objects: BTreeMap<(ObjectKind, String), Stored>,
    pub(super) version: u64,
    pub(super) uids: u64,
    /// Watch events not delivered yet, by kind.
    pub(super) events: BTreeMap<ObjectKind, VecDeque<WatchEvent>>,
    /// Every attempt whose job has ended.
    pub(super) ended: BTreeSet<(String, u64)>,
    pub(super) violations: Vec<String>,
}

impl Cluster {
    pub(super) fn touch(&mut self, kind: ObjectKind, name: &str) {
        self.version += 1;
        let version = self.version;
        let Some(stored) = self.objects.get_mut(&(kind, name.to_owned())) else { return };
        let meta = match &mut stored.object {
            Object::Workload(workload) => &mut workload.meta,
            Object::Job(job) => &mut job.meta,
        };
        meta.version = version;
        let removed = meta.deleting && meta.finalizer_index.is_none();
        let (foreign, object) = (stored.foreign, stored.object.clone());
        if removed {
            self.objects.remove(&(kind, name.to_owned()));
        }
        if foreign {
            if removed {
                self.violations.push(format!("a foreign {kind:?} was deleted"));
            }
            return;
        }
        let meta = object.meta();
        let seen = if removed {
            WatchEvent::Deleted {
                kind,
                workload_uid: meta.workload_uid.clone(),
                target: meta.target.clone(),
            }
        } else {
            WatchEvent::Applied(Box::new(object.clone()))
        };
        self.events.entry(kind).or_default().push_back(seen);
        if removed {
            self.collect(name, &object.meta().target.uid);
        }
    }

    /// The garbage collector: deletes an object whose owner is gone.
    pub(super) fn collect(&mut self, name: &str, owner: &str) {
        for kind in [ObjectKind::Workload, ObjectKind::Job] {
            let key = (kind, name.to_owned());
            let owned = self
                .objects
                .get(&key)
                .is_some_and(|it| it.object.meta().owners.iter().any(|it| it == owner));
            if owned {
                self.delete(kind, name);
            }
        }
    }

    pub(super) fn delete(&mut self, kind: ObjectKind, name: &str) {
        if let Some(stored) = self.objects.get_mut(&(kind, name.to_owned())) {
            match &mut stored.object {
                Object::Workload(workload) => workload.meta.deleting = true,
                Object::Job(job) => {
                    (job.meta.deleting, job.active, job.suspended) = (true, false, true)
                }
            }
            self.touch(kind, name);
        }
    }

    pub(super) fn meta(
        &mut self,
        kind: ObjectKind,
        name: &str,
        workload_uid: &str,
        attempt: u64,
    ) -> Meta {
        self.uids += 1;
        let gvk = if kind == ObjectKind::Job { JOB_GVK } else { WORKLOAD_GVK };
        Meta {
            target: Target {
                gvk: gvk.into(),
                namespace: "ns".to_owned(),
                name: name.to_owned(),
                uid: format!("o{}", self.uids),
            },
            version: 0,
            workload_uid: workload_uid.to_owned(),
            attempt,
            deleting: false,
            finalizer_index: (kind == ObjectKind::Job).then_some(0),
            owners: Vec::new(),
        }
    }

    pub(super) fn create(
        &mut self,
        kind: ObjectKind,
        name: &str,
        workload_uid: &str,
        attempt: u64,
    ) -> Outcome {
        if let Some(there) = self.objects.get(&(kind, name.to_owned())) {
            let meta = there.object.meta();
            return match (there.foreign, meta.workload_uid == workload_uid) {
                (true, _) => Outcome::Rejected(Rejection::refused("ObjectInTheWay", "")),
                (false, true) => Outcome::Object(Box::new(there.object.clone())),
                (false, false) => Outcome::Occupied { by: meta.workload_uid.clone() },
            };
        }
        if kind == ObjectKind::Job && self.ended.contains(&(workload_uid.to_owned(), attempt)) {
            self.violations.push(format!(
                "{workload_uid} attempt {attempt} was made again after it had ended"
            ));
        }
        let meta = self.meta(kind, name, workload_uid, attempt);
        let object = match kind {
            ObjectKind::Workload => {
                let priority = Some(Priority { class: CLASS.to_owned(), value: 0 });
                Object::Workload(RemoteWorkload {
                    meta,
                    priority,
                    ..super::super::build::workload(attempt)
                })
            }
            ObjectKind::Job => Object::Job(RemoteJob { meta, ..super::super::build::job(attempt) }),
        };
        self.objects.insert((kind, name.to_owned()), Stored { object, foreign: false });
        self.touch(kind, name);
        self.object(kind, name)
    }

    pub(super) fn object(&self, kind: ObjectKind, name: &str) -> Outcome {
        match self.objects.get(&(kind, name.to_owned())) {
            Some(stored) => Outcome::Object(Box::new(stored.object.clone())),
            None => Outcome::Gone,
        }
    }

    pub(super) fn is(&self, kind: ObjectKind, target: &Target) -> bool {
        self.objects
            .get(&(kind, target.name.clone()))
            .is_some_and(|it| it.object.meta().target.uid == target.uid)
    }

    pub(super) fn perform(&mut self, action: &Action) -> Outcome {
        let kind = action.kind;
        if let Some(target) = action.verb.target()
            && !self.is(kind, target)
        {
            return Outcome::Gone;
        }
        match &action.verb {
            Verb::Create { name, attempt, fence_after, gated, .. } => {
                let fresh = !self.objects.contains_key(&(kind, name.clone()));
                let made = self.create(kind, name, &action.workload_uid, *attempt);
                if let Some(Stored { object: Object::Workload(workload), foreign: false }) =
                    self.objects.get_mut(&(kind, name.clone())).filter(|_| fresh)
                {
                    workload.fence_after = *fence_after;
                    workload.gate = gated.then(PreemptionGate::default);
                }
                if matches!(made, Outcome::Object(_)) { self.object(kind, name) } else { made }
            }
            Verb::Find { name, .. } => match self.objects.get(&(kind, name.clone())) {
                Some(it) if !it.foreign && it.object.meta().workload_uid == action.workload_uid => {
                    self.object(kind, name)
                }
                _ => Outcome::Gone,
            },
            Verb::Delete { target, .. } => {
                self.delete(kind, &target.name);
                Outcome::Accepted
            }
            Verb::RemoveFinalizer { target, .. } => {
                if let Some(Stored { object: Object::Job(job), .. }) =
                    self.objects.get_mut(&(kind, target.name.clone()))
                {
                    job.meta.finalizer_index = None;
                }
                let before = self.object(kind, &target.name);
                self.touch(kind, &target.name);
                match self.object(kind, &target.name) {
                    Outcome::Gone => before,
                    after => after,
                }
            }
            Verb::SetActive { target, active } => {
                let name = target.name.clone();
                if let Some(Stored { object: Object::Workload(workload), .. }) =
                    self.objects.get_mut(&(kind, name.clone()))
                {
                    (workload.active, workload.suspended_by_agent) = (*active, !*active);
                }
                self.touch(kind, &name);
                self.object(kind, &name)
            }
            Verb::SetFence { target, after } => {
                let name = target.name.clone();
                if let Some(Stored { object: Object::Workload(workload), .. }) =
                    self.objects.get_mut(&(kind, name.clone()))
                {
                    workload.fence_after = *after;
                }
                self.touch(kind, &name);
                self.object(kind, &name)
            }
            Verb::SetPriority { target, priority } => {
                let name = target.name.clone();
                if let Some(Stored { object: Object::Workload(workload), .. }) =
                    self.objects.get_mut(&(kind, name.clone()))
                {
                    workload.priority = Some(priority.clone());
                }
                self.touch(kind, &name);
                self.object(kind, &name)
            }
            Verb::OpenGate { target, at } => {
                let name = target.name.clone();
                if let Some(Stored { object: Object::Workload(workload), .. }) =
                    self.objects.get_mut(&(kind, name.clone()))
                {
                    workload.gate = Some(PreemptionGate::new(Some(*at), None));
                }
                self.touch(kind, &name);
                self.object(kind, &name)
            }
            Verb::Reread { target } => self.object(kind, &target.name),
        }
    }

    /// One step of the worker's own controllers for one name.
    pub(super) fn controllers(&mut self, index: usize, choice: u8) {
        let name = format!("job-{}", uid(index));
        let job = match self.objects.get(&(ObjectKind::Job, name.clone())) {
            Some(Stored { object: Object::Job(job), foreign: false }) => Some(job.clone()),
            _ => None,
        };
        let Some(Stored { object: Object::Workload(workload), foreign: false }) =
            self.objects.get_mut(&(ObjectKind::Workload, name.clone()))
        else {
            return;
        };
        if workload.meta.deleting {
            return;
        }
        let admitted = workload.admitted.as_ref().is_some_and(|it| it.is_true);
        let mut run = None;
        match choice {
            // The Workload gets quota, or loses it.
            0 | 1 if workload.active && !admitted => {
                (workload.quota_reserved, workload.admitted, workload.evicted) =
                    (yes("Q"), yes("A"), None);
            }
            2 if admitted => (workload.admitted, workload.evicted) = (None, yes("Preempted")),
            3 if admitted && !workload.active => {
                (workload.admitted, workload.evicted) = (None, yes("Deactivated"))
            }
            // The job gets its owner, starts, or stops.
            4 => {
                let owners: Vec<String> =
                    job.iter().map(|job| job.meta.target.uid.clone()).collect();
                if owners.is_empty() || workload.meta.owners == owners {
                    return;
                }
                workload.meta.owners = owners;
            }
            5 if admitted && workload.active => run = Some(true),
            6 if !admitted => run = Some(false),
            _ => return,
        }
        let Some(run) = run else { return self.touch(ObjectKind::Workload, &name) };
        if let Some(Stored { object: Object::Job(job), .. }) =
            self.objects.get_mut(&(ObjectKind::Job, name.clone()))
            && !job.meta.deleting
            && job.end.is_none()
            && job.active != run
        {
            (job.suspended, job.active) = (!run, run);
            self.touch(ObjectKind::Job, &name);
        }
    }

    pub(super) fn finish(&mut self, index: usize, success: bool) {
        let name = format!("job-{}", uid(index));
        if let Some(Stored { object: Object::Job(job), foreign: false }) =
            self.objects.get_mut(&(ObjectKind::Job, name.clone()))
            && job.active
            && !job.meta.deleting
        {
            job.active = false;
            job.end = Some(JobEnd { success, reason: "R".to_owned(), message: String::new() });
            let ended = (job.meta.workload_uid.clone(), job.meta.attempt);
            self.ended.insert(ended);
            self.touch(ObjectKind::Job, &name);
        }
    }
}
