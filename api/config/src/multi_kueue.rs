//! Dispatch to worker clusters (`multiKueue`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GoDuration;
use switchyard_syntax::names;

/// Dispatch to worker clusters.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MultiKueue {
    /// Interval of the search for remote objects without a local one. Zero disables it.
    pub gc_interval: GoDuration,
    /// Value of the label `kueue.x-k8s.io/multikueue-origin` on objects in worker clusters.
    pub origin: String,
    /// How long a lost cluster keeps its workloads.
    pub worker_lost_timeout: GoDuration,
    /// The dispatcher that picks the cluster: `switchyard.dev/best-fit`, one of Kueue's, or
    /// the name of an external controller.
    pub dispatcher_name: String,
    /// Job kinds of which only the name is known and that are sent as they are.
    pub external_frameworks: Vec<MultiKueueExternalFramework>,
    /// How to get credentials for ClusterProfiles.
    pub cluster_profile: Option<ClusterProfile>,
    /// Settings of the incremental dispatcher.
    pub incremental_dispatcher_config: Option<IncrementalDispatcherConfig>,
}

impl Default for MultiKueue {
    fn default() -> Self {
        Self {
            gc_interval: GoDuration::from_secs(60),
            origin: "multikueue".to_owned(),
            worker_lost_timeout: GoDuration::from_secs(15 * 60),
            dispatcher_name: names::DISPATCHER_BEST_FIT.to_owned(),
            external_frameworks: Vec::new(),
            cluster_profile: None,
            incremental_dispatcher_config: None,
        }
    }
}

impl MultiKueue {
    /// How many clusters the incremental dispatcher nominates at a time. At least one.
    #[must_use]
    pub fn step_size(&self) -> usize {
        let size = self.incremental_dispatcher_config.clone().unwrap_or_default().step_size;
        usize::try_from(size).unwrap_or(1).max(1)
    }
}

/// Settings of the incremental dispatcher.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IncrementalDispatcherConfig {
    /// Clusters per round.
    pub step_size: i32,
}

impl Default for IncrementalDispatcherConfig {
    fn default() -> Self {
        Self { step_size: 3 }
    }
}

/// A job kind that is sent as it is.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MultiKueueExternalFramework {
    /// The kind, as `Kind.version.group`.
    pub name: String,
}

/// How to get credentials for ClusterProfiles.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClusterProfile {
    /// Commands that print credentials.
    pub access_providers: Vec<AccessProvider>,
    /// Older name of `access_providers`.
    pub credentials_providers: Vec<AccessProvider>,
}

/// A command that prints credentials.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AccessProvider {
    /// Name of the provider in the ClusterProfile.
    pub name: String,
    /// The command.
    pub exec_config: ExecConfig,
}

/// A command, as in a kubeconfig.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ExecConfig {
    /// The executable.
    pub command: String,
    /// Arguments of the executable.
    pub args: Vec<String>,
    /// Environment variables of the executable.
    pub env: Vec<ExecEnv>,
    /// API version of its output.
    pub api_version: String,
    /// Instructions for installing the executable.
    pub install_hint: String,
    /// Whether the command gets information about the cluster.
    pub provide_cluster_info: bool,
    /// Whether it may use the terminal: `Never`, `IfAvailable` or `Always`.
    pub interactive_mode: String,
}

/// An environment variable.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ExecEnv {
    /// Name of the variable.
    pub name: String,
    /// Value of the variable.
    pub value: String,
}
