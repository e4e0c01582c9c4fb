//! A table of figures: a row for each figure, a column for each system.

use std::fmt;

/// Least number of spaces between two columns.
const GAP: usize = 2;

/// A table. Columns are as wide as their widest cell.
#[derive(Debug, Clone, Default)]
pub struct Table {
    title: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
}

impl Table {
    pub fn new(title: impl Into<String>, columns: impl IntoIterator<Item = String>) -> Self {
        Self { title: title.into(), columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row with its name and a cell for each column.
    pub fn row(&mut self, name: impl Into<String>, cells: impl IntoIterator<Item = String>) {
        self.rows.push((name.into(), cells.into_iter().collect()));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |text: &String| text.chars().count();
        let first = self.rows.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(column, head)| {
                let cells = self.rows.iter().filter_map(|(_, cells)| cells.get(column)).map(width);
                cells.chain([width(head)]).max().unwrap_or(0)
            })
            .collect();
        writeln!(f, "{}", self.title)?;
        let head = (String::new(), self.columns.clone());
        for (name, cells) in std::iter::once(&head).chain(&self.rows) {
            write!(f, "{name:<first$}")?;
            for (cell, width) in cells.iter().zip(&widths) {
                write!(f, "{:GAP$}{cell:>width$}", "")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Bytes as text in megabytes. Zero is a dash.
pub fn megabytes(bytes: u64) -> String {
    if bytes == 0 { "-".to_owned() } else { format!("{:.0} MB", bytes as f64 / 1e6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new("burst", ["ours".to_owned(), "stock as shipped".to_owned()]);
        table.row("jobs/s", ["80.00".to_owned(), "0.60".to_owned()]);
        table.row("peak memory", [megabytes(30_000_000), megabytes(0)]);
        let lines = [
            "burst",
            "              ours  stock as shipped",
            "jobs/s       80.00              0.60",
            "peak memory  30 MB                 -",
        ];
        assert_eq!(table.to_string().lines().collect::<Vec<_>>(), lines);
    }
}
