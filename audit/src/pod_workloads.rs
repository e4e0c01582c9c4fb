//! The Workloads that allow a pod to run.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use switchyard_api::names;
use switchyard_api::v1beta2::Workload;

use crate::chain::{Chain, is_managed, prebuilt};
use crate::cluster::{Key, controller, key, mark};

/// Finds the Workloads of pods, by index in the list of Workloads.
pub(crate) struct PodWorkloads<'a> {
    workloads: &'a [Workload],
    by_owner: BTreeMap<&'a str, Vec<usize>>,
    by_key: BTreeMap<Key<'a>, usize>,
}

impl<'a> PodWorkloads<'a> {
    pub(crate) fn of(workloads: &'a [Workload]) -> Self {
        let mut by_owner = BTreeMap::<_, Vec<_>>::new();
        for (index, workload) in workloads.iter().enumerate() {
            for owner in workload.metadata.owner_references.iter().flatten() {
                by_owner.entry(owner.uid.as_str()).or_default().push(index);
            }
        }
        let by_key =
            workloads.iter().enumerate().map(|(index, it)| (key(&it.metadata), index)).collect();
        Self { workloads, by_owner, by_key }
    }

    /// A member of a pod group has the Workload of its group, because the other groups of a
    /// LeaderWorkerSet have Workloads of the same owner. Every other pod has the Workloads of its
    /// owners (several for an elastic job) and the prebuilt ones that it or an owner names.
    pub(crate) fn of_pod(&self, chain: &Chain<'_>) -> BTreeSet<usize> {
        let Some(pod) = chain.pod() else { return BTreeSet::new() };
        let group = group(pod).filter(|_| is_managed(pod));
        let (uids, names): (&[&str], Vec<&str>) = match group {
            Some(group) => {
                (chain.uids.get(..1).unwrap_or_default(), vec![prebuilt(pod).unwrap_or(group)])
            }
            None => {
                (&chain.uids, chain.objects.iter().filter_map(|it| prebuilt(it.metadata)).collect())
            }
        };
        let owned = uids.iter().filter_map(|uid| self.by_owner.get(uid)).flatten().copied();
        let owned = owned.filter(|index| self.is_in(*index, key(pod).0));
        let named =
            names.into_iter().filter_map(|name| self.by_key.get(&(key(pod).0, name)).copied());
        owned.chain(named.filter(|index| self.is_free_for(*index, chain))).collect()
    }

    fn is_in(&self, index: usize, namespace: &str) -> bool {
        self.workloads.get(index).is_some_and(|workload| key(&workload.metadata).0 == namespace)
    }

    /// Whether a chain may use a Workload by name: no object outside the chain controls it.
    fn is_free_for(&self, index: usize, chain: &Chain<'_>) -> bool {
        let owner = self.workloads.get(index).and_then(|workload| controller(&workload.metadata));
        owner.is_none_or(|owner| chain.uids.contains(&owner.uid.as_str()))
    }
}

fn group(pod: &ObjectMeta) -> Option<&str> {
    let key = names::POD_GROUP_NAME;
    mark(&pod.annotations, key).or_else(|| mark(&pod.labels, key))
}
