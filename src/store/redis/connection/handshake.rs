//! `Handshake`: how a connection begins, with TLS and a login.

use std::collections::HashMap;
use std::net::SocketAddr;

use redis::aio::MultiplexedConnection;
use redis::io::AsyncDNSResolver;
use redis::{Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisFuture, RedisResult, Value};

use super::client::{config, with_our_settings};
use super::credentials::{LoggedIn, RedisCredentials};
use super::tls::Tls;
use crate::error::StoreError;

/// How connections to the servers of a store begin. Clones share the credentials.
#[derive(Clone, Default)]
pub(in crate::store::redis) struct Handshake {
    pub(in crate::store::redis) tls: Tls,
    /// In place of the login in the URL.
    pub(in crate::store::redis) credentials: Option<RedisCredentials>,
}

/// A connection that is logged in.
pub(super) struct Connected {
    pub(super) connection: MultiplexedConnection,
    /// Keeps it logged in with credentials that may change.
    pub(super) logged_in: Option<LoggedIn>,
}

impl Handshake {
    /// The server with all settings that cannot change.
    ///
    /// # Errors
    ///
    /// If a TLS setting cannot be used.
    pub(in crate::store::redis) fn prepare(
        &self,
        server: ConnectionInfo,
    ) -> Result<ConnectionInfo, StoreError> {
        self.tls.apply(with_our_settings(server))
    }

    /// Connects to a server that was prepared, with the newest credentials.
    pub(super) async fn connect(&self, server: &ConnectionInfo) -> RedisResult<Connected> {
        let mut server = server.clone();
        let mut logins = self.credentials.as_ref().map(RedisCredentials::subscribe);
        if let Some(logins) = &mut logins {
            let login = logins.borrow_and_update();
            let settings = login.apply(server.redis_settings());
            server = server.set_redis_settings(settings);
        }
        let mut config = config();
        let mut address = server.addr().clone();
        if let Some(name) = &self.tls.server_name
            && let ConnectionAddr::TcpTls { host, .. } = &mut address
        {
            // The client checks the certificate for the name that it connects to.
            config = config.set_dns_resolver(LeadingTo(std::mem::replace(host, name.clone())));
            server = server.set_addr(address);
        }
        let client = Client::open(server)?;
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let connection = connecting.await?;
        let logged_in = logins.map(|logins| LoggedIn::keep(connection.clone(), logins));
        Ok(Connected {
            connection,
            logged_in,
        })
    }
}

/// Whether the connection is to a replica. Every user may call HELLO, while ROLE needs a permission.
pub(super) async fn is_replica(connection: &mut MultiplexedConnection) -> RedisResult<bool> {
    let about: RedisResult<HashMap<String, Value>> =
        redis::cmd("HELLO").query_async(connection).await;
    match about {
        Ok(about) => Ok(about.get("role") == Some(&Value::BulkString(b"replica".into()))),
        // The first question will get the same error, with its remedy.
        Err(error) if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Finds every name at this host.
struct LeadingTo(String);

impl AsyncDNSResolver for LeadingTo {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _name: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((self.0.as_str(), port)).await?;
            Ok(Box::new(found.collect::<Vec<_>>().into_iter()) as Box<_>)
        })
    }
}
