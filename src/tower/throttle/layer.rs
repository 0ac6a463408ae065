//! `ThrottleLayer`: holds services to a limit by letting their callers wait.

use std::sync::Arc;

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
/// [shadow](crate::Mode::Shadow).
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
/// own permits, so that no more are sent at any time than the limit has.
///
/// # What if the service keeps a place for its caller?
///
/// So do tonic's `Channel` and tower's `Buffer` and `ConcurrencyLimit`, from when they are ready. The
/// permits come after that, and each caller who waits for them keeps a place; a `Channel` has 1024.
/// When callers who wait have them all, nobody gets through who uses the same `Channel` without this
/// layer. Give those who wait one of their own, or let fewer wait at once, by a `ConcurrencyLimit`
/// outside of this layer.
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
}

impl<S> Layer<S> for ThrottleLayer {
    type Service = Throttle<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Throttle::new(inner, Arc::clone(&self.source))
    }
}
