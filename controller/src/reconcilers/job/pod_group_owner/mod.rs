//! Owners that create the pods of serving groups: StatefulSets and LeaderWorkerSets.
//!
//! Each group gets a Workload before its pods exist, and each pod gets its group's label.

pub(super) mod decide;
mod reconcile;
