//! A key whose state has another form, or that holds something else, answers each take correctly.

use std::time::Duration;

use futures_util::future::join_all;
use tower_throttle::{Clock as _, HOUR, Limit, SECOND, StoreErrorKind};

use super::several::assert_expires_with;
use super::{SLOW, Stage, allowed};

const LIMIT: Limit = Limit::gcra(1, HOUR).burst(30);

fn plant(stage: &Stage, value: &[u8]) {
    plant_by(stage, LIMIT, value);
}

fn plant_by(stage: &Stage, limit: Limit, value: &[u8]) {
    stage.server.query::<()>((
        "SET",
        stage.key(limit, "api"),
        value,
        "PX",
        HOUR.as_millis() as u64,
    ));
}

#[tokio::test]
async fn a_fraction_that_another_rate_has_left_counts() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let paid = stage.clock.now().get() + 10 * HOUR.as_micros() as u64;
    plant(&stage, format!("{}:2147483648", paid - 1).as_bytes());
    let decisions = stage.take_all("api", LIMIT, &[1; 50]).await;
    assert_eq!(allowed(&decisions), 20);
    let paid = paid + 20 * HOUR.as_micros() as u64;
    let state: String = stage.server.query(("GET", stage.key(LIMIT, "api")));
    assert_eq!(state, format!("{}:2147483648", paid - 1));
}

/// Under a rate that needs thirds of a microsecond, which are rounded down to 2^-32.
#[tokio::test]
async fn a_fractional_rate_counts_the_state_of_another_rate() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    // 33 1/3 seconds.
    let limit = Limit::gcra(3, Duration::from_secs(100)).burst(30);
    let now = stage.clock.now().get();
    let of_thirty = format!("{}:4294967286", now + 999_999_999);
    for (state, left) in [
        (String::new(), of_thirty.clone()),
        (format!("{now}"), of_thirty.clone()),
        // What was paid a while ago is no more room than what is paid.
        (format!("{}:1", now - 100_000_000), of_thirty.clone()),
        // As much as ten take, and a little more.
        (format!("{}:1431655762", now + 333_333_333), of_thirty),
        (
            format!("{}:1431655763", now + 333_333_333),
            format!("{}:2863311522", now + 966_666_666),
        ),
        // Longer than anything takes.
        (
            format!("{}", now + (1 << 51)),
            format!("{}", now + (1 << 51)),
        ),
    ] {
        stage.server.query::<()>(("DEL", stage.key(limit, "api")));
        if !state.is_empty() {
            plant_by(&stage, limit, state.as_bytes());
        }
        stage.take_all("api", limit, &[1; 50]).await;
        let found: String = stage.server.query(("GET", stage.key(limit, "api")));
        assert_eq!(found, left, "{state}");
    }
}

/// It is owed in the next one.
#[tokio::test]
async fn a_fraction_owed_at_a_seconds_end_expires_with_the_next() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    // A third of a second each, so that forty end a third of a microsecond after a second.
    let limit = Limit::gcra(3, SECOND).burst(60);
    stage.clock.advance(Duration::from_micros(666_667));
    let paid_us = stage.clock.now().get() + 13_333_333;
    let decisions = stage.take_all("api", limit, &[1; 40]).await;
    assert_eq!(allowed(&decisions), 40);
    let key = stage.key(limit, "api");
    let state: String = stage.server.query(("GET", &key));
    assert_eq!(state, format!("{paid_us}:1431655752"));
    assert_eq!(paid_us % 1_000_000, 0);
    assert_expires_with(&stage, &key, paid_us + 1);
}

#[tokio::test]
async fn a_value_that_is_not_ours_fails_each_and_is_left_as_it_is() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let texts = ["hello", "-7", "1.5", "nan", "inf", "0x7", ""];
    let texts = texts.map(|text| (LIMIT, text));
    let thirds = Limit::gcra(3, SECOND);
    // So many parts are a whole.
    let parts = ["4102444800000000:4294967296", "hello"].map(|text| (thirds, text));
    for (limit, value) in texts.into_iter().chain(parts) {
        plant(&stage, value.as_bytes());
        let answers = join_all((0..20).map(|_| stage.take("api", limit, 1))).await;
        let kinds: Vec<_> = answers.into_iter().map(Result::err).collect();
        assert_eq!(kinds, [Some(StoreErrorKind::CorruptValue); 20], "{value}");
        assert_eq!(
            stage
                .server
                .query::<String>(("GET", stage.key(LIMIT, "api"))),
            value
        );
        // Another key's takes go on.
        assert!(stage.take("other", LIMIT, 1).await.is_ok());
    }
}
