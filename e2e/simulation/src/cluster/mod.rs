//! One worker cluster: API server, controllers and agent.

mod agent;
mod brief;
mod controllers;
mod hostile;
mod readiness;
mod requests;

use switchyard_ledger::{
    Condition, Meta, Object, ObjectKind, Priority, RemoteJob, RemoteWorkload, Target, WatchEvent,
};
use switchyard_proto::timestamp;
use switchyard_proto::v1::Origin;

use crate::names::{NAMESPACE, PRIORITY_CLASS, uid};
use crate::state::{Event, Status, Stored, World, short};
use crate::time::Ms;

const WORKLOAD: &str = "kueue.x-k8s.io/v1beta2, Kind=Workload";
const JOB: &str = "batch/v1, Kind=Job";

pub(crate) fn meta_mut(object: &mut Object) -> &mut Meta {
    match object {
        Object::Workload(workload) => &mut workload.meta,
        Object::Job(job) => &mut job.meta,
    }
}

/// The job from which a Workload is made.
fn origin(index: usize, created: i64) -> Origin {
    let subject = crate::names::subject(index);
    let (kind, job_name) = (subject.kind.to_string(), subject.job.to_string());
    Origin {
        kind,
        job_name,
        pod_sets: subject.pod_sets.to_vec(),
        has_job: false,
        created: Some(timestamp(created)),
    }
}

pub(crate) fn yes(reason: &str) -> Option<Condition> {
    Some(Condition { is_true: true, reason: reason.to_owned(), message: String::new() })
}

fn no(reason: &str, message: &str) -> Option<Condition> {
    Some(Condition { is_true: false, reason: reason.to_owned(), message: message.to_owned() })
}

impl World {
    /// Creates an unrelated object with a workload's name.
    pub(crate) fn create_unrelated_object(&mut self, cluster: usize) {
        let Some(index) = self.plan.clusters[cluster].occupied else { return };
        self.put_foreign(cluster, index);
    }

    /// Puts a new object into the cluster's store.
    fn create_object(
        &mut self,
        cluster: usize,
        kind: ObjectKind,
        index: usize,
        workload_uid: &str,
        attempt: u64,
        foreign: bool,
    ) {
        let made = (crate::time::START + i64::try_from(self.now).unwrap_or(0)).div_euclid(1000);
        let it = &mut self.clusters[cluster];
        it.uids += 1;
        let (gvk, letter) = if kind == ObjectKind::Workload { (WORKLOAD, 'w') } else { (JOB, 'j') };
        let meta = Meta {
            target: Target {
                gvk: gvk.into(),
                namespace: NAMESPACE.to_owned(),
                name: format!("job-{}", uid(index)),
                uid: format!("{letter}{}", it.uids),
            },
            version: 0,
            workload_uid: workload_uid.to_owned(),
            attempt,
            deleting: false,
            finalizer_index: (kind == ObjectKind::Job && !foreign).then_some(0),
            owners: Vec::new(),
        };
        let object = match kind {
            ObjectKind::Workload => Object::Workload(RemoteWorkload {
                meta,
                active: true,
                suspended_by_agent: false,
                is_follower: false,
                fence_after: None,
                priority: Some(Priority { class: PRIORITY_CLASS.to_owned(), value: 0 }),
                gate: None,
                quota_reserved: None,
                admitted: None,
                evicted: None,
                finished: None,
                unready_checks: Vec::new(),
                status: b"{}".to_vec(),
                origin: origin(index, made),
                slice: None,
            }),
            ObjectKind::Job => {
                let status = Status::Idle.to_json();
                Object::Job(RemoteJob {
                    meta,
                    suspended: true,
                    active: false,
                    reports_completion: true,
                    may_change: false,
                    has_lost_member: false,
                    end: None,
                    status,
                })
            }
        };
        it.objects.insert(
            (kind, index),
            Stored {
                object,
                foreign,
                foreground: false,
                run: 0,
                pods_changing: false,
                ended: None,
                pin: None,
            },
        );
        self.touch(cluster, kind, index);
    }

    /// Changes an object: sets a new version, or removes it if nothing holds it. Notifies watches
    /// and controllers.
    fn touch(&mut self, cluster: usize, kind: ObjectKind, index: usize) {
        self.moved = true;
        let it = &mut self.clusters[cluster];
        it.version += 1;
        let version = it.version;
        let Some(stored) = it.objects.get_mut(&(kind, index)) else { return };
        meta_mut(&mut stored.object).version = version;
        if let Object::Job(job) = &mut stored.object {
            job.status = match (&job.end, job.active) {
                (Some(_), _) => Status::Ended.to_json(),
                (None, true) => Status::Active.to_json(),
                (None, false) => Status::Idle.to_json(),
            };
        }
        let object = stored.object.clone();
        let foreign = stored.foreign;
        let job = object.meta().target.uid.clone();
        let running = kind == ObjectKind::Job && it.pods.contains_key(&job);
        let waits = running && stored.foreground;
        let goes = object.meta().deleting && object.meta().finalizer_index.is_none() && !waits;
        if goes {
            it.objects.remove(&(kind, index));
        }
        if goes && running {
            self.collect_pods(cluster, index, job);
        }
        self.note(|| format!("c{cluster}: {}{}", if goes { "gone " } else { "" }, short(&object)));
        if !foreign {
            let meta = object.meta();
            let seen = if goes {
                let (workload_uid, target) = (meta.workload_uid.clone(), meta.target.clone());
                WatchEvent::Deleted { kind, workload_uid, target }
            } else {
                WatchEvent::Applied(Box::new(object))
            };
            self.notify_watch(cluster, kind, seen);
        }
        self.reconcile_soon(cluster);
    }

    fn notify_watch(&mut self, cluster: usize, kind: ObjectKind, seen: WatchEvent) {
        let stale = self.plan.noise.stale;
        let slow = self.clusters[cluster].slow > 0;
        let delay = self.dice(1 + cluster).between(1, if slow { stale * 5 } else { stale });
        let now = self.now;
        let it = &mut self.clusters[cluster];
        if !it.agent.up || it.gap > 0 || !it.agent.listed.contains(&kind) {
            return;
        }
        let last = it.agent.watched.entry(kind).or_default();
        let at = (*last).max(now + delay);
        *last = at;
        let boot = it.agent.boot;
        self.at(at, Event::Watch { cluster, boot, seen: Box::new(seen) });
    }

    /// A user of the worker changes a Workload with the hub's marks.
    pub(crate) fn change_workload(
        &mut self,
        cluster: usize,
        index: usize,
        change: impl FnOnce(&mut RemoteWorkload),
    ) {
        let Some(workload) = self.clusters[cluster].workload(index) else { return };
        let before = workload.clone();
        change(workload);
        if *workload != before {
            self.touch(cluster, ObjectKind::Workload, index);
        }
    }

    /// A user of the worker deletes a job with the hub's marks, in the foreground or not. Returns
    /// whether there was one.
    pub(crate) fn delete_job(&mut self, cluster: usize, index: usize, foreground: bool) -> bool {
        let Some(job) = self.clusters[cluster].job(index).filter(|job| !job.meta.deleting) else {
            return false;
        };
        job.meta.deleting = true;
        if let Some(stored) = self.clusters[cluster].objects.get_mut(&(ObjectKind::Job, index)) {
            stored.foreground = foreground;
        }
        self.touch(cluster, ObjectKind::Job, index);
        true
    }

    /// Garbage-collects the pods of a deleted job.
    fn collect_pods(&mut self, cluster: usize, workload: usize, object: String) {
        self.reached("pods outlive their job");
        let slow = self.clusters[cluster].slow > 0;
        let delay = self.dice(1 + cluster).between(20, if slow { 10_000 } else { 1_500 });
        self.after(delay, Event::PodsStop { cluster, workload, object });
    }

    /// A user removes a job by force and creates another object of its name.
    pub(crate) fn replace(&mut self, cluster: usize, index: usize) {
        let ours = self.clusters[cluster].job(index).filter(|job| job.end.is_none()).cloned();
        let Some(mut job) = ours else { return };
        self.reached("fault: replaced");
        self.clusters[cluster].evicted.insert(index);
        self.clusters[cluster].pods.remove(&job.meta.target.uid);
        (job.meta.deleting, job.meta.finalizer_index, job.active) = (true, None, false);
        if let Some(stored) = self.clusters[cluster].objects.get_mut(&(ObjectKind::Job, index)) {
            stored.object = Object::Job(job);
        }
        self.touch(cluster, ObjectKind::Job, index);
        self.put_foreign(cluster, index);
    }

    /// Removes that object.
    pub(crate) fn remove_replacement(&mut self, cluster: usize, index: usize) {
        let always = self.plan.clusters[cluster].occupied == Some(index);
        if !always
            && self.clusters[cluster]
                .objects
                .get(&(ObjectKind::Job, index))
                .is_some_and(|stored| stored.foreign)
        {
            self.clusters[cluster].objects.remove(&(ObjectKind::Job, index));
            self.reconcile_soon(cluster);
        }
    }

    fn put_foreign(&mut self, cluster: usize, index: usize) {
        self.create_object(cluster, ObjectKind::Job, index, "somebody's", 0, true);
    }

    /// Restarts the watches. Full lists show the missed changes.
    pub(crate) fn relist(&mut self, cluster: usize) {
        let boot = self.clusters[cluster].agent.boot;
        for kind in [ObjectKind::Workload, ObjectKind::Job] {
            let last = self.clusters[cluster].agent.watched.get(&kind).copied().unwrap_or_default();
            let delay = self.dice(1 + cluster).between(1, 2_000);
            self.at(last.max(self.now + delay), Event::List { cluster, boot, kind });
        }
    }

    /// Schedules the controllers.
    pub(crate) fn reconcile_soon(&mut self, cluster: usize) {
        if std::mem::replace(&mut self.clusters[cluster].reconcile_scheduled, true) {
            return;
        }
        let slow = self.clusters[cluster].slow > 0;
        let delay: Ms = self.dice(1 + cluster).between(5, if slow { 10_000 } else { 300 });
        self.after(delay, Event::Controllers { cluster });
    }
}
