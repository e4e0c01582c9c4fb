//! Relations between workloads and variants, and the ClusterQueue's policy for them.

use std::sync::Arc;

use kube::ResourceExt as _;
use switchyard_api::{
    v1beta2::{
        AdmissionCheck, ClusterQueue, ConcurrentAdmissionMigrationMode, LocalQueue, Workload,
    },
    variants,
};
use switchyard_platform::store::Key;
use switchyard_scheduler::{self as engine, Name};

use crate::{
    stores::{Stores, dispatching::is_dispatching},
    workload,
};

/// The ClusterQueue's `concurrentAdmissionPolicy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VariantPolicy {
    /// Flavors, the best first.
    pub(crate) flavors: Vec<String>,
    /// Whether a running workload stays on its flavor (`RetainFirstAdmission`).
    pub(crate) retains: bool,
    /// The worst flavor that is worth moving to (`lastAcceptableFlavorName`).
    pub(crate) last: Option<String>,
}

impl VariantPolicy {
    /// The policy of a ClusterQueue. `None` without one, or if an admission check dispatches: then
    /// the workload is dispatched as a whole. `is_sent`: whether a check dispatches.
    pub(crate) fn of(queue: &ClusterQueue, is_sent: impl Fn(&str) -> bool) -> Option<Self> {
        let migration = &queue.spec.concurrent_admission_policy.as_ref()?.migration;
        if queue.spec.admission_checks().iter().any(|rule| is_sent(&rule.name)) {
            return None;
        }
        let group = queue.spec.resource_groups.first()?;
        Some(Self {
            flavors: group.flavors.iter().map(|flavor| flavor.name.clone()).collect(),
            retains: migration.mode == ConcurrentAdmissionMigrationMode::RetainFirstAdmission,
            last: migration
                .constraints
                .as_ref()
                .and_then(|it| it.last_acceptable_flavor_name.clone()),
        })
    }

    /// Position of a flavor, the best is 0.
    pub(crate) fn rank(&self, flavor: &str) -> Option<usize> {
        self.flavors.iter().position(|other| other == flavor)
    }
}

/// The policy of the ClusterQueue behind a workload's LocalQueue; `None` without either queue.
pub(crate) fn policy(stores: &Stores, workload: &Workload) -> Option<VariantPolicy> {
    VariantPolicy::of(&*queue(stores, workload)?, |check| is_dispatching(stores, check))
}

pub(crate) fn queue(stores: &Stores, workload: &Workload) -> Option<Arc<ClusterQueue>> {
    let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
    let local = stores.local_queues.get(namespace, workload::queue_name(workload))?;
    stores.cluster_queues.get("", local.spec.cluster_queue.as_deref()?)
}

/// Calls `act` with each unfinished workload whose [`policy`] may change with its LocalQueue,
/// ClusterQueue or AdmissionChecks, and when its ClusterQueue comes or goes.
pub(crate) fn follow(stores: &Stores, act: impl Fn(&Workload) + Clone + Send + Sync + 'static) {
    let (known, on_change) = (stores.clone(), act.clone());
    stores.local_queues.subscribe(move |change| {
        let leads_to = |queue: &Option<Arc<LocalQueue>>| {
            queue.as_ref().map(|queue| queue.spec.cluster_queue.clone())
        };
        if leads_to(&change.old) != leads_to(&change.new) {
            in_local_queue(&known, &change.key).iter().for_each(|it| on_change(it));
        }
    });
    let (known, on_change) = (stores.clone(), act.clone());
    stores.cluster_queues.subscribe(move |change| {
        let policy_of = |queue: &Option<Arc<ClusterQueue>>| {
            let is_sent = |check: &str| is_dispatching(&known, check);
            queue.as_ref().map(|queue| VariantPolicy::of(queue, is_sent))
        };
        if policy_of(&change.old) != policy_of(&change.new) {
            behind(&known, &change.key.name).iter().for_each(|it| on_change(it));
        }
    });
    let known = stores.clone();
    stores.admission_checks.subscribe(move |change| {
        let dispatches = |check: &Option<Arc<AdmissionCheck>>| {
            check.as_ref().is_some_and(|check| check.spec.is_multi_kueue())
        };
        if dispatches(&change.old) == dispatches(&change.new) {
            return;
        }
        let has_policy = |queue: &ClusterQueue| {
            let mut checks = queue.spec.admission_checks().iter();
            queue.spec.concurrent_admission_policy.is_some()
                && checks.any(|rule| *rule.name == *change.key.name)
        };
        for queue in known.cluster_queues.filter(has_policy) {
            behind(&known, &queue.name_any()).iter().for_each(|it| act(it));
        }
    });
}

/// The unfinished workloads of a ClusterQueue's LocalQueues.
fn behind(stores: &Stores, cluster_queue: &str) -> Vec<Arc<Workload>> {
    let leads_here =
        |queue: &LocalQueue| queue.spec.cluster_queue.as_deref() == Some(cluster_queue);
    let queues = stores.local_queues.filter(leads_here);
    queues.iter().flat_map(|queue| in_local_queue(stores, &Key::of(&**queue))).collect()
}

fn in_local_queue(stores: &Stores, queue: &Key) -> Vec<Arc<Workload>> {
    let mut workloads = stores.workloads.in_namespace(&queue.namespace);
    workloads.retain(|it| workload::queue_name(it) == &*queue.name && !workload::is_finished(it));
    workloads
}

/// Sets a workload's flavors and parent for the engine. A workload with variants, or about to get
/// some, is held and charges nothing itself: its quota is its variant's.
pub(crate) fn set_engine_fields(
    stores: &Stores,
    workload: &Workload,
    known: &mut engine::Workload,
) {
    known.flavors = variants::allowed_flavors(workload)
        .map(|flavors| flavors.into_iter().map(Name::from).collect());
    if let Some(parent) = variants::parent_of(workload) {
        known.parent = Some(Name::from(parent.uid.as_str()));
        // Variants are created within one second, so their ranks order them.
        let rank =
            policy(stores, workload).and_then(|policy| policy.rank(variants::flavor_of(workload)?));
        let later = std::time::Duration::from_millis(u64::try_from(rank.unwrap_or(0)).unwrap_or(0));
        known.queue_time = known.queue_time.plus(later);
    } else if variants::is_parent(workload) || policy(stores, workload).is_some() {
        known.on_hold = true;
        known.reservation = None;
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use switchyard_api::{names, v1beta2::StopPolicy};

    use super::*;
    use crate::fixtures::{
        self, WorkloadExt, cluster_queue, cluster_queue_with_policy, local_queue,
    };

    fn put(queue: ClusterQueue) -> impl Fn(&Stores) {
        move |stores| stores.cluster_queues.insert(queue.clone())
    }

    /// The changes and how often they touch workload `a`.
    type Case = (&'static str, Box<dyn Fn(&Stores)>, Box<dyn Fn(&Stores)>, usize);

    fn case(
        sentence: &'static str,
        before: impl Fn(&Stores) + 'static,
        change: impl Fn(&Stores) + 'static,
        times: usize,
    ) -> Case {
        (sentence, Box::new(before), Box::new(change), times)
    }

    #[test]
    fn workloads_follow_the_policy_of_their_queue() {
        let without = |checks: &[&str]| put(cluster_queue(StopPolicy::None, checks));
        let with = |checks: &[&str]| put(cluster_queue_with_policy(checks));
        let mut reversed = cluster_queue_with_policy(&[]);
        reversed.spec.resource_groups[0].flavors.reverse();
        let mut moved = local_queue(StopPolicy::None);
        moved.spec.cluster_queue = Some("other".into());
        let mut check = AdmissionCheck::default();
        check.metadata.name = Some("send".into());
        check.spec.controller_name = names::MULTIKUEUE_CONTROLLER.into();
        let dispatches = move |stores: &Stores| stores.admission_checks.insert(check.clone());
        let nothing = |_: &Stores| ();
        let cases = [
            case("a queue comes", nothing, with(&[]), 1),
            case("a queue without a policy comes", nothing, without(&[]), 1),
            case("a policy comes", without(&[]), with(&[]), 1),
            case("flavors have another order", with(&[]), put(reversed), 1),
            case("nothing changes", with(&[]), with(&[]), 0),
            case("a check is named", with(&[]), with(&["send"]), 0),
            case("a check dispatches", with(&["send"]), dispatches.clone(), 1),
            case("a check dispatches without a policy", without(&["send"]), dispatches.clone(), 0),
            case("no queue names the check", with(&[]), dispatches, 0),
            case(
                "a queue goes",
                with(&[]),
                |stores| stores.cluster_queues.remove(&Key::new("", "cq")),
                1,
            ),
            case(
                "a LocalQueue goes",
                nothing,
                |stores| stores.local_queues.remove(&Key::new("ns", "lq")),
                1,
            ),
            case(
                "a LocalQueue leads elsewhere",
                nothing,
                move |stores| stores.local_queues.insert(moved.clone()),
                1,
            ),
        ];
        for (sentence, before, change, times) in cases {
            let stores = Stores::default();
            stores.local_queues.insert(local_queue(StopPolicy::None));
            let ended = fixtures::workload("ended").condition("Finished", true, "", "");
            let elsewhere = |it: &mut Workload| it.spec.queue_name = Some("elsewhere".into());
            for workload in
                [fixtures::workload("a"), ended, fixtures::workload("b").edit(elsewhere)]
            {
                stores.workloads.insert(workload);
            }
            before(&stores);
            let seen: Arc<Mutex<Vec<String>>> = Arc::default();
            let log = seen.clone();
            follow(&stores, move |workload| log.lock().push(workload.name_any()));
            seen.lock().clear();
            change(&stores);
            assert_eq!(*seen.lock(), vec!["a"; times], "{sentence}");
        }
    }
}
