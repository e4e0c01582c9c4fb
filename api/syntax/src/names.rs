//! Labels, annotations, finalizers, gates, field managers and other well-known names. Kueue's come
//! first, with Kueue's meaning. Switchyard's are at the end, under `switchyard.dev/`.

// --- From a job to its queue.

/// Label on a job: the LocalQueue. As an annotation it is deprecated.
pub const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
/// Label on a job: its WorkloadPriorityClass.
pub const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
/// Label on a job: how many seconds it may stay admitted.
pub const MAX_EXEC_TIME_SECONDS: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// Label or annotation on a job: the Workload that another controller made for it beforehand.
pub const PREBUILT_WORKLOAD_NAME: &str = "kueue.x-k8s.io/prebuilt-workload-name";
/// Annotation on a `batch/v1` Job: the least parallelism that it accepts (partial admission).
pub const JOB_MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
/// Annotation on a `batch/v1` Job: `true` keeps completions equal to parallelism.
pub const JOB_COMPLETIONS_EQUAL_PARALLELISM: &str =
    "kueue.x-k8s.io/job-completions-equal-parallelism";
/// Annotation on a job, `true`: its size may change while it runs.
pub const ELASTIC_JOB: &str = "kueue.x-k8s.io/elastic-job";
/// Annotation on a job: a comma-separated list of gates that keep it from admission.
pub const ADMISSION_GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
/// Annotation on a job, `true`: it is being stopped.
pub const STOPPING: &str = "kueue.x-k8s.io/stopping";
/// Label: made by the controller, not by a user.
pub const AUTO_GENERATED: &str = "kueue.x-k8s.io/auto-generated";
/// Prefix of annotations that pass into a ProvisioningRequest.
pub const PROVISIONING_REQUEST_PREFIX: &str = "provreq.kueue.x-k8s.io/";
/// Name of the LocalQueue, and of the WorkloadPriorityClass, for jobs that name none.
pub const DEFAULT: &str = "default";

// --- On a Workload.

/// Label: the uid of the job.
pub const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
/// Annotation: the job's group, version and kind.
pub const JOB_OWNER_GVK: &str = "kueue.x-k8s.io/job-owner-gvk";
/// Annotation: the job's name.
pub const JOB_OWNER_NAME: &str = "kueue.x-k8s.io/job-owner-name";
/// Annotation: the index of this Workload, from 0, for a job with several Workloads.
pub const COMPONENT_WORKLOAD_INDEX: &str = "kueue.x-k8s.io/component-workload-index";
/// Annotation, `true`: the workload of a pod group.
pub const IS_GROUP_WORKLOAD: &str = "kueue.x-k8s.io/is-group-workload";
/// Annotation: an integer that is added to the priority.
pub const PRIORITY_BOOST: &str = "kueue.x-k8s.io/priority-boost";
/// Annotation: a comma-separated list of the only flavors that admission may use.
pub const WORKLOAD_ALLOWED_RESOURCE_FLAVORS: &str =
    "kueue.x-k8s.io/workload-allowed-resource-flavors";
/// Label, `true`: the Workload stands for a job and is admitted with one of its variants.
pub const CONCURRENT_ADMISSION_PARENT: &str = "kueue.x-k8s.io/concurrent-admission-parent";
/// Annotation: name of the first Workload in a chain of slices.
pub const WORKLOAD_SLICE_NAME: &str = "kueue.x-k8s.io/workload-slice-name";
/// Annotation: the Workload that this slice replaces, as `namespace/name`.
pub const WORKLOAD_SLICE_REPLACEMENT_FOR: &str = "kueue.x-k8s.io/workload-slice-replacement-for";
/// Label on objects in a worker cluster: the hub's `multiKueue.origin`.
pub const MULTIKUEUE_ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
/// Annotation on objects in a worker cluster: the uid of the hub's object.
pub const MULTIKUEUE_ORIGIN_UID: &str = "kueue.x-k8s.io/multikueue-origin-uid";

// --- On pods.

/// Label, `true`, and finalizer on individually managed pods.
pub const MANAGED: &str = "kueue.x-k8s.io/managed";
/// Label: the pod set.
pub const POD_SET: &str = "kueue.x-k8s.io/podset";
/// Annotation: the workload.
pub const WORKLOAD: &str = "kueue.x-k8s.io/workload";
/// Label: the ClusterQueue, if its name is a valid label value.
pub const CLUSTER_QUEUE_NAME: &str = "kueue.x-k8s.io/cluster-queue-name";
/// Label: the LocalQueue.
pub const LOCAL_QUEUE_NAME: &str = "kueue.x-k8s.io/local-queue-name";
/// Annotation: framework of the owner that suspends the pod.
pub const POD_SUSPENDING_PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
/// Label and annotation: the pod group.
pub const POD_GROUP_NAME: &str = "kueue.x-k8s.io/pod-group-name";
/// Annotation: how many pods the group has.
pub const POD_GROUP_TOTAL_COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
/// Annotation, `true`: the group is queued with its first pod.
pub const POD_GROUP_FAST_ADMISSION: &str = "kueue.x-k8s.io/pod-group-fast-admission";
/// Annotation of Kueue 0.20, without effect in Switchyard: pods of a group that may stay unready.
pub const POD_GROUP_MAX_NOT_READY_COUNT: &str = "kueue.x-k8s.io/pod-group-max-not-ready-count";
/// Annotation of Kueue 0.20, without effect in Switchyard: the PodsReady timeout of one job.
pub const WAIT_FOR_PODS_READY: &str = "kueue.x-k8s.io/wait-for-pods-ready";
/// Annotation of Kueue 0.20, without effect in Switchyard: how Workloads spread over a topology.
pub const PODSET_TOPOLOGY_SPREADING: &str = "kueue.x-k8s.io/podset-topology-spreading";
/// Annotation, `true`: the group serves and never finishes.
pub const POD_GROUP_SERVING: &str = "kueue.x-k8s.io/pod-group-serving";
/// Label: the pod's index in its group.
pub const POD_GROUP_POD_INDEX: &str = "kueue.x-k8s.io/pod-group-pod-index";
/// Annotation: the label that holds the pod's index in its group.
pub const POD_GROUP_POD_INDEX_LABEL: &str = "kueue.x-k8s.io/pod-group-pod-index-label";
/// Annotation: hash of the shape of a pod in a group.
pub const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
/// Annotation, `false`: a failed pod of the group is not replaced.
pub const RETRIABLE_IN_GROUP: &str = "kueue.x-k8s.io/retriable-in-group";
/// Label, `true`: the pod belongs to a workload that a hub sent.
pub const MULTIKUEUE_WORKER_WORKLOAD_POD: &str = "kueue.x-k8s.io/multikueue-worker-workload-pod";
/// Annotation, `true`: the pod may be force-deleted if its node is gone.
pub const SAFE_TO_FORCEFULLY_DELETE: &str = "kueue.x-k8s.io/safe-to-forcefully-delete";

// --- Topology, on pod templates.

/// Annotation: the topology level whose one domain must hold all pods.
pub const POD_SET_REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-required-topology";
/// Annotation: the topology level whose one domain should hold the pods.
pub const POD_SET_PREFERRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-preferred-topology";
/// Annotation, `true`: any domains with room will do.
pub const POD_SET_UNCONSTRAINED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
/// Annotation: the topology level whose one domain must hold each slice.
pub const POD_SET_SLICE_REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-slice-required-topology";
/// Annotation: pods per slice.
pub const POD_SET_SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
/// Annotation: nested slices, as JSON.
pub const POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS: &str =
    "kueue.x-k8s.io/podset-slice-required-topology-constraints";
/// Annotation: pod sets with the same value are placed together.
pub const POD_SET_GROUP_NAME: &str = "kueue.x-k8s.io/podset-group-name";
/// Annotation: a number to add to a pod's index.
pub const POD_INDEX_OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";

// --- Ray.

/// Annotation: the generation of the RayCluster.
pub const RAY_CLUSTER_GENERATION: &str = "kueue.x-k8s.io/raycluster-generation";
/// Annotation: replicas of each pod set of the RayCluster.
pub const RAY_CLUSTER_POD_SET_REPLICA_SIZES: &str =
    "kueue.x-k8s.io/raycluster-podset-replica-sizes";

// --- Gates and finalizers.

/// Scheduling gate: the pod is not admitted.
pub const ADMISSION_SCHEDULING_GATE: &str = "kueue.x-k8s.io/admission";
/// Scheduling gate: the pod's topology domain is not chosen.
pub const TOPOLOGY_SCHEDULING_GATE: &str = "kueue.x-k8s.io/topology";
/// Scheduling gate: the pod's slice is not admitted.
pub const ELASTIC_JOB_SCHEDULING_GATE: &str = "kueue.x-k8s.io/elastic-job";
/// Preemption gate: the hub decides whether a Workload may preempt on this cluster.
pub const MULTIKUEUE_PREEMPTION_GATE: &str = "kueue.x-k8s.io/multikueue";
/// Preemption gate of variants.
pub const CONCURRENT_ADMISSION_PREEMPTION_GATE: &str = "kueue.x-k8s.io/concurrent-admission";
/// Finalizer: other objects still use this one.
pub const RESOURCE_IN_USE: &str = "kueue.x-k8s.io/resource-in-use";

// --- Controllers, dispatchers and field managers.

/// Controller name of MultiKueue admission checks, and `managedBy` of jobs that a hub dispatches.
pub const MULTIKUEUE_CONTROLLER: &str = "kueue.x-k8s.io/multikueue";
/// Controller name of ProvisioningRequest admission checks.
pub const PROVISIONING_REQUEST_CONTROLLER: &str = "kueue.x-k8s.io/provisioning-request";
/// The dispatcher that nominates all clusters at once.
pub const DISPATCHER_ALL_AT_ONCE: &str = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once";
/// The dispatcher that nominates clusters a few at a time.
pub const DISPATCHER_INCREMENTAL: &str = "kueue.x-k8s.io/multikueue-dispatcher-incremental";
/// Field manager of admission in a workload's status. An external dispatcher uses it for
/// `nominatedClusterNames` too.
pub const ADMISSION_MANAGER: &str = "kueue-admission";
/// Field manager of jobs and of objects derived from them.
pub const JOB_CONTROLLER_MANAGER: &str = "kueue-job-controller";
/// Field manager of `reclaimablePods`.
pub const RECLAIMABLE_PODS_MANAGER: &str = "kueue-reclaimable-pods";
/// Reporting controller of events about Workloads.
pub const WORKLOAD_CONTROLLER: &str = "kueue-workload-controller";
/// `managedBy` of jobs that Kubernetes' own controller runs.
pub const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";
/// The key of the kubeconfig in a MultiKueueCluster's Secret.
pub const KUBECONFIG_SECRET_KEY: &str = "kubeconfig";

// --- Switchyard's own.

/// Label on objects in a worker cluster: the hub that they belong to. The agent never touches
/// objects without it.
pub const HUB_ID: &str = "switchyard.dev/hub-id";
/// Annotation on objects in a worker cluster: the uid of the hub's Workload.
pub const WORKLOAD_UID: &str = "switchyard.dev/workload-uid";
/// Annotation on objects in a worker cluster: the attempt that created them.
pub const ATTEMPT: &str = "switchyard.dev/attempt";
/// Annotation on objects in a worker cluster: a keyed digest. It proves that a hub or agent wrote
/// the marks beside it.
pub const PROOF: &str = "switchyard.dev/proof";
/// Annotation on a copy of a Workload, in base64: `Origin.pod_sets` of the hub's Workload. Set if
/// the copy has other pod sets.
pub const POD_SETS_HASH: &str = "switchyard.dev/pod-sets-hash";
/// Annotation on a Workload in a worker cluster, `true`: its job is part of another Workload's job,
/// which was sent first.
pub const FOLLOWS: &str = "switchyard.dev/follows";
/// Annotation on a Workload in a worker cluster, such as `300000ms`: how long after its lease
/// lapses the agent stops the job.
pub const FENCE_AFTER: &str = "switchyard.dev/fence-after";
/// Annotation on a Workload in a worker cluster, `true`: the agent deactivated it. The agent
/// activates only such Workloads.
pub const SUSPENDED: &str = "switchyard.dev/suspended";
/// Annotation on a Workload in a worker cluster: the flavors that the hub charged, by pod set and
/// resource, as JSON. Admission uses no others. It counts only on a hub's copy.
pub const FLAVOR_PINS: &str = "switchyard.dev/flavor-pins";
/// Label on the pods of an elastic job, `true`: the controller watches them, to ungate them when
/// their slices are admitted.
pub const ELASTIC_POD: &str = "switchyard.dev/elastic-pod";
/// Annotation on a MultiKueueCluster. `cordon` stops new dispatches to it. `drain` also moves its
/// jobs to other clusters.
pub const SCHEDULING: &str = "switchyard.dev/scheduling";
/// Value of [`SCHEDULING`].
pub const CORDON: &str = "cordon";
/// Value of [`SCHEDULING`].
pub const DRAIN: &str = "drain";
/// Annotation on a MultiKueueCluster, an RFC 3339 time: an administrator declared it lost. The time
/// is the last transition of the condition `Active` and names the loss. The annotation has no
/// effect after the cluster reconnects.
pub const DECLARED_LOST: &str = "switchyard.dev/declared-lost";
/// Annotation on a MultiKueueCluster with a kubeconfig: `allowed` permits a kubeconfig for the
/// hub's own cluster.
pub const OWN_CLUSTER: &str = "switchyard.dev/own-cluster";
/// Annotation on a MultiKueueCluster, an RFC 3339 time: for one hour from then, the hub accepts
/// every object with its marks on that cluster as its copy, and signs it.
pub const TRUST_COPIES: &str = "switchyard.dev/trust-copies";
/// Annotation on MultiKueueClusters: a new value releases the circuit breaker.
pub const BREAKER_RELEASE: &str = "switchyard.dev/breaker-release";
/// Annotation on a Workload, `ATTEMPT/CLUSTER`: move this attempt to that cluster.
pub const MOVE: &str = "switchyard.dev/move";
/// Annotation on a Workload, `CLUSTER/UID`: adopt the copy with this uid on that cluster, whatever
/// the differences. The copy is older than the hub's memory. `none` ignores all such copies.
pub const ADOPT: &str = "switchyard.dev/adopt";

/// Begins the note of an orphan that the hub neither removes nor adopts.
pub const ORPHAN_STAYS: &str = "stays: ";
/// Annotation on the Secret of the hub's certificate authority, an RFC 3339 time: the hub has no
/// record of anything it did before.
pub const MEMORY_SINCE: &str = "switchyard.dev/memory-since";
/// Annotation on a job and its Workload: the policy for the loss of the worker cluster. `Hold`,
/// `Fence` or `Duplicate`, the last two with an optional duration, such as `Fence/5m`.
pub const ON_DISCONNECT: &str = "switchyard.dev/on-disconnect";
/// Annotation on a job and its Workload: after how long without a ready pod the hub moves it to
/// another cluster, and at most how many times. `10m` or `10m/3`; `Stay` never moves it.
pub const ON_STUCK: &str = "switchyard.dev/on-stuck";
/// Annotation on a job and its Workload: a comma-separated list of the only MultiKueueClusters that
/// it may go to.
pub const CLUSTERS: &str = "switchyard.dev/clusters";
/// Annotation on a job and its Workload: a label selector, as for `kubectl -l`, of the
/// MultiKueueClusters that it may go to.
pub const CLUSTER_SELECTOR: &str = "switchyard.dev/cluster-selector";
/// Annotation on a job and its Workload: a comma-separated list of the MultiKueueClusters that it
/// prefers.
pub const PREFERRED_CLUSTERS: &str = "switchyard.dev/preferred-clusters";
/// Annotation on a job and its Workload: a label selector of the MultiKueueClusters that it
/// prefers.
pub const PREFERRED_CLUSTER_SELECTOR: &str = "switchyard.dev/preferred-cluster-selector";
/// Annotation on a job and its Workload: a comma-separated list of MultiKueueClusters that it must
/// not go to.
pub const EXCLUDED_CLUSTERS: &str = "switchyard.dev/excluded-clusters";
/// Annotation on a job and its Workload: a label selector of MultiKueueClusters that it must not go
/// to.
pub const EXCLUDED_CLUSTER_SELECTOR: &str = "switchyard.dev/excluded-cluster-selector";
/// Annotation on Kueue's objects: v1beta1 fields that v1beta2 lacks, kept for the way back.
pub const V1BETA1: &str = "switchyard.dev/v1beta1";
/// Annotation on Kueue's objects: v1beta1 fields that were too long for [`V1BETA1`] and were
/// dropped.
pub const V1BETA1_DROPPED: &str = "switchyard.dev/v1beta1-dropped";
/// Finalizer on objects in a worker cluster: their final state is not yet recorded on the hub.
pub const TERMINAL_STATE: &str = "switchyard.dev/terminal-state";
/// The dispatcher that picks one cluster by its free capacity. The default.
pub const DISPATCHER_BEST_FIT: &str = "switchyard.dev/best-fit";
/// Field manager of all other writes.
pub const FIELD_MANAGER: &str = "switchyard";
