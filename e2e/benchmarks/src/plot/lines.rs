//! How figures grow with the number of clusters.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::picture::{Area, FAINT, RULE, beside, bold, draw_heading, plain};

const HEAD: i32 = 46;
/// Room for the vertical axis' figures, for the lines' names, and for the horizontal axis.
const AXIS: i32 = 56;
const NAMES: i32 = 100;
const FOOT: i32 = 40;
/// Names of two lines are at least so far apart.
const APART: i32 = 17;

const COLORS: [RGBColor; 3] =
    [RGBColor(0x0b, 0x7a, 0x75), RGBColor(0xd9, 0x8a, 0x1f), RGBColor(0x5b, 0x65, 0x72)];

pub(super) struct Lines {
    pub(super) title: String,
    pub(super) note: String,
    pub(super) lines: Vec<Line>,
}

pub(super) struct Line {
    pub(super) name: String,
    /// Clusters, and the figure; in the order of clusters.
    pub(super) points: Vec<(f64, f64)>,
}

impl Lines {
    pub(super) const HEIGHT: i32 = 290;

    pub(super) fn draw(
        &self,
        area: &Area<'_>,
        (left, top): (i32, i32),
        width: i32,
    ) -> anyhow::Result<()> {
        draw_heading(area, (&self.title, &self.note), (left, top))?;
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let most = ceiling(points().map(|(_, figure)| *figure).fold(0.0, f64::max));
        let (fewest, many) =
            points().fold((f64::INFINITY, 1.0_f64), |(a, b), (at, _)| (a.min(*at), b.max(*at)));
        let (first, last) = (left + AXIS, left + width - NAMES);
        let (high, low) = (top + HEAD, top + Self::HEIGHT - FOOT);
        // Clusters on a logarithmic axis: each number is some times the one before.
        let across = |clusters: f64| {
            let share =
                if many > fewest { (clusters / fewest).ln() / (many / fewest).ln() } else { 0.5 };
            first + 14 + (share * f64::from(last - first - 28)).round() as i32
        };
        let up = |figure: f64| low - (figure / most * f64::from(low - high)).round() as i32;
        for mark in 0..=4 {
            let figure = most * f64::from(mark) / 4.0;
            area.draw(&PathElement::new([(first, up(figure)), (last, up(figure))], RULE))?;
            area.draw_text(
                &round(figure),
                &beside(&plain(15, &FAINT), HPos::Right),
                (first - 8, up(figure)),
            )?;
        }
        let mut clusters: Vec<f64> = points().map(|(at, _)| *at).collect();
        clusters.dedup();
        clusters.sort_by(f64::total_cmp);
        clusters.dedup();
        for at in clusters {
            area.draw_text(
                &format!("{at}"),
                &beside(&plain(15, &FAINT), HPos::Center),
                (across(at), low + 14),
            )?;
        }
        let middle = ((first + last) / 2, low + 31);
        area.draw_text("clusters", &beside(&plain(15, &FAINT), HPos::Center), middle)?;
        let mut names: Vec<(i32, usize)> = Vec::new();
        for (number, (line, color)) in self.lines.iter().zip(COLORS.iter().cycle()).enumerate() {
            let path: Vec<(i32, i32)> =
                line.points.iter().map(|(at, figure)| (across(*at), up(*figure))).collect();
            area.draw(&PathElement::new(path.clone(), color.stroke_width(2)))?;
            for point in &path {
                area.draw(&Circle::new(*point, 4, color.filled()))?;
            }
            names.extend(path.last().map(|(_, y)| (*y, number)));
        }
        // Each beside its line's end, moved down where another is in the way; upwards from the axis if that is too low.
        names.sort_unstable();
        for index in 1..names.len() {
            names[index].0 = names[index].0.max(names[index - 1].0 + APART);
        }
        let below = names.last().map_or(0, |(y, _)| (*y - low).max(0));
        for (y, number) in names {
            let color = COLORS[number % COLORS.len()];
            area.draw_text(
                &self.lines[number].name,
                &beside(&bold(15, &color), HPos::Left),
                (last + 6, y - below),
            )?;
        }
        Ok(())
    }
}

/// The next number that four equal steps divide into readable ones.
fn ceiling(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(most.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|step| *step >= most).unwrap_or(most)
}

/// A mark of an axis, without digits that say nothing.
fn round(figure: f64) -> String {
    let text = format!("{figure:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_just_above_the_most_in_marks_that_read_well() {
        for (most, end, quarter) in
            [(0.0, 1.0, "0.25"), (7.3, 8.0, "2"), (101.0, 120.0, "30"), (0.011, 0.012, "0.003")]
        {
            assert!((ceiling(most) - end).abs() < 1e-9, "{most}");
            assert_eq!(round(ceiling(most) / 4.0), quarter);
        }
    }
}
