//! A proxy that delays what passes through it, as the network between a service and its Redis does.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::clock::{sleep_until, wake_on_time};

/// Lives as long as the program; threads of its own carry what each connection sends.
pub struct DelayingProxy(SocketAddr);

impl DelayingProxy {
    pub fn before(server: SocketAddr, each_way: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a client");
                let server = TcpStream::connect(server).expect("the server is there");
                carry(&client, &server, each_way);
                carry(&server, &client, each_way);
            }
        });
        Self(address)
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.0)
    }
}

/// Each chunk is passed on at an instant of its own, which is set when it arrives: delays do not add
/// up, and however much is on its way, nothing waits for it.
fn carry(from: &TcpStream, to: &TcpStream, delay: Duration) {
    to.set_nodelay(true).expect("a socket");
    let mut from = from.try_clone().expect("a socket");
    let mut to = to.try_clone().expect("a socket");
    let (sender, chunks) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1_024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let chunk = (Instant::now() + delay, buffer[..length].to_vec());
            if sender.send(chunk).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        wake_on_time();
        for (due, chunk) in chunks {
            sleep_until(due);
            if to.write_all(&chunk).is_err() {
                break;
            }
        }
        // The other side may have closed it already.
        let _ = to.shutdown(Shutdown::Both);
    });
}
