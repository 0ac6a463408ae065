//! Sockets, users and databases.

use tower_throttle::{RedisStore, StoreErrorKind};

use crate::connect::{assert_counts, client_list, server_on_a_socket, text_of};
use support::redis::Server;
use support::rights::{USER, documented_rights, set_right, user_with};

#[tokio::test]
async fn a_unix_socket_is_connected_to() {
    let (server, path, _directory) = server_on_a_socket(&[]);
    let store = RedisStore::connect(&format!("redis+unix://{path}")).await;
    assert_counts(store.unwrap()).await;
    assert_eq!(server.keys().len(), 1);
}

#[tokio::test]
async fn valkey_may_stand_in_place_of_redis() {
    let server = Server::start();
    let url = format!("valkey://127.0.0.1:{}", server.port());
    assert_counts(RedisStore::connect(&url).await.unwrap()).await;
    assert_eq!(server.keys().len(), 1);
}

#[tokio::test]
async fn the_database_of_the_url_is_counted_in() {
    let server = Server::start();
    let store = RedisStore::connect(&format!("{}/3", server.url())).await;
    assert_counts(store.unwrap()).await;
    assert_eq!(server.keys(), [""; 0], "nothing in the first database");
    let missing = RedisStore::connect(&format!("{}/99", server.url())).await;
    let error = missing.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(
        text_of(&error).contains("no database of this number"),
        "{}",
        text_of(&error)
    );
}

/// As a password manager makes them.
#[tokio::test]
async fn a_password_of_any_characters_is_written_with_percent_signs() {
    let server = Server::start_with(&["--requirepass", "a/b@c:d#e%f"]);
    let url = format!("redis://:a%2Fb%40c%3Ad%23e%25f@127.0.0.1:{}", server.port());
    assert_counts(RedisStore::connect(&url).await.unwrap()).await;
}

/// Rather than as the default user, as which everybody is logged in at first.
#[tokio::test]
async fn a_user_without_a_password_is_logged_in_as() {
    let (server, path, _directory) = server_on_a_socket(&[]);
    user_with(&server, documented_rights());
    let port = server.port();
    let urls = [
        format!("redis://{USER}@127.0.0.1:{port}"),
        format!("redis://{USER}:@127.0.0.1:{port}?protocol=3"),
        format!("redis+unix://{path}?user={USER}"),
    ];
    for url in &urls {
        let refused = RedisStore::connect(url).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Configuration, "{url}");
        assert!(
            text_of(&refused).contains(":password@"),
            "{}",
            text_of(&refused)
        );
    }
    set_right(&server, "nopass");
    let mut stores = Vec::new();
    for url in &urls {
        stores.push(RedisStore::connect(url).await.unwrap());
        let clients = client_list(&server);
        let ours = clients.matches(&format!(" user={USER} ")).count();
        assert!(ours >= stores.len(), "{url}: {clients}");
    }
}

#[test]
fn the_debug_output_of_a_builder_has_neither_url_nor_password() {
    let builder = RedisStore::builder("redis://:hunter2@localhost").prefix("shop");
    let shown = format!("{builder:?}");
    assert!(shown.contains("\"shop\""), "{shown}");
    assert!(
        !shown.contains("hunter2") && !shown.contains("localhost"),
        "{shown}"
    );
}
