//! How often each fault had an effect, and each excuse of a law was needed: a law that is never tried says nothing.

use std::collections::BTreeMap;
use std::fmt;

/// Counts, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reached(BTreeMap<&'static str, u64>);

impl Reached {
    /// One more.
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// How often that was reached.
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    /// Those of another run as well.
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

/// Every fault.
pub const FAULTS: [&str; 31] = [
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

/// The excuses, but for those that are seldom needed, and what the laws are about beside them.
pub const EXCUSES: [&str; 11] = [
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
];
