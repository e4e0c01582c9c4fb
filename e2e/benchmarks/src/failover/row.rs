//! The effect of one fault on the jobs of one policy.

use serde_json::{Value, json};

use super::Fault;
use super::System;

/// A row of the table. Times are seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) system: System,
    pub(super) policy: &'static str,
    pub(super) fault: Fault,
    pub(super) jobs: usize,
    /// How long the fault lasted.
    pub(super) lasted: f64,
    /// From its beginning until the hub said that the cluster is not active.
    pub(super) seen: Option<f64>,
    /// From its beginning until all jobs ran on the other cluster.
    pub(super) moved: Option<f64>,
    /// From its end until all was well, and stayed so.
    pub(super) healed: Option<f64>,
    /// Jobs that had pods on both clusters at once.
    pub(super) twice: usize,
    /// Jobs that had more than one pod.
    pub(super) anew: usize,
    /// Jobs that have no pod at the end.
    pub(super) lost: usize,
    /// For how long a job had no pod, the longest of all jobs.
    pub(super) still: f64,
    /// It was not well when its time was over.
    pub(super) cut: bool,
    /// It could not be played to its end: nothing was measured.
    pub(super) failed: bool,
}

impl Row {
    /// The row of a fault that could not be played.
    pub(super) fn failed(system: System, policy: &'static str, fault: Fault, jobs: usize) -> Self {
        Self {
            system,
            policy,
            fault,
            jobs,
            lasted: 0.0,
            seen: None,
            moved: None,
            healed: None,
            twice: 0,
            anew: 0,
            lost: 0,
            still: 0.0,
            cut: true,
            failed: true,
        }
    }

    /// The cells of a table, see [`Row::HEAD`].
    pub(super) fn cells(&self) -> [String; 9] {
        let system = self.system.name().to_owned();
        let policy = self.policy.to_owned();
        if self.failed {
            let empty = || "—".to_owned();
            return [
                system,
                policy,
                "not measured".to_owned(),
                empty(),
                empty(),
                empty(),
                empty(),
                empty(),
                empty(),
            ];
        }
        let seconds = |time: Option<f64>, none: &str| {
            time.map_or_else(|| none.to_owned(), |time| format!("{time:.1} s"))
        };
        let count = |count: usize| {
            if count == 0 { "0".to_owned() } else { format!("{count} of {}", self.jobs) }
        };
        let seen =
            if self.fault.has_hub() { seconds(self.seen, "not seen") } else { "—".to_owned() };
        let still = if self.still < Self::SHORT {
            "—".to_owned()
        } else {
            format!("{:.1} s", self.still)
        };
        [
            system,
            policy,
            seen,
            seconds(self.moved, "stayed"),
            seconds(self.healed, "cut"),
            count(self.twice),
            count(self.anew),
            still,
            count(self.lost),
        ]
    }

    /// The columns.
    pub(super) const HEAD: [&'static str; 9] = [
        "system",
        "policy",
        "seen by the hub",
        "runs elsewhere",
        "healed",
        "ran twice at once",
        "restarted",
        "stood still",
        "lost",
    ];

    /// A shorter time without a pod is below the interval of looks.
    const SHORT: f64 = 1.0;

    pub(super) fn json(&self) -> Value {
        json!({
            "system": self.system.name(), "policy": self.policy, "fault": self.fault.name(), "jobs": self.jobs,
            "faultSeconds": self.lasted, "seenSeconds": self.seen, "elsewhereSeconds": self.moved,
            "healedSeconds": self.healed, "twiceAtOnce": self.twice, "begunAnew": self.anew,
            "stoodStillSeconds": self.still, "lost": self.lost, "cut": self.cut, "failed": self.failed,
        })
    }
}
