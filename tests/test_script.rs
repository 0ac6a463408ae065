//! `scripts/test` on machines of all kinds, whose programs are stand-ins that say what they are
//! asked to do.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

/// A PATH with a few of the usual tools, cargo, and nothing else.
struct Machine {
    directory: TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// A program cannot be run while a process has it open for writing, and every process that another
/// thread starts meanwhile has it open for a moment.
static ALONE: Mutex<()> = Mutex::new(());

impl Machine {
    fn new() -> Self {
        let machine = Self {
            directory: tempfile::tempdir().unwrap(),
            _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
        };
        for tool in ["sh", "dirname", "cat", "cp", "env"] {
            let places = ["/bin", "/usr/bin"].map(|place| Path::new(place).join(tool));
            let place = places.iter().find(|place| place.exists());
            symlink(place.expect(tool), machine.path(tool)).unwrap();
        }
        machine.has("id", "echo 0");
        machine.has("cargo", "echo cargo \"$@\"");
        machine
    }

    fn path(&self, program: &str) -> PathBuf {
        self.directory.path().join(program)
    }

    fn has(&self, program: &str, does: &str) {
        fs::write(self.path(program), format!("#!/bin/sh\n{does}\n")).unwrap();
        fs::set_permissions(self.path(program), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A package manager that has one package, which brings one server.
    fn installs(&self, manager: &str, package: &str, server: &str) {
        let server = self.path(server).display().to_string();
        self.has(
            manager,
            &format!(
                "echo {manager} \"$@\"\n\
                 case \"$*\" in *{package}) cp \"$0\" {server};; *) exit 1;; esac"
            ),
        );
    }

    fn run(&self) -> Output {
        Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/test"))
            .args(["--test", "http"])
            .env("PATH", self.directory.path())
            .output()
            .unwrap()
    }
}

const TESTS: &str = "cargo test --all-features --test http\n";

fn printed(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_machine_that_has_a_server_only_runs_the_tests() {
    for server in ["redis-server", "valkey-server"] {
        let machine = Machine::new();
        machine.has(server, "");
        machine.has("apt-get", "echo called");
        let run = machine.run();
        assert!(run.status.success());
        assert_eq!(printed(&run), (TESTS.to_owned(), String::new()));
    }
}

#[test]
fn a_server_is_installed_by_the_package_manager_that_is_there() {
    for (manager, package, server) in [
        // Its `update` fails, as it does where one of several sources is gone.
        ("apt-get", "redis-server", "redis-server"),
        ("dnf", "redis", "redis-server"),
        ("dnf", "valkey", "valkey-server"),
        ("apk", "redis", "redis-server"),
        ("apk", "valkey", "valkey-server"),
        ("brew", "redis", "redis-server"),
    ] {
        let machine = Machine::new();
        machine.installs(manager, package, server);
        let run = machine.run();
        let (stdout, stderr) = printed(&run);
        assert!(run.status.success(), "{stdout}{stderr}");
        assert!(stdout.ends_with(TESTS), "{stdout}");
    }
}

#[test]
fn a_machine_where_none_can_be_installed_is_told_what_to_do() {
    for has_manager in [false, true] {
        let machine = Machine::new();
        if has_manager {
            machine.has("apt-get", "exit 1");
        }
        let run = machine.run();
        let (stdout, stderr) = printed(&run);
        assert!(!run.status.success());
        assert_eq!(stdout, "");
        assert!(stderr.contains("apt-get install redis-server"), "{stderr}");
    }
}

#[test]
fn a_machine_without_rust_is_told_where_it_is() {
    let machine = Machine::new();
    machine.has("redis-server", "");
    fs::remove_file(machine.path("cargo")).unwrap();
    let run = machine.run();
    let (_, stderr) = printed(&run);
    assert!(!run.status.success());
    assert!(stderr.contains("https://rustup.rs"), "{stderr}");
}
