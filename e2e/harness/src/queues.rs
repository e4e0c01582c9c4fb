//! Kueue's objects for tests, as JSON, so that tests of the API do not depend on the types of `switchyard-api`.

use serde_json::{Value, json};

const API: &str = "kueue.x-k8s.io/v1beta2";

fn object(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({"apiVersion": API, "kind": kind, "metadata": {"name": name}});
    object["spec"] = spec;
    object
}

/// A ResourceFlavor.
#[derive(Clone, Debug)]
pub struct ResourceFlavor(Value);

impl ResourceFlavor {
    /// A flavor without labels.
    pub fn new(name: &str) -> Self {
        Self(object("ResourceFlavor", name, json!({})))
    }

    /// A label of its nodes.
    #[must_use]
    pub fn node_label(mut self, key: &str, value: &str) -> Self {
        self.0["spec"]["nodeLabels"][key] = value.into();
        self
    }

    /// A `NoSchedule` taint of its nodes.
    #[must_use]
    pub fn node_taint(mut self, key: &str, value: &str) -> Self {
        push(
            &mut self.0["spec"]["nodeTaints"],
            json!({"key": key, "value": value, "effect": "NoSchedule"}),
        );
        self
    }

    /// A toleration that admitted pods get.
    #[must_use]
    pub fn toleration(mut self, key: &str, value: &str) -> Self {
        let toleration =
            json!({"key": key, "value": value, "operator": "Equal", "effect": "NoSchedule"});
        push(&mut self.0["spec"]["tolerations"], toleration);
        self
    }

    /// The object.
    pub fn build(self) -> Value {
        self.0
    }
}

/// A ClusterQueue that takes workloads from all namespaces.
#[derive(Clone, Debug)]
pub struct ClusterQueue(Value);

impl ClusterQueue {
    /// A queue without quota.
    pub fn new(name: &str) -> Self {
        Self(object("ClusterQueue", name, json!({"namespaceSelector": {}})))
    }

    /// A resource group with one flavor: `("cpu", "8")` pairs of resources and nominal quota.
    #[must_use]
    pub fn group(self, flavor: &str, quota: &[(&str, &str)]) -> Self {
        self.flavors(&[(flavor, quota)])
    }

    /// A resource group with several flavors, tried in order. All have the same resources.
    #[must_use]
    pub fn flavors(mut self, flavors: &[(&str, &[(&str, &str)])]) -> Self {
        push(&mut self.0["spec"]["resourceGroups"], group(flavors));
        self
    }

    /// Sets borrowing and lending limit of a resource in the last flavor. Needs a cohort.
    #[must_use]
    pub fn limits(
        mut self,
        resource: &str,
        borrowing: Option<&str>,
        lending: Option<&str>,
    ) -> Self {
        limit(&mut self.0, resource, borrowing, lending);
        self
    }

    /// Sets its weight in fair sharing.
    #[must_use]
    pub fn weight(self, weight: &str) -> Self {
        self.field("fairSharing", json!({"weight": weight}))
    }

    /// `withinClusterQueue` and `reclaimWithinCohort`.
    #[must_use]
    pub fn preemption(self, within: &str, reclaim: &str) -> Self {
        self.field(
            "preemption",
            json!({"withinClusterQueue": within, "reclaimWithinCohort": reclaim}),
        )
    }

    /// Sets its cohort.
    #[must_use]
    pub fn cohort(self, name: &str) -> Self {
        self.field("cohortName", name.into())
    }

    /// Sets `StrictFIFO` instead of `BestEffortFIFO`.
    #[must_use]
    pub fn strict_fifo(self) -> Self {
        self.field("queueingStrategy", "StrictFIFO".into())
    }

    /// `None`, `Hold` or `HoldAndDrain`.
    #[must_use]
    pub fn stop_policy(self, policy: &str) -> Self {
        self.field("stopPolicy", policy.into())
    }

    /// Adds an AdmissionCheck for all its workloads.
    #[must_use]
    pub fn admission_check(mut self, name: &str) -> Self {
        push(
            &mut self.0["spec"]["admissionChecksStrategy"]["admissionChecks"],
            json!({"name": name}),
        );
        self
    }

    /// Any field of the spec.
    #[must_use]
    pub fn field(mut self, name: &str, value: Value) -> Self {
        self.0["spec"][name] = value;
        self
    }

    /// The object.
    pub fn build(self) -> Value {
        self.0
    }
}

/// A Cohort.
#[derive(Clone, Debug)]
pub struct Cohort(Value);

impl Cohort {
    /// A cohort without quota of its own.
    pub fn new(name: &str) -> Self {
        Self(object("Cohort", name, json!({})))
    }

    /// The cohort above it.
    #[must_use]
    pub fn parent(mut self, name: &str) -> Self {
        self.0["spec"]["parentName"] = name.into();
        self
    }

    /// A resource group with one flavor: `("cpu", "8")` pairs of resources and nominal quota.
    #[must_use]
    pub fn group(mut self, flavor: &str, quota: &[(&str, &str)]) -> Self {
        push(&mut self.0["spec"]["resourceGroups"], group(&[(flavor, quota)]));
        self
    }

    /// Sets borrowing and lending limit of a resource in the last flavor. Needs a parent.
    #[must_use]
    pub fn limits(
        mut self,
        resource: &str,
        borrowing: Option<&str>,
        lending: Option<&str>,
    ) -> Self {
        limit(&mut self.0, resource, borrowing, lending);
        self
    }

    /// The object.
    pub fn build(self) -> Value {
        self.0
    }
}

fn group(flavors: &[(&str, &[(&str, &str)])]) -> Value {
    let resources = |quota: &[(&str, &str)]| -> Vec<Value> {
        quota.iter().map(|(name, amount)| json!({"name": name, "nominalQuota": amount})).collect()
    };
    let covered: Vec<&str> =
        flavors.iter().take(1).flat_map(|(_, quota)| quota.iter()).map(|(name, _)| *name).collect();
    let flavors: Vec<Value> = flavors
        .iter()
        .map(|(name, quota)| json!({"name": name, "resources": resources(quota)}))
        .collect();
    json!({"coveredResources": covered, "flavors": flavors})
}

fn limit(object: &mut Value, resource: &str, borrowing: Option<&str>, lending: Option<&str>) {
    let last = |list: &'_ mut Value| list.as_array_mut().and_then(|items| items.pop());
    let groups = &mut object["spec"]["resourceGroups"];
    let Some(mut group) = last(groups) else { return };
    if let Some(mut flavor) = last(&mut group["flavors"]) {
        for quota in flavor["resources"]
            .as_array_mut()
            .into_iter()
            .flatten()
            .filter(|quota| quota["name"] == resource)
        {
            for (field, amount) in [("borrowingLimit", borrowing), ("lendingLimit", lending)] {
                if let Some(amount) = amount {
                    quota[field] = amount.into();
                }
            }
        }
        push(&mut group["flavors"], flavor);
    }
    push(groups, group);
}

/// A LocalQueue that leads to a ClusterQueue.
pub fn local_queue(namespace: &str, name: &str, cluster_queue: &str) -> Value {
    let mut queue = object("LocalQueue", name, json!({"clusterQueue": cluster_queue}));
    queue["metadata"]["namespace"] = namespace.into();
    queue
}

/// A WorkloadPriorityClass.
pub fn priority_class(name: &str, value: i32) -> Value {
    json!({"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value})
}

/// A MultiKueueCluster with an agent.
pub fn agent_cluster(name: &str) -> Value {
    object("MultiKueueCluster", name, json!({"clusterSource": {"agent": {}}}))
}

/// A MultiKueueCluster reached by a kubeconfig in a Secret of the hub's namespace (key `kubeconfig`).
pub fn kubeconfig_cluster(name: &str, secret: &str) -> Value {
    let source = json!({"kubeConfig": {"locationType": "Secret", "location": secret}});
    object("MultiKueueCluster", name, json!({"clusterSource": source}))
}

/// A MultiKueueCluster reached by a ClusterProfile in the hub's namespace.
pub fn profile_cluster(name: &str, profile: &str) -> Value {
    object(
        "MultiKueueCluster",
        name,
        json!({"clusterSource": {"clusterProfileRef": {"name": profile}}}),
    )
}

/// A Secret with a worker's kubeconfig.
pub fn kubeconfig_secret(namespace: &str, name: &str, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": namespace, "name": name},
        "stringData": {"kubeconfig": kubeconfig},
    })
}

/// The AdmissionCheck of MultiKueue and its MultiKueueConfig, both of this name, for these clusters.
pub fn multikueue(name: &str, clusters: &[&str]) -> Vec<Value> {
    let parameters =
        json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": name});
    let check = json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters});
    vec![
        object("MultiKueueConfig", name, json!({"clusters": clusters})),
        object("AdmissionCheck", name, check),
    ]
}

/// An AdmissionCheck whose controller is the test itself.
pub fn admission_check(name: &str) -> Value {
    object("AdmissionCheck", name, json!({"controllerName": "example.com/check"}))
}

/// The smallest set of objects that admits Jobs: a flavor, a ClusterQueue with all its quota on it, and a LocalQueue `queue` in
/// the namespace. ClusterQueue and flavor get the name `name`.
pub fn simple(namespace: &str, name: &str, quota: &[(&str, &str)]) -> Vec<Value> {
    in_flavor(namespace, name, ResourceFlavor::new(name), quota)
}

/// The same with a flavor of this name that has more than a name.
pub fn in_flavor(
    namespace: &str,
    name: &str,
    flavor: ResourceFlavor,
    quota: &[(&str, &str)],
) -> Vec<Value> {
    vec![
        flavor.build(),
        ClusterQueue::new(name).group(name, quota).build(),
        local_queue(namespace, "queue", name),
    ]
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(items) => items.push(item),
        None => *list = json!([item]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_queue_is_what_kueue_reads() {
        let queue = ClusterQueue::new("cq")
            .flavors(&[
                ("a", &[("cpu", "4"), ("nvidia.com/gpu", "2")]),
                ("b", &[("cpu", "8"), ("nvidia.com/gpu", "0")]),
            ])
            .admission_check("mk")
            .strict_fifo()
            .build();
        let group = &queue["spec"]["resourceGroups"][0];
        assert_eq!(group["coveredResources"], json!(["cpu", "nvidia.com/gpu"]));
        assert_eq!(
            group["flavors"][1]["resources"][0],
            json!({"name": "cpu", "nominalQuota": "8"})
        );
        assert_eq!(
            queue["spec"]["admissionChecksStrategy"]["admissionChecks"],
            json!([{"name": "mk"}])
        );
        assert_eq!(queue["spec"]["queueingStrategy"], "StrictFIFO");
    }

    #[test]
    fn limits_are_those_of_the_last_flavor() {
        let cohort = Cohort::new("team")
            .parent("org")
            .group("a", &[("cpu", "4")])
            .group("b", &[("cpu", "2")]);
        let cohort = cohort.limits("cpu", Some("1"), None).build();
        let quota =
            |group: usize| &cohort["spec"]["resourceGroups"][group]["flavors"][0]["resources"][0];
        assert_eq!(*quota(0), json!({"name": "cpu", "nominalQuota": "4"}));
        assert_eq!(*quota(1), json!({"name": "cpu", "nominalQuota": "2", "borrowingLimit": "1"}));
        assert_eq!(cohort["spec"]["parentName"], "org");
    }
}
