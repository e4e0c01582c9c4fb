//! Checks what an agent reports about workloads. An agent is a program on machines of another team,
//! and tenants of its cluster can write what it reads.

use serde_json::Value;
use switchyard_proto::v1::{Observation, Observed, Reason};
use switchyard_proto::{MAX_NAME, MAX_UID, is_attempt, is_uid, trouble};

/// Longest hash of pod sets, in bytes.
const MAX_HASH: usize = 64;
/// Longest job status, in bytes. A longer one loses its largest fields: lists of indexes go, counts
/// and conditions stay.
const MAX_STATUS: usize = 256 * 1024;
/// Reasons of one observation.
const MAX_REASONS: usize = 32;
/// Longest code of a reason, in bytes.
const MAX_CODE: usize = 128;
/// All reason messages of one observation, in bytes: the API's limit for a condition's message.
const MAX_TEXT: usize = 32 * 1024;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CheckResult {
    /// Observations of a workload or attempt that no hub can have given out.
    pub(super) dropped: usize,
    /// The fault of the first dropped observation.
    pub(super) wrong: Option<String>,
    /// Observations whose job status lost fields.
    pub(super) cut: usize,
}

/// Drops observations that no hub can have caused, and truncates what is too long. One bad
/// observation must not harm the rest of the cluster's report.
pub(super) fn check(observed: &mut Observed) -> CheckResult {
    let mut checked = CheckResult::default();
    observed.observations.retain_mut(|observation| match check_one(observation) {
        Ok(whole) => {
            checked.cut += usize::from(!whole);
            true
        }
        Err(wrong) => {
            checked.dropped += 1;
            checked.wrong.get_or_insert(wrong);
            false
        }
    });
    checked
}

/// Returns whether the job status is still whole.
fn check_one(observation: &mut Observation) -> Result<bool, String> {
    let Observation { workload_uid: uid, namespace, name, attempt, .. } = &*observation;
    if !is_uid(uid) {
        let length = uid.len();
        return Err(format!(
            "an observation's workload_uid ({length} bytes) is not 1 to {MAX_UID} letters, digits and hyphens"
        ));
    }
    if namespace.len() > MAX_NAME || name.len() > MAX_NAME {
        return Err(format!("an observation names an object with more than {MAX_NAME} characters"));
    }
    if observation
        .origin
        .as_ref()
        .is_some_and(|origin| origin.kind.len().max(origin.job_name.len()) > MAX_NAME)
    {
        return Err(format!(
            "an observation's origin names a job with more than {MAX_NAME} characters"
        ));
    }
    if observation.origin.as_ref().is_some_and(|origin| origin.pod_sets.len() > MAX_HASH) {
        return Err(format!("an observation's origin has a hash of more than {MAX_HASH} bytes"));
    }
    if !is_attempt(*attempt) {
        return Err(format!("an observation is of attempt {attempt}, which no hub has given out"));
    }
    let whole = observation.job_status.len() <= MAX_STATUS;
    if !whole {
        observation.job_status = without_the_largest(&observation.job_status, MAX_STATUS);
    }
    // The hub reads only its admission.
    if observation.workload_status.len() > MAX_STATUS {
        observation.workload_status = Vec::new();
    }
    observation.reasons.truncate(MAX_REASONS);
    let mut room = MAX_TEXT;
    for Reason { code, message } in &mut observation.reasons {
        truncate(code, MAX_CODE);
        truncate(message, room);
        room -= message.len();
    }
    trouble::sanitize(&mut observation.troubles);
    Ok(whole)
}

/// Keeps an object's smallest fields up to so many bytes. Empty if `status` is no object.
fn without_the_largest(status: &[u8], bytes: usize) -> Vec<u8> {
    let Ok(Value::Object(status)) = serde_json::from_slice(status) else { return Vec::new() };
    let mut fields: Vec<(usize, String, Value)> = status
        .into_iter()
        .map(|(name, value)| (name.len() + value.to_string().len() + 4, name, value))
        .collect();
    fields.sort_by_key(|(size, ..)| *size);
    let mut room = bytes.saturating_sub(2);
    let kept = fields.into_iter().map_while(|(size, name, value)| {
        room = room.checked_sub(size)?;
        Some((name, value))
    });
    Value::Object(kept.collect()).to_string().into_bytes()
}

/// Truncates a text to so many bytes at a character boundary, and marks it with dots.
fn truncate(text: &mut String, bytes: usize) {
    const CUT: &str = "...";
    if text.len() > bytes {
        let end = bytes.saturating_sub(CUT.len());
        text.truncate((0..=end).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0));
        if bytes >= CUT.len() {
            text.push_str(CUT);
        }
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation() -> Observation {
        Observation {
            workload_uid: "u".into(),
            namespace: "ns".into(),
            name: "n".into(),
            attempt: 1,
            ..Observation::default()
        }
    }

    fn checked(observation: Observation) -> Result<Observation, String> {
        let mut observed = Observed { observations: vec![observation], ..Observed::default() };
        let wrong = check(&mut observed).wrong;
        wrong.map_or_else(|| Ok(observed.observations.remove(0)), Err)
    }

    #[test]
    fn impossible_observation_is_dropped_and_others_kept() {
        assert_eq!(checked(observation()), Ok(observation()));
        for (case, wrong, part) in [
            (
                "no uid",
                Observation { workload_uid: String::new(), ..observation() },
                "workload_uid (0 bytes)",
            ),
            (
                "a long uid",
                Observation { workload_uid: "x".repeat(129), ..observation() },
                "workload_uid (129 bytes)",
            ),
            (
                "a long name",
                Observation { name: "x".repeat(254), ..observation() },
                "more than 253",
            ),
            (
                "a uid in another script",
                Observation { workload_uid: "ж".into(), ..observation() },
                "letters, digits",
            ),
            ("no attempt", Observation { attempt: 0, ..observation() }, "no hub has given out"),
            (
                "an attempt of nobody",
                Observation { attempt: u64::MAX, ..observation() },
                "no hub has given out",
            ),
        ] {
            let error = checked(wrong.clone()).unwrap_err();
            assert!(error.contains(part), "{case}: {error}");
            let mut observed = Observed {
                observations: vec![observation(), wrong, observation()],
                ..Observed::default()
            };
            assert_eq!(check(&mut observed).dropped, 1, "{case}");
            assert_eq!(observed.observations, [observation(), observation()], "{case}");
        }
    }

    #[test]
    fn long_reasons_and_status_are_truncated() {
        let reason = Reason { code: "C".repeat(1000), message: "ß".repeat(40_000) };
        let reasons = vec![reason; 100];
        let cut = checked(Observation {
            reasons,
            job_status: vec![b' '; MAX_STATUS + 1],
            ..observation()
        })
        .unwrap();
        assert_eq!((cut.reasons.len(), cut.job_status.len()), (MAX_REASONS, 0));
        assert_eq!(cut.reasons[0].code.len(), 128);
        assert!(cut.reasons[0].message.ends_with("ß..."), "it shows that it was cut");
        let all: usize = cut.reasons.iter().map(|reason| reason.message.len()).sum();
        assert!(all <= MAX_TEXT, "{all}");
    }

    #[test]
    fn one_long_reason_is_kept_whole() {
        let reasons = vec![Reason { code: "Pending".into(), message: "m".repeat(MAX_TEXT) }];
        let told = checked(Observation { reasons: reasons.clone(), ..observation() }).unwrap();
        assert_eq!(told.reasons, reasons);
    }

    #[test]
    fn large_status_keeps_counts_and_conditions() {
        let status = |indexes: &str| {
            let conditions = serde_json::json!([{"type": "Complete", "status": "True"}]);
            serde_json::json!({"succeeded": 50_000, "completedIndexes": indexes, "conditions": conditions})
        };
        let large = status(&"1,3,".repeat(100_000));
        let told =
            checked(Observation { job_status: large.to_string().into(), ..observation() }).unwrap();
        let mut expected = status("");
        expected.as_object_mut().unwrap().remove("completedIndexes");
        assert_eq!(serde_json::from_slice::<Value>(&told.job_status).unwrap(), expected);
    }
}
