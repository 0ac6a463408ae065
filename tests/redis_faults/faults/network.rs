//! The network in between, and whatever else stands there.

use std::time::Duration;

use tower_throttle::StoreErrorKind::{BadReply, Interrupted, TimedOut, Unreachable};
use tower_throttle::{SECOND, StoreErrorKind};

use crate::faults::stage::{Outage, Stage};
use support::proxy::{Proxy, Way};

async fn outlives(fault: &str, way: Way, reasons: &[StoreErrorKind]) -> Outage {
    let mut stage = Stage::start().await;
    let break_it = |_: &mut _, proxy: &Proxy| proxy.set(way);
    let mend_it = |_: &mut _, proxy: &Proxy| proxy.set(Way::Pass);
    stage.outlives(fault, reasons, break_it, mend_it).await
}

async fn endures(fault: &str, way: Way, reasons: &[StoreErrorKind]) {
    let outage = outlives(fault, way, reasons).await;
    outage.assert_few_connections();
}

#[tokio::test]
async fn replies_that_come_late() {
    let way = Way::Delay(Duration::from_millis(200));
    endures("replies 200 ms late", way, &[TimedOut]).await;
}

/// Far later than a handshake may take.
#[tokio::test]
async fn replies_that_come_much_later() {
    let reasons = [TimedOut, Unreachable];
    endures("replies 3 s late", Way::Delay(3 * SECOND), &reasons).await;
}

#[tokio::test]
async fn a_network_that_swallows_everything() {
    endures("blackhole", Way::Blackhole, &[TimedOut, Unreachable]).await;
}

#[tokio::test]
async fn replies_that_are_lost() {
    let reasons = [TimedOut, Unreachable];
    endures("lost replies", Way::DropReplies, &reasons).await;
}

#[tokio::test]
async fn connections_that_break_before_the_reply() {
    let reasons = [Interrupted, Unreachable];
    endures("cut before the reply", Way::CutReplies, &reasons).await;
}

#[tokio::test]
async fn replies_that_end_within() {
    let reasons = [BadReply, Interrupted, Unreachable];
    endures("truncated replies", Way::Truncate, &reasons).await;
}

/// Attempts to connect here are not seen: see [`Way::Close`], where each attempt fails as soon.
#[tokio::test]
async fn a_port_where_nobody_listens() {
    let reasons = [Interrupted, Unreachable];
    outlives("refused", Way::Refuse, &reasons).await;
}

#[tokio::test]
async fn connections_that_are_closed_as_soon_as_they_are_made() {
    let reasons = [Interrupted, Unreachable];
    let outage = outlives("closed at once", Way::Close, &reasons).await;
    outage.assert_few_connections();
    outage.assert_tried();
}

/// Whatever they are, they are no decision.
#[tokio::test]
async fn replies_that_are_none() {
    let http = b"HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n\r\n";
    // An I/O error or a protocol error; while connecting, no connection.
    let reasons = [BadReply, Interrupted, Unreachable];
    endures("replies in HTTP", Way::Garble(http), &reasons).await;
}

#[tokio::test]
async fn replies_of_another_shape() {
    endures("replies of OK", Way::Garble(b"+OK\r\n"), &[BadReply]).await;
    let array = b"*2\r\n+a\r\n:-1\r\n";
    endures("replies of an array", Way::Garble(array), &[BadReply]).await;
}

async fn is_soon_over(fault: &str, way: Way) -> Outage {
    let mut stage = Stage::start().await;
    let break_it = |_: &mut _, proxy: &Proxy| proxy.set(way);
    let mend_it = |_: &mut _, proxy: &Proxy| proxy.set(Way::Pass);
    stage.is_soon_back(fault, break_it, mend_it).await
}

/// The pauses of the circuit breaker have become long by then.
#[tokio::test]
async fn a_long_outage_is_as_soon_over_as_a_short_one() {
    let outage = is_soon_over("a long blackhole", Way::Blackhole).await;
    outage.assert_few_connections();
    outage.assert_tried_each_second();
}

#[tokio::test]
async fn a_long_outage_that_closes_every_connection_is_over_as_soon() {
    let outage = is_soon_over("long closed at once", Way::Close).await;
    outage.assert_few_connections();
    outage.assert_tried_each_second();
}

#[tokio::test]
async fn a_long_refusal_is_as_soon_over_as_a_short_one() {
    is_soon_over("long refused", Way::Refuse).await;
}
