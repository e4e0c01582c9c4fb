//! Users of the hub, its controllers, and its quota.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use switchyard_api::flavor_pins::FlavorPins;
use switchyard_dispatcher::{
    CheckStatus, DispatchEvent, LossPolicy, MemoryReservation, Name, StuckFacts, Uid,
    WorkloadFacts, WorkloadState,
};
use switchyard_flags::simulate::Mutation;
use switchyard_scheduler::{Amount, PodSet};

use crate::names::{CHECK, PRIORITY_CLASS, number, subject};
use crate::plan::FLAVORS;
use crate::state::{Event, Object, World};
use crate::time::Ms;

/// How long the hub's job controller waits for the mirror to finish the workload.
const MIRROR_GRACE: Ms = 10_000;

impl World {
    pub(crate) fn submit(&mut self, index: usize) {
        let need = i64::try_from(self.plan.workloads[index].need).unwrap_or(0);
        let requests = BTreeMap::from([(Name::from("cpu"), Amount::new(need))]);
        let pod_sets: Arc<[PodSet]> =
            Arc::from(vec![PodSet { requests, ..PodSet::new("main", 1) }]);
        let uid = self.uid(index);
        if self.api.objects.contains_key(&uid) {
            return;
        }
        let facts = WorkloadFacts {
            uid: uid.clone(),
            namespace: crate::names::NAMESPACE.into(),
            name: format!("job-{uid}").into(),
            version: 0,
            queue: "lq".into(),
            priority: 0,
            priority_class: Some(PRIORITY_CLASS.into()),
            pod_sets,
            charged: Arc::default(),
            state: WorkloadState {
                active: true,
                check: Some((CHECK.into(), CheckStatus::Pending)),
                ..WorkloadState::default()
            },
            other_checks_ready: true,
            nominated: Vec::new(),
            grace: 5_000,
            on_disconnect: self.plan.workloads[index].loss,
            stuck: StuckFacts { policy: self.plan.workloads[index].stuck, ..StuckFacts::default() },
            affinity: None,
            move_request: None,
            subject: Some(subject(index)),
            adopt: None,
            replica: None,
            replaces: None,
            waits_for_job: false,
            job_ended: Some(false),
        };
        let object = Object {
            facts,
            deleted: false,
            owner_gone: false,
            job_ended: None,
            finished_at: None,
            ends: 0,
            stuck_moves: 0,
            committed: Vec::new(),
            commit_decided: 0,
            first_progressed: 0,
            losses: BTreeSet::from([self.plan.workloads[index].loss]),
            changed: 0,
            ended: Vec::new(),
        };
        let object = self.with_past(index, object);
        self.api.objects.insert(uid.clone(), object);
        self.api_changed(&uid);
    }

    /// The hub evicts the workload.
    pub(crate) fn evict(&mut self, uid: &Uid) {
        let release = self.mutated(Mutation::ReleaseAtEviction);
        let Some(object) = self.api.objects.get_mut(uid).filter(|object| !object.deleted) else {
            return;
        };
        let facts = &mut object.facts;
        if !facts.state.reserved || facts.state.finished || facts.state.evicted {
            return;
        }
        self.reached.count("fault: evict");
        facts.state.evicted = true;
        facts.state.cluster = None;
        facts.nominated.clear();
        facts.state.check = Some((CHECK.into(), CheckStatus::Pending));
        if release {
            facts.state.reserved = false;
            facts.charged = Arc::default();
        }
        self.api_changed(uid);
    }

    /// The owner changes the workload's policy and priority.
    pub(crate) fn owner_changes(&mut self, uid: &Uid, loss: Option<LossPolicy>, priority: i32) {
        let now = self.now;
        let Some(object) = self.api.objects.get_mut(uid).filter(|object| !object.deleted) else {
            return;
        };
        object.changed = now;
        object.facts.on_disconnect = loss;
        object.facts.priority = priority;
        object.losses.insert(loss);
        self.api_changed(uid);
    }

    /// An operator moves the workload to another cluster.
    pub(crate) fn move_to(&mut self, uid: &Uid, cluster: usize) {
        let Some(object) = self.api.objects.get_mut(uid).filter(|object| !object.deleted) else {
            return;
        };
        self.reached.count("fault: move");
        object.facts.move_request =
            Some((object.facts.state.attempt, crate::names::name(cluster).into()));
        self.api_changed(uid);
    }

    /// The owner deletes the job.
    pub(crate) fn delete_owner(&mut self, uid: &Uid) {
        let Some(object) = self.api.objects.get_mut(uid).filter(|object| !object.deleted) else {
            return;
        };
        self.reached.count("fault: delete");
        object.owner_gone = true;
        self.api_changed(uid);
    }

    fn led(&self) -> bool {
        self.hubs
            .iter()
            .any(|hub| hub.up && hub.cut == 0 && hub.frozen.is_none() && hub.term.is_some())
    }

    /// The hub's controllers reconcile a workload with one write.
    pub(crate) fn lifecycle(&mut self, uid: &Uid) {
        if !self.led() {
            let uid = uid.clone();
            return self.after(1_000, Event::Lifecycle { uid });
        }
        let now = self.now;
        let Some(object) = self.api.objects.get_mut(uid).filter(|object| !object.deleted) else {
            return;
        };
        let facts = &mut object.facts;
        if object.owner_gone {
            if facts.state.finished {
                object.deleted = true;
            } else {
                facts.state.finished = true;
            }
            return self.api_changed(uid);
        }
        if facts.state.finished {
            return;
        }
        if let Some(since) = object.job_ended {
            if now < since + MIRROR_GRACE {
                let uid = uid.clone();
                return self.at(since + MIRROR_GRACE, Event::Lifecycle { uid });
            }
            facts.state.finished = true;
            object.ends += 1;
            return self.api_changed(uid);
        }
        if facts.state.check.as_ref().is_some_and(|(_, check)| *check == CheckStatus::Retry)
            && !facts.state.evicted
        {
            return self.evict(&uid.clone());
        }
        // A committed workload keeps its quota until the dispatcher releases it.
        if facts.state.evicted && facts.state.reserved && facts.state.attempt == 0 {
            facts.state.reserved = false;
            facts.charged = Arc::default();
            self.api_changed(uid);
        }
    }

    pub(crate) fn engine_soon(&mut self, hub: usize) {
        let delay = self.dice(0).between(1, 100);
        let boot = self.hubs[hub].boot;
        let Some(term) = &mut self.hubs[hub].term else { return };
        if !std::mem::replace(&mut term.engine_due, true) {
            self.after(delay, Event::Engine { hub, boot });
        }
    }

    /// Reserves quota for waiting workloads, by the hub's cache.
    pub(crate) fn engine(&mut self, hub: usize, boot: u32) {
        if !self.hub_is(hub, boot) {
            return;
        }
        let now = self.now;
        let total: u64 = self.clusters.iter().map(|cluster| cluster.capacity).sum();
        let Some(term) = &mut self.hubs[hub].term else { return };
        term.engine_due = false;
        let store = &self.hubs[hub].store;
        let need =
            |uid: &Uid| self.plan.workloads.get(number(uid)).map_or(0, |workload| workload.need);
        let Some(term) = &self.hubs[hub].term else { return };
        let charged = store
            .values()
            .filter(|facts| facts.state.reserved && !facts.state.finished)
            .map(|facts| &facts.uid);
        let charged: BTreeSet<&Uid> = charged.chain(term.memory.keys()).collect();
        let mut used: u64 = charged.iter().map(|uid| need(uid)).sum();
        let mut taken = Vec::new();
        let mut again: Option<Ms> = None;
        for (uid, facts) in store {
            let waits = !facts.state.reserved
                && !facts.state.finished
                && !facts.state.deleting
                && facts.state.active
                && facts.state.cluster.is_none();
            if !waits || term.memory.contains_key(uid) {
                continue;
            }
            let parked = term.parked.get(uid).copied().unwrap_or(0);
            if parked > now {
                again = Some(again.map_or(parked, |at| at.min(parked)));
            } else if used + need(uid) <= total {
                used += need(uid);
                taken.push(facts.clone());
            }
        }
        if let Some(at) = again {
            self.at(at, Event::Engine { hub, boot });
        }
        for mut facts in taken {
            if self.plan.pinned
                && let Some(term) = &mut self.hubs[hub].term
            {
                // Another one each time: a cluster may lack the first.
                let turn = term.turns.entry(facts.uid.clone()).or_insert(number(&facts.uid));
                let flavor = FLAVORS[*turn % FLAVORS.len()];
                *turn += 1;
                let rows = [("main", "cpu", flavor)];
                facts.charged = Arc::new(FlavorPins::from_rows(rows).unwrap_or_default());
                term.charges.insert(facts.uid.clone(), facts.charged.clone());
            }
            if let Some(term) = &mut self.hubs[hub].term {
                term.memory.insert(facts.uid.clone(), facts.version);
                term.parked.remove(&facts.uid);
            }
            self.note(|| format!("hub {hub}: quota for {}", facts.uid));
            let reserved = MemoryReservation { check: CHECK.into(), needs_other_checks: false };
            let facts = self.gathered(facts);
            self.dispatch(hub, DispatchEvent::QuotaReserved { facts, reserved });
        }
    }
}
