//! Clients that do as little as possible: each keeps a connection, writes a request, and reads the
//! response to its end.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::clock::{process_cpu, thread_cpu};
use crate::load::{Count, Keys};
use crate::random::Random;
use crate::round::Round;
use crate::runtimes::Flavor;

/// The zeros are replaced by the caller's number.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nx-user: 00000000\r\n\r\n";
const WHO: Range<usize> = REQUEST.len() - 12..REQUEST.len() - 4;

/// Keeps a server busy for this long over this many connections. The processor time is that of the
/// server and its threads: all threads but this one.
pub fn round(address: SocketAddr, connections: u64, keys: Keys, lasting: Duration) -> Round {
    let (process, thread, started) = (process_cpu(), thread_cpu(), Instant::now());
    let clients = (0..connections).map(|seed| client(address, keys, seed, lasting));
    let counts = Flavor::CurrentThread.runtime().block_on(join_all(clients));
    Round {
        decisions: counts.iter().map(|count| count.decisions).sum(),
        allowed: counts.iter().map(|count| count.allowed).sum(),
        elapsed: started.elapsed(),
        client_cpu: (process_cpu() - process).saturating_sub(thread_cpu() - thread),
        ..Round::default()
    }
}

async fn client(address: SocketAddr, keys: Keys, seed: u64, lasting: Duration) -> Count {
    let started = Instant::now();
    let mut connection = TcpStream::connect(address).await.expect("a connection");
    connection.set_nodelay(true).expect("a socket");
    let mut random = Random::new(seed);
    let mut request = REQUEST.to_vec();
    let mut buffer = Vec::with_capacity(4_096);
    let mut count = Count::default();
    while started.elapsed() < lasting {
        if let Keys::AnyOf(keys) = keys {
            let who = format!("{:08}", random.below(keys));
            request[WHO].copy_from_slice(who.as_bytes());
        }
        connection.write_all(&request).await.expect("a server");
        buffer.clear();
        let end = loop {
            let read = connection.read_buf(&mut buffer).await.expect("a server");
            assert_ne!(read, 0, "the server has closed the connection");
            if let Some(end) = end_of_response(&buffer) {
                break end;
            }
        };
        assert_eq!(end, buffer.len(), "more than one response");
        count.decisions += 1;
        match &buffer[9..12] {
            b"200" => count.allowed += 1,
            b"429" => {}
            other => panic!("status {}", String::from_utf8_lossy(other)),
        }
    }
    count
}

/// Where a response ends, once its head is there.
fn end_of_response(read: &[u8]) -> Option<usize> {
    const BLANK: &[u8] = b"\r\n\r\n";
    const LENGTH: &[u8] = b"content-length: ";
    let head = position(read, BLANK)? + BLANK.len();
    let length = position(&read[..head], LENGTH).expect("a length") + LENGTH.len();
    let digits = read[length..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    let body = digits.fold(0, |body, digit| body * 10 + usize::from(digit - b'0'));
    (read.len() >= head + body).then_some(head + body)
}

fn position(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}
