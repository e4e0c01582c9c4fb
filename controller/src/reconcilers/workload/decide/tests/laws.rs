//! Properties of decisions about arbitrary workloads.

use proptest::prelude::*;

use super::*;

fn subjects() -> impl Strategy<Value = Workload> {
    let condition = (0_usize..9, any::<bool>(), 0_usize..9, 0_i64..200);
    let check = (0_usize..3, 0_usize..4);
    (
        proptest::collection::vec(condition, 0..7),
        proptest::collection::vec(check, 0..3),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(conditions, checks, active, admission)| {
            const TYPES: [&str; 9] = [
                "QuotaReserved",
                "Admitted",
                "Evicted",
                "Requeued",
                "Preempted",
                "PodsReady",
                "DeactivationTarget",
                "Finished",
                "BlockedOnPreemptionGates",
            ];
            const REASONS: [&str; 9] = [
                "QuotaReserved",
                "Deactivated",
                "AdmissionCheck",
                "ClusterQueueStopped",
                "WaitForRecovery",
                "AdmissionGated",
                "Misconfigured",
                "Pending",
                "OnHold",
            ];
            const STATES: [CheckState; 4] =
                [CheckState::Pending, CheckState::Ready, CheckState::Retry, CheckState::Rejected];
            let mut subject = workload("a");
            if admission {
                subject = subject.reserved("cq");
            }
            for (type_, holds, reason, second) in conditions {
                subject = subject.condition_at(second, TYPES[type_], holds, REASONS[reason], "why");
            }
            for (name, state) in checks {
                let name = ["a", "b", "c"][name];
                let known = subject
                    .status
                    .iter()
                    .flat_map(|s| &s.admission_checks)
                    .any(|check| check.name == name);
                if !known {
                    subject = subject.check(name, STATES[state], "said");
                }
            }
            if active { subject } else { subject.inactive() }
        })
}

proptest! {
    /// A few reconciles bring each workload to rest: there are no loops of writes.
    #[test]
    fn every_workload_comes_to_rest(subject in subjects(), drain in any::<bool>(), checks in any::<bool>(), plain in any::<bool>()) {
        let policy = if drain { StopPolicy::HoldAndDrain } else { StopPolicy::None };
        let inputs = inputs(StopPolicy::None, policy, if checks { &["a", "b"] } else { &[] });
        let reasons = if plain { ReasonDetail::Basic } else { ReasonDetail::Full };
        let rules = Rules { reasons, ..Rules::default() };
        let mut subject = subject;
        for look in 0.. {
            prop_assert!(look < 8, "still writing after 8 looks: {:?}", subject.status);
            let plan = decide(&subject, &inputs, &rules, at(300));
            if plan.status.is_none() && !plan.deactivate {
                break;
            }
            if let Some(status) = plan.status {
                subject.status = Some(status);
            }
            if plan.deactivate {
                subject.spec.active = Some(false);
            }
        }
    }

    /// There is an admission exactly while quota is reserved.
    #[test]
    fn admission_and_reservation_go_together(subject in subjects()) {
        let has_admission = |it: &Workload| it.status.as_ref().is_some_and(|status| status.admission.is_some());
        let consistent = workload::has_reservation(&subject) == has_admission(&subject);
        let plan = decide(&subject, &inputs(StopPolicy::None, StopPolicy::Hold, &[]), &Rules::default(), at(300));
        if let (true, Some(status)) = (consistent, plan.status) {
            let next = Workload { status: Some(status), ..subject };
            prop_assert_eq!(workload::has_reservation(&next), has_admission(&next));
        }
    }
}
