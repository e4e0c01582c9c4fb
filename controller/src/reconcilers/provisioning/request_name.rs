//! Names of ProvisioningRequests and their PodTemplates, as in Kueue. A restarted controller finds
//! its requests by them, and they tell attempts apart.

use switchyard_jobs::limited_name;

/// Attempts tried to recognise a shortened name, which has its attempt only in a hash. A workload
/// is deactivated long before.
const ATTEMPTS_OF_CUT_NAMES: i32 = 100;

pub(super) fn request(workload: &str, check: &str, attempt: i32) -> String {
    limited_name(&format!("{workload}-{check}-{attempt}"))
}

/// The attempt that a request's name stands for. `None` if it is for another workload or check.
pub(super) fn attempt(name: &str, workload: &str, check: &str) -> Option<i32> {
    let digits =
        name.strip_prefix(workload).and_then(|rest| rest.strip_prefix('-')?.strip_prefix(check));
    if let Some(digits) = digits.and_then(|rest| rest.strip_prefix('-'))
        && !digits.is_empty()
        && digits.bytes().all(|digit| digit.is_ascii_digit())
    {
        return digits.parse().ok();
    }
    let cut = |attempt: &i32| request(workload, check, *attempt) == name;
    (name.len() > LONGEST_UNCUT).then(|| (1..=ATTEMPTS_OF_CUT_NAMES).find(cut)).flatten()
}

/// Longer names are shortened ones.
const LONGEST_UNCUT: usize = 247;

pub(super) fn template(request: &str, pod_set: &str) -> String {
    limited_name(&format!("ppt-{request}-{pod_set}"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn names_equal_kueues() {
        assert_eq!(request("job-train-199b9", "ac-prov", 1), "job-train-199b9-ac-prov-1");
        assert_eq!(template("wl-ac-prov-1", "main"), "ppt-wl-ac-prov-1-main");
        assert_eq!(request(&"w".repeat(250), "c", 2).len(), 253);
    }

    #[rstest]
    #[case::first("wl-check-1", Some(1))]
    #[case::later("wl-check-12", Some(12))]
    #[case::other_check("wl-check2-1", None)]
    #[case::check_with_the_same_prefix("wl-check-b-1", None)]
    #[case::other_workload("wl2-check-1", None)]
    #[case::empty_number("wl-check-", None)]
    #[case::not_only_digits("wl-check-+1", None)]
    #[case::overflow("wl-check-99999999999", None)]
    fn attempt_is_parsed_from_the_name(#[case] name: &str, #[case] expected: Option<i32>) {
        assert_eq!(attempt(name, "wl", "check"), expected);
    }

    #[test]
    fn attempt_of_a_shortened_name_is_found() {
        let workload = "w".repeat(245);
        for number in [1, 7, 100] {
            assert_eq!(
                attempt(&request(&workload, "check", number), &workload, "check"),
                Some(number)
            );
        }
        assert_eq!(attempt(&request(&workload, "other", 1), &workload, "check"), None);
    }
}
