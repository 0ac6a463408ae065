//! Costs that the end of a body decides: however it ends, on every store, over real sockets.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tower_throttle::{Header, Key, Limit, Limiter, MINUTE, Meter, Policy};

mod charging;
mod ends;
mod panics;
mod streams;
mod wire;

/// A body that adds to a meter before each of its chunks, and then ends in one of these ways.
struct Metered {
    meter: Meter,
    chunks: VecDeque<u64>,
    ending: Option<Last>,
    is_exact: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// It is over, as it says by `is_end_stream`.
    Chunk,
    Trailers,
    Error,
}

impl Body for Metered {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if let Some(used) = self.chunks.pop_front() {
            self.meter.add(used);
            return Poll::Ready(Some(Ok(Frame::data("chunk".into()))));
        }
        Poll::Ready(match self.ending.take() {
            None | Some(Last::Chunk) => None,
            Some(Last::Trailers) => Some(Ok(Frame::trailers(HeaderMap::new()))),
            Some(Last::Error) => Some(Err("it broke")),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty() && matches!(self.ending, None | Some(Last::Chunk))
    }

    fn size_hint(&self) -> SizeHint {
        match self.is_exact {
            true => SizeHint::with_exact(5 * self.chunks.len() as u64),
            false => SizeHint::default(),
        }
    }
}

const KEY: &str = "x-key";

/// `tokens`, of which there are a thousand a minute for each key.
fn tokens(estimate: u64) -> Policy {
    tokens_of(Limit::fixed_window(1_000, MINUTE), estimate)
}

fn tokens_of(limit: Limit, estimate: u64) -> Policy {
    Policy::new("tokens", limit)
        .by(Header::new(KEY))
        .cost(estimate)
        .settle_at_end(|end| end.used())
}

fn key(name: &str) -> Key {
    Key::header(KEY, name.as_bytes())
}

/// What `alice` has left, once all is settled.
async fn left(limiter: &Limiter) -> u64 {
    assert!(limiter.flush().await);
    let looked = limiter.peek("tokens", key("alice")).await;
    looked.expect("a policy").remaining()
}
