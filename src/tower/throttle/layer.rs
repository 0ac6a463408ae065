//! `ThrottleLayer`: keeps a client within a limit by making its callers wait.

use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::Throttle;
use super::grant::Source;
use crate::error::CheckError;
use crate::http::Feedback;
use crate::key::Key;
use crate::limiter::Limiter;

/// Makes a service ready when the whole fleet may send the next request.
///
/// Use it for workers that call another party's API: over a `RedisStore`, the workers of all
/// processes share one limit. It works with any tower service and any type of request. Nothing is
/// denied: callers wait until the service is ready, except under a policy in [shadow
/// mode](crate::Mode::Shadow). Do not put a timeout around it without [`max_wait`](Self::max_wait):
/// see [what happens](#what-if-callers-give-up).
///
/// ```
/// use std::convert::Infallible;
/// use std::time::{Duration, Instant};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// use tower_throttle::{Limit, Limiter, MemoryStore, Policy, ThrottleLayer, per_second};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let policy = Policy::new("partner", Limit::token_bucket(2, per_second(50)));
/// let limiter = Limiter::new(MemoryStore::new(), [policy])?;
/// let mut client = ServiceBuilder::new()
///     .layer(ThrottleLayer::new(limiter, "partner")?)
///     .service(service_fn(async |order: u32| Ok::<_, Infallible>(order)));
///
/// let start = Instant::now();
/// for order in 0..6 {
///     client.ready().await?.call(order).await?;
/// }
/// // Two at once, and then one every 20 ms.
/// assert!(start.elapsed() > Duration::from_millis(70));
/// # Ok(())
/// # }
/// ```
///
/// The limit is one of [`gcra`](crate::Limit::gcra), [`token_bucket`](crate::Limit::token_bucket)
/// or [`leaky_bucket`](crate::Limit::leaky_bucket), as for
/// [`Limiter::acquire`](crate::Limiter::acquire). Unlike there, a request waits for its own
/// permits, so no more are sent than the limit allows. But a process that was suspended sends the
/// requests that became due meanwhile late and all at once.
///
/// # What if the service keeps a place for its caller?
///
/// tonic's `Channel` and tower's `Buffer` and `ConcurrencyLimit` reserve a place when they become
/// ready. The permits come after that, so each waiting caller occupies a place; a `Channel` has
/// 1024. When waiting callers occupy them all, nobody else can use the same `Channel`, even without
/// this layer. Give waiting callers a separate `Channel`, or limit their number with a
/// `ConcurrencyLimit` outside of this layer.
///
/// Do not put a `LoadShed` directly outside of it. A `LoadShed` decides at the first poll, when a
/// store with round trips has never answered yet: it sheds every request of a new clone, however
/// idle the limit is. To shed requests that would have to wait, use
/// [`Limiter::try_acquire`](crate::Limiter::try_acquire) instead of this layer.
///
/// # What if callers give up?
///
/// Callers give up by a timeout around the service, or because a client disconnects and its handler
/// is dropped. Their permits are refunded, unless somebody has taken permits since. Under overload,
/// somebody always has. Every place then belongs to a caller that has left, and no caller is served
/// in time. Example: 40 callers under a limit of 20 a second, each of which times out after half a
/// second and retries. After the first second none is served, in any process.
///
/// So do not put a timeout around this layer, unless [`max_wait`](Self::max_wait) is a small part
/// of that timeout, which bounds the abandoned places. Or use `try_acquire`, which denies
/// immediately what would take too long, without taking anything.
///
/// Under a limit of [several rates](crate::Limit::and), an abandoned place may stay taken under one
/// rate only. Requests that wait for that rate may then exceed the other rates, each by at most
/// what the other rate gives during the wait.
///
/// If callers of one service wait on several tokio runtimes and one gives up, the callers on other
/// runtimes start anew: the timers of the first runtime may have stopped.
///
/// A service makes progress only while it is polled. If a caller gives up during a store call and
/// keeps the service without polling it, nobody reads the answer, and the call counts as in flight
/// (`RedisStoreBuilder::max_in_flight`) even beyond its timeout. So drop a service that nobody
/// polls.
///
/// # What if the upstream asks to wait?
///
/// With [`feedback`](ThrottleLayer::feedback), a response such as a 429 with `Retry-After` holds the
/// whole fleet: all callers of the same policy and key, in all processes over one store, whose layers
/// have feedback. Before each request the store is asked once more, when its time has come; so nothing is
/// sent before the instant that the upstream named, except what was sent already or is sent within a
/// round trip to the store after the answer. Then callers go on at the limit's pace, without a burst. Of
/// a limit of [several rates](crate::Limit::and), the first one sets this pace; what the others have
/// left stays. Callers who had a place already may have to queue again, behind those whose time is
/// later.
///
/// What the upstream announces only ever tightens: of several announcements the latest instant counts,
/// and none lets anybody go on earlier than the limit does. A hold lasts for a
/// [minute](crate::Feedback::max_hold) at most, unless it is announced again. A
/// [reset](crate::Limiter::reset) of the key ends it.
///
/// It costs one more trip to the store for each request, and none without feedback. A service that is
/// ready has passed: call it at once. Who takes permits of the same policy in another way, such as by
/// [`acquire`](crate::Limiter::acquire) or [`check`](crate::Limiter::check), is delayed or denied by
/// the raised debt, but does not ask once more. A hold is not seen by [`prefetch`](crate::Prefetch)ed
/// permits of other processes, under a limit that nobody can wait for, and in shadow, where nobody waits
/// in any case. While the store fails, its [`FailureMode`](crate::FailureMode) decides: a fleet that sends
/// without a limit sends also during a hold. A hold that the store fails to take is repeated every second
/// until the store answers, and the fleet keeps what is left of it.
///
/// # What if the key is banned?
///
/// A [`Penalty`](crate::Penalty) may ban it because of denials elsewhere. Then nothing is sent
/// until the ban ends. Meanwhile the store is called once a minute, which does not extend the ban.
/// So it takes at most a minute to notice that the ban was lifted, by a
/// [reset](crate::Limiter::reset) in any process, or because the policy lost its penalty or is
/// [off](crate::Mode::Off).
///
/// Nothing is sent while the key is on the [deny list](crate::Rules::deny) or while the policy's
/// limit [admits nothing](crate::Limit::nothing) either. Each waiting caller checks that every
/// second, without a store call.
///
/// # What if the policy is replaced?
///
/// After [`Limiter::replace`](crate::Limiter::replace), the policy that now has the name applies,
/// in its mode; if there is none, the policy for which the layer was built. A caller that has
/// already reserved permits keeps them and waits as long as under the old limit.
///
/// If the new limit does not support waiting, callers retry when the store says that there are
/// permits, and at least once a minute. They all retry at the same time, so their order is lost.
/// Under a [`concurrency`](crate::Limit::concurrency) limit the permit is released when its request
/// is sent. A request that costs more than the new limit's capacity is not sent.
///
/// # What if the store fails?
///
/// - [`FailureMode::Allow`](crate::FailureMode::Allow), the default: requests are sent without a
///   limit until the store answers again.
/// - [`FailureMode::Deny`](crate::FailureMode::Deny): no request is sent without being counted. The
///   store is called every second.
/// - `FailureMode::Local`: requests are sent at this process's share of the rate. If each costs
///   more than the share's capacity, none is sent.
///
/// Waiting callers call the store within a second of its return, though not always in order of
/// arrival. If a store grants permits after the limiter's
/// [`timeout`](crate::LimiterBuilder::timeout), they stay taken, and the next request waits for
/// them too: choose a timeout longer than the store's slowest answers.
#[derive(Clone, Debug)]
pub struct ThrottleLayer<F = ()> {
    source: Arc<Source>,
    feedback: F,
}

impl ThrottleLayer {
    /// Creates a layer with the policy of this name, one key for all callers, and the policy's
    /// cost.
    ///
    /// # Errors
    ///
    /// An error if there is no policy of this name, or its limit does not support waiting.
    pub fn new(limiter: Limiter, policy: &str) -> Result<Self, CheckError> {
        Ok(Self {
            source: Arc::new(Source::new(limiter, policy)?),
            feedback: (),
        })
    }

    /// Obeys what the responses say: when one of them asks to wait, the whole fleet does. See
    /// [what is held](ThrottleLayer#what-if-the-upstream-asks-to-wait), and [`Feedback`] for what is
    /// understood and for clients other than hyper and tonic.
    #[must_use]
    pub fn feedback<H>(mut self, feedback: Feedback<H>) -> ThrottleLayer<Feedback<H>> {
        Arc::make_mut(&mut self.source).obeys = true;
        ThrottleLayer {
            source: self.source,
            feedback,
        }
    }
}

impl<F> ThrottleLayer<F> {
    /// Sets the key, for example the account for which requests are sent. By default
    /// [`Key::everybody`]. [`acquire`](crate::Limiter::acquire) with the same key uses the same
    /// quota.
    #[must_use]
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        Arc::make_mut(&mut self.source).key = key.into();
        self
    }

    /// Sets the cost of each request in permits, at least 1. A request that costs more than the
    /// limit's capacity does not wait for all of them; the requests after it wait longer instead.
    #[must_use]
    pub fn cost(mut self, permits: u64) -> Self {
        Arc::make_mut(&mut self.source).cost = Some(permits.max(1));
        self
    }

    /// Sets how long (at least 1 ms) before they are available permits are reserved. If the wait
    /// would be longer, nothing is taken: the service stays not ready and retries when the permits
    /// are near enough.
    ///
    /// For callers that may [give up](#what-if-callers-give-up). If all processes do the same,
    /// abandoned places delay other callers by at most this time plus the cost of one request. Make
    /// it a tenth of the callers' timeout: a caller whose remaining time is shorter than its wait
    /// abandons its place. And make it several times as long as a round trip to the store, or
    /// permits go unused.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    /// use tokio::time::timeout;
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_throttle::{Limit, Limiter, MemoryStore, Policy, ThrottleLayer, per_second};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = Policy::new("partner", Limit::token_bucket(2, per_second(50)));
    /// let limiter = Limiter::new(MemoryStore::new(), [policy])?;
    /// let layer = ThrottleLayer::new(limiter, "partner")?.max_wait(Duration::from_millis(100));
    /// let client = layer.layer(service_fn(async |order: u32| Ok::<_, Infallible>(order)));
    ///
    /// let sent = timeout(Duration::from_secs(1), client.oneshot(7)).await?;
    /// assert_eq!(sent, Ok(7));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Who is next?
    ///
    /// Callers that have reserved permits go on in that order. Among the others, in all processes,
    /// the order is random: in order of arrival, the next would always be a caller that is about to
    /// give up. A new caller reserves up to half of this time ahead. Callers that were denied
    /// before reserve up to all of this time ahead, so that no new caller overtakes them.
    ///
    /// # What does the store see?
    ///
    /// A denied caller retries when permits may be available, plus a random time of up to half of
    /// `max_wait`. So callers do not all retry at the same time, and each retries at most four
    /// times within `max_wait` on average. With a [deny cache](crate::store::DenyCache), as in a
    /// `RedisStore`, most retries need no store call. Each counts as a denial for
    /// [observers](crate::Observer), but not for a [`Penalty`](crate::Penalty). After a ban or a
    /// store failure, a retry also comes up to half of `max_wait` later than without it, but at
    /// most half a minute later.
    #[must_use]
    pub fn max_wait(mut self, longest: Duration) -> Self {
        let longest = longest.max(Duration::from_millis(1));
        Arc::make_mut(&mut self.source).max_wait = Some(longest);
        self
    }
}

impl<S, F: Clone> Layer<S> for ThrottleLayer<F> {
    type Service = Throttle<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        Throttle::new(inner, Arc::clone(&self.source), self.feedback.clone())
    }
}
