//! One worker cluster: API server, controllers and agent.

mod agent;
mod brief;
mod controllers;
mod hostile;
mod requests;

use std::collections::{BTreeMap, BTreeSet};

use switchyard_dispatcher::{LossPolicy, Uid};
use switchyard_ledger::{
    Action, Condition, Meta, Object, ObjectKind, Origin, Priority, RemoteJob, RemoteWorkload,
    Target, WatchEvent,
};

use crate::event::Event;
use crate::hub::{PRIORITY_CLASS, Status};
use crate::laws::{short, uid};
use crate::plan::{ClusterPlan, Ms};
use crate::world::World;

pub(crate) use agent::{Agent, HUB_ID};
pub(crate) use hostile::FORGED;

const WORKLOAD: &str = "kueue.x-k8s.io/v1beta2, Kind=Workload";
const JOB: &str = "batch/v1, Kind=Job";
pub(crate) const NAMESPACE: &str = "ns";

/// An object in the cluster's store.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) object: Object,
    /// Has none of the hub's marks.
    pub(crate) foreign: bool,
    /// In foreground deletion: deleted after its pods.
    pub(crate) foreground: bool,
    /// Counts the starts of its pods.
    pub(crate) run: u64,
    /// Its pods are starting or stopping.
    pub(crate) pods_changing: bool,
    pub(crate) ended: Option<Ms>,
}

/// The pods of a job. They outlive the job for a moment, except in foreground deletion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pods {
    pub(crate) workload: usize,
    pub(crate) attempt: u64,
}

pub(crate) struct Cluster {
    pub(crate) capacity: u64,
    /// By uid of their job.
    pub(crate) pods: BTreeMap<String, Pods>,
    /// By the number of the hub's workload of the same name.
    pub(crate) objects: BTreeMap<(ObjectKind, usize), Stored>,
    version: u64,
    uids: u64,
    pub(crate) agent: Agent,
    /// Requests of the agent on their way to the API server.
    requests: BTreeMap<u64, Action>,
    next_request: u64,
    /// Running faults.
    pub(crate) slow: u32,
    pub(crate) outage: u32,
    pub(crate) gap: u32,
    pub(crate) rejects_creations: u32,
    pub(crate) expired: u32,
    /// The present `onDisconnect` policy, and all earlier ones.
    pub(crate) loss: LossPolicy,
    pub(crate) losses: BTreeSet<LossPolicy>,
    /// The last change of the policy.
    pub(crate) changed: Ms,
    /// Workloads whose policy changed before a hub restart, when the agent may not have received
    /// the change.
    pub(crate) unheard: BTreeSet<usize>,
    /// Drains by operators.
    pub(crate) drained: u32,
    /// Declared lost by an operator, and not back yet.
    pub(crate) declared: bool,
    /// Rightly or not, and perhaps back since.
    pub(crate) was_declared_lost: bool,
    /// The agent's state that survives its process: the highest epoch and the end of the lease.
    pub(crate) memory: (u64, Option<Ms>),
    /// When a leading hub last received a message of the cluster.
    pub(crate) heard: Ms,
    /// Until then the agent could not act on its cluster.
    pub(crate) unable_until: Ms,
    /// The hub process that received the agent's report "not able", and has not stored it.
    pub(crate) unstored_unable: Option<(usize, u32)>,
    /// The last report that a hub received and could store was "not able".
    pub(crate) reported_unable: bool,
    /// Workloads that users evicted or deleted here.
    pub(crate) evicted: BTreeSet<usize>,
    /// The highest attempts that a hub removed since the store was last lost, by uid.
    pub(crate) removed: BTreeMap<Uid, u64>,
    /// The same, before the store was lost.
    pub(crate) removed_before: BTreeMap<Uid, u64>,
    /// Attempts of workloads that were rightly given up here.
    pub(crate) excused_attempts: BTreeSet<(usize, u64)>,
    /// When the cluster last became healthy.
    pub(crate) well_since: Option<Ms>,
    /// Forgiven attempts that ended while the cluster was given up and another attempt counted.
    pub(crate) dropped: BTreeSet<(usize, u64)>,
    /// The controllers are about to reconcile.
    reconcile_scheduled: bool,
}

impl Cluster {
    pub(crate) fn new(plan: &ClusterPlan) -> Self {
        Self {
            capacity: plan.capacity,
            pods: BTreeMap::new(),
            objects: BTreeMap::new(),
            version: 0,
            uids: 0,
            agent: Agent::default(),
            requests: BTreeMap::new(),
            next_request: 0,
            slow: 0,
            outage: 0,
            well_since: None,
            dropped: BTreeSet::new(),
            gap: 0,
            rejects_creations: 0,
            expired: 0,
            loss: plan.loss,
            losses: BTreeSet::from([plan.loss]),
            changed: 0,
            unheard: BTreeSet::new(),
            drained: 0,
            declared: false,
            was_declared_lost: false,
            memory: (0, None),
            heard: 0,
            unable_until: 0,
            unstored_unable: None,
            reported_unable: false,
            evicted: BTreeSet::new(),
            removed: BTreeMap::new(),
            removed_before: BTreeMap::new(),
            excused_attempts: BTreeSet::new(),
            reconcile_scheduled: false,
        }
    }

    /// The attempts of a workload with pods here, with or without their jobs.
    pub(crate) fn running(&self, index: usize) -> impl Iterator<Item = u64> {
        self.pods.values().filter(move |pods| pods.workload == index).map(|pods| pods.attempt)
    }

    /// Whether a workload has pods here.
    pub(crate) fn has_pods(&self, index: usize) -> bool {
        self.running(index).next().is_some()
    }

    fn job(&mut self, index: usize) -> Option<&mut RemoteJob> {
        match self.objects.get_mut(&(ObjectKind::Job, index)) {
            Some(Stored { object: Object::Job(job), foreign: false, .. }) => Some(job),
            _ => None,
        }
    }

    fn workload(&mut self, index: usize) -> Option<&mut RemoteWorkload> {
        match self.objects.get_mut(&(ObjectKind::Workload, index)) {
            Some(Stored { object: Object::Workload(workload), foreign: false, .. }) => {
                Some(workload)
            }
            _ => None,
        }
    }

    fn uids(&self, kind: ObjectKind) -> BTreeSet<String> {
        let ours = self.objects.iter().filter(|((of, _), stored)| *of == kind && !stored.foreign);
        ours.map(|(_, stored)| stored.object.meta().target.uid.clone()).collect()
    }
}

pub(crate) fn meta_mut(object: &mut Object) -> &mut Meta {
    match object {
        Object::Workload(workload) => &mut workload.meta,
        Object::Job(job) => &mut job.meta,
    }
}

/// The job from which a Workload is made.
fn origin(index: usize, created: i64) -> Origin {
    let subject = crate::hub::subject(index);
    let (kind, job_name) = (subject.kind.to_string(), subject.job.to_string());
    Origin { kind, job_name, pod_sets: subject.pod_sets.to_vec(), created }
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
        let made = (crate::hub::START + i64::try_from(self.now).unwrap_or(0)).div_euclid(1000);
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
