//! A row of the picture: admitted and denied requests over time.

use std::time::Duration;

use crate::layout::{ADMITTED, LEFT, MARGIN, MOST, SECOND, area, x_of};
use crate::limits::PERMITS;
use crate::run::{Run, busiest_second};
use crate::svg::{Anchor, Svg};
use crate::traffic::LENGTH;

/// The traffic under one algorithm.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) setting: &'static str,
    pub(crate) run: Run,
}

const BIN_MS: u32 = 50;
const BIN: u32 = SECOND * BIN_MS / 1_000;
/// The rest of a bin is the gap to the next one, where the lines of the windows are.
const BAR: u32 = BIN - 1;
/// The height of one request.
const REQUEST: u32 = 5;

impl Row {
    /// Draws it upwards from its base.
    pub(crate) fn draw(&self, svg: &mut Svg, base: u32) {
        let Run { admitted, denied } = &self.run;
        label(svg, base, self.name, self.setting);
        bars(svg, base, &[("admitted", admitted), ("denied", denied)]);
        let (start, most) = busiest_second(admitted);
        number(svg, "number", (ADMITTED, base), admitted.len());
        if most > PERMITS as usize {
            svg.areas("over", [area(x_of(start), base + 4, SECOND, 3)]);
            number(svg, "number over", (MOST, base), most);
        } else {
            number(svg, "number", (MOST, base), most);
        }
    }
}

/// The row of the traffic itself.
pub(crate) fn draw_traffic(offered: &[Duration], svg: &mut Svg, base: u32) {
    label(svg, base, "the traffic", "requests in each 50 ms");
    bars(svg, base, &[("offered", offered)]);
    let (_, most) = busiest_second(offered);
    number(svg, "number", (ADMITTED, base), offered.len());
    number(svg, "number", (MOST, base), most);
}

fn label(svg: &mut Svg, base: u32, name: &str, setting: &str) {
    svg.text("name", Anchor::Start, (MARGIN, base - 14), name);
    svg.text("note", Anchor::Start, (MARGIN, base + 2), setting);
    svg.areas("line", [area(LEFT, base, x_of(LENGTH) - LEFT, 1)]);
}

/// The counts in each bin; the first part is at the bottom.
fn bars(svg: &mut Svg, base: u32, parts: &[(&str, &[Duration])]) {
    let bins = LENGTH.as_millis() as usize / BIN_MS as usize;
    let mut tops = vec![base; bins];
    for (class, instants) in parts {
        let mut counts = vec![0; bins];
        for instant in *instants {
            counts[instant.as_millis() as usize / BIN_MS as usize] += 1;
        }
        let bins = tops.iter_mut().zip(counts).zip(0..);
        let bars = bins.filter_map(|((top, count), bin)| {
            *top -= count * REQUEST;
            let bar = area(LEFT + bin * BIN, *top, BAR, count * REQUEST);
            (count > 0).then_some(bar)
        });
        svg.areas(class, bars);
    }
}

fn number(svg: &mut Svg, class: &str, (x, base): (u32, u32), number: usize) {
    svg.text(class, Anchor::End, (x, base - 6), &number.to_string());
}
