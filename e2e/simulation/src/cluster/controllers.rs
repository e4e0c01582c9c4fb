//! The worker's own controllers: quota, start and stop of jobs, pods, garbage collection.

use serde_json::json;
use switchyard_flags::simulate::Mutation;
use switchyard_ledger::{JobEnd, Object, ObjectKind};
use switchyard_proto::timestamp;
use switchyard_proto::v1::PreemptionGate;

use super::{no, yes};
use crate::state::{Event, Pods, World};
use crate::time::Ms;

/// How long Switchyard's worker controller waits for the hub to collect a copy before it releases
/// the copy's quota.
const COPY_GRACE: Ms = 3_000;

impl World {
    /// Every controller reconciles everything once.
    pub(crate) fn controllers(&mut self, cluster: usize) {
        if self.clusters[cluster].outage > 0 {
            // They reconcile again when the API server is back.
            self.clusters[cluster].reconcile_scheduled = false;
            return;
        }
        self.clusters[cluster].reconcile_scheduled = false;
        let before = self.used(cluster);
        for index in 0..self.plan.workloads.len() {
            self.reconcile_workload(cluster, index);
            self.reconcile_job(cluster, index);
        }
        for index in 0..self.plan.workloads.len() {
            self.admit(cluster, index);
        }
        if self.used(cluster) != before {
            let boot = self.clusters[cluster].agent.boot;
            let delay = self.dice(1 + cluster).between(1, 100);
            self.after(delay, Event::CapacityChanged { cluster, boot });
        }
    }

    /// Quota in use: reserved, or by pods that still run.
    pub(crate) fn used(&self, cluster: usize) -> u64 {
        let it = &self.clusters[cluster];
        (0..self.plan.workloads.len())
            .filter(|index| {
                let reserved = match it
                    .objects
                    .get(&(ObjectKind::Workload, *index))
                    .map(|stored| &stored.object)
                {
                    Some(Object::Workload(workload)) => {
                        workload.quota_reserved.as_ref().is_some_and(|it| it.is_true)
                    }
                    _ => false,
                };
                reserved || it.has_pods(*index)
            })
            .map(|index| self.plan.workloads[index].need)
            .sum()
    }

    fn admit(&mut self, cluster: usize, index: usize) {
        let (used, capacity) = (self.used(cluster), self.clusters[cluster].capacity);
        let need = self.plan.workloads[index].need;
        if !self.waits_for_quota(cluster, index) {
            return;
        }
        if let Some(pin) = self.unlisted_pin(cluster, index) {
            self.reached("fault: lacks a pinned flavor");
            let pending =
                no("NoMatchingFlavor", &format!("flavor {pin} is not in the ClusterQueue"));
            let Some(workload) = self.clusters[cluster].workload(index) else { return };
            if workload.quota_reserved != pending {
                workload.quota_reserved = pending;
                self.touch(cluster, ObjectKind::Workload, index);
            }
            return;
        }
        // Workloads evicted for others must not take the freed quota first.
        if used + need <= capacity
            && !(0..index).any(|other| self.waits_for_victims(cluster, other))
        {
            let status = self.admission(cluster, index);
            let Some(workload) = self.clusters[cluster].workload(index) else { return };
            workload.status = status;
            (workload.quota_reserved, workload.admitted, workload.evicted) =
                (yes("QuotaReserved"), yes("Admitted"), None);
            if let Some(gate) = &mut workload.gate {
                gate.blocked = None;
            }
            return self.touch(cluster, ObjectKind::Workload, index);
        }
        let pending = if need > capacity {
            no("ExceedsMaxQuota", "more than the queue can ever give")
        } else {
            self.preempt(cluster, index);
            no("Pending", "insufficient unused quota")
        };
        let Some(workload) = self.clusters[cluster].workload(index) else { return };
        if workload.quota_reserved != pending {
            workload.quota_reserved = pending;
            self.touch(cluster, ObjectKind::Workload, index);
        }
    }

    /// The status of a Workload with quota: in the flavor that is pinned, or else in the first.
    fn admission(&self, cluster: usize, index: usize) -> Vec<u8> {
        let plan = &self.plan.clusters[cluster];
        let stored = self.clusters[cluster].objects.get(&(ObjectKind::Workload, index));
        let pin = stored.and_then(|stored| stored.pin.as_deref()).filter(|_| !plan.adopts);
        let flavor = pin.or(plan.flavors.first().copied()).unwrap_or_default();
        let assigned = json!({"name": "main", "flavors": {"cpu": flavor}});
        json!({"admission": {"podSetAssignments": [assigned]}}).to_string().into_bytes()
    }

    /// The pinned flavor of a Workload, if the cluster enforces pins and does not list it.
    fn unlisted_pin(&self, cluster: usize, index: usize) -> Option<String> {
        let plan = &self.plan.clusters[cluster];
        let stored = self.clusters[cluster].objects.get(&(ObjectKind::Workload, index))?;
        let pin = stored.pin.as_deref().filter(|_| !plan.adopts)?;
        (!plan.flavors.contains(&pin)).then(|| pin.to_owned())
    }

    fn waits_for_quota(&mut self, cluster: usize, index: usize) -> bool {
        let running = self.clusters[cluster].has_pods(index);
        self.clusters[cluster].workload(index).is_some_and(|it| {
            let waits = it.quota_reserved.as_ref().is_none_or(|reserved| !reserved.is_true);
            waits && it.active && !it.meta.deleting && it.finished.is_none() && !running
        })
    }

    /// Whether a workload may preempt and has no quota yet.
    fn waits_for_victims(&mut self, cluster: usize, index: usize) -> bool {
        let fits = self.plan.workloads[index].need <= self.clusters[cluster].capacity;
        let gate = self.clusters[cluster].workload(index).and_then(|it| it.gate);
        fits && gate.is_some_and(|gate| gate.opened.is_some())
            && self.waits_for_quota(cluster, index)
    }

    /// Evicts workloads behind this one in the queue, once its preemption gate is open. While the
    /// gate is closed, sets the condition. A workload without a gate preempts nothing.
    fn preempt(&mut self, cluster: usize, index: usize) {
        let (used, capacity) = (self.used(cluster), self.clusters[cluster].capacity);
        let now = (crate::time::START + i64::try_from(self.now).unwrap_or(0)).div_euclid(1000);
        let victims: Vec<usize> = (index + 1..self.plan.workloads.len())
            .filter(|other| {
                self.clusters[cluster].workload(*other).is_some_and(|it| {
                    it.admitted.as_ref().is_some_and(|it| it.is_true)
                        && it.finished.is_none()
                        && !it.meta.deleting
                })
            })
            .collect();
        let freed: u64 = victims.iter().map(|other| self.plan.workloads[*other].need).sum();
        let enough = used.saturating_sub(freed) + self.plan.workloads[index].need <= capacity;
        let Some(workload) = self.clusters[cluster].workload(index).filter(|_| enough && freed > 0)
        else {
            return;
        };
        let Some(gate) = &mut workload.gate else { return };
        if gate.opened.is_none() {
            if gate.blocked.is_none() {
                gate.blocked = Some(timestamp(now));
                self.touch(cluster, ObjectKind::Workload, index);
            }
            return;
        }
        for victim in victims {
            self.clusters[cluster].evicted.insert(victim);
            if let Some(workload) = self.clusters[cluster].workload(victim) {
                (workload.admitted, workload.evicted) = (None, yes("Preempted"));
                workload.gate = workload.gate.map(|_| PreemptionGate::default());
            }
            self.touch(cluster, ObjectKind::Workload, victim);
        }
    }

    /// Evictions, ends, and owner references.
    fn reconcile_workload(&mut self, cluster: usize, index: usize) {
        let Some(of) = self.clusters[cluster]
            .workload(index)
            .map(|workload| workload.meta.workload_uid.clone())
        else {
            return;
        };
        // A job names its Workload. A job that was applied again has another uid, and so its
        // Workload another name. Prebuilt Workloads, which keep their names, are not simulated.
        let job = self.clusters[cluster]
            .job(index)
            .filter(|job| job.meta.workload_uid == of)
            .map(|job| job.clone());
        let adopts = self.plan.clusters[cluster].adopts;
        let ended = self.clusters[cluster]
            .objects
            .get(&(ObjectKind::Job, index))
            .and_then(|stored| stored.ended);
        let collected_soon = !adopts && ended.is_some_and(|at| self.now < at + COPY_GRACE);
        let reason = if self.mutated(Mutation::HideWhy) { "Preempted" } else { "Deactivated" };
        let Some(workload) = self.clusters[cluster].workload(index) else { return };
        let quiet = job.as_ref().is_none_or(|job| !job.active);
        let admitted = workload.admitted.as_ref().is_some_and(|it| it.is_true);
        if let Some(end) = job.as_ref().and_then(|job| job.end.as_ref())
            && workload.finished.is_none()
            && !collected_soon
        {
            workload.finished = yes(if end.success { "Succeeded" } else { "Failed" });
            (workload.quota_reserved, workload.admitted) = (None, None);
            return self.touch(cluster, ObjectKind::Workload, index);
        }
        if job.is_none() && !workload.meta.owners.is_empty() && !workload.meta.deleting {
            workload.meta.deleting = true;
            return self.touch(cluster, ObjectKind::Workload, index);
        }
        let owner: Vec<String> = job.iter().map(|job| job.meta.target.uid.clone()).collect();
        if adopts && !owner.is_empty() && workload.meta.owners != owner {
            workload.meta.owners = owner;
            return self.touch(cluster, ObjectKind::Workload, index);
        }
        if admitted && !workload.active && workload.finished.is_none() {
            (workload.admitted, workload.evicted) = (None, yes(reason));
            return self.touch(cluster, ObjectKind::Workload, index);
        }
        let evicted = workload.evicted.as_ref().is_some_and(|it| it.is_true);
        let reserved = workload.quota_reserved.as_ref().is_some_and(|it| it.is_true);
        let stopped = job.as_ref().is_none_or(|job| job.suspended);
        if evicted && reserved && quiet && stopped {
            workload.quota_reserved = None;
            self.touch(cluster, ObjectKind::Workload, index);
        }
    }

    /// Jobs run exactly while they are admitted.
    fn reconcile_job(&mut self, cluster: usize, index: usize) {
        let Some(of) = self.clusters[cluster].job(index).map(|job| job.meta.workload_uid.clone())
        else {
            return;
        };
        let admitted = self.clusters[cluster].workload(index).is_some_and(|workload| {
            let admitted = workload.admitted.as_ref().is_some_and(|it| it.is_true);
            workload.meta.workload_uid == of
                && workload.active
                && !workload.meta.deleting
                && admitted
        });
        let Some(job) = self.clusters[cluster].job(index) else { return };
        if job.end.is_some() {
            return;
        }
        let object = job.meta.target.uid.clone();
        let (suspended, active, deleting) = (job.suspended, job.active, job.meta.deleting);
        if admitted == suspended && !deleting {
            job.suspended = !admitted;
            self.touch(cluster, ObjectKind::Job, index);
        }
        let foreground = self.clusters[cluster]
            .objects
            .get(&(ObjectKind::Job, index))
            .is_some_and(|it| it.foreground);
        // Its controller ignores an object that is being deleted. With foreground deletion, the job
        // waits for its pods.
        if deleting && !foreground {
            return;
        }
        let runs = admitted && !deleting;
        let slow = self.clusters[cluster].slow > 0;
        let Some(stored) = self.clusters[cluster].objects.get_mut(&(ObjectKind::Job, index)) else {
            return;
        };
        if runs == active || std::mem::replace(&mut stored.pods_changing, true) {
            return;
        }
        let delay = self.dice(1 + cluster).between(20, if slow { 10_000 } else { 1_500 });
        let workload = index;
        self.after(
            delay,
            if runs {
                Event::PodsStart { cluster, workload, object }
            } else {
                Event::PodsStop { cluster, workload, object }
            },
        );
    }

    fn same_job(&mut self, cluster: usize, index: usize, object: &str) -> bool {
        let same =
            self.clusters[cluster].job(index).is_some_and(|job| job.meta.target.uid == object);
        if same
            && let Some(stored) = self.clusters[cluster].objects.get_mut(&(ObjectKind::Job, index))
        {
            stored.pods_changing = false;
        }
        same
    }

    pub(crate) fn pods_start(&mut self, cluster: usize, workload: usize, object: &str) {
        if self.clusters[cluster].outage > 0 {
            let object = object.to_owned();
            return self.after(1_000, Event::PodsStart { cluster, workload, object });
        }
        if !self.same_job(cluster, workload, object) {
            return;
        }
        let Some(job) = self.clusters[cluster].job(workload) else { return };
        if job.suspended || job.meta.deleting || job.end.is_some() || job.active {
            return self.reconcile_soon(cluster);
        }
        job.active = true;
        let attempt = job.meta.attempt;
        let ready = (self.clusters[cluster].unready == 0).then_some(self.now);
        let pods = Pods { workload, attempt, ready };
        self.clusters[cluster].pods.insert(object.to_owned(), pods);
        let Some(stored) = self.clusters[cluster].objects.get_mut(&(ObjectKind::Job, workload))
        else {
            return;
        };
        stored.run += 1;
        let run = stored.run;
        self.check_start(cluster, workload, attempt);
        self.check_flavor(cluster, workload, attempt);
        self.touch(cluster, ObjectKind::Job, workload);
        if ready.is_none() || self.mutated(Mutation::UnreadyForEver) {
            self.examine_soon(cluster);
        }
        if ready.is_none() {
            // The job goes on when the fault ends.
            return;
        }
        let object = object.to_owned();
        self.after(
            self.plan.workloads[workload].runs,
            Event::JobEnds { cluster, workload, object, run },
        );
    }

    pub(crate) fn pods_stop(&mut self, cluster: usize, workload: usize, object: &str) {
        if self.clusters[cluster].outage > 0 {
            let object = object.to_owned();
            return self.after(1_000, Event::PodsStop { cluster, workload, object });
        }
        if !self.same_job(cluster, workload, object) {
            // The pods have no owner any more.
            self.moved |= self.clusters[cluster].pods.remove(object).is_some();
            return self.reconcile_soon(cluster);
        }
        let foreground = self.clusters[cluster]
            .objects
            .get(&(ObjectKind::Job, workload))
            .is_some_and(|it| it.foreground);
        let Some(job) = self.clusters[cluster].job(workload) else { return };
        let stops = if job.meta.deleting { foreground } else { job.suspended };
        if !job.active || !stops {
            return self.reconcile_soon(cluster);
        }
        job.active = false;
        self.clusters[cluster].pods.remove(object);
        self.touch(cluster, ObjectKind::Job, workload);
    }

    pub(crate) fn job_ends(&mut self, cluster: usize, workload: usize, object: &str, run: u64) {
        if self.clusters[cluster].outage > 0 {
            let object = object.to_owned();
            return self.after(1_000, Event::JobEnds { cluster, workload, object, run });
        }
        let this = self.clusters[cluster]
            .objects
            .get(&(ObjectKind::Job, workload))
            .is_some_and(|stored| stored.run == run);
        let success = self.plan.workloads[workload].success;
        let Some(job) = self.clusters[cluster].job(workload) else { return };
        if !this || job.meta.target.uid != object || !job.active || job.suspended {
            return;
        }
        let deleting = job.meta.deleting;
        // A job in foreground deletion is being stopped.
        if deleting
            && self.clusters[cluster]
                .objects
                .get(&(ObjectKind::Job, workload))
                .is_some_and(|it| it.foreground)
        {
            return;
        }
        self.clusters[cluster].pods.remove(object);
        let Some(job) = self.clusters[cluster].job(workload) else { return };
        job.active = false;
        let reason = if success { "Succeeded" } else { "Failed" }.to_owned();
        job.end = Some(JobEnd { success, reason, message: "done".to_owned() });
        let attempt = job.meta.attempt;
        self.law_ended(workload, cluster, attempt);
        if deleting {
            // A user deleted it here. If the hub releases it, the hub may not know its end yet.
            self.clusters[cluster].dropped.insert((workload, attempt));
            self.reached("excuse: an end of what was deleted on the worker");
        }
        self.check_priority(cluster, workload, attempt);
        if let Some(stored) = self.clusters[cluster].objects.get_mut(&(ObjectKind::Job, workload)) {
            stored.ended = Some(self.now);
        }
        self.touch(cluster, ObjectKind::Job, workload);
        self.after(COPY_GRACE, Event::Controllers { cluster });
        if let Some(ttl) = self.plan.workloads[workload].ttl {
            let object = object.to_owned();
            self.after(ttl, Event::JobExpires { cluster, workload, object });
        }
    }

    /// The job's TTL after its end is over.
    pub(crate) fn job_expires(&mut self, cluster: usize, workload: usize, object: &str) {
        if self.clusters[cluster].outage > 0 {
            let object = object.to_owned();
            return self.after(1_000, Event::JobExpires { cluster, workload, object });
        }
        if self.clusters[cluster].job(workload).is_some_and(|job| job.meta.target.uid == object) {
            self.delete_job(cluster, workload, true);
        }
    }
}
