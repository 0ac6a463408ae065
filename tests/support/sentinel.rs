//! A Sentinel for one test, over a master and a replica.

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::redis::{PROGRAMS, Process, Server, free_port};

/// The name by which the Sentinel knows the master.
pub const NAME: &str = "main";

pub struct Watched {
    pub master: Server,
    pub replica: Server,
    sentinel: Sentinel,
}

/// A Sentinel that knows of no other.
pub struct Sentinel {
    port: u16,
    password: Option<String>,
    _process: Process,
    _directory: TempDir,
}

impl Watched {
    /// Ready to fail over. With options for the servers, and configuration lines for the Sentinel.
    pub fn start_with(options: &[&str], lines: &str) -> Self {
        let quick = [options, &["--repl-diskless-sync-delay", "0"]].concat();
        let master = Server::start_with(&quick);
        let port = master.port().to_string();
        let replica =
            Server::start_with(&[&quick, &["--replicaof", "127.0.0.1", &port][..]].concat());
        until("the replica follows", || {
            replica
                .info("replication")
                .contains("master_link_status:up")
        });
        let watched = Self {
            sentinel: Sentinel::watching(master.port(), lines),
            master,
            replica,
        };
        until("the sentinel knows the replica", || {
            watched
                .sentinel
                .info("sentinel")
                .is_ok_and(|info| info.contains("slaves=1"))
        });
        watched
    }

    pub fn url(&self) -> String {
        format!("redis-sentinel://127.0.0.1:{}/{NAME}", self.sentinel.port)
    }

    pub fn sentinel_port(&self) -> u16 {
        self.sentinel.port
    }

    /// Has the Sentinel promote the replica, and demote the master up to ten seconds later.
    pub fn fail_over(&self) {
        let mut failover = redis::cmd("SENTINEL");
        failover.arg("FAILOVER").arg(NAME);
        let mut sentinel = self.sentinel.connection().unwrap();
        until("the replica is fit to be promoted", || {
            failover.query::<()>(&mut sentinel).is_ok()
        });
    }

    /// From now on nobody can demote the master.
    pub fn keep_master(&self) {
        let rights = ("ACL", "SETUSER", "default", "-slaveof", "-replicaof");
        self.master.query::<()>(rights);
    }
}

impl Sentinel {
    /// A Sentinel over this master, with further configuration lines.
    pub fn watching(master: u16, lines: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = free_port();
        let file = directory.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor {NAME} 127.0.0.1 {master} 1\n\
             sentinel down-after-milliseconds {NAME} 300\nsentinel failover-timeout {NAME} 3000\n{lines}\n"
        );
        std::fs::write(&file, text).unwrap();
        let process = PROGRAMS.iter().find_map(|program| {
            Command::new(program)
                .arg(&file)
                .arg("--sentinel")
                .arg("--dir")
                .arg(directory.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .ok()
        });
        let process = process.expect("the program that runs the servers runs sentinels too");
        let sentinel = Self {
            port,
            password: lines
                .split_once("requirepass ")
                .map(|(_, word)| word.to_owned()),
            _process: Process::of(process),
            _directory: directory,
        };
        until("the sentinel is there", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        sentinel
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    fn info(&self, part: &str) -> redis::RedisResult<String> {
        redis::cmd("INFO").arg(part).query(&mut self.connection()?)
    }

    fn connection(&self) -> redis::RedisResult<redis::Connection> {
        let password = self.password.as_ref().map(|word| format!(":{word}@"));
        let login = password.unwrap_or_default();
        let client = redis::Client::open(format!("redis://{login}127.0.0.1:{}", self.port))?;
        client.get_connection()
    }
}

/// A Sentinel promotes nobody for this long after its timers were 2 s late, as on a busy machine
/// ("TILT mode").
const TILT: Duration = Duration::from_secs(30);

/// Waits for something that takes a few seconds at most, or longer while a Sentinel is in that
/// mode.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < 3 * TILT, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}
