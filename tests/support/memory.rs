//! The memory of the test's process, and tests that run in a process of their own.

use std::any::type_name_of_val;
use std::process::Command;
use std::{env, fs};

/// Set if a test runs in its own process.
const IS_ALONE: &str = "THROTTLE_TEST_IS_ALONE";

/// Runs a test's work alone, so that the process uses no memory for anything else: in another
/// process of the same program, which runs only this test.
pub fn alone<T>(test: T, work: impl AsyncFnOnce()) {
    if env::var_os(IS_ALONE).is_some() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        return runtime.enable_all().build().unwrap().block_on(work());
    }
    let path = type_name_of_val(&test);
    let name = path.split_once("::").map_or(path, |(_, name)| name);
    let mut process = Command::new(env::current_exe().unwrap());
    let process = process.args(["--exact", name, "--nocapture", "--test-threads", "1"]);
    let output = process.env(IS_ALONE, "yes").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}", output.status);
    // A name that no test has does not fail in the other process.
    assert!(said.contains("1 passed"), "{name}: {said}");
}

/// The bytes that this process has in memory.
pub fn resident() -> u64 {
    let kilobytes = match fs::read_to_string("/proc/self/status") {
        Ok(status) => {
            let mut lines = status.lines();
            let line = lines.find_map(|line| line.strip_prefix("VmRSS:"));
            line.expect("Linux says it").replace("kB", "")
        }
        Err(_) => ask_ps(),
    };
    let kilobytes: u64 = kilobytes.trim().parse().unwrap();
    kilobytes << 10
}

/// On other systems than Linux.
fn ask_ps() -> String {
    let id = std::process::id().to_string();
    let output = Command::new("ps").args(["-o", "rss=", "-p", &id]).output();
    let output = output.expect("this test needs /proc or the program ps: install procps");
    String::from_utf8(output.stdout).unwrap()
}
