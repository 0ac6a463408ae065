//! The example `memory_per_key` measures every algorithm on a real server, and the documented table
//! is one of its tables.
#![cfg(all(feature = "memory", feature = "redis"))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use support::redis::{Server, free_port};

const ALGORITHMS: [&str; 8] = [
    "gcra",
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_counter",
    "sliding_window",
    "sliding_log",
    "concurrency",
];

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| support::example::program("memory_per_key"))
}

fn run(url: &str, keys: &str) -> Output {
    let mut command = Command::new(program());
    command.env("REDIS_URL", url).arg(keys).output().unwrap()
}

/// As the server names itself.
fn version(server: &Server) -> String {
    let info: String = server.query("INFO");
    let named = |name: &str, field: &str| {
        let mut lines = info.lines();
        let version = lines.find_map(|line| line.strip_prefix(field))?;
        Some(format!("{name} {version}"))
    };
    let valkey = named("Valkey", "valkey_version:");
    valkey.or_else(|| named("Redis", "redis_version:")).unwrap()
}

/// Its message when it gives up.
fn refusal(url: &str, keys: &str) -> String {
    let output = run(url, keys);
    assert!(!output.status.success());
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A row of the table: the algorithm, how it was used, and the bytes.
struct Row {
    algorithm: String,
    used: String,
    bytes: [u64; 3],
}

impl Row {
    fn name(&self) -> (&str, &str) {
        (&self.algorithm, &self.used)
    }
}

fn rows(text: &str) -> Vec<Row> {
    let lines = text.lines().skip_while(|line| !line.starts_with('|'));
    let table = lines.take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [algorithm, used, bytes @ ..] = &cells[..] else {
            panic!("{line}");
        };
        let bytes: Vec<u64> = bytes.iter().map(|cell| cell.parse().unwrap()).collect();
        Row {
            algorithm: (*algorithm).to_owned(),
            used: (*used).to_owned(),
            bytes: bytes.try_into().unwrap(),
        }
    };
    // After the header.
    table.skip(2).map(row).collect()
}

#[test]
fn the_example_measures_every_algorithm_and_leaves_nothing() {
    let server = Server::start();
    let output = run(&server.url(), "20");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(server.keys(), Vec::<String>::new());
    let printed = String::from_utf8(output.stdout).unwrap();
    let heading = format!("20 keys, {}, ", version(&server));
    assert!(printed.starts_with(&heading), "{heading}: {printed}");

    let measured = rows(&printed);
    for algorithm in ALGORITHMS {
        assert!(
            measured.iter().any(|row| row.algorithm == algorithm),
            "{algorithm}"
        );
    }
    for row in &measured {
        let [usage, all, in_process] = row.bytes;
        // A name, an expiry and a place in a table never take less.
        assert!(usage >= 64, "{:?}: {usage}", row.name());
        // What the server reports of a large sorted set is an estimate, and may be above it.
        assert!(all > usage - usage / 100, "{:?}: {all} {usage}", row.name());
        assert!(in_process >= 64, "{:?}: {in_process}", row.name());
    }
    for pair in measured.windows(2) {
        let (less, more) = (&pair[0], &pair[1]);
        // A sliding window stores slices, however many permits are in them.
        if less.algorithm == more.algorithm && less.algorithm != "sliding_window" {
            let grown = less.bytes.iter().zip(more.bytes);
            assert!(
                grown.clone().all(|(less, more)| *less < more),
                "{:?}",
                more.name()
            );
        }
    }

    let documented = Path::new(support::ROOT).join("docs/memory.md");
    let documented = fs::read_to_string(documented).unwrap();
    let measured: Vec<_> = measured.iter().map(Row::name).collect();
    let documented = rows(&documented);
    let documented: Vec<_> = documented.iter().map(Row::name).collect();
    assert_eq!(documented, measured);
}

#[test]
fn a_server_that_holds_keys_is_refused() {
    let server = Server::start();
    server.query::<()>(("SET", "theirs", "value", "EX", 600));
    let refusal = refusal(&server.url(), "1");
    assert!(
        refusal.contains("needs a server without keys, this one has 1"),
        "{refusal}"
    );
    assert_eq!(server.keys(), ["theirs"]);
}

#[test]
fn without_a_server_the_example_says_what_it_needs() {
    let url = format!("redis://:secret@127.0.0.1:{}", free_port());
    let refusal = refusal(&url, "1");
    for part in [
        "a Redis or Valkey server at REDIS_URL",
        "redis://127.0.0.1:6379",
    ] {
        assert!(refusal.contains(part), "{refusal}");
    }
    assert!(!refusal.contains("secret"), "{refusal}");
}

#[test]
fn a_number_of_keys_that_is_none_is_refused() {
    for keys in ["0", "many", "1000001"] {
        let refusal = refusal("redis://127.0.0.1:1", keys);
        let expected = format!("keys: got {keys:?}, expected 1 to 1000000");
        assert!(refusal.contains(&expected), "{refusal}");
    }
}
