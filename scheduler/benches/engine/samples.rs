//! Measured times, and tables of them.

use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    all: Vec<Duration>,
}

impl Samples {
    pub(crate) fn add(&mut self, took: Duration) {
        self.all.push(took);
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn total(&self) -> Duration {
        self.all.iter().sum()
    }

    /// The time that this many of a thousand samples did not exceed.
    pub(crate) fn permille(&self, permille: usize) -> Duration {
        let mut sorted = self.all.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * permille).div_ceil(1000).max(1) - 1;
        sorted.get(at).copied().unwrap_or_default()
    }

    /// Columns of a table: count, p50, p99, maximum.
    pub(crate) fn columns(&self) -> Vec<String> {
        let times = [500, 990, 1000].map(|permille| millis(self.permille(permille)));
        std::iter::once(self.len().to_string()).chain(times).collect()
    }
}

pub(crate) fn millis(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1000.0)
}

/// Prints rows under a title, in aligned columns.
pub(crate) fn table(title: &str, head: &[&str], rows: &[Vec<String>]) {
    if rows.is_empty() {
        return;
    }
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let rows: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let widest = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0)
    };
    println!("\n{title}");
    for row in &rows {
        let cells = row
            .iter()
            .enumerate()
            .map(|(column, cell)| format!("{cell:>width$}", width = widest(column)));
        println!("  {}", cells.collect::<Vec<_>>().join("  "));
    }
}
