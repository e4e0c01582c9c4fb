//! Descriptions of clusters and nodes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::nodes::{NodeImage, RealNode};

/// Annotation of a node: kwok does not make it ready.
pub const NOT_READY: &str = "e2e.switchyard.dev/not-ready";

/// A node, played by kwok.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    name: String,
    capacity: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    taints: Vec<Value>,
}

impl NodeSpec {
    /// A node with 32 CPUs, 128 GiB of memory, no GPU and room for 1000 pods.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let capacity =
            [("cpu", "32"), ("memory", "128Gi"), ("pods", "1000"), ("ephemeral-storage", "1Ti")];
        let labels = [("kubernetes.io/hostname", name.as_str()), ("kubernetes.io/os", "linux")];
        Self { labels: strings(labels), capacity: strings(capacity), taints: Vec::new(), name }
    }

    /// Sets a resource, as a Kubernetes quantity.
    #[must_use]
    pub fn resource(mut self, name: impl Into<String>, quantity: impl Into<String>) -> Self {
        self.capacity.insert(name.into(), quantity.into());
        self
    }

    /// CPUs.
    #[must_use]
    pub fn cpu(self, count: u32) -> Self {
        self.resource("cpu", count.to_string())
    }

    /// `nvidia.com/gpu`.
    #[must_use]
    pub fn gpu(self, count: u32) -> Self {
        self.resource("nvidia.com/gpu", count.to_string())
    }

    /// Memory, as a Kubernetes quantity.
    #[must_use]
    pub fn memory(self, quantity: &str) -> Self {
        self.resource("memory", quantity)
    }

    /// A label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// A taint, with an effect such as `NoSchedule`.
    #[must_use]
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.taints.push(json!({"key": key, "value": value, "effect": effect}));
        self
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn object(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": self.labels},
            "spec": {"taints": self.taints},
            "status": {"capacity": self.capacity, "allocatable": self.capacity},
        })
    }
}

/// A cluster: an API server, controllers, nodes, and the programs that the nodes need.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    pub(crate) name: String,
    pub(crate) nodes: Vec<NodeSpec>,
    pub(crate) real_node: Option<RealNode>,
    pub(crate) scheduler: bool,
    pub(crate) controllers: Vec<String>,
    pub(crate) shipped_limits: bool,
    pub(crate) audited: bool,
    pub(crate) api_server_args: Vec<String>,
    pub(crate) own_etcd: bool,
}

impl ClusterSpec {
    /// A cluster without nodes, scheduler and kwok, for a hub.
    pub fn new(name: impl Into<String>) -> Self {
        // Controllers that Jobs need: those of Jobs, garbage collection, namespaces and service accounts. Kueue's user roles
        // need the aggregation of cluster roles.
        let controllers = [
            "job-controller",
            "garbage-collector-controller",
            "serviceaccount-controller",
            "namespace-controller",
            "clusterrole-aggregation-controller",
        ];
        Self {
            name: name.into(),
            nodes: Vec::new(),
            real_node: None,
            scheduler: true,
            controllers: controllers.map(str::to_owned).to_vec(),
            shipped_limits: false,
            audited: false,
            api_server_args: Vec::new(),
            own_etcd: false,
        }
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a node. A cluster with nodes also gets kwok and kube-scheduler.
    #[must_use]
    pub fn node(mut self, node: NodeSpec) -> Self {
        self.nodes.push(node);
        self
    }

    /// Adds nodes.
    #[must_use]
    pub fn nodes(mut self, nodes: impl IntoIterator<Item = NodeSpec>) -> Self {
        self.nodes.extend(nodes);
        self
    }

    /// Adds a real node with these images, and the controllers and Services that its pods need. A cluster has either one real
    /// node or nodes that kwok plays. Needs [`crate::nodes::enter`].
    #[must_use]
    pub fn real_node(mut self, images: impl IntoIterator<Item = NodeImage>) -> Self {
        self.real_node = Some(RealNode::new(images.into_iter().collect()));
        for controller in [
            "deployment-controller",
            "disruption-controller",
            "endpointslice-controller",
            "replicaset-controller",
            "root-ca-certificate-publisher-controller",
        ] {
            self = self.controller(controller);
        }
        self
    }

    /// Whether pods can run.
    pub(crate) fn has_nodes(&self) -> bool {
        !self.nodes.is_empty() || self.real_node.is_some()
    }

    /// Leaves out kube-scheduler. Only pods with `spec.nodeName` run.
    #[must_use]
    pub fn without_scheduler(mut self) -> Self {
        self.scheduler = false;
        self
    }

    /// Adds a controller of kube-controller-manager, such as `deployment-controller`.
    #[must_use]
    pub fn controller(mut self, name: impl Into<String>) -> Self {
        self.controllers.push(name.into());
        self
    }

    /// Removes a default controller of kube-controller-manager, such as `job-controller`.
    #[must_use]
    pub fn without_controller(mut self, name: &str) -> Self {
        self.controllers.retain(|controller| controller != name);
        self
    }

    /// Keeps an audit log, from which [`crate::Cluster::requests_by`] counts the requests of a user. The log costs the API
    /// server some CPU.
    #[must_use]
    pub fn audited(mut self) -> Self {
        self.audited = true;
        self
    }

    /// Adds flags of the API server, such as `--max-requests-inflight=5000`.
    #[must_use]
    pub fn api_server_args<I: IntoIterator<Item = S>, S: Into<String>>(mut self, args: I) -> Self {
        self.api_server_args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Gives the cluster its own etcd, [`Part::Etcd`](crate::Part::Etcd), so that the etcd can fail alone.
    #[must_use]
    pub fn own_etcd(mut self) -> Self {
        self.own_etcd = true;
        self
    }

    /// Keeps the default client rate limits of controller-manager and scheduler (20 and 50 requests a second). Other clusters
    /// have higher ones, so that tests do not wait for them.
    #[must_use]
    pub fn shipped_limits(mut self) -> Self {
        self.shipped_limits = true;
        self
    }
}

fn strings<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}
