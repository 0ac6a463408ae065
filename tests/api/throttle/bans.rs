//! Banned keys: when a service that waits for one is ready.

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::sleep;
use tower::Layer;
use tower_throttle::store::DenyCache;
use tower_throttle::{
    AccessList, DAY, HOUR, Key, Limit, Limiter, MINUTE, Mode, Penalty, Policy, Rules, SECOND,
};

use super::{Partner, Watched, after, layer, send};
use support::virtual_time::{self, ms};

/// One a second; every denial causes a ban.
fn strict(ban: Duration) -> Policy {
    lenient().penalty(Penalty::after(1, MINUTE, ban))
}

fn lenient() -> Policy {
    Policy::new("partner", Limit::gcra(1, SECOND))
}

async fn bring_ban(limiter: &Limiter) {
    for _ in 0..2 {
        let _ = limiter.check("partner", Key::everybody()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_ban_is_waited_for() {
    let store = Watched::new();
    let limiter = store.limiter_of(strict(HOUR));
    bring_ban(&limiter).await;
    let mut service = layer(&limiter).layer(Partner::new());
    assert_eq!(send(&mut service).await, HOUR);
    let once_a_minute = (0..=60).map(|minute| minute * MINUTE);
    assert_eq!(store.asked()[2..], Vec::from_iter(once_a_minute));
}

#[tokio::test(start_paused = true)]
async fn a_ban_is_awaited_to_its_end() {
    let store = Watched::new();
    let limiter = store.limiter_of(strict(ms(150_007)));
    bring_ban(&limiter).await;
    let mut service = layer(&limiter).layer(Partner::new());
    assert_eq!(send(&mut service).await, ms(150_007));
    assert_eq!(store.asked()[2..], after([0, 60_000, 120_000, 150_007]));
}

/// When a request is sent that waits for the end of a ban of a day, which is lifted after a little
/// more than a minute: through the limiter that it waits for, which remembers denials, or through
/// another one over the same store.
async fn sent_after(lift: impl FnOnce(&Limiter, &Limiter)) -> Duration {
    let store = Watched::new();
    let remembering = DenyCache::new(store.clone()).clock_for_tests(virtual_time::clock());
    let here = Limiter::new(remembering, [strict(DAY)]).unwrap();
    let elsewhere = store.limiter_of(strict(DAY));
    bring_ban(&here).await;
    let mut service = layer(&here).layer(Partner::new());
    let lifted = async {
        sleep(MINUTE + SECOND).await;
        lift(&here, &elsewhere);
    };
    tokio::join!(send(&mut service), lifted).0
}

#[tokio::test(start_paused = true)]
async fn a_ban_lifted_by_a_reset_is_waited_for_at_most_a_minute() {
    let reset = |limiter: &Limiter| {
        let reset = limiter.reset("partner", Key::everybody());
        let _ = reset.now_or_never().unwrap().unwrap();
    };
    assert_eq!(sent_after(|here, _| reset(here)).await, 2 * MINUTE);
    assert_eq!(
        sent_after(|_, elsewhere| reset(elsewhere)).await,
        2 * MINUTE
    );
}

#[tokio::test(start_paused = true)]
async fn a_ban_that_ends_early_is_waited_for_at_most_a_minute() {
    let no_penalty = Rules::new([lenient()]);
    let off = |here: &Limiter, _: &Limiter| here.set_mode("partner", Mode::Off).unwrap();
    assert_eq!(sent_after(off).await, 2 * MINUTE);
    let turned_off = sent_after(|here, _| here.turn_off()).await;
    assert_eq!(turned_off, MINUTE + SECOND, "is waited for no more");
    assert_eq!(
        sent_after(|here, _| here.replace(no_penalty).unwrap()).await,
        2 * MINUTE
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_on_the_deny_list_is_looked_up_without_the_store() {
    let store = Watched::new();
    let limiter = store.limiter_of(lenient());
    limiter.set_denied(AccessList::new().keys([Key::everybody()]));
    let mut service = layer(&limiter).layer(Partner::new());
    let lifted = async {
        sleep(ms(4_500)).await;
        limiter.set_denied(AccessList::new());
    };
    assert_eq!(tokio::join!(send(&mut service), lifted).0, 5 * SECOND);
    assert_eq!(store.asked(), [5 * SECOND]);
}
