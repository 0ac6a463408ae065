//! Where lines come from, and those that cannot be read.

use std::io::Write;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{ONE, common, file, printed, program, refused, row, run};

fn log(from: u32) -> String {
    let lines = (from..from + 10).map(|secs| common(secs, "203.0.113.9", "GET /", 200));
    lines.collect()
}

fn gz(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_files_and_standard_input_are_the_same_log() {
    let (first, second) = (log(0), log(10));
    let whole = format!("{first}{second}");
    let expected = printed(ONE, &[], &whole);
    assert_eq!(row(&expected, "client", "requests"), "20");
    let heads = |text: &str| text.lines().filter(|line| !line.contains("tmp")).count();
    // Rotated logs that were joined.
    let parts = [gz(&first), gz(&second)].concat();
    let (plain, compressed) = (file(&whole), file(&parts));
    let (first, second) = (file(gz(&first)), file(&second));
    let path = |file: &tempfile::NamedTempFile| file.path().to_str().unwrap().to_owned();
    for (logs, input) in [
        (vec![path(&plain)], &b""[..]),
        (vec![path(&compressed)], b""),
        (vec![path(&first), path(&second)], b""),
        (vec!["-".to_owned()], whole.as_bytes()),
        (vec![], &parts),
        (vec![path(&first), "-".to_owned()], log(10).as_bytes()),
    ] {
        let arguments: Vec<_> = logs.iter().map(String::as_str).collect();
        let output = run(ONE, &arguments, input);
        assert!(output.status.success(), "{output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        // All but the name of the limits' file.
        assert_eq!(after_file(&printed), after_file(&expected), "{logs:?}");
        assert_eq!(heads(&printed), heads(&expected));
    }
}

fn after_file(printed: &str) -> (&str, &str) {
    let (log, rest) = printed.split_once("\n\n").unwrap();
    (log, rest.split_once(": ").unwrap().1)
}

#[test]
fn lines_that_cannot_be_read_are_counted_and_told() {
    let good = common(0, "203.0.113.9", "GET /", 200);
    let bad: [(&[u8], &str); 12] = [
        (b"hello", "is no line of a log"),
        (
            b"localhost - - [02/Mar/2026:09:00:00 +0000] \"GET / HTTP/1.1\" 200 5",
            "begins with no address of a client",
        ),
        (
            b"203.0.113.9 - - [yesterday] \"GET / HTTP/1.1\" 200 5",
            "has no time such as [02/Mar/2026:09:00:03 +0000]",
        ),
        (
            b"203.0.113.9 - - [02/Mar/2026:09:00:00 +0000] \"-\" 408 0",
            "has no request such as \"GET / HTTP/1.1\"",
        ),
        (
            b"203.0.113.9 - - [02/Mar/2026:09:00:00 +0000] \"\\x16\\x03\" 400 0",
            "has no request such as \"GET / HTTP/1.1\"",
        ),
        (
            b"203.0.113.9 - - [02/Mar/2026:09:00:00 +0000] \"GET / HTTP/1.1\" x 0",
            "has no status after the request",
        ),
        (
            b"203.0.113.9 - - [02/Mar/2026:09:00:00 +0000] \"GET / HTTP/1.1",
            "has no request such as \"GET / HTTP/1.1\"",
        ),
        (b"\xff\xfe", "is not UTF-8"),
        (b"{\"time\":", "is no JSON: "),
        (
            b"{}",
            "has no field \"time\", name it by --field time=<name>",
        ),
        (b"{\"time\":\"soon\"}", "has no time in its field \"time\""),
        (
            b"{\"time\":1,\"remote_addr\":\"-\"}",
            "has no field \"remote_addr\", name it by --field address=<name>",
        ),
    ];
    for (line, why) in bad {
        let log = [good.as_bytes(), b"\n", line, b"\n", good.as_bytes()].concat();
        let output = run(ONE, &[], &log);
        assert!(output.status.success(), "{output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        // The line between them is empty, which is none.
        let told = format!("\nnot read: 1 of 3 lines\n  standard input:3 {why}");
        assert!(printed.contains(&told), "{told}: {printed}");
        assert_eq!(row(&printed, "client", "requests"), "2");
    }
}

#[test]
fn of_many_unreadable_lines_the_first_are_told() {
    let printed = printed(ONE, &[], &"hello\n".repeat(100));
    assert!(
        printed.starts_with("no requests\nnot read: 100 of 100 lines\n"),
        "{printed}"
    );
    assert!(printed.contains("standard input:5 "), "{printed}");
    assert!(!printed.contains("standard input:6 "), "{printed}");
}

#[test]
fn a_line_without_an_end_takes_no_memory() {
    let good = common(0, "203.0.113.9", "GET /", 200);
    let log = [b"x".repeat(5 << 20), b"\n".to_vec(), good.into_bytes()].concat();
    let printed = String::from_utf8(run(ONE, &[], &log).stdout).unwrap();
    assert!(
        printed.contains("standard input:1 is longer than any line of a log"),
        "{printed}"
    );
    assert_eq!(row(&printed, "client", "requests"), "1");
}

#[test]
fn a_file_that_breaks_off_is_told_and_the_next_is_read() {
    let whole = gz(&log(0).repeat(1_000));
    let broken = file(&whole[..whole.len() / 2]);
    let next = file(log(10));
    let (broken, next) = (
        broken.path().to_str().unwrap(),
        next.path().to_str().unwrap(),
    );
    let printed = printed(ONE, &[broken, next], "");
    assert!(printed.contains(&format!("\n  {broken}:")), "{printed}");
    assert!(printed.contains(" and what follows: "), "{printed}");
    let requests: u32 = row(&printed, "client", "requests").parse().unwrap();
    assert!(requests > 10, "{printed}");
    assert!(refused(ONE, &["/nowhere.log"]).contains("/nowhere.log: "));
}

#[test]
fn lines_a_little_out_of_order_are_sorted() {
    let of = |secs| common(secs, "203.0.113.9", "GET /", 200);
    let (sorted, mixed) = ([0, 30, 61, 90].map(of), [61, 0, 90, 30].map(of));
    let (sorted, mixed) = (
        printed(ONE, &[], &sorted.concat()),
        printed(ONE, &[], &mixed.concat()),
    );
    assert_eq!(after_file(&sorted), after_file(&mixed));
    assert_eq!(row(&mixed, "client", "denied"), "2 (50.0 %)");
    assert!(!mixed.contains("out of order"), "{mixed}");
}

#[test]
fn lines_far_out_of_order_are_told() {
    let mut log: String = (0..10_050)
        .map(|_| common(60, "203.0.113.1", "GET /", 200))
        .collect();
    log += &common(0, "203.0.113.9", "GET /", 200);
    log += &common(60, "203.0.113.9", "GET /", 200);
    let printed = printed(ONE, &[], &log);
    assert!(
        printed.contains(
            "\ntoo far out of order to be sorted, and counted at the time of the line before: 1\n"
        ),
        "{printed}"
    );
    // It counts at the time of those before it.
    assert_eq!(row(&printed, "client", "203.0.113.9"), "1");
}

/// A terminal has a progress bar; what is piped, as in every other test here, has none.
#[test]
#[cfg(target_os = "linux")]
fn a_terminal_has_a_progress_bar() {
    let (limits, log) = (file(ONE), file(log(0).repeat(1_000)));
    let [program, limits, log] =
        [program().as_path(), limits.path(), log.path()].map(|path| path.to_str().unwrap());
    let command = format!("'{program}' --config '{limits}' '{log}' >/dev/null");
    let output = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .output();
    let output = output.expect("this test needs the program script: install bsdutils");
    let drawn = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && drawn.contains(" KiB"),
        "{drawn:?}"
    );
}
