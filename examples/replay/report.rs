//! What the limits would have done, in words.

use std::fmt::Write as _;

use tower_throttle::{Micros, Subject};

use crate::Log;
use crate::column::{Column, cells};
use crate::limits::Limits;
use crate::table::Table;
use crate::tally::Decided;
use crate::time;

/// As many of those denied most are named.
const MOST_DENIED: usize = 10;

pub(crate) fn written(log: &Log, limits: &[Limits]) -> String {
    let mut text = String::new();
    about_log(&mut text, log);
    for each in limits {
        about_file(&mut text, each);
    }
    for policy in names(limits) {
        let decided: Vec<_> = limits.iter().map(|each| each.tally.counts()).collect();
        let columns = limits.iter().zip(&decided);
        let columns: Vec<_> = columns
            .map(|(each, counts)| Column::of(policy, each, counts))
            .collect();
        about_policy(&mut text, policy, &columns);
    }
    text
}

/// The policies of all files, each once.
pub(crate) fn names(limits: &[Limits]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for policy in limits.iter().flat_map(|each| &each.policies) {
        if !names.contains(&&*policy.name) {
            names.push(&policy.name);
        }
    }
    names
}

fn about_log(text: &mut String, log: &Log) {
    let read = log.lines - log.unread.lines;
    let _ = match log.span {
        Some((first, last)) => {
            let (first, last) = (time::shown(first), time::shown(last));
            writeln!(text, "{read} requests from {first} to {last} UTC")
        }
        None => writeln!(text, "no requests"),
    };
    if log.unread.lines > 0 {
        let _ = writeln!(
            text,
            "not read: {} of {} lines",
            log.unread.lines, log.lines
        );
        for line in &log.unread.first {
            let _ = writeln!(text, "  {line}");
        }
    }
    if log.late > 0 {
        let _ = writeln!(
            text,
            "too far out of order to be sorted, and counted at the time of the line before: {}",
            log.late
        );
    }
    if log.span.is_some() && !log.has_fractions {
        *text += "the log has whole seconds: all requests of a second come at once, which a small \
                  burst denies sooner\n";
    }
}

fn about_file(text: &mut String, limits: &Limits) {
    let _ = writeln!(
        text,
        "\n{}: {} of {} requests denied",
        limits.file,
        share(limits.denied, limits.requests),
        limits.requests
    );
    for ((policy, reason), requests) in &limits.tally.counts().refused {
        let by = match policy.is_empty() {
            true => String::new(),
            false => format!(" by {policy:?}"),
        };
        let _ = writeln!(
            text,
            "  refused before they were counted{by}, {reason}: {requests}"
        );
    }
}

fn about_policy(text: &mut String, name: &str, columns: &[Column<'_>]) {
    let about = columns.iter().find_map(|column| column.policy);
    let on = match about.map(|policy| &*policy.routes) {
        None | Some([]) => "every request".to_owned(),
        Some(routes) => routes.join(", "),
    };
    let key = about
        .map(|policy| policy.key.to_string())
        .unwrap_or_default();
    let _ = writeln!(text, "\n{name}: by {key}, on {on}");
    let mut table = Table::new();
    if columns.len() > 1 {
        table.row("", cells(columns, |column| column.file.to_owned()));
    }
    table.row("limit", cells(columns, |column| column.limit()));
    table.row("mode", cells(columns, |column| column.mode().to_owned()));
    let decided = |cell: fn(&Decided) -> String| {
        cells(columns, |column| match column.decided {
            Some(decided) => cell(decided),
            None => String::new(),
        })
    };
    table.row("requests", decided(|of| of.requests.to_string()));
    table.row("denied", decided(|of| share(of.denied, of.requests)));
    table.row("never fit", decided(never_fit));
    table.row("delayed", decided(delayed));
    table.row(
        "subjects denied",
        decided(|of| of.subjects.len().to_string()),
    );
    table.row("longest denial", decided(longest_denial));
    most_denied(&mut table, columns);
    by_hour(&mut table, columns);
    table.write(text);
}

/// Of those denied, the ones that cost more than the limit ever holds.
fn never_fit(decided: &Decided) -> String {
    match decided.never_fit {
        0 => String::new(),
        never => never.to_string(),
    }
}

fn delayed(decided: &Decided) -> String {
    match decided.delayed {
        0 => String::new(),
        delayed => format!(
            "{delayed}, at most {}",
            time::in_words(decided.longest_delay)
        ),
    }
}

fn longest_denial(decided: &Decided) -> String {
    decided
        .longest_denial
        .as_ref()
        .map_or_else(String::new, |denial| {
            let shown = decided
                .subjects
                .get(&denial.subject)
                .map(|denied| &*denied.shown);
            format!(
                "{}, of {} at {}",
                time::in_words(denial.wait),
                shown.unwrap_or_default(),
                time::shown(denial.at)
            )
        })
}

/// Those denied most in any column, with their denials in each.
fn most_denied(table: &mut Table, columns: &[Column<'_>]) {
    let mut subjects: Vec<(u64, &str, Subject)> = Vec::new();
    for decided in columns.iter().filter_map(|column| column.decided) {
        for subject in decided.most_denied(MOST_DENIED) {
            let denied = &decided.subjects[&subject];
            match subjects.iter_mut().find(|(_, _, other)| *other == subject) {
                Some((most, _, _)) => *most = denied.requests.max(*most),
                None => subjects.push((denied.requests, &denied.shown, subject)),
            }
        }
    }
    subjects.sort_by(|(one, _, _), (other, _, _)| other.cmp(one));
    subjects.truncate(MOST_DENIED);
    if !subjects.is_empty() {
        table.head("denied most");
    }
    for (_, shown, subject) in subjects {
        table.row(
            format!("  {shown}"),
            cells(columns, |column| column.denials_of(subject)),
        );
    }
}

/// The hours in which somebody was denied.
fn by_hour(table: &mut Table, columns: &[Column<'_>]) {
    let decided = columns.iter().filter_map(|column| column.decided);
    let hours = decided.flat_map(|decided| &decided.by_hour.bins);
    let mut hours: Vec<_> = hours
        .filter(|(_, bin)| bin.denied > 0)
        .map(|(hour, _)| *hour)
        .collect();
    hours.sort_unstable();
    hours.dedup();
    if !hours.is_empty() {
        table.head("denied by hour, UTC");
    }
    for hour in hours {
        let at = time::shown_minute(Micros::new(hour * 3_600_000_000));
        table.row(
            format!("  {at}"),
            cells(columns, |column| column.hour(hour)),
        );
    }
}

/// `147 (7.3 %)`, rounded down.
pub(crate) fn share(part: u64, whole: u64) -> String {
    let per_mille = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{part} ({}.{} %)", per_mille / 10, per_mille % 10)
}
