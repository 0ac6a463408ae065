//! How long a file is watched, and what becomes of a limiter afterwards.

use std::any::Any;

use reqwest::Client;
use tower::Layer as _;
use tower_throttle::{ConfigFile, DAY, Key, Limit, Limiter, Operator, Policy, ThrottleLayer};

use super::file::{Limits, Watched, limit, serve};
use support::redis::Server;
use support::until::until;
use support::web::GENEROUS;

/// As a user writes it who needs nothing but the layer.
#[tokio::test]
async fn a_file_is_read_again_if_only_a_layer_was_made_of_it() {
    let file = Limits::new(&limit("1/day"));
    let opened = ConfigFile::new(file.path()).open().await;
    let url = serve(opened.unwrap().layer()).await;
    let status = async || Client::new().get(&url).send().await.unwrap().status();
    assert_eq!(status().await, 200);
    assert_eq!(status().await, 429);
    file.replace(&limit("1000/day"));
    until("it is reloaded", async || status().await == 200).await;
}

#[tokio::test]
async fn a_file_is_watched_until_the_last_user_of_its_limiter_is_gone() {
    type User = Box<dyn Any + Send>;
    let users: [fn(&Watched) -> User; 5] = [
        |limits| Box::new(limits.config.limiter()),
        |limits| Box::new(limits.config.layer()),
        |limits| Box::new(limits.config.layer().layer(())),
        |limits| Box::new(Operator::new().router(limits.config.limiter())),
        |limits| {
            let layer = ThrottleLayer::new(limits.config.limiter(), "client");
            Box::new(layer.unwrap())
        },
    ];
    for (which, user) in users.into_iter().enumerate() {
        // One that can be waited for.
        let queue = |number| limit(&format!("{number}/day")).replace("fixed-window", "gcra");
        let file = Limits::new(&queue(1));
        let mut limits = file.open().await;
        let user = user(&limits);
        drop(limits.config);
        for number in 2..4 {
            file.replace(&queue(number));
            let told = tokio::time::timeout(GENEROUS, limits.outcomes.recv()).await;
            assert_eq!(told, Ok(Some(Ok(()))), "user {which}");
        }
        drop(user);
        // The channel closes when the thread has ended.
        let told = tokio::time::timeout(GENEROUS, limits.outcomes.recv()).await;
        assert_eq!(told, Ok(None), "user {which}");
    }
}

/// The thread that watches the file has no runtime on which anything could be given back.
#[tokio::test]
async fn what_it_holds_in_advance_is_given_back() {
    const ALL: u64 = 100_000;
    let server = Server::start();
    let file = Limits::new(&format!(
        "store = \"{}\"\ntimeout = \"60s\"\n[[policy]]\nname = \"hot\"\nkey = \"everybody\"\n\
         algorithm = \"fixed-window\"\nlimit = \"{ALL}/day\"\nprefetch = true",
        server.url()
    ));
    let limits = file.open().await;
    let policy = Policy::new("hot", Limit::fixed_window(ALL, DAY));
    let other = Limiter::new(server.store().await, [policy]).unwrap();
    let remaining = async || {
        let look = other.peek("hot", Key::everybody()).await.unwrap();
        look.remaining()
    };
    let mut left = ALL;
    until("some are held", async || {
        for _ in 0..100 {
            let check = limits.config.limiter();
            let decision = check.check("hot", Key::everybody()).await.unwrap();
            left -= u64::from(decision.is_allowed());
        }
        remaining().await < left
    })
    .await;
    drop(limits);
    until("all others are given back", async || {
        remaining().await == left
    })
    .await;
}
