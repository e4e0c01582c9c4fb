//! Counts of effective faults and of needed excuses, because a law that is never tested proves
//! nothing.

use std::collections::BTreeMap;
use std::fmt;

/// By name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reached(BTreeMap<&'static str, u64>);

impl Reached {
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    /// Adds the counts of another run.
    pub(crate) fn add(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, times) in &self.0 {
            writeln!(f, "{times:>10} {what}")?;
        }
        Ok(())
    }
}

pub const FAULTS: [&str; 33] = [
    "fault: lacks a pinned flavor",
    "fault: agent crash",
    "fault: agent freeze",
    "fault: hub crash",
    "fault: hub freeze",
    "fault: hub cut",
    "fault: mute",
    "fault: deaf",
    "fault: partition",
    "fault: expired",
    "fault: half gone",
    "fault: api outage",
    "fault: watch gap",
    "fault: slow",
    "fault: turns down",
    "fault: flood",
    "fault: forged",
    "fault: pods not ready",
    "fault: clock jump",
    "fault: evict",
    "fault: delete",
    "fault: worker evicts",
    "fault: worker deletes in the background",
    "fault: worker deletes in the foreground",
    "fault: replaced",
    "fault: replay",
    "fault: declare lost",
    "fault: release",
    "fault: store lost",
    "fault: store restored",
    "fault: drain",
    "fault: says",
    "fault: rule",
];

/// All excuses except rare ones, and other states that the laws cover.
pub const EXCUSES: [&str; 12] = [
    "excuse: two run, as the loss means Duplicate",
    "excuse: two run, as the cluster was declared lost",
    "excuse: two run, as the agent cannot act",
    "excuse: an end that nobody could tell",
    "excuse: quota of what its owner has deleted",
    "excuse: quota of what the hub has forgotten",
    "excuse over: the cluster is back",
    "given up: Fence",
    "given up: Duplicate",
    "given up: GiveUp",
    "a fence stops a job",
    "withdrawn: no ready pod",
];
