//! Kueue's configuration file, `config.kueue.x-k8s.io/v1beta2` or `v1beta1`. A file written for
//! Kueue works unchanged.
//!
//! [`load`] rejects unknown fields and bad values, with the field's path and a remedy.
//! [`Configuration::ignored`] lists known fields without an effect, with the reason, for the log at
//! start.

#![warn(missing_docs)]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use switchyard_jobs::framework_of;
use switchyard_syntax::field::FieldError;

mod effect;
pub mod gates;
mod ignored;
mod later;
mod load;
mod manager;
mod multi_kueue;
mod older;
mod queueing;
#[cfg(test)]
mod reference;
mod rules;
mod shape;
#[cfg(test)]
mod tests;
mod validate;

pub use ignored::IgnoredField;
pub use later::LaterSetting;
pub use load::{load, load_with_gates};
pub use manager::*;
pub use multi_kueue::*;
pub use queueing::*;
pub use switchyard_syntax::{GoDuration, ParseDurationError};
pub use validate::{CURVES as TLS_CURVES, SUITES as TLS_SUITES, is_suite as is_tls_suite};

/// The file's `apiVersion`.
pub const API_VERSION: &str = "config.kueue.x-k8s.io/v1beta2";
/// The file's `kind`.
pub const KIND: &str = "Configuration";
/// Name of `batch/v1` Job in `integrations.frameworks`.
pub const BATCH_JOB: &str = "batch/job";
/// A namespace whose jobs are never managed.
const KUBE_SYSTEM: &str = "kube-system";
/// The label of each namespace with its own name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The configuration file, with all defaults filled in.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Configuration {
    /// `config.kueue.x-k8s.io/v1beta2`.
    pub api_version: String,
    /// `Configuration`.
    pub kind: String,
    /// The controller's own namespace. If absent, the caller knows it.
    pub namespace: Option<String>,
    /// The webhook server.
    pub webhook: Webhook,
    /// Leader election between replicas.
    pub leader_election: LeaderElection,
    /// The metrics endpoint.
    pub metrics: Metrics,
    /// Health probes.
    pub health: Health,
    /// Address that serves profiles. Disabled if empty or `0`.
    pub pprof_bind_address: String,
    /// Concurrency of the controllers.
    pub controller: Controller,
    /// TLS options of all servers.
    pub tls: Option<Tls>,
    /// Whether jobs without a queue are suspended.
    pub manage_jobs_without_queue_name: bool,
    /// Namespaces in which jobs without a queue are suspended. All but `kube-system` and the
    /// controller's own if absent.
    pub managed_jobs_namespace_selector: Option<LabelSelector>,
    /// The certificate of the webhooks.
    pub internal_cert_management: InternalCertManagement,
    /// Timeouts for pods to become ready.
    pub wait_for_pods_ready: WaitForPodsReady,
    /// Rate limits of Kueue's client. Without effect here.
    pub client_connection: ClientConnection,
    /// The managed job kinds.
    pub integrations: Integrations,
    /// Dispatch to worker clusters.
    pub multi_kueue: MultiKueue,
    /// Fair sharing of unused quota. Disabled if absent.
    pub fair_sharing: Option<FairSharing>,
    /// Admission in the order of past usage. Disabled if absent.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// Which requests count against quota.
    pub resources: Resources,
    /// Feature gates by name. A gate that is absent has its default.
    pub feature_gates: BTreeMap<String, bool>,
    /// Retention of objects.
    pub object_retention_policies: ObjectRetentionPolicies,
    /// The server that lists pending workloads.
    pub visibility_server: VisibilityServer,
    /// Fields of the file without effect.
    #[serde(skip)]
    ignored: Vec<IgnoredField>,
    /// Fields and gates of the file from later releases.
    #[serde(skip)]
    later: Vec<LaterSetting>,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            namespace: None,
            webhook: Webhook::default(),
            leader_election: LeaderElection::default(),
            metrics: Metrics::default(),
            health: Health::default(),
            pprof_bind_address: String::new(),
            controller: Controller::default(),
            tls: None,
            manage_jobs_without_queue_name: false,
            managed_jobs_namespace_selector: None,
            internal_cert_management: InternalCertManagement::default(),
            wait_for_pods_ready: WaitForPodsReady::default(),
            client_connection: ClientConnection::default(),
            integrations: Integrations::default(),
            multi_kueue: MultiKueue::default(),
            fair_sharing: None,
            admission_fair_sharing: None,
            resources: Resources::default(),
            feature_gates: BTreeMap::new(),
            object_retention_policies: ObjectRetentionPolicies::default(),
            visibility_server: VisibilityServer::default(),
            ignored: Vec::new(),
            later: Vec::new(),
        }
    }
}

impl Configuration {
    /// Fields that the file sets and that have no effect.
    #[must_use]
    pub fn ignored(&self) -> &[IgnoredField] {
        &self.ignored
    }

    /// Gates and fields of later releases of Kueue that the file names.
    #[must_use]
    pub fn later(&self) -> &[LaterSetting] {
        &self.later
    }

    /// Whether a feature gate is on: the file's value, else the default. Unknown gates are off.
    #[must_use]
    pub fn enabled(&self, gate: &str) -> bool {
        self.feature_gates.get(gate).copied().or_else(|| gates::default(gate)).unwrap_or(false)
    }

    /// Whether Workloads' preemption gates are enforced: if one of the two feature gates that use
    /// them is on.
    #[must_use]
    pub fn preemption_gates(&self) -> bool {
        self.enabled("ConcurrentAdmission") || self.enabled("MultiKueueOrchestratedPreemption")
    }

    /// Keys of the job's labels and annotations to copy to its Workload: those of
    /// `integrations.labelKeysToCopy`, and those that become metric labels of Workloads.
    #[must_use]
    pub fn keys_to_copy(&self) -> (Vec<String>, Vec<String>) {
        let custom = || self.custom_labels(SourceKind::Workload);
        let labels = custom().filter_map(CustomLabel::label_key).map(str::to_owned);
        let annotations = custom().filter_map(CustomLabel::annotation_key).map(str::to_owned);
        (
            self.integrations.label_keys_to_copy.iter().cloned().chain(labels).collect(),
            annotations.collect(),
        )
    }

    /// Metric labels whose values come from objects of this kind.
    pub fn custom_labels(&self, kind: SourceKind) -> impl Iterator<Item = &CustomLabel> {
        let on = self.enabled("CustomMetricLabels");
        self.metrics.custom_labels.iter().filter(move |label| on && label.source_kind == kind)
    }

    /// TLS options of all servers. `None` allows everything that is supported.
    #[must_use]
    pub fn tls_options(&self) -> Option<&Tls> {
        self.tls.as_ref().filter(|_| self.enabled("TLSOptions"))
    }

    /// Whether pods must become ready in time.
    #[must_use]
    pub fn waits_for_pods_ready(&self) -> bool {
        !self.enabled("DisableWaitForPodsReady")
    }

    /// Every job kind to watch or send, each once: enabled built-in kinds, and kinds that only the
    /// configuration names.
    #[must_use]
    pub fn all_frameworks(&self) -> Vec<String> {
        let mut all = self.integrations.frameworks.clone();
        let sends = self.enabled("MultiKueueAdaptersForCustomJobs");
        let sent = self
            .multi_kueue
            .external_frameworks
            .iter()
            .filter(|_| sends)
            .map(|framework| &framework.name);
        for name in self.integrations.external_frameworks.iter().chain(sent) {
            // Enabled kinds are sent anyway.
            let enabled =
                framework_of(name).is_some_and(|built_in| all.iter().any(|it| it == built_in));
            if !enabled && !all.contains(name) {
                all.push(name.clone());
            }
        }
        all
    }

    /// Namespaces whose jobs may be managed: the file's selector, else all but `kube-system`. Never
    /// the own namespace.
    #[must_use]
    pub fn managed_jobs_namespace_selector(&self, own_namespace: &str) -> LabelSelector {
        let mut selector =
            self.managed_jobs_namespace_selector.clone().unwrap_or_else(|| LabelSelector {
                match_expressions: Some(vec![all_but(&[KUBE_SYSTEM, own_namespace])]),
                match_labels: None,
            });
        if validate::matches_namespace(&selector, own_namespace) {
            selector.match_expressions.get_or_insert_default().push(all_but(&[own_namespace]));
        }
        selector
    }
}

fn all_but(namespaces: &[&str]) -> LabelSelectorRequirement {
    LabelSelectorRequirement {
        key: NAMESPACE_NAME.to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(namespaces.iter().map(|namespace| (*namespace).to_owned()).collect()),
    }
}

/// Why a configuration file is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file is not YAML.
    #[error("the configuration file is not valid YAML: {0}")]
    Yaml(String),
    /// Errors of fields, one for each line of the message.
    #[error("{}", lines(.0))]
    Fields(Vec<FieldError>),
}

fn lines(errors: &[FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
