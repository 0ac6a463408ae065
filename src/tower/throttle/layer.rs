//! `ThrottleLayer`: keeps services to a limit by making their callers wait.

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
/// It is for workers that call somebody else's API: over a `RedisStore`, the workers of all
/// processes together keep to one limit. It works with any tower service and any type of request.
/// Nothing is denied; a caller waits until the service is ready, except under a policy in
/// [shadow](crate::Mode::Shadow). Do not put a timeout around it without
/// [`max_wait`](Self::max_wait): see [what happens](#what-if-callers-give-up).
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
/// permits, so that never more are sent than the limit has. But a process that stood still sends
/// the requests whose time has come meanwhile late and all at once.
///
/// # What if the service keeps a place for its caller?
///
/// tonic's `Channel` and tower's `Buffer` and `ConcurrencyLimit` reserve a place when they become
/// ready. The permits come after that, so each waiting caller occupies a place; a `Channel` has
/// 1024. When waiting callers occupy them all, nobody can use the same `Channel`, not even without
/// this layer. Give waiting callers a `Channel` of their own, or let fewer wait at once with a
/// `ConcurrencyLimit` outside of this layer.
///
/// Do not put a `LoadShed` directly outside of it. A `LoadShed` decides when it first polls the
/// service, and over a store that takes a round trip the permits are never there by then: however
/// idle the limit is, it sheds every request to a new clone of the service. To shed requests that
/// would have to wait, ask [`Limiter::try_acquire`](crate::Limiter::try_acquire) instead of using
/// this layer.
///
/// # What if callers give up?
///
/// Callers give up by a timeout around the service, or because a handler is dropped when its client
/// disconnects. Their permits are given back, unless somebody has taken permits since. While demand
/// exceeds the limit, somebody always has. Then all wait for places that nobody will use, and each
/// new caller waits for still more of them, until nobody is let through in time: of 40 callers
/// under a limit of 20 a second, each of which gives up after half a second and tries again, none
/// is after the first second, in no process. So do not put a timeout around it, unless it has a
/// [`max_wait`](Self::max_wait) of a small part of that timeout, which bounds what is left behind.
/// Or ask `try_acquire`, which refuses at once, without taking anything, what would take too long.
///
/// Under a limit of [several rates](crate::Limit::and), what is left behind may stay taken under one
/// rate alone, and come back under the others. Those who then wait for the one may pass the others,
/// each by at most as much as it gives during their wait.
///
/// If callers of one service wait on several tokio runtimes, and one gives up, those on other
/// runtimes ask again: the clock of the first runtime may have stopped.
///
/// A service goes on only while somebody waits for it. If its caller gives up while it asks the store,
/// and keeps it without waiting again, nobody reads the answer: the question stays among those in
/// flight (`RedisStoreBuilder::max_in_flight`), also beyond its deadline. So drop a service for which
/// nobody waits.
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
/// without a limit sends also during a hold.
///
/// # What if the key is banned?
///
/// A [`Penalty`](crate::Penalty) may ban it because of denials of other operations. Then nothing is
/// sent until the ban is over. The store is asked once a minute meanwhile, which does not extend
/// the ban. So it takes at most a minute to notice that the ban was lifted: by a
/// [reset](crate::Limiter::reset) in any process, or because the policy has no penalty any more or
/// is [off](crate::Mode::Off).
///
/// Nor is anything sent while the key is on the [deny list](crate::Rules::deny). Each waiting caller
/// looks there every second, without asking the store. The same holds while the policy's limit
/// [admits nothing](crate::Limit::nothing).
///
/// # What if the policy is replaced?
///
/// [`Limiter::replace`](crate::Limiter::replace) may do that. Then the policy that has the name now
/// applies, in its mode; if there is none, the policy for which the layer was made. A caller who has
/// a place already keeps it, and waits as long as under the old limit. If the new limit does not
/// support waiting, the store is asked again when it says that there are permits, and at least once a
/// minute: all waiting callers ask at the same time, so their order is not kept. Under
/// a [`concurrency`](crate::Limit::concurrency) limit a place is given back when its request is
/// sent. A request that costs more than is ever available at once is not sent.
///
/// # What if the store fails?
///
/// Under [`FailureMode::Allow`](crate::FailureMode::Allow), the default, requests are sent without
/// a limit until the store answers again. Under [`FailureMode::Deny`](crate::FailureMode::Deny) no
/// request is sent that was not counted; the store is asked again every second. Under
/// `FailureMode::Local` requests are sent at this process's share of the rate, unless each costs more
/// than the share ever has at once: then none is sent. Waiting callers ask the store within a second
/// of its return, though not always in the order in which they came.
/// Permits that a store takes after the limiter's [`timeout`](crate::LimiterBuilder::timeout) stay
/// taken, and the next request waits for them, too: let the timeout be longer than the store is
/// ever slow.
#[derive(Clone, Debug)]
pub struct ThrottleLayer<F = ()> {
    source: Arc<Source>,
    feedback: F,
}

impl ThrottleLayer {
    /// A layer that keeps services to the policy of this name, all callers together, at the
    /// policy's cost.
    ///
    /// # Errors
    ///
    /// If there is no policy of this name, or its limit does not support waiting.
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
    /// Sets whose quota the requests use, for example that of the account for which they are sent:
    /// by default [`Key::everybody`], which [`acquire`](crate::Limiter::acquire) and others take to
    /// use the same quota.
    #[must_use]
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        Arc::make_mut(&mut self.source).key = key.into();
        self
    }

    /// Sets how many permits each request costs, at least 1. A request that costs more than the
    /// limit ever has at once does not wait for all of them; the requests after it wait longer
    /// instead.
    #[must_use]
    pub fn cost(mut self, permits: u64) -> Self {
        Arc::make_mut(&mut self.source).cost = Some(permits.max(1));
        self
    }

    /// Reserves permits at most this long (at least 1 ms) before they are available. If the wait
    /// would be longer, nothing is taken: the service stays not ready, and asks again when the
    /// permits are near enough.
    ///
    /// It is for callers who may [give up](#what-if-callers-give-up). The others, in all processes
    /// that do the same, then never wait longer for what was left behind than this time and the
    /// cost of one request. Make it a tenth of the time after which callers give up: a caller who
    /// gets a place with less time left than it takes leaves it behind. And make it several times
    /// as long as a trip to the store, or permits go unused.
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
    /// Callers who have a place go on in the order in which they took it. Among those who have
    /// none, in all processes, chance decides: in the order of arrival it would be the caller who
    /// is about to give up. A new caller takes a place up to half of this time ahead; callers who
    /// were refused one take it up to all of this time ahead, so that nobody who arrives at the
    /// right moment overtakes them.
    ///
    /// # What does the store see?
    ///
    /// A caller who was refused a place asks again when there may be one, plus a random time of up
    /// to half of this time. So callers do not all ask at the same instant, and each asks at most
    /// four times within this time on average. If denials are [remembered](crate::store::DenyCache), as in
    /// a `RedisStore`, most are answered from there. Each counts as a denial for
    /// [observers](crate::Observer), but not for a [`Penalty`](crate::Penalty). After a ban and
    /// after a failure of the store, it is also asked up to half of this time later than without
    /// `max_wait`, but at most half a minute later.
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
