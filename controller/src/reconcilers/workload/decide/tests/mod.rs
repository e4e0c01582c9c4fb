//! Decisions as tables. Each outcome is decided again, which must change nothing.

mod laws;
mod pending;
mod plain;
mod reserved;
mod the_end;

use std::sync::Arc;

use switchyard_api::v1beta2::{CheckState, DispatchStatus, PastAttempt, RequeueState, StopPolicy};

use super::*;
use crate::{
    fixtures::{self, WorkloadExt, at, workload},
    reconcilers::workload::{PodsReadyRules, Readiness},
};

fn inputs(local: StopPolicy, cluster: StopPolicy, checks: &[&str]) -> WorkloadInputs {
    WorkloadInputs {
        local_queue: Some(Arc::new(fixtures::local_queue(local))),
        cluster_queue_name: Some("cq".into()),
        cluster_queue: Some(Arc::new(fixtures::cluster_queue(cluster, checks))),
        cluster_queue_active: cluster == StopPolicy::None,
        dispatching_checks: Default::default(),
        parent: false,
        variant: false,
        owner_gone: false,
        held_by_cluster: false,
        readiness: Readiness::Shown,
    }
}

fn open() -> WorkloadInputs {
    inputs(StopPolicy::None, StopPolicy::None, &[])
}

/// The decision at second 100, one line per effect.
fn outcome(subject: &Workload, inputs: &WorkloadInputs, rules: &Rules) -> String {
    let plan = decide(subject, inputs, rules, at(100));
    let mut lines = Vec::new();
    if let Some(status) = &plan.status {
        lines.push(fixtures::conditions(status));
        for check in &status.admission_checks {
            lines.push(format!(
                "check {} {} {:?} retries {:?}",
                check.name,
                check.state.as_str(),
                check.message,
                check.retry_count
            ));
        }
        for eviction in status.scheduling_stats.iter().flat_map(|stats| &stats.evictions) {
            lines.push(format!(
                "evicted {} {:?} x{}",
                eviction.reason, eviction.underlying_cause, eviction.count
            ));
        }
        if let Some(state) = &status.requeue_state {
            let at = state.requeue_at.as_ref().map(|at| at.0.as_second());
            lines.push(format!("requeue count {:?} at {at:?}", state.count));
        }
        if status.admission.is_some() {
            lines.push("keeps its admission".into());
        }
        if let Some(seconds) = status.accumulated_past_execution_time_seconds {
            lines.push(format!("ran {seconds}s before"));
        }
    }
    for (what, done) in
        [("deactivate", plan.deactivate), ("release", plan.release), ("delete", plan.delete)]
    {
        if done {
            lines.push(what.into());
        }
    }
    for notification in &plan.notifications {
        lines.push(match notification {
            Notification::Event { warning, reason, note } => {
                format!("event {} {reason}: {note}", if *warning { "Warning" } else { "Normal" })
            }
            Notification::Evicted { cluster_queue, evicted } => {
                format!("event {} from {cluster_queue}, first {}", evicted.event, evicted.first)
            }
            Notification::Admitted { cluster_queue, waited, reserved_for } => {
                format!("admitted by {cluster_queue} after {waited:?}, {reserved_for:?} since reservation")
            }
        });
    }
    if let Some(again) = plan.again {
        lines.push(format!("again in {again:?}"));
    }
    lines.join("\n")
}

/// Deciding about the outcome must find nothing to do.
fn settled(subject: &Workload, inputs: &WorkloadInputs, rules: &Rules) {
    let plan = decide(subject, inputs, rules, at(100));
    let mut next = subject.clone();
    if let Some(status) = plan.status {
        next.status = Some(status);
    }
    if !plan.deactivate && !plan.release {
        let again = decide(&next, inputs, rules, at(100));
        assert_eq!(again.status, None, "a second look writes again");
    }
}

/// Description, workload, inputs and rules.
type Case = (&'static str, Workload, WorkloadInputs, Rules);

fn table(cases: Vec<Case>) -> String {
    let mut lines = String::new();
    for (sentence, subject, inputs, rules) in cases {
        settled(&subject, &inputs, &rules);
        lines.push_str(&format!("# {sentence}\n"));
        for line in outcome(&subject, &inputs, &rules).lines() {
            lines.push_str(&format!("{line}\n"));
        }
    }
    lines
}

fn patient(limit: Option<i32>) -> Rules {
    let pods_ready = PodsReadyRules {
        timeout: Duration::from_secs(60),
        recovery_timeout: None,
        limit,
        base: Duration::from_secs(60),
        max: Duration::from_secs(3600),
    };
    Rules {
        keep_finished: Some(Duration::from_secs(60)),
        pods_ready: Some(pods_ready),
        ..Rules::default()
    }
}
