//! Events and metrics of reservations and admissions. Notes are Kueue's.

use std::time::Duration;

use switchyard_api::{
    conditions::{self, reasons::events},
    v1beta2::Workload,
};

use crate::{
    context::Context,
    workload::{
        admitted_by, condition, has_reservation, is_admitted, is_copy, queued_since, was_dispatched,
    },
};
use switchyard_platform::clock::since;

/// Which events to publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AdmissionEvents {
    reserved: bool,
    admitted: bool,
}

/// A job that a hub dispatches at once gets one event, on the hub: each of a thousand jobs would
/// cost four more writes. A job that was pending gets an event per step, on both clusters.
fn events_to_publish(before: &Workload, after: &Workload) -> AdmissionEvents {
    let reserved = has_reservation(after) && !has_reservation(before);
    let admitted = is_admitted(after) && !is_admitted(before);
    let at_once = reserved && admitted && condition(before, conditions::QUOTA_RESERVED).is_none();
    AdmissionEvents {
        reserved: reserved && !(at_once && (is_copy(after) || was_dispatched(after))),
        admitted: admitted && !(at_once && is_copy(after)),
    }
}

/// Counts a write and publishes its events: quota reserved, admitted, or both. `flavors` are those
/// that were considered.
pub fn announce(ctx: &Context, before: &Workload, after: &Workload, flavors: &str) {
    let Some(cluster_queue) = admitted_by(after) else { return };
    let (now, told) = (ctx.clock.now(), events_to_publish(before, after));
    let waited = since(now, queued_since(before));
    if !has_reservation(before) {
        ctx.metrics.quota_reserved(after, cluster_queue, waited);
        if told.reserved {
            ctx.events.normal(
                after,
                events::QUOTA_RESERVED,
                reserved_note(cluster_queue, waited, flavors),
            );
        }
    }
    if is_admitted(after) && !is_admitted(before) {
        let reserved =
            condition(before, conditions::QUOTA_RESERVED).filter(|_| has_reservation(before));
        let reserved_for =
            reserved.map_or(Duration::ZERO, |reserved| since(now, reserved.last_transition_time.0));
        let has_checks =
            after.status.as_ref().is_some_and(|status| !status.admission_checks.is_empty());
        if told.admitted {
            ctx.events.normal(after, events::ADMITTED, admitted_note(cluster_queue, reserved_for));
        }
        ctx.count_admitted(after, cluster_queue, waited, has_checks.then_some(reserved_for));
    }
}

fn reserved_note(cluster_queue: &str, waited: Duration, flavors: &str) -> String {
    let seconds = seconds(waited);
    let note = format!(
        "Quota reserved in ClusterQueue {cluster_queue}, wait time since queued was {seconds}"
    );
    if flavors.is_empty() { note } else { format!("{note}; Flavors considered: {flavors}") }
}

/// Kueue's note about an admission that long after the reservation.
pub(crate) fn admitted_note(cluster_queue: &str, reserved_for: Duration) -> String {
    let seconds = seconds(reserved_for);
    format!("Admitted by ClusterQueue {cluster_queue}, wait time since reservation was {seconds}")
}

/// Rounds as Go's `%.0f`.
fn seconds(time: Duration) -> String {
    format!("{:.0}s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use switchyard_api::{names, v1beta2::DispatchStatus};

    use super::*;
    use crate::fixtures::{self, WorkloadExt};

    fn copy(workload: Workload) -> Workload {
        workload.annotation(names::WORKLOAD_UID, "u")
    }

    fn sent(workload: Workload) -> Workload {
        let dispatch = DispatchStatus { attempt: 1, ..DispatchStatus::default() };
        workload.status(|status| status.dispatch = Some(dispatch))
    }

    #[test]
    fn events_of_each_step_except_for_jobs_dispatched_at_once() {
        let new = || fixtures::workload("a");
        let waiting = || new().condition("QuotaReserved", false, "Pending", "");
        let reserved = || new().reserved("cq");
        let admitted = || reserved().admitted();
        for (sentence, before, after, expected) in [
            ("reserved and admitted at once", new(), admitted(), [true, true]),
            ("reserved", new(), reserved(), [true, false]),
            ("admitted later", reserved(), admitted(), [false, true]),
            ("there already", admitted(), admitted(), [false, false]),
            ("sent at once", new(), sent(admitted()), [false, true]),
            ("sent after it was told to wait", waiting(), sent(admitted()), [true, true]),
            ("sent after its reservation was told", reserved(), sent(admitted()), [false, true]),
            ("a copy that is admitted at once", new(), copy(admitted()), [false, false]),
            ("a copy that was told to wait", waiting(), copy(admitted()), [true, true]),
            ("a copy that waits for a check", new(), copy(reserved()), [true, false]),
            ("a copy that has waited for a check", reserved(), copy(admitted()), [false, true]),
        ] {
            let AdmissionEvents { reserved, admitted } = events_to_publish(&before, &after);
            assert_eq!([reserved, admitted], expected, "{sentence}");
        }
    }

    #[test]
    fn times_in_notes_are_rounded_to_seconds() {
        let note =
            |millis, flavors: &str| reserved_note("cq", Duration::from_millis(millis), flavors);
        insta::assert_snapshot!(note(1_499, ""), @"Quota reserved in ClusterQueue cq, wait time since queued was 1s");
        insta::assert_snapshot!(note(1_501, "main: f(Fit)"), @"Quota reserved in ClusterQueue cq, wait time since queued was 2s; Flavors considered: main: f(Fit)");
        insta::assert_snapshot!(admitted_note("cq", Duration::from_millis(2_500)), @"Admitted by ClusterQueue cq, wait time since reservation was 2s");
    }
}
