use std::time::Duration;

use redis::IntoConnectionInfo;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::time::{advance, sleep};

use super::*;
use crate::algorithm::Action;
use crate::limit::Limit;
use crate::store::redis::connection::{Connector, Handshake};
use crate::store::redis::settings::Settings;
use crate::store::redis::takes::Take;
use crate::store::redis::waits::Waits;
use crate::store::{Check, PolicyId};
use crate::time::{MINUTE, Micros};

const PATIENCE: Duration = Waits::USUAL.for_trips;

fn server_at(address: &str) -> Server {
    let address = format!("redis://{address}").into_connection_info().unwrap();
    let connector = Connector::to(address, &Handshake::default()).unwrap();
    let settings = Settings::usual(connector, "");
    Server::of(&Server::spread(&settings, &Handle::current(), None))
}

/// A take of a key that has its own stop.
fn take(key: u64) -> Box<Take> {
    let policy = PolicyId::new("policy");
    let check = Check::of(
        &policy,
        key,
        &Limit::sliding_log(9, MINUTE),
        Action::spend(1),
    );
    Take::of(&[check], Micros::ZERO).unwrap()
}

fn goes(server: &Server, key: u64) -> Option<Trip<Take>> {
    match SharedTrips::enter(server, take(key)) {
        Turn::Go(trip, _) => Some(trip),
        Turn::Wait(_) => None,
    }
}

fn waits(server: &Server, key: u64) -> Turned<Take> {
    match SharedTrips::enter(server, take(key)) {
        Turn::Go(..) => panic!("it goes alone"),
        Turn::Wait(turned) => turned,
    }
}

#[tokio::test(start_paused = true)]
async fn no_stop_is_left_of_keys_that_nobody_asks_about_any_more() {
    let server = server_at("127.0.0.1:1");
    for key in 0..1_000 {
        let alone = goes(&server, key);
        let behind = waits(&server, key);
        drop(alone);
        // Nobody is there to answer.
        assert!(matches!(behind.told(&server).await, Ok(Told::Failed(_))));
    }
    for shard in &server.trips().of_takes.shards {
        assert_eq!(shard.lock().unwrap().stops.len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_return_to_a_deserted_stop_ends_no_trip_of_others() {
    let server = server_at("127.0.0.1:1");
    let late = goes(&server, 1);
    advance(PATIENCE).await;
    drop(goes(&server, 1).unwrap());
    let under_way = goes(&server, 1).unwrap();
    drop(late.unwrap());
    assert!(goes(&server, 1).is_none());
    drop(under_way);
    assert!(goes(&server, 1).is_some());
}

/// Nobody else who waits on its runtime has a timer for it.
#[tokio::test(start_paused = true)]
async fn a_shared_trip_has_a_timer_of_its_own_for_being_late() {
    let hung = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = server_at(&hung.local_addr().unwrap().to_string());
    let alone = goes(&server, 1);
    let _shared = waits(&server, 1);
    drop(alone);
    let behind = waits(&server, 1);
    assert_eq!(behind.sees_at, None);
    let under_way = server.trips().of_takes.late_at(behind.stop_id);
    sleep(PATIENCE + PATIENCE).await;
    let next = server.trips().of_takes.late_at(behind.stop_id);
    assert!(next > under_way, "{next:?}");
}
