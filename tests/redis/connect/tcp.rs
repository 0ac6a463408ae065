//! The options of the sockets to servers. None of them shows in a server's answers.
#![cfg(target_os = "linux")]
// A socket that the client holds is only reached by its number.
#![allow(unsafe_code)]

use std::fs;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use redis::io::tcp::socket2::SockRef;
use tower_throttle::{RedisStore, SECOND};

use support::cluster::Cluster;
use support::redis::Server;
use support::sentinel::Watched;

/// The numbers of this process's sockets that are connected to this port.
fn sockets_to(port: u16) -> Vec<i32> {
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
    let of_row = |row: &str| {
        let columns: Vec<_> = row.split_whitespace().collect();
        let is_there = columns[2].ends_with(&format!(":{port:04X}"));
        is_there.then(|| format!("socket:[{}]", columns[9]))
    };
    let sockets: Vec<_> = table.lines().skip(1).filter_map(of_row).collect();
    let files = fs::read_dir("/proc/self/fd").unwrap();
    let of_file = |file: std::io::Result<fs::DirEntry>| {
        let file = file.ok()?;
        // It may have been closed meanwhile, by another test.
        let leads_to = fs::read_link(file.path()).ok()?;
        let is_one = sockets
            .iter()
            .any(|socket| leads_to.as_os_str() == &**socket);
        is_one.then(|| file.file_name().to_str().unwrap().parse().unwrap())
    };
    files.filter_map(of_file).collect()
}

/// A question is sent at once, an idle connection is probed, and one whose data nobody acknowledges
/// breaks.
fn assert_set(port: u16) {
    let sockets = sockets_to(port);
    assert!(!sockets.is_empty(), "no connection to {port}");
    for socket in sockets {
        // SAFETY: the store of the test holds the connection until the test ends.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        let socket = SockRef::from(&socket);
        assert!(socket.tcp_nodelay().unwrap());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), 30 * SECOND);
        let unacknowledged = socket.tcp_user_timeout().unwrap();
        assert_eq!(unacknowledged, Some(Duration::from_secs(5)));
    }
}

#[tokio::test]
async fn connections_have_the_tcp_options_that_questions_need() {
    let server = Server::start();
    let _store = RedisStore::connect(&server.url()).await.unwrap();
    assert_set(server.port());
}

#[tokio::test]
async fn a_master_that_sentinel_names_is_connected_to_with_them() {
    let watched = Watched::start_with(&[], "");
    let _store = RedisStore::connect(&watched.url()).await.unwrap();
    assert_set(watched.master.port());
}

#[tokio::test]
async fn each_node_of_a_cluster_is_connected_to_with_them() {
    let cluster = Cluster::start();
    let _store = cluster.patient().connect().await.unwrap();
    for master in &cluster.masters {
        assert_set(master.port());
    }
}
