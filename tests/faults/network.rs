//! The network between the two, and whatever else stands there.

use std::time::Duration;

use tower_throttle::StoreErrorKind::{BadReply, Interrupted, TimedOut, Unreachable};
use tower_throttle::{SECOND, StoreErrorKind};

use crate::stage::{SOON, Stage, recovery};
use crate::support::proxy::Way;

async fn endures(fault: &str, way: Way, reasons: &[StoreErrorKind]) {
    let mut stage = Stage::start().await;
    let break_it = |_: &mut _, proxy: &crate::support::proxy::Proxy| proxy.set(way);
    stage
        .endures(fault, reasons, break_it, |_, proxy| proxy.set(Way::Pass))
        .await;
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

#[tokio::test]
async fn a_port_where_nobody_listens() {
    let reasons = [Interrupted, Unreachable];
    endures("refused", Way::Refuse, &reasons).await;
}

/// Whatever they are, they are no decision.
#[tokio::test]
async fn replies_that_are_none() {
    let http = b"HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n\r\n";
    // An I/O error, or one of the protocol; while connecting, no connection.
    let reasons = [BadReply, Interrupted, Unreachable];
    endures("replies in HTTP", Way::Garble(http), &reasons).await;
}

#[tokio::test]
async fn replies_of_another_shape() {
    endures("replies of OK", Way::Garble(b"+OK\r\n"), &[BadReply]).await;
    let array = b"*2\r\n+a\r\n:-1\r\n";
    endures("replies of an array", Way::Garble(array), &[BadReply]).await;
}

async fn is_soon_over(fault: &str, way: Way) {
    let stage = Stage::start().await;
    stage.proxy.set(way);
    let outage = stage.long_outage().await;
    stage.proxy.set(Way::Pass);
    let recovery = recovery(&stage.limiter).await;
    outage.print(fault, recovery);
    outage.assert_few_connections();
    assert!(recovery < SOON, "{fault}: {recovery:?}");
}

/// The pauses of the circuit breaker have become long by then.
#[tokio::test]
async fn a_long_outage_is_as_soon_over_as_a_short_one() {
    is_soon_over("a long blackhole", Way::Blackhole).await;
}

#[tokio::test]
async fn a_long_refusal_is_as_soon_over_as_a_short_one() {
    is_soon_over("long refused", Way::Refuse).await;
}
