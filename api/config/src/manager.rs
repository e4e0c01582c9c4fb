//! What every controller process has: listeners, leader election, certificates, its client.

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
    /// The address to listen on; all when empty.
    pub host: String,
    /// Where a certificate lies that somebody else manages.
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

/// Who of several processes works.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    /// Whether there is an election.
    pub leader_elect: bool,
    /// How long the others wait after the leader's last sign of life.
    pub lease_duration: GoDuration,
    /// How long the leader tries to give a sign of life before it steps down.
    pub renew_deadline: GoDuration,
    /// How long to wait between tries.
    pub retry_period: GoDuration,
    /// The kind of the lock; only `leases`.
    pub resource_lock: String,
    /// The lock's name.
    pub resource_name: String,
    /// The lock's namespace; our own when empty.
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

/// Metrics.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Metrics {
    /// Where they are served; nowhere when `0`.
    pub bind_address: String,
    /// Whether quota and use of ClusterQueues are among them.
    pub enable_cluster_queue_resources: bool,
    /// Labels of objects that become labels of metrics.
    pub custom_labels: Vec<CustomLabel>,
    /// Which LocalQueues are among them.
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

/// A label or annotation of objects that becomes a label of metrics.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CustomLabel {
    /// The metric's label without its prefix `custom_`.
    pub name: String,
    /// The object's label; the name when neither this nor the annotation is given.
    #[serde(default)]
    pub source_label_key: String,
    /// The object's annotation.
    #[serde(default)]
    pub source_annotation_key: String,
    /// The object's kind.
    #[serde(default)]
    pub source_kind: SourceKind,
    /// The values that are told apart; all when empty.
    #[serde(default)]
    pub tracked_values: Vec<String>,
}

/// The value of a label of metrics whose own is none of those that are told apart.
const UNTRACKED: &str = "kueue.x-k8s.io/_UNTRACKED_VALUE_";

/// What an object has under a key of its labels or of its annotations.
type Entries = Option<BTreeMap<String, String>>;

impl CustomLabel {
    /// Its name in metrics.
    #[must_use]
    pub fn metric_name(&self) -> String {
        format!("custom_{}", self.name)
    }

    /// The key of the object's label that it comes from, unless that is an annotation.
    #[must_use]
    pub fn label_key(&self) -> Option<&str> {
        let key =
            if self.source_label_key.is_empty() { &self.name } else { &self.source_label_key };
        self.annotation_key().is_none().then_some(key)
    }

    /// The key of the object's annotation that it comes from, if it is one.
    #[must_use]
    pub fn annotation_key(&self) -> Option<&str> {
        Some(self.source_annotation_key.as_str()).filter(|key| !key.is_empty())
    }

    /// Its value for an object with these labels and annotations. What the object does not have is empty.
    #[must_use]
    pub fn value<'a>(&self, labels: &'a Entries, annotations: &'a Entries) -> &'a str {
        let of_label = self.label_key().and_then(|key| labels.as_ref()?.get(key));
        let found = of_label.or_else(|| annotations.as_ref()?.get(self.annotation_key()?));
        let value = found.map_or("", String::as_str);
        let told = self.tracked_values.is_empty()
            || self.tracked_values.iter().any(|tracked| tracked == value);
        if told { value } else { UNTRACKED }
    }
}

/// Where a label of metrics comes from.
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
    /// Whether any. False when the section is there without it, as in Kueue.
    #[serde(default)]
    pub enable: bool,
    /// Only those with these labels.
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
    /// Where they are served; nowhere when `0` or empty.
    pub health_probe_bind_address: String,
    /// The path of the readiness probe.
    pub readiness_endpoint_name: String,
    /// The path of the liveness probe.
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

/// Settings of the controllers.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Controller {
    /// How many objects at once, by `Kind.group`.
    pub group_kind_concurrency: BTreeMap<String, u32>,
    /// How long to wait for the first lists, in nanoseconds.
    pub cache_sync_timeout: Option<i64>,
}

/// TLS of everything that is served.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Tls {
    /// `VersionTLS12` or `VersionTLS13`.
    pub min_version: String,
    /// Suites of TLS 1.2.
    pub cipher_suites: Vec<String>,
    /// Numbers of the curves, the preferred first.
    pub curve_preferences: Vec<i32>,
}

/// The certificate of our webhooks.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InternalCertManagement {
    /// Whether we issue it ourselves.
    pub enable: bool,
    /// The Service in front of the webhooks.
    pub webhook_service_name: String,
    /// The Secret that keeps it.
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

/// The limits of Kueue's client. We bound what is in flight instead.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClientConnection {
    /// Requests a second.
    pub qps: f32,
    /// Requests at once.
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
    /// The address to listen on; all when absent.
    pub bind_address: Option<String>,
    /// The port.
    pub bind_port: i32,
}

impl Default for VisibilityServer {
    fn default() -> Self {
        Self { bind_address: None, bind_port: 8082 }
    }
}
