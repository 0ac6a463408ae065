//! Errors for URLs that lead elsewhere than they say, or nowhere.

use futures_util::future::join_all;
use tower_throttle::{RedisStore, RedisStoreBuilder, StoreErrorKind};

use crate::connect::{server_on_a_socket, text_of};
use support::proxy::{Proxy, Way};
use support::redis::{Server, free_port};
use support::sentinel::Watched;

/// A server, a cluster node and a Sentinel on this port, with a scheme that begins so.
pub(crate) fn each_way(scheme: &str, port: u16) -> [RedisStoreBuilder; 3] {
    [
        format!("{scheme}://127.0.0.1:{port}"),
        format!("{scheme}-cluster://127.0.0.1:{port}"),
        format!("{scheme}-sentinel://127.0.0.1:{port}/main"),
    ]
    .map(|url| RedisStore::builder(&url))
}

/// A server on this port, through a pool that waits for ever.
fn by_patient_pool(port: u16) -> RedisStoreBuilder {
    let patient = redis::AsyncConnectionConfig::new().set_connection_timeout(None);
    let url = format!("redis://127.0.0.1:{port}");
    let manager = deadpool_redis::Manager::new_with_config(url, patient).unwrap();
    let pool = deadpool_redis::Pool::builder(manager).build().unwrap();
    RedisStore::builder_over_pool(pool)
}

/// The error of each; the fourth goes through a pool.
async fn texts_of_each_way(port: u16, kind: StoreErrorKind) -> Vec<String> {
    let builders = each_way("redis", port)
        .into_iter()
        .chain([by_patient_pool(port)]);
    let connected = join_all(builders.map(RedisStoreBuilder::connect)).await;
    let errors = connected.into_iter().map(Result::unwrap_err);
    errors
        .map(|error| {
            assert_eq!(error.kind(), kind, "{}", text_of(&error));
            text_of(&error)
        })
        .collect()
}

#[tokio::test]
async fn sentinels_and_servers_behind_wrong_urls_are_recognized() {
    let watched = Watched::start_with(&[], "");
    let [server, cluster, _] = each_way("redis", watched.sentinel_port());
    let [_, _, sentinel] = each_way("redis", watched.master.port());
    for (builder, advice) in [
        (server, "it is a Sentinel: use redis-sentinel://"),
        (cluster, "it is a Sentinel: use redis-sentinel://"),
        (sentinel, "the server is not a Sentinel"),
    ] {
        let error = builder.connect().await.unwrap_err();
        let told = text_of(&error);
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{told}");
        assert!(told.contains(advice), "{told}");
    }
}

/// The login in front of the servers is the master's.
#[tokio::test]
async fn a_missing_sentinel_login_is_explained_by_url_options() {
    let watched = Watched::start_with(&[], "requirepass other");
    let url = watched.url();
    for options in ["", "?sentinel_password=hunter2"] {
        let error = RedisStore::connect(&format!("{url}{options}")).await;
        let error = error.unwrap_err();
        let told = text_of(&error);
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{told}");
        assert!(
            told.contains("sentinel_user=u&sentinel_password=p"),
            "{told}"
        );
        assert!(!told.contains("user:password@"), "{told}");
    }
}

/// A socket's URL has no place for a login in front of the host.
#[tokio::test]
async fn a_missing_login_on_a_socket_is_explained_by_the_urls_options() {
    let (_server, path, _directory) = server_on_a_socket(&["--requirepass", "hunter2"]);
    for login in ["", ":hunter2@"] {
        let connected = RedisStore::connect(&format!("redis+unix://{login}{path}")).await;
        let told = text_of(&connected.unwrap_err());
        assert!(told.contains("user=u&pass=p"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
    let followed = RedisStore::connect(&format!("redis+unix://{path}?pass=hunter2")).await;
    assert!(followed.is_ok());
}

/// As a server in protected mode does, or one that speaks TLS, or a load balancer without a server.
#[tokio::test]
async fn a_server_that_closes_every_connection_is_recognized() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    proxy.set(Way::Close);
    for told in texts_of_each_way(proxy.port(), StoreErrorKind::Unreachable).await {
        for word in ["closed the connection", "rediss", "protected-mode"] {
            assert!(told.contains(word), "{told}");
        }
    }
}

#[tokio::test]
async fn a_server_that_hangs_is_recognized() {
    let server = Server::start();
    server.signal("STOP");
    let told = texts_of_each_way(server.port(), StoreErrorKind::Unreachable).await;
    server.signal("CONT");
    for told in told {
        for word in ["did not answer in time", "hang", "can be reached", "rediss"] {
            assert!(told.contains(word), "{told}");
        }
    }
}

/// Neither the URL nor the way there is wrong: the login was answered.
#[tokio::test]
async fn a_server_that_runs_no_script_is_recognized() {
    let server = Server::start();
    server.query::<()>(("CLIENT", "PAUSE", 60_000, "WRITE"));
    let error = server.builder().connect().await.unwrap_err();
    let told = text_of(&error);
    assert_eq!(error.kind(), StoreErrorKind::TimedOut, "{told}");
    for word in ["accepted the connection", "CLIENT PAUSE"] {
        assert!(told.contains(word), "{told}");
    }
    assert!(!told.contains("rediss"), "{told}");
}

#[tokio::test]
async fn a_server_that_is_no_redis_is_recognized() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    proxy.set(Way::Garble(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    for told in texts_of_each_way(proxy.port(), StoreErrorKind::BadReply).await {
        for word in ["check the host and the port", "rediss"] {
            assert!(told.contains(word), "{told}");
        }
    }
}

/// No advice about what listens there: nobody does.
#[tokio::test]
async fn a_refused_connection_gets_no_advice() {
    for told in texts_of_each_way(free_port(), StoreErrorKind::Unreachable).await {
        assert!(told.contains("refused"), "{told}");
        assert!(!told.contains("rediss"), "{told}");
    }
}
