//! A picture: a title, panels in two columns, and what was measured on what and when. Its background is opaque, so that it
//! reads the same on a light page and on a dark one.

use anyhow::{Context, bail};
use jiff::Timestamp;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde_json::Value;

use super::bars::Bars;
use super::figures;
use super::lines::Lines;

pub(super) const WIDTH: i32 = 960;
const MARGIN: i32 = 24;
const COLUMN: i32 = (WIDTH - 3 * MARGIN) / 2;
const HEAD: i32 = 64;
const FOOT: i32 = 64;
/// Between two rows of panels.
const GAP: i32 = 22;

pub(super) const INK: RGBColor = RGBColor(0x1f, 0x29, 0x37);
pub(super) const FAINT: RGBColor = RGBColor(0x5b, 0x65, 0x72);
pub(super) const RULE: RGBColor = RGBColor(0xd8, 0xdc, 0xe2);

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the title and the note of a panel.
pub(super) fn draw_heading(
    area: &Area<'_>,
    (title, note): (&str, &str),
    (left, top): (i32, i32),
) -> anyhow::Result<()> {
    area.draw_text(title, &bold(18, &INK), (left, top))?;
    area.draw_text(note, &plain(15, &FAINT), (left, top + 22))?;
    Ok(())
}

/// One drawing in it.
pub(super) enum Panel {
    Bars(Bars),
    Lines(Lines),
}

impl Panel {
    fn height(&self) -> i32 {
        match self {
            Self::Bars(bars) => bars.height(),
            Self::Lines(_) => Lines::HEIGHT,
        }
    }
}

pub(super) struct Picture {
    pub(super) benchmark: String,
    title: String,
    foot: [String; 2],
    panels: Vec<Panel>,
}

impl Picture {
    /// # Errors
    /// When the document is not what a benchmark wrote.
    pub(super) fn of(document: &Value) -> anyhow::Result<Self> {
        let benchmark = text(document, "/benchmark")?;
        let (title, panels) = match benchmark.as_str() {
            "burst" => ("Jobs created at once: a hub and three workers", figures::burst(document)?),
            "trickle" => {
                ("Jobs that come one by one: a hub and three workers", figures::trickle(document)?)
            }
            "scale" => ("One hub and more and more clusters", figures::scale(document)?),
            "topology" => (
                "Scheduling cycles with topologies, without API servers",
                figures::topology(document)?,
            ),
            "runner" => {
                ("Kueue's own scheduler performance test, one cluster", figures::runner(document)?)
            }
            other => bail!(
                "/benchmark: no picture is known of {other:?}; draw burst, trickle, scale, runner or topology"
            ),
        };
        Ok(Self { title: title.to_owned(), foot: foot(document)?, panels, benchmark })
    }

    /// # Errors
    /// When it cannot be drawn.
    pub(super) fn svg(&self) -> anyhow::Result<String> {
        let rows: Vec<&[Panel]> = self.panels.chunks(2).collect();
        let heights: Vec<i32> = rows
            .iter()
            .map(|row| row.iter().map(Panel::height).max().unwrap_or_default() + GAP)
            .collect();
        let height = HEAD + heights.iter().sum::<i32>() + FOOT;
        let mut svg = String::new();
        {
            let size = (u32::try_from(WIDTH)?, u32::try_from(height)?);
            let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            area.fill(&WHITE)?;
            area.draw_text(&self.title, &bold(24, &INK), (MARGIN, MARGIN))?;
            let mut top = HEAD;
            for (row, height) in rows.iter().zip(&heights) {
                for (column, panel) in (0..).zip(row.iter()) {
                    let at = (MARGIN + column * (COLUMN + MARGIN), top);
                    match panel {
                        Panel::Bars(bars) => bars.draw(&area, at, COLUMN)?,
                        Panel::Lines(lines) => lines.draw(&area, at, COLUMN)?,
                    }
                }
                top += height;
            }
            area.draw(&PathElement::new([(MARGIN, top), (WIDTH - MARGIN, top)], RULE))?;
            for (line, text) in (0..).zip(&self.foot) {
                area.draw_text(text, &plain(15, &FAINT), (MARGIN, top + 14 + line * 19))?;
            }
            area.present()?;
        }
        Ok(svg)
    }
}

/// When it was measured, on what, and of which versions.
fn foot(document: &Value) -> anyhow::Result<[String; 2]> {
    let date = Timestamp::from_second(
        document["unixSeconds"].as_i64().context("/unixSeconds: no number")?,
    )?;
    let machine = &document["machine"];
    let memory = machine["memoryKiB"].as_f64().unwrap_or_default() / 1024.0 / 1024.0;
    let model = machine["model"]
        .as_str()
        .filter(|model| !model.is_empty())
        .map_or(String::new(), |it| format!(" ({it})"));
    let debug =
        if document["debugBuild"] == true { "; debug build: its times say little" } else { "" };
    let date = date.strftime("%Y-%m-%d");
    let first = format!(
        "Measured {date} on {} CPUs{model}, {memory:.0} GiB, all of it on one machine{debug}",
        machine["processors"]
    );
    let version = |name: &str| text(document, &format!("/versions/{name}"));
    let second = format!(
        "switchyard {}, Kueue {}, Kubernetes {}, etcd {}",
        version("switchyard")?,
        version("kueue")?,
        version("kubernetes")?,
        version("etcd")?,
    );
    Ok([first, second])
}

/// # Errors
/// Which field is missing.
pub(super) fn text(value: &Value, pointer: &str) -> anyhow::Result<String> {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found
        .map(str::to_owned)
        .with_context(|| format!("{pointer}: no text; is this what a benchmark wrote?"))
}

/// # Errors
/// Which field is missing.
pub(super) fn number(value: &Value, pointer: &str) -> anyhow::Result<f64> {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.with_context(|| format!("{pointer}: no number; is this what a benchmark wrote?"))
}

/// # Errors
/// Which field is missing.
pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> anyhow::Result<&'a [Value]> {
    let found = value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice);
    found.with_context(|| format!("{pointer}: no list; is this what a benchmark wrote?"))
}

pub(super) fn plain(size: u32, color: &RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(color)
}

pub(super) fn bold(size: u32, color: &RGBColor) -> TextStyle<'static> {
    FontDesc::from(("sans-serif", size)).style(FontStyle::Bold).color(color)
}

/// Beside a point: to its right or left, at its height.
pub(super) fn beside(style: &TextStyle<'static>, side: HPos) -> TextStyle<'static> {
    style.pos(Pos::new(side, VPos::Center))
}
