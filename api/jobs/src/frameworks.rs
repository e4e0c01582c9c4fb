//! Names of serving kinds in the configuration and in the annotations of their pods.

pub(super) const STATEFUL_SET: &str = "statefulset";
pub(super) const LEADER_WORKER_SET: &str = "leaderworkerset.x-k8s.io/leaderworkerset";
