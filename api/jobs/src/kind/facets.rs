//! Facets: what only some job kinds can do. [`JobKind`] has an accessor for each.

use jiff::Timestamp;
use serde_json::Value;
use switchyard_api::v1beta2::PodSet;
use switchyard_syntax::field::Path;

use super::JobKind;
use crate::meta::{self, Keys};
use crate::{Dependency, KindId, RemoteMeta};

/// Jobs that may change their size while they run (Kueue's KEP-77, see [`crate::elastic`]).
pub trait Elastic: JobKind {
    /// JSON pointers to the pod templates that bear the scheduling gate of elastic jobs.
    fn templates(&self, job: &Value) -> Vec<String>;

    /// A text that differs between two sizes of a job, for the names of its Workloads. Defaults to
    /// the job's generation.
    fn size_generation(&self, job: &Value) -> String {
        meta::generation(job).to_string()
    }

    /// Whether a job can be resized in a worker cluster, by [`Self::resize`] and
    /// [`Self::apply_counts`].
    fn resizes(&self) -> bool {
        false
    }

    /// Sets the counts of the job's own pod sets in the job.
    fn resize(&self, job: &mut Value, pod_sets: &[PodSet]) {
        let _ = (job, pod_sets);
    }

    /// Sets the size of another job in this job, in the fields that the other job uses.
    fn apply_counts(&self, job: &mut Value, other: &Value) {
        if let Ok(pod_sets) = self.pod_sets(other) {
            self.resize(job, &pod_sets);
        }
    }

    /// True if as many pods are ready or have succeeded as these pod sets have. The job may have
    /// grown since.
    fn pods_ready_of(&self, job: &Value, pod_sets: &[PodSet]) -> bool {
        let _ = pod_sets;
        self.pods_ready(job)
    }

    /// The field that enables the job's own autoscaler, if it is enabled.
    fn autoscaler_field(&self, job: &Value) -> Option<Path> {
        let _ = job;
        None
    }
}

/// Objects that form one job together: the pods of a pod group.
pub trait Grouped: JobKind {
    /// The name of the group of an object, if it belongs to one.
    fn group_of<'a>(&self, job: &'a Value) -> Option<&'a str>;

    /// The job that the objects of a group form. All other methods take it like a single object.
    /// Edits of it are edits of its members.
    fn compose(&self, members: Vec<Value>) -> Value;

    /// The objects that form the job: itself, unless it was composed.
    fn members<'a>(&self, job: &'a Value) -> &'a [Value];

    /// Whether the job was composed of the objects of a group.
    fn is_composed(&self, job: &Value) -> bool;

    /// Whether changing the job's queue moves its Workload. Serving pods follow their owner.
    fn syncs_queue(&self, job: &Value) -> bool;
}

/// Jobs whose pods depend on another object: the runtime of a TrainJob, the RayCluster of a RayJob.
pub trait Dependent: JobKind {
    /// Kinds of these objects. The reconciler watches them.
    fn dependencies(&self) -> &'static [KindId];

    /// The object that the pods of this job depend on.
    fn depends_on(&self, job: &Value) -> Option<Dependency> {
        let _ = job;
        None
    }

    /// Copies the needed parts of that object into the job, beside its own fields, where all other
    /// methods find it. It is never written to the API server.
    fn attach(&self, job: &mut Value, found: &Value) {
        let _ = (job, found);
    }
}

/// Jobs with a field that names their controller. Jobs of other kinds are kept from running on a
/// hub by their suspension alone.
pub trait Managed: JobKind {
    /// The field. It is immutable in all kinds.
    fn manager_field(&self) -> Keys {
        meta::MANAGED_BY
    }

    /// The controller that the job names.
    fn managed_by<'a>(&self, job: &'a Value) -> Option<&'a str> {
        let manager = meta::value_at(job, self.manager_field())?.as_str();
        manager.filter(|manager| !manager.is_empty())
    }

    /// Names the controller that runs the job. Possible only at creation.
    fn set_managed_by(&self, job: &mut Value, manager: Option<&str>) {
        meta::set_value(job, self.manager_field(), manager.map(Value::from));
    }

    /// True if the webhook may hand the job to MultiKueue.
    fn can_default_managed_by(&self, job: &Value) -> bool;
}

/// Jobs that a hub sends to worker clusters.
pub trait Remote: JobKind {
    /// JSON pointers to spec fields whose changes on the hub are propagated to the copy. All other
    /// fields of a copy stay as they were sent.
    fn propagated_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// The object to create in a worker cluster: suspended, without owner, uid, status, managedBy
    /// and the fields that the worker's API server sets. For a group, a List of its members
    /// ([`crate::sent_objects`]).
    fn remote_copy(&self, job: &Value, remote: RemoteMeta<'_>) -> Value;

    /// The status that the hub's job should show, given the copy's. `None` if it shows it already.
    fn mirror_status(&self, local: &Value, remote: &Value) -> Option<Value>;

    /// The status of a hub's job whose copy is gone before it finished. `None` if it is right
    /// already.
    fn reset_status(&self, local: &Value, now: Timestamp) -> Option<Value>;

    /// The status of a hub's job that waits for a cluster, so that it does not look running. `None`
    /// if it is right already or the kind has no such status.
    fn waiting_status(&self, local: &Value, now: Timestamp) -> Option<Value> {
        let _ = (local, now);
        None
    }
}

/// A group of pods that should exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name, which is also the name of its Workload.
    pub name: String,
    /// Index among the object's groups, for kinds with several groups.
    pub index: Option<u32>,
    /// Whether it is scaled to zero. Then its Workload is on hold or is not created.
    pub is_scaled_down: bool,
}

/// Labels and annotations for pods.
#[derive(Debug, Clone, Copy)]
pub struct PodMetadata<'a> {
    /// Labels.
    pub labels: &'a [(&'a str, &'a str)],
    /// Annotations.
    pub annotations: &'a [(&'a str, &'a str)],
}

/// Facet of kinds with serving groups. [`JobKind::pod_sets`] are the pod sets of one group.
pub trait Serving: Send + Sync {
    /// Sets labels and annotations in its pod templates, so that its pods have them.
    fn mark_pods(&self, object: &mut Value, marks: &PodMetadata<'_>);

    /// The name of the first group of the object with that name and uid. The object is dispatched
    /// with this group, and the other groups go to the same cluster. `None` if objects of the kind
    /// have one group. Names on a worker derive from the uid of the hub's object.
    fn first_group(&self, name: &str, uid: &str) -> Option<String> {
        let _ = (name, uid);
        None
    }

    /// The number of groups that the object asks for. A hub propagates changes of it to the copy.
    /// `None` if objects of the kind have one group.
    fn replicas(&self, object: &Value) -> Option<i64> {
        let _ = object;
        None
    }

    /// The groups that should exist.
    fn groups(&self, object: &Value) -> Vec<Group>;

    /// The name that an older Kueue gave the object's only group, without its uid. `None` if the
    /// names have not changed.
    fn older_group(&self, object: &Value) -> Option<String> {
        let _ = object;
        None
    }

    /// Makes the group use that older name. The mark is kept beside the object's own fields and
    /// never written to the API server.
    fn use_older_group_name(&self, object: &mut Value) {
        let _ = object;
    }

    /// The name of the object that a part (a pod, or an object in between) belongs to. Both have
    /// the same namespace.
    fn owner_of<'a>(&self, part: &'a Value) -> Option<&'a str>;

    /// Labels that all pods of the object have, as a selector. Others may have them, too.
    fn pod_labels(&self, object: &Value) -> String;

    /// Makes a pod a member of its group. Returns true if the pod changed. A pod whose group is not
    /// known yet stays unchanged.
    fn join(&self, object: &Value, pod: &mut Value) -> bool;
}
