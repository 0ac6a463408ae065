//! Reads the URL, which says where the servers are, before anything is connected.

use std::fmt::{self, Display as _};

use redis::{ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

const EXPECTED: &str = "redis://[user:password@]host[:port][/database], rediss:// for TLS, \
                        redis+unix:///path/to.sock[?db=0&user=u&pass=p], \
                        redis-cluster://[user:password@]host:port,host:port or \
                        redis-sentinel://[user:password@]host:port,host:port/master-name\
                        [?sentinel_user=u&sentinel_password=p], or the same with valkey in place of redis";

/// The default port of Sentinels.
const SENTINEL_PORT: &str = "26379";

/// The servers that a URL names.
pub(in crate::store::redis) enum Address {
    Server(ConnectionInfo),
    Sentinels(Sentinels),
    /// Some nodes of a cluster, which know the others.
    Cluster(Vec<ConnectionInfo>),
}

/// Sentinels, and the master to ask them for.
pub(in crate::store::redis) struct Sentinels {
    pub(super) sentinels: Vec<ConnectionInfo>,
    pub(super) master: String,
    /// How to log in to the master. A Sentinel has users of its own.
    pub(super) login: RedisConnectionInfo,
    pub(super) is_tls: bool,
}

impl Address {
    /// # Errors
    ///
    /// Names the expected form. The URL may contain a password, so it never appears in an error.
    pub(in crate::store::redis) fn parse(url: &str) -> Result<Self, String> {
        Self::read(url)
            .map_err(|why| format!("the store's URL cannot be used ({why}), expected {EXPECTED}"))
    }

    fn read(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("it has no scheme")?;
        if url.contains('#') {
            return Err("it contains a #, which is written %23 in a password".to_owned());
        }
        // The same protocol by another name.
        let scheme = match scheme.strip_prefix("valkey") {
            Some(way) => &format!("redis{way}"),
            None => scheme,
        };
        let is_tls = scheme.starts_with("rediss");
        if is_tls && !cfg!(feature = "redis-tls") {
            return Err(format!(
                "{scheme}:// needs the feature \"redis-tls\" of tower-throttle"
            ));
        }
        match scheme {
            "redis" | "rediss" => {
                let server = connection(url)?;
                let only = "its only option is protocol, and a database is given as /3";
                only_options(rest, &["protocol"], only)?;
                Ok(Self::Server(server))
            }
            "redis+unix" | "unix" => {
                let server = connection(url)?;
                let only = "its options are db, user, pass and protocol";
                only_options(rest, &["db", "user", "pass", "protocol"], only)?;
                Ok(Self::Server(server))
            }
            "redis-cluster" | "rediss-cluster" => Several::split(rest)?.cluster(is_tls),
            "redis-sentinel" | "rediss-sentinel" => Several::split(rest)?.sentinels(is_tls),
            _ => Err("its scheme is unknown".to_owned()),
        }
    }
}

/// The servers as logs call them, without logins.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => write!(f, "Redis at {}", server.addr()),
            Self::Sentinels(named) => {
                write!(f, "Redis, master {:?} of the Sentinels at ", named.master)?;
                list(f, &named.sentinels)
            }
            Self::Cluster(nodes) => {
                f.write_str("the Redis cluster of ")?;
                list(f, nodes)
            }
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, servers: &[ConnectionInfo]) -> fmt::Result {
    for (position, server) in servers.iter().enumerate() {
        f.write_str(if position == 0 { "" } else { ", " })?;
        server.addr().fmt(f)?;
    }
    Ok(())
}

/// Refuses options that the client would ignore: `?db=3` would count in database 0.
fn only_options(rest: &str, known: &[&str], only: &str) -> Result<(), String> {
    let (_, options) = rest.split_once('?').unwrap_or_default();
    let names = options
        .split('&')
        .filter_map(|option| option.split('=').next());
    let mut named = names.filter(|name| !name.is_empty());
    match named.all(|name| known.contains(&name)) {
        true => Ok(()),
        // The unknown option is not shown, as it may be part of a password.
        false => Err(only.to_owned()),
    }
}

/// The part after the scheme, if several servers are named.
struct Several<'a> {
    /// `user:password`.
    login: Option<&'a str>,
    servers: &'a str,
    path: &'a str,
    /// The part after a question mark.
    options: Option<&'a str>,
}

impl<'a> Several<'a> {
    fn split(rest: &'a str) -> Result<Self, String> {
        let (rest, options) = match rest.split_once('?') {
            Some((rest, options)) => (rest, Some(options)),
            None => (rest, None),
        };
        let (servers, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, servers) = match servers.rsplit_once('@') {
            Some((login, servers)) => (Some(login), servers),
            None => (None, servers),
        };
        // An unescaped @ or / would make part of a password a server, or the master's name.
        if path.contains('@') || login.is_some_and(|login| login.contains('@')) {
            return Err(
                "user:password@ is given once, before all servers, with %40 for @ and %2F for /"
                    .to_owned(),
            );
        }
        Ok(Self {
            login,
            servers,
            path,
            options,
        })
    }

    fn cluster(&self, is_tls: bool) -> Result<Address, String> {
        if !matches!(self.path, "" | "0") {
            return Err("a cluster has only database 0".to_owned());
        }
        if self.options.is_some() {
            return Err("a cluster's URL has no options".to_owned());
        }
        let nodes = self.each(|server| url(is_tls, self.login, server, ""))?;
        Ok(Address::Cluster(nodes))
    }

    fn sentinels(&self, is_tls: bool) -> Result<Address, String> {
        let (master, database) = self.path.split_once('/').unwrap_or((self.path, ""));
        if master.is_empty() {
            return Err("the name of the master is missing".to_owned());
        }
        let login = self.sentinels_login()?;
        let sentinels = self.each(|server| {
            let port = if has_port(server) { "" } else { SENTINEL_PORT };
            let colon = if port.is_empty() { "" } else { ":" };
            url(
                is_tls,
                login.as_deref(),
                &format!("{server}{colon}{port}"),
                "",
            )
        })?;
        // The host is unused, as Sentinel names it.
        let server = connection(&url(false, self.login, "localhost", database))?;
        Ok(Address::Sentinels(Sentinels {
            sentinels,
            master: master.to_owned(),
            login: server.redis_settings().clone(),
            is_tls,
        }))
    }

    /// The login for the Sentinels themselves, in the form of a URL.
    fn sentinels_login(&self) -> Result<Option<String>, String> {
        let (mut user, mut password) = ("", None);
        for option in self
            .options
            .into_iter()
            .flat_map(|options| options.split('&'))
        {
            match option.split_once('=') {
                Some(("sentinel_user", value)) => user = value,
                Some(("sentinel_password", value)) => password = Some(value),
                _ => {
                    return Err("its options are sentinel_user and sentinel_password".to_owned());
                }
            }
        }
        match password {
            Some(password) => Ok(Some(format!("{user}:{password}"))),
            None if user.is_empty() => Ok(None),
            None => Err("there is a sentinel_user without a sentinel_password".to_owned()),
        }
    }

    fn each(&self, url: impl Fn(&str) -> String) -> Result<Vec<ConnectionInfo>, String> {
        let servers = self.servers.split(',');
        servers.map(|server| connection(&url(server))).collect()
    }
}

fn url(is_tls: bool, login: Option<&str>, server: &str, database: &str) -> String {
    let scheme = if is_tls { "rediss" } else { "redis" };
    let at = if login.is_some() { "@" } else { "" };
    let login = login.unwrap_or_default();
    format!("{scheme}://{login}{at}{server}/{database}")
}

/// Whether a port follows the host, which may be an IPv6 address in brackets.
fn has_port(server: &str) -> bool {
    let host_end = server.rfind(']').unwrap_or(0);
    server[host_end..].contains(':')
}

fn connection(url: &str) -> Result<ConnectionInfo, String> {
    let server = url.into_connection_info().map_err(|error| {
        let text = error.to_string();
        // What follows is a part of the URL.
        let (what, _not_shown) = text.split_once(": ").unwrap_or((&text, ""));
        what.to_owned()
    })?;
    let login = server.redis_settings();
    // The client logs nobody in without a password: commands would be those of the default user.
    if login.username().is_some() && login.password().is_none() {
        let login = login.clone().set_password("");
        return Ok(server.set_redis_settings(login));
    }
    Ok(server)
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "redis-tls")]
    use redis::ConnectionAddr;
    use redis::ProtocolVersion;

    use super::*;

    fn sentinels(url: &str) -> Sentinels {
        match Address::parse(url) {
            Ok(Address::Sentinels(sentinels)) => sentinels,
            _ => panic!("{url} names no sentinels"),
        }
    }

    fn nodes(url: &str) -> Vec<ConnectionInfo> {
        match Address::parse(url) {
            Ok(Address::Cluster(nodes)) => nodes,
            _ => panic!("{url} names no cluster"),
        }
    }

    #[test]
    fn a_sentinel_url_names_sentinels_master_login_and_database() {
        let read = sentinels(
            "redis-sentinel://me:p%40ss@one,two:1,[::1],[::2]:2/main/3?sentinel_password=s",
        );
        let addresses = read.sentinels.iter().map(|info| info.addr().to_string());
        assert_eq!(
            addresses.collect::<Vec<_>>(),
            ["one:26379", "two:1", "::1:26379", "::2:2"]
        );
        assert_eq!(read.master, "main");
        assert_eq!(read.login.username(), Some("me"));
        assert_eq!(read.login.password(), Some("p@ss"));
        assert_eq!(read.login.db(), 3);
        let login = read.sentinels[0].redis_settings();
        assert_eq!((login.username(), login.password()), (None, Some("s")));
    }

    #[test]
    fn the_servers_password_is_not_sent_to_the_sentinels() {
        let read = sentinels("redis-sentinel://:secret@one/main");
        assert_eq!(read.sentinels[0].redis_settings().password(), None);
    }

    #[test]
    fn a_cluster_url_names_nodes_that_share_the_login() {
        for path in ["", "/", "/0"] {
            let nodes = nodes(&format!("redis-cluster://:secret@one:1,two{path}"));
            let addresses = nodes.iter().map(|info| info.addr().to_string());
            assert_eq!(addresses.collect::<Vec<_>>(), ["one:1", "two:6379"]);
            for node in nodes {
                assert_eq!(node.redis_settings().password(), Some("secret"));
            }
        }
    }

    #[cfg(feature = "redis-tls")]
    #[test]
    fn every_server_that_a_tls_url_names_is_reached_by_tls() {
        let is_tls = |info: &ConnectionInfo| matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        for scheme in ["rediss", "valkeys"] {
            let nodes = nodes(&format!("{scheme}-cluster://one,two"));
            assert!(nodes.iter().all(is_tls), "{scheme}");
            let read = sentinels(&format!("{scheme}-sentinel://one,two/main"));
            assert!(read.is_tls && read.sentinels.iter().all(is_tls), "{scheme}");
        }
    }

    #[test]
    fn a_wrong_url_is_refused_without_its_secret() {
        for (url, why) in [
            ("hunter2", "no scheme"),
            ("http://:hunter2@host", "its scheme is unknown"),
            ("redis://:hunter2#x@host", "%23"),
            ("redis-cluster://:hunter2@host/1", "only database 0"),
            ("redis-cluster://:hunter2@host,", "host"),
            ("redis-cluster://host?password=hunter2", "no options"),
            ("redis-sentinel://:hunter2@host", "name of the master"),
            ("redis-sentinel://me:1/hunter2@host/main", "%2F"),
            ("redis-cluster://:hunter2@one,:hunter2@two", "before all"),
            (
                "redis-sentinel://host/main?password=hunter2",
                "sentinel_password",
            ),
            (
                "redis-sentinel://host/main?sentinel_user=hunter2",
                "without a sentinel_password",
            ),
            ("redis-sentinel://host/hunter2/main/3", "database"),
            ("redis://:hunter2@host?db=3", "a database is given as /3"),
            ("redis://host/?database=3", "a database is given as /3"),
            ("redis://host/5?protocol=3&timeout=2s", "is protocol"),
            ("redis://host?hunter2", "is protocol"),
            (
                "redis://host?protocol=3;password=hunter2",
                "protocol version",
            ),
            ("redis+unix:///s?db=3&passwd=hunter2", "db, user, pass and"),
            ("unix:///s?database=3", "db, user, pass and"),
        ] {
            let error = Address::parse(url).err().unwrap();
            assert!(error.contains(why), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn logs_call_servers_by_their_addresses_without_logins() {
        for (url, name) in [
            ("redis://me:hunter2@h:1/3", "Redis at h:1"),
            ("redis+unix:///s?user=me&pass=hunter2", "Redis at /s"),
            (
                "redis-sentinel://me:hunter2@h,i:2/main?sentinel_password=hunter2",
                "Redis, master \"main\" of the Sentinels at h:26379, i:2",
            ),
            (
                "redis-cluster://me:hunter2@h:1,i:2",
                "the Redis cluster of h:1, i:2",
            ),
        ] {
            let address = Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(address.to_string(), name);
        }
    }

    #[test]
    fn known_options_are_applied() {
        let server = |url: &str| match Address::parse(url) {
            Ok(Address::Server(server)) => server.redis_settings().clone(),
            _ => panic!("{url} names no server"),
        };
        let resp3 = server("redis://host/3?protocol=3");
        assert_eq!((resp3.db(), resp3.protocol()), (3, ProtocolVersion::RESP3));
        assert_eq!(server("redis://host?").db(), 0);
        let socket = server("redis+unix:///s?db=3&user=u&pass=p&protocol=resp2");
        assert_eq!(
            (socket.db(), socket.protocol()),
            (3, ProtocolVersion::RESP2)
        );
        assert_eq!(
            (socket.username(), socket.password()),
            (Some("u"), Some("p"))
        );
    }

    #[test]
    fn valkey_is_reached_as_redis_is() {
        let server = |url: &str| match Address::parse(url) {
            Ok(Address::Server(server)) => server.addr().clone(),
            _ => panic!("{url} names no server"),
        };
        for way in ["://host:1/2", "+unix:///s?db=2"] {
            let [redis, valkey] = ["redis", "valkey"].map(|name| server(&format!("{name}{way}")));
            assert_eq!(redis, valkey);
        }
        assert_eq!(nodes("valkey-cluster://one,two").len(), 2);
        assert_eq!(sentinels("valkey-sentinel://one/main").master, "main");
        #[cfg(feature = "redis-tls")]
        assert_eq!(server("valkeys://host"), server("rediss://host"));
        for url in ["valkeyy://host", "valkeys-sentinels://host/main"] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
    }

    #[cfg(not(feature = "redis-tls"))]
    #[test]
    fn tls_names_the_feature_that_is_missing() {
        for scheme in ["rediss", "rediss-cluster", "rediss-sentinel"] {
            let error = Address::parse(&format!("{scheme}://host/main"))
                .err()
                .unwrap();
            assert!(error.contains("\"redis-tls\""), "{error}");
        }
    }
}
