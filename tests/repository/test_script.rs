//! `scripts/test` on machines of all kinds. Their programs are stand-ins that print what they are
//! asked to do.
#![cfg(unix)]

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use support::programs::{Programs, printed};

/// A checkout, and a PATH with a few of the usual tools, cargo, and nothing else.
struct Machine(Programs);

impl Deref for Machine {
    type Target = Programs;

    fn deref(&self) -> &Programs {
        &self.0
    }
}

/// The environment that the script makes, and the Python inside it.
const GRPCIO: &str = "checkout/target/grpcio/bin/python";

impl Machine {
    fn new() -> Self {
        let machine = Self(Programs::none());
        for tool in ["sh", "dirname", "cat", "cp", "mkdir", "env"] {
            let places = ["/bin", "/usr/bin"].map(|place| Path::new(place).join(tool));
            let place = places.iter().find(|place| place.exists());
            symlink(place.expect(tool), machine.path(tool)).unwrap();
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/test");
        fs::create_dir_all(machine.path("checkout/scripts")).unwrap();
        fs::copy(script, machine.path("checkout/scripts/test")).unwrap();
        machine.has("id", "echo 0");
        machine.has("cargo", "echo cargo \"$@\"");
        machine
    }

    /// Everything that the tests need.
    fn with_everything() -> Self {
        let machine = Self::new();
        for program in ["redis-server", "curl", "chromium", "chromedriver", GRPCIO] {
            machine.has(program, "");
        }
        machine
    }

    fn lacks(&self, program: &str) {
        fs::remove_file(self.path(program)).unwrap();
    }

    /// A package manager with one package, which brings one program.
    fn installs(&self, manager: &str, package: &str, program: &str, does: &str) {
        self.has("in-the-package", does);
        let from = self.path("in-the-package").display().to_string();
        let to = self.path(program).display().to_string();
        self.has(
            manager,
            &format!(
                "echo {manager} \"$@\"\n\
                 case \"$*\" in *\" {package}\") cp {from} {to};; *) exit 1;; esac"
            ),
        );
    }

    fn run(&self) -> Output {
        self.command().output().unwrap()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.path("checkout/scripts/test"));
        command.args(["--test", "http"]);
        command.env("PATH", self.directory());
        command
    }
}

const TESTS: &str = "cargo test --all-features --test http\n";

/// A Python that makes environments, into which `pip` installs grpcio.
const PYTHON: &str = r#"
case "$*" in
    *"import ensurepip, venv") ;;
    *"-m venv --clear target/grpcio") mkdir -p target/grpcio/bin; cp "$0" target/grpcio/bin/python ;;
    *"-m pip install --quiet grpcio-status") mkdir target/grpcio/grpc_status ;;
    *"import grpc_status") [ -e target/grpcio/grpc_status ] ;;
    *) exit 1 ;;
esac"#;

/// It has run the tests, whatever it did before.
fn assert_ran(run: &Output) {
    let (stdout, stderr) = printed(run);
    assert!(run.status.success(), "{stdout}{stderr}");
    assert!(stdout.ends_with(TESTS), "{stdout}");
}

/// It has run nothing, and says what to do.
fn assert_advised(run: &Output, advice: &str) {
    let (stdout, stderr) = printed(run);
    assert!(!run.status.success());
    assert!(!stdout.contains(TESTS), "{stdout}");
    assert!(stderr.contains(advice), "{stderr}");
}

#[test]
fn a_machine_that_has_everything_only_runs_the_tests() {
    for server in ["redis-server", "valkey-server"] {
        let machine = Machine::with_everything();
        machine.lacks("redis-server");
        machine.has(server, "");
        machine.has("apt-get", "echo called");
        machine.has("python3", "echo called");
        let run = machine.run();
        assert!(run.status.success());
        assert_eq!(printed(&run), (TESTS.to_owned(), String::new()));
    }
}

#[test]
fn a_server_is_installed_by_the_package_manager_that_is_there() {
    for (manager, package) in [
        // Its `update` fails, as when one of several sources is gone.
        ("apt-get", "redis"),
        ("apt-get", "valkey"),
        ("dnf", "redis"),
        ("dnf", "valkey"),
        ("apk", "redis"),
        ("apk", "valkey"),
        ("brew", "redis"),
    ] {
        let machine = Machine::with_everything();
        machine.lacks("redis-server");
        machine.installs(manager, package, &format!("{package}-server"), "");
        assert_ran(&machine.run());
    }
}

#[test]
fn without_an_installable_server_the_script_says_what_to_do() {
    for has_manager in [false, true] {
        let machine = Machine::with_everything();
        machine.lacks("redis-server");
        if has_manager {
            machine.has("apt-get", "exit 1");
        }
        assert_advised(&machine.run(), "apt-get install redis-server");
    }
}

#[test]
fn curl_is_installed_or_asked_for() {
    let machine = Machine::with_everything();
    machine.lacks("curl");
    assert_advised(&machine.run(), "apt-get install curl");
    machine.installs("apt-get", "curl", "curl", "");
    assert_ran(&machine.run());
}

#[test]
fn a_browser_and_its_driver_go_by_several_names() {
    for (browser, driver) in [
        ("chromium-browser", "chromedriver"),
        ("google-chrome", "chromedriver"),
        ("google-chrome-stable", "chromium.chromedriver"),
    ] {
        let machine = Machine::with_everything();
        machine.lacks("chromium");
        machine.lacks("chromedriver");
        machine.has(browser, "");
        machine.has(driver, "");
        let run = machine.run();
        assert_eq!(printed(&run), (TESTS.to_owned(), String::new()));
    }
}

#[test]
fn missing_parts_of_the_browser_are_installed() {
    for (manager, package, program) in [
        ("apt-get", "chromium", "chromium"),
        ("apt-get", "chromium-driver", "chromedriver"),
        ("apk", "chromium-chromedriver", "chromedriver"),
        ("dnf", "chromedriver", "chromedriver"),
    ] {
        let machine = Machine::with_everything();
        machine.lacks(program);
        machine.installs(manager, package, program, "");
        assert_ran(&machine.run());
    }
}

#[test]
fn without_an_installable_browser_the_script_says_what_to_do() {
    for missing in ["chromium", "chromedriver"] {
        let machine = Machine::with_everything();
        machine.lacks(missing);
        assert_advised(&machine.run(), "apt-get install chromium chromium-driver");
        machine.has("apt-get", "exit 1");
        assert_advised(&machine.run(), "apt-get install chromium chromium-driver");
    }
}

#[test]
fn grpcio_is_installed_into_an_environment_of_its_own_once() {
    let machine = Machine::with_everything();
    machine.lacks(GRPCIO);
    machine.has("python3", PYTHON);
    machine.has("apt-get", "exit 1");
    assert_ran(&machine.run());
    let again = machine.run();
    assert_eq!(printed(&again), (TESTS.to_owned(), String::new()));
}

#[test]
fn python_is_installed_by_the_package_manager_that_is_there() {
    // Debian's lacks a module, which another package brings.
    let incomplete = "exit 1";
    for (manager, package, python) in [
        ("apt-get", "python3-venv", None),
        ("apt-get", "python3-venv", Some(incomplete)),
        ("dnf", "python3", None),
        ("apk", "python3", None),
        ("brew", "python3", None),
    ] {
        let machine = Machine::with_everything();
        machine.lacks(GRPCIO);
        if let Some(python) = python {
            machine.has("python3", python);
        }
        machine.installs(manager, package, "python3", PYTHON);
        assert_ran(&machine.run());
    }
}

#[test]
fn an_environment_that_is_broken_is_made_anew() {
    let machine = Machine::with_everything();
    machine.has(GRPCIO, "exit 1");
    machine.has("python3", PYTHON);
    assert_ran(&machine.run());
}

#[test]
fn without_installable_grpcio_the_script_says_what_to_do() {
    let without_packages = PYTHON.replace("mkdir target/grpcio/grpc_status", "exit 1");
    for python in [None, Some("exit 1"), Some(&without_packages)] {
        let machine = Machine::with_everything();
        machine.lacks(GRPCIO);
        if let Some(python) = python {
            machine.has("python3", python);
        }
        assert_advised(&machine.run(), "-m pip install grpcio-status");
    }
}

#[test]
fn without_rust_the_script_says_where_to_get_it() {
    let machine = Machine::with_everything();
    machine.lacks("cargo");
    assert_advised(&machine.run(), "https://rustup.rs");
}

/// Registries may lie behind a proxy; a client that is sent there would not find the servers of the
/// tests.
#[test]
fn the_servers_of_the_tests_are_reached_through_no_proxy() {
    let machine = Machine::with_everything();
    machine.has("cargo", "echo \"$no_proxy $NO_PROXY\"");
    let ours = "127.0.0.1,::1,localhost";
    for (variable, given, expected) in [
        ("HOME", "/", ours.to_owned()),
        ("no_proxy", "intranet", format!("{ours},intranet")),
        ("NO_PROXY", "intranet", format!("{ours},intranet")),
    ] {
        let mut command = machine.command();
        command.env_remove("no_proxy").env_remove("NO_PROXY");
        let run = command.env(variable, given).output().unwrap();
        let (stdout, _) = printed(&run);
        assert_eq!(stdout, format!("{expected} {expected}\n"), "{variable}");
    }
}

#[test]
fn two_tests_run_at_a_time_for_each_processor_by_default() {
    let machine = Machine::with_everything();
    machine.has("cargo", "echo \"$RUST_TEST_THREADS\"");
    let threads = |change: &dyn Fn(&mut Command)| {
        let mut command = machine.command();
        change(command.env_remove("RUST_TEST_THREADS"));
        printed(&command.output().unwrap()).0
    };
    // The number is unknown here.
    assert_eq!(threads(&|_| ()), "2\n");
    assert_eq!(
        threads(&|command| _ = command.env("RUST_TEST_THREADS", "7")),
        "7\n"
    );
    machine.has("getconf", "[ \"$1\" = _NPROCESSORS_ONLN ] && echo 12");
    assert_eq!(threads(&|_| ()), "24\n");
}
