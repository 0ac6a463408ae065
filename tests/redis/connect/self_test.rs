//! Errors are found at start-up, with advice.

use tower_throttle::store::Action;
use tower_throttle::store::PolicyId;
use tower_throttle::{
    Limit, Limiter, MINUTE, Policy, RedisStore, RedisStoreBuilder, StoreError, StoreErrorKind,
};

use crate::connect::text_of;
use support::asking::{answer_of, check_of};
use support::redis::{Server, free_port};
use support::rights::{documented_rights, user_with};

/// Connects as a user with exactly these rights.
fn connecting_with<'a>(
    server: &Server,
    rights: impl IntoIterator<Item = &'a str>,
) -> RedisStoreBuilder {
    RedisStore::builder(&user_with(server, rights))
}

/// Connecting fails with something that the operator has to change, and says so.
async fn assert_explained(builder: RedisStoreBuilder, words: &[&str]) {
    let error = builder.connect().await.unwrap_err();
    let told = text_of(&error);
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{told}");
    for word in words {
        assert!(told.contains(word), "{word:?} is missing in {told}");
    }
    assert!(!told.contains("hunter2"), "{told}");
}

#[tokio::test]
async fn a_wrong_password_and_a_missing_one_have_different_messages() {
    let server = Server::start_with(&["--requirepass", "right"]);
    let url = format!("redis://:hunter2@127.0.0.1:{}", server.port());
    assert_explained(
        RedisStore::builder(&url),
        &["refuses the user or the password"],
    )
    .await;
    assert_explained(server.builder(), &["wants a password"]).await;
    let of_database = format!("redis://127.0.0.1:{}/3", server.port());
    assert_explained(RedisStore::builder(&of_database), &["wants a password"]).await;
}

#[tokio::test]
async fn every_right_that_is_missing_is_named() {
    let server = Server::start();
    let rights = documented_rights();
    let granted = connecting_with(&server, rights.iter().copied());
    granted.connect().await.unwrap();
    for missing in rights.iter().filter_map(|right| right.strip_prefix('+')) {
        let kept = rights.iter().filter(|right| right[1..] != *missing);
        let builder = connecting_with(&server, kept.copied());
        assert_explained(builder, &[missing]).await;
    }
    assert_eq!(server.keys(), [""; 0], "the test left something behind");
}

#[tokio::test]
async fn another_database_takes_a_right_of_its_own() {
    let server = Server::start();
    let mut rights = documented_rights();
    let of_database = |rights: &[&str]| {
        let url = user_with(&server, rights.iter().copied());
        RedisStore::builder(&format!("{url}/3"))
    };
    let refused = of_database(&rights);
    assert_explained(refused, &["lacks a permission", "'select'"]).await;
    rights.push("+select");
    let granted = of_database(&rights);
    granted.connect().await.unwrap();
}

#[tokio::test]
async fn all_rights_that_are_missing_are_named_at_once() {
    let server = Server::start();
    let rights = documented_rights();
    let kept = rights.iter().filter(|right| !right.starts_with("+z"));
    let builder = connecting_with(&server, kept.copied());
    let wanted = "+zscore +zcount +zrangebyscore +zrevrange +zadd +zrem +zremrangebyscore";
    assert_explained(builder, &[&format!("grant it {wanted}")]).await;
}

/// Without the clock, or a key of its own, nothing else is tried.
#[tokio::test]
async fn a_script_only_user_is_referred_to_the_permissions() {
    let server = Server::start();
    for rights in [
        &["~throttle:*", "+@scripting"][..],
        &["~throttle:*", "+@scripting", "+time"],
    ] {
        let all_rights = ["grant it +", "the documentation of RedisStore"];
        assert_explained(
            connecting_with(&server, rights.iter().copied()),
            &all_rights,
        )
        .await;
    }
}

#[tokio::test]
async fn a_prefix_that_the_user_may_not_use_is_a_missing_right() {
    let server = Server::start();
    let builder = connecting_with(&server, documented_rights()).prefix("other");
    assert_explained(builder, &["grant it ~PREFIX:*"]).await;
}

#[tokio::test]
async fn a_replica_is_recognized() {
    let server = Server::start();
    server.query::<()>(("REPLICAOF", "127.0.0.1", free_port()));
    let error = server.builder().connect().await.unwrap_err();
    assert!(
        text_of(&error).contains("is a replica: name its master"),
        "{}",
        text_of(&error)
    );
}

#[tokio::test]
async fn a_server_without_scripts_is_recognized() {
    let server = Server::start_with(&["--rename-command", "EVALSHA", ""]);
    assert_explained(server.builder(), &["does not run scripts"]).await;
}

#[tokio::test]
async fn a_command_that_the_server_lacks_is_named() {
    for command in ["TIME", "SET", "GET", "LINDEX", "ZADD"] {
        let server = Server::start_with(&["--rename-command", command, ""]);
        let name = format!("{command}: ");
        assert_explained(server.builder(), &[&name, "see rename-command"]).await;
        assert_eq!(server.keys(), [""; 0], "the test left something behind");
    }
}

/// A lazy connection reports it with the first decision.
#[tokio::test]
async fn a_command_that_the_server_lacks_is_a_configuration_error() {
    let server = Server::start_with(&["--rename-command", "GET", ""]);
    let store = server.builder().connect_lazy().unwrap();
    let limiter = Limiter::new(store, [Policy::new("api", Limit::gcra(1, MINUTE))]).unwrap();
    let decision = limiter.check("api", "alice").await.unwrap();
    let failure = decision.store_failure();
    assert_eq!(failure, Some(StoreErrorKind::Configuration));
}

/// Whichever slots the node has.
#[tokio::test]
async fn a_cluster_node_behind_a_single_servers_url_is_recognized() {
    let server = Server::start_with(&["--cluster-enabled", "yes"]);
    for slots in [0..0, 0..8_000, 8_000..16_384] {
        if !slots.is_empty() {
            server.query::<()>(("CLUSTER", "ADDSLOTS", slots.collect::<Vec<_>>()));
        }
        let error = server.builder().connect().await.unwrap_err();
        assert!(
            text_of(&error).contains("use redis-cluster://"),
            "{}",
            text_of(&error)
        );
    }
    let of_database = format!("redis://127.0.0.1:{}/3", server.port());
    assert_explained(RedisStore::builder(&of_database), &["use redis-cluster://"]).await;
}

#[tokio::test]
async fn a_cluster_that_does_not_serve_all_slots_is_reported_as_such() {
    let server = Server::start_with(&["--cluster-enabled", "yes"]);
    server.query::<()>(("CLUSTER", "ADDSLOTS", (0..16_000).collect::<Vec<_>>()));
    let url = format!("redis-cluster://127.0.0.1:{}", server.port());
    let error = RedisStore::connect(&url).await.unwrap_err();
    let told = text_of(&error);
    assert!(told.contains("have no node"), "{told}");
}

#[tokio::test]
async fn a_cluster_without_slots_is_reported_as_such() {
    let server = Server::start_with(&["--cluster-enabled", "yes"]);
    let url = format!("redis-cluster://127.0.0.1:{}", server.port());
    let connected = tokio::time::timeout(MINUTE, RedisStore::connect(&url)).await;
    let error = connected.expect("it asks for ever").unwrap_err();
    let told = text_of(&error);
    assert!(told.contains("see CLUSTER ADDSLOTS"), "{told}");
}

#[tokio::test]
async fn a_server_that_is_full_is_found_at_start_up() {
    let server = Server::start_with(&["--maxmemory", "1"]);
    let error = server.builder().connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Full, "{}", text_of(&error));
    assert!(
        text_of(&error).contains("raise its maxmemory"),
        "{}",
        text_of(&error)
    );
}

/// Between its two commands, too: a decision would send the script again.
#[tokio::test]
async fn scripts_that_are_constantly_forgotten_do_not_prevent_a_start() {
    let server = Server::start();
    let mut connection = server.connection().unwrap();
    let mut flush = redis::cmd("SCRIPT");
    flush.arg("FLUSH");
    // Until the server is gone.
    let flushing = std::thread::spawn(move || while flush.query::<()>(&mut connection).is_ok() {});
    for _ in 0..20 {
        let connected = server.builder().connect().await;
        assert!(connected.is_ok(), "{}", text_of(&connected.unwrap_err()));
    }
    drop(server);
    flushing.join().unwrap();
}

/// An operator may have several.
#[tokio::test]
async fn a_server_is_named_whatever_it_answers() {
    let server = Server::start();
    let place = format!("127.0.0.1:{}: ", server.port());
    let assert_named = |error: StoreError| {
        let told = text_of(&error);
        assert!(told.starts_with(&place), "{told}");
    };
    let rights = documented_rights();
    for missing in ["+zadd", "+eval", "~throttle:*"] {
        let kept = rights.iter().filter(|right| **right != missing);
        let connected = connecting_with(&server, kept.copied()).connect().await;
        assert_named(connected.unwrap_err());
    }
    let store = server.store().await;
    server.set_full(true);
    assert_named(server.builder().connect().await.unwrap_err());
    let policy = PolicyId::new("api");
    let take = |limit: Limit| check_of(&policy, "alice", &limit, Action::acquire(1));
    let [plain, any] = [Limit::gcra(1, MINUTE), Limit::sliding_log(1, MINUTE)].map(take);
    for checks in [&[plain][..], &[any], &[plain, any]] {
        assert_named(answer_of(&store, checks).await.unwrap_err());
    }
}
