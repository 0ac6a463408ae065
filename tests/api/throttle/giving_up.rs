//! Callers who give up while more is asked for than there is, and are followed by others.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{self, Instant, sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::store::{Answer, Check, DenyCache, Store};
use tower_throttle::{
    FailureMode, HOUR, Key, Limit, Limiter, MINUTE, Penalty, Policy, RedisStore, SECOND,
    ThrottleLayer, per_second,
};

use super::{Partner, Watched, after, is_ready, layer, send, send_all, throttled};
use support::redis::Server;
use support::virtual_time::{self, ms};

const RATE: usize = 20;
const CALLERS: u64 = 40;
const SECONDS: usize = 10;

fn twenty_a_second() -> Policy {
    Policy::new("partner", Limit::token_bucket(1, per_second(RATE as u64)))
}

/// How many requests are sent in each second by callers who come one after the other, each give up
/// after half a second, and come again: four times as many as there are permits for.
async fn sent_in_seconds(layers: &[ThrottleLayer], passes: impl AsyncFnOnce()) -> Vec<usize> {
    let sent = Arc::new(Mutex::new(vec![0; SECONDS + 1]));
    let start = Instant::now();
    let mut callers = JoinSet::new();
    for (caller, layer) in (0..CALLERS).zip(layers.iter().cycle()) {
        let sent = Arc::clone(&sent);
        let service = layer.layer(service_fn(move |()| {
            let second = start.elapsed().as_secs() as usize;
            sent.lock().unwrap()[second] += 1;
            std::future::ready(Ok::<_, std::convert::Infallible>(()))
        }));
        callers.spawn(async move {
            sleep(ms(caller * 500 / CALLERS)).await;
            loop {
                let _ = timeout(ms(500), service.clone().oneshot(())).await;
            }
        });
    }
    passes().await;
    drop(callers);
    let mut sent = sent.lock().unwrap().clone();
    sent.truncate(SECONDS);
    sent
}

#[track_caller]
fn assert_about_the_rate(sent: &[usize]) {
    let all: usize = sent.iter().sum();
    assert!(all <= RATE * SECONDS + 1, "{sent:?}");
    assert!(all >= RATE * SECONDS * 4 / 5, "{sent:?}");
    assert!(sent.iter().all(|sent| *sent >= RATE / 2), "{sent:?}");
}

async fn seconds_pass() {
    sleep(SECONDS as u32 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn with_a_longest_wait_callers_who_give_up_leave_about_the_rate() {
    for limit in [
        Limit::token_bucket(1, per_second(RATE as u64)),
        Limit::gcra(RATE as u64, SECOND).burst(1),
        Limit::leaky_bucket(1, per_second(RATE as u64)),
    ] {
        let layer = layer(&Watched::new().limiter(limit)).max_wait(ms(50));
        assert_about_the_rate(&sent_in_seconds(&[layer], seconds_pass).await);
    }
}

/// A store in Redis that shows how many questions are in flight: each holds a reference.
#[derive(Clone)]
struct Shown(RedisStore, Arc<()>);

impl Store for Shown {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        match self.0.ask(checks) {
            Answer::Pending(answer) => {
                let in_flight_work = Arc::clone(&self.1);
                Answer::Pending(Box::pin(async move {
                    let answer = answer.await;
                    drop(in_flight_work);
                    answer
                }))
            }
            ready => ready,
        }
    }
}

/// The result when tokio's time advances only while no question is in flight: Redis answers in real
/// time.
async fn between_answers<T>(in_flight_work: &Arc<()>, future: impl Future<Output = T>) -> T {
    let at_rest = Arc::strong_count(in_flight_work);
    let mut future = pin!(future);
    loop {
        for _ in 0..16 {
            if let Poll::Ready(output) = poll!(&mut future) {
                return output;
            }
            yield_now().await;
        }
        if Arc::strong_count(in_flight_work) <= at_rest {
            time::advance(ms(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn over_redis_too_in_all_processes_together() {
    let server = Server::start();
    let in_flight_work = Arc::new(());
    let layers = [(); 2].map(|()| {
        let store = server.builder().clock_for_tests(virtual_time::clock());
        let store = Shown(store.connect_lazy().unwrap(), Arc::clone(&in_flight_work));
        let limiter = Limiter::builder(store, [twenty_a_second()]);
        let limiter = limiter.timeout(MINUTE).build().unwrap();
        layer(&limiter).max_wait(ms(50))
    });
    let passes = async || between_answers(&in_flight_work, seconds_pass()).await;
    assert_about_the_rate(&sent_in_seconds(&layers, passes).await);
    // One that is granted, and one that is refused until the next may be had, in each process.
    let calls = server.calls("evalsha") as usize;
    assert!(calls <= RATE * SECONDS * 5, "{calls}");
}

/// The questions of all callers, each of whom asks the store.
async fn asked(remembering: impl FnOnce(Watched) -> Limiter) -> Vec<Duration> {
    let store = Watched::new();
    let layer = layer(&remembering(store.clone())).max_wait(ms(50));
    sent_in_seconds(&[layer], seconds_pass).await;
    store.asked()
}

#[tokio::test(start_paused = true)]
async fn waiting_callers_ask_a_bounded_number_of_questions() {
    let asked_by_each = asked(|store| store.limiter_of(twenty_a_second())).await;
    // Each caller at most four times in the time for which a place is waited for.
    assert!(asked_by_each.len() <= CALLERS as usize * SECONDS * 80);
    let crowd = asked_by_each.chunk_by(|a, b| a.as_millis() == b.as_millis());
    let largest = crowd.map(<[_]>::len).max().unwrap();
    assert!(largest <= CALLERS as usize / 2, "{largest}");

    let remembered = |store| {
        let clock = virtual_time::clock();
        let remembering = DenyCache::new(store).clock_for_tests(clock);
        Limiter::new(remembering, [twenty_a_second()]).unwrap()
    };
    let asked = asked(remembered).await;
    assert!(asked.len() <= RATE * SECONDS * 3, "{}", asked.len());
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_waits_alone_is_not_slowed_by_a_longest_wait() {
    for longest in [0, 1, 40, 100, 5_000].map(ms) {
        for cost in [1, 3, 5] {
            let limiter = Watched::new().limiter(Limit::gcra(10, SECOND).burst(3));
            let layer = layer(&limiter).cost(cost);
            let expected = send_all(layer.layer(Partner::new()), 8).await;
            let _ = limiter.reset("partner", Key::everybody()).await.unwrap();
            let service = layer.max_wait(longest).layer(Partner::new());
            let sent = send_all(service, 8).await;
            for (sent, expected) in sent.into_iter().zip(expected) {
                let late = sent.checked_sub(expected).unwrap();
                assert!(
                    late <= ms(if longest < ms(5) { 8 } else { 0 }),
                    "{longest:?}: {late:?}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn callers_who_come_again_at_once_overtake_nobody_for_long() {
    let layer = layer(&Watched::new().limiter_of(twenty_a_second())).max_wait(ms(100));
    let callers = (0..CALLERS).map(|_| {
        let mut service = layer.layer(Partner::new());
        async move {
            let mut sent = 0;
            while send(&mut service).await < SECONDS as u32 * SECOND {
                sent += 1;
            }
            sent
        }
    });
    let sent = join_all(callers).await;
    assert_eq!(sent.iter().sum::<usize>(), RATE * SECONDS);
    // Five each.
    assert!(sent.iter().all(|sent| *sent <= 20), "{sent:?}");
    assert!(
        sent.iter().filter(|sent| **sent > 0).count() >= 30,
        "{sent:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_longer_than_the_longest_takes_nothing() {
    let limiter = Watched::new().limiter(Limit::gcra(1, HOUR));
    let service = layer(&limiter).max_wait(MINUTE).layer(Partner::new());
    send(&mut service.clone()).await;
    let mut waiting = vec![service; 3];
    for service in &mut waiting {
        assert!(!is_ready(service));
    }
    let left = limiter.peek("partner", Key::everybody()).await.unwrap();
    assert_eq!(left.reset_after(), HOUR);
}

#[tokio::test(start_paused = true)]
async fn callers_with_a_place_go_on_in_the_order_of_arrival() {
    let limiter = Watched::new().limiter(Limit::gcra(1, SECOND));
    let service = layer(&limiter).max_wait(6 * SECOND).layer(Partner::new());
    let mut services = vec![service; 4];
    let sent = join_all(services.iter_mut().map(send)).await;
    assert_eq!(sent, after([0, 1_000, 2_000, 3_000]));
}

/// Places are left behind under the rate that all wait for alone. What the other one gives meanwhile
/// is what it may be passed by.
#[tokio::test(start_paused = true)]
async fn several_rates_are_exceeded_by_no_more_than_they_refill() {
    let (first, _) = throttled(Limit::gcra(1, SECOND).and(10, MINUTE));
    let mut leaving = first.clone();
    assert!(is_ready(&mut leaving));
    for _ in 0..60 {
        let mut behind = first.clone();
        assert!(!is_ready(&mut behind));
        leaving = behind;
    }
    drop(leaving);
    let mut services = vec![first; 30];
    let senders = services.iter_mut().zip(0..).map(async |(service, second)| {
        sleep(second * SECOND).await;
        send(service).await
    });
    let sent = join_all(senders).await;
    assert_eq!(sent[0], MINUTE, "behind sixty places");
    for (position, begin) in sent.iter().enumerate() {
        for (count, end) in (1..).zip(&sent[position..]) {
            let given_meanwhile = (MINUTE + *end - *begin).as_secs() / 6;
            assert!(count <= 10 + given_meanwhile, "{sent:?}");
        }
    }
}

/// Nobody is denied here. A ban that others have caused is waited for as usual.
#[tokio::test(start_paused = true)]
async fn asking_again_brings_no_ban_and_bans_are_waited_for() {
    let server = Server::start();
    let in_redis = server.builder().clock_for_tests(virtual_time::clock());
    let in_flight_work = Arc::new(());
    let in_redis = Shown(
        in_redis.connect_lazy().unwrap(),
        Arc::clone(&in_flight_work),
    );
    let remembering = DenyCache::new(virtual_time::store()).clock_for_tests(virtual_time::clock());
    let stores: [Arc<dyn Store>; 3] = [
        Arc::new(virtual_time::store()),
        Arc::new(remembering),
        Arc::new(in_redis),
    ];
    for store in stores {
        let limit = Limit::gcra(20, SECOND).burst(1).and(1_000, MINUTE);
        let penalty = Penalty::after(1, MINUTE, 5 * SECOND);
        let policy = Policy::new("partner", limit).penalty(penalty);
        let limiter = Limiter::builder(store, [policy]);
        let limiter = limiter.timeout(MINUTE).build().unwrap();
        let mut service = layer(&limiter).max_wait(ms(10)).layer(Partner::new());
        let at_once = async || limiter.check("partner", Key::everybody()).await.unwrap();
        between_answers(&in_flight_work, async {
            for _ in 0..4 {
                send(&mut service).await;
            }
            let denied = at_once().await;
            assert_eq!(denied.banned_for(), Some(5 * SECOND), "and not before");
            let waited = virtual_time::timed(send(&mut service)).await.1;
            assert!(waited >= 5 * SECOND && waited <= ms(5_010), "{waited:?}");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn over_a_store_that_fails_it_is_asked_again_until_it_counts() {
    let store = Watched::failing(3);
    let policy = twenty_a_second().on_store_failure(FailureMode::Deny);
    let layer = layer(&store.limiter_of(policy)).max_wait(ms(100));
    let sent = send(&mut layer.layer(Partner::new())).await;
    assert!((ms(3_000)..=ms(3_153)).contains(&sent), "{sent:?}");
    assert_eq!(store.asked().len(), 4);
}
