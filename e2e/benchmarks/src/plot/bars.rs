//! One figure of several systems, as bars.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::picture::{Area, INK, beside, bold, draw_heading, plain};

const HEAD: i32 = 48;
const STEP: i32 = 30;
const THICK: i32 = 20;
/// Room for names on the left and for figures on the right.
const NAMES: i32 = 136;
const FIGURES: i32 = 112;

pub(super) struct Bars {
    pub(super) title: String,
    /// The drawn figure, its unit, and which way is better.
    pub(super) note: String,
    pub(super) bars: Vec<Bar>,
}

pub(super) struct Bar {
    pub(super) system: String,
    pub(super) value: f64,
    /// The value as it is read.
    pub(super) text: String,
    /// It was cut: the value is that of what came until then.
    pub(super) cut: bool,
}

impl Bars {
    pub(super) fn height(&self) -> i32 {
        HEAD + STEP * i32::try_from(self.bars.len()).unwrap_or_default()
    }

    pub(super) fn draw(
        &self,
        area: &Area<'_>,
        (left, top): (i32, i32),
        width: i32,
    ) -> anyhow::Result<()> {
        draw_heading(area, (&self.title, &self.note), (left, top))?;
        let longest = self.bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
        let room = f64::from(width - NAMES - FIGURES);
        for (row, bar) in (0..).zip(&self.bars) {
            let middle = top + HEAD + row * STEP + THICK / 2;
            let start = left + NAMES;
            // A bar above zero is visible.
            let length = if longest > 0.0 { (bar.value / longest * room).max(1.5) } else { 1.5 };
            let end = start + length.round() as i32;
            let corners = [(start, middle - THICK / 2), (end, middle + THICK / 2)];
            let color = color(&bar.system);
            let fill = if bar.cut { color.mix(0.45) } else { color.mix(1.0) };
            area.draw(&Rectangle::new(corners, fill.filled()))?;
            let style = if bar.system == "ours" { bold(16, &INK) } else { plain(16, &INK) };
            area.draw_text(&bar.system, &beside(&style, HPos::Right), (start - 8, middle))?;
            let text = if bar.cut { format!("{} (cut)", bar.text) } else { bar.text.clone() };
            area.draw_text(&text, &beside(&style, HPos::Left), (end + 8, middle))?;
        }
        Ok(())
    }
}

/// Each system has one colour in all pictures.
fn color(system: &str) -> RGBColor {
    match system {
        "ours" => RGBColor(0x0b, 0x7a, 0x75),
        "floor" => RGBColor(0x9a, 0xa5, 0xb1),
        "stock raised" => RGBColor(0xd9, 0x8a, 0x1f),
        _ => RGBColor(0xb4, 0x53, 0x09),
    }
}
