//! Quiet and attacked, side by side.

use std::fmt;

use serde_json::{Value, json};
use switchyard_e2e::table::Table;

use super::flood::Flood;
use super::{Outcome, Phase};
use crate::quantiles::{Quantiles, seconds};

/// A ratio above this is too much.
const TARGET: f64 = 2.0;

/// Both phases.
pub(super) struct Report<'a>(pub(super) &'a Outcome);

impl Phase {
    fn json(&self) -> Value {
        let floods: serde_json::Map<String, Value> = Flood::ALL
            .iter()
            .zip(&self.sent)
            .map(|(flood, sent)| (flood.name().to_owned(), (*sent).into()))
            .collect();
        json!({
            "jobs": self.jobs, "cut": self.cut, "seconds": self.took.as_secs_f64(), "creationToPod": self.waits.json(),
            "hubCpuSeconds": self.hub.as_secs_f64(), "sent": floods, "forgedObjects": self.forged,
        })
    }
}

impl Report<'_> {
    /// Attacked over quiet; none where nothing was measured.
    fn ratio(&self, of: impl Fn(&Quantiles) -> f64) -> Option<f64> {
        let (quiet, attacked) = (of(&self.0.quiet.waits), of(&self.0.attacked.waits));
        (quiet > 0.0).then(|| attacked / quiet)
    }

    pub(super) fn json(&self) -> Value {
        let ratios = json!({"p50": self.ratio(|it| it.p50), "p99": self.ratio(|it| it.p99)});
        json!({
            "quiet": self.0.quiet.json(), "attacked": self.0.attacked.json(), "attackedOverQuiet": ratios,
            "target": TARGET,
        })
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = ["quiet", "attacked", "ratio"].map(str::to_owned);
        let mut table = Table::new("adversary: a well-meaning tenant's job each second", columns);
        let (quiet, attacked) = (&self.0.quiet, &self.0.attacked);
        let done = |phase: &Phase| {
            let cut = if phase.cut { ", cut" } else { "" };
            format!("{} of {}{cut}", phase.waits.count, phase.jobs)
        };
        table.row("jobs that got a pod", [done(quiet), done(attacked), String::new()]);
        let mut wait = |name: &str, of: &dyn Fn(&Quantiles) -> f64| {
            let ratio = self.ratio(of).map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            table.row(name, [seconds(of(&quiet.waits)), seconds(of(&attacked.waits)), ratio]);
        };
        wait("creation to pod, p50", &|it| it.p50);
        wait("creation to pod, p90", &|it| it.p90);
        wait("creation to pod, p99", &|it| it.p99);
        wait("creation to pod, max", &|it| it.max);
        let share = |phase: &Phase| {
            format!("{:.1} %", 100.0 * phase.hub.as_secs_f64() / phase.took.as_secs_f64().max(1e-9))
        };
        table.row("hub, of a core", [share(quiet), share(attacked), String::new()]);
        for (index, flood) in Flood::ALL.iter().enumerate() {
            let sent =
                |phase: &Phase| phase.sent.get(index).copied().unwrap_or_default().to_string();
            table.row(
                format!("sent: {}", flood.name()),
                [sent(quiet), sent(attacked), String::new()],
            );
        }
        table.row(
            "objects with forged marks",
            [quiet.forged, attacked.forged].map(|count| count.to_string()),
        );
        write!(f, "{table}")
    }
}
