//! A denial as bytes on a socket: HTTP/2 written by hand, since clients merge frames before anybody
//! sees them. See RFC 9113, section 4.1, and RFC 7541 for the headers.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::stage::{Counted, bind, layer, serve};
use support::http_store::{TRIPS, Trip};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    fn bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).expect("a short frame");
        let mut bytes = length.to_be_bytes()[1..].to_vec();
        bytes.extend([self.kind, self.flags]);
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend(&self.payload);
        bytes
    }

    /// Takes the first frame off, once it is complete.
    fn split(bytes: &mut Vec<u8>) -> Option<Self> {
        let length = u32::from_be_bytes([0, *bytes.first()?, *bytes.get(1)?, *bytes.get(2)?]);
        let end = 9 + usize::try_from(length).expect("three bytes");
        if bytes.len() < end {
            return None;
        }
        let frame: Vec<u8> = bytes.drain(..end).collect();
        Some(Self {
            kind: frame[3],
            flags: frame[4],
            stream: u32::from_be_bytes([frame[5] & 0x7f, frame[6], frame[7], frame[8]]),
            payload: frame[9..].to_vec(),
        })
    }

    fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

/// Whether the client has sent everything when it is answered.
#[derive(Clone, Copy, Debug)]
enum Client {
    Unary,
    StillSending,
}

/// The headers of a call, uncompressed.
fn call(client: Client) -> Vec<Frame> {
    // `:method: POST` and `:scheme: http` of the static table.
    let mut block = vec![0x83, 0x86];
    let mut literal = |name: &[u8], value: &str| {
        block.extend(name);
        block.push(u8::try_from(value.len()).expect("a short value"));
        block.extend(value.as_bytes());
    };
    literal(&[0x04], "/grpc.health.v1.Health/Check");
    literal(&[0x01], "localhost");
    literal(&[0x0f, 31 - 15], "application/grpc");
    literal(b"\x00\x02te", "trailers");
    let headers = Frame {
        kind: HEADERS,
        flags: END_HEADERS,
        stream: 1,
        payload: block,
    };
    // An empty, uncompressed message of no bytes.
    let message = Frame {
        kind: DATA,
        flags: END_STREAM,
        stream: 1,
        payload: vec![0; 5],
    };
    match client {
        Client::Unary => vec![headers, message],
        Client::StillSending => vec![headers],
    }
}

/// All frames of the answer to a call, until the server has closed the connection.
async fn answer(address: SocketAddr, client: Client) -> Vec<Frame> {
    let exchange = async {
        let mut socket = TcpStream::connect(address).await.expect("a connection");
        let settings = Frame {
            kind: SETTINGS,
            flags: 0,
            stream: 0,
            payload: Vec::new(),
        };
        let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        hello.extend(settings.bytes());
        hello.extend(call(client).iter().flat_map(Frame::bytes));
        socket.write_all(&hello).await.expect("it is taken");

        let (mut bytes, mut frames) = (Vec::new(), Vec::new());
        let mut has_ended = false;
        while socket.read_buf(&mut bytes).await.expect("an answer") > 0 {
            while let Some(frame) = Frame::split(&mut bytes) {
                let ends = frame.ends_stream() && frame.stream == 1;
                frames.push(frame);
                if ends && !std::mem::replace(&mut has_ended, true) {
                    socket.shutdown().await.expect("nothing more to say");
                }
            }
        }
        assert!(has_ended && bytes.is_empty(), "{frames:?} {bytes:?}");
        frames.retain(|frame| frame.stream == 1);
        frames
    };
    let answered = tokio::time::timeout(Duration::from_secs(60), exchange);
    answered.await.expect("the server closes the connection")
}

/// An axum application on hyper, whose handler is never called.
async fn serve_axum(trip: Trip) -> SocketAddr {
    let app = Router::new()
        .route("/grpc.health.v1.Health/Check", post(async || "a body"))
        .layer(layer(trip, 1));
    let (listener, address) = bind().await;
    tokio::spawn(axum::serve(listener, app).into_future());
    address
}

#[tokio::test]
async fn a_denial_is_one_headers_frame_that_ends_the_stream() {
    for trip in TRIPS {
        let tonic = serve(layer(trip, 1), Counted::default()).await;
        for address in [tonic, serve_axum(trip).await] {
            // A call that is let through takes more frames: headers, a message, and on tonic
            // trailers.
            let allowed = answer(address, Client::Unary).await;
            assert!(allowed.len() > 1, "{allowed:?}");
            assert!(!allowed[0].ends_stream(), "{allowed:?}");

            let denied = answer(address, Client::Unary).await;
            assert_one_headers_frame(&denied[..1]);
            assert_eq!(denied.len(), 1, "{denied:?}");
        }
    }
}

#[tokio::test]
async fn a_client_that_is_still_sending_is_stopped_after_it() {
    for trip in TRIPS {
        let tonic = serve(layer(trip, 1), Counted::default()).await;
        for address in [tonic, serve_axum(trip).await] {
            answer(address, Client::Unary).await;
            let denied = answer(address, Client::StillSending).await;
            assert_one_headers_frame(&denied[..1]);
            // RFC 9113, section 8.1: "no error", the answer is complete.
            for after in &denied[1..] {
                assert_eq!((after.kind, &after.payload[..]), (RST_STREAM, &[0; 4][..]));
            }
        }
    }
}

fn assert_one_headers_frame(frames: &[Frame]) {
    let [frame] = frames else {
        panic!("there is none");
    };
    assert_eq!(frame.kind, HEADERS);
    assert_eq!(frame.flags, END_STREAM | END_HEADERS);
    // `:status: 200` of the static table.
    assert_eq!(frame.payload[0], 0x88);
}
