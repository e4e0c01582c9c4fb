//! Events on a job about its workload's admission checks.

use switchyard_api::v1beta2::{CheckState, Workload};

use crate::workload::{has_reservation, is_admitted, is_evicted, is_finished};

/// Note of Kueue's `UpdatedAdmissionCheck`, if this change brought a new message of a pending check
/// while quota is reserved. A workload that is seen first brings none.
pub(super) fn new_check_messages(old: Option<&Workload>, new: &Workload) -> Option<String> {
    let note = note(new)?;
    (old.map(self::note)? != Some(note.clone())).then_some(note)
}

fn note(workload: &Workload) -> Option<String> {
    let waits = has_reservation(workload)
        && !is_admitted(workload)
        && !is_evicted(workload)
        && !is_finished(workload);
    let checks = workload.status.as_ref().filter(|_| waits)?.admission_checks.iter();
    let pending =
        checks.filter(|check| check.state == CheckState::Pending && !check.message.is_empty());
    let said: Vec<String> =
        pending.map(|check| format!("{}: {}", check.name, check.message)).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::tests::{TestWorkload, job},
        *,
    };

    fn waiting(checks: &[(&str, &str, &str)]) -> TestWorkload {
        let time = "2026-11-21T10:00:00Z";
        let checks: Vec<_> = checks
            .iter()
            .map(|(name, state, message)| {
                json!({"name": name, "state": state, "message": message, "lastTransitionTime": time})
            })
            .collect();
        let checks = serde_json::from_value(json!(checks)).unwrap();
        job().workload().reserved().status(|edit| edit.status.admission_checks = checks)
    }

    #[test]
    fn new_messages_of_pending_checks_are_published_in_order() {
        let silent = waiting(&[("a", "Pending", ""), ("b", "Ready", "done")]).0;
        let one = waiting(&[("a", "Pending", "machines are ordered"), ("b", "Ready", "done")]).0;
        let two =
            waiting(&[("a", "Pending", "machines are ordered"), ("c", "Pending", "so is more")]).0;
        assert_eq!(
            new_check_messages(Some(&silent), &one).as_deref(),
            Some("a: machines are ordered")
        );
        assert_eq!(
            new_check_messages(Some(&one), &two).as_deref(),
            Some("a: machines are ordered; c: so is more")
        );
        assert_eq!(new_check_messages(Some(&one), &one), None, "said already");
        assert_eq!(new_check_messages(Some(&one), &silent), None, "nothing is said");
        assert_eq!(new_check_messages(None, &one), None, "seen for the first time");
    }

    #[test]
    fn checks_are_published_only_with_reserved_quota() {
        let checks = [("a", "Pending", "wait")];
        let before = waiting(&[]).0;
        let admitted = waiting(&checks).status(|edit| {
            edit.set(switchyard_api::conditions::ADMITTED, true, "Admitted", "");
        });
        let without_quota = waiting(&checks).edit(|workload| {
            workload.status.as_mut().unwrap().conditions.clear();
        });
        let cases = [
            ("waiting", waiting(&checks), true),
            ("admitted", admitted, false),
            ("evicted", waiting(&checks).evicted(), false),
            ("finished", waiting(&checks).finished(), false),
            ("without quota", without_quota, false),
        ];
        for (name, workload, told) in cases {
            assert_eq!(new_check_messages(Some(&before), &workload.0).is_some(), told, "{name}");
        }
    }
}
