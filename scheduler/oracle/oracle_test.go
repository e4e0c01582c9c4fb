package oracle

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/util/admissioncheck"
	utiltesting "sigs.k8s.io/kueue/pkg/util/testing"
	"sigs.k8s.io/kueue/pkg/workload"
)

// stepLength is the time between two steps.
const stepLength = 1000 * time.Second

// playTime is the time limit of a scenario, generous for a busy machine.
const playTime = 20 * time.Minute

func TestOracle(t *testing.T) {
	in, out := os.Getenv("ORACLE_IN"), os.Getenv("ORACLE_OUT")
	if in == "" || out == "" {
		t.Skip("set ORACLE_IN and ORACLE_OUT to files of scenarios")
	}
	if gates := os.Getenv("ORACLE_GATES"); gates != "" {
		if err := utilfeature.DefaultMutableFeatureGate.Set(gates); err != nil {
			t.Fatal(err)
		}
	}
	input, err := os.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	output, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	lines := bufio.NewScanner(input)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		fmt.Fprintln(output, string(answered(t, lines.Bytes())))
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// answered returns a scenario's line with Kueue's decisions.
func answered(t *testing.T, line []byte) []byte {
	var sc scenario
	var fields map[string]any
	for _, into := range []any{&sc, &fields} {
		if err := json.Unmarshal(line, into); err != nil {
			t.Fatal(err)
		}
	}
	fields["expect"] = play(t, &sc)
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func play(t *testing.T, sc *scenario) []outcome {
	ctx, _ := utiltesting.ContextWithLog(t)
	ctx, cancel := context.WithTimeout(ctx, playTime)
	defer cancel()
	w := newWorld(t, ctx, sc)
	outcomes := []outcome{}
	for number := range sc.Steps {
		w.clock.SetTime(sc.Start.Add(time.Duration(number+1) * stepLength))
		w.edit(&sc.Steps[number])
		outcomes = append(outcomes, w.settle())
	}
	if err := ctx.Err(); err != nil {
		// A decision that Kueue could not write would look like no decision.
		t.Fatalf("%s: not played to its end: %v", sc.Name, err)
	}
	return outcomes
}

// settle runs cycles, a second apart, until nothing changes.
func (w *world) settle() outcome {
	result := outcome{Cycles: []cycle{}}
	for round, still := 0, 0; round < 200 && still < 3 && w.hasHead(); round++ {
		before := w.queues.Dump()
		w.clock.Step(time.Second)
		// The samples that are due now count in this cycle.
		w.sample()
		decided := w.cycle()
		busy := len(decided.Admitted)+len(decided.Preempted) > 0
		if busy {
			result.Cycles = append(result.Cycles, decided)
		}
		still++
		if busy || !sameQueues(before, w.queues.Dump()) {
			still = 0
		}
	}
	result.Pending, result.Inadmissible = names(w.queues.Dump()), names(w.queues.DumpInadmissible())
	return result
}

// hasHead reports whether a cycle has a workload to try. Inactive queues keep their workloads.
func (w *world) hasHead() bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(w.queues.Dump())), w.cache.ClusterQueueActive)
}

// cycle runs one scheduling cycle, and evicts the preempted workloads at once.
func (w *world) cycle() cycle {
	reserved := map[string]bool{}
	for _, wl := range w.workloads() {
		reserved[string(workload.Key(&wl))] = workload.HasQuotaReservation(&wl)
	}
	scheduleOnce(w.scheduler, w.ctx)
	w.writes.Wait()
	var fresh []*kueue.Workload
	result := cycle{Time: metav1.NewTime(w.clock.Now().UTC()), Admitted: map[string]admitted{}, Preempted: map[string]string{}}
	for _, wl := range w.workloads() {
		key := string(workload.Key(&wl))
		if workload.HasQuotaReservation(&wl) && !reserved[key] {
			result.Admitted[key] = w.admitted(&wl)
			fresh = append(fresh, w.workload(key))
		}
	}
	w.reserved(fresh)
	for _, wl := range w.workloads() {
		if evicted(&wl) && workload.HasQuotaReservation(&wl) {
			condition := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPreempted)
			result.Preempted[string(workload.Key(&wl))] = condition.Reason
			w.reset(&wl)
			w.evict(&wl, kueue.WorkloadPreempted, true)
		}
	}
	w.requeues.ProcessRequeues(w.ctx)
	w.sample()
	return result
}

// reserved does what the watch events of new reservations do to past usage.
func (w *world) reserved(fresh []*kueue.Workload) {
	if w.sharing == nil {
		return
	}
	for _, wl := range fresh {
		w.confirm(wl)
		if workload.IsAdmitted(wl) {
			w.admittedBy(wl)
		} else if w.cache.ClusterQueueUsesAdmissionFairSharing(wl.Status.Admission.ClusterQueue) {
			w.sample(wl)
		}
	}
}

// admitted describes a new reservation, and lists its admission checks in the status.
func (w *world) admitted(wl *kueue.Workload) admitted {
	admission := wl.Status.Admission
	result := admitted{ClusterQueue: string(admission.ClusterQueue)}
	for _, assigned := range admission.PodSetAssignments {
		set := podSet{Name: string(assigned.Name), Flavors: map[string]string{}}
		if assigned.Count != nil {
			set.Count = *assigned.Count
		}
		for resource, flavor := range assigned.Flavors {
			set.Flavors[string(resource)] = string(flavor)
		}
		result.PodSets = append(result.PodSets, set)
	}
	var queue kueue.ClusterQueue
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: string(admission.ClusterQueue)}, &queue))
	checks := slices.Sorted(maps.Keys(workload.AdmissionChecksForWorkload(w.log, wl, &queue)))
	if w.listChecks(wl, checks) {
		w.must(w.client.Status().Update(w.ctx, wl))
		w.cache.AddOrUpdateWorkload(w.log, wl)
	}
	for _, check := range checks {
		result.Checks = append(result.Checks, string(check))
	}
	return result
}

// listChecks sets the workload's list of checks, with new ones Pending. It reports a change.
func (w *world) listChecks(wl *kueue.Workload, checks []kueue.AdmissionCheckReference) bool {
	listed := []kueue.AdmissionCheckState{}
	for _, name := range checks {
		state := admissioncheck.FindAdmissionCheck(wl.Status.AdmissionChecks, name)
		if state == nil {
			state = &kueue.AdmissionCheckState{Name: name, State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(w.clock.Now())}
		}
		listed = append(listed, *state)
	}
	changed := !slices.EqualFunc(listed, wl.Status.AdmissionChecks, func(a, b kueue.AdmissionCheckState) bool { return a.Name == b.Name })
	wl.Status.AdmissionChecks = listed
	return changed
}

func sameQueues(one, other map[kueue.ClusterQueueReference][]workload.Reference) bool {
	return maps.EqualFunc(names(one), names(other), slices.Equal)
}

// names lists the workloads by ClusterQueue, sorted, without empty queues.
func names(queues map[kueue.ClusterQueueReference][]workload.Reference) map[string][]string {
	result := map[string][]string{}
	for queue, workloads := range queues {
		for _, name := range workloads {
			result[string(queue)] = append(result[string(queue)], string(name))
		}
		slices.Sort(result[string(queue)])
	}
	return result
}
