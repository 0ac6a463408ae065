//! Memory is bounded by the number of subjects.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufWriter, Write};
use std::process::{ChildStdin, Command, Stdio};

use support::redis::Process;

use super::{ONE, common, file, program};

/// The most that the process had in memory so far, in kilobytes.
fn peak(process: &Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap().replace("kB", "").trim().parse().unwrap()
}

/// As many lines of a hundred clients, who are denied most of the time.
fn write(log: &mut BufWriter<ChildStdin>, from: u32, lines: u32) {
    for number in from..from + lines {
        let address = format!("203.0.113.{}", number % 100);
        let line = common(number / 100, &address, "GET /", 200);
        log.write_all(line.as_bytes()).unwrap();
    }
    log.flush().unwrap();
}

#[test]
fn more_lines_of_the_same_subjects_take_no_more_memory() {
    let limits = file(ONE);
    let mut process = Process::spawn(
        Command::new(program())
            .arg("--config")
            .arg(limits.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null()),
    );
    let mut log = BufWriter::new(process.stdin.take().unwrap());
    // What is kept to sort lines is full, and pipes hold far less than this.
    write(&mut log, 0, 40_000);
    let before = peak(&process);
    write(&mut log, 40_000, 200_000);
    let grown = peak(&process) - before;
    // The lines themselves are 15 MB.
    assert!(grown < 3_000, "{grown} kB more than {before} kB");
    drop(log);
    assert!(process.wait().unwrap().success());
}
