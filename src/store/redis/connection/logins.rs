//! `Logins`: the logins of a URL, which a reload may replace.

use redis::{ConnectionInfo, RedisConnectionInfo};

use super::address::Address;
use super::credentials::{Login, RedisCredentials};

/// The logins of a URL, which a reload of its file may replace. Clones share them.
#[derive(Clone)]
pub(crate) struct Logins {
    pub(in crate::store::redis) servers: RedisCredentials,
    /// Sentinels have users of their own.
    pub(in crate::store::redis) sentinels: RedisCredentials,
}

impl Logins {
    /// # Errors
    ///
    /// Names the expected form, without showing a part of the URL.
    pub(crate) fn of(url: &str) -> Result<Self, String> {
        let (servers, sentinels) = match &Address::parse(url)? {
            Address::Server(server) => (login_of(server), Login::default()),
            Address::Cluster(nodes) => (login_of_first(nodes), Login::default()),
            Address::Sentinels(named) => {
                (Login::of(&named.login), login_of_first(&named.sentinels))
            }
        };
        Ok(Self {
            servers: RedisCredentials::of(servers),
            sentinels: RedisCredentials::of(sentinels),
        })
    }

    /// Whether two valid URLs differ only in their logins.
    pub(crate) fn are_for_same_servers(one: &str, other: &str) -> bool {
        match (Address::parse(one), Address::parse(other)) {
            (Ok(one), Ok(other)) => one.is_same_but_for_logins(&other),
            _ => false,
        }
    }

    /// Replaces them by the current `others`, on all connections.
    pub(crate) fn replace_by(&self, others: &Self) {
        self.servers.replace_by(&others.servers);
        self.sentinels.replace_by(&others.sentinels);
    }
}

fn login_of(server: &ConnectionInfo) -> Login {
    Login::of(server.redis_settings())
}

/// They share it.
fn login_of_first(servers: &[ConnectionInfo]) -> Login {
    servers.first().map(login_of).unwrap_or_default()
}

impl Address {
    fn is_same_but_for_logins(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Server(one), Self::Server(other)) => is_same_server(one, other),
            (Self::Cluster(one), Self::Cluster(other)) => are_same_servers(one, other),
            (Self::Sentinels(one), Self::Sentinels(other)) => {
                are_same_servers(&one.sentinels, &other.sentinels)
                    && one.master == other.master
                    && one.is_tls == other.is_tls
                    && are_same_settings(&one.login, &other.login)
            }
            _ => false,
        }
    }
}

fn are_same_servers(ones: &[ConnectionInfo], others: &[ConnectionInfo]) -> bool {
    let mut pairs = ones.iter().zip(others);
    ones.len() == others.len() && pairs.all(|(one, other)| is_same_server(one, other))
}

fn is_same_server(one: &ConnectionInfo, other: &ConnectionInfo) -> bool {
    one.addr() == other.addr() && are_same_settings(one.redis_settings(), other.redis_settings())
}

fn are_same_settings(one: &RedisConnectionInfo, other: &RedisConnectionInfo) -> bool {
    one.db() == other.db() && one.protocol() == other.protocol()
}
