//! How the worker's conditions map to reported states.

use rstest::rstest;
use switchyard_proto::v1::{Phase, State};

use super::build::*;
use crate::*;

/// A message of Kueue 0.19 and later.
const TOO_MUCH: &str = "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, previously considered podsets requests (0) + current podset request (9) > maximum capacity (4)";
const LATER: &str = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed";
const NO_DOMAIN: &str = "couldn't assign flavors to pod set main: topology \"t\" doesn't allow to fit any of 2 pod(s). Total nodes: 4; excluded: resource \"cpu\": 3, taint \"gpu=yes:NoSchedule\": 1";

#[rstest]
#[case::not_considered_yet(workload(1), State::Waiting, "PendingEvaluation")]
#[case::waiting_for_quota(workload(1).pending("WaitingForQuota", LATER), State::Waiting, "WaitingForQuota")]
#[case::waiting_for_victims(workload(1).pending("WaitingForPreemptedWorkloads", ""), State::Waiting, "WaitingForPreemptedWorkloads")]
#[case::waiting_for_topology(workload(1).pending("TopologyPlacementFailed", ""), State::Waiting, "TopologyPlacementFailed")]
#[case::more_than_there_is(workload(1).pending("ExceedsMaxQuota", TOO_MUCH), State::Unfit, "ExceedsMaxQuota")]
#[case::no_flavor(workload(1).pending("NoMatchingFlavor", ""), State::Unfit, "NoMatchingFlavor")]
#[case::no_local_queue(workload(1).pending("Misconfigured", "LocalQueue q doesn't exist"), State::Unfit, "Misconfigured")]
#[case::queue_on_hold(workload(1).pending("OnHold", ""), State::Unfit, "OnHold")]
#[case::queue_stopped(workload(1).pending("Suspended", "ClusterQueue cq is stopped"), State::Unfit, "Suspended")]
#[case::older_kueue_waiting(workload(1).pending("Pending", LATER), State::Waiting, "Pending")]
#[case::older_kueue_too_much(workload(1).pending("Pending", TOO_MUCH), State::Unfit, "Pending")]
#[case::older_kueue_taint(workload(1).pending("Pending", "couldn't assign flavors to pod set main: untolerated taint {gpu  NoSchedule <nil>} in flavor a100"), State::Unfit, "Pending")]
#[case::older_kueue_affinity(workload(1).pending("Pending", "couldn't assign flavors to pod set main: flavor a100 doesn't match node affinity"), State::Unfit, "Pending")]
#[case::older_kueue_no_flavor(workload(1).pending("Pending", "couldn't assign flavors to pod set main: flavor a100 not found"), State::Unfit, "Pending")]
#[case::older_kueue_uncovered(workload(1).pending("Pending", "couldn't assign flavors to pod set main: resource nvidia.com/gpu unavailable in ClusterQueue"), State::Unfit, "Pending")]
#[case::older_kueue_one_flavor_of_two(workload(1).pending("Pending", "couldn't assign flavors to pod set main: untolerated taint x in flavor a, insufficient unused quota for cpu in flavor b, 1 more needed"), State::Waiting, "Pending")]
#[case::older_kueue_one_pod_set_of_two(workload(1).pending("Pending", "couldn't assign flavors to pod set a: insufficient unused quota for cpu in flavor x, 1 more needed; couldn't assign flavors to pod set b: flavor y not found"), State::Unfit, "Pending")]
#[case::older_kueue_preempting(workload(1).pending("Pending", "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed. Pending the preemption of 2 workload(s)"), State::Waiting, "Pending")]
#[case::older_kueue_inactive(workload(1).pending("Inadmissible", "ClusterQueue cq is inactive"), State::Unfit, "Inadmissible")]
#[case::older_kueue_topology_is_full(workload(1).pending("Pending", NO_DOMAIN), State::Waiting, "Pending")]
#[case::older_kueue_level_is_missing(workload(1).pending("Pending", "couldn't assign flavors to pod set main: Flavor \"gpu\" does not contain the requested level"), State::Unfit, "Pending")]
#[case::older_kueue_flavor_has_no_topology(workload(1).pending("Pending", "couldn't assign flavors to pod set main: Flavor \"gpu\" does not support TopologyAwareScheduling"), State::Unfit, "Pending")]
#[case::older_kueue_topology_of_one_flavor(workload(1).pending("Pending", "couldn't assign flavors to pod set main: Flavor \"a\" does not contain the requested level, topology \"t\" allows to fit only 1 out of 2 pod(s)"), State::Waiting, "Pending")]
#[case::text_nobody_knows(workload(1).pending("Pending", "the moon is in the wrong house"), State::Waiting, "Pending")]
fn states_before_admission(
    #[case] workload: RemoteWorkload,
    #[case] state: State,
    #[case] code: &str,
) {
    let mut bench = Bench::open();
    bench.assign(1, Phase::Reserve).answer(Outcome::Object(Box::new(Object::Workload(workload))));
    let reports = bench.reported();
    let last = reports.last().unwrap();
    assert_eq!((last.state(), last.reasons[0].code.as_str()), (state, code));
}

#[test]
fn quota_without_ready_checks_reports_waiting() {
    let mut waiting = workload(1);
    waiting.quota_reserved = yes("QuotaReserved");
    waiting.unready_checks = vec![UnreadyCheck {
        name: "prov".to_owned(),
        state: "Pending".to_owned(),
        message: "nodes".to_owned(),
    }];
    let mut bench = Bench::open();
    bench.assign(1, Phase::Reserve).answer(Outcome::Object(Box::new(Object::Workload(waiting))));
    let reports = bench.reported();
    assert_eq!(reports[0].state(), State::Waiting);
    assert_eq!(reports[0].reasons[0].message, "admission check prov is Pending: nodes");
}

#[rstest]
#[case::preempted(workload(1).evicted_for("Preempted"), job(1).running(), Some(State::Evicted))]
#[case::active_again_after_a_fence(workload(1).evicted_for("Deactivated"), job(1), Some(State::Waiting))]
#[case::active_again_quota_taken_away(workload(1).pending("Deactivated", ""), job(1), Some(State::Waiting))]
#[case::active_again_pods_still_stop(workload(1).evicted_for("Deactivated").admitted(), job(1).running(), None)]
#[case::inactive_by_somebody_else(workload(1).evicted_for("Deactivated").inactive(), job(1), Some(State::Evicted))]
#[case::inactive_while_it_waited(workload(1).pending("Pending", "couldn't assign flavors: insufficient unused quota").inactive(), job(1), Some(State::Unfit))]
#[case::gave_up_requeueing(workload(1).evicted_for("DeactivatedDueToRequeuingLimitExceeded").inactive(), job(1), Some(State::Evicted))]
#[case::reservation_lost_pods_still_run(workload(1).pending("Suspended", ""), job(1).running(), None)]
#[case::reservation_lost(workload(1).pending("WaitingForQuota", ""), job(1), Some(State::Waiting))]
#[case::out_of_sync(workload(1).admitted().finished_for("OutOfSync"), job(1), Some(State::Evicted))]
#[case::failed_to_start(workload(1).admitted().finished_for("FailedToStart"), job(1), Some(State::Failed))]
#[case::the_workload_ends_before_the_job_is_seen_to(workload(1).admitted().finished_for("Succeeded"), job(1).running(), None)]
#[case::succeeded(workload(1).admitted(), job(1).ended(true), Some(State::Succeeded))]
#[case::failed(workload(1).admitted(), job(1).ended(false), Some(State::Failed))]
fn states_after_job_started(
    #[case] workload: RemoteWorkload,
    #[case] job: RemoteJob,
    #[case] state: Option<State>,
) {
    let mut bench = Bench::running();
    bench.observe(workload.owned().applied()).observe(job.applied());
    assert_eq!(bench.reported_states().last().map(|(_, state)| *state), state);
}

/// Watches may be apart: the agent may read the deletion of the finished Workload first.
#[test]
fn job_shows_its_end_after_its_finished_workload_is_deleted() {
    let lone = || {
        let mut bench = Bench::running();
        bench.observe(workload(1).admitted().finished_for("Succeeded").owned().applied());
        bench.observe(job(1).running().applied());
        bench.observe(gone(ObjectKind::Workload, 1));
        bench
    };
    let mut ends = lone();
    assert_eq!(ends.reported_states(), [(1, State::Running)], "it is about to show its end");
    ends.observe(job(1).ended(true).applied());
    assert_eq!(ends.reported_states(), [(1, State::Succeeded)]);
    let mut stopped = lone();
    stopped.reported_states();
    stopped.observe(job(1).applied());
    assert_eq!(stopped.reported_states(), [(1, State::Evicted)], "its controller has stopped it");
}

#[test]
fn readmission_ends_eviction() {
    let mut bench = Bench::running();
    bench.observe(workload(1).evicted_for("Preempted").owned().applied()).observe(job(1).applied());
    bench.observe(workload(1).admitted().owned().applied());
    assert_eq!(bench.reported_states(), [(1, State::Evicted), (1, State::Running)]);
}

impl RemoteWorkload {
    fn evicted_for(mut self, reason: &str) -> Self {
        self.evicted = yes(reason);
        self
    }

    fn inactive(mut self) -> Self {
        self.active = false;
        self
    }

    fn finished_for(mut self, reason: &str) -> Self {
        self.finished = yes(reason);
        self
    }
}
