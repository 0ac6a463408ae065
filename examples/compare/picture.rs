//! The picture: a row for the traffic, one for each algorithm, one axis of time for all.

use std::time::Duration;

use crate::layout::{ADMITTED, FIRST, LEFT, MARGIN, MOST, ROW, SECOND, WIDTH, area, x_of};
use crate::row::{Row, draw_traffic};
use crate::svg::{Anchor, Svg};
use crate::traffic::{CAPTIONS, LENGTH};

const TITLE: &str = "The same traffic through every algorithm";
const STYLE: &str = include_str!("picture.css");

pub(crate) fn draw(offered: &[Duration], rows: &[Row]) -> String {
    let last = FIRST + rows.len() as u32 * ROW;
    let height = last + 76;
    let mut svg = Svg::new(WIDTH, height);
    svg.areas("paper", [area(0, 0, WIDTH, height)]);
    head(&mut svg);
    axis(&mut svg, last);
    draw_traffic(offered, &mut svg, FIRST);
    for (row, number) in rows.iter().zip(1..) {
        row.draw(&mut svg, FIRST + number * ROW);
    }
    legend(&mut svg, height - MARGIN);
    svg.finish(TITLE, STYLE)
}

fn head(svg: &mut Svg) {
    let (line, line_before) = (FIRST - 42, FIRST - 56);
    svg.text("title", Anchor::Start, (MARGIN, 32), TITLE);
    for (at, caption) in CAPTIONS {
        svg.text("note", Anchor::Middle, (x_of(at), line), caption);
    }
    svg.text("note", Anchor::End, (ADMITTED, line), "requests");
    svg.text("note", Anchor::End, (MOST, line_before), "most in");
    svg.text("note", Anchor::End, (MOST, line), "any second");
}

/// The boundaries of the windows: lines from the captions to below the last row.
fn axis(svg: &mut Svg, last: u32) {
    let (top, bottom) = (FIRST - 34, last + 10);
    for second in 0..=LENGTH.as_secs() as u32 {
        let x = LEFT + second * SECOND;
        svg.areas("line", [area(x - 1, top, 1, bottom - top)]);
        let text = format!("{second} s");
        svg.text("note", Anchor::Middle, (x, last + 26), &text);
    }
}

fn legend(svg: &mut Svg, y: u32) {
    let samples = [
        (area(LEFT, y - 10, 12, 12), "admitted", "admitted"),
        (area(LEFT + 96, y - 10, 12, 12), "denied", "denied"),
        (
            area(LEFT + 180, y - 6, 20, 3),
            "over",
            "more than 10 admitted within one second",
        ),
    ];
    for (sample, class, says) in samples {
        svg.areas(class, [sample]);
        let place = (sample.x + sample.width + 6, y);
        svg.text("note", Anchor::Start, place, says);
    }
}
