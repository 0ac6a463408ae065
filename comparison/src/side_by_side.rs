//! Two builds of this program in turns, so that the figures of both come from one run. The script
//! `side-by-side` makes the other build.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::round::median;
use crate::table::{Row, Table};

/// How often each of them runs; the medians are reported.
const TURNS: usize = 3;

/// Both run with these arguments, which select one measurement.
pub fn run(before: &Path, arguments: &[String]) -> Table {
    let now = env::current_exe().expect("this program");
    let programs = [before, &now];
    let mut tables = [const { Vec::new() }; 2];
    for turn in 0..TURNS {
        for place in 0..programs.len() {
            let next = (turn + place) % programs.len();
            eprintln!("  {}, turn {}", ["before", "now"][next], turn + 1);
            tables[next].push(table_of(programs[next], arguments));
        }
    }
    let [before, now] = tables;
    beside(&before, &now)
}

fn table_of(program: &Path, arguments: &[String]) -> Table {
    let mut command = Command::new(program);
    let run = command.args(arguments).stderr(Stdio::inherit()).output();
    let run = run.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    assert!(
        run.status.success(),
        "{}: {}",
        program.display(),
        run.status
    );
    let text = String::from_utf8(run.stdout).expect("a text");
    Table::read(&text).unwrap_or_else(|| panic!("not a table:\n{text}"))
}

/// One table in place of as many of each program: what was a cell is now one for each program.
fn beside(before: &[Table], now: &[Table]) -> Table {
    let Table {
        title,
        about,
        columns,
        rows,
    } = &now[0];
    let columns = columns.iter();
    let columns = columns.flat_map(|column| ["before", "now"].map(|of| format!("{column}, {of}")));
    let rows = rows.iter().enumerate().map(|(position, row)| {
        let cells = (0..row.cells.len()).flat_map(|cell| {
            [before, now].map(|tables| median_of(tables, position, &row.what, cell))
        });
        Row {
            what: row.what.clone(),
            target: row.target,
            cells: cells.collect(),
        }
    });
    Table {
        title: title.clone(),
        about: about.clone(),
        columns: columns.collect(),
        rows: rows.collect(),
    }
}

/// `None` if one of the tables has nothing there.
fn median_of(tables: &[Table], position: usize, what: &str, cell: usize) -> Option<f64> {
    let cells = tables.iter().map(|table| {
        let row = table.rows.get(position)?;
        assert_eq!(row.what, what, "both builds measure the same");
        row.cells[cell]
    });
    Some(median(cells.collect::<Option<Vec<_>>>()?.into_iter()))
}
