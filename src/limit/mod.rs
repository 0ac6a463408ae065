//! `Limit`: an algorithm with its parameters, as the user writes it.

use std::time::Duration;

#[cfg(not(feature = "calendar"))]
use self::calendar::Calendar;
use self::rate::{GivenRate, Rates};

#[cfg(feature = "calendar")]
mod calendar;
#[cfg(not(feature = "calendar"))]
#[path = "no_calendar.rs"]
mod calendar;
mod rate;
mod validate;
mod words;

pub(crate) use self::calendar::Schedule;
#[cfg(feature = "calendar")]
pub use self::calendar::{Calendar, Weekday};
pub use self::rate::{Rate, per_day, per_hour, per_minute, per_second};
pub(crate) use self::validate::{ValidLimit, most_capacity, validate_time};
pub(crate) use self::words::Words;

/// The most permits of a limit: the largest integer of an HTTP Structured Field (RFC 9651), so that
/// every header can show it. Lua numbers are exact up to nine times as much.
pub(crate) const MOST_PERMITS: u64 = 999_999_999_999_999;
/// The same as text, for errors.
pub(crate) const ANY_COST: &str = "1 to 999999999999999";

const DEFAULT_SLICES: u32 = 10;
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// An algorithm with its parameters.
///
/// A `Limit` only holds the numbers. [`Limiter::new`](crate::Limiter::new) validates it and returns
/// an error that names the wrong field. The ranges are:
///
/// | field | range |
/// |---|---|
/// | `limit`, `burst`, `capacity` | 1 to 10^15 - 1 permits; see [`Limit::nothing`] for none |
/// | the rate of `gcra` and the buckets | at most 10^12 permits a second |
/// | `period`, `window`, `lease` | 1 ms to 366 days, a whole number of microseconds |
/// | `slices` | 1 to 1000 |
/// | the time to refill a whole `burst` or `capacity` | at most 100 years |
///
/// | constructor | admits | state for each key |
/// |---|---|---|
/// | [`Limit::gcra`] | a steady rate with a burst | one instant |
/// | [`Limit::token_bucket`] | the same, expressed as a bucket and its refill rate | one instant |
/// | [`Limit::leaky_bucket`] | one after the other at a constant rate, with up to `capacity - 1` waiting | one instant |
/// | [`Limit::fixed_window`] | `limit` in each window; up to twice that around a boundary | a count and two instants |
/// | `Limit::calendar` | `limit` in each month, week or day of a time zone (feature `calendar`) | a count and two instants |
/// | [`Limit::sliding_counter`] | about `limit` in any window, if requests arrive evenly | two counts and two times |
/// | [`Limit::sliding_window`] | never more than `limit` in any window; permits come back up to one slice late | a count for each slice in use |
/// | [`Limit::sliding_log`] | never more than `limit` in any window | one entry for each admitted request |
/// | [`Limit::concurrency`] | never more than `limit` at the same time | one entry for each request in flight |
/// | [`Limit::nothing`] | nothing | none |
///
/// [`and`](Limit::and) adds more rates: 10 a second, but no more than 1000 an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// `None` admits nothing.
    kind: Option<Kind>,
    rates: Rates,
    capacity: Option<u64>,
    aligned: bool,
    calendar: Option<Calendar>,
    slices: Option<u32>,
    without_delay: bool,
    lease: Option<Duration>,
}

/// The algorithm. Crate-visible because `crate::algorithm` builds the algorithms from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gcra,
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    SlidingLog,
    SlidingWindow,
    SlidingCounter,
    Concurrency,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Gcra,
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::FixedWindow,
        Self::SlidingLog,
        Self::SlidingWindow,
        Self::SlidingCounter,
        Self::Concurrency,
    ];
}

impl Limit {
    /// The generic cell rate algorithm (ITU-T I.371): `limit` permits in each `period`, evenly
    /// spread, with a burst of up to `limit` permits after idle time (see [`burst`](Self::burst)).
    ///
    /// The default choice. It admits the same requests as a token bucket, with the smallest state
    /// and the fastest script.
    ///
    /// ```
    /// use tower_throttle::{Limit, MINUTE};
    /// let limit = Limit::gcra(100, MINUTE).burst(20);
    /// ```
    pub const fn gcra(limit: u64, period: Duration) -> Self {
        Self::of(Kind::Gcra, limit, period)
    }

    /// A bucket of `capacity` tokens that starts full and refills continuously at `rate`. A request
    /// takes as many tokens as it costs.
    ///
    /// ```
    /// use tower_throttle::{Limit, per_second};
    /// let limit = Limit::token_bucket(100, per_second(50));
    /// ```
    pub const fn token_bucket(capacity: u64, rate: Rate) -> Self {
        let mut limit = Self::of(Kind::TokenBucket, rate.permits, rate.period);
        limit.capacity = Some(capacity);
        limit
    }

    /// A bucket that drains at a constant `rate`. A request adds its cost to the bucket and is
    /// denied if it would overflow the `capacity`.
    ///
    /// It is a queue: a request that fits is delayed until everything before it has drained. So
    /// requests leave one after the other at the rate, never two at once, unless another policy of
    /// the same limiter delays them for longer (see [`Policy::max_wait`](crate::Policy::max_wait)).
    /// A request that leaves immediately occupies the bucket too, so `capacity - 1` requests of
    /// cost 1 can wait behind it. [`without_delay`](Self::without_delay) turns the queue into a
    /// meter.
    ///
    /// ```
    /// use tower_throttle::{Limit, per_second};
    /// let limit = Limit::leaky_bucket(20, per_second(10));
    /// ```
    pub const fn leaky_bucket(capacity: u64, rate: Rate) -> Self {
        let mut limit = Self::of(Kind::LeakyBucket, rate.permits, rate.period);
        limit.capacity = Some(capacity);
        limit
    }

    /// At most `limit` permits in each window. A window opens with the first permitted request
    /// (or see [`aligned`](Self::aligned)) and ends `window` later.
    ///
    /// It is the easiest to understand. Around the boundary of two windows, a client can get up to
    /// `2 * limit` permits within the length of one window.
    pub const fn fixed_window(limit: u64, window: Duration) -> Self {
        Self::of(Kind::FixedWindow, limit, window)
    }

    /// At most `limit` permits in each month, week or day of a [`Calendar`], in a time zone: a quota
    /// as a plan or an invoice states it. It is a [`fixed_window`](Self::fixed_window) that begins
    /// where the calendar says.
    ///
    /// ```
    /// use tower_throttle::{Calendar, Limit};
    ///
    /// let limit = Limit::calendar(1_000_000, Calendar::month().zone("Europe/Berlin")?);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    ///
    /// The window in quota headers, `w`, is the length of the window that is open: 28 to 31 days for
    /// a month, and 23 or 25 hours for a day on which clocks change.
    ///
    /// With Redis the server's clock decides which window a request is in, and the process, which
    /// knows the calendar, tells it the boundaries around what its own clock shows. In memory, windows
    /// follow the [wall clock](crate::Clock::wall_clock).
    ///
    /// When the limit of a key gets another calendar, the window that is open ends where it would have,
    /// or at the first boundary of the new calendar since it opened, if that is earlier.
    #[cfg(feature = "calendar")]
    pub const fn calendar(limit: u64, calendar: Calendar) -> Self {
        let mut windows = Self::of(Kind::FixedWindow, limit, calendar.length());
        windows.calendar = Some(calendar);
        windows
    }

    /// At most `limit` permits in *any* interval of length `window`. It is exact. It stores one
    /// entry for each admitted request, about 15 bytes in Redis.
    ///
    /// A limit that allows more than a million entries for one key is rejected. Use a
    /// [`sliding_window`](Self::sliding_window) instead, which takes little memory whatever its
    /// limit, or let each request [cost](crate::Policy::cost) more.
    ///
    /// If the cost is read from the request or settled by the response, the number of entries is
    /// unknown and not bounded this way. At a cost of 1, a limit of a hundred million would take
    /// 1.5 GB for each key. Add a policy that limits the number of requests to bound it.
    ///
    /// Refunds, as by [`count_if`](crate::Policy::count_if), remove the refunded entry. If more
    /// than 31 requests were admitted since, the oldest entries are removed instead, which never
    /// admits a request too early.
    pub const fn sliding_log(limit: u64, window: Duration) -> Self {
        Self::of(Kind::SlidingLog, limit, window)
    }

    /// About `limit` permits in any interval of length `window`, estimated from two counts: that of
    /// the current window, plus the part of the previous window that the interval still overlaps.
    ///
    /// Windows begin at multiples of `window` since the Unix epoch. The estimate is rounded up to
    /// whole permits, so [`remaining`](crate::Decision::remaining) is rounded down. It assumes that
    /// the permits of the previous window were spread evenly. In the worst case, when all of them
    /// were taken at the end of it, up to `2 * limit - 1` permits can be taken within the length of
    /// one window.
    ///
    /// When `window` changes, permits taken before the change keep coming back as in the old window
    /// until the next permit is taken; denials do not change that. From then on, those that still
    /// count are part of the current window. While limits with different windows take permits from
    /// the same key in turns, this repeats and permits come back late.
    pub const fn sliding_counter(limit: u64, window: Duration) -> Self {
        Self::of(Kind::SlidingCounter, limit, window)
    }

    /// At most `limit` permits in any interval of length `window`, counted in slices of it (10, or
    /// see [`slices`](Self::slices)).
    ///
    /// A slice counts in full as long as it overlaps the last `window`. So the limit is never
    /// exceeded, and a permit may come back up to one slice late.
    pub const fn sliding_window(limit: u64, window: Duration) -> Self {
        Self::of(Kind::SlidingWindow, limit, window)
    }

    /// At most `limit` requests at the same time, across all processes.
    ///
    /// Each request holds a lease, which is renewed while the request runs. The lease ends when the
    /// response body ends, the service fails, the request is cancelled or its connection breaks. If
    /// a process is killed, its leases expire (after 30 s, or see [`lease`](Self::lease)).
    ///
    /// # When the limit can be exceeded
    ///
    /// A process loses the leases of running requests if it is suspended, or cannot reach the
    /// store, for longer than a lease lasts. All processes lose them if the store loses its data,
    /// or if the Redis server's clock jumps ahead by that much. Other requests are then admitted,
    /// and the limit is exceeded until the old requests end: an expired lease is not acquired
    /// again. Outside HTTP, [`Permit::has_lapsed`](crate::Permit::has_lapsed) tells whether a lease
    /// has expired.
    ///
    /// A body of a single chunk ends when the server takes that chunk, although it may still be
    /// sending it.
    ///
    /// # What a client can do
    ///
    /// A client holds its permit until it has sent its body and read the response, however slowly.
    /// While it is denied, each attempt calls the store: a permit may become free at any moment, so
    /// denials are not [cached](crate::store::DenyCache). Other policies of the same layer do not
    /// bound these attempts, because a denied request takes no permits from them. A
    /// [`Penalty`](crate::Penalty) bounds them, and so does a rate limit in a separate outer layer.
    ///
    /// ```
    /// use tower_throttle::{Limit, SECOND};
    /// let limit = Limit::concurrency(20).lease(10 * SECOND);
    /// ```
    ///
    /// # WebSockets
    ///
    /// An upgraded connection is no longer part of the response: the layer releases the permit once
    /// the 101 is sent. So let the policy that counts connections apply to no request, and let the
    /// handler hold a permit for the task that serves the connection. The handler acquires it while
    /// it can still deny the request: with the feature `axum`, a [`Rejection`](crate::Rejection) is
    /// a response. The same applies to HTTP/2, where a WebSocket is a `CONNECT` answered with 200;
    /// [`Route::get`](crate::Route::get) matches that too.
    ///
    /// ```
    /// use axum::extract::{Request, State};
    /// use axum::http::{StatusCode, header};
    /// use axum::response::{IntoResponse, Response};
    /// use axum::{Router, routing::get};
    /// use tower_throttle::{
    ///     ConfigError, Denied, Key, Limit, Limiter, MINUTE, MemoryStore, NoRequest, Policy,
    ///     RateLimitLayer,
    /// };
    ///
    /// fn app() -> Result<Router, ConfigError> {
    ///     let requests = Policy::new("requests", Limit::gcra(1_000, MINUTE));
    ///     // held by `chat` alone
    ///     let sockets = Policy::new("sockets", Limit::concurrency(100)).on(NoRequest);
    ///     let limiter = Limiter::new(MemoryStore::new(), [requests, sockets])?;
    ///     Ok(Router::new()
    ///         .route("/chat", get(chat))
    ///         .layer(RateLimitLayer::new(limiter.clone()))
    ///         .with_state(limiter))
    /// }
    ///
    /// async fn chat(State(limiter): State<Limiter>, request: Request) -> Result<Response, Denied> {
    ///     let permit = limiter.admit("sockets", Key::everybody()).await?;
    ///     // With axum's `WebSocketUpgrade`, in what is given to `on_upgrade`.
    ///     tokio::spawn(async move {
    ///         if let Ok(connection) = hyper::upgrade::on(request).await {
    ///             serve(connection).await;
    ///         }
    ///         drop(permit);
    ///     });
    ///     let headers = [(header::CONNECTION, "upgrade"), (header::UPGRADE, "chat")];
    ///     Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
    /// }
    ///
    /// async fn serve(connection: hyper::upgrade::Upgraded) {
    ///     // until it is closed
    /// #   let _ = connection;
    /// }
    /// # assert!(app().is_ok());
    /// ```
    pub const fn concurrency(limit: u64) -> Self {
        Self::of(Kind::Concurrency, limit, DEFAULT_LEASE)
    }

    /// Admits nothing: for a plan that does not include a feature, or to close a route for a while.
    ///
    /// Every request is denied with 429 and without a time to retry
    /// ([`Outcome::NeverFits`](crate::Outcome::NeverFits)). The process decides this without the
    /// store: the failure mode does not matter, and neither this policy nor others count the
    /// request. A [`Penalty`](crate::Penalty) does not count these denials. The limit has no
    /// options. Access lists and [modes](crate::Mode) apply as to any limit.
    ///
    /// [`Policy::limit_by`](crate::Policy::limit_by) may return it whatever the policy's own limit
    /// is. If it is the policy's own limit, `limit_by` may return any algorithm, but only limits of
    /// one rate. Methods outside HTTP use the policy's own limit, so there is nothing to
    /// [charge](crate::Limiter::charge) or [credit](crate::Limiter::credit) then.
    /// [`reset`](crate::Limiter::reset) clears the state of a key for every algorithm.
    ///
    /// ```
    /// use tower_throttle::{Limit, MINUTE, Policy};
    ///
    /// let exports = Policy::new("exports", Limit::gcra(5, MINUTE)).limit_by(|request, _| {
    ///     let is_free = request.headers.get("x-plan")? == "free";
    ///     is_free.then(Limit::nothing)
    /// });
    /// ```
    pub const fn nothing() -> Self {
        Self::of_kind(None, 0, Duration::ZERO)
    }

    const fn of(kind: Kind, permits: u64, period: Duration) -> Self {
        Self::of_kind(Some(kind), permits, period)
    }

    const fn of_kind(kind: Option<Kind>, permits: u64, period: Duration) -> Self {
        Self {
            kind,
            rates: Rates::one(permits, period),
            capacity: None,
            aligned: false,
            calendar: None,
            slices: None,
            without_delay: false,
            lease: None,
        }
    }

    /// Sets how many permits can be taken at once after idle time. By default as many as the limit.
    /// For [`gcra`](Self::gcra). With several rates, it applies to the last one:
    ///
    /// ```
    /// use tower_throttle::{HOUR, Limit, SECOND};
    /// // 20 at once of the 10 a second, 100 at once of the 1000 an hour
    /// let limit = Limit::gcra(10, SECOND).burst(20).and(1_000, HOUR).burst(100);
    /// ```
    #[must_use]
    pub const fn burst(mut self, permits: u64) -> Self {
        self.rates = self.rates.burst(permits);
        self
    }

    /// Begins windows at multiples of `window` since the Unix epoch (full minutes, full hours, days
    /// in UTC, weeks that begin on Thursdays) instead of at a key's first request. For
    /// [`fixed_window`](Self::fixed_window).
    ///
    /// If the clock is set back, the current window lasts up to one window longer. The memory store
    /// reads the time of day only when a window begins: the current window ends on time, however
    /// the system clock is set.
    #[must_use]
    pub const fn aligned(mut self) -> Self {
        self.aligned = true;
        self
    }

    /// Sets the number of slices of the window: 1 to 1000, by default 10. More slices return
    /// permits sooner and take more memory. For [`sliding_window`](Self::sliding_window).
    #[must_use]
    pub const fn slices(mut self, slices: u32) -> Self {
        self.slices = Some(slices);
        self
    }

    /// Lets a request that fits pass immediately, so that the bucket only measures. For
    /// [`leaky_bucket`](Self::leaky_bucket).
    #[must_use]
    pub const fn without_delay(mut self) -> Self {
        self.without_delay = true;
        self
    }

    /// Sets how long a lease lasts unless it is renewed: by default 30 s. It is renewed after each
    /// third of that time. For [`concurrency`](Self::concurrency).
    ///
    /// A shorter lease frees the permits of a killed process earlier. The minimum is 150 ms, or
    /// three times the limiter's [`timeout`](crate::LimiterBuilder::timeout) if that is less,
    /// because a renewal must be answered before the lease expires.
    ///
    /// Choose it several times as long as a decision may take, longer than a process may be
    /// suspended, and twice as long as the store outage that it must survive: a renewed lease has
    /// two thirds left, and a failed renewal is repeated every twelfth of the lease. An outage
    /// lasts until the store is called again: up to a second after its return, or 6 s after a wrong
    /// password or missing permission.
    #[must_use]
    pub const fn lease(mut self, life: Duration) -> Self {
        self.lease = Some(life);
        self
    }

    /// Adds a rate: `limit` permits in each `period`. A request takes permits under all rates or
    /// under none.
    ///
    /// ```
    /// use tower_throttle::{DAY, HOUR, Limit, SECOND};
    ///
    /// let limit = Limit::gcra(10, SECOND).and(1_000, HOUR).and(5_000, DAY);
    /// assert_eq!(limit.to_string(), "10 in 1 s and 1000 in 1 h and 5000 in 1 d");
    /// ```
    ///
    /// For [`gcra`](Self::gcra), [`fixed_window`](Self::fixed_window),
    /// [`sliding_counter`](Self::sliding_counter), [`sliding_window`](Self::sliding_window) and
    /// [`sliding_log`](Self::sliding_log): at most four rates, each with a different period, and a
    /// shorter period with fewer permits. [`aligned`](Self::aligned) and [`slices`](Self::slices)
    /// apply to all rates, wherever they are called; [`burst`](Self::burst) applies to the last
    /// one.
    ///
    /// The state of the first rate is stored under the policy's name, that of every other rate
    /// under its name and period. So you can add, remove and reorder the other rates, and change
    /// their numbers, without losing counts.
    #[must_use]
    pub const fn and(mut self, limit: u64, period: Duration) -> Self {
        self.rates = self.rates.and(limit, period);
        self
    }

    /// Each rate as a separate limit.
    ///
    /// ```
    /// use tower_throttle::{HOUR, Limit, SECOND};
    ///
    /// let limit = Limit::sliding_log(10, SECOND).and(1_000, HOUR);
    /// let alone = [Limit::sliding_log(10, SECOND), Limit::sliding_log(1_000, HOUR)];
    /// assert!(limit.rates().eq(alone));
    /// ```
    pub fn rates(&self) -> impl Iterator<Item = Limit> + use<> {
        let limit = *self;
        limit.rates.given().map(move |rate| limit.of_only(rate))
    }

    fn of_only(self, rate: GivenRate) -> Self {
        Self {
            rates: Rates::only(rate),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{HOUR, SECOND};

    #[test]
    fn rates_can_be_kept_when_their_limit_is_gone() {
        let rates = Limit::sliding_log(10, SECOND).and(1_000, HOUR).rates();
        assert_eq!(rates.count(), 2);
    }

    #[test]
    fn burst_applies_to_the_latest_rate() {
        let limit = Limit::gcra(10, SECOND).burst(20).and(1_000, HOUR).burst(30);
        let alone = [
            Limit::gcra(10, SECOND).burst(20),
            Limit::gcra(1_000, HOUR).burst(30),
        ];
        assert!(limit.rates().eq(alone));
    }
}
