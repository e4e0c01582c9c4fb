//! The settings of an agent's core.

use switchyard_ledger::AllowedNamespaces;

use crate::allow::Allowed;
use crate::dry_run_counts::DryRunCounts;
use crate::foreign::Foreign;
use crate::proof::Keys;

/// The settings of an agent's core.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster's name on the hub, for the log.
    pub cluster: String,
    /// The cluster's uid, from [`cluster_uid`](crate::cluster_uid()); empty if unknown.
    pub cluster_uid: String,
    /// The hub's id: the label of copies, and the only hub whose `Welcome` the agent accepts.
    pub hub_id: String,
    /// The value of `kueue.x-k8s.io/multikueue-origin` on copies.
    pub origin: String,
    /// Random, new at each start of the process.
    pub boot_id: String,
    /// The build, for display.
    pub software: String,
    /// The namespaces that the hub may use.
    pub namespaces: AllowedNamespaces,
    /// The kinds of jobs that the agent creates (`integrations.frameworks` and external
    /// frameworks).
    pub frameworks: Vec<String>,
    /// The kinds of jobs and service accounts that the hub may use.
    pub allowed: Allowed,
    /// Counts dry runs; none: the agent accepts jobs without one.
    pub dry_runs: Option<DryRunCounts>,
    /// The keys that prove copies.
    pub keys: Keys,
    /// Counts foreign objects with the hub's label.
    pub foreign: Foreign,
    /// Concurrent writes to the cluster's API server.
    pub concurrency: usize,
    /// The namespace of the agent's memory.
    ///
    /// Without one, a restarted agent stops all jobs with a fence until it has a session.
    pub memory: Option<String>,
}
