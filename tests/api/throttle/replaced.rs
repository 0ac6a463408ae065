//! A policy whose limit is replaced by one that nobody can wait for, while services depend on it.

use tokio::time::sleep;
use tower::Layer;
use tower_throttle::{HOUR, Key, Limit, Limiter, MINUTE, Mode, Penalty, Policy, Rules, SECOND};

use super::{Partner, Watched, after, layer, send, send_all};
use support::virtual_time::ms;

/// Puts this policy in place of the one that the services were made for.
fn replace(limiter: &Limiter, policy: Policy) {
    let rules = Rules::new([policy]);
    limiter.replace(rules).unwrap();
}

/// A limiter of one a minute, of which one is taken.
async fn one_a_minute() -> Limiter {
    let limiter = Watched::new().limiter(Limit::gcra(1, MINUTE));
    send(&mut layer(&limiter).layer(Partner::new())).await;
    limiter
}

#[tokio::test(start_paused = true)]
async fn the_limit_in_force_decides_though_nobody_can_wait_for_it() {
    let limiter = one_a_minute().await;
    let service = layer(&limiter).layer(Partner::new());
    replace(
        &limiter,
        Policy::new("partner", Limit::fixed_window(2, 10 * SECOND)),
    );
    let sent = send_all(service, 5).await;
    assert_eq!(sent, after([0, 0, 10_000, 10_000, 20_000]));
}

#[tokio::test(start_paused = true)]
async fn who_has_a_place_keeps_it_under_the_next_limit() {
    let limiter = one_a_minute().await;
    let [mut waiting, mut next] = std::array::from_fn(|_| layer(&limiter).layer(Partner::new()));
    let replaced = async {
        sleep(SECOND).await;
        replace(
            &limiter,
            Policy::new("partner", Limit::fixed_window(1, SECOND)),
        );
        send(&mut next).await
    };
    let sent = tokio::join!(send(&mut waiting), replaced);
    assert_eq!(sent, (ms(60_000), ms(1_000)));
}

#[tokio::test(start_paused = true)]
async fn the_mode_of_its_policy_can_be_changed() {
    let limiter = one_a_minute().await;
    let mut service = layer(&limiter).layer(Partner::new());
    replace(
        &limiter,
        Policy::new("partner", Limit::sliding_log(1, MINUTE)),
    );
    assert_eq!(send(&mut service).await, ms(0));
    for mode in [Mode::Off, Mode::Shadow] {
        limiter.set_mode("partner", mode).unwrap();
        assert_eq!(send_all(service.clone(), 3).await, after([0, 0, 0]));
    }
    limiter.set_mode("partner", Mode::Enforce).unwrap();
    assert_eq!(send(&mut service).await, ms(60_000));
}

/// No request is denied here: each asks again after its wait.
#[tokio::test(start_paused = true)]
async fn a_wait_brings_no_ban() {
    let limiter = one_a_minute().await;
    let service = layer(&limiter).layer(Partner::new());
    let policy = Policy::new("partner", Limit::fixed_window(1, SECOND));
    replace(&limiter, policy.penalty(Penalty::after(1, MINUTE, HOUR)));
    assert_eq!(send_all(service, 4).await, after([0, 1_000, 2_000, 3_000]));
    let shown = limiter.peek("partner", Key::everybody()).await.unwrap();
    assert_eq!(shown.banned_for(), None);
}

/// The ban was brought by denials of other operations, under whichever limit.
#[tokio::test(start_paused = true)]
async fn a_ban_is_waited_for_under_a_limit_that_nobody_can_wait_for() {
    let banned = |limit| Policy::new("partner", limit).penalty(Penalty::after(1, MINUTE, HOUR));
    let limiter = Watched::new().limiter_of(banned(Limit::gcra(1, SECOND)));
    let mut service = layer(&limiter).layer(Partner::new());
    for _ in 0..2 {
        let _ = limiter.check("partner", Key::everybody()).await.unwrap();
    }
    replace(&limiter, banned(Limit::fixed_window(10, SECOND)));
    assert_eq!(send(&mut service).await, HOUR);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_removed_goes_on_throttling_its_services() {
    let limiter = one_a_minute().await;
    let mut service = layer(&limiter).layer(Partner::new());
    replace(&limiter, Policy::new("other", Limit::gcra(1, SECOND)));
    assert_eq!(send(&mut service).await, ms(60_000));
}
