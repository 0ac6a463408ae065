//! Finds out that the master has a successor while it still answers as a master. In a planned
//! failover, Sentinel promotes a replica first and demotes the former master up to ten seconds
//! later. What the former master counts in between is lost.
//!
//! The Sentinels are polled, without a subscription to `+switch-master`. A subscription needs further
//! permissions, misses messages while it is broken, and comes later: a Sentinel names the new master
//! as soon as it is promoted.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::Masters;
use super::asked::ServerName;
use crate::store::redis::connection::client::{CONNECT_TIMEOUT, pause};
use crate::store::redis::connection::probe::{Made, Probe};

/// The server behind a connection.
pub(in crate::store::redis::connection) struct Master {
    masters: Arc<Masters>,
    name: ServerName,
}

impl Master {
    pub(in crate::store::redis::connection) fn new(
        masters: &Arc<Masters>,
        name: ServerName,
    ) -> Self {
        Self {
            masters: Arc::clone(masters),
            name,
        }
    }

    /// Waits until more Sentinels name another server than name this one, and that server can be
    /// reached and is not a replica. So a Sentinel that is cut off from the others, and keeps
    /// naming a former master, is outvoted.
    ///
    /// `None` if the runtime is shutting down.
    pub(in crate::store::redis::connection) async fn successor(
        &self,
        probe: &Probe,
    ) -> Option<(Made, Self)> {
        let masters = &self.masters;
        // Until it is asked, a Sentinel counts as naming the server in use. One that does not answer
        // names none.
        let mut named = vec![Some(self.name.clone()); masters.sentinels.len()];
        let mut asking = JoinSet::new();
        for place in 0..named.len() {
            asking.spawn(Arc::clone(masters).ask_after_a_pause(place));
        }
        while let Some(asked) = asking.join_next().await {
            let (place, names) = asked.ok()?;
            named[place] = names;
            asking.spawn(Arc::clone(masters).ask_after_a_pause(place));
            let successors = named_more_often(&named, &self.name);
            if successors.is_empty() {
                continue;
            }
            for name in successors {
                if let Ok(made) = masters.connect_to(&name, probe).await {
                    return Some((made, Self::new(masters, name)));
                }
            }
            // Those who have answered meanwhile do not have it tried again at once.
            tokio::time::sleep(pause()).await;
        }
        None
    }
}

impl fmt::Display for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl Masters {
    /// What this Sentinel names then. Each is asked at its own pace, so that one that hangs holds up
    /// no other.
    async fn ask_after_a_pause(self: Arc<Self>, place: usize) -> (usize, Option<ServerName>) {
        tokio::time::sleep(pause()).await;
        let named = self.ask(&self.sentinels[place], CONNECT_TIMEOUT).await;
        (place, named.ok())
    }
}

/// The servers that are named more often than this one, the most often named first.
fn named_more_often(named: &[Option<ServerName>], than: &ServerName) -> Vec<ServerName> {
    let count = |server: &ServerName| named.iter().flatten().filter(|it| *it == server).count();
    let mut servers: Vec<_> = named.iter().flatten().cloned().collect();
    servers.retain(|server| count(server) > count(than));
    servers.sort_by_key(|server| (Reverse(count(server)), server.to_string()));
    servers.dedup();
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is named more often than `old`, each server as one character.
    fn successors(named: &str) -> String {
        let server = |name: char| ServerName::from((name.to_string(), 6379));
        let named: Vec<_> = named
            .chars()
            .map(|name| (name != '-').then(|| server(name)))
            .collect();
        let successors = named_more_often(&named, &server('o'));
        successors
            .iter()
            .map(|server| server.host.as_str())
            .collect()
    }

    #[test]
    fn a_server_succeeds_if_more_sentinels_name_it_than_name_the_one_in_use() {
        for (named, expected) in [
            ("o", ""),
            ("n", "n"),
            ("-", ""),
            ("on", ""),
            ("-n", "n"),
            ("oon", ""),
            ("onn", "n"),
            ("o-n", ""),
            ("--n", "n"),
            ("snn", "ns"),
            ("sno", ""),
            ("ssonn", "ns"),
        ] {
            assert_eq!(successors(named), expected, "{named}");
        }
    }
}
