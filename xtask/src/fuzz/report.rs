//! Counts compared and differing scenarios by mode.

use std::collections::BTreeMap;
use std::fmt;

use super::judge::Judgement;

/// By mode.
#[derive(Default)]
pub(crate) struct Counts(BTreeMap<&'static str, Count>);

#[derive(Clone, Copy, Default)]
struct Count {
    same: usize,
    differing: usize,
    wavering: usize,
    chance: usize,
    invalid: usize,
    named: usize,
    decisions: usize,
}

impl Counts {
    pub(crate) fn add(&mut self, mode: &'static str, judgement: &Judgement) {
        let count = self.0.entry(mode).or_default();
        match judgement {
            Judgement::Same { decisions } => {
                count.same += 1;
                count.decisions += decisions;
            }
            Judgement::Differs { .. } => count.differing += 1,
            Judgement::Varies => count.wavering += 1,
            Judgement::VariesWithoutMatch => count.chance += 1,
            Judgement::Invalid => count.invalid += 1,
            Judgement::KnownDifference => count.named += 1,
        }
    }

    pub(crate) fn differing(&self) -> usize {
        self.0.values().map(|count| count.differing).sum()
    }

    /// The counts of one mode.
    pub(crate) fn line(&self, mode: &str) -> String {
        self.0.get(mode).copied().unwrap_or_default().to_string()
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} same ({} decisions), {} different",
            self.same, self.decisions, self.differing
        )?;
        if self.wavering > 0 {
            write!(f, ", {} where Kueue's decisions vary", self.wavering)?;
        }
        if self.chance > 0 {
            write!(
                f,
                ", {} where Kueue's decisions vary and none equals the engine's",
                self.chance
            )?;
        }
        if self.named > 0 {
            write!(
                f,
                ", {} known differences (docs/conformance.md, docs/compatibility.md)",
                self.named
            )?;
        }
        if self.invalid > 0 {
            write!(f, ", {} that Kueue cannot play", self.invalid)?;
        }
        Ok(())
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = Count::default();
        for (mode, count) in &self.0 {
            writeln!(f, "{mode:<14} {count}")?;
            all.same += count.same;
            all.differing += count.differing;
            all.wavering += count.wavering;
            all.chance += count.chance;
            all.invalid += count.invalid;
            all.named += count.named;
            all.decisions += count.decisions;
        }
        write!(f, "{:<14} {all}", "all")
    }
}
