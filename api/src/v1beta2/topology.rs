//! Topology: the levels of nearness between nodes.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// The levels, the widest first.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "Topology",
    plural = "topologies",
    doc = "Topology names the node labels that tell how near nodes are to each other.",
    shortname = "topo",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpec {
    /// The levels, the widest first. Immutable.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    #[x_kube(
        validation = Rule::new("self == oldSelf").message("field is immutable"),
        validation = Rule::new("size(self.filter(i, size(self.filter(j, j == i)) > 1)) == 0").message("must be unique"),
        validation = Rule::new("size(self.filter(i, i.nodeLabel == 'kubernetes.io/hostname')) == 0 || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'")
            .message("the kubernetes.io/hostname label can only be used at the lowest level of topology")
    )]
    pub levels: Vec<TopologyLevel>,
}

/// One level.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    /// The node label. Nodes with equal values are in the same domain.
    #[schemars(length(min = 1, max = 316), regex(pattern = schema::LABEL_KEY))]
    pub node_label: String,
}
