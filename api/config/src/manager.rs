//! Settings of every controller process: listeners, leader election, certificates, its client.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GoDuration;

/// The webhook server.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Webhook {
    /// The port.
    pub port: u16,
    /// Address to listen on. All addresses if empty.
    pub host: String,
    /// Directory of a certificate that another program manages.
    pub cert_dir: String,
}

impl Default for Webhook {
    fn default() -> Self {
        Self {
            port: 9443,
            host: String::new(),
            cert_dir: "/tmp/k8s-webhook-server/serving-certs".to_owned(),
        }
    }
}

/// Leader election between replicas.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    /// Whether replicas elect a leader.
    pub leader_elect: bool,
    /// How long the other replicas wait after the leader's last renewal.
    pub lease_duration: GoDuration,
    /// How long the leader tries to renew before it steps down.
    pub renew_deadline: GoDuration,
    /// Delay between tries.
    pub retry_period: GoDuration,
    /// Type of the lock. Only `leases` is supported.
    pub resource_lock: String,
    /// Name of the lock.
    pub resource_name: String,
    /// Namespace of the lock. The own namespace if empty.
    pub resource_namespace: String,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            leader_elect: true,
            lease_duration: GoDuration::from_secs(15),
            renew_deadline: GoDuration::from_secs(10),
            retry_period: GoDuration::from_secs(2),
            resource_lock: "leases".to_owned(),
            resource_name: "c1f6bfd2.kueue.x-k8s.io".to_owned(),
            resource_namespace: String::new(),
        }
    }
}

/// The metrics endpoint.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Metrics {
    /// Address that serves metrics. Disabled if `0`.
    pub bind_address: String,
    /// Whether quota and usage of ClusterQueues are exported.
    pub enable_cluster_queue_resources: bool,
    /// Labels of objects that become metric labels.
    pub custom_labels: Vec<CustomLabel>,
    /// Metrics of LocalQueues.
    pub local_queue_metrics: LocalQueueMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            bind_address: ":8443".to_owned(),
            enable_cluster_queue_resources: false,
            custom_labels: Vec::new(),
            local_queue_metrics: LocalQueueMetrics::default(),
        }
    }
}

/// A label or annotation of objects that becomes a metric label.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CustomLabel {
    /// Name of the metric label without its prefix `custom_`.
    pub name: String,
    /// Key of the object's label. Defaults to `name` if there is no annotation key either.
    #[serde(default)]
    pub source_label_key: String,
    /// Key of the object's annotation.
    #[serde(default)]
    pub source_annotation_key: String,
    /// Kind of the object.
    #[serde(default)]
    pub source_kind: SourceKind,
    /// Values to distinguish. All values if empty.
    #[serde(default)]
    pub tracked_values: Vec<String>,
}

/// Metric value for object values that are not in `tracked_values`.
const UNTRACKED: &str = "kueue.x-k8s.io/_UNTRACKED_VALUE_";

/// Labels or annotations of an object.
type Entries = Option<BTreeMap<String, String>>;

impl CustomLabel {
    /// Full name of the metric label.
    #[must_use]
    pub fn metric_name(&self) -> String {
        format!("custom_{}", self.name)
    }

    /// Key of the object's label. `None` if the value comes from an annotation.
    #[must_use]
    pub fn label_key(&self) -> Option<&str> {
        let key =
            if self.source_label_key.is_empty() { &self.name } else { &self.source_label_key };
        self.annotation_key().is_none().then_some(key)
    }

    /// Key of the object's annotation. `None` if the value comes from a label.
    #[must_use]
    pub fn annotation_key(&self) -> Option<&str> {
        Some(self.source_annotation_key.as_str()).filter(|key| !key.is_empty())
    }

    /// Value of the metric label for an object with these labels and annotations. Empty if the
    /// object lacks the key.
    #[must_use]
    pub fn value<'a>(&self, labels: &'a Entries, annotations: &'a Entries) -> &'a str {
        let of_label = self.label_key().and_then(|key| labels.as_ref()?.get(key));
        let found = of_label.or_else(|| annotations.as_ref()?.get(self.annotation_key()?));
        let value = found.map_or("", String::as_str);
        let is_tracked = self.tracked_values.is_empty()
            || self.tracked_values.iter().any(|tracked| tracked == value);
        if is_tracked { value } else { UNTRACKED }
    }
}

/// The kind of object that a metric label comes from.
#[derive(
    JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord,
)]
pub enum SourceKind {
    /// A Cohort.
    Cohort,
    /// A LocalQueue.
    LocalQueue,
    /// A ClusterQueue.
    #[default]
    ClusterQueue,
    /// A Workload.
    Workload,
}

/// Which LocalQueues have metrics.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LocalQueueMetrics {
    /// Whether LocalQueues have metrics. Defaults to false if the section exists without this
    /// field, as in Kueue.
    #[serde(default)]
    pub enable: bool,
    /// Only LocalQueues with these labels.
    #[serde(default)]
    pub local_queue_selector: Option<LabelSelector>,
}

impl Default for LocalQueueMetrics {
    fn default() -> Self {
        Self { enable: true, local_queue_selector: None }
    }
}

/// Health probes.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Health {
    /// Address that serves probes. Disabled if `0` or empty.
    pub health_probe_bind_address: String,
    /// Path of the readiness probe.
    pub readiness_endpoint_name: String,
    /// Path of the liveness probe.
    pub liveness_endpoint_name: String,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            health_probe_bind_address: ":8081".to_owned(),
            readiness_endpoint_name: "readyz".to_owned(),
            liveness_endpoint_name: "healthz".to_owned(),
        }
    }
}

/// Concurrency of the controllers.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Controller {
    /// Concurrent reconciles by `Kind.group`.
    pub group_kind_concurrency: BTreeMap<String, u32>,
    /// Timeout of the first lists, in nanoseconds.
    pub cache_sync_timeout: Option<i64>,
}

/// TLS options of all servers.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Tls {
    /// `VersionTLS12` or `VersionTLS13`.
    pub min_version: String,
    /// Cipher suites of TLS 1.2, by Go's names.
    pub cipher_suites: Vec<String>,
    /// IANA numbers of the curves, the preferred first.
    pub curve_preferences: Vec<i32>,
}

/// The certificate of the webhooks.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InternalCertManagement {
    /// Whether the controller issues it itself.
    pub enable: bool,
    /// The Service in front of the webhooks.
    pub webhook_service_name: String,
    /// The Secret that holds it.
    pub webhook_secret_name: String,
}

impl Default for InternalCertManagement {
    fn default() -> Self {
        Self {
            enable: true,
            webhook_service_name: "kueue-webhook-service".to_owned(),
            webhook_secret_name: "kueue-webhook-server-cert".to_owned(),
        }
    }
}

/// Rate limits of Kueue's client. Without effect: Switchyard bounds requests in flight instead.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClientConnection {
    /// Requests per second.
    pub qps: f32,
    /// Burst of requests.
    pub burst: i32,
}

impl Default for ClientConnection {
    fn default() -> Self {
        Self { qps: 300.0, burst: 500 }
    }
}

/// The server that lists pending workloads.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VisibilityServer {
    /// Address to listen on. All addresses if absent.
    pub bind_address: Option<String>,
    /// The port.
    pub bind_port: i32,
}

impl Default for VisibilityServer {
    fn default() -> Self {
        Self { bind_address: None, bind_port: 8082 }
    }
}
