//! Reconcilers: each brings one kind of object in line with what it should be.
//!
//! # Skeleton
//! All have the same parts, in a file each where they are large:
//!
//! - `run(ctx, shutdown)` subscribes to the stores, puts the key of each changed object into a
//!   [`Queue`], and calls `reconcile` for each key. A key is reconciled by one worker at a time.
//!   After a change of leader all keys are queued again.
//! - `reconcile(ctx, key) -> Outcome` ends at once unless this process leads. It calls the next
//!   three.
//! - `gather` reads the stores and returns the inputs: everything that the decision depends on. It
//!   does not write or wait.
//! - `decide(inputs)` returns what to do. It is pure: tests call it with inputs of their own.
//! - `perform` writes that, with the object's resourceVersion as precondition. A conflict is no
//!   error: the newer object's change queues the key again.
//!
//! Small reconcilers do all three steps inside `reconcile`.
//!
//! # Modules
//! | module | keeps in line |
//! |---|---|
//! | [`job`] | a job and its Workload: creates the Workload, starts and stops the job |
//! | [`workload`] | a Workload outside the engine: eviction, deactivation, admission checks, requeuing, the end |
//! | [`queue_status`] | the status of ClusterQueues, LocalQueues and Cohorts, and finalizers of objects in use |
//! | [`provisioning`] | ProvisioningRequests of Workloads with such an admission check |
//! | [`concurrent_admission`] | variants of a Workload, one for each flavor |
//! | [`elastic`] | the scheduling gates of elastic jobs' pods |
//! | [`topology`] | the scheduling gates of placed pods; failed nodes |
//! | [`failure_recovery`] | pods that cannot end because their node is unreachable |
//! | [`priority`] | priorities of Workloads when their WorkloadPriorityClass changes |
//!
//! [`Queue`]: switchyard_platform::work_queue::Queue

mod chains;
pub(crate) mod concurrent_admission;
pub(crate) mod elastic;
pub(crate) mod failure_recovery;
pub(crate) mod job;
mod left_pods;
mod pod_gates;
pub(crate) mod priority;
pub(crate) mod provisioning;
pub(crate) mod queue_status;
pub(crate) mod topology;
pub(crate) mod workload;
