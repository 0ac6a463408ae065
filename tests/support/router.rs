//! A proxy in front of several servers that finds the server of a command by its key, as twemproxy and
//! Envoy do.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::redis::Server;

/// What it does with a command that it does not pass on.
#[derive(Clone, Copy, Debug)]
pub enum EarlyRejection {
    /// As twemproxy does.
    HangUp,
    /// As Envoy does.
    Error,
    NoReply,
}

pub struct Router {
    port: u16,
    shared: Arc<Shared>,
    /// Its own runtime, so that it works while a test blocks its thread.
    runtime: Option<Runtime>,
}

struct Shared {
    servers: Vec<u16>,
    refusal: EarlyRejection,
    /// The commands that are refused although they have a key.
    unwanted: Mutex<HashSet<&'static str>>,
    /// The name of every command that was refused.
    refused: Mutex<Vec<String>>,
}

impl Router {
    pub fn to(servers: &[Server], refusal: EarlyRejection) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let shared = Arc::new(Shared {
            servers: servers.iter().map(Server::port).collect(),
            refusal,
            unwanted: Mutex::default(),
            refused: Mutex::default(),
        });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let listener = {
            let _within = runtime.enter();
            TcpListener::from_std(listener).unwrap()
        };
        let serving = Arc::clone(&shared);
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                // Broken connections are the clients' business.
                tokio::spawn(async move { shared.serve(client).await.ok() });
            }
        });
        Self {
            port,
            shared,
            runtime: Some(runtime),
        }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Refuses this command from now on.
    pub fn refuse(&self, command: &'static str) {
        self.shared.unwanted.lock().unwrap().insert(command);
    }

    /// The commands that were refused.
    pub fn refused(&self) -> Vec<String> {
        self.shared.refused.lock().unwrap().clone()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    /// One command after the other.
    async fn serve(&self, client: TcpStream) -> std::io::Result<()> {
        let mut servers = Vec::new();
        for port in &self.servers {
            let server = TcpStream::connect(("127.0.0.1", *port)).await?;
            servers.push(BufReader::new(server));
        }
        client.set_nodelay(true)?;
        let mut client = BufReader::new(client);
        loop {
            let (command, words) = read_command(&mut client).await?;
            let name = String::from_utf8_lossy(&words[0]).to_uppercase();
            let is_unwanted = self.unwanted.lock().unwrap().contains(&*name);
            match key_of(&name, &words).filter(|_| !is_unwanted) {
                Some(key) => {
                    let mut hasher = DefaultHasher::new();
                    key.hash(&mut hasher);
                    let place = hasher.finish() % servers.len() as u64;
                    let server = &mut servers[usize::try_from(place).unwrap()];
                    server.write_all(&command).await?;
                    client.write_all(&read_value(server).await?).await?;
                }
                None => {
                    self.refused.lock().unwrap().push(name);
                    match self.refusal {
                        EarlyRejection::HangUp => return Ok(()),
                        EarlyRejection::Error => {
                            client.write_all(b"-ERR unsupported command\r\n").await?
                        }
                        EarlyRejection::NoReply => {}
                    }
                }
            }
        }
    }
}

/// The first key of a command, if it is one that has keys.
fn key_of<'a>(name: &str, words: &'a [Vec<u8>]) -> Option<&'a [u8]> {
    let position = match name {
        "GET" | "SET" | "DEL" | "EXISTS" => 1,
        "EVAL" | "EVALSHA" if words.get(2).is_some_and(|keys| keys != b"0") => 3,
        _ => return None,
    };
    words.get(position).map(Vec::as_slice)
}

/// A command as it was sent, and its words.
async fn read_command(from: &mut BufReader<TcpStream>) -> std::io::Result<(Vec<u8>, Vec<Vec<u8>>)> {
    let mut command = Vec::new();
    let mut words = Vec::new();
    for _ in 0..read_line(from, &mut command).await? {
        let length = read_line(from, &mut command).await?;
        words.push(read_text(from, length, &mut command).await?);
    }
    Ok((command, words))
}

/// A whole reply.
async fn read_value(from: &mut BufReader<TcpStream>) -> std::io::Result<Vec<u8>> {
    let mut reply = Vec::new();
    let mut to_come = 1;
    while to_come > 0 {
        to_come -= 1;
        let begin = reply.len();
        let number = read_line(from, &mut reply).await?;
        match reply[begin] {
            b'$' if number >= 0 => drop(read_text(from, number, &mut reply).await?),
            b'*' => to_come += number.max(0),
            _ => {}
        }
    }
    Ok(reply)
}

/// Reads a line. Returns the number in it behind its first character; zero if there is none.
async fn read_line(from: &mut BufReader<TcpStream>, to: &mut Vec<u8>) -> std::io::Result<i64> {
    let begin = to.len();
    if from.read_until(b'\n', to).await? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let number = str::from_utf8(&to[begin + 1..]).unwrap_or_default().trim();
    Ok(number.parse().unwrap_or(0))
}

async fn read_text(
    from: &mut BufReader<TcpStream>,
    length: i64,
    to: &mut Vec<u8>,
) -> std::io::Result<Vec<u8>> {
    let mut text = vec![0; usize::try_from(length).unwrap() + 2];
    from.read_exact(&mut text).await?;
    to.extend_from_slice(&text);
    text.truncate(text.len() - 2);
    Ok(text)
}
