//! Names of workloads, clusters and objects.

use std::sync::Arc;

use switchyard_dispatcher::{JobIdentity, Uid};

/// How agents know the hub.
pub(crate) const HUB_ID: &str = "hub";
/// The namespace of all objects.
pub(crate) const NAMESPACE: &str = "ns";
/// The AdmissionCheck that dispatches.
pub(crate) const CHECK: &str = "mk";
/// The PriorityClass of all workloads.
pub(crate) const PRIORITY_CLASS: &str = "class";
/// Workloads from this number on belong to forged objects.
pub(crate) const FORGED: usize = 1_000;

/// A workload's first uid on the hub. Also determines its name.
pub(crate) fn uid(index: usize) -> Uid {
    uid_in(index, 0)
}

/// A workload's uid on a hub after `losses` losses of its store.
pub(crate) fn uid_in(index: usize, losses: u32) -> Uid {
    let letter =
        char::from_u32('w' as u32 + losses).filter(char::is_ascii_lowercase).unwrap_or('z');
    format!("{letter}{index}").into()
}

pub(crate) fn name(cluster: usize) -> String {
    format!("c{cluster}")
}

/// The number at the end of a uid or name.
pub(crate) fn number(text: &str) -> usize {
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.parse().unwrap_or(usize::MAX)
}

/// The job of a workload.
pub(crate) fn subject(index: usize) -> JobIdentity {
    JobIdentity {
        kind: "batch/v1, Kind=Job".into(),
        job: format!("job-{index}").into(),
        pod_sets: Arc::from(vec![1]),
    }
}
