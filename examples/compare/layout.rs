//! The layout of the picture, in pixels.

use std::time::Duration;

use crate::svg::Area;

/// The width that GitHub has for a README, so that nothing is scaled.
pub(crate) const WIDTH: u32 = 830;
pub(crate) const MARGIN: u32 = 16;

/// The left end of the time axis, and the width of a second.
pub(crate) const LEFT: u32 = 186;
pub(crate) const SECOND: u32 = 80;

/// The right edges of the columns of numbers.
pub(crate) const ADMITTED: u32 = 736;
pub(crate) const MOST: u32 = WIDTH - MARGIN;

/// The base of the first row, and the height of a row.
pub(crate) const FIRST: u32 = 128;
pub(crate) const ROW: u32 = 52;

pub(crate) fn x_of(at: Duration) -> u32 {
    LEFT + (at.as_millis() as u32) * SECOND / 1_000
}

pub(crate) fn area(x: u32, y: u32, width: u32, height: u32) -> Area {
    Area {
        x,
        y,
        width,
        height,
    }
}
