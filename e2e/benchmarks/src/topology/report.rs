//! The scenarios side by side.

use std::fmt;

use switchyard_e2e::table::Table;

use super::{Cycles, Outcome};

pub(super) struct Report<'a>(pub(super) &'a [Outcome]);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.0.iter().map(|outcome| outcome.size.to_string());
        let mut table = Table::new("Cycles in milliseconds, by nodes/queues/pending", columns);
        let cells = |cell: &dyn Fn(&Outcome) -> Option<String>| -> Vec<String> {
            self.0.iter().map(|outcome| cell(outcome).unwrap_or_else(|| "-".to_owned())).collect()
        };
        let engine = |outcome: &Outcome| Some(outcome.engine);
        let kueue = |outcome: &Outcome| outcome.kueue;
        type Of<'a> = &'a dyn Fn(&Outcome) -> Option<Cycles>;
        for (system, cycles) in [("Switchyard", &engine as Of<'_>), ("Kueue", &kueue)] {
            let row = |cell: &dyn Fn(Cycles) -> String| cells(&|outcome| cycles(outcome).map(cell));
            table.row(format!("{system}: cycles"), row(&|it| it.count.to_string()));
            table.row(format!("{system}: all, s"), row(&|it| format!("{:.1}", it.seconds)));
            for (name, time) in [
                ("p50", (|it: Cycles| it.p50_ms) as fn(Cycles) -> f64),
                ("p90", |it| it.p90_ms),
                ("p99", |it| it.p99_ms),
                ("longest", |it| it.max_ms),
            ] {
                table.row(format!("{system}: {name}"), row(&|it| format!("{:.2}", time(it))));
            }
        }
        let decided = |outcome: &Outcome| {
            outcome
                .kueue
                .map(|_| if outcome.difference.is_some() { "no" } else { "yes" }.to_owned())
        };
        table.row("decided alike", cells(&decided));
        write!(f, "{table}")?;
        for outcome in self.0 {
            if let Some(difference) = &outcome.difference {
                writeln!(f, "{}: the first difference:\n{difference}", outcome.size)?;
            }
        }
        Ok(())
    }
}
