//! The examples as programs.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The program of an example, built like this test, so that nothing is built twice.
pub fn program(name: &str, needs: &[&str]) -> PathBuf {
    let mut features = needs.to_vec();
    for (feature, is_on) in [
        ("redis-tls", cfg!(feature = "redis-tls")),
        ("deadpool-sentinel", cfg!(feature = "deadpool-sentinel")),
        ("axum", cfg!(feature = "axum")),
        ("tonic", cfg!(feature = "tonic")),
        ("tonic-tls", cfg!(feature = "tonic-tls")),
        ("config", cfg!(feature = "config")),
        ("metrics", cfg!(feature = "metrics")),
        ("tracing", cfg!(feature = "tracing")),
    ] {
        if is_on {
            features.push(feature);
        }
    }
    let built = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
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
