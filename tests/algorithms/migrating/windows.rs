//! Limits that count in windows.

use tower_throttle::{Clock, DAY, HOUR, Limit, MINUTE, SECOND};

use super::{admit_the_same, after, theirs};
use support::bench::Bench;

/// express-rate-limit, actix-limitation, flask-limiter, Laravel.
#[tokio::test]
async fn windows_that_the_first_request_opens() {
    let limit = Limit::fixed_window(100, MINUTE);
    admit_the_same(limit, 1, || theirs::window_from_first_request(100, 60_000)).await;
}

/// The request that opens the window and 99 at its end, then all of the next window.
#[tokio::test]
async fn windows_that_the_first_request_opens_admit_199_around_their_end() {
    let (bench, limit) = (Bench::memory(), Limit::fixed_window(100, MINUTE));
    assert!(bench.ask(limit, 1).await.is_allowed());
    let _ = after(59_999, &bench);
    assert_eq!(bench.drain(limit, 1).await, 99);
    let _ = after(1, &bench);
    assert_eq!(bench.drain(limit, 1).await, 100);
}

/// Envoy's rate limit service.
#[tokio::test]
async fn windows_on_the_clock() {
    let limit = Limit::fixed_window(100, MINUTE).aligned();
    admit_the_same(limit, 1, || theirs::window_on_the_clock(100, 60_000)).await;
    // `unit: month` is 30 days from the epoch on
    let bench = Bench::memory();
    let month = Limit::fixed_window(1, 30 * DAY).aligned();
    let left = bench.ask(month, 1).await.reset_after().as_secs();
    let now = bench.clock.now().get() / 1_000_000;
    assert_eq!((now + left) % (30 * 86_400), 0);
}

/// Around a boundary, twice the limit passes within a second, there as here.
#[tokio::test]
async fn windows_on_the_clock_admit_twice_the_limit_around_a_boundary() {
    let (bench, mut envoy) = (Bench::memory(), theirs::window_on_the_clock(100, 60_000));
    let limit = Limit::fixed_window(100, MINUTE).aligned();
    bench.align(MINUTE);
    let _ = after(59_500, &bench);
    for pause in [0, 500] {
        let now = after(pause, &bench);
        assert_eq!(bench.drain(limit, 1).await, 100);
        assert_eq!((0..200).filter(|_| envoy(now)).count(), 100);
    }
}

#[tokio::test]
async fn kong() {
    let limit = Limit::fixed_window(5, SECOND).and(1_000, HOUR).aligned();
    let kong = || theirs::windows_on_the_clock([(5, 1_000), (1_000, 3_600_000)]);
    admit_the_same(limit, 1, kong).await;
    let limit = Limit::fixed_window(20, MINUTE).and(100, HOUR).aligned();
    let kong = || theirs::windows_on_the_clock([(20, 60_000), (100, 3_600_000)]);
    admit_the_same(limit, 1, kong).await;
}

/// Django REST framework; `moving-window` of flask-limiter.
#[tokio::test]
async fn logs() {
    let limit = Limit::sliding_log(100, MINUTE);
    admit_the_same(limit, 1, || theirs::log(100, 60_000)).await;
}

/// `sliding-window-counter` of flask-limiter admits one more now and then.
#[tokio::test]
async fn two_counters() {
    let bench = Bench::memory();
    let limit = Limit::sliding_counter(100, MINUTE);
    let mut theirs = theirs::two_counters(100, 60_000);
    bench.align(MINUTE);
    let now = after(0, &bench);
    assert_eq!(bench.drain(limit, 1).await, 100);
    assert_eq!((0..200).filter(|_| theirs(now)).count(), 100);
    // 98.5 of them still count.
    let now = after(60_900, &bench);
    assert_eq!(bench.drain(limit, 1).await, 1);
    assert_eq!((0..200).filter(|_| theirs(now)).count(), 2);
}

/// .NET gives permits back up to a segment before the window is over; here it is up to a slice later.
#[tokio::test]
async fn sliding_windows_of_dotnet() {
    let bench = Bench::memory();
    let limit = Limit::sliding_window(100, MINUTE).slices(6);
    let mut dotnet = theirs::segments(100, 60_000, 6);
    bench.align(MINUTE);
    let now = after(9_000, &bench);
    assert_eq!(bench.drain(limit, 1).await, 100);
    assert_eq!((0..200).filter(|_| dotnet(now)).count(), 100);
    let now = after(51_000, &bench);
    assert_eq!(bench.drain(limit, 1).await, 0);
    let again = (0..200).filter(|_| dotnet(now)).count();
    assert_eq!(again, 100, "200 within a minute");
    let _ = after(9_999, &bench);
    assert_eq!(bench.drain(limit, 1).await, 0);
    let _ = after(1, &bench);
    let back = bench.drain(limit, 1).await;
    assert_eq!(back, 100, "70 s after the slice began");
}
