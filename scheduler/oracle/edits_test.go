package oracle

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	qcache "sigs.k8s.io/kueue/pkg/cache/queue"
	"sigs.k8s.io/kueue/pkg/workload"
)

// edit makes a step's edits, and passes them to the cache and the queues as Kueue's controllers do.
func (w *world) edit(step *step) {
	for _, name := range step.Finish {
		if wl := w.workload(name); wl != nil && workload.HasQuotaReservation(wl) {
			w.delete(wl)
		}
	}
	for _, name := range step.Delete {
		if wl := w.workload(name); wl != nil {
			w.delete(wl)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(step.Reclaim)) {
		if wl := w.workload(name); wl != nil && workload.HasQuotaReservation(wl) {
			wl.Status.ReclaimablePods = step.Reclaim[name]
			w.must(w.client.Status().Update(w.ctx, wl))
			w.recharge(wl)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(step.Priority)) {
		if wl := w.workload(name); wl != nil {
			wl.Spec.Priority = ptr.To(step.Priority[name])
			w.must(w.client.Update(w.ctx, wl))
			if workload.HasQuotaReservation(wl) {
				w.recharge(wl)
			} else if workload.IsActive(wl) {
				w.enqueue(wl)
			}
		}
	}
	for _, raw := range step.Apply {
		w.apply(raw)
	}
	for _, name := range step.Remove {
		w.removeCohort(kueue.CohortReference(name))
	}
	for _, name := range slices.Sorted(maps.Keys(step.Checks)) {
		if wl := w.workload(name); wl != nil && workload.HasQuotaReservation(wl) {
			w.answer(wl, step.Checks[name])
		}
	}
	for _, name := range step.Requeue {
		wl := w.workload(name)
		if wl != nil && apimeta.IsStatusConditionFalse(wl.Status.Conditions, kueue.WorkloadRequeued) && workload.IsActive(wl) {
			workload.SetRequeuedCondition(wl, "Requeued", "the back-off is over", true)
			w.must(w.client.Status().Update(w.ctx, wl))
			w.enqueue(wl)
		}
	}
	for i := range step.Submit {
		wl := step.Submit[i].DeepCopy()
		wl.UID = types.UID(wl.Name)
		w.must(w.client.Create(w.ctx, wl))
		w.enqueue(wl)
	}
	w.requeues.ProcessRequeues(w.ctx)
	w.sample()
}

// confirm stands for the watch event of a reservation. Without it, the queues take the workload as
// still in flight.
func (w *world) confirm(wl *kueue.Workload) {
	w.queues.DeleteWorkload(w.log, workload.Key(wl))
}

func (w *world) delete(wl *kueue.Workload) {
	w.dropPenalty(wl)
	w.releaseQuota(wl)
	w.queues.DeleteAndForgetWorkload(w.log, workload.Key(wl))
	w.must(client.IgnoreNotFound(w.client.Delete(w.ctx, wl)))
}

// recharge updates the cache after the amount or the priority of a workload with quota changed.
func (w *world) recharge(wl *kueue.Workload) {
	w.queues.QueueAssociatedInadmissibleWorkloadsAfter(w.ctx, workload.Key(wl), func() { w.cache.AddOrUpdateWorkload(w.log, wl) })
	w.retryBehind(wl)
}

func decode[T any](w *world, raw json.RawMessage) *T {
	var object T
	w.must(json.Unmarshal(raw, &object))
	return &object
}

func (w *world) apply(raw json.RawMessage) {
	switch kind := decode[metav1.TypeMeta](w, raw).Kind; kind {
	case "ClusterQueue":
		w.putClusterQueue(decode[kueue.ClusterQueue](w, raw))
	case "Cohort":
		w.putCohort(decode[kueue.Cohort](w, raw))
	case "LocalQueue":
		w.putLocalQueue(decode[kueue.LocalQueue](w, raw))
	case "ResourceFlavor":
		w.putFlavor(decode[kueue.ResourceFlavor](w, raw))
	case "AdmissionCheck":
		w.retry(w.cache.AddOrUpdateAdmissionCheck(w.log, decode[kueue.AdmissionCheck](w, raw)))
	case "Namespace":
		w.putNamespace(decode[corev1.Namespace](w, raw))
	default:
		w.t.Fatalf("cannot apply a %q", kind)
	}
}

// retry queues the inadmissible workloads of these ClusterQueues.
func (w *world) retry(names sets.Set[kueue.ClusterQueueReference]) {
	if len(names) > 0 {
		qcache.NotifyRetryInadmissible(w.queues, names)
	}
}

// putFlavor retries in all queues with the flavor if its labels, taints or tolerations changed,
// else in those that it makes active.
func (w *world) putFlavor(flavor *kueue.ResourceFlavor) {
	old, known := w.flavors[flavor.Name]
	w.flavors[flavor.Name] = flavor.Spec
	names := w.cache.AddOrUpdateResourceFlavor(w.log, flavor)
	same := equality.Semantic.DeepEqual(old.NodeTaints, flavor.Spec.NodeTaints) &&
		equality.Semantic.DeepEqual(old.Tolerations, flavor.Spec.Tolerations) &&
		equality.Semantic.DeepEqual(old.NodeLabels, flavor.Spec.NodeLabels)
	if known && !same {
		names.Insert(w.cache.ClusterQueuesUsingFlavor(kueue.ResourceFlavorReference(flavor.Name))...)
	}
	w.retry(names)
}

// removeCohort also retries in the tree that the Cohort leaves.
func (w *world) removeCohort(name kueue.CohortReference) {
	_, known := w.parents[name]
	left := w.treeOf(name)
	delete(w.parents, name)
	w.cache.DeleteCohort(name)
	w.queues.DeleteCohort(name)
	if known {
		w.retryLeft(left)
	}
}

func (w *world) putCohort(cohort *kueue.Cohort) {
	name := kueue.CohortReference(cohort.Name)
	before, left := w.parents[name], w.treeOf(name)
	w.parents[name] = cohort.Spec.ParentName
	w.must(w.cache.AddOrUpdateCohort(cohort))
	w.queues.AddOrUpdateCohort(w.ctx, cohort)
	if before != "" && before != cohort.Spec.ParentName {
		w.retryLeft(left)
	}
}

// treeOf returns all Cohorts of the tree with this Cohort.
func (w *world) treeOf(name kueue.CohortReference) sets.Set[kueue.CohortReference] {
	tree := sets.New(name)
	for size := 0; size < len(tree); {
		size = len(tree)
		for child, parent := range w.parents {
			if parent != "" && (tree.Has(child) || tree.Has(parent)) {
				tree.Insert(child, parent)
			}
		}
	}
	return tree
}

// retryLeft queues the inadmissible workloads of a tree that a queue or Cohort left. Kueue does so
// only in the tree that it joined, and leaves the quota that it had borrowed idle until another
// event.
func (w *world) retryLeft(tree sets.Set[kueue.CohortReference]) {
	var list kueue.ClusterQueueList
	w.must(w.client.List(w.ctx, &list))
	for _, queue := range list.Items {
		if tree.Has(queue.Spec.CohortName) {
			w.retry(sets.New(kueue.ClusterQueueReference(queue.Name)))
		}
	}
}

func (w *world) putNamespace(namespace *corev1.Namespace) {
	var old corev1.Namespace
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: namespace.Name}, &old))
	before := w.cache.MatchingClusterQueues(old.Labels)
	old.Labels = namespace.Labels
	w.must(w.client.Update(w.ctx, &old))
	w.retry(w.cache.MatchingClusterQueues(namespace.Labels).Difference(before))
}

func (w *world) putClusterQueue(queue *kueue.ClusterQueue) {
	name := kueue.ClusterQueueReference(queue.Name)
	before, known := w.stopped[name]
	policy := ptr.Deref(queue.Spec.StopPolicy, kueue.None)
	w.stopped[name] = policy
	if !known {
		w.must(w.client.Create(w.ctx, queue.DeepCopy()))
		w.must(w.cache.AddClusterQueue(w.ctx, queue))
		w.must(w.queues.AddClusterQueue(w.ctx, queue))
		return
	}
	stored := queue.DeepCopy()
	var old kueue.ClusterQueue
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: queue.Name}, &old))
	stored.ResourceVersion = old.ResourceVersion
	w.must(w.client.Update(w.ctx, stored))
	w.must(w.cache.UpdateClusterQueue(w.log, queue))
	w.must(w.queues.UpdateClusterQueue(w.ctx, queue, true))
	if old.Spec.CohortName != "" && old.Spec.CohortName != queue.Spec.CohortName {
		w.retryLeft(w.treeOf(old.Spec.CohortName))
	}
	if policy != kueue.None && policy != before {
		w.stop(name, policy)
	}
	if policy == kueue.None && before != kueue.None {
		w.restart(name)
	}
}

// stop releases the reservations of a stopped queue's workloads that are not admitted. HoldAndDrain
// also evicts the admitted ones.
func (w *world) stop(name kueue.ClusterQueueReference, policy kueue.StopPolicy) {
	for _, wl := range w.workloads() {
		if workload.HasQuotaReservation(&wl) && wl.Status.Admission.ClusterQueue == name {
			w.suspendOrDrain(&wl, policy, kueue.WorkloadEvictedByClusterQueueStopped)
		}
	}
}

func (w *world) suspendOrDrain(wl *kueue.Workload, policy kueue.StopPolicy, reason string) {
	w.confirm(wl)
	switch {
	case !workload.IsAdmitted(wl):
		workload.UnsetQuotaReservationWithCondition(wl, "Suspended", "the queue is stopped", w.clock.Now())
		w.must(w.client.Status().Update(w.ctx, wl))
		w.releaseQuota(wl)
		w.enqueue(wl)
	case policy == kueue.HoldAndDrain:
		w.setEvicted(wl, reason)
		w.evict(wl, reason, false)
	}
}

// restart queues the workloads that the stop evicted.
func (w *world) restart(name kueue.ClusterQueueReference) {
	for _, wl := range w.workloads() {
		if at, known := w.queues.ClusterQueueForWorkload(&wl); known && at == name {
			w.requeueAfterRestart(&wl, kueue.WorkloadEvictedByClusterQueueStopped, kueue.WorkloadClusterQueueRestarted)
		}
	}
}

func (w *world) requeueAfterRestart(wl *kueue.Workload, gone, back string) {
	requeued := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadRequeued)
	if requeued == nil || requeued.Status != metav1.ConditionFalse || requeued.Reason != gone {
		return
	}
	workload.SetRequeuedCondition(wl, back, "the queue goes on", true)
	w.must(w.client.Status().Update(w.ctx, wl))
	w.enqueue(wl)
}

// putLocalQueue does the part of Kueue's LocalQueue controller, and of its Workload controller for
// the queue's workloads. Unlike a ClusterQueue, a stopped LocalQueue is not in the queue manager.
func (w *world) putLocalQueue(queue *kueue.LocalQueue) {
	key := client.ObjectKeyFromObject(queue)
	policy := ptr.Deref(queue.Spec.StopPolicy, kueue.None)
	before, known := w.localQueuePolicies[key]
	w.localQueuePolicies[key] = policy
	if !known {
		w.must(w.client.Create(w.ctx, queue.DeepCopy()))
		w.must(w.cache.AddLocalQueue(queue))
		if policy == kueue.None {
			w.must(w.queues.AddLocalQueue(w.ctx, queue))
		}
		return
	}
	var old kueue.LocalQueue
	w.must(w.client.Get(w.ctx, key, &old))
	stored := queue.DeepCopy()
	stored.ResourceVersion = old.ResourceVersion
	w.must(w.client.Update(w.ctx, stored))
	switch {
	case policy == before && policy == kueue.None:
		w.must(w.queues.UpdateLocalQueue(w.log, queue))
		w.must(w.cache.UpdateLocalQueue(&old, queue))
	case policy == before:
		w.must(w.cache.UpdateLocalQueue(&old, queue))
	case policy == kueue.None:
		w.must(w.queues.AddLocalQueue(w.ctx, queue))
	default:
		w.queues.DeleteLocalQueue(w.log, &old)
	}
	for _, wl := range w.workloads() {
		switch {
		case wl.Namespace != queue.Namespace || string(wl.Spec.QueueName) != queue.Name:
		case policy == kueue.None:
			w.requeueAfterRestart(&wl, kueue.WorkloadEvictedByLocalQueueStopped, kueue.WorkloadLocalQueueRestarted)
		case policy != before && workload.HasQuotaReservation(&wl):
			w.suspendOrDrain(&wl, policy, kueue.WorkloadEvictedByLocalQueueStopped)
		}
	}
}

func (w *world) setEvicted(wl *kueue.Workload, reason string) {
	apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{
		Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: reason, Message: reason,
		LastTransitionTime: metav1.NewTime(w.clock.Now()),
	})
}

// answer sets states of admission checks. A workload with all checks Ready is admitted, Retry
// evicts it, and Rejected deactivates it.
func (w *world) answer(wl *kueue.Workload, answers map[string]kueue.CheckState) {
	w.confirm(wl)
	for i := range wl.Status.AdmissionChecks {
		check := &wl.Status.AdmissionChecks[i]
		if state, ok := answers[string(check.Name)]; ok {
			check.State = state
		}
	}
	has := func(state kueue.CheckState) bool {
		return slices.ContainsFunc(wl.Status.AdmissionChecks, func(check kueue.AdmissionCheckState) bool { return check.State == state })
	}
	switch {
	case has(kueue.CheckStateRejected):
		wl.Spec.Active = ptr.To(false)
		status := wl.Status.DeepCopy()
		w.must(w.client.Update(w.ctx, wl))
		wl.Status = *status
		w.reset(wl)
		w.setEvicted(wl, kueue.WorkloadDeactivated)
		w.evict(wl, kueue.WorkloadDeactivated, false)
		w.dropPenalty(wl)
	case has(kueue.CheckStateRetry):
		w.reset(wl)
		w.setEvicted(wl, kueue.WorkloadEvictedByAdmissionCheck)
		w.evict(wl, kueue.WorkloadEvictedByAdmissionCheck, false)
	default:
		before := workload.IsAdmitted(wl)
		workload.SyncAdmittedCondition(wl, w.clock.Now())
		w.must(w.client.Status().Update(w.ctx, wl))
		w.cache.AddOrUpdateWorkload(w.log, wl)
		if workload.IsAdmitted(wl) && !before {
			w.admittedBy(wl)
		}
	}
}

// reset sets all checks to Pending, as an eviction does.
func (w *world) reset(wl *kueue.Workload) {
	for i := range wl.Status.AdmissionChecks {
		wl.Status.AdmissionChecks[i].State = kueue.CheckStatePending
	}
}
