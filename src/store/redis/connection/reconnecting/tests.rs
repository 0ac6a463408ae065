use std::time::Duration;

use futures_util::poll;
use redis::IntoConnectionInfo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::super::handshake::Handshake;
use super::super::health::{DOWN_AFTER, HASTY, IDLE, MOST_UNANSWERED};
use super::*;
use crate::store::redis::keys::Prefix;
use crate::store::redis::self_test::SelfTest;

/// A server that accepts connections but serves none, and a connector to it.
async fn hung_server() -> (TcpListener, Connector) {
    let hung = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = hung.local_addr().unwrap();
    let server = format!("redis://{address}").into_connection_info().unwrap();
    (hung, Connector::to(server, &Handshake::default()).unwrap())
}

/// The same as a cluster node, and a connection to it.
async fn hung() -> (TcpListener, ReconnectingConnection) {
    let (hung, connector) = hung_server().await;
    (
        hung,
        ReconnectingConnection::to_node(connector, Prefix::default(), &Handle::current()),
    )
}

/// A node that answers OK to everything on one connection until it is told to stand still, and a
/// connection to it.
async fn standing_still_later() -> (oneshot::Sender<()>, ReconnectingConnection) {
    answering_after(Duration::ZERO).await
}

/// The same for a node that takes this long to answer.
async fn answering_after(time: Duration) -> (oneshot::Sender<()>, ReconnectingConnection) {
    let (node, connection) = hung().await;
    let (stand_still, mut stands_still) = oneshot::channel();
    tokio::spawn(async move {
        let (mut connection, _) = node.accept().await.unwrap();
        say_ok(&mut connection, time, &mut stands_still).await;
        // It keeps its connections.
        std::future::pending::<()>().await;
        drop((node, connection));
    });
    (stand_still, connection)
}

/// Answers OK to everything, until `end` is ready.
async fn say_ok<E: Future + Unpin>(connection: &mut TcpStream, time: Duration, end: &mut E) {
    let mut read = vec![0; 1 << 16];
    loop {
        let length = tokio::select! {
            biased;
            _ = &mut *end => return,
            length = connection.read(&mut read) => length.unwrap(),
        };
        tokio::time::sleep(time).await;
        let commands = read[..length].iter().filter(|&&byte| byte == b'*').count();
        let oks = b"+OK\r\n".repeat(commands);
        connection.write_all(&oks).await.unwrap();
    }
}

fn question() -> SelfTest {
    SelfTest::of_server(&Prefix::default())
}

/// Whether a question is refused because the node has gone down, before anybody waits for it.
async fn is_refused(connection: &ReconnectingConnection) -> bool {
    let question = question();
    let asked = connection.ask(&question, false);
    let answer = tokio::time::timeout(Duration::from_millis(100), asked).await;
    answer.is_ok_and(|answer| {
        let error = answer.map_err(StoreError::from).unwrap_err();
        error.to_string().contains("is down")
    })
}

/// Nobody is left who would hear it.
#[tokio::test(start_paused = true)]
async fn a_silent_node_that_is_not_asked_is_not_refused_for_ever() {
    let (hung, connection) = hung().await;
    let mut refused = 0;
    for _ in 0..1_000 {
        refused += u32::from(is_refused(&connection).await);
    }
    assert!(refused > 0, "waited for each time");
    // Nobody listens, so all attempts fail at once.
    drop(hung);
    for _ in 0..100 {
        // Longer than it is checked, and longer than earlier attempts take.
        tokio::time::sleep(Duration::from_secs(10)).await;
        if !is_refused(&connection).await {
            return;
        }
    }
    panic!("refused for ever");
}

/// The connection over which a question was answered.
async fn answered(connection: &ReconnectingConnection) -> Arc<LiveConnection> {
    let answer = connection.ask(&question(), false).await;
    answer.map_err(StoreError::from).unwrap();
    connection.0.live().unwrap()
}

/// A node that closes the first connection when it is told to, and answers OK to everything on
/// both; and a connection to it.
async fn closing_the_first() -> (oneshot::Sender<()>, ReconnectingConnection) {
    let (node, connection) = hung().await;
    let (close, mut closes) = oneshot::channel();
    tokio::spawn(async move {
        let (mut first, _) = node.accept().await.unwrap();
        say_ok(&mut first, Duration::ZERO, &mut closes).await;
        drop(first);
        let (mut second, _) = node.accept().await.unwrap();
        let mut never = std::future::pending::<()>();
        say_ok(&mut second, Duration::ZERO, &mut never).await;
    });
    (close, connection)
}

/// A connection that was closed since its last answer, and is old enough to be replaced at once.
async fn closed(
    close: oneshot::Sender<()>,
    connection: &ReconnectingConnection,
) -> Arc<LiveConnection> {
    let first = answered(connection).await;
    tokio::time::sleep(RECONNECT_PAUSE).await;
    answered(connection).await;
    close.send(()).unwrap();
    while !first.is_closed() {
        tokio::time::sleep(HASTY / 10).await;
    }
    first
}

/// However recently it was closed: nothing has gone over it since, so the question goes over a new
/// one.
#[tokio::test]
async fn a_connection_that_was_closed_between_two_questions_costs_neither() {
    let (close, connection) = closing_the_first().await;
    let first = closed(close, &connection).await;
    let second = answered(&connection).await;
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(!second.is_closed());
}

/// So that the question does not wait for it.
#[tokio::test]
async fn a_closed_connection_is_made_anew_before_the_next_question() {
    let (close, connection) = closing_the_first().await;
    let first = closed(close, &connection).await;
    let is_first = |live: Arc<LiveConnection>| Arc::ptr_eq(&first, &live);
    connection.warm_up();
    let made_anew = async {
        while connection.0.live().is_none_or(is_first) {
            tokio::time::sleep(HASTY / 10).await;
        }
    };
    let made_anew = tokio::time::timeout(2 * CONNECT_TIMEOUT, made_anew).await;
    assert!(made_anew.is_ok(), "left to the question");
}

/// So that the next question does not wait for it.
#[tokio::test]
async fn a_connection_that_breaks_is_replaced_before_the_next_question() {
    let (close, connection) = closing_the_first().await;
    let first = answered(&connection).await;
    tokio::time::sleep(RECONNECT_PAUSE).await;
    answered(&connection).await;
    close.send(()).unwrap();
    let _broke = connection.ask(&question(), false).await;
    let is_first = |live: Arc<LiveConnection>| Arc::ptr_eq(&first, &live);
    let replaced = async {
        while connection.0.live().is_none_or(is_first) {
            tokio::time::sleep(HASTY / 10).await;
        }
    };
    let replaced = tokio::time::timeout(2 * CONNECT_TIMEOUT, replaced).await;
    assert!(replaced.is_ok(), "left to the next question");
}

/// Whoever drops a connection may come to make another one only after others have tried.
#[tokio::test(start_paused = true)]
async fn no_attempt_begins_in_the_pause_after_one_that_has_failed() {
    let (hung, connection) = hung().await;
    drop(hung);
    assert!(connection.ask(&question(), false).await.is_err());
    let has_failed = |link: &Link| matches!(link, Link::Down(Some(_)));
    assert!(has_failed(&connection.0.link.borrow()));
    connection.0.start_connecting();
    assert!(has_failed(&connection.0.link.borrow()));
    tokio::time::advance(2 * RECONNECT_PAUSE).await;
    connection.0.start_connecting();
    assert!(!has_failed(&connection.0.link.borrow()));
}

/// A caller that learns that another one has given up has heard nothing itself.
#[tokio::test]
async fn an_idle_node_that_hangs_is_silent_for_all_who_wake_it() {
    let (stand_still, connection) = standing_still_later().await;
    answered(&connection).await;
    tokio::time::sleep(IDLE).await;
    stand_still.send(()).unwrap();
    let question = question();
    let [mut first, mut second, mut third] =
        [(); 3].map(|()| Box::pin(connection.ask(&question, false)));
    for wakes in [&mut first, &mut second, &mut third] {
        assert!(poll!(wakes).is_pending());
    }
    tokio::time::sleep(HASTY).await;
    drop(first);
    for told in [&mut second, &mut third] {
        assert!(poll!(told).is_pending());
    }
    let node_down = connection.0.node_down.as_ref().unwrap();
    assert!(!node_down.is_down(), "for one who went away");
    // Once the new connection was waited for as long as any is.
    let is_found_out = async {
        while !node_down.is_down() {
            tokio::time::sleep(HASTY).await;
        }
    };
    let found_out = tokio::time::timeout(2 * CONNECT_TIMEOUT, is_found_out).await;
    assert!(found_out.is_ok(), "nobody finds out");
}

/// Whatever their reason to go, they did not wait long enough to show that the node does not
/// answer.
#[tokio::test]
async fn callers_who_go_away_do_not_make_an_idle_node_silent() {
    let (_goes_on, connection) = standing_still_later().await;
    let live = answered(&connection).await;
    tokio::time::sleep(DOWN_AFTER).await;
    let question = question();
    for _ in 0..MOST_UNANSWERED {
        let mut goes_away = Box::pin(connection.ask(&question, false));
        assert!(poll!(&mut goes_away).is_pending());
    }
    let now = answered(&connection).await;
    assert!(Arc::ptr_eq(&live, &now), "connected anew");
}

/// All of them go before it can answer, and for longer than it would be waited for.
#[tokio::test(start_paused = true)]
async fn a_node_that_answers_is_not_silent_however_many_callers_leave() {
    let (_goes_on, connection) = answering_after(DOWN_AFTER / 10).await;
    let live = answered(&connection).await;
    let (question, started) = (question(), Instant::now());
    while started.elapsed() < 2 * DOWN_AFTER {
        let goes_away = tokio::time::timeout(DOWN_AFTER / 100, connection.ask(&question, false));
        assert!(goes_away.await.is_err(), "refused");
    }
    assert!(
        Arc::ptr_eq(&live, &connection.0.live().unwrap()),
        "connected anew"
    );
}

/// Before it counts as idle.
#[tokio::test]
async fn no_question_goes_over_a_connection_that_has_gone_silent() {
    let (stand_still, connection) = standing_still_later().await;
    answered(&connection).await;
    stand_still.send(()).unwrap();
    tokio::time::pause();
    let question = question();
    for _ in 0..MOST_UNANSWERED {
        let mut given_up = Box::pin(connection.ask(&question, false));
        assert!(poll!(&mut given_up).is_pending());
    }
    tokio::time::advance(DOWN_AFTER).await;
    assert!(connection.0.live().is_none());
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn one_task_wakes_a_connection_for_all_callers() {
    let (_hung, connector) = hung_server().await;
    let connection = ReconnectingConnection::new(connector, Prefix::default(), &Handle::current());
    for _ in 0..2 {
        let before = tasks();
        for _ in 0..100 {
            connection.warm_up();
        }
        assert_eq!(tasks(), before + 1);
        tokio::time::sleep(IDLE + HASTY).await;
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_wakes_a_silent_node() {
    let (_hung, connection) = hung().await;
    let node_down = connection.0.node_down.as_ref().unwrap();
    while !node_down.is_down() {
        is_refused(&connection).await;
    }
    let before = tasks();
    connection.warm_up();
    assert_eq!(tasks(), before);
}

/// Otherwise it would be connected to for as long as it hangs, even after its store is gone.
#[tokio::test(start_paused = true)]
async fn a_silent_node_is_left_alone_once_nobody_asks() {
    let (_hung, connection) = hung().await;
    while !is_refused(&connection).await {}
    drop(connection);
    let left_alone = async {
        while tasks() > 0 {
            tokio::time::sleep(HASTY).await;
        }
    };
    let left_alone = tokio::time::timeout(Duration::from_secs(60), left_alone).await;
    assert!(left_alone.is_ok(), "{} tasks", tasks());
}
