//! How jobs are sent to worker clusters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GoDuration;
use switchyard_syntax::names;

/// How jobs are sent to worker clusters.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MultiKueue {
    /// How often objects without a counterpart are looked for; never when zero.
    pub gc_interval: GoDuration,
    /// The value of the label [`names::MULTIKUEUE_ORIGIN`] on objects in worker clusters.
    pub origin: String,
    /// How long a lost cluster keeps its workloads.
    pub worker_lost_timeout: GoDuration,
    /// Who picks the cluster: [`names::DISPATCHER_BEST_FIT`], one of Kueue's, or the name of another controller.
    pub dispatcher_name: String,
    /// Job kinds that are sent without knowing more of them than their name.
    pub external_frameworks: Vec<MultiKueueExternalFramework>,
    /// How ClusterProfiles are turned into credentials.
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
    /// How many clusters the incremental dispatcher nominates at a time; at least one.
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
    /// How many clusters at a time.
    pub step_size: i32,
}

impl Default for IncrementalDispatcherConfig {
    fn default() -> Self {
        Self { step_size: 3 }
    }
}

/// A job kind that is sent without knowing more of it.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MultiKueueExternalFramework {
    /// As `Kind.version.group`.
    pub name: String,
}

/// How ClusterProfiles are turned into credentials.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClusterProfile {
    /// Commands that print credentials.
    pub access_providers: Vec<AccessProvider>,
    /// The older name of the same.
    pub credentials_providers: Vec<AccessProvider>,
}

/// A command that prints credentials.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AccessProvider {
    /// The provider's name in the ClusterProfile.
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
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment.
    pub env: Vec<ExecEnv>,
    /// The version of what it prints.
    pub api_version: String,
    /// How to get the executable.
    pub install_hint: String,
    /// Whether it is told the cluster.
    pub provide_cluster_info: bool,
    /// Whether it may ask: `Never`, `IfAvailable` or `Always`.
    pub interactive_mode: String,
}

/// An environment variable.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ExecEnv {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}
