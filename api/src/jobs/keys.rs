//! Labels and annotations that the job code reads and writes (inventory 1.7).

pub(crate) const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
pub(crate) const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
pub(crate) const MAX_EXEC_TIME_SECONDS: &str = "kueue.x-k8s.io/max-exec-time-seconds";
pub(crate) const PREBUILT_WORKLOAD_NAME: &str = "kueue.x-k8s.io/prebuilt-workload-name";
pub(crate) const JOB_MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
pub(crate) const JOB_COMPLETIONS_EQUAL_PARALLELISM: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";
pub(crate) const STOPPING: &str = "kueue.x-k8s.io/stopping";
pub(crate) const MULTIKUEUE_ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
pub(crate) const MULTIKUEUE_WORKER_POD: &str = "kueue.x-k8s.io/multikueue-worker-workload-pod";
pub(crate) const WORKLOAD: &str = "kueue.x-k8s.io/workload";
pub(crate) const PODSET: &str = "kueue.x-k8s.io/podset";
pub(crate) const LOCAL_QUEUE_NAME: &str = "kueue.x-k8s.io/local-queue-name";
pub(crate) const CLUSTER_QUEUE_NAME: &str = "kueue.x-k8s.io/cluster-queue-name";
pub(crate) const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
pub(crate) const ADMISSION_GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
pub(crate) const PROVREQ_PREFIX: &str = "provreq.kueue.x-k8s.io/";
pub(crate) const RESOURCE_IN_USE: &str = "kueue.x-k8s.io/resource-in-use";
