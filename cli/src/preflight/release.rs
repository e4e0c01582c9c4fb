//! Releases of Kueue, and what a release changed beyond v0.19.2.

use std::fmt;

/// A release of Kueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Release {
    /// The release that the takeover is tested with.
    pub(super) const TESTED: Self = Self::new(0, 19, 2);
    /// Newest release whose changes are known here.
    pub(super) const NEWEST_KNOWN: Self = Self::new(0, 20, 0);
    /// First release with other defaults and kinds.
    pub(super) const NEXT: Self = Self::new(0, 20, 0);

    pub(super) const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Parses `v0.19.2`, with or without the `v` and a suffix such as `-rc.0`.
    ///
    /// # Errors
    /// If the text has no three numbers.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("\"{text}\" is no version; write it as v0.19.2");
        let plain = text.trim_start_matches('v').split(['-', '+']).next().unwrap_or_default();
        let numbers: Vec<u32> =
            plain.split('.').map(str::parse).collect::<Result<_, _>>().map_err(|_| bad())?;
        match numbers[..] {
            [major, minor, patch] => Ok(Self::new(major, minor, patch)),
            _ => Err(bad()),
        }
    }

    /// The release in the tag of an image, such as `registry.k8s.io/kueue/kueue:v0.19.2@sha256:00`.
    pub(super) fn of_image(image: &str) -> Option<Self> {
        let name = image.split('@').next()?.rsplit('/').next()?;
        Self::parse(name.split_once(':')?.1).ok()
    }

    /// Whether it belongs to the tested minor version.
    pub(super) fn is_tested_minor(self) -> bool {
        (self.major, self.minor) == (Self::TESTED.major, Self::TESTED.minor)
    }

    /// Whether its minor version is newer than those whose changes are known here.
    pub(super) fn is_unknown(self) -> bool {
        (self.major, self.minor) > (Self::NEWEST_KNOWN.major, Self::NEWEST_KNOWN.minor)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Gates that v0.20 has on by default and Switchyard off: the gate, whether it matters on a
/// MultiKueue manager alone, and the behaviour without it.
pub(super) const ON_LATER: [(&str, bool, &str); 6] = [
    (
        "AdmissionFairSharingAnchorAtQuotaReservation",
        false,
        "the use of a LocalQueue counts from admission, not from reservation",
    ),
    (
        "MultiKueueOrchestratedPreemption",
        true,
        "several nominated workers may preempt for one job at the same time",
    ),
    (
        "RecomputeAssignmentUponPreemptionTargetsOverlap",
        false,
        "a job whose victims another job took waits for the next cycle",
    ),
    (
        "RejectUpdatesToCQWithInvalidOnFlavors",
        false,
        "the webhook accepts onFlavors that name no flavor of the ClusterQueue",
    ),
    (
        "UnadmittedWorkloadsObservability",
        false,
        "QuotaReserved=False has the reasons Pending and Inadmissible, not WaitingForQuota and so on",
    ),
    (
        "WorkloadPriorityClassDefaulting",
        false,
        "jobs without a class do not get the WorkloadPriorityClass default",
    ),
];

/// A kind of a later release: its plural, the loss, and the fix.
pub(super) const LATER_KINDS: [(&str, &str, &str); 3] = [
    (
        "preemptionconfigs",
        "its rules find no victims: preemption is that of the ClusterQueues",
        "express the rules in spec.preemption of the ClusterQueues, or stay with Kueue",
    ),
    (
        "dynamicquotaorchestrators",
        "quota no longer follows the capacity that it discovers",
        "write the amounts into the ClusterQueues, and delete the orchestrator",
    ),
    (
        "capacityproviders",
        "nothing reads the capacity that it provides",
        "write the amounts into the ClusterQueues, and delete the provider",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_read_from_text_and_image() {
        let tested = Some(Release::TESTED);
        for (image, release) in [
            ("registry.k8s.io/kueue/kueue:v0.19.2", tested),
            ("localhost:5000/kueue:v0.19.2@sha256:00", tested),
            ("localhost:5000/kueue", None),
            ("kueue:main", None),
        ] {
            assert_eq!(Release::of_image(image), release, "{image}");
        }
        assert_eq!(Release::parse("0.20.0-rc.1"), Ok(Release::new(0, 20, 0)));
        assert!(Release::parse("v0.19").unwrap_err().contains("write it as v0.19.2"));
        assert!(Release::new(0, 21, 0).is_unknown() && !Release::new(0, 20, 9).is_unknown());
        assert!(Release::new(0, 19, 7).is_tested_minor());
        assert_eq!(Release::TESTED.to_string(), "v0.19.2");
    }
}
