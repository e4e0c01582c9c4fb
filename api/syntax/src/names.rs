//! Labels, annotations, finalizers, gates, field managers and other names that objects are known by. Kueue's first,
//! with their meaning as there; ours at the end, under `switchyard.dev/`.

// --- From a job to its queue.

/// Label on a job: the LocalQueue. As an annotation it is deprecated.
pub const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
/// Label on a job: its WorkloadPriorityClass.
pub const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
/// Label on a job: seconds that it may be admitted.
pub const MAX_EXEC_TIME_SECONDS: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// Label or annotation on a job: the workload that was made for it beforehand.
pub const PREBUILT_WORKLOAD_NAME: &str = "kueue.x-k8s.io/prebuilt-workload-name";
/// Annotation on a `batch/v1` Job: how few pods in parallel will do.
pub const JOB_MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
/// Annotation on a `batch/v1` Job: `true` keeps completions equal to parallelism.
pub const JOB_COMPLETIONS_EQUAL_PARALLELISM: &str =
    "kueue.x-k8s.io/job-completions-equal-parallelism";
/// Annotation on a job, `true`: its size may change while it runs.
pub const ELASTIC_JOB: &str = "kueue.x-k8s.io/elastic-job";
/// Annotation on a job: a comma list of gates that hold it back.
pub const ADMISSION_GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
/// Annotation on a job, `true`: it is being stopped.
pub const STOPPING: &str = "kueue.x-k8s.io/stopping";
/// Label: made by the controller, not by a user.
pub const AUTO_GENERATED: &str = "kueue.x-k8s.io/auto-generated";
/// Prefix of annotations that pass into a ProvisioningRequest.
pub const PROVISIONING_REQUEST_PREFIX: &str = "provreq.kueue.x-k8s.io/";
/// The LocalQueue, and the WorkloadPriorityClass, that apply where a job names none.
pub const DEFAULT: &str = "default";

// --- On a Workload.

/// Label: the uid of the job.
pub const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
/// Annotation: the job's group, version and kind.
pub const JOB_OWNER_GVK: &str = "kueue.x-k8s.io/job-owner-gvk";
/// Annotation: the job's name.
pub const JOB_OWNER_NAME: &str = "kueue.x-k8s.io/job-owner-name";
/// Annotation: which part of a job that has several workloads, counted from 0.
pub const COMPONENT_WORKLOAD_INDEX: &str = "kueue.x-k8s.io/component-workload-index";
/// Annotation, `true`: the workload of a pod group.
pub const IS_GROUP_WORKLOAD: &str = "kueue.x-k8s.io/is-group-workload";
/// Annotation: an integer that is added to the priority.
pub const PRIORITY_BOOST: &str = "kueue.x-k8s.io/priority-boost";
/// Annotation: the only flavors that may be used.
pub const WORKLOAD_ALLOWED_RESOURCE_FLAVORS: &str =
    "kueue.x-k8s.io/workload-allowed-resource-flavors";
/// Label, `true`: the workload stands for a job and is admitted with one of its variants.
pub const CONCURRENT_ADMISSION_PARENT: &str = "kueue.x-k8s.io/concurrent-admission-parent";
/// Annotation: the first workload in a chain of slices.
pub const WORKLOAD_SLICE_NAME: &str = "kueue.x-k8s.io/workload-slice-name";
/// Annotation: the workload that this slice replaces.
pub const WORKLOAD_SLICE_REPLACEMENT_FOR: &str = "kueue.x-k8s.io/workload-slice-replacement-for";
/// Label on objects in a worker cluster: the hub's `multiKueue.origin`.
pub const MULTIKUEUE_ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
/// Annotation on objects in a worker cluster: the uid of the hub's object.
pub const MULTIKUEUE_ORIGIN_UID: &str = "kueue.x-k8s.io/multikueue-origin-uid";

// --- On pods.

/// Label, `true`, and finalizer on pods that are managed one by one.
pub const MANAGED: &str = "kueue.x-k8s.io/managed";
/// Label: the pod set.
pub const POD_SET: &str = "kueue.x-k8s.io/podset";
/// Annotation: the workload.
pub const WORKLOAD: &str = "kueue.x-k8s.io/workload";
/// Label: the ClusterQueue, where its name can be a label value.
pub const CLUSTER_QUEUE_NAME: &str = "kueue.x-k8s.io/cluster-queue-name";
/// Label: the LocalQueue.
pub const LOCAL_QUEUE_NAME: &str = "kueue.x-k8s.io/local-queue-name";
/// Annotation: the owner that suspends the pod.
pub const POD_SUSPENDING_PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
/// Label and annotation: the pod group.
pub const POD_GROUP_NAME: &str = "kueue.x-k8s.io/pod-group-name";
/// Annotation: how many pods the group has.
pub const POD_GROUP_TOTAL_COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
/// Annotation, `true`: the group is queued with its first pod.
pub const POD_GROUP_FAST_ADMISSION: &str = "kueue.x-k8s.io/pod-group-fast-admission";
/// Annotation of Kueue 0.20, without effect here: how many pods of a group need not be ready.
pub const POD_GROUP_MAX_NOT_READY_COUNT: &str = "kueue.x-k8s.io/pod-group-max-not-ready-count";
/// Annotation of Kueue 0.20, without effect here: how long the pods of one job may take to be ready.
pub const WAIT_FOR_PODS_READY: &str = "kueue.x-k8s.io/wait-for-pods-ready";
/// Annotation of Kueue 0.20, without effect here: how workloads are spread over a topology.
pub const PODSET_TOPOLOGY_SPREADING: &str = "kueue.x-k8s.io/podset-topology-spreading";
/// Annotation, `true`: the group serves and does not end.
pub const POD_GROUP_SERVING: &str = "kueue.x-k8s.io/pod-group-serving";
/// Label: the pod's index in its group.
pub const POD_GROUP_POD_INDEX: &str = "kueue.x-k8s.io/pod-group-pod-index";
/// Annotation: the label that holds the pod's index in its group.
pub const POD_GROUP_POD_INDEX_LABEL: &str = "kueue.x-k8s.io/pod-group-pod-index-label";
/// Annotation: the shape of a pod in a group.
pub const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
/// Annotation, `false`: a failed pod of the group is not replaced.
pub const RETRIABLE_IN_GROUP: &str = "kueue.x-k8s.io/retriable-in-group";
/// Label, `true`: the pod belongs to a workload that a hub sent.
pub const MULTIKUEUE_WORKER_WORKLOAD_POD: &str = "kueue.x-k8s.io/multikueue-worker-workload-pod";
/// Annotation, `true`: the pod may be deleted by force when its node is gone.
pub const SAFE_TO_FORCEFULLY_DELETE: &str = "kueue.x-k8s.io/safe-to-forcefully-delete";

// --- Topology, on pod templates.

/// Annotation: the level within which all pods must be.
pub const POD_SET_REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-required-topology";
/// Annotation: the level within which the pods should be.
pub const POD_SET_PREFERRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-preferred-topology";
/// Annotation, `true`: anywhere there is room.
pub const POD_SET_UNCONSTRAINED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
/// Annotation: the level within which each slice must be.
pub const POD_SET_SLICE_REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-slice-required-topology";
/// Annotation: how many pods a slice has.
pub const POD_SET_SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
/// Annotation: slices within slices, as JSON.
pub const POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS: &str =
    "kueue.x-k8s.io/podset-slice-required-topology-constraints";
/// Annotation: pod sets with the same value are placed together.
pub const POD_SET_GROUP_NAME: &str = "kueue.x-k8s.io/podset-group-name";
/// Annotation: what is added to a pod's index.
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
/// Scheduling gate: the pod's place is not chosen.
pub const TOPOLOGY_SCHEDULING_GATE: &str = "kueue.x-k8s.io/topology";
/// Scheduling gate: the pod's slice is not admitted.
pub const ELASTIC_JOB_SCHEDULING_GATE: &str = "kueue.x-k8s.io/elastic-job";
/// Preemption gate: the hub decides whether this cluster may preempt.
pub const MULTIKUEUE_PREEMPTION_GATE: &str = "kueue.x-k8s.io/multikueue";
/// Preemption gate of variants.
pub const CONCURRENT_ADMISSION_PREEMPTION_GATE: &str = "kueue.x-k8s.io/concurrent-admission";
/// Finalizer: others still use the object.
pub const RESOURCE_IN_USE: &str = "kueue.x-k8s.io/resource-in-use";

// --- Controllers, dispatchers and field managers.

/// The controller of MultiKueue admission checks, and `managedBy` of jobs that a hub sends elsewhere.
pub const MULTIKUEUE_CONTROLLER: &str = "kueue.x-k8s.io/multikueue";
/// The controller of ProvisioningRequest admission checks.
pub const PROVISIONING_REQUEST_CONTROLLER: &str = "kueue.x-k8s.io/provisioning-request";
/// The dispatcher that nominates all clusters at once.
pub const DISPATCHER_ALL_AT_ONCE: &str = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once";
/// The dispatcher that nominates clusters a few at a time.
pub const DISPATCHER_INCREMENTAL: &str = "kueue.x-k8s.io/multikueue-dispatcher-incremental";
/// Field manager of admission in a workload's status. An external dispatcher uses it for `nominatedClusterNames` too.
pub const ADMISSION_MANAGER: &str = "kueue-admission";
/// Field manager of jobs and what is derived from them.
pub const JOB_CONTROLLER_MANAGER: &str = "kueue-job-controller";
/// Field manager of `reclaimablePods`.
pub const RECLAIMABLE_PODS_MANAGER: &str = "kueue-reclaimable-pods";
/// Name under which events about workloads appear.
pub const WORKLOAD_CONTROLLER: &str = "kueue-workload-controller";
/// `managedBy` of jobs that Kubernetes' own controller runs.
pub const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";
/// The key of the kubeconfig in a MultiKueueCluster's Secret.
pub const KUBECONFIG_SECRET_KEY: &str = "kubeconfig";

// --- Ours.

/// Label on objects in a worker cluster: which hub they belong to. Nothing without it is ever touched there.
pub const HUB_ID: &str = "switchyard.dev/hub-id";
/// Annotation on objects in a worker cluster: the uid of the hub's Workload.
pub const WORKLOAD_UID: &str = "switchyard.dev/workload-uid";
/// Annotation on objects in a worker cluster: the attempt that made them.
pub const ATTEMPT: &str = "switchyard.dev/attempt";
/// Annotation on objects in a worker cluster: a keyed digest, by which they are known from objects of others with these marks.
pub const PROOF: &str = "switchyard.dev/proof";
/// Annotation on a hub's copy of a Workload: what `Origin.pod_sets` of the protocol says of the hub's Workload, in base64, where
/// the copy has other pod sets.
pub const POD_SETS_HASH: &str = "switchyard.dev/pod-sets-hash";
/// Annotation on a Workload in a worker cluster, `true`: its pods are those of another Workload's job, which it came after.
pub const FOLLOWS: &str = "switchyard.dev/follows";
/// Annotation on a Workload in a worker cluster whose job the agent stops when its lease has lapsed for that long, such as
/// `300000ms`.
pub const FENCE_AFTER: &str = "switchyard.dev/fence-after";
/// Label on the pods of an elastic job, `true`: they are watched, to be let go as their slices are admitted.
pub const ELASTIC_POD: &str = "switchyard.dev/elastic-pod";
/// Annotation on a MultiKueueCluster: `cordon`, nothing new is sent to it; `drain`, what runs there goes elsewhere, too.
pub const SCHEDULING: &str = "switchyard.dev/scheduling";
/// Values of [`SCHEDULING`].
pub const CORDON: &str = "cordon";
/// Values of [`SCHEDULING`].
pub const DRAIN: &str = "drain";
/// Annotation on a MultiKueueCluster: it will not come back from the loss that began at this time, which is when its
/// condition `Active` became what it is. It means nothing once the cluster has been connected again.
pub const DECLARED_LOST: &str = "switchyard.dev/declared-lost";
/// Annotation on a MultiKueueCluster with a kubeconfig: `allowed` lets it lead to the hub's own cluster.
pub const OWN_CLUSTER: &str = "switchyard.dev/own-cluster";
/// Annotation on a MultiKueueCluster, a time in RFC 3339: for an hour from then, all objects on its cluster with the hub's marks are
/// taken for the hub's, and signed.
pub const TRUST_COPIES: &str = "switchyard.dev/trust-copies";
/// Annotation on MultiKueueClusters: a new value releases the circuit breaker.
pub const BREAKER_RELEASE: &str = "switchyard.dev/breaker-release";
/// Annotation on a Workload, `ATTEMPT/CLUSTER`: this attempt is to be moved to that cluster.
pub const MOVE: &str = "switchyard.dev/move";
/// Annotation on a Workload, `CLUSTER/UID`: it is to adopt the copy on that cluster of that uid, which was made before the
/// hub's memory, whatever the two differ in. Or `none`: what copies there are does not count.
pub const ADOPT: &str = "switchyard.dev/adopt";
/// Annotation on the Secret of the hub's authority: since when the hub remembers what it has done, in RFC 3339.
pub const MEMORY_SINCE: &str = "switchyard.dev/memory-since";
/// Annotation on a job, and on its Workload: what the loss of its worker cluster means for it. `Hold`, or `Fence` or
/// `Duplicate`, where wanted with a time, such as `Fence/5m`.
pub const ON_DISCONNECT: &str = "switchyard.dev/on-disconnect";
/// Annotation on a job, and on its Workload: names of the only MultiKueueClusters that it may go to, separated by commas.
pub const CLUSTERS: &str = "switchyard.dev/clusters";
/// Likewise, a label selector as of `kubectl -l`: the MultiKueueClusters that it may go to.
pub const CLUSTER_SELECTOR: &str = "switchyard.dev/cluster-selector";
/// Likewise, names of the MultiKueueClusters that it prefers.
pub const PREFERRED_CLUSTERS: &str = "switchyard.dev/preferred-clusters";
/// Likewise, a label selector of the MultiKueueClusters that it prefers.
pub const PREFERRED_CLUSTER_SELECTOR: &str = "switchyard.dev/preferred-cluster-selector";
/// Likewise, names of MultiKueueClusters that it must not go to.
pub const EXCLUDED_CLUSTERS: &str = "switchyard.dev/excluded-clusters";
/// Likewise, a label selector of the MultiKueueClusters that it must not go to.
pub const EXCLUDED_CLUSTER_SELECTOR: &str = "switchyard.dev/excluded-cluster-selector";
/// Annotation on Kueue's objects: what was said in v1beta1 and cannot be in v1beta2. See [`crate::v1beta1`].
pub const V1BETA1: &str = "switchyard.dev/v1beta1";
/// Annotation on Kueue's objects: what of that was too long to be kept.
pub const V1BETA1_DROPPED: &str = "switchyard.dev/v1beta1-dropped";
/// Finalizer on objects in a worker cluster: their end is not yet recorded on the hub.
pub const TERMINAL_STATE: &str = "switchyard.dev/terminal-state";
/// The dispatcher that picks one cluster by its free capacity; the default.
pub const DISPATCHER_BEST_FIT: &str = "switchyard.dev/best-fit";
/// Field manager of everything else that we write.
pub const FIELD_MANAGER: &str = "switchyard";
