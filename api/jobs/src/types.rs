//! Plain types that all job kinds share.

use serde_json::Value;

/// The identity of a job kind: its API resource and its name in the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindId {
    /// API group, such as `batch`. Empty for the core group.
    pub group: &'static str,
    /// The API version that Switchyard reads and writes, such as `v1`.
    pub version: &'static str,
    /// Kind, such as `Job`.
    pub kind: &'static str,
    /// Plural resource name, such as `jobs`.
    pub plural: &'static str,
    /// Name in `integrations.frameworks` of the configuration file, such as `batch/job`.
    pub framework: &'static str,
}

impl KindId {
    /// `group/version` as in `apiVersion`, or `version` alone for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The resource for a dynamic client.
    #[must_use]
    pub fn api_resource(&self) -> kube::core::ApiResource {
        let gvk = kube::core::GroupVersionKind::gvk(self.group, self.version, self.kind);
        kube::core::ApiResource::from_gvk_with_plural(&gvk, self.plural)
    }
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEnd {
    /// False if the job failed.
    pub success: bool,
    /// Message of the job's terminal condition.
    pub message: String,
}

/// The pods that the status of a job counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CountedPods {
    /// True if it counts any pods.
    pub may_exist: bool,
    /// True if it counts pods that have succeeded. They may be gone.
    pub has_succeeded: bool,
}

/// How the jobs of a kind are kept from running until they are admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspendMode {
    /// A field of the job, which can be set at any time.
    Field,
    /// A scheduling gate, which only the creation of the pod can set: a pod created without it is
    /// out of control. Managed pods carry the label `kueue.x-k8s.io/managed`, and only pods with
    /// the label are watched. The webhook checks at creation whether a managed job owns the pod.
    Gate,
    /// The gates of the pods that the job creates. [`crate::JobKind::suspend`] marks the job's pod
    /// templates for the pod webhook, at creation and on updates.
    Pods,
}

/// The next write on the way to a stopped job with its original templates.
#[derive(Debug, Clone, PartialEq)]
pub enum Stop {
    /// The job is stopped and has the templates that its user wrote.
    Done,
    /// Write the difference to this object.
    Update {
        /// The wanted object.
        job: Box<Value>,
        /// True if this write suspends the job.
        now: bool,
    },
    /// Write the difference to this object's status.
    UpdateStatus(Box<Value>),
    /// Delete these pods of the job. Their owner creates replacements if the job goes on.
    Terminate(Vec<Value>),
    /// Nothing can be written until the job's own controller has acted.
    Wait,
}

/// An object that the pods of a job depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// One of [`crate::Dependent::dependencies`].
    pub kind: KindId,
    /// Namespace. Empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Metadata of the copy of a job in a worker cluster.
#[derive(Debug, Clone, Copy)]
pub struct RemoteMeta<'a> {
    /// Name of the Workload in the worker cluster.
    pub workload: &'a str,
    /// Value of the label `kueue.x-k8s.io/multikueue-origin`.
    pub origin: &'a str,
}

/// Settings of the configuration for new Workloads.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuildOptions<'a> {
    /// Labels of the job to copy (`integrations.labelKeysToCopy`).
    pub label_keys_to_copy: &'a [String],
    /// Annotations of the job to copy, besides those that every Workload gets.
    pub annotation_keys_to_copy: &'a [String],
}
