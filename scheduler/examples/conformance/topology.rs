//! Topologies, nodes and pods of scenarios, and their edits.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use switchyard_scheduler::{
    Amount, CapacityLeaf, DelayedTopology, Event, Name, NodeSelectorTerm, NonTasPod, Operator,
    PodSetUpdate, Requirement, SliceLayer, TopologyGates, TopologyRequest,
};

use crate::objects::{Read, int32, labels, list, name, taints, text, tolerations};
use crate::play::Player;
use crate::quantity;

/// The nodes of a scenario, and the objects that they belong to.
#[derive(Default)]
pub(crate) struct Nodes {
    nodes: BTreeMap<String, Value>,
    /// The levels of Topologies.
    topologies: BTreeMap<String, Vec<String>>,
    /// ResourceFlavors with a topology.
    flavors: BTreeMap<String, Value>,
}

/// The gates of topology-aware scheduling; `None` for scenarios without topologies.
pub(crate) fn gates(scenario: &Value) -> Option<TopologyGates> {
    let gates = &scenario["gates"];
    let default = TopologyGates::default();
    let gate = |name: &str, default: bool| gates[name].as_bool().unwrap_or(default);
    scenario["topologies"].as_array().map(|_| TopologyGates {
        mixed_profile: gate("TASProfileMixed", default.mixed_profile),
        fail_fast: gate("TASFailedNodeReplacementFailFast", default.fail_fast),
        keep_single_pods: gate("SkipReassignmentForPodOwnedWorkloads", default.keep_single_pods),
        overlapping_flavors: gate("TASHandleOverlappingFlavors", default.overlapping_flavors),
        recompute: gate("TASRecomputeAssignmentWithinSchedulingCycle", default.recompute),
        balanced: gate("TASBalancedPlacement", default.balanced),
        elastic: gate("ElasticJobsViaWorkloadSlicesWithTAS", default.elastic),
    })
}

pub(crate) fn request(value: &Value) -> Read<Option<Box<TopologyRequest>>> {
    if value.is_null() {
        return Ok(None);
    }
    let named = |key: &str| value[key].as_str().map(Name::from);
    let number = |value: &Value| if value.is_null() { Ok(None) } else { int32(value).map(Some) };
    let layer = |layer: &Value| {
        Ok(SliceLayer { topology: text(&layer["topology"])?.into(), size: int32(&layer["size"])? })
    };
    Ok(Some(Box::new(TopologyRequest {
        required: named("required"),
        preferred: named("preferred"),
        unconstrained: value["unconstrained"].as_bool(),
        slice_topology: named("podSetSliceRequiredTopology"),
        slice_size: number(&value["podSetSliceSize"])?,
        slice_layers: list(&value["podsetSliceRequiredTopologyConstraints"])
            .iter()
            .map(layer)
            .collect::<Read<_>>()?,
        group: named("podSetGroupName"),
        pod_index_label: named("podIndexLabel"),
        sub_group_index_label: named("subGroupIndexLabel"),
        sub_group_count: number(&value["subGroupCount"])?,
    })))
}

/// Required node affinity.
pub(crate) fn affinity(pod: &Value) -> Read<Vec<NodeSelectorTerm>> {
    let required =
        &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let requirement = |value: &Value| -> Read<Requirement> {
        Ok(Requirement {
            key: text(&value["key"])?.to_owned(),
            operator: match text(&value["operator"])? {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                "Gt" => Operator::Gt,
                "Lt" => Operator::Lt,
                other => return Err(format!("unknown operator {other}")),
            },
            values: list(&value["values"])
                .iter()
                .map(|value| text(value).map(str::to_owned))
                .collect::<Read<_>>()?,
        })
    };
    let all = |value: &Value| list(value).iter().map(requirement).collect::<Read<Vec<_>>>();
    let term = |term: &Value| {
        Ok(NodeSelectorTerm {
            match_expressions: all(&term["matchExpressions"])?,
            match_fields: all(&term["matchFields"])?,
        })
    };
    list(&required["nodeSelectorTerms"]).iter().map(term).collect()
}

/// The requests of a pod: the sum of its containers or the maximum of its init containers, plus
/// overhead.
pub(crate) fn pod_requests(pod: &Value) -> Read<BTreeMap<Name, Amount>> {
    let amounts = |value: &Value| -> Read<BTreeMap<Name, Amount>> {
        let all = value.as_object().into_iter().flatten();
        all.map(|(name, amount)| Ok((name.as_str().into(), quantity::amount(name, text(amount)?)?)))
            .collect()
    };
    let mut sum: BTreeMap<Name, Amount> = BTreeMap::new();
    let add = |sum: &mut BTreeMap<Name, Amount>, more: BTreeMap<Name, Amount>| {
        for (name, amount) in more {
            let known = sum.entry(name).or_default();
            *known = *known + amount;
        }
    };
    for container in list(&pod["containers"]) {
        add(&mut sum, amounts(&container["resources"]["requests"])?);
    }
    for container in list(&pod["initContainers"]) {
        for (name, amount) in amounts(&container["resources"]["requests"])? {
            let known = sum.entry(name).or_default();
            *known = (*known).max(amount);
        }
    }
    add(&mut sum, amounts(&pod["overhead"])?);
    Ok(sum)
}

/// The usage of a pod outside topology-aware scheduling; `None` if it uses no capacity.
fn non_tas_pod(pod: &Value) -> Read<Option<NonTasPod>> {
    let annotations = pod["metadata"]["annotations"].as_object().into_iter().flatten();
    let placed = [
        "kueue.x-k8s.io/podset-required-topology",
        "kueue.x-k8s.io/podset-preferred-topology",
        "kueue.x-k8s.io/podset-unconstrained-topology",
        "kueue.x-k8s.io/podset-slice-required-topology",
        "kueue.x-k8s.io/podset-slice-required-topology-constraints",
    ];
    let is_placed = annotations.into_iter().any(|(key, _)| placed.contains(&key.as_str()));
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let Some(node) =
        pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty() && !ended && !is_placed)
    else {
        return Ok(None);
    };
    Ok(Some(NonTasPod { key: key(pod)?, leaf: node.into(), requests: pod_requests(&pod["spec"])? }))
}

fn key(pod: &Value) -> Read<Name> {
    Ok(format!("{}/{}", pod["metadata"]["namespace"].as_str().unwrap_or_default(), name(pod)?)
        .into())
}

/// The leaf of a node; `None` if the node takes no pods.
fn leaf(node: &Value) -> Read<Option<CapacityLeaf>> {
    let is_ready =
        |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    let ready = list(&node["status"]["conditions"]).iter().any(is_ready);
    if !ready || node["spec"]["unschedulable"] == true {
        return Ok(None);
    }
    let allocatable = node["status"]["allocatable"].as_object().into_iter().flatten();
    Ok(Some(CapacityLeaf {
        name: name(node)?,
        labels: labels(&node["metadata"]["labels"])?,
        taints: taints(&node["spec"]["taints"])?,
        capacity: allocatable
            .map(|(name, amount)| {
                Ok((name.as_str().into(), quantity::amount(name, text(amount)?)?))
            })
            .collect::<Read<_>>()?,
    }))
}

/// The parts of a node whose change may admit workloads.
fn relevant_parts(node: &Value) -> Value {
    let conditions: BTreeMap<_, _> = (list(&node["status"]["conditions"]).iter())
        .map(|condition| (condition["type"].to_string(), condition["status"].clone()))
        .collect();
    json!([
        node["spec"]["unschedulable"] == true,
        node["status"]["allocatable"],
        node["metadata"]["labels"],
        node["metadata"]["annotations"],
        node["spec"]["taints"],
        conditions
    ])
}

/// `podSetUpdates` of checks that are Ready.
pub(crate) fn updates(value: &Value) -> Read<Vec<PodSetUpdate>> {
    let update = |update: &Value| {
        Ok(PodSetUpdate {
            pod_set: text(&update["name"])?.into(),
            node_selector: labels(&update["nodeSelector"])?,
            tolerations: tolerations(&update["tolerations"])?,
        })
    };
    list(value).iter().map(update).collect()
}

impl Nodes {
    fn belongs(&self, node: &Value) -> bool {
        let labels = &node["metadata"]["labels"];
        self.flavors.values().any(|flavor| {
            let levels =
                flavor["spec"]["topologyName"].as_str().and_then(|name| self.topologies.get(name));
            let selector = flavor["spec"]["nodeLabels"].as_object();
            levels.is_some_and(|levels| levels.iter().all(|level| labels[level].is_string()))
                && selector.into_iter().flatten().all(|(key, value)| labels[key] == *value)
        })
    }
}

impl Player {
    pub(crate) fn set_up_topologies(&mut self, scenario: &Value) -> Read<()> {
        for object in list(&scenario["topologies"]) {
            self.put_topology(object)?;
        }
        for object in list(&scenario["resourceFlavors"]) {
            self.note_flavor(object)?;
        }
        for node in list(&scenario["nodes"]) {
            self.put_node(node)?;
        }
        for pod in list(&scenario["pods"]) {
            self.put_pod(pod)?;
        }
        Ok(())
    }

    pub(crate) fn put_topology(&mut self, object: &Value) -> Read<()> {
        let levels = list(&object["spec"]["levels"]).iter().map(|level| text(&level["nodeLabel"]));
        let levels = levels.collect::<Read<Vec<_>>>()?;
        let topology = name(object)?;
        self.nodes
            .topologies
            .insert(topology.to_string(), levels.iter().map(|level| (*level).to_owned()).collect());
        self.apply(Event::Topology {
            name: topology,
            levels: levels.into_iter().map(Name::from).collect(),
        });
        Ok(())
    }

    pub(crate) fn note_flavor(&mut self, object: &Value) -> Read<()> {
        if object["spec"]["topologyName"].is_string() {
            self.nodes.flavors.insert(name(object)?.to_string(), object.clone());
        }
        Ok(())
    }

    /// Edits of nodes, pods and failed nodes.
    pub(crate) fn edit_nodes(&mut self, step: &Value) -> Read<()> {
        for node in list(&step["nodes"]) {
            let old = self.nodes.nodes.get(&*name(node)?).cloned();
            self.put_node(node)?;
            let changed =
                old.as_ref().is_none_or(|old| relevant_parts(old) != relevant_parts(node));
            if changed
                && (self.nodes.belongs(node) || old.is_some_and(|old| self.nodes.belongs(&old)))
            {
                self.retry_all();
            }
        }
        for node in list(&step["deleteNodes"]).iter().filter_map(Value::as_str) {
            self.apply(Event::CapacityLeafDeleted { name: node.into() });
            if self.nodes.nodes.remove(node).is_some_and(|old| self.nodes.belongs(&old)) {
                self.retry_all();
            }
        }
        for pod in list(&step["pods"]) {
            self.put_pod(pod)?;
        }
        for pod in list(&step["deletePods"]).iter().filter_map(Value::as_str) {
            self.apply(Event::NonTasPodDeleted { key: pod.into() });
        }
        for (workload, nodes) in step["unhealthy"].as_object().into_iter().flatten() {
            if self.reserved.contains_key(workload) {
                let nodes = list(nodes).iter().filter_map(Value::as_str).map(Name::from).collect();
                self.change(workload, |workload| workload.unhealthy_nodes = nodes);
            }
        }
        Ok(())
    }

    fn put_node(&mut self, node: &Value) -> Read<()> {
        let event = match leaf(node)? {
            Some(leaf) => Event::CapacityLeaf(Box::new(leaf)),
            None => Event::CapacityLeafDeleted { name: name(node)? },
        };
        self.nodes.nodes.insert(name(node)?.to_string(), node.clone());
        self.apply(event);
        Ok(())
    }

    fn put_pod(&mut self, pod: &Value) -> Read<()> {
        let event = match non_tas_pod(pod)? {
            Some(pod) => Event::NonTasPod(Box::new(pod)),
            None => Event::NonTasPodDeleted { key: key(pod)? },
        };
        self.apply(event);
        Ok(())
    }

    /// For Kueue's queues, each change of a node is an event, even of one that takes no pods.
    fn retry_all(&mut self) {
        let names: Vec<Name> =
            self.cluster_queues.keys().map(|name| name.as_str().into()).collect();
        for cluster_queue in names {
            self.apply(Event::RetryAll { cluster_queue });
        }
    }

    /// The part of a check besides its state: `podSetUpdates`, and placement by another cluster.
    pub(crate) fn note_check(&mut self, workload: &str, answers: &Value) -> Read<()> {
        for (check, answer) in answers.as_object().into_iter().flatten() {
            if answer["placed"] == true
                && let Some(admission) = self.reserved.get_mut(workload)
            {
                for pod_set in &mut admission.pod_sets {
                    pod_set.delayed = pod_set.delayed.map(|_| DelayedTopology::Ready);
                }
                let admission = admission.clone();
                if let Some(workload) = self.workloads.get_mut(workload) {
                    workload.reservation = Some(admission);
                }
            }
            let of_check = updates(&answer["podSetUpdates"])?;
            self.updates.entry(workload.to_owned()).or_default().insert(check.clone(), of_check);
        }
        Ok(())
    }

    /// Only checks that are Ready count.
    pub(crate) fn collect_updates(&mut self, name: &str) {
        let Some(workload) = self.workloads.get_mut(name) else { return };
        let ready = workload
            .checks
            .iter()
            .filter(|check| check.state == switchyard_scheduler::CheckPhase::Ready);
        let of_checks = self.updates.get(name);
        let updates =
            ready.filter_map(|check| of_checks?.get(&*check.name)).flatten().cloned().collect();
        workload.pod_set_updates = updates;
    }
}

/// Whether placement follows the reservation and has not happened yet.
pub(crate) fn is_pending(admission: &switchyard_scheduler::Admission) -> bool {
    let pending = |given: &switchyard_scheduler::PodSetAssignment| {
        given.topology.is_none() && given.delayed == Some(DelayedTopology::Pending)
    };
    admission.pod_sets.iter().any(pending)
}
