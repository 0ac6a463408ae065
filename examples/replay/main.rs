//! What would these limits have done? Sends the requests of an access log, at the times of the log,
//! through the layer that serves the limits of a file:
//!
//! ```sh
//! cargo run --release --features config --example replay -- --config limits.toml access.log
//! ```
//!
//! `docs/replay.md` has the options and the formats.

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use tower_throttle::Micros;

use self::arguments::Arguments;
use self::fields::Fields;
use self::input::{Input, Next};
use self::limits::Limits;
use self::line::Line;
use self::order::InOrder;
use self::unread::Unread;

mod arguments;
mod column;
mod combined;
mod fields;
mod input;
mod json;
mod limits;
mod line;
mod order;
mod origin;
mod picture;
mod report;
mod series;
#[path = "../compare/svg.rs"]
mod svg;
mod table;
mod tally;
mod time;
mod unread;

/// What is said of the log itself.
#[derive(Default)]
pub(crate) struct Log {
    lines: u64,
    unread: Unread,
    /// Lines that came too late to be put into the order of their times.
    late: u64,
    span: Option<(Micros, Micros)>,
    /// Whether a time is more exact than a second.
    has_fractions: bool,
}

// Delayed requests wait for a time that is paused, which passes at once.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> ExitCode {
    match replay().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("replay: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn replay() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::read(env::args_os().skip(1))?;
    let configs = arguments.configs.iter();
    let mut limits = configs
        .map(|file| Limits::open(file))
        .collect::<Result<Vec<_>, _>>()?;
    let denied = arguments.denied.as_deref().map(create).transpose()?;
    let mut denied = denied.map(BufWriter::new);

    let progress = input::progress(&arguments.logs);
    let mut log = Log::default();
    let mut in_order = InOrder::default();
    for file in &arguments.logs {
        let mut input = Input::open(file, &progress)?;
        while let Some(read) = next(&mut input, &arguments.fields, &mut log) {
            if let Some(line) = in_order.put(read) {
                send(&line, &mut limits, &mut log, denied.as_mut()).await?;
            }
        }
    }
    while let Some(line) = in_order.next() {
        send(&line, &mut limits, &mut log, denied.as_mut()).await?;
    }
    for each in &mut limits {
        each.finish_until(Micros::new(u64::MAX)).await;
    }
    log.late = in_order.late;
    progress.finish_and_clear();

    if let Some(mut denied) = denied {
        denied.flush()?;
    }
    if let Some(file) = &arguments.svg {
        create(file)?.write_all(picture::draw(&limits).as_bytes())?;
    }
    io::stdout().write_all(report::written(&log, &limits).as_bytes())?;
    Ok(())
}

/// The next line that can be read. The others are counted.
fn next(input: &mut Input, fields: &Fields, log: &mut Log) -> Option<Line> {
    loop {
        let line = match input.next() {
            Ok(Next::End) => return None,
            Ok(Next::Line(text)) if text.trim_ascii().is_empty() => continue,
            Ok(Next::Line(text)) => Line::read(text, fields),
            Ok(Next::TooLong) => Err("is longer than any line of a log".to_owned()),
            Err(error) => {
                log.unread.add(input, &format!("and what follows: {error}"));
                return None;
            }
        };
        log.lines += 1;
        match line {
            Ok(line) => return Some(line),
            Err(why) => log.unread.add(input, &why),
        }
    }
}

async fn send(
    line: &Line,
    limits: &mut [Limits],
    log: &mut Log,
    denied: Option<&mut BufWriter<File>>,
) -> io::Result<()> {
    let (first, _) = log.span.unwrap_or((line.at, line.at));
    log.span = Some((first, line.at));
    log.has_fractions |= !line.at.get().is_multiple_of(1_000_000);
    let mut is_denied = Vec::with_capacity(limits.len());
    for each in limits {
        is_denied.push(each.send(line).await);
    }
    match denied {
        Some(file) if is_denied.first() == Some(&true) => {
            file.write_all(&line.text)?;
            file.write_all(b"\n")
        }
        _ => Ok(()),
    }
}

fn create(file: &Path) -> Result<File, String> {
    File::create(file).map_err(|error| format!("{}: {error}", file.display()))
}
