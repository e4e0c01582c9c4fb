//! Pods for topology-aware scheduling: what other pods use of a node, and where placed pods go.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Pod, PodSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer};
use switchyard_api::names;
use switchyard_jobs::pod_requests::{RequestDefaults, pod_requests};
use switchyard_scheduler::{Amount, Name};

use switchyard_platform::store::{Change, Key};

/// Annotations that make a pod a placed one, whatever their value.
pub(crate) const PLACED_BY: [&str; 5] = [
    names::POD_SET_REQUIRED_TOPOLOGY,
    names::POD_SET_PREFERRED_TOPOLOGY,
    names::POD_SET_UNCONSTRAINED_TOPOLOGY,
    names::POD_SET_SLICE_REQUIRED_TOPOLOGY,
    names::POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS,
];

/// Annotations that are read from placed pods.
const KEPT: [&str; 3] = [names::WORKLOAD, names::WORKLOAD_SLICE_NAME, names::POD_INDEX_OFFSET];

/// The part of a pod that is kept. A cluster may have 100,000 pods, so other pods keep very little.
#[derive(Debug, Clone)]
pub struct PodRecord {
    metadata: ObjectMeta,
    kind: PodKind,
}

#[derive(Debug, Clone)]
enum PodKind {
    NonTas(NonTasUsage),
    Placed(Box<PlacedPod>),
}

/// A pod on a node that topology-aware scheduling did not place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NonTasUsage {
    pub(crate) node: Name,
    /// Shared by pods with equal requests.
    pub(crate) requests: Arc<Requests>,
}

pub(crate) type Requests = BTreeMap<Name, Amount>;

/// A pod that topology-aware scheduling places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PlacedPod {
    /// `None` until the pod is bound.
    pub(crate) node: Option<String>,
    pub(crate) node_selector: BTreeMap<String, String>,
    pub(crate) gates: Vec<String>,
    /// Its phase is `Pending`.
    pub(crate) pending: bool,
    /// It has succeeded or failed.
    pub(crate) ended: bool,
    requests: Arc<Requests>,
}

impl PlacedPod {
    pub(crate) fn is_gated(&self) -> bool {
        self.gates.iter().any(|gate| gate == names::TOPOLOGY_SCHEDULING_GATE)
    }
}

/// Reads the pod in the API server's answer to a write.
impl<'de> Deserialize<'de> for PodRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pod = Pod::deserialize(deserializer)?;
        let deleted = Self::deleted(&pod);
        Ok(Self::of(pod, &InternedRequests::default()).unwrap_or(deleted))
    }
}

impl Resource for PodRecord {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl PodRecord {
    /// `None` for a pod that uses nothing and waits for no domain.
    pub(crate) fn of(pod: Pod, interned: &InternedRequests) -> Option<Self> {
        let annotations = pod.metadata.annotations.as_ref();
        let placed =
            annotations.is_some_and(|all| PLACED_BY.iter().any(|key| all.contains_key(*key)));
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let ended = matches!(phase, Some("Succeeded" | "Failed"));
        let pending = phase == Some("Pending");
        let spec = pod.spec.unwrap_or_default();
        if !placed {
            let node = spec.node_name.as_deref().filter(|node| !node.is_empty() && !ended)?;
            let kind = PodKind::NonTas(NonTasUsage {
                node: Name::from(node),
                requests: interned.shared(requests(&spec)),
            });
            return Some(Self { metadata: identity(pod.metadata), kind });
        }
        let requests = interned.shared(requests(&spec));
        let kind = PlacedPod {
            gates: spec.scheduling_gates.into_iter().flatten().map(|gate| gate.name).collect(),
            node: spec.node_name.filter(|node| !node.is_empty()),
            node_selector: spec.node_selector.unwrap_or_default(),
            pending,
            ended,
            requests,
        };
        let labels = pod.metadata.labels.clone();
        let deletion_timestamp = pod.metadata.deletion_timestamp.clone();
        let kept = annotations.map(|all| {
            let kept = all.iter().filter(|(key, _)| KEPT.contains(&key.as_str()));
            kept.map(|(key, value)| (key.clone(), value.clone())).collect()
        });
        let metadata =
            ObjectMeta { labels, annotations: kept, deletion_timestamp, ..identity(pod.metadata) };
        Some(Self { metadata, kind: PodKind::Placed(Box::new(kind)) })
    }

    /// A deleted pod: only its identity.
    pub(crate) fn deleted(pod: &Pod) -> Self {
        Self { metadata: identity(pod.metadata.clone()), kind: PodKind::Placed(Box::default()) }
    }

    pub(crate) fn placed(&self) -> Option<&PlacedPod> {
        match &self.kind {
            PodKind::Placed(placed) => Some(placed),
            PodKind::NonTas(_) => None,
        }
    }

    /// The usage to charge outside of workloads' assignments. `is_level`: whether a label is that
    /// of a topology level. A pod that requests a topology without a selector for a level was
    /// started before the Topology existed.
    pub(crate) fn outside(&self, is_level: impl Fn(&str) -> bool) -> Option<NonTasUsage> {
        match &self.kind {
            PodKind::NonTas(outside) => Some(outside.clone()),
            PodKind::Placed(placed)
                if placed.ended || placed.node_selector.keys().any(|key| is_level(key)) =>
            {
                None
            }
            PodKind::Placed(placed) => {
                let node = Name::from(placed.node.as_deref()?);
                Some(NonTasUsage { node, requests: placed.requests.clone() })
            }
        }
    }

    /// The node that has the pod, and what the pod requests of it.
    pub(crate) fn usage(&self) -> Option<(&str, &Requests)> {
        match &self.kind {
            PodKind::NonTas(usage) => Some((&usage.node, &usage.requests)),
            PodKind::Placed(placed) if placed.ended => None,
            PodKind::Placed(placed) => Some((placed.node.as_deref()?, &placed.requests)),
        }
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// An annotation, if it is one of [`KEPT`].
    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The pod's Workload, or for an elastic job its first one.
    pub(crate) fn chain(&self) -> Option<Key> {
        let name = self
            .annotation(names::WORKLOAD_SLICE_NAME)
            .or_else(|| self.annotation(names::WORKLOAD))?;
        Some(Key::new(self.metadata.namespace.as_deref().unwrap_or_default(), name))
    }

    pub(crate) fn pod_set(&self) -> &str {
        self.label(names::POD_SET).unwrap_or_default()
    }
}

/// An invalid pod cannot exist; one with fields of a later Kubernetes counts as using nothing.
fn requests(spec: &PodSpec) -> Requests {
    let defaults =
        RequestDefaults { overhead: spec.overhead.clone(), ..RequestDefaults::default() };
    let requests = pod_requests(spec, &defaults).unwrap_or_default();
    requests.into_iter().map(|(name, amount)| (Name::from(name), Amount::new(amount))).collect()
}

fn identity(metadata: ObjectMeta) -> ObjectMeta {
    let ObjectMeta { name, namespace, uid, resource_version, .. } = metadata;
    ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() }
}

/// Interns requests, so that pods with equal ones share them.
#[derive(Debug, Default)]
pub(crate) struct InternedRequests(Mutex<Interned>);

#[derive(Debug, Default)]
struct Interned {
    interned: BTreeSet<Arc<Requests>>,
    /// Number in use at the last cleanup.
    used: usize,
}

/// Interned requests below this count are never cleaned up.
const MIN_CLEANUP: usize = 1_000;

impl InternedRequests {
    fn shared(&self, requests: Requests) -> Arc<Requests> {
        let mut known = self.0.lock();
        if let Some(shape) = known.interned.get(&requests) {
            return shape.clone();
        }
        if known.interned.len() >= MIN_CLEANUP.max(known.used.saturating_mul(2)) {
            known.interned.retain(|shape| Arc::strong_count(shape) > 1);
            known.used = known.interned.len();
        }
        let new = Arc::new(requests);
        known.interned.insert(new.clone());
        new
    }
}

/// Whether a change affects what other pods use.
pub(crate) fn changes_usage(change: &Change<PodRecord>) -> bool {
    // A pod with a level selector uses nothing; to report that twice is harmless.
    let of = |record: &Option<Arc<PodRecord>>| {
        record.as_ref().and_then(|record| record.outside(|_| false))
    };
    of(&change.old) != of(&change.new)
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use switchyard_jobs::apply_merge;

    use super::*;

    /// A pod with a merge patch applied.
    pub(crate) fn pod(change: &Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "labels": {"l": "v"}, "annotations": {"x": "y"}},
            "spec": {
                "nodeName": "n1",
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}],
            },
            "status": {"phase": "Running"},
        });
        apply_merge(&mut pod, change);
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn placed_pod_keeps_selector_gates_and_workload() {
        let record = PodRecord::of(
            pod(&json!({
                "metadata": {"annotations": {names::POD_SET_REQUIRED_TOPOLOGY: "rack", names::WORKLOAD: "w"}},
                "spec": {
                    "nodeName": "",
                    "nodeSelector": {"rack": "r1"},
                    "schedulingGates": [{"name": names::TOPOLOGY_SCHEDULING_GATE}],
                },
                "status": {"phase": "Pending"},
            })),
            &InternedRequests::default(),
        )
        .unwrap();
        let expected = PlacedPod {
            node: None,
            node_selector: BTreeMap::from([("rack".into(), "r1".into())]),
            gates: vec![names::TOPOLOGY_SCHEDULING_GATE.into()],
            pending: true,
            ended: false,
            requests: Arc::new(BTreeMap::from([("cpu".into(), Amount::new(500))])),
        };
        assert_eq!(record.placed(), Some(&expected));
        assert_eq!((record.label("l"), record.annotation("x")), (Some("v"), None));
        assert_eq!(record.chain(), Some(Key::new("ns", "w")));
    }

    #[test]
    fn equal_requests_are_shared_and_unused_ones_dropped() {
        let interned = InternedRequests::default();
        let ask = |cpu: i64| interned.shared(BTreeMap::from([("cpu".into(), Amount::new(cpu))]));
        let kept = ask(1);
        assert!(Arc::ptr_eq(&kept, &ask(1)));
        for cpu in 0..5 * i64::try_from(MIN_CLEANUP).unwrap() {
            ask(cpu);
        }
        assert!(interned.0.lock().interned.len() <= MIN_CLEANUP);
        assert!(Arc::ptr_eq(&kept, &ask(1)));
    }
}
