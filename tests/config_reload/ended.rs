//! What becomes of a limiter when nobody watches its file any more.

use tower_throttle::{DAY, Key, Limit, Limiter, Policy};

use super::file::Limits;
use crate::support::redis::Server;
use crate::support::until::until;

/// The thread that watches the file has no runtime on which anything could be given back.
#[tokio::test]
async fn what_it_holds_in_advance_is_given_back() {
    const ALL: u32 = 100_000;
    let server = Server::start();
    let file = Limits::new(&format!(
        "store = \"{}\"\ntimeout = \"60s\"\n[[policy]]\nname = \"hot\"\nkey = \"everybody\"\n\
         algorithm = \"fixed-window\"\nlimit = \"{ALL}/day\"\nquota_lease = true",
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
            left -= u32::from(decision.is_allowed());
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
