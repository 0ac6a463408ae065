//! `ThrottleLayer`: holds services to a limit by letting their callers wait.

use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::Throttle;
use super::grant::Source;
use crate::error::CheckError;
use crate::key::Key;
use crate::limiter::Limiter;

/// Makes a service ready when the whole fleet may send the next request.
///
/// For workers that call somebody else's API: over a `RedisStore` all of them, in whatever process,
/// hold to one limit together. Works on any tower service, whatever its requests are. Nothing is
/// denied; who wants to send waits until the service is ready, though not for a policy in
/// [shadow](crate::Mode::Shadow). Put no timeout around it without [`max_wait`](Self::max_wait): see
/// [what happens](#what-if-callers-give-up).
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
/// [`Limiter::acquire`](crate::Limiter::acquire). Other than there, the next request waits for its
/// own permits, so that no more are sent at any time than the limit has; but a process that stood still sends
/// late, all at once, those whose time has come meanwhile.
///
/// # What if the service keeps a place for its caller?
///
/// So do tonic's `Channel` and tower's `Buffer` and `ConcurrencyLimit`, from when they are ready. The
/// permits come after that, and each caller who waits for them keeps a place; a `Channel` has 1024.
/// When callers who wait have them all, nobody gets through who uses the same `Channel` without this
/// layer. Give those who wait one of their own, or let fewer wait at once, by a `ConcurrencyLimit`
/// outside of this layer.
///
/// No `LoadShed` belongs directly outside of it. It judges by the first look, and over a store that takes a
/// trip the permits are never there by then: however idle the limit is, it sheds each request to a new clone
/// of the service. To shed what would have to wait, ask
/// [`Limiter::try_acquire`](crate::Limiter::try_acquire) instead of this layer.
///
/// # What if callers give up?
///
/// By a timeout around the service, or as a handler is dropped whose client has gone. Their permits are
/// given back, unless somebody has taken permits since. While more is asked for than the limit gives,
/// somebody always has. Then all wait for places that nobody will use, who comes next for still more of
/// them, and in the end nobody is let through in time: of 40 callers under a limit of 20 a second who each
/// give up after half a second and come again, none is after the first second, in no process. So put no
/// timeout around it unless it has a [`max_wait`](Self::max_wait) of a small part of that, which bounds what
/// is left behind; or let `try_acquire` refuse at once, without taking anything, what would take too long.
///
/// Who waits on another runtime of tokio than who gave up, with the same service, asks anew: the clock of the
/// first one may have stopped.
///
/// # What if the key is banned?
///
/// By a [`Penalty`](crate::Penalty), for denials of those who ask in other ways. Then nothing is sent
/// until the ban is over. The store is asked once a minute meanwhile, which makes no ban longer, so that
/// one that is lifted is waited for no more than a minute: after a [reset](crate::Limiter::reset),
/// wherever that was, or when the policy has no penalty any more or is [off](crate::Mode::Off).
///
/// # What if the policy is replaced?
///
/// By [`Limiter::replace`](crate::Limiter::replace). Then the one that has its name is held to, in the
/// mode that it is in; if none has it any more, the one that the layer was made for. If its limit is one
/// that nobody can wait for, the store is asked again when it says that there are permits, once a minute
/// at least: all who wait at the same time, so that their order is not kept. Under a
/// [`concurrency`](crate::Limit::concurrency) limit a place is given back when its request is sent. What
/// costs more than there ever is at once is not sent.
///
/// # What if the store fails?
///
/// Under [`FailureMode::Allow`](crate::FailureMode::Allow), the default, requests are sent
/// unlimited until the store answers again. Under [`FailureMode::Deny`](crate::FailureMode::Deny)
/// none is sent that was not counted; the store is asked again every second. Under
/// `FailureMode::Local` they are sent at this process's share of the rate; those who wait for it ask the
/// store a second after it is back at the latest, though not always in the order in which they came. What
/// a store counts that answers later than the limiter's [`timeout`](crate::LimiterBuilder::timeout) stays
/// taken, and the next request waits for it too: let the timeout be longer than the store is ever slow.
#[derive(Clone, Debug)]
pub struct ThrottleLayer {
    source: Arc<Source>,
}

impl ThrottleLayer {
    /// Holds services to the policy of this name, everybody together, at the policy's cost.
    ///
    /// # Errors
    ///
    /// When there is no policy of this name, or its limit is one that nobody can wait for.
    pub fn new(limiter: Limiter, policy: &str) -> Result<Self, CheckError> {
        Ok(Self {
            source: Arc::new(Source::new(limiter, policy)?),
        })
    }

    /// Whose quota the requests use: that of the account in whose name they are sent, say.
    #[must_use]
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        Arc::make_mut(&mut self.source).key = key.into();
        self
    }

    /// How many permits each request costs, at least 1. One that costs more than the limit ever has
    /// at once does not wait for all of them: those after it wait the longer.
    #[must_use]
    pub fn cost(mut self, permits: u32) -> Self {
        Arc::make_mut(&mut self.source).cost = Some(permits.max(1));
        self
    }

    /// Takes permits at most so long before they are there, and at least 1 ms. Where they would have to be
    /// waited for longer nothing is taken: the service is not ready, and asks again when they are near
    /// enough.
    ///
    /// For callers who may [give up](#what-if-callers-give-up). What they leave behind is waited for by the
    /// others, in all processes that do the same, no longer than this and what one request costs. Let it be
    /// a tenth of the time after which they give up: whoever is given a place with less time left than it
    /// takes leaves it behind. And let it be several times what a trip to the store takes, or permits go
    /// unused.
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
    /// Those who have a place go on in the order in which they took it. Of those who have none, in all
    /// processes, the lot decides: in the order in which they came it would be one who is about to give up.
    /// Who comes takes a place that is up to half of this time ahead; those who were refused one take it up
    /// to all of this time ahead, so that nobody who comes at the right moment overtakes them.
    ///
    /// # What does the store see?
    ///
    /// Who was refused a place asks again when there may be one, and up to half of this time later, at
    /// random: so they do not all ask at the same instant, and each on average no more than four times within
    /// this time. Where denials are [remembered](crate::DenyCache), as by a `RedisStore`, most are answered
    /// from there. Each is a denial to those who [observe](crate::Observer), and none that a
    /// [`Penalty`](crate::Penalty) counts. Also after a ban and after a failure of the store it is asked up to
    /// half of this time later than without, though half a minute at most.
    #[must_use]
    pub fn max_wait(mut self, longest: Duration) -> Self {
        let longest = longest.max(Duration::from_millis(1));
        Arc::make_mut(&mut self.source).max_wait = Some(longest);
        self
    }
}

impl<S> Layer<S> for ThrottleLayer {
    type Service = Throttle<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Throttle::new(inner, Arc::clone(&self.source))
    }
}
