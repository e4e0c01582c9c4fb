package oracle

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/cache/queue/afs"
	"sigs.k8s.io/kueue/pkg/util/admissionfairsharing"
	utilqueue "sigs.k8s.io/kueue/pkg/util/queue"
	"sigs.k8s.io/kueue/pkg/util/resource"
	"sigs.k8s.io/kueue/pkg/workload"
)

// sample does what Kueue's LocalQueue controller does about past usage: it samples the queues that
// are due, and those of the workloads in also. Kueue reconciles each queue at a time of its own.
// Here, all are sampled after a step's edits, and before and after a cycle, so that their order is
// up to date.
func (w *world) sample(also ...*kueue.Workload) {
	if w.sharing == nil {
		return
	}
	keys := slices.SortedFunc(maps.Keys(w.localQueuePolicies), func(a, b types.NamespacedName) int {
		return strings.Compare(a.String(), b.String())
	})
	for _, key := range keys {
		var queue kueue.LocalQueue
		w.must(w.client.Get(w.ctx, key, &queue))
		if w.localQueuePolicies[key] == kueue.None && w.cache.ClusterQueueActive(queue.Spec.ClusterQueue) {
			named := slices.ContainsFunc(also, func(wl *kueue.Workload) bool {
				return wl.Namespace == key.Namespace && string(wl.Spec.QueueName) == key.Name
			})
			w.sampleQueue(&queue, named)
		}
	}
}

func (w *world) sampleQueue(queue *kueue.LocalQueue, now bool) {
	key, ledger := utilqueue.Key(queue), w.queues.AfsUsageLedger
	entry, known := ledger.Get(key)
	if !known || !entry.StatusAccounted {
		seed := corev1.ResourceList{}
		if status := queue.Status.FairSharing; status != nil && status.AdmissionFairSharingStatus != nil {
			seed = status.AdmissionFairSharingStatus.ConsumedResources
		}
		entry = ledger.Update(key, func(old afs.UsageLedgerEntry, found bool) afs.UsageLedgerEntry {
			if !found {
				old.LastUpdate = w.clock.Now()
			}
			old.Resources = resource.MergeResourceListKeepSum(old.Resources, seed)
			old.StatusAccounted = true
			return old
		})
	}
	if now || w.clock.Since(entry.LastUpdate) >= w.sharing.UsageSamplingInterval.Duration {
		w.decay(key, queue.Spec.ClusterQueue, "")
	}
	var cq kueue.ClusterQueue
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: string(queue.Spec.ClusterQueue)}, &cq))
	w.must(w.queues.RebuildClusterQueue(&cq, queue.Name))
}

// decay brings past usage up to date, and turns the entry penalty of the settled workload into
// usage.
func (w *world) decay(key utilqueue.LocalQueueReference, queue kueue.ClusterQueueReference, settled workload.Reference) {
	cached, err := w.cache.GetCacheLocalQueue(queue, key)
	w.must(err)
	used, halfLife, now := cached.GetAdmittedUsage(), w.sharing.UsageHalfLifeTime.Seconds(), w.clock.Now()
	w.queues.AfsUsageLedger.Update(key, func(old afs.UsageLedgerEntry, found bool) afs.UsageLedgerEntry {
		if !found {
			old.LastUpdate = now
		}
		elapsed := max(0, now.Sub(old.LastUpdate).Seconds())
		consumed := admissionfairsharing.CalculateDecayedConsumed(old.Resources, used, elapsed, halfLife)
		if halfLife == 0 {
			consumed = corev1.ResourceList{}
		}
		rest, penalty := old.WithoutPenalty(afs.WorkloadReference(settled))
		rest.Resources = resource.MergeResourceListKeepSum(consumed, penalty)
		rest.LastUpdate = now
		return rest
	})
}

// admittedBy does what Kueue's Workload controller does about past usage at an admission.
func (w *world) admittedBy(wl *kueue.Workload) {
	if w.sharing != nil && w.cache.ClusterQueueUsesAdmissionFairSharing(wl.Status.Admission.ClusterQueue) {
		w.decay(utilqueue.KeyFromWorkload(wl), wl.Status.Admission.ClusterQueue, workload.Key(wl))
	}
}

// dropPenalty forgets the entry penalty of a workload that will never be admitted.
func (w *world) dropPenalty(wl *kueue.Workload) {
	if w.sharing != nil {
		w.queues.AfsUsageLedger.SubPenalty(utilqueue.KeyFromWorkload(wl), afs.WorkloadReference(workload.Key(wl)))
	}
}
