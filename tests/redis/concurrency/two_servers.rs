//! The example `concurrency`, twice, over one Redis: clients that are slow, leave, and break; then
//! one of the two is killed.
//!
//! Both write to one pipe when a request begins and ends, so the order of their output is that of
//! events: the place is taken before the first line, and given back after the second.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use futures_util::future::join_all;
use http::Version;
use reqwest::{Client, Response};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::sleep;
use tower_throttle::SECOND;

use super::places::{in_time, until};
use super::stage::client;
use support::example;
use support::redis::{Process, Server};

const LIMIT: usize = 4;
/// A busy machine may be late to renew a lease.
const LIFE: Duration = Duration::from_secs(10);
const CLIENTS: usize = 16;

struct Running {
    process: Process,
    address: String,
}

impl Running {
    fn start(program: &Path, redis: &Server, recorder: &Recorder) -> Self {
        let mut command = Command::new(program);
        command
            .env("REDIS_URL", redis.url())
            .env("LIMIT", LIMIT.to_string())
            .env("LEASE_MS", LIFE.as_millis().to_string())
            .env("PORT", "0")
            .stdin(Stdio::null())
            .stdout(recorder.pipe.try_clone().unwrap());
        Self {
            process: Process::spawn(&mut command),
            address: recorder.addresses.recv_timeout(60 * SECOND).unwrap(),
        }
    }

    /// By SIGKILL, which nobody can prevent.
    fn kill(&mut self, recorder: &Recorder) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        // After everything it has printed, and before others use its places.
        writeln!(&recorder.pipe, "{} is killed", self.process.id()).unwrap();
    }

    fn url(&self, lines: u64) -> String {
        format!("http://{}/slow/{lines}", self.address)
    }

    async fn status(&self) -> u16 {
        let response = client(Version::HTTP_11).get(self.url(1)).send().await;
        response.unwrap().status().as_u16()
    }

    /// A request that was let in, as soon as there is a place.
    async fn open(&self, client: &Client, lines: u64) -> Response {
        loop {
            let response = client.get(self.url(lines)).send().await.unwrap();
            match response.status().as_u16() {
                200 => return response,
                // On a busy machine the store may be late.
                429 | 503 => sleep(Duration::from_millis(5)).await,
                other => panic!("status {other}"),
            }
        }
    }
}

/// What the servers print.
struct Recorder {
    pipe: PipeWriter,
    addresses: mpsc::Receiver<String>,
    requests: Arc<Mutex<Requests>>,
}

#[derive(Default)]
struct Requests {
    /// By the server's process.
    running: HashMap<String, usize>,
    /// The most that ever ran at the same time.
    most: usize,
}

impl Recorder {
    fn listen() -> Self {
        let (reader, pipe) = std::io::pipe().unwrap();
        let (found, addresses) = mpsc::channel();
        let requests = Arc::<Mutex<Requests>>::default();
        let counted = Arc::clone(&requests);
        thread::spawn(move || read(reader, &found, &counted));
        Self {
            pipe,
            addresses,
            requests,
        }
    }

    fn running(&self) -> usize {
        self.requests.lock().unwrap().running()
    }

    fn most(&self) -> usize {
        self.requests.lock().unwrap().most
    }
}

fn read(pipe: PipeReader, addresses: &mpsc::Sender<String>, requests: &Mutex<Requests>) {
    for line in BufReader::new(pipe).lines() {
        let line = line.unwrap();
        if let Some(rest) = line.strip_prefix("listening on ") {
            addresses
                .send(rest.trim_end_matches(", try").to_owned())
                .unwrap();
        } else if let Some((process, what)) = line.split_once(' ') {
            requests.lock().unwrap().note(process, what);
        }
    }
}

impl Requests {
    fn running(&self) -> usize {
        self.running.values().sum()
    }

    fn note(&mut self, process: &str, what: &str) {
        let running = self.running.entry(process.to_owned()).or_default();
        match what {
            "begins one" => *running += 1,
            "ends one" => *running -= 1,
            "is killed" => *running = 0,
            _ => {}
        }
        self.most = self.most.max(self.running());
    }
}

/// How many places are taken in Redis.
fn held(connection: &mut redis::Connection) -> usize {
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(connection).unwrap();
    let held = keys.iter().map(|key| {
        let mut score = redis::cmd("ZSCORE");
        let held: Option<f64> = score.arg(key).arg("held").query(connection).unwrap();
        -held.unwrap_or_default() as usize
    });
    held.sum()
}

/// Polls, in its own thread, how many places are taken in Redis.
struct Sampler {
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<(usize, usize)>,
}

impl Sampler {
    fn start(redis: &Server) -> Self {
        let mut connection = redis.connection().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let (mut samples, mut most) = (0, 0);
            while !until.load(Ordering::SeqCst) {
                most = most.max(held(&mut connection));
                samples += 1;
                thread::sleep(Duration::from_millis(1));
            }
            (samples, most)
        });
        Self { is_over, thread }
    }

    /// How often it has looked, and the most that it has seen.
    fn end(self) -> (usize, usize) {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

/// Clients that read slowly to the end; that leave in the middle of the response; that leave at
/// once; and whose connection is reset with unread data.
async fn storm(servers: &[Running; 2]) {
    let clients = (0..CLIENTS).map(async |number| {
        let client = client([Version::HTTP_11, Version::HTTP_2][number / 2 % 2]);
        for round in 0..3 {
            let server = &servers[(number + round) % 2];
            match (number + round) / 2 % 4 {
                0 => {
                    let mut response = server.open(&client, 3).await;
                    while response.chunk().await.unwrap().is_some() {
                        sleep(Duration::from_millis(150)).await;
                    }
                }
                1 => {
                    let mut response = server.open(&client, 100_000).await;
                    assert!(response.chunk().await.unwrap().is_some());
                }
                2 => drop(server.open(&client, 100_000).await),
                _ => {
                    let mut connection = TcpStream::connect(&server.address).await.unwrap();
                    let request = b"GET /slow/100000 HTTP/1.1\r\nhost: slow\r\n\r\n";
                    connection.write_all(request).await.unwrap();
                    connection.readable().await.unwrap();
                }
            }
        }
    });
    join_all(clients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_run_than_places_even_after_kills() {
    let program = example::program("concurrency");
    in_time(async {
        let (redis, recorder) = (Server::start(), Recorder::listen());
        let mut servers = [(); 2].map(|()| Running::start(&program, &redis, &recorder));
        let sampler = Sampler::start(&redis);
        let all_run = async || recorder.running() == LIMIT;
        let nothing_is_left = async || recorder.running() == 0 && redis.keys().is_empty();

        storm(&servers).await;
        until("no request and no lease is left", nothing_is_left).await;

        let slow = client(Version::HTTP_11);
        let mut streams = Vec::new();
        for turn in 0..LIMIT {
            streams.push(servers[turn % 2].open(&slow, 100_000).await);
        }
        until("all places are in use", all_run).await;
        servers[0].kill(&recorder);
        assert_eq!(held(&mut redis.connection().unwrap()), LIMIT);
        // Its places are taken by others once its leases have lapsed. Leases of the other server
        // are as old but do not lapse.
        for _ in 0..LIMIT / 2 {
            streams.push(servers[1].open(&slow, 100_000).await);
        }
        until("all places are in use", all_run).await;
        assert_ne!(servers[1].status().await, 200);

        drop(streams);
        until("no request and no lease is left", nothing_is_left).await;
        let (samples, most) = sampler.end();
        assert!(samples > 100, "{samples} samples");
        assert_eq!((recorder.most(), most), (LIMIT, LIMIT), "run, held");
    })
    .await;
}
