//! An axum server on a thread of its own.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::runtimes::Flavor;

/// Stops when it is dropped.
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves what `make` returns, called on the server's own runtime.
    pub fn start<F>(flavor: Flavor, make: impl FnOnce() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Router>,
    {
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = mpsc::channel();
        let thread = thread::spawn(move || {
            flavor.runtime().block_on(async move {
                let router = make().await;
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                tell.send(listener.local_addr().expect("an address"))
                    .expect("somebody waits");
                // On a worker, like everything else that is served.
                let serving = tokio::spawn(axum::serve(listener, router).into_future());
                let _ = stopped.await;
                serving.abort();
            });
        });
        Self {
            address: told.recv().expect("a server"),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
