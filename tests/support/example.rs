//! Runs the examples as programs.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

macro_rules! features {
    ($($name:literal)*) => { [$(($name, cfg!(feature = $name))),*] };
}

/// All features of the crate, and whether this test was built with them.
pub const FEATURES: [(&str, bool); 15] = features![
    "memory" "redis" "redis-tls" "redis-tls-insecure" "deadpool" "deadpool-sentinel" "axum"
    "operator" "tonic" "tonic-tls" "metrics" "tracing" "calendar" "config" "test-util"
];

/// The program of an example, built like this test, so that nothing is built twice.
pub fn program(name: &str) -> PathBuf {
    let features = FEATURES.iter().filter(|(_, is_on)| *is_on);
    let features: Vec<_> = features.map(|(feature, _)| *feature).collect();
    let mut build = Command::new(env!("CARGO"));
    // The variables that cargo sets for a test's package. Some build scripts rerun if they differ,
    // and they were not set when the test was built.
    for (variable, _) in env::vars_os() {
        let name = variable.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            build.env_remove(variable);
        }
    }
    let built = build
        .current_dir(super::ROOT)
        .args(["build", "--example", name, "--message-format", "json"])
        .args(["--features", &features.join(",")])
        .args((!cfg!(debug_assertions)).then_some("--release"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(built.status.success(), "the example does not build");
    let messages = String::from_utf8(built.stdout).unwrap();
    let mut messages = messages
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|message| message["target"]["name"] == name);
    let program = messages.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    program.expect("cargo names the program that it built")
}

/// How to run an example that serves: over this Redis, or in its own memory, on a port that it
/// picks. Its output is captured.
pub fn serving(program: &Path, redis: Option<&str>) -> Command {
    let mut command = Command::new(program);
    command.env("PORT", "0").env_remove("REDIS_URL");
    command.envs(redis.map(|url| ("REDIS_URL", url)));
    command.stdout(Stdio::piped());
    command
}

/// The address it listens on, from its first line of output, and the rest of its output.
pub fn listening(process: &mut Child) -> (String, BufReader<ChildStdout>) {
    let mut printed = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    let address = line.strip_prefix("listening on ");
    let address = address.and_then(|rest| rest.trim_end().strip_suffix(", try"));
    let address = address.expect("the first line tells the address");
    (format!("http://{address}"), printed)
}
