//! Both versions of Kueue's API on real API servers. Objects that were written for `v1beta1` work, a write through one
//! version is right through the other, and conversion outlives the controller that first registered it.
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use switchyard_api::{v1beta1, v1beta2};
use switchyard_config::Configuration;
use switchyard_controller::webhook::{Advertise, WebhookOptions};
use switchyard_controller::{Handle, Options};
use switchyard_e2e::{
    Cluster, ClusterSpec, Environment, JobBuilder, NodeSpec, fixture, job, paths, wait,
};

/// Longer than anything here takes on a busy machine.
const WAIT: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "switchyard-system";

/// A controller in this process, with the rights that `deploy/` ships.
async fn controller(cluster: &Cluster) -> Handle {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
    start(cluster, WebhookOptions::new(listener, Advertise::Url(url))).await
}

async fn start(cluster: &Cluster, webhooks: WebhookOptions) -> Handle {
    let (client, _) = cluster.service_account(NAMESPACE, "switchyard").await.unwrap();
    let mut options =
        Options::new(client, Arc::new(Configuration::default()), "versions-test", NAMESPACE);
    options.webhook = Some(webhooks);
    let handle = switchyard_controller::start(options).unwrap();
    handle.ready(WAIT).await.unwrap();
    handle
}

async fn stop(handle: Handle) {
    handle.shutdown();
    handle.ended().await.unwrap();
}

/// Objects of a cluster in both versions.
struct Bed<'a> {
    cluster: &'a Cluster,
    namespace: String,
}

impl<'a> Bed<'a> {
    async fn new(cluster: &'a Cluster) -> Self {
        Self { cluster, namespace: cluster.namespace("versions").await.unwrap() }
    }

    async fn api(&self, version: &str, kind: &str) -> Api<DynamicObject> {
        self.cluster.dynamic(version, kind, &self.namespace).await.unwrap()
    }

    async fn get(&self, version: &str, kind: &str, name: &str) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.api(version, kind).await.get(name).await?)?)
    }

    /// Waits until an object, in a version, has this value there.
    async fn has(&self, version: &str, kind: &str, name: &str, pointer: &str, value: Value) {
        let check = async || {
            let object = self.get(version, kind, name).await?;
            ensure!(
                object.pointer(pointer) == Some(&value),
                "{pointer} is {:?}",
                object.pointer(pointer)
            );
            Ok(())
        };
        wait::eventually(WAIT, format!("{version} {kind} {name} to have {pointer} {value}"), check)
            .await
            .unwrap();
    }

    async fn patch_status(&self, version: &str, kind: &str, name: &str, status: Value) {
        let api = self.api(version, kind).await;
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn apply(&self, yaml: &str) {
        let yaml = yaml.replace("NAMESPACE", &self.namespace);
        // Conversion is called a moment after it was registered.
        wait::eventually(WAIT, "the manifests to be accepted", async || {
            self.cluster.apply_yaml(&yaml).await
        })
        .await
        .unwrap();
    }

    fn job(&self, name: &str, queue: &str) -> JobBuilder {
        JobBuilder::new(&self.namespace, name).queue(queue).cpu("1")
    }

    async fn create(&self, job: JobBuilder) {
        job.create(&self.cluster.admin).await.unwrap();
    }

    /// The name of a job's Workload.
    async fn workload(&self, job: &str) -> String {
        let api: Api<v1beta2::Workload> =
            Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        let check = async || {
            let all = api.list(&ListParams::default()).await?.items;
            let of_job = |it: &v1beta2::Workload| {
                it.metadata.owner_references.iter().flatten().any(|owner| owner.name == job)
            };
            let found = all.into_iter().find(of_job).and_then(|it| it.metadata.name);
            found.ok_or_else(|| anyhow::anyhow!("none"))
        };
        wait::eventually(WAIT, format!("the Workload of {job}"), check).await.unwrap()
    }

    async fn suspended(&self, name: &str, suspended: bool) {
        job::suspended(&self.cluster.admin, &self.namespace, name, WAIT, suspended).await.unwrap();
    }
}

/// As the documentation of Kueue v0.9 had them.
const EXAMPLES: &str = "
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: default-flavor}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: AdmissionCheck
metadata: {name: sample-check}
spec:
  controllerName: example.com/sample
  retryDelayMinutes: 20
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team-a-cq}
spec:
  namespaceSelector: {}
  cohort: all
  flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: TryNextFlavor}
  preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: default-flavor
      resources: [{name: cpu, nominalQuota: 1, borrowingLimit: 0}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team-b-cq}
spec:
  namespaceSelector: {}
  admissionChecks: [sample-check]
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: default-flavor
      resources: [{name: cpu, nominalQuota: 1}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {namespace: NAMESPACE, name: team-a-queue}
spec: {clusterQueue: team-a-cq}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {namespace: NAMESPACE, name: team-b-queue}
spec: {clusterQueue: team-b-cq}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Workload
metadata: {namespace: NAMESPACE, name: sample-workload}
spec:
  active: false
  queueName: team-a-queue
  priority: 1000
  priorityClassName: high
  priorityClassSource: kueue.x-k8s.io/workloadpriorityclass
  podSets:
  - name: main
    count: 1
    template:
      spec:
        restartPolicy: Never
        containers: [{name: c, image: sleep, resources: {requests: {cpu: 1}}}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: MultiKueueConfig
metadata: {name: multikueue}
spec: {clusters: [worker1]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: MultiKueueCluster
metadata: {name: worker1}
spec:
  kubeConfig: {locationType: Secret, location: worker1-secret}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: MultiKueueCluster
metadata: {name: worker2}
spec:
  kubeConfig: {locationType: Secret, location: ''}
  clusterProfileRef: {name: worker2}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: spot-flavor}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Cohort
metadata: {name: shared}
spec: {parentName: company}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: lender-cq}
spec:
  namespaceSelector: {}
  cohort: shared
  flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: Preempt}
  preemption: {reclaimWithinCohort: Any}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: default-flavor
      resources: [{name: cpu, nominalQuota: 1}]
    - name: spot-flavor
      resources: [{name: cpu, nominalQuota: 1}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: borrower-cq}
spec:
  namespaceSelector: {}
  cohort: shared
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: default-flavor
      resources: [{name: cpu, nominalQuota: 1, borrowingLimit: 1}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {namespace: NAMESPACE, name: lender-queue}
spec: {clusterQueue: lender-cq}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {namespace: NAMESPACE, name: borrower-queue}
spec: {clusterQueue: borrower-cq}
";

const OLD: &str = v1beta1::API_VERSION;
const NEW: &str = v1beta2::API_VERSION;

#[test]
fn the_examples_of_v1beta1_do_what_they_did() {
    fixture::run(async {
        let cluster = ClusterSpec::new("one").node(NodeSpec::new("n").cpu(16));
        let environment = Environment::builder("versions").cluster(cluster).start().await.unwrap();
        let cluster = environment.cluster("one");
        cluster.install().await.unwrap();
        let unserved = async || {
            let list = cluster.admin.list_api_group_resources(OLD).await?;
            let served: Vec<&str> = list.resources.iter().map(|it| it.kind.as_str()).collect();
            ensure!(
                served.contains(&"ResourceFlavor") && !served.contains(&"ClusterQueue"),
                "{served:?}"
            );
            Ok(())
        };
        wait::eventually(WAIT, "only what needs no conversion to be served", unserved)
            .await
            .unwrap();

        let controller = controller(cluster).await;
        let bed = Bed::new(cluster).await;
        bed.apply(EXAMPLES).await;

        stored_and_read_again(&bed).await;
        a_job_preempts_and_runs(&bed).await;
        a_queue_takes_back_what_another_has_borrowed(&bed).await;
        a_check_of_v1beta1_is_passed(&bed).await;
        stop(controller).await;
    });
}

/// Each version has its own words.
async fn stored_and_read_again(bed: &Bed<'_>) {
    let queue = "/spec/flavorFungibility/whenCanBorrow";
    bed.has(NEW, "ClusterQueue", "team-a-cq", "/spec/cohortName", json!("all")).await;
    bed.has(NEW, "ClusterQueue", "team-a-cq", queue, json!("MayStopSearch")).await;
    bed.has(OLD, "ClusterQueue", "team-a-cq", "/spec/cohort", json!("all")).await;
    bed.has(OLD, "ClusterQueue", "team-a-cq", queue, json!("Borrow")).await;
    let checks = json!([{"name": "sample-check"}]);
    bed.has(
        NEW,
        "ClusterQueue",
        "team-b-cq",
        "/spec/admissionChecksStrategy/admissionChecks",
        checks,
    )
    .await;
    bed.has(OLD, "ClusterQueue", "team-b-cq", "/spec/admissionChecks", json!(["sample-check"]))
        .await;
    bed.has(OLD, "AdmissionCheck", "sample-check", "/spec/retryDelayMinutes", json!(20)).await;
    let class = json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"});
    bed.has(NEW, "Workload", "sample-workload", "/spec/priorityClassRef", class).await;
    bed.has(OLD, "Workload", "sample-workload", "/spec/priorityClassName", json!("high")).await;
    let source = "/spec/clusterSource/kubeConfig/location";
    bed.has(NEW, "MultiKueueCluster", "worker1", source, json!("worker1-secret")).await;
    bed.has(
        OLD,
        "MultiKueueCluster",
        "worker1",
        "/spec/kubeConfig/location",
        json!("worker1-secret"),
    )
    .await;
    let by_profile = json!({"clusterProfileRef": {"name": "worker2"}});
    bed.has(NEW, "MultiKueueCluster", "worker2", "/spec/clusterSource", by_profile).await;
    bed.has(NEW, "Cohort", "shared", "/spec/parentName", json!("company")).await;
    bed.has(
        NEW,
        "ClusterQueue",
        "lender-cq",
        "/spec/flavorFungibility/whenCanPreempt",
        json!("MayStopSearch"),
    )
    .await;
    bed.has(
        OLD,
        "ClusterQueue",
        "lender-cq",
        "/spec/flavorFungibility/whenCanPreempt",
        json!("Preempt"),
    )
    .await;
    bed.has(NEW, "MultiKueueConfig", "multikueue", "/spec/clusters", json!(["worker1"])).await;
    // A change through the one is one through the other; and nothing that was not touched has moved.
    let patch = Patch::Merge(json!({"spec": {"cohort": "others"}}));
    let older = bed.api(OLD, "ClusterQueue").await;
    older.patch("team-a-cq", &PatchParams::default(), &patch).await.unwrap();
    bed.has(NEW, "ClusterQueue", "team-a-cq", "/spec/cohortName", json!("others")).await;
    bed.has(OLD, "ClusterQueue", "team-a-cq", queue, json!("Borrow")).await;
    let refused = Patch::Merge(json!({"spec": {"cohort": Value::Null}}));
    let refused =
        older.patch("team-a-cq", &PatchParams::default(), &refused).await.unwrap_err().to_string();
    assert!(refused.contains("borrowingLimit must be nil when cohort is empty"), "{refused}");
}

/// Priority classes, preemption, and the status of queues and Workloads.
async fn a_job_preempts_and_runs(bed: &Bed<'_>) {
    bed.create(bed.job("low", "team-a-queue").run_forever()).await;
    bed.suspended("low", false).await;
    let usage = json!([{"name": "default-flavor", "resources": [{"name": "cpu", "total": "1"}]}]);
    bed.has(OLD, "LocalQueue", "team-a-queue", "/status/flavorUsage", usage.clone()).await;
    bed.has(NEW, "LocalQueue", "team-a-queue", "/status/flavorsUsage", usage).await;
    bed.create(
        bed.job("high", "team-a-queue").priority_class("high").run_for(Duration::from_millis(500)),
    )
    .await;
    let workload = bed.workload("high").await;
    bed.has(
        OLD,
        "Workload",
        &workload,
        "/spec/priorityClassSource",
        json!("kueue.x-k8s.io/workloadpriorityclass"),
    )
    .await;
    bed.has(OLD, "Workload", &workload, "/spec/priorityClassName", json!("high")).await;
    job::complete(&bed.cluster.admin, &bed.namespace, "high", WAIT).await.unwrap();
    let low = bed.workload("low").await;
    let accumulated = async || {
        let of = async |version: &str, field: &str| -> anyhow::Result<Option<Value>> {
            Ok(bed.get(version, "Workload", &low).await?["status"].get(field).cloned())
        };
        let (old, new) = (
            of(OLD, "accumulatedPastExexcutionTimeSeconds").await?,
            of(NEW, "accumulatedPastExecutionTimeSeconds").await?,
        );
        ensure!(old == new, "{old:?} and {new:?}");
        let evicted = bed.get(OLD, "Workload", &low).await?;
        ensure!(
            evicted["status"]["schedulingStats"]["evictions"][0]["reason"] == "Preempted",
            "{evicted}"
        );
        Ok(())
    };
    wait::eventually(WAIT, "both versions of the evicted Workload", accumulated).await.unwrap();
}

/// Borrowing within a cohort, and preemption on the first flavor though the second is free.
async fn a_queue_takes_back_what_another_has_borrowed(bed: &Bed<'_>) {
    bed.create(bed.job("borrower", "borrower-queue").cpu("2").run_forever()).await;
    bed.suspended("borrower", false).await;
    bed.create(bed.job("lender", "lender-queue").run_forever()).await;
    bed.suspended("lender", false).await;
    bed.suspended("borrower", true).await;
    let (lender, borrower) = (bed.workload("lender").await, bed.workload("borrower").await);
    let flavor = "/status/admission/podSetAssignments/0/flavors/cpu";
    bed.has(OLD, "Workload", &lender, flavor, json!("default-flavor")).await;
    let why = "/status/schedulingStats/evictions/0/reason";
    bed.has(OLD, "Workload", &borrower, why, json!("Preempted")).await;
}

/// A controller that was written for v1beta1 decides.
async fn a_check_of_v1beta1_is_passed(bed: &Bed<'_>) {
    let now = "2026-01-02T03:04:05Z";
    let active = json!([{
        "type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": now,
    }]);
    bed.patch_status(OLD, "AdmissionCheck", "sample-check", json!({"conditions": active})).await;
    bed.has(NEW, "AdmissionCheck", "sample-check", "/status/conditions/0/status", json!("True"))
        .await;
    bed.create(bed.job("checked", "team-b-queue").run_for(Duration::from_millis(200))).await;
    let workload = bed.workload("checked").await;
    bed.has(OLD, "Workload", &workload, "/status/admissionChecks/0/state", json!("Pending")).await;
    let ready = json!([{"name": "sample-check", "state": "Ready", "message": "", "lastTransitionTime": now}]);
    bed.patch_status(OLD, "Workload", &workload, json!({"admissionChecks": ready})).await;
    job::complete(&bed.cluster.admin, &bed.namespace, "checked", WAIT).await.unwrap();
}

#[test]
fn conversion_outlives_controllers_and_their_definitions() {
    fixture::run(async {
        let environment = Environment::builder("versions-later")
            .cluster(ClusterSpec::new("one"))
            .start()
            .await
            .unwrap();
        let cluster = environment.cluster("one");
        cluster.install().await.unwrap();
        let bed = Bed::new(cluster).await;
        let first = controller(cluster).await;
        let applied = EXAMPLES.split("---").find(|yaml| yaml.contains("team-a-cq")).unwrap();
        bed.apply(applied).await;

        // Another controller, reached elsewhere.
        stop(first).await;
        let second = controller(cluster).await;
        bed.has(OLD, "ClusterQueue", "team-a-cq", "/spec/cohort", json!("all")).await;

        // The shipped definitions, applied again, do not know of the conversion.
        cluster.apply_dir(paths::root().join("deploy/crds")).await.unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
        let served = async || {
            for name in v1beta1::differing_definitions() {
                let versions = definitions.get(&name).await?.spec.versions;
                ensure!(
                    versions.iter().all(|version| version.served),
                    "{name} is not served in both versions"
                );
            }
            Ok(())
        };
        wait::eventually(WAIT, "both versions to be served again", served).await.unwrap();
        bed.has(OLD, "ClusterQueue", "team-a-cq", "/spec/cohort", json!("all")).await;
        stop(second).await;
    });
}

/// A Service that leads to a port of a host, since no pod runs here.
async fn lead(cluster: &Cluster, name: &str, host: &str, port: u16) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": host, "ports": [{"port": port}]},
    });
    cluster.apply([service]).await.unwrap();
}

/// The definitions as they were when v1beta1 was what objects are stored in.
fn older_definitions() -> Vec<Value> {
    let older = |mut definition: Value| {
        for version in definition["spec"]["versions"].as_array_mut().unwrap() {
            version["served"] = true.into();
            version["storage"] = (version["name"] == v1beta1::VERSION).into();
        }
        definition
    };
    switchyard_api::crds().iter().map(|crd| older(serde_json::to_value(crd).unwrap())).collect()
}

/// The Service that converts ClusterQueues.
async fn converter(cluster: &Cluster) -> anyhow::Result<String> {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
    let conversion = definitions.get("clusterqueues.kueue.x-k8s.io").await?.spec.conversion;
    let client = conversion.and_then(|it| it.webhook).and_then(|it| it.client_config);
    client.and_then(|it| it.service).map(|it| it.name).ok_or_else(|| anyhow::anyhow!("nobody"))
}

#[test]
fn v1beta1_objects_are_read_before_a_replica_is_ready() {
    fixture::run(async {
        let environment = Environment::builder("versions-stored")
            .cluster(ClusterSpec::new("one"))
            .start()
            .await
            .unwrap();
        let cluster = environment.cluster("one");
        cluster.apply(older_definitions()).await.unwrap();
        let bed = Bed::new(cluster).await;
        bed.apply(EXAMPLES.split("---").find(|yaml| yaml.contains("team-a-cq")).unwrap()).await;
        cluster.install().await.unwrap();

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let service = |name: &str| Advertise::Service {
            namespace: NAMESPACE.to_owned(),
            name: name.to_owned(),
            port,
        };
        // As long as no replica is ready, a Service leads nowhere, unless it publishes all addresses.
        lead(cluster, "webhook", "nowhere.invalid", port).await;
        lead(cluster, "conversion", "localhost", port).await;
        let mut webhooks = WebhookOptions::new(listener, service("webhook"));
        webhooks.conversion = Some(service("conversion"));
        let handle = start(cluster, webhooks).await;
        assert_eq!(converter(cluster).await.unwrap(), "conversion");
        bed.has(NEW, "ClusterQueue", "team-a-cq", "/spec/cohortName", json!("all")).await;

        lead(cluster, "webhook", "localhost", port).await;
        let definitions: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
        let migrated = Patch::Merge(json!({"status": {"storedVersions": [v1beta2::VERSION]}}));
        let params = PatchParams::default();
        let written = Patch::Merge(json!({"metadata": {"labels": {"written": "anew"}}}));
        let queues = bed.api(NEW, "ClusterQueue").await;
        let write = async || Ok(queues.patch("team-a-cq", &params, &written).await?);
        wait::eventually(WAIT, "the webhook to be reached where it is now", write).await.unwrap();
        definitions.patch_status("clusterqueues.kueue.x-k8s.io", &params, &migrated).await.unwrap();
        let led = async || {
            let to = converter(cluster).await?;
            ensure!(to == "webhook", "{to}");
            Ok(())
        };
        wait::eventually(WAIT, "conversions to be asked of replicas that are ready", led)
            .await
            .unwrap();
        bed.has(OLD, "ClusterQueue", "team-a-cq", "/spec/cohort", json!("all")).await;
        stop(handle).await;
    });
}
