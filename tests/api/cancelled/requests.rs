//! Over HTTP: clients that go away.

use http::Version;
use reqwest::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tower_throttle::Limiter;

use super::left::{Before, PATHS, limiter, looked_at, pause, unpause};
use support::redis::Server;
use support::web::Service;

const REQUESTS: usize = 10_000;
/// Fewer of them over HTTP/2 than a server accepts on one connection.
const AT_ONCE: usize = 300;

/// A service that answers nobody, and its clients.
struct Stage {
    server: Server,
    limiter: Limiter,
    service: Service,
    url: String,
}

impl Stage {
    async fn new() -> Self {
        let server = Server::start();
        let limiter = limiter(&server).await;
        let service = Service::closed();
        let url = service.behind(limiter.clone()).await;
        Self {
            server,
            limiter,
            service,
            url,
        }
    }

    /// As many requests as come at once, half of them over one HTTP/2 connection and half over an
    /// HTTP/1.1 connection each. A client goes away after this many polls.
    fn send(&self, looks: impl Fn(usize) -> usize) -> JoinSet<bool> {
        let client = Client::builder().http2_prior_knowledge().no_proxy();
        let client = client.build().unwrap();
        let mut requests = JoinSet::new();
        for number in 0..AT_ONCE {
            let path = PATHS[number % PATHS.len()];
            let looks = looks(number);
            if number < AT_ONCE / 2 {
                let request = client.get(format!("{}{path}", self.url)).send();
                requests.spawn(looked_at(looks, request));
            } else {
                let address = self.url.trim_start_matches("http://").to_owned();
                requests.spawn(looked_at(looks, connection(address, path)));
            }
        }
        requests
    }
}

/// A connection that is reset when it is dropped: closed in order, this many would keep as many
/// ports for a minute.
async fn connection(address: String, path: &str) {
    let mut connection = TcpStream::connect(&address).await.unwrap();
    connection.set_zero_linger().unwrap();
    let head = format!(
        "GET {path} {:?}\r\nhost: {address}\r\n\r\n",
        Version::HTTP_11
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let _ = connection.read_u8().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_clients_that_leave_while_served_leave_nothing() {
    let stage = Stage::new().await;
    let before = Before::now(&stage.server, &stage.limiter).await;
    for _ in 0..=REQUESTS / AT_ONCE {
        let mut requests = stage.send(|_| usize::MAX);
        // All except those that are held up.
        stage.service.inside(AT_ONCE * 2 / 3).await;
        requests.shutdown().await;
        stage.service.inside(0).await;
    }
    before.comes_back(&stage.server, &stage.limiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_clients_that_leave_while_judged_leave_nothing() {
    let stage = Stage::new().await;
    let before = Before::now(&stage.server, &stage.limiter).await;
    for round in 0..=REQUESTS / AT_ONCE {
        let is_paused = round % 2 == 0;
        if is_paused {
            pause(&stage.server);
        }
        stage.send(|number| number * 31 % 97).join_all().await;
        if is_paused {
            unpause(&stage.server);
        }
        stage.service.inside(0).await;
    }
    before.comes_back(&stage.server, &stage.limiter).await;
}
