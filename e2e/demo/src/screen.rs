//! The live table: drawn in place on a terminal, told line by line where there is none.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use switchyard::status::{JobRow, JobState};
use switchyard::table;

/// Where the table goes.
#[derive(Debug)]
pub struct Screen {
    terminal: bool,
    drawn: usize,
    told: BTreeMap<String, (JobState, Option<String>)>,
}

impl Default for Screen {
    fn default() -> Self {
        Self::new(std::io::stdout().is_terminal())
    }
}

impl Screen {
    /// A screen; without a terminal every change is one line.
    pub fn new(terminal: bool) -> Self {
        Self { terminal, drawn: 0, told: BTreeMap::new() }
    }

    /// Shows where the jobs are now.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn show(
        &mut self,
        out: &mut impl Write,
        rows: &[JobRow],
        elapsed: Duration,
    ) -> std::io::Result<()> {
        if self.terminal { self.draw(out, rows, elapsed) } else { self.tell(out, rows, elapsed) }
    }

    fn draw(
        &mut self,
        out: &mut impl Write,
        rows: &[JobRow],
        elapsed: Duration,
    ) -> std::io::Result<()> {
        let text = format!("{}\n{:.1} s\n", table(rows), elapsed.as_secs_f64());
        if self.drawn > 0 {
            write!(out, "\x1b[{}A\x1b[J", self.drawn)?;
        }
        self.drawn = text.lines().count();
        // A line that is wider than the terminal is cut, not wrapped: else the next drawing would begin too low.
        write!(out, "\x1b[?7l{text}\x1b[?7h")?;
        out.flush()
    }

    fn tell(
        &mut self,
        out: &mut impl Write,
        rows: &[JobRow],
        elapsed: Duration,
    ) -> std::io::Result<()> {
        for row in rows {
            let now = (row.state, row.cluster.clone());
            if self.told.get(&row.job) == Some(&now) {
                continue;
            }
            let cluster =
                row.cluster.as_deref().map(|name| format!(" on {name}")).unwrap_or_default();
            let reason = if row.reason.is_empty() {
                String::new()
            } else {
                format!(": {}", short(&row.reason))
            };
            writeln!(
                out,
                "{:6.1} s  {:<10} {}{cluster}{reason}",
                elapsed.as_secs_f64(),
                row.job,
                row.state
            )?;
            self.told.insert(row.job.clone(), now);
        }
        Ok(())
    }
}

/// The jobs as a table.
pub fn table(rows: &[JobRow]) -> String {
    let cells: Vec<[String; 6]> = rows
        .iter()
        .map(|row| {
            [
                row.job.clone(),
                row.queue.clone(),
                row.priority.to_string(),
                row.state.to_string(),
                row.cluster.clone().unwrap_or_else(|| "-".to_owned()),
                short(&row.reason),
            ]
        })
        .collect();
    table::render(["JOB", "QUEUE", "PRIORITY", "STATE", "CLUSTER", "REASON"], &cells)
}

/// A line of a terminal holds no more.
fn short(reason: &str) -> String {
    const WIDTH: usize = 110;
    if reason.chars().count() <= WIDTH {
        return reason.to_owned();
    }
    let mut cut: String = reason.chars().take(WIDTH - 1).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(job: &str, state: JobState, cluster: Option<&str>, reason: &str) -> JobRow {
        JobRow {
            namespace: "team".into(),
            job: job.into(),
            kind: "Job".into(),
            workload: format!("job-{job}"),
            queue: "research".into(),
            priority: 0,
            flavors: Vec::new(),
            state,
            cluster: cluster.map(str::to_owned),
            attempt: 1,
            reason: reason.into(),
            ready: None,
            is_stale: false,
            created: None,
        }
    }

    #[test]
    fn without_a_terminal_each_change_is_told_once() {
        let mut screen = Screen::new(false);
        let mut out = Vec::new();
        let waits = row("a", JobState::Pending, None, "no room");
        let runs = row("a", JobState::Running, Some("east"), "");
        for rows in [&waits, &waits, &runs, &runs].map(std::slice::from_ref) {
            screen.show(&mut out, rows, Duration::from_millis(1500)).unwrap();
        }
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "   1.5 s  a          Pending: no room\n   1.5 s  a          Running on east\n"
        );
    }

    #[test]
    fn on_a_terminal_the_table_is_drawn_over_the_last_one() {
        let mut screen = Screen::new(true);
        let mut out = Vec::new();
        let rows = [row("a", JobState::Pending, None, &"x".repeat(200))];
        screen.show(&mut out, &rows, Duration::ZERO).unwrap();
        screen.show(&mut out, &rows, Duration::ZERO).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("\x1b[4A\x1b[J"), "{text:?}");
        assert!(text.starts_with("\x1b[?7lJOB") && text.ends_with("\x1b[?7h"), "{text:?}");
        assert!(text.contains('…'));
    }
}
