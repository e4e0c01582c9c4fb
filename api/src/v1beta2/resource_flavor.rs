//! ResourceFlavor: a type of node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Taint, Toleration};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::schema;

/// Labels and taints of the nodes, and tolerations for pods.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "ResourceFlavor",
    doc = "ResourceFlavor is a kind of node that quota is given for.",
    shortname = "flavor",
    shortname = "flavors",
    shortname = "rf",
    derive = "PartialEq",
    derive = "Default"
)]
#[x_kube(
    validation = Rule::new("!has(self.topologyName) || self.nodeLabels.size() >= 1")
        .message("at least one nodeLabel is required when topology is set"),
    validation = Rule::new("!has(oldSelf.topologyName) || (has(self.nodeLabels) == has(oldSelf.nodeLabels) && (!has(self.nodeLabels) || self.nodeLabels == oldSelf.nodeLabels))")
        .message("nodeLabels are immutable when topologyName is set"),
    validation = Rule::new("!has(oldSelf.topologyName) || (has(self.tolerations) == has(oldSelf.tolerations) && (!has(self.tolerations) || self.tolerations == oldSelf.tolerations))")
        .message("tolerations are immutable when topologyName is set"),
    validation = Rule::new("!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)")
        .message("topologyName is immutable when topologyName is set")
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceFlavorSpec {
    /// Labels of the nodes. They are added to the node selector of pods that get this flavor.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::node_labels")]
    pub node_labels: BTreeMap<String, String>,
    /// Taints of the nodes, which workloads must tolerate to get this flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::taints")]
    pub node_taints: Vec<Taint>,
    /// Tolerations that pods with this flavor get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Vec<Toleration>,
    /// The Topology of the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub topology_name: Option<String>,
}
