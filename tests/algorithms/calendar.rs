//! Calendar: a number of permits in each month, week or day of a time zone.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_throttle::store::Action;
use tower_throttle::{
    Calendar, Clock, DAY, Decision, Everybody, HOUR, Limit, Limiter, MINUTE, ManualClock,
    MemoryStore, Micros, Policy, RateLimitLayer, SECOND,
};

use support::bench::Bench;
use support::on_every_store;
use support::redis::Server;

on_every_store! {
    a_month_ends_at_midnight_in_its_zone
    a_day_on_which_clocks_change_is_shorter_or_longer
    what_is_given_back_after_the_boundary_is_too_late
    another_calendar_ends_the_window_at_its_first_boundary
    a_calendar_goes_on_where_a_fixed_window_was
    a_boundary_by_other_time_zone_data_gives_no_permits
    processes_with_other_data_admit_what_one_would
}

/// Midnight in UTC, 2035-03-01.
const MARCH: Micros = Micros::new(2_056_320_000_000_000);

fn month(zone: &str) -> Calendar {
    Calendar::month().zone(zone).unwrap()
}

fn day(zone: &str) -> Calendar {
    Calendar::day().zone(zone).unwrap()
}

fn after(start: Micros, time: Duration) -> Micros {
    start.saturating_add(time.into())
}

async fn a_month_ends_at_midnight_in_its_zone(bench: &Bench) {
    // An hour into March in Berlin, an hour before it in London.
    bench.clock.set(after(MARCH, DAY - HOUR / 2));
    for (zone, hours) in [
        ("Europe/Berlin", 30 * 24 - 2),
        ("Europe/London", 30 * 24 - 1),
    ] {
        let limit = Limit::calendar(2, month(zone));
        let key = |cost| [("policy", limit, zone, cost)];
        for remaining in [1, 0] {
            let allowed = bench.ask_all(&key(1)).await[0];
            assert!(allowed.is_allowed());
            assert_eq!(allowed.remaining(), remaining);
            // Clocks go forward on the 25th.
            assert_eq!(allowed.window(), 31 * DAY - HOUR, "{zone}");
        }
        let denied = bench.ask_all(&key(1)).await[0];
        assert_eq!(
            denied.retry_after(),
            Some(hours * HOUR + HOUR / 2),
            "{zone}"
        );
    }
    let london = Limit::calendar(2, month("Europe/London"));
    let ask = async || {
        bench
            .ask_all(&[("policy", london, "Europe/London", 1)])
            .await[0]
    };
    bench.advance((30 * 24 - 1) * HOUR + HOUR / 2 - Duration::from_micros(1));
    assert!(!ask().await.is_allowed());
    bench.advance_us(1);
    let first = ask().await;
    assert_eq!((first.is_allowed(), first.remaining()), (true, 1));
    assert_eq!([first.window(), first.reset_after()], [30 * DAY; 2]);
}

async fn a_day_on_which_clocks_change_is_shorter_or_longer(bench: &Bench) {
    let limit = Limit::calendar(9, day("Europe/Berlin"));
    // The nights to the 25th of March and to the 28th of October 2035.
    for (midnight, hours) in [(23 * DAY + 23 * HOUR, 23), (240 * DAY + 22 * HOUR, 25)] {
        bench.clock.set(after(MARCH, midnight));
        let allowed = bench.ask(limit, 1).await;
        assert_eq!([allowed.window(), allowed.reset_after()], [hours * HOUR; 2]);
        bench.advance(hours * HOUR - SECOND);
        assert_eq!(bench.ask(limit, 1).await.remaining(), 7);
        bench.advance(SECOND);
        let next = bench.ask(limit, 1).await;
        assert_eq!((next.remaining(), next.window()), (8, DAY));
    }
}

async fn what_is_given_back_after_the_boundary_is_too_late(bench: &Bench) {
    bench.clock.set(MARCH);
    let limit = Limit::calendar(10, Calendar::day());
    let receipt = bench.ask(limit, 4).await.receipt();
    let refund = |permits| Action::Refund { permits, receipt };
    assert_eq!(bench.act(limit, refund(3)).await.remaining(), 9);
    bench.advance(DAY);
    assert_eq!(bench.ask(limit, 5).await.remaining(), 5);
    assert_eq!(bench.act(limit, refund(1)).await.remaining(), 5);
}

async fn another_calendar_ends_the_window_at_its_first_boundary(bench: &Bench) {
    bench.clock.set(after(MARCH, 4 * DAY));
    let first = Limit::calendar(5, Calendar::month());
    assert_eq!(bench.drain(first, 1).await, 5);
    // In force from the 5th on, so the window ends on the 20th.
    let denied = bench
        .ask(Limit::calendar(5, Calendar::month().anchor(20)), 1)
        .await;
    assert_eq!(denied.retry_after(), Some(15 * DAY));
    // Midnight has passed since the month began.
    let daily = bench.ask(Limit::calendar(5, Calendar::day()), 1).await;
    assert_eq!((daily.remaining(), daily.reset_after()), (4, DAY));
}

async fn a_calendar_goes_on_where_a_fixed_window_was(bench: &Bench) {
    bench.clock.set(after(MARCH, 6 * HOUR));
    assert_eq!(
        bench.drain(Limit::fixed_window(3, DAY).aligned(), 1).await,
        3
    );
    let denied = bench.ask(Limit::calendar(5, Calendar::day()), 3).await;
    assert_eq!(denied.remaining(), 2);
    assert_eq!(denied.retry_after(), Some(18 * HOUR));
    assert_eq!(
        bench
            .ask(Limit::calendar(5, Calendar::day()), 2)
            .await
            .remaining(),
        0
    );
    let back = bench.ask(Limit::fixed_window(6, DAY).aligned(), 1).await;
    assert_eq!((back.remaining(), back.reset_after()), (0, 18 * HOUR));
}

/// Berlin's midnights stand for what another process takes for London's, an hour later.
async fn a_boundary_by_other_time_zone_data_gives_no_permits(bench: &Bench) {
    let early = Limit::calendar(5, month("Europe/Berlin"));
    let late = Limit::calendar(5, month("Europe/London"));
    let [early_begins, late_begins] = [MARCH.saturating_sub(HOUR.into()), MARCH];
    // Used up, the window of the late one ends where the early one says.
    bench.clock.set(late_begins.saturating_sub(DAY.into()));
    assert_eq!(bench.drain(late, 1).await, 5);
    assert_eq!(bench.ask(early, 1).await.retry_after(), Some(DAY - HOUR));
    bench.clock.set(early_begins);
    assert_eq!(bench.drain(early, 1).await, 5);
    // Between the two the late one asks: it is in the window that has begun.
    bench.advance(MINUTE);
    let denied = bench.ask(late, 1).await;
    assert!(denied.retry_after() > Some(29 * DAY), "{denied:?}");
    // Its own boundary opens no second one, whoever asks first.
    bench.clock.set(after(late_begins, SECOND));
    assert!(!bench.ask(late, 1).await.is_allowed());
    assert!(!bench.ask(early, 1).await.is_allowed());
}

/// A walk over boundaries with requests of both: in each month the limit, and no permit more.
async fn processes_with_other_data_admit_what_one_would(bench: &Bench) {
    let calendars = [
        [Calendar::month(), month("Europe/Berlin")],
        [day("Europe/Berlin"), day("Europe/London")],
        [
            Calendar::week(),
            Calendar::week().zone("Asia/Karachi").unwrap(),
        ],
        // A whole day apart, as before and after a zone has crossed the date line.
        [month("Pacific/Honolulu"), month("Pacific/Kiritimati")],
    ];
    let walk = prop::collection::vec((0..40_u32, any::<bool>(), 1..4_u64), 150);
    let mut runner = TestRunner::deterministic();
    for (number, calendars) in calendars.into_iter().enumerate() {
        let steps = walk.new_tree(&mut runner).unwrap().current();
        bench.clock.set(after(MARCH, 14 * DAY));
        let both = calendars.map(|calendar| Limit::calendar(3, calendar));
        let key = number.to_string();
        let (mut admitted, mut ends) = (0, Vec::new());
        for (hours, is_other, cost) in steps {
            // Often within the hours around a boundary.
            bench.advance(hours * hours * HOUR / 8);
            let limit = both[usize::from(is_other)];
            let counts = |calendar| Limit::calendar(1_000_000, calendar);
            let decisions = bench
                .ask_all(&[
                    ("counts", counts(calendars[0]), &key, 1),
                    ("counts of the other", counts(calendars[1]), &key, 1),
                ])
                .await;
            let left = decisions.iter().map(Decision::reset_after);
            ends.extend(left.map(|left| after(bench.clock.now(), left)));
            if bench.ask_all(&[("policy", limit, &key, cost)]).await[0].is_allowed() {
                admitted += cost;
            }
        }
        ends.sort_unstable();
        let apart = if number == 1 { 12 * HOUR } else { DAY };
        let apart = ends
            .windows(2)
            .filter(|two| two[0] < two[1].saturating_sub(apart.into()));
        let windows = 1 + apart.count() as u64;
        assert!(admitted <= 3 * windows, "{admitted} in {windows} windows");
        assert!(admitted > windows, "{admitted} in {windows} windows");
    }
}

#[tokio::test]
async fn a_quota_header_tells_the_length_of_this_window() {
    let clock = ManualClock::at(after(MARCH, 240 * DAY + 23 * HOUR));
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let limits = [
        ("day", Limit::calendar(5, day("Europe/Berlin"))),
        ("month", Limit::calendar(5, Calendar::month())),
    ];
    let policies = limits.map(|(name, limit)| Policy::new(name, limit).by(Everybody));
    let layer = RateLimitLayer::new(Limiter::new(store, policies).unwrap()).wrap_body();
    let service = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let response = layer
        .layer(service)
        .oneshot(Request::new(()))
        .await
        .unwrap();
    let header = |name| response.headers()[name].to_str().unwrap();
    let [day, month] = [25 * 3_600, 31 * 86_400];
    assert_eq!(
        header("ratelimit-policy"),
        format!("\"day\";q=5;w={day}, \"month\";q=5;w={month}")
    );
    let state = format!("\"day\";r=4;t={}", 24 * 3_600);
    assert!(header("ratelimit").starts_with(&state));
}

/// A process whose clock shows something else than that of the store, or of the memory.
#[derive(Clone)]
struct Both {
    store: ManualClock,
    wall: ManualClock,
}

impl Both {
    fn at(store: Micros, wall: Micros) -> Self {
        let [store, wall] = [store, wall].map(ManualClock::at);
        Self { store, wall }
    }

    fn pass(&self, time: Duration) {
        self.store.advance(time);
        self.wall.advance(time);
    }
}

impl Clock for Both {
    fn now(&self) -> Micros {
        self.store.now()
    }

    fn wall_clock(&self) -> Micros {
        self.wall.now()
    }
}

/// A limiter over this server, in a process with these clocks.
async fn over(server: &Server, clocks: &Both, limit: Limit) -> Limiter {
    let store = server.builder().clock_for_tests(clocks.clone());
    let store = store.connect().await.unwrap();
    let limiter = Limiter::builder(store, [Policy::new("api", limit)]);
    limiter.timeout(MINUTE).build().unwrap()
}

#[tokio::test]
async fn the_servers_clock_decides_which_window_it_is() {
    let server = Server::start();
    let limit = Limit::calendar(1, Calendar::month());
    // The process's clock is behind, by a moment or by days, or ahead.
    for (key, wall) in [
        ("a moment", MARCH.saturating_sub(MINUTE.into())),
        ("days", MARCH.saturating_sub((20 * DAY).into())),
        ("ahead", after(MARCH, 9 * DAY)),
    ] {
        let clocks = Both::at(MARCH, wall);
        let limiter = over(&server, &clocks, limit).await;
        let check = async || limiter.check("api", key).await.unwrap();
        assert!(check().await.is_allowed(), "{key}");
        assert!(!check().await.is_allowed(), "{key}");
        clocks.pass(27 * DAY);
        assert!(!check().await.is_allowed(), "{key}");
        clocks.pass(31 * DAY);
        assert!(check().await.is_allowed(), "{key}");
        assert!(!check().await.is_allowed(), "{key}");
    }
}

/// It knows no boundary around the server's time.
#[tokio::test]
async fn a_process_that_is_months_behind_has_windows_too() {
    let server = Server::start();
    let clocks = Both::at(MARCH, MARCH.saturating_sub((80 * DAY).into()));
    let limiter = over(&server, &clocks, Limit::calendar(1, Calendar::month())).await;
    let check = async || limiter.check("api", "alice").await.unwrap();
    assert!(check().await.is_allowed());
    let wait = check().await.retry_after().unwrap();
    assert!(wait <= 31 * DAY, "{wait:?}");
    clocks.pass(wait - SECOND);
    assert!(!check().await.is_allowed());
}

#[tokio::test]
async fn a_process_that_is_ahead_opens_no_window_twice() {
    let server = Server::start();
    let clocks = Both::at(MARCH.saturating_sub(SECOND.into()), after(MARCH, SECOND));
    let limiter = over(&server, &clocks, Limit::calendar(2, Calendar::month())).await;
    let check = async || limiter.check("api", "alice").await.unwrap();
    assert!(check().await.is_allowed());
    clocks.pass(2 * SECOND);
    assert_eq!(check().await.remaining(), 0);
    assert_eq!(check().await.retry_after(), Some(31 * DAY - SECOND));
}

#[tokio::test]
async fn in_memory_a_calendar_follows_the_wall_clock() {
    let limit = Limit::calendar(2, Calendar::day());
    // The steady clock began at another time of day.
    let clocks = Both::at(after(MARCH, 5 * HOUR), after(MARCH, 20 * HOUR));
    let store = MemoryStore::builder().clock(clocks.clone()).build();
    let limiter = Limiter::new(store, [Policy::new("api", limit)]).unwrap();
    let check = async || limiter.check("api", "alice").await.unwrap();
    let drain = async || {
        while check().await.is_allowed() {}
        check().await.retry_after()
    };
    assert_eq!(drain().await, Some(4 * HOUR));
    // Readings of two clocks are never taken at once, which opens no window twice.
    clocks.pass(4 * HOUR - SECOND / 2);
    clocks.wall.advance(Duration::from_millis(3));
    assert_eq!(drain().await, Some(SECOND / 2));
    clocks.pass(SECOND / 2);
    clocks.wall.step_back(Duration::from_millis(3));
    assert!(check().await.is_allowed());
    let left = drain().await.unwrap();
    assert!((DAY..DAY + SECOND).contains(&left), "{left:?}");
    // Set ahead, the window ends earlier. Set back, it goes on, and none is opened twice.
    clocks.wall.advance(6 * HOUR);
    let left = drain().await.unwrap();
    assert!((18 * HOUR..18 * HOUR + SECOND).contains(&left), "{left:?}");
    clocks.pass(left);
    assert!(check().await.is_allowed());
    let _ = drain().await;
    clocks.wall.step_back(HOUR);
    assert!(!check().await.is_allowed());
    clocks.pass(HOUR + SECOND);
    let left = drain().await.unwrap();
    assert!((DAY - 2 * HOUR..DAY).contains(&left), "{left:?}");
}
