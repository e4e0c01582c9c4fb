//! Random pod templates, LimitRanges and RuntimeClasses, as JSON.

use serde_json::{Map, Value, json};

use switchyard_e2e::random::Random;

/// A resource, and amounts of it in ascending order.
struct Resource {
    name: &'static str,
    amounts: &'static [&'static str],
    /// Larger ones, for pods as a whole and for upper bounds.
    large: &'static [&'static str],
    /// In so many of a hundred containers.
    percent: u32,
}

impl Resource {
    /// Whether a request may be smaller than its limit.
    fn may_differ(&self) -> bool {
        matches!(self.name, "cpu" | "memory" | "ephemeral-storage")
    }

    /// Whether the pod as a whole may ask for it.
    fn is_of_pods(&self) -> bool {
        matches!(self.name, "cpu" | "memory" | "hugepages-2Mi")
    }
}

const RESOURCES: [Resource; 6] = [
    Resource {
        name: "cpu",
        amounts: &["0", "1n", "100u", "1500u", "100m", "250m", "0.5", "1", "1500m", "2e0"],
        large: &["2500m", "6", "20", "40"],
        percent: 60,
    },
    Resource {
        name: "memory",
        amounts: &["0", "1u", "100m", "1000", "100k", "64Mi", "128M", "1e9", "1.5Gi"],
        large: &["1Gi", "4Gi", "8Gi", "32G"],
        percent: 50,
    },
    Resource {
        name: "ephemeral-storage",
        amounts: &["0", "1300m", "1e6", "2500M", "4Gi"],
        large: &["1Gi", "1Ti"],
        percent: 15,
    },
    Resource {
        name: "example.com/gpu",
        amounts: &["0", "1", "2", "4"],
        large: &["2", "64"],
        percent: 15,
    },
    Resource { name: "example.com/nic", amounts: &["1", "3"], large: &["16"], percent: 7 },
    Resource {
        name: "hugepages-2Mi",
        amounts: &["2Mi", "4Mi", "8Mi"],
        large: &["8Mi", "64Mi"],
        percent: 10,
    },
];

/// RuntimeClasses with and without overhead.
pub(super) fn runtime_classes() -> Vec<Value> {
    let class = |name: &str, overhead: Option<Value>| {
        let mut class = json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "h",
        });
        if let Some(amounts) = overhead {
            class["overhead"] = json!({"podFixed": amounts});
        }
        class
    };
    vec![
        class("bare", None),
        class("empty", Some(json!({}))),
        class("light", Some(json!({"cpu": "100m", "memory": "64Mi"}))),
        class("fine", Some(json!({"cpu": "1500u", "memory": "1300m", "ephemeral-storage": "1Gi"}))),
        class(
            "device",
            Some(json!({"memory": "1Gi", "example.com/gpu": "1", "hugepages-2Mi": "2Mi"})),
        ),
    ]
}

const CLASSES: [&str; 6] = ["bare", "empty", "light", "fine", "device", "missing"];

/// The spec of a pod. Most are valid.
pub(super) fn pod_spec(random: &mut Random) -> Value {
    let containers = 1 + random.below(3);
    let mut spec = json!({"restartPolicy": "Never"});
    spec["containers"] =
        (0..containers).map(|number| container(random, &format!("c{number}"))).collect();
    if random.percent(45) {
        let count = 1 + random.below(3);
        let starting = |number| {
            let mut one = container(random, &format!("i{number}"));
            if random.percent(45) {
                one["restartPolicy"] = "Always".into();
            }
            one
        };
        spec["initContainers"] = (0..count).map(starting).collect();
    }
    if random.percent(35) {
        spec["resources"] = pod_resources(random);
    }
    if random.percent(35) {
        let classes = if random.percent(90) { &CLASSES[..5] } else { &CLASSES };
        spec["runtimeClassName"] = (*random.pick(classes)).into();
    }
    if random.percent(8) {
        let overheads = [
            json!({"cpu": "100m", "memory": "64Mi"}),
            json!({"cpu": "0.1", "memory": "65536Ki"}),
            json!({"cpu": "2"}),
            json!({}),
        ];
        spec["overhead"] = random.pick(&overheads).clone();
    }
    spec
}

fn container(random: &mut Random, name: &str) -> Value {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for resource in &RESOURCES {
        if random.percent(resource.percent) {
            ask(random, resource, resource.amounts, &mut requests, &mut limits);
        }
    }
    let mut container = json!({"name": name, "image": "i"});
    put(&mut container, requests, limits);
    container
}

fn pod_resources(random: &mut Random) -> Value {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for resource in RESOURCES.iter().filter(|resource| resource.is_of_pods()) {
        if random.percent(resource.percent) {
            ask(random, resource, resource.large, &mut requests, &mut limits);
        }
    }
    let mut holder = json!({"resources": {}});
    put(&mut holder, requests, limits);
    holder["resources"].take()
}

fn put(holder: &mut Value, requests: Map<String, Value>, limits: Map<String, Value>) {
    for (field, amounts) in [("requests", requests), ("limits", limits)] {
        if !amounts.is_empty() {
            holder["resources"][field] = amounts.into();
        }
    }
}

/// A request, a limit, or both, of which the request is rarely the larger.
fn ask(
    random: &mut Random,
    resource: &Resource,
    amounts: &[&str],
    requests: &mut Map<String, Value>,
    limits: &mut Map<String, Value>,
) {
    let (mut low, mut high) = sorted(random, amounts);
    if !resource.may_differ() {
        low = high;
    } else if random.percent(3) {
        std::mem::swap(&mut low, &mut high);
    }
    let form = random.below(100);
    let lone_request = if resource.may_differ() { 40 } else { 1 };
    if form < 70 {
        requests.insert(resource.name.to_owned(), amounts[low].into());
    }
    if form >= lone_request {
        limits.insert(resource.name.to_owned(), amounts[high].into());
    }
}

fn sorted(random: &mut Random, amounts: &[&str]) -> (usize, usize) {
    let count = u64::try_from(amounts.len()).unwrap();
    let mut one = || usize::try_from(random.below(count)).unwrap();
    let (first, second) = (one(), one());
    (first.min(second), first.max(second))
}

/// The LimitRanges of a namespace.
pub(super) fn limit_ranges(random: &mut Random, namespace: &str) -> Vec<Value> {
    let count = *random.pick(&[0, 1, 1, 1, 2, 2, 3]);
    let range = |number: u32| {
        let mut limits = Vec::new();
        if random.percent(80) {
            limits.push(of_containers(random));
        }
        if random.percent(25) {
            limits.push(of_pods(random));
        }
        json!({
            "apiVersion": "v1", "kind": "LimitRange",
            "metadata": {"name": format!("r{number}"), "namespace": namespace},
            "spec": {"limits": limits},
        })
    };
    (0..count).map(range).collect()
}

fn of_containers(random: &mut Random) -> Value {
    let mut item = json!({"type": "Container"});
    for resource in &RESOURCES {
        if !random.percent(resource.percent) {
            continue;
        }
        let (mut low, high) = sorted(random, resource.amounts);
        if !resource.may_differ() {
            low = high;
        }
        if random.percent(50) {
            item["defaultRequest"][resource.name] = resource.amounts[low].into();
        }
        if random.percent(40) {
            item["default"][resource.name] = resource.amounts[high].into();
        }
        if random.percent(10) {
            item["min"][resource.name] = resource.amounts[0].into();
        }
        if resource.may_differ() && random.percent(15) {
            item["max"][resource.name] = random.pick(&resource.large[1..]).to_owned().into();
        }
    }
    item
}

fn of_pods(random: &mut Random) -> Value {
    let mut item = json!({"type": "Pod"});
    for resource in &RESOURCES {
        if random.percent(resource.percent / 4) {
            item["min"][resource.name] = resource.amounts[0].into();
        }
        if random.percent(resource.percent / 4) {
            item["max"][resource.name] = (*random.pick(resource.large)).into();
        }
    }
    item
}

/// Writes some whole amounts as numbers, as users of CRDs may.
pub(super) fn write_numbers(random: &mut Random, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if let ("requests" | "limits" | "overhead", Value::Object(amounts)) =
                    (key.as_str(), &mut *value)
                {
                    for amount in amounts.values_mut().filter(|_| random.percent(50)) {
                        if let Some(number) =
                            amount.as_str().and_then(|text| text.parse::<u64>().ok())
                        {
                            *amount = number.into();
                        }
                    }
                } else {
                    write_numbers(random, value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| write_numbers(random, item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Has a pod, and its first container, claim devices.
pub(super) fn claim_devices(spec: &mut Value) {
    spec["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "one"}]);
    spec["containers"][0]["resources"]["claims"] = json!([{"name": "gpu"}]);
}
