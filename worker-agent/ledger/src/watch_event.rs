//! Events of the cluster's watches.

use std::collections::BTreeSet;
use std::sync::Arc;

use switchyard_proto::v1;

use crate::objects::{Object, ObjectKind, Target};

/// A change on the cluster, as a watch reports it.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// The object's current state.
    Applied(Box<Object>),
    /// The object of this uid no longer exists.
    Deleted { kind: ObjectKind, workload_uid: String, target: Target },
    /// The object of this uid no longer carries this hub's marks: another client took it
    /// over.
    Disowned { kind: ObjectKind, target: Target },
    /// The statuses of the pods that a job's own controller created in one namespace. They count
    /// only in the namespace of the workload's copy.
    PodStatuses {
        namespace: String,
        workload_uid: String,
        /// The attempt in the pods' marks.
        attempt: u64,
        /// JSON; empty if there are no pods.
        status: Vec<u8>,
    },
    /// All known causes that keep an attempt's job from starting, and whether it has a ready pod.
    Troubles {
        workload_uid: String,
        attempt: u64,
        /// Within the bounds of the protocol; empty if there is no cause any more.
        troubles: Vec<v1::JobTrouble>,
        /// Its pods were examined, and none is ready or has succeeded.
        no_ready_pod: bool,
    },
    /// A list of one kind is complete: its objects have been reported as `Applied`.
    Listed {
        kind: ObjectKind,
        gvk: Arc<str>,
        /// The uids of all listed objects.
        uids: BTreeSet<String>,
    },
    /// Every kind has been listed once. From now on, an unknown object does not exist.
    Synced,
}
