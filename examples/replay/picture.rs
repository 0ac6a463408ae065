//! A picture: requests over time for each policy, and beside each other for each file.

use std::time::Duration;

use tower_throttle::{Micros, Mode};

use crate::limits::{Limits, left_out};
use crate::report::{names, share};
use crate::series::{MOST_BINS, Series};
use crate::svg::{Anchor, Area, Svg};
use crate::time;

const WIDTH: u32 = 830;
const MARGIN: u32 = 20;
/// Between two columns.
const GAP: u32 = 30;
/// The height of a policy, and of the bars in it.
const PANEL: u32 = 150;
const BARS: u32 = 80;
const LEGEND: u32 = 40;
/// The width that a time takes, with room around it.
const LABEL: u32 = 150;

const STYLE: &str = include_str!("picture.css");

pub(crate) fn draw(limits: &[Limits]) -> String {
    let names = names(limits);
    let height = LEGEND + names.len() as u32 * PANEL + MARGIN;
    let mut svg = Svg::new(WIDTH, height);
    svg.areas("paper", [area(0, 0, WIDTH, height)]);
    legend(&mut svg);
    let panels = panels(limits, &names);
    let columns = limits.len() as u32;
    let width = (WIDTH - 2 * MARGIN - (columns - 1) * GAP) / columns;
    let span = common_span(&panels);
    for (panel, place) in panels.iter().zip(0..) {
        let left = MARGIN + place % columns * (width + GAP);
        let top = LEGEND + place / columns * PANEL;
        panel.draw(&mut svg, area(left, top, width, BARS), span);
    }
    svg.finish("What the limits would have done", STYLE)
}

/// A policy under one of the files.
struct Panel {
    title: String,
    numbers: String,
    class: &'static str,
    series: Series,
}

/// Row by row, on one scale of time.
fn panels(limits: &[Limits], names: &[&str]) -> Vec<Panel> {
    let mut panels: Vec<_> = names
        .iter()
        .flat_map(|name| {
            limits
                .iter()
                .map(|each| Panel::of(name, each, limits.len() > 1))
        })
        .collect();
    let width = panels.iter().map(|panel| panel.series.width_secs).max();
    for panel in &mut panels {
        while Some(panel.series.width_secs) < width {
            panel.series.widen();
        }
    }
    // Each may have room, but not all of them together.
    while let Some((first, end)) = common_span(&panels)
        && end - first > MOST_BINS
    {
        panels.iter_mut().for_each(|panel| panel.series.widen());
    }
    panels
}

/// The first bin of all, and the one after the last.
fn common_span(panels: &[Panel]) -> Option<(u64, u64)> {
    let spans = panels.iter().filter_map(|panel| panel.series.span());
    spans.reduce(|(first, end), (other_first, other_end)| {
        (first.min(other_first), end.max(other_end))
    })
}

impl Panel {
    fn of(name: &str, limits: &Limits, is_compared: bool) -> Self {
        let summary = limits.policies.iter().find(|policy| policy.name == name);
        let counts = limits.tally.counts();
        let decided = counts.policies.get(name);
        let is_shadow = summary.is_some_and(|policy| policy.mode == Mode::Shadow);
        Self {
            title: match is_compared {
                true => format!("{name} in {}", file_name(&limits.file)),
                false => name.to_owned(),
            },
            numbers: match (summary, decided) {
                (None, _) => "not in this file".to_owned(),
                (Some(policy), None) => left_out(policy).unwrap_or_default().to_owned(),
                (Some(policy), Some(decided)) => {
                    let denied = share(decided.denied, decided.requests);
                    format!("{}: {denied} of {} denied", policy.limit, decided.requests)
                }
            },
            class: if is_shadow { "shadow" } else { "denied" },
            series: decided.map_or_else(Series::coarsening, |decided| decided.over_time.clone()),
        }
    }

    fn draw(&self, svg: &mut Svg, place: Area, span: Option<(u64, u64)>) {
        let (left, base) = (place.x, place.y + 44 + place.height);
        let right = left + place.width;
        svg.text("name", Anchor::Start, (left, place.y + 16), &self.title);
        svg.text("note", Anchor::Start, (left, place.y + 34), &self.numbers);
        svg.areas("line", [area(left, base, place.width, 1)]);
        let most = self.series.bins.values().map(|bin| bin.requests).max();
        let (Some((first, end)), Some(most)) = (span, most) else {
            return;
        };
        let bar = (place.width / (end - first) as u32).max(1);
        let height = |requests: u64| (requests * u64::from(place.height)).div_ceil(most) as u32;
        let bars = |is_denied: bool| {
            self.series.bins.iter().filter_map(move |(number, bin)| {
                let denied = height(bin.denied);
                let all = height(bin.requests);
                let (top, height) = match is_denied {
                    true => (all, denied),
                    false => (all - denied, all - denied),
                };
                let x = left + (number - first) as u32 * bar;
                let gap = u32::from(bar > 3);
                (height > 0).then(|| area(x, base - top, bar - gap, height))
            })
        };
        svg.areas("allowed", bars(false));
        svg.areas(self.class, bars(true));
        let at = |bin: u64| Micros::new(bin * self.series.width_secs * 1_000_000);
        let below = base + 18;
        let middle = first.midpoint(end);
        let mut labels = vec![(Anchor::Start, first), (Anchor::End, end)];
        if place.width > 3 * LABEL {
            labels.push((Anchor::Middle, middle));
        }
        for (anchor, bin) in labels {
            let x = left + (bin - first) as u32 * bar;
            svg.text("note", anchor, (x, below), &time::shown_minute(at(bin)));
        }
        let width = time::in_words(Duration::from_secs(self.series.width_secs));
        let scale = format!("at most {most} in {width}");
        svg.text("note", Anchor::End, (right, place.y + 16), &scale);
    }
}

/// The end of a path: all of it has no room.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn legend(svg: &mut Svg) {
    let samples = [
        ("allowed", "allowed"),
        ("denied", "denied"),
        ("shadow", "would be denied (shadow)"),
    ];
    for ((class, says), place) in samples.into_iter().zip(0..) {
        let x = MARGIN + place * 90;
        svg.areas(class, [area(x, 18, 12, 12)]);
        svg.text("note", Anchor::Start, (x + 18, 28), says);
    }
    svg.text("note", Anchor::End, (WIDTH - MARGIN, 28), "times in UTC");
}

fn area(x: u32, y: u32, width: u32, height: u32) -> Area {
    Area {
        x,
        y,
        width,
        height,
    }
}
