//! A Redis server for one test, on a free port, stopped with the test.

use std::net::TcpListener;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tower_throttle::{RedisStore, RedisStoreBuilder};

/// The programs that can be used; the first one found is.
pub const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

pub struct Server {
    process: Process,
    port: u16,
    password: Option<String>,
    is_cluster: bool,
    directory: TempDir,
}

/// Ends together with its owner, even if its start or the owner's last check of it panics.
pub struct Process(Child);

impl Process {
    pub fn of(child: Child) -> Self {
        Self(child)
    }

    pub fn spawn(command: &mut Command) -> Self {
        Self::of(command.spawn().unwrap())
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// With further command-line options.
    pub fn start_with(options: &[&str]) -> Self {
        Self::start_knowing(|_| options.iter().map(ToString::to_string).collect())
    }

    /// With further options, which may depend on its port.
    pub fn start_knowing(options: impl Fn(u16) -> Vec<String>) -> Self {
        // Another process may take the free port first. Then the server exits, and the next port is
        // tried.
        (0..10)
            .find_map(|_| {
                let port = free_port();
                let options = options(port);
                let options: Vec<_> = options.iter().map(String::as_str).collect();
                Self::try_start_on(port, &options)
            })
            .expect("no redis-server would start on ten free ports")
    }

    /// One that accepts the command DEBUG, which newer servers do only with an option.
    pub fn with_debug() -> Self {
        let plain = Self::start();
        let options = plain.query::<Vec<String>>(("CONFIG", "GET", "enable-debug-command"));
        match options.is_empty() {
            true => plain,
            false => Self::start_with(&["--enable-debug-command", "yes"]),
        }
    }

    fn try_start_on(port: u16, options: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let process = PROGRAMS.iter().find_map(|program| {
            Command::new(program)
                .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
                .args(["--save", "", "--appendonly", "no", "--dir"])
                .arg(directory.path())
                .args(options)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .ok()
        });
        let process = process.unwrap_or_else(|| {
            panic!(
                "this test needs one of {PROGRAMS:?} and found none: run scripts/test, which \
                 installs it, or install the package redis-server or valkey"
            )
        });
        let mut server = Self {
            process: Process(process),
            port,
            password: after(options, "--requirepass"),
            is_cluster: after(options, "--cluster-enabled").is_some(),
            directory,
        };
        server.wait_until_up().then_some(server)
    }

    fn wait_until_up(&mut self) -> bool {
        let give_up = Instant::now() + Duration::from_secs(20);
        while Instant::now() < give_up {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return false;
            }
            match self.is_this() {
                Ok(true) => return true,
                Ok(false) => {
                    // Another server, whose keys must not be inspected.
                    self.kill();
                    return false;
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        false
    }

    /// Whether it is this server that answers on its port. Another test's server may have taken the
    /// port first, and answers before this one has exited.
    fn is_this(&self) -> redis::RedisResult<bool> {
        let (_, directory): (String, String) = self.try_query(("CONFIG", "GET", "dir"))?;
        Ok(Path::new(&directory).file_name() == self.directory.path().file_name())
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn builder(&self) -> RedisStoreBuilder {
        RedisStore::builder(&self.url())
    }

    pub async fn store(&self) -> RedisStore {
        self.builder().connect().await.unwrap()
    }

    /// Asks the server directly: a command, or one with its arguments.
    pub fn query<T: redis::FromRedisValue>(&self, words: impl redis::ToRedisArgs) -> T {
        self.try_query(words).unwrap()
    }

    /// Makes it refuse writes, by lowering its memory limit.
    pub fn set_full(&self, is_full: bool) {
        self.query::<()>(("CONFIG", "SET", "maxmemory", u8::from(is_full)));
    }

    pub fn try_query<T: redis::FromRedisValue>(
        &self,
        words: impl redis::ToRedisArgs,
    ) -> redis::RedisResult<T> {
        redis::Cmd::new().arg(words).query(&mut self.connection()?)
    }

    /// A connection with all rights.
    pub fn connection(&self) -> redis::RedisResult<redis::Connection> {
        let address = redis::ConnectionAddr::Tcp("127.0.0.1".to_owned(), self.port);
        let mut login = redis::RedisConnectionInfo::default();
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        let server = redis::IntoConnectionInfo::into_connection_info(address)?;
        let client = redis::Client::open(server.set_redis_settings(login))?;
        let mut connection = client.get_connection()?;
        if self.is_cluster {
            // So that a replica lists its keys, too.
            redis::cmd("READONLY").query::<()>(&mut connection)?;
        }
        Ok(connection)
    }

    pub fn keys(&self) -> Vec<String> {
        let mut connection = self.connection().unwrap();
        let mut keys = Vec::new();
        let mut cursor = 0_u64;
        loop {
            let (next, page): (u64, Vec<String>) = redis::cmd("SCAN")
                .arg(cursor)
                .arg("COUNT")
                .arg(1_000)
                .query(&mut connection)
                .unwrap();
            keys.extend(page);
            if next == 0 {
                return keys;
            }
            cursor = next;
        }
    }

    /// One section of the server's INFO.
    pub fn info(&self, part: &str) -> String {
        self.try_info(part).unwrap()
    }

    pub fn try_info(&self, part: &str) -> redis::RedisResult<String> {
        self.try_query(("INFO", part))
    }

    /// How many connections it has had so far, including this one.
    pub fn connections(&self) -> usize {
        connections_in(&self.info("stats"))
    }

    /// How often a command was called since the server started.
    pub fn calls(&self, command: &str) -> u64 {
        self.command_stat(command, "calls=")
    }

    /// How often a command was rejected before it began, as by a cluster node that redirects.
    pub fn rejected_calls(&self, command: &str) -> u64 {
        self.command_stat(command, "rejected_calls=")
    }

    fn command_stat(&self, command: &str, name: &str) -> u64 {
        let stats = self.info("commandstats");
        let line = format!("cmdstat_{command}:");
        let mut of_command = stats.lines().filter_map(|stat| stat.strip_prefix(&line));
        of_command
            .find_map(|stat| stat.split(',').find_map(|stat| stat.strip_prefix(name)))
            .map_or(0, |count| count.parse().unwrap())
    }

    /// The keys that would stay for ever.
    fn immortal_keys(&self) -> Vec<String> {
        let expiry = |key: &String| self.query::<i64>(("PTTL", key));
        // -1: no expiry; -2: gone in the meantime.
        self.keys()
            .into_iter()
            .filter(|key| expiry(key) == -1)
            .collect()
    }

    /// Removes the directory that it saves to.
    pub fn remove_directory(&self) {
        std::fs::remove_dir(self.directory.path()).unwrap();
    }

    /// Sends the process a signal: "STOP" makes it hang, "CONT" resume.
    pub fn signal(&self, signal: &str) {
        send_signal(&self.process, signal);
    }

    /// Starts again on the same port, with no data.
    pub fn restart(&mut self) {
        self.kill();
        // The port was free a moment ago. A server that cannot have it back yet exits, and is
        // started again.
        let again = (0..50).find_map(|_| Self::try_start_on(self.port, &[]));
        *self = again.expect("the server would not start again on its port");
    }

    /// Ends the server as a crash does.
    pub fn kill(&mut self) {
        self.process.end();
    }
}

/// Every test against Redis ends with this check: no key without a TTL is left behind.
impl Drop for Server {
    fn drop(&mut self) {
        let running = matches!(self.process.try_wait(), Ok(None));
        let immortal = if running && !std::thread::panicking() {
            self.immortal_keys()
        } else {
            Vec::new()
        };
        self.kill();
        assert!(immortal.is_empty(), "keys without a TTL: {immortal:?}");
    }
}

/// Through the shell, which has the command built in: not every machine has a program of that name.
pub fn send_signal(process: &Child, signal: &str) {
    let sent = Command::new("sh")
        .args(["-c", &format!("kill -{signal} {}", process.id())])
        .status();
    assert!(sent.unwrap().success());
}

/// The number of connections in a server's INFO.
fn connections_in(stats: &str) -> usize {
    let mut lines = stats.lines();
    let made = lines.find_map(|line| line.strip_prefix("total_connections_received:"));
    made.unwrap().parse().unwrap()
}

/// The value of an option.
fn after(options: &[&str], name: &str) -> Option<String> {
    let position = options.iter().position(|option| *option == name)?;
    options.get(position + 1).map(|value| (*value).to_owned())
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
