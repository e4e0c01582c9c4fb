//! Generates flavors, cohorts, queues, checks and workloads.

use rand::Rng;
use rand::seq::SliceRandom;
use serde_json::{Value, json};

use super::{About, Draft};

const API: &str = "kueue.x-k8s.io/v1beta2";
const GPU: &str = "nvidia.com/gpu";

/// `metadata.namespace/metadata.name`.
pub(super) fn key(object: &Value) -> String {
    let of = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", of("namespace"), of("name"))
}

/// The namespace of a queue. `mine`: the queue's namespace selector matches it.
pub(super) fn namespace(at: usize, mine: bool) -> Value {
    let team = if mine { format!("t{at}") } else { "none".to_owned() };
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": format!("ns{at}"), "labels": { "team": team } },
    })
}

/// A LocalQueue of a ClusterQueue.
fn local_queue(name: &str, namespace: usize, queue: usize) -> Value {
    json!({
        "apiVersion": API, "kind": "LocalQueue", "metadata": { "name": name, "namespace": format!("ns{namespace}") },
        "spec": { "clusterQueue": format!("cq{queue}") },
    })
}

pub(super) fn cohort(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": API, "kind": "Cohort", "metadata": { "name": name }, "spec": spec })
}

/// An AdmissionCheck, as its controller left it.
pub(super) fn check(name: &str, active: bool) -> Value {
    let status = if active { "True" } else { "False" };
    let condition = json!({
        "type": "Active", "status": status, "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    json!({
        "apiVersion": API, "kind": "AdmissionCheck", "metadata": { "name": name },
        "spec": { "controllerName": "example.com/check" }, "status": { "conditions": [condition] },
    })
}

impl Draft {
    pub(super) fn make_flavors(&mut self) {
        for at in 0..self.rng.random_range(1..=3) {
            let object = self.flavor(&format!("f{at}"));
            self.flavors.push(object);
        }
    }

    pub(super) fn flavor(&mut self, name: &str) -> Value {
        let mut spec = json!({});
        if self.chance(0.3) {
            spec["nodeLabels"] = json!({ "pool": self.word(&["a", "b"]) });
        }
        if self.chance(0.15) {
            spec["nodeTaints"] =
                json!([{ "key": "spot", "value": "true", "effect": "NoSchedule" }]);
        }
        json!({ "apiVersion": API, "kind": "ResourceFlavor", "metadata": { "name": name }, "spec": spec })
    }

    pub(super) fn make_cohorts(&mut self) {
        for at in 0..self.rng.random_range(1..=4_usize) {
            let mut spec = json!({});
            if at > 0 && self.chance(0.8) {
                spec["parentName"] = json!(format!("co{}", self.rng.random_range(0..at)));
            }
            if self.chance(0.35) {
                spec["resourceGroups"] = self.groups(spec["parentName"].is_string());
            }
            if self.fair && self.chance(0.5) {
                spec["fairSharing"] =
                    json!({ "weight": self.word(&["1", "2", "500m", "1500m", "250m"]) });
            }
            self.cohorts.push(cohort(&format!("co{at}"), &spec));
        }
    }

    /// The name of one of the cohorts, or of one that has no object.
    pub(super) fn any_cohort(&mut self) -> String {
        format!("co{}", self.rng.random_range(0..=self.cohorts.len()))
    }

    pub(super) fn make_queues(&mut self) {
        if matches!(self.about, About::Checks | About::Stops | About::LocalQueues) {
            self.checks =
                (0..self.rng.random_range(1..=3)).map(|at| format!("check{at}")).collect();
        }
        for at in 0..self.rng.random_range(2..=4) {
            let cohort = self.chance(0.9).then(|| self.any_cohort());
            let selector = if self.about == About::Moves && self.chance(0.4) {
                json!({ "matchLabels": { "team": format!("t{at}") } })
            } else {
                json!({})
            };
            let mut spec = json!({
                "namespaceSelector": selector, "resourceGroups": self.groups(cohort.is_some()), "stopPolicy": "None",
                "queueingStrategy": self.word(&["BestEffortFIFO", "BestEffortFIFO", "StrictFIFO"]),
                "preemption": self.preemption(cohort.is_some()), "flavorFungibility": self.fungibility(),
            });
            if let Some(cohort) = cohort {
                spec["cohortName"] = json!(cohort);
            }
            if self.fair {
                spec["fairSharing"] =
                    json!({ "weight": self.word(&["1", "1", "2", "500m", "1500m", "0"]) });
            }
            if self.about == About::Use && self.chance(0.8) {
                spec["admissionScope"] =
                    json!({ "admissionMode": "UsageBasedAdmissionFairSharing" });
            }
            if let Some(rules) = self.check_rules(&spec) {
                spec["admissionChecksStrategy"] = json!({ "admissionChecks": rules });
            }
            let name = format!("cq{at}");
            let object = json!({ "apiVersion": API, "kind": "ClusterQueue", "metadata": { "name": name }, "spec": spec });
            self.queues.push(object);
        }
    }

    /// Makes a LocalQueue for each ClusterQueue. In scenarios about LocalQueues, each namespace gets a second one, mostly of the
    /// same ClusterQueue.
    pub(super) fn make_local_queues(&mut self) {
        self.local_queues = (0..self.queues.len()).map(|at| local_queue("main", at, at)).collect();
        if matches!(self.about, About::LocalQueues | About::Use) {
            for at in 0..self.queues.len() {
                let queue =
                    if self.chance(0.8) { at } else { self.rng.random_range(0..self.queues.len()) };
                self.local_queues.push(local_queue("side", at, queue));
            }
        }
        if self.about == About::Use {
            for at in 0..self.local_queues.len() {
                if self.chance(0.5) {
                    let weight = self.word(&["1", "2", "500m", "1500m", "0"]);
                    self.local_queues[at]["spec"]["fairSharing"] = json!({ "weight": weight });
                }
                if self.chance(0.6) {
                    let cores = format!("{}m", self.rng.random_range(0..40_000));
                    self.local_queues[at]["status"]["fairSharing"] = json!({
                        "weightedShare": 0,
                        "admissionFairSharingStatus": {
                            "consumedResources": { "cpu": cores }, "lastUpdate": "2026-01-01T00:00:00Z",
                        },
                    });
                }
            }
        }
    }

    /// The section `admissionFairSharing` of the configuration.
    pub(super) fn sharing(&mut self) -> Value {
        let mut section = json!({
            "usageHalfLifeTime": self.word(&["600s", "3600s", "60s"]),
            "usageSamplingInterval": self.word(&["300s", "60s"]),
        });
        if self.chance(0.4) {
            section["resourceWeights"] = json!({ "cpu": 2.0, GPU: 0.5 });
        }
        section
    }

    /// The check rules of a queue, each for all flavors or for some.
    pub(super) fn check_rules(&mut self, spec: &Value) -> Option<Vec<Value>> {
        let checks: Vec<_> = self.checks.clone().into_iter().filter(|_| self.chance(0.5)).collect();
        let groups = spec["resourceGroups"].as_array().into_iter().flatten();
        let flavors: Vec<Value> = groups
            .flat_map(|group| group["flavors"].as_array().into_iter().flatten())
            .map(|flavor| flavor["name"].clone())
            .collect();
        let rules =
            checks.into_iter().map(|name| match self.pick(&flavors).filter(|_| self.chance(0.4)) {
                Some(flavor) => json!({ "name": name, "onFlavors": [flavor] }),
                None => json!({ "name": name }),
            });
        let rules: Vec<_> = rules.collect();
        (!rules.is_empty()).then_some(rules)
    }

    /// A check at the start: mostly active, sometimes inactive or missing.
    pub(super) fn first_check(&mut self, name: &str) -> Option<Value> {
        let known = self.chance(0.9);
        let active = self.chance(0.9);
        known.then(|| check(name, active))
    }

    /// Resource groups over the flavors: one for all resources, or one for each.
    pub(super) fn groups(&mut self, in_cohort: bool) -> Value {
        let mut names: Vec<String> = self
            .flavors
            .iter()
            .filter_map(|flavor| flavor["metadata"]["name"].as_str())
            .map(str::to_owned)
            .collect();
        names.shuffle(&mut self.rng);
        let shapes = self.about == About::Shapes;
        let mut resources = vec!["cpu"];
        if self.chance(if shapes { 0.7 } else { 0.3 }) {
            resources.push(GPU);
        }
        if shapes && self.chance(0.5) {
            resources.push("memory");
        }
        let apart = resources.len() > 1 && names.len() > 1 && self.chance(0.5);
        let (first, second) = names.split_at(if apart { names.len() / 2 } else { names.len() });
        let (left, right) = resources.split_at(if apart { 1 } else { resources.len() });
        let groups =
            [(left, first), (right, second)].into_iter().filter(|(_, flavors)| !flavors.is_empty());
        groups.map(|(resources, flavors)| self.group(resources, flavors, in_cohort)).collect()
    }

    fn group(&mut self, resources: &[&str], flavors: &[String], in_cohort: bool) -> Value {
        let flavors: Vec<Value> = flavors
            .iter()
            .map(|flavor| {
                let quotas: Vec<_> =
                    resources.iter().map(|resource| self.quota(resource, in_cohort)).collect();
                json!({ "name": flavor, "resources": quotas })
            })
            .collect();
        json!({ "coveredResources": resources, "flavors": flavors })
    }

    fn quota(&mut self, resource: &str, in_cohort: bool) -> Value {
        let fine = self.about == About::Shapes;
        let of: &[&'static str] = match resource {
            "cpu" if fine => &["0", "4500m", "8", "10", "12500m"],
            "cpu" => &["0", "5", "10", "10", "20"],
            "memory" => &["0", "4Gi", "8Gi", "6000Mi"],
            _ => &["0", "4", "8"],
        };
        let mut quota = json!({ "name": resource, "nominalQuota": self.word(of) });
        if in_cohort && self.chance(0.25) {
            quota["borrowingLimit"] = json!(self.word(of));
        }
        if in_cohort && self.chance(0.2) {
            quota["lendingLimit"] = json!("0");
        }
        quota
    }

    pub(super) fn preemption(&mut self, in_cohort: bool) -> Value {
        let within =
            self.word(&["Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority"]);
        let reclaim =
            if in_cohort { self.word(&["Never", "LowerPriority", "Any"]) } else { "Never" };
        let mut borrow = json!({ "policy": "Never" });
        if reclaim != "Never" && !self.fair && self.chance(0.5) {
            borrow = json!({ "policy": "LowerPriority" });
            if self.chance(0.5) {
                borrow["maxPriorityThreshold"] = json!(self.rng.random_range(0..=2) * 50);
            }
        }
        json!({ "withinClusterQueue": within, "reclaimWithinCohort": reclaim, "borrowWithinCohort": borrow })
    }

    pub(super) fn fungibility(&mut self) -> Value {
        let stop = ["MayStopSearch", "TryNextFlavor"];
        let mut fungibility =
            json!({ "whenCanBorrow": self.word(&stop), "whenCanPreempt": self.word(&stop) });
        if self.about == About::Shapes && self.chance(0.6) {
            let preferences = ["PreemptionOverBorrowing", "BorrowingOverPreemption"];
            fungibility["preference"] = json!(self.word(&preferences));
        }
        fungibility
    }

    /// A new workload of a random queue.
    pub(super) fn make_workload(&mut self) -> Value {
        let number = self.workloads.len();
        let at = self.rng.random_range(0..self.queues.len());
        let most = if self.about == About::Shapes { 3 } else { 2 };
        let sets: Vec<_> =
            (0..self.rng.random_range(1..=most)).map(|set| self.pod_set(set, at)).collect();
        let created = format!("2026-01-01T00:{:02}:{:02}Z", number / 60, number % 60);
        let priority = self.rng.random_range(0..=4) * 50;
        let queue = if matches!(self.about, About::LocalQueues | About::Use) {
            self.word(&["main", "side"])
        } else {
            "main"
        };
        let workload = json!({
            "apiVersion": API, "kind": "Workload",
            "metadata": {
                "name": format!("w{number:02}"), "namespace": format!("ns{at}"), "creationTimestamp": created,
                "generation": 1,
            },
            "spec": { "queueName": queue, "priority": priority, "active": true, "podSets": sets },
        });
        self.workloads.push(workload.clone());
        workload
    }

    fn pod_set(&mut self, number: usize, queue: usize) -> Value {
        let covered = self.queues[queue]["spec"]["resourceGroups"].to_string();
        let cpu: &[&'static str] = if self.about == About::Shapes {
            &["500m", "1", "1500m", "3"]
        } else {
            &["1", "2", "3", "5"]
        };
        let mut requests = json!({ "cpu": self.word(cpu) });
        if covered.contains(GPU) && self.chance(0.6) {
            requests[GPU] = json!(self.word(&["1", "2", "4"]));
        }
        if covered.contains("memory") && self.chance(0.7) {
            requests["memory"] = json!(self.word(&["512Mi", "1Gi", "3000Mi"]));
        }
        let containers =
            json!([{ "name": "c", "image": "x", "resources": { "requests": requests } }]);
        let mut pod = json!({ "restartPolicy": "Never", "containers": containers });
        if self.chance(0.1) {
            pod["nodeSelector"] = json!({ "pool": self.word(&["a", "b"]) });
        }
        if self.chance(0.3) {
            let toleration = json!({ "key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule" });
            pod["tolerations"] = json!([toleration]);
        }
        let count = self.rng.random_range(1..=5);
        let mut set =
            json!({ "name": format!("p{number}"), "count": count, "template": { "spec": pod } });
        if count > 1 && self.chance(0.25) {
            set["minCount"] = json!(self.rng.random_range(1..count));
        }
        set
    }
}
