//! Users of a server, and who is logged in as which.

use std::time::{Duration, Instant};

use tower_throttle::MINUTE;

use super::redis::Server;

/// Has these users, each with all rights and its name as its password.
pub fn let_in(server: &Server, users: &[&str]) {
    for user in users {
        let password = format!(">{user}");
        let rights = ["on", &password, "~*", "+@all"];
        server.query::<()>(("ACL", "SETUSER", *user, "reset", &rights[..]));
    }
}

/// The ids of the connections of this user.
pub fn connections_of(server: &Server, user: &str) -> Vec<String> {
    ids_of(user, &server.query::<String>(("CLIENT", "LIST")))
}

/// The same, by the lines of `CLIENT LIST`.
pub fn ids_of(user: &str, list: &str) -> Vec<String> {
    let of_user = format!(" user={user} ");
    let lines = list.lines().filter(|line| line.contains(&of_user));
    let ids = lines.map(|line| line.split(' ').next().unwrap().to_owned());
    ids.collect()
}

/// Lets the tasks of this thread's runtime go on meanwhile.
pub async fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < MINUTE, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
