//! A proxy to a Redis server that can hold back the answers.

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Gate {
    port: u16,
    is_open: watch::Sender<bool>,
}

impl Gate {
    /// An open gate to the server on this port.
    pub(crate) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_open = watch::Sender::new(true);
        let gate = is_open.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                let (mut questions, mut to_client) = client.into_split();
                let (mut answers, mut to_server) = server.into_split();
                tokio::spawn(async move { copy(&mut questions, &mut to_server).await });
                let mut is_open = gate.subscribe();
                tokio::spawn(async move {
                    let mut some = [0; 4_096];
                    while let Ok(read @ 1..) = answers.read(&mut some).await {
                        is_open.wait_for(|is_open| *is_open).await.unwrap();
                        to_client.write_all(&some[..read]).await.unwrap();
                    }
                });
            }
        });
        Self { port, is_open }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn open(&self) {
        self.is_open.send_replace(true);
    }

    /// From now on questions pass, and answers wait.
    pub(crate) fn close(&self) {
        self.is_open.send_replace(false);
    }
}
