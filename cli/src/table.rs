//! Tables like kubectl's: columns as wide as their widest cell, three spaces apart, no trailing
//! space.

/// Renders rows under headings. The last column is not padded.
#[must_use]
pub fn render<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let columns = Columns::new(&headings, rows);
    let plain = |_: &str, text: &str| text.to_owned();
    rows.iter().fold(columns.heading(), |out, row| out + &columns.line(row, plain))
}

/// Counts characters, which is close enough to columns here.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// The columns of a table whose rows are printed one by one. Rows that come later do not widen them.
#[derive(Clone, Debug)]
pub struct Columns {
    headings: Vec<String>,
    widths: Vec<usize>,
}

impl Columns {
    /// As wide as the widest of these cells.
    #[must_use]
    pub fn new(headings: &[&str], rows: &[impl AsRef<[String]>]) -> Self {
        let mut widths: Vec<usize> = headings.iter().map(|it| width(it)).collect();
        for (column, cell) in rows.iter().flat_map(|row| widths_of(row.as_ref())) {
            if let Some(widest) = widths.get_mut(column) {
                *widest = (*widest).max(cell);
            }
        }
        Self { headings: headings.iter().map(|it| (*it).to_owned()).collect(), widths }
    }

    /// The line of headings.
    #[must_use]
    pub fn heading(&self) -> String {
        self.line(&self.headings, |_, text| text.to_owned())
    }

    /// One row. `paint` gets the heading and the text of each cell, and may add what takes no room.
    #[must_use]
    pub fn line(&self, cells: &[String], paint: impl Fn(&str, &str) -> String) -> String {
        let mut out = String::new();
        // Nothing follows the last text, so that no line ends with spaces.
        let last = cells.iter().rposition(|cell| !cell.is_empty());
        for (column, ((cell, heading), widest)) in
            cells.iter().zip(&self.headings).zip(&self.widths).enumerate()
        {
            if last.is_none_or(|last| column > last) {
                break;
            }
            out.push_str(&paint(heading, cell));
            if last != Some(column) {
                out.push_str(&" ".repeat(widest.saturating_sub(width(cell)) + 3));
            }
        }
        out.push('\n');
        out
    }
}

fn widths_of(row: &[String]) -> impl Iterator<Item = (usize, usize)> {
    row.iter().map(|cell| width(cell)).enumerate()
}

/// A duration as kubectl shows ages: the largest unit or two.
#[must_use]
pub fn age(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=599 => format!("{}m{}s", seconds / 60, seconds % 60),
        600..=10_799 => format!("{}m", seconds / 60),
        10_800..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [["train-größe".to_owned(), "Running".to_owned()], ["a".to_owned(), String::new()]];
        insta::assert_snapshot!(render(["JOB", "STATE"], &rows), @r"
        JOB           STATE
        train-größe   Running
        a
        ");
    }

    #[test]
    fn ages_have_one_or_two_units() {
        let ages: Vec<String> = [-5, 7, 119, 120, 599, 600, 10_800, 200_000].map(age).into();
        assert_eq!(ages, ["0s", "7s", "119s", "2m0s", "9m59s", "10m", "3h", "2d"]);
    }
}
