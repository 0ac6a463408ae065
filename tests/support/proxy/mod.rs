//! A proxy in front of a server that fails in every way that networks do, and recovers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

mod commands;
mod replies;

use commands::Commands;
use replies::{Forgeries, Replies};

/// What it does with all traffic from now on, on all connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    Pass,
    /// Each reply is delayed by this.
    Delay(Duration),
    /// Everything sent in either direction is lost, also on new connections. Connections of that
    /// time stay broken later, as their streams are incomplete.
    Blackhole,
    /// Requests arrive, but their replies are lost.
    DropReplies,
    /// The connection is cut when the server replies, so that it has executed the request.
    CutReplies,
    /// New requests are executed, and each reply is replaced by these bytes.
    Garble(&'static [u8]),
    /// The reply breaks off, and so does the connection.
    Truncate,
    /// Connections are accepted and closed at once, as by a load balancer without a server.
    /// Existing ones are closed, too.
    Close,
    /// Nobody listens, and all connections are cut.
    Refuse,
}

pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    /// Its own runtime, so that it works while a test blocks its thread.
    runtime: Option<Runtime>,
}

struct Shared {
    server: Mutex<SocketAddr>,
    way: watch::Sender<Way>,
    /// Changes when all connections are to be cut.
    cut: watch::Sender<()>,
    /// Changes when all connections are to be forgotten.
    forgotten: watch::Sender<()>,
    accepted: Mutex<Vec<Instant>>,
    closed: AtomicUsize,
    commands: AtomicU64,
    reply_bytes: AtomicU64,
}

impl Proxy {
    /// To the server on this port.
    pub fn to(server: u16) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let shared = Arc::new(Shared {
            server: Mutex::new(at(server)),
            way: watch::Sender::new(Way::Pass),
            cut: watch::Sender::default(),
            forgotten: watch::Sender::default(),
            accepted: Mutex::default(),
            closed: AtomicUsize::new(0),
            commands: AtomicU64::new(0),
            reply_bytes: AtomicU64::new(0),
        });
        // Keeps the port while nobody listens on it, so that connections are refused.
        let kept = bound(0).unwrap();
        let port = kept.local_addr().unwrap().port();
        let listener = {
            let _within = runtime.enter();
            listen(port)
        };
        let serving = Arc::clone(&shared);
        runtime.spawn(async move {
            serving.serve(listener, port).await;
            drop(kept);
        });
        Self {
            port,
            shared,
            runtime: Some(runtime),
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn set(&self, way: Way) {
        self.shared.way.send_replace(way);
        if matches!(way, Way::Close | Way::Refuse) {
            self.cut();
        }
    }

    pub fn way(&self) -> Way {
        *self.shared.way.borrow()
    }

    /// Cuts all existing connections.
    pub fn cut(&self) {
        self.shared.cut.send_replace(());
    }

    /// Silently loses everything sent from now on over existing connections, like a firewall that
    /// has forgotten them. New connections work.
    pub fn forget(&self) {
        self.shared.forgotten.send_replace(());
    }

    /// Sends new connections to the server on this port.
    pub fn lead_to(&self, server: u16) {
        *self.shared.server.lock().unwrap() = at(server);
    }

    /// When each connection was accepted. With [`Way::Refuse`] attempts are not seen.
    pub fn accepted(&self) -> Vec<Instant> {
        self.shared.accepted.lock().unwrap().clone()
    }

    /// How many of them are closed, apart from those that were never more than accepted.
    pub fn closed(&self) -> usize {
        self.shared.closed.load(Ordering::Relaxed)
    }

    /// How many commands have gone to the server.
    pub fn commands(&self) -> u64 {
        self.shared.commands.load(Ordering::Relaxed)
    }

    /// How many bytes of replies have been sent to the clients.
    pub fn reply_bytes(&self) -> u64 {
        self.shared.reply_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn bound(port: u16) -> std::io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // Two sockets have the port: one that keeps it, and one that listens at times.
    socket.set_reuseaddr(true)?;
    socket.bind(at(port))?;
    Ok(socket)
}

fn listen(port: u16) -> TcpListener {
    bound(port).unwrap().listen(1_024).unwrap()
}

impl Shared {
    async fn serve(self: Arc<Self>, first: TcpListener, port: u16) {
        let mut way = self.way.subscribe();
        let mut listener = Some(first);
        loop {
            match *way.borrow_and_update() {
                Way::Refuse => listener = None,
                _ => drop(listener.get_or_insert_with(|| listen(port))),
            }
            let Some(listener) = &listener else {
                if way.changed().await.is_err() {
                    return;
                }
                continue;
            };
            tokio::select! {
                accepted = listener.accept() => {
                    let (client, _) = accepted.unwrap();
                    self.accepted.lock().unwrap().push(Instant::now());
                    if *self.way.borrow() == Way::Close {
                        continue;
                    }
                    let (shared, cut) = (Arc::clone(&self), self.cut.subscribe());
                    tokio::spawn(async move {
                        shared.connect(client, cut).await;
                        shared.closed.fetch_add(1, Ordering::Relaxed);
                    });
                }
                changed = way.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn connect(&self, client: TcpStream, mut cut: watch::Receiver<()>) {
        let server = *self.server.lock().unwrap();
        let Ok(server) = TcpStream::connect(server).await else {
            return;
        };
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap();
        }
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let (told, pieces) = mpsc::unbounded_channel();
        let forgeries = Forgeries::default();
        let forgotten = self.forgotten.subscribe();
        // The connection ends when either direction does.
        tokio::select! {
            _ = cut.changed() => {}
            () = self.requests(from_client, to_server, &forgeries, &forgotten) => {}
            () = self.replies(from_server, &forgeries, &forgotten, &told) => {}
            () = self.write(to_client, pieces) => {}
        }
    }

    async fn requests(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        forgeries: &Forgeries,
        forgotten: &watch::Receiver<()>,
    ) {
        let mut commands = Commands::default();
        let mut is_torn = false;
        while let Some(bytes) = read(&mut from).await {
            let way = *self.way.borrow();
            is_torn |= way == Way::Blackhole || is_signalled(forgotten);
            if is_torn {
                continue;
            }
            let count = commands.count(&bytes);
            let forgery = match way {
                Way::Garble(forgery) => Some(forgery),
                _ => None,
            };
            forgeries.expect(count, forgery);
            // Counted before anybody can learn from the reply that they were sent.
            self.commands.fetch_add(count, Ordering::Relaxed);
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    }

    async fn replies(
        &self,
        mut from: OwnedReadHalf,
        forgeries: &Forgeries,
        forgotten: &watch::Receiver<()>,
        to: &mpsc::UnboundedSender<(Instant, Vec<u8>)>,
    ) {
        let mut stream = Replies::default();
        let mut is_torn = false;
        while let Some(bytes) = read(&mut from).await {
            let now = Instant::now();
            let way = *self.way.borrow();
            is_torn |= matches!(way, Way::Blackhole | Way::DropReplies) || is_signalled(forgotten);
            let due = match way {
                _ if is_torn => continue,
                Way::Delay(by) => now + by,
                Way::CutReplies => return,
                Way::Truncate => {
                    // Half of a reply that announces to be longer.
                    let _ = to.send((now, b"$100\r\nhalf of".to_vec()));
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    return;
                }
                _ => now,
            };
            let _ = to.send((due, forgeries.forge(&mut stream, &bytes)));
        }
    }

    /// Writes each piece when it is due.
    async fn write(
        &self,
        mut to: OwnedWriteHalf,
        mut pieces: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>,
    ) {
        while let Some((due, bytes)) = pieces.recv().await {
            tokio::time::sleep_until(due.into()).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
            self.reply_bytes
                .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    }
}

fn is_signalled(what: &watch::Receiver<()>) -> bool {
    what.has_changed().unwrap_or(true)
}

async fn read(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 65_536];
    match from.read(&mut bytes).await {
        Ok(0) | Err(_) => None,
        Ok(length) => {
            bytes.truncate(length);
            Some(bytes)
        }
    }
}
