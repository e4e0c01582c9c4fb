package oracle

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	_ "unsafe" // For go:linkname: two functions of the scheduler are not exported.

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	qcache "sigs.k8s.io/kueue/pkg/cache/queue"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/controller/core/indexer"
	"sigs.k8s.io/kueue/pkg/scheduler"
	preemptexpectations "sigs.k8s.io/kueue/pkg/scheduler/preemption/expectations"
	"sigs.k8s.io/kueue/pkg/util/expectations"
	"sigs.k8s.io/kueue/pkg/util/routine"
	utiltesting "sigs.k8s.io/kueue/pkg/util/testing"
	"sigs.k8s.io/kueue/pkg/util/wait"
	"sigs.k8s.io/kueue/pkg/workload"
)

//go:linkname scheduleOnce sigs.k8s.io/kueue/pkg/scheduler.(*Scheduler).schedule
func scheduleOnce(s *scheduler.Scheduler, ctx context.Context) wait.SpeedSignal

//go:linkname wrapAdmission sigs.k8s.io/kueue/pkg/scheduler.(*Scheduler).setAdmissionRoutineWrapper
func wrapAdmission(s *scheduler.Scheduler, w routine.Wrapper)

// requeuer queues the inadmissible workloads of the queues that were notified.
type requeuer interface {
	ProcessRequeues(ctx context.Context) int
}

// world is a cluster with Kueue's scheduler, cache and queues, and no controllers.
type world struct {
	t                  *testing.T
	ctx                context.Context
	log                logr.Logger
	clock              *clocktesting.FakeClock
	client             client.Client
	cache              *schdcache.Cache
	queues             *qcache.Manager
	requeues           requeuer
	expected           *expectations.Store
	scheduler          *scheduler.Scheduler
	writes             sync.WaitGroup
	sharing            *config.AdmissionFairSharing
	stopped            map[kueue.ClusterQueueReference]kueue.StopPolicy
	flavors            map[string]kueue.ResourceFlavorSpec
	localQueuePolicies map[types.NamespacedName]kueue.StopPolicy
	parents            map[kueue.CohortReference]kueue.CohortReference
}

func newWorld(t *testing.T, ctx context.Context, sc *scenario) *world {
	w := &world{t: t, ctx: ctx, log: ctrl.LoggerFrom(ctx), clock: clocktesting.NewFakeClock(sc.Start.Time)}
	w.stopped = map[kueue.ClusterQueueReference]kueue.StopPolicy{}
	w.flavors = map[string]kueue.ResourceFlavorSpec{}
	w.localQueuePolicies = map[types.NamespacedName]kueue.StopPolicy{}
	w.parents = map[kueue.CohortReference]kueue.CohortReference{}
	w.client = utiltesting.NewClientBuilder().
		WithStatusSubresource(&kueue.Workload{}).
		WithIndex(&corev1.LimitRange{}, indexer.LimitRangeHasContainerOrPodType, indexer.IndexLimitRangeHasContainerOrPodType).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: utiltesting.TreatSSAAsStrategicMerge}).
		Build()
	w.sharing = sc.AdmissionFairSharing
	w.cache = schdcache.New(w.client, schdcache.WithFairSharing(sc.FairSharing), schdcache.WithAdmissionFairSharing(w.sharing))
	w.expected = preemptexpectations.New()
	w.queues, w.requeues = qcache.NewManagerForUnitTestsWithRequeuer(w.client, w.cache,
		qcache.WithClock(w.clock), qcache.WithPreemptionExpectations(w.expected), qcache.WithAdmissionFairSharing(w.sharing))
	var sharing *config.FairSharing
	if sc.FairSharing {
		sharing = &config.FairSharing{}
	}
	w.scheduler = scheduler.New(w.queues, w.cache, w.client, &utiltesting.EventRecorder{},
		scheduler.WithClock(t, w.clock), scheduler.WithFairSharing(sharing), scheduler.WithPreemptionExpectations(w.expected),
		scheduler.WithAdmissionFairSharing(w.sharing))
	// A cycle waits for its writes.
	wrapAdmission(w.scheduler, routine.NewWrapper(func() { w.writes.Add(1) }, w.writes.Done))
	go w.queues.CleanUpOnContext(ctx)
	w.setUp(sc)
	return w
}

func (w *world) setUp(sc *scenario) {
	for i := range sc.Namespaces {
		w.must(w.client.Create(w.ctx, &sc.Namespaces[i]))
	}
	for i := range sc.ResourceFlavors {
		w.putFlavor(&sc.ResourceFlavors[i])
	}
	for i := range sc.AdmissionChecks {
		w.cache.AddOrUpdateAdmissionCheck(w.log, &sc.AdmissionChecks[i])
	}
	for i := range sc.Cohorts {
		w.putCohort(&sc.Cohorts[i])
	}
	for i := range sc.ClusterQueues {
		w.putClusterQueue(&sc.ClusterQueues[i])
	}
	for i := range sc.LocalQueues {
		w.putLocalQueue(&sc.LocalQueues[i])
	}
	// The past usage of the queues counts from the start.
	w.sample()
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// workload reads a workload, or nil if it does not exist.
func (w *world) workload(name string) *kueue.Workload {
	namespace, name, _ := strings.Cut(name, "/")
	var wl kueue.Workload
	if w.client.Get(w.ctx, types.NamespacedName{Namespace: namespace, Name: name}, &wl) != nil {
		return nil
	}
	return &wl
}

// workloads lists all workloads by name.
func (w *world) workloads() []kueue.Workload {
	var list kueue.WorkloadList
	w.must(w.client.List(w.ctx, &list))
	slices.SortFunc(list.Items, func(a, b kueue.Workload) int {
		return strings.Compare(string(workload.Key(&a)), string(workload.Key(&b)))
	})
	return list.Items
}

// releaseQuota releases a workload's quota, and then queues the workloads that wait for it.
func (w *world) releaseQuota(wl *kueue.Workload) {
	key := workload.Key(wl)
	w.expected.ObservedUID(w.log, client.ObjectKeyFromObject(wl), wl.UID)
	w.queues.QueueAssociatedInadmissibleWorkloadsAfter(w.ctx, key, func() { _ = w.cache.DeleteWorkload(w.log, key) })
	w.retryBehind(wl)
}

// retryBehind retries in the ClusterQueue behind a stopped LocalQueue whose workload released
// quota. Kueue's manager does not know the ClusterQueue of a stopped LocalQueue, and leaves the
// quota idle until another event.
func (w *world) retryBehind(wl *kueue.Workload) {
	key := types.NamespacedName{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}
	var queue kueue.LocalQueue
	if w.localQueuePolicies[key] != kueue.None && w.client.Get(w.ctx, key, &queue) == nil {
		w.retry(sets.New(queue.Spec.ClusterQueue))
	}
}

// evict releases the reservation of a workload. It queues the workload at once if requeued is set,
// else at a later requeue.
func (w *world) evict(wl *kueue.Workload, reason string, requeued bool) {
	workload.UnsetQuotaReservationWithCondition(wl, "Pending", reason, w.clock.Now())
	workload.SetRequeuedCondition(wl, reason, reason, requeued)
	w.must(w.client.Status().Update(w.ctx, wl))
	w.releaseQuota(wl)
	if workload.IsActive(wl) {
		w.enqueue(wl)
	} else {
		w.queues.DeleteWorkload(w.log, workload.Key(wl))
	}
}

// enqueue adds a pending workload to its queue. A workload without a queue is no error.
func (w *world) enqueue(wl *kueue.Workload) {
	if err := w.queues.AddOrUpdateWorkload(w.log, wl); err != nil {
		w.t.Logf("%s is not queued: %v", workload.Key(wl), err)
	}
}

func evicted(wl *kueue.Workload) bool {
	return apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted)
}
