package oracle

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// scenario is one line of a file, without "expect".
type scenario struct {
	Name        string `json:"name"`
	FairSharing bool   `json:"fairSharing"`
	// AdmissionFairSharing is that section of the configuration. The status of a LocalQueue has its
	// past usage.
	AdmissionFairSharing *config.AdmissionFairSharing `json:"admissionFairSharing"`
	Start                metav1.Time                  `json:"start"`
	Namespaces           []corev1.Namespace           `json:"namespaces"`
	ResourceFlavors      []kueue.ResourceFlavor       `json:"resourceFlavors"`
	AdmissionChecks      []kueue.AdmissionCheck       `json:"admissionChecks"`
	Cohorts              []kueue.Cohort               `json:"cohorts"`
	ClusterQueues        []kueue.ClusterQueue         `json:"clusterQueues"`
	LocalQueues          []kueue.LocalQueue           `json:"localQueues"`
	Steps                []step                       `json:"steps"`
}

// step holds edits. They are made in the order of the fields, and within one field in order of
// name.
type step struct {
	// Finish removes workloads with reserved quota.
	Finish []string `json:"finish"`
	Delete []string `json:"delete"`
	// Reclaim sets status.reclaimablePods of workloads with reserved quota.
	Reclaim  map[string][]kueue.ReclaimablePod `json:"reclaim"`
	Priority map[string]int32                  `json:"priority"`
	// Apply creates or replaces objects other than workloads.
	Apply []json.RawMessage `json:"apply"`
	// Remove deletes Cohorts.
	Remove []string `json:"remove"`
	// Checks sets states of admission checks of workloads with reserved quota.
	Checks map[string]map[string]kueue.CheckState `json:"checks"`
	// Requeue ends the back-off of evicted workloads.
	Requeue []string         `json:"requeue"`
	Submit  []kueue.Workload `json:"submit"`
}

// outcome holds the decisions after a step, and the workloads that are still queued.
type outcome struct {
	Cycles       []cycle             `json:"cycles"`
	Pending      map[string][]string `json:"pending,omitempty"`
	Inadmissible map[string][]string `json:"inadmissible,omitempty"`
}

// cycle holds the decisions of one scheduling cycle.
type cycle struct {
	Time      metav1.Time         `json:"time"`
	Admitted  map[string]admitted `json:"admitted,omitempty"`
	Preempted map[string]string   `json:"preempted,omitempty"`
}

// admitted is a quota reservation.
type admitted struct {
	ClusterQueue string   `json:"clusterQueue"`
	PodSets      []podSet `json:"podSets"`
	// Checks are the admission checks of the workload.
	Checks []string `json:"checks,omitempty"`
}

type podSet struct {
	Name    string            `json:"name"`
	Count   int32             `json:"count"`
	Flavors map[string]string `json:"flavors"`
}
