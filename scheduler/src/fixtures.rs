//! Builders, and a small cluster around an engine, for tests.
//!
//! `cpu` amounts are whole cores, all others are units.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{
    Admission, AdmissionCheck, AdmissionCheckRule, Amount, ClusterQueue, Cohort, Decision, Engine,
    EngineSettings, Event, FlavorQuotas, LocalQueue, LocalQueueKey, Name, NodeSelectorTerm,
    Operator, PodSet, PreemptionSettings, QueueingStrategy, Quota, RefusedReason, Requirement,
    ResourceFlavor, ResourceGroup, StopPolicy, Taint, TaintEffect, Time, Toleration,
    TolerationOperator, Workload, WorkloadKey,
};

pub(crate) fn amount(resource: &str, whole: i64) -> Amount {
    Amount::new(if resource == "cpu" { whole.saturating_mul(1000) } else { whole })
}

pub(crate) fn flavor(name: &str) -> ResourceFlavor {
    ResourceFlavor {
        name: name.into(),
        node_labels: BTreeMap::new(),
        node_taints: Vec::new(),
        tolerations: Vec::new(),
        topology_name: None,
    }
}

impl ResourceFlavor {
    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.node_labels.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn taint(mut self, key: &str, value: &str, effect: TaintEffect) -> Self {
        self.node_taints.push(Taint { key: key.to_owned(), value: value.to_owned(), effect });
        self
    }
}

pub(crate) fn tolerate(key: &str, value: &str) -> Toleration {
    let (key, value) = (key.to_owned(), value.to_owned());
    Toleration { key, operator: TolerationOperator::Equal, value, effect: None }
}

/// With one empty resource group.
pub(crate) fn cq(name: &str) -> ClusterQueue {
    ClusterQueue { resource_groups: vec![ResourceGroup::default()], ..ClusterQueue::new(name) }
}

/// Adds a quota to the last group.
fn add_quota(groups: &mut [ResourceGroup], flavor: &str, resource: &str, quota: Quota) {
    let Some(group) = groups.last_mut() else { return };
    if !group.covered_resources.iter().any(|name| &**name == resource) {
        group.covered_resources.push(resource.into());
    }
    match group.flavors.iter_mut().find(|quotas| &*quotas.name == flavor) {
        Some(quotas) => quotas.resources.push((resource.into(), quota)),
        None => {
            group.flavors.push(FlavorQuotas {
                name: flavor.into(),
                resources: vec![(resource.into(), quota)],
            });
        }
    }
}

impl ClusterQueue {
    pub(crate) fn quota(mut self, flavor: &str, resource: &str, nominal: i64) -> Self {
        let quota = Quota { nominal: amount(resource, nominal), ..Quota::default() };
        add_quota(&mut self.resource_groups, flavor, resource, quota);
        self
    }

    /// Starts another resource group.
    pub(crate) fn group(mut self) -> Self {
        self.resource_groups.push(ResourceGroup::default());
        self
    }

    pub(crate) fn cohort(mut self, name: &str) -> Self {
        self.cohort = Some(name.into());
        self
    }

    pub(crate) fn strict(mut self) -> Self {
        self.strategy = QueueingStrategy::StrictFIFO;
        self
    }

    pub(crate) fn check(mut self, name: &str, on_flavors: &[&str]) -> Self {
        let on_flavors = on_flavors.iter().map(|flavor| Name::from(*flavor)).collect();
        self.admission_checks.push(AdmissionCheckRule { name: name.into(), on_flavors });
        self
    }

    pub(crate) fn stop(mut self, policy: StopPolicy) -> Self {
        self.stop_policy = policy;
        self
    }
}

fn limited(resource: &str, nominal: i64, borrow: i64, lend: i64) -> Quota {
    let limit = |limit: i64| (limit >= 0).then(|| amount(resource, limit));
    Quota {
        nominal: amount(resource, nominal),
        borrowing_limit: limit(borrow),
        lending_limit: limit(lend),
    }
}

pub(crate) fn cohort(name: &str) -> Cohort {
    Cohort { resource_groups: vec![ResourceGroup::default()], ..Cohort::new(name) }
}

impl Cohort {
    pub(crate) fn below(mut self, parent: &str) -> Self {
        self.parent = Some(parent.into());
        self
    }

    pub(crate) fn limited(
        mut self,
        flavor: &str,
        resource: &str,
        nominal: i64,
        borrow: i64,
        lend: i64,
    ) -> Self {
        add_quota(
            &mut self.resource_groups,
            flavor,
            resource,
            limited(resource, nominal, borrow, lend),
        );
        self
    }
}

/// The LocalQueue `ns/name`.
pub(crate) fn lq(name: &str, cluster_queue: &str) -> LocalQueue {
    LocalQueue::new(LocalQueueKey::new("ns", name), cluster_queue)
}

/// The workload `ns/name` in the LocalQueue `main`, without pod sets.
pub(crate) fn wl(name: &str) -> Workload {
    Workload::new(WorkloadKey::new("ns", name), format!("uid-{name}"), "main", Time::from_secs(0))
}

impl Workload {
    pub(crate) fn pods(mut self, name: &str, count: i32) -> Self {
        self.pod_sets.push(PodSet::new(name, count));
        self
    }

    fn last(mut self, change: impl FnOnce(&mut PodSet)) -> Self {
        if self.pod_sets.is_empty() {
            self = self.pods("main", 1);
        }
        if let Some(pod_set) = self.pod_sets.last_mut() {
            change(pod_set);
        }
        self
    }

    /// Sets a request of the last pod set, or of a new pod set `main`.
    pub(crate) fn request(self, resource: &str, whole: i64) -> Self {
        let amount = amount(resource, whole);
        self.last(|pods| {
            pods.requests.insert(resource.into(), amount);
        })
    }

    pub(crate) fn at_least(self, count: i32) -> Self {
        self.last(|pods| pods.min_count = Some(count))
    }

    pub(crate) fn selector(self, key: &str, value: &str) -> Self {
        self.last(|pods| {
            pods.node_selector.insert(key.to_owned(), value.to_owned());
        })
    }

    /// Adds an alternative: the label has one of these values.
    pub(crate) fn affinity(self, key: &str, values: &[&str]) -> Self {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        let expression = Requirement { key: key.to_owned(), operator: Operator::In, values };
        self.last(|pods| {
            pods.affinity.push(NodeSelectorTerm {
                match_expressions: vec![expression],
                match_fields: Vec::new(),
            });
        })
    }

    pub(crate) fn toleration(self, toleration: Toleration) -> Self {
        self.last(|pods| pods.tolerations.push(toleration))
    }

    pub(crate) fn problem(self, message: &str) -> Self {
        self.last(|pods| pods.problem = Some(message.to_owned()))
    }

    pub(crate) fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    pub(crate) fn queue(mut self, name: &str) -> Self {
        name.clone_into(&mut self.queue_name);
        self
    }

    pub(crate) fn at(mut self, secs: i64) -> Self {
        self.created = Time::from_secs(secs);
        self.queue_time = self.created;
        self
    }
}

/// An engine with the namespace `ns` and the LocalQueue `main` of the ClusterQueue `main`.
pub(crate) struct Stage {
    pub(crate) engine: Engine,
    pub(crate) now: Time,
    workloads: BTreeMap<String, Workload>,
    /// The cycle of each workload's last reservation.
    cycles: BTreeMap<String, u64>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(EngineSettings::default())
    }

    pub(crate) fn with(settings: EngineSettings) -> Self {
        Self::around(Engine::new(settings))
    }

    /// With an engine whose preemptions the stage performs.
    pub(crate) fn with_preemption(settings: EngineSettings) -> Self {
        Self::around(Engine::with_preemption(settings, PreemptionSettings::default()))
    }

    pub(crate) fn around(engine: Engine) -> Self {
        let mut stage = Self {
            engine,
            now: Time::from_secs(1000),
            workloads: BTreeMap::new(),
            cycles: BTreeMap::new(),
        };
        stage.namespace("ns", &[]);
        for name in ["default", "spot"] {
            stage.apply(Event::ResourceFlavor(flavor(name)));
        }
        stage.apply(Event::LocalQueue(lq("main", "main")));
        stage
    }

    pub(crate) fn apply(&mut self, event: Event) {
        self.engine.apply(event, self.now);
    }

    pub(crate) fn namespace(&mut self, name: &str, labels: &[(&str, &str)]) {
        let labels =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.apply(Event::Namespace { name: name.into(), labels });
    }

    pub(crate) fn queue(&mut self, queue: ClusterQueue) {
        self.apply(Event::ClusterQueue(queue));
    }

    pub(crate) fn check(&mut self, name: &str, controller: &str, active: bool) {
        self.apply(Event::AdmissionCheck(AdmissionCheck {
            name: name.into(),
            controller: controller.to_owned(),
            active,
        }));
    }

    pub(crate) fn submit(&mut self, workload: Workload) {
        self.workloads.insert(workload.key.name.to_string(), workload.clone());
        self.apply(Event::Workload(Box::new(workload)));
    }

    /// Changes a workload in the API and sends its event.
    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut Workload)) {
        let mut workload = self.workloads[name].clone();
        change(&mut workload);
        self.submit(workload);
    }

    pub(crate) fn delete(&mut self, name: &str) {
        let workload = self.workloads.remove(name).expect("the workload was submitted");
        self.apply(Event::WorkloadDeleted { key: workload.key });
    }

    pub(crate) fn refuse(&mut self, name: &str, reason: RefusedReason) {
        let key = self.workloads[name].key.clone();
        let cycle = self.cycles.get(name).copied();
        self.apply(Event::AdmissionRefused { key, cycle, reason });
    }

    pub(crate) fn wait(&mut self, secs: u64) {
        self.now = self.now.plus(Duration::from_secs(secs));
    }

    fn decide(&mut self) -> Vec<Decision> {
        let decisions = self.engine.cycle(self.now).decisions;
        for decision in &decisions {
            if let Decision::Reserve { key, cycle, .. } = decision {
                self.cycles.insert(key.name.to_string(), *cycle);
            }
        }
        decisions
    }

    /// Runs one cycle and renders its decisions.
    pub(crate) fn cycle(&mut self) -> Vec<String> {
        self.decide().iter().map(describe).collect()
    }

    /// Runs one cycle, confirms its reservations, and returns the admitted workloads.
    pub(crate) fn admit(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        for decision in self.decide() {
            if let Decision::Reserve { key, admission, .. } = decision {
                let (name, now) = (key.name.to_string(), self.now);
                self.change(&name, |workload| {
                    workload.reservation = Some(admission);
                    workload.reserved_at = Some(now);
                    workload.admitted = true;
                });
                names.push(name);
            }
        }
        names
    }

    /// Removes the victim's quota and queues it again.
    pub(crate) fn evict(&mut self, name: &str) {
        self.change(name, |workload| {
            workload.reservation = None;
            workload.admitted = false;
            workload.evicted = true;
            workload.requeued = Some(true);
        });
    }

    /// Runs cycles while any admits, and returns the admitted workloads in order.
    pub(crate) fn admit_all(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        for _ in 0..1000 {
            let admitted = self.admit();
            if admitted.is_empty() && !self.engine.has_heads(self.now) {
                break;
            }
            names.extend(admitted);
        }
        names
    }

    pub(crate) fn why(&self, name: &str) -> String {
        let key = WorkloadKey::new("ns", name);
        self.engine.why(&key).map_or("it has quota".to_owned(), |reason| {
            format!("{}: {}", reason.condition_reason(), reason.message())
        })
    }

    /// The workloads of a queue in order; parked ones in brackets.
    pub(crate) fn order(&self, queue: &str) -> String {
        let names: Vec<_> = (self.engine.pending(queue))
            .map(|entry| {
                if entry.inadmissible {
                    format!("[{}]", entry.key.name)
                } else {
                    entry.key.name.to_string()
                }
            })
            .collect();
        names.join(" ")
    }

    /// Reserved `cpu` of the flavor `default`, in cores.
    pub(crate) fn reserved(&self, queue: &str) -> i64 {
        let view = self.engine.cluster_queue(queue).expect("the queue exists");
        view.quota
            .iter()
            .find(|quota| &*quota.resource == "cpu")
            .map_or(0, |quota| quota.reserved.get() / 1000)
    }
}

fn describe(decision: &Decision) -> String {
    match decision {
        Decision::Reserve { key, admission, .. } => {
            format!("admit {}: {}", key.name, describe_admission(admission))
        }
        Decision::Pending { key, reason, .. } => {
            format!("pending {}: {}: {}", key.name, reason.condition_reason(), reason.message())
        }
        Decision::Reassign { key, admission, .. } => {
            format!("reassign {}: {}", key.name, describe_admission(admission))
        }
        Decision::SecondPassFailed { key, reason, .. } => {
            format!("not placed {}: {}", key.name, reason.message())
        }
        Decision::Evict { key, nodes, .. } => {
            format!("evict {} from {}", key.name, nodes.join(","))
        }
        Decision::Migrate { key, to_uid, .. } => format!("migrate {} to {to_uid}", key.name),
        Decision::Preempt { key, reason, preemptor, .. } => {
            format!("preempt {} for {}: {reason}", key.name, preemptor.name)
        }
    }
}

fn describe_admission(admission: &Admission) -> String {
    let pod_sets: Vec<_> = (admission.pod_sets.iter())
        .map(|pod_set| {
            let parts: Vec<_> = (pod_set.flavors.iter())
                .map(|(resource, flavor)| {
                    format!("{resource} {} on {flavor}", pod_set.usage[resource].format(resource))
                })
                .collect();
            format!("{} x {} {}", pod_set.name, pod_set.count, parts.join(", "))
        })
        .collect();
    pod_sets.join("; ")
}
