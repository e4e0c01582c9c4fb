package oracle

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// scenario is one line of a file, without the answer.
type scenario struct {
	Name        string `json:"name"`
	FairSharing bool   `json:"fairSharing"`
	// AdmissionFairSharing is that section of the configuration. The status of LocalQueues says what they used.
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

// step holds edits, made in the order of the fields, each kind in the order of its names.
type step struct {
	// Finish removes workloads that hold quota.
	Finish []string `json:"finish"`
	// Delete removes workloads.
	Delete []string `json:"delete"`
	// Reclaim sets the pods that are done, of workloads that hold quota.
	Reclaim map[string][]kueue.ReclaimablePod `json:"reclaim"`
	// Priority changes priorities.
	Priority map[string]int32 `json:"priority"`
	// Apply creates or replaces objects that are no workloads.
	Apply []json.RawMessage `json:"apply"`
	// Remove deletes Cohorts.
	Remove []string `json:"remove"`
	// Checks answers admission checks of workloads that hold quota.
	Checks map[string]map[string]kueue.CheckState `json:"checks"`
	// Requeue says of evicted workloads that they may be queued again.
	Requeue []string         `json:"requeue"`
	Submit  []kueue.Workload `json:"submit"`
}

// outcome is what a step came to.
type outcome struct {
	Cycles       []cycle             `json:"cycles"`
	Pending      map[string][]string `json:"pending,omitempty"`
	Inadmissible map[string][]string `json:"inadmissible,omitempty"`
}

// cycle is what one scheduling cycle decided.
type cycle struct {
	Time      metav1.Time         `json:"time"`
	Admitted  map[string]admitted `json:"admitted,omitempty"`
	Preempted map[string]string   `json:"preempted,omitempty"`
}

// admitted is a reservation.
type admitted struct {
	ClusterQueue string   `json:"clusterQueue"`
	PodSets      []podSet `json:"podSets"`
	// Checks are those that it waits for.
	Checks []string `json:"checks,omitempty"`
}

type podSet struct {
	Name    string            `json:"name"`
	Count   int32             `json:"count"`
	Flavors map[string]string `json:"flavors"`
}
