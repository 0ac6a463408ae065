//! The example `replay` as a program: what it reads, what it prints, and that the layer itself denies
//! the same requests.
#![cfg(all(unix, feature = "config"))]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;

use tempfile::NamedTempFile;

mod formats;
mod layer;
mod logs;
mod memory;
mod picture;
mod report;

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| support::example::program("replay"))
}

/// A file of the example's own folder.
fn committed(name: &str) -> PathBuf {
    Path::new(support::ROOT).join("examples/replay").join(name)
}

fn file(content: impl AsRef<[u8]>) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    fs::write(file.path(), content).unwrap();
    file
}

/// Runs it over the limits of this text, with these arguments and this standard input.
fn run(limits: &str, arguments: &[&str], input: &[u8]) -> Output {
    let limits = file(limits);
    let mut process = Command::new(program())
        .arg("--config")
        .arg(limits.path())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = process.stdin.take().unwrap();
    thread::scope(|scope| {
        // A program that has refused its arguments reads nothing.
        scope.spawn(move || stdin.write_all(input));
        process.wait_with_output().unwrap()
    })
}

/// What it prints about this log.
fn printed(limits: &str, arguments: &[&str], log: &str) -> String {
    let output = run(limits, arguments, log.as_bytes());
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Its message when it gives up.
fn refused(limits: &str, arguments: &[&str]) -> String {
    let output = run(limits, arguments, b"");
    assert!(!output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The line with this label below a policy, without the label.
fn row<'p>(printed: &'p str, policy: &str, label: &str) -> &'p str {
    let head = format!("\n{policy}: ");
    let (_, section) = printed
        .split_once(&head)
        .unwrap_or_else(|| panic!("{policy}: {printed}"));
    let section = section.split("\n\n").next().unwrap();
    let mut rows = section.lines().map(str::trim);
    let cells = rows.find_map(|row| row.strip_prefix(label)?.strip_prefix("  "));
    cells
        .unwrap_or_else(|| panic!("no {label:?} of {policy}: {printed}"))
        .trim()
}

/// A line of the common format: this many seconds after nine o'clock.
fn common(secs: u32, address: &str, request: &str, status: u16) -> String {
    let (hour, min, sec) = (9 + secs / 3600, secs / 60 % 60, secs % 60);
    format!(
        "{address} - - [02/Mar/2026:{hour:02}:{min:02}:{sec:02} +0000] \"{request} HTTP/1.1\" {status} 12\n"
    )
}

/// One request a minute for each client.
const ONE: &str = r#"
store = "memory"

[[policy]]
name = "client"
algorithm = "fixed-window"
limit = "1/min"
key = "peer"
"#;
