//! `Operator`: what an on-call engineer can see and change of a limiter, as a router for axum.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;

use self::api::{Api, ReadActor};
use self::audit::AuditLog;
use self::counters::Counters;
use self::origin::AllowedHosts;
use crate::error::{ConfigError, StoreErrorKind};
use crate::limiter::Limiter;
use crate::observer::{ChangeEvent, DecisionEvent, Observer, RefusalEvent};
use crate::observers::TopDenied;
use crate::request::{AddressExtractor, RequestHead};
use crate::time::{Clock, SystemClock};

mod api;
mod audit;
mod blocks;
mod counters;
mod enforcement;
mod history;
mod origin;
mod page;
mod quota;
mod response;
mod router;
mod state;
mod subject;

/// What people on call see of a limiter and can change: a page that shows it live, and the same as
/// JSON.
///
/// **The router has no login.** Anybody who reaches it can switch limiting off: put your
/// own authentication in front, and serve it where only operators come. A listener that only this
/// machine reaches is not enough by itself: pages that an operator visits can reach it, too (DNS
/// rebinding), unless you name the [hosts](Self::allowed_hosts) that it answers for.
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_throttle::{Limit, Limiter, MINUTE, MemoryStore, Operator, Policy, RateLimitLayer};
///
/// let operator = Operator::new();
/// let policy = Policy::new("api", Limit::gcra(100, MINUTE));
/// let limiter = Limiter::builder(MemoryStore::new(), [policy])
///     .observe(operator.clone())
///     .build()?;
///
/// // what is limited
/// let app: Router = Router::new()
///     .route("/", get(async || "hello"))
///     .layer(RateLimitLayer::new(limiter.clone()));
/// // for operators only, on a listener of its own and behind your authentication
/// let internal: Router = Router::new().nest_service("/limits", operator.router(limiter));
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
///
/// # The endpoints
///
/// Under the path where it is mounted; `docs/operations.md` in the repository shows what they
/// answer.
///
/// | | body | |
/// |---|---|---|
/// | `GET /` | | the page |
/// | `GET /state` | | whether requests are limited, the policies, all counts, the last hour by the minute, the store, who is [denied most](Self::top_denied), who is blocked, and what was changed here |
/// | `POST /switch` | `{"on": false}` | the kill switch |
/// | `POST /mode` | `{"policy": "api", "mode": "shadow"}`, and `"enforce": "5%"` if wanted | changes a policy's mode, and the share of the subjects for whom it is [enforced](crate::Policy::enforce_for) |
/// | `POST /peek` | `{"policy": "api", "subject": …}` | looks at what a subject has left |
/// | `POST /reset` | the same | forgets all that is known of a subject |
/// | `POST /block` | `{"policy": "api", "subject": …, "for_secs": 3600, "reason": "scraping"}`, or `"address": "203.0.113.0/24"` instead of the first two | refuses a client for a time, as if it were on the [deny list](crate::Rules::deny) |
/// | `POST /unblock` | `{"id": 7}` | lifts a block |
///
/// A subject is one of these; subjects go in bodies, so that they do not stand in access logs:
///
/// | | the key of |
/// |---|---|
/// | `"everybody"` | [`Everybody`](crate::Everybody) |
/// | `{"address": "203.0.113.9"}` | [`PeerAddr`](crate::PeerAddr), [`ClientAddr`](crate::ClientAddr): any address of the client; if the extractor [does not tell](crate::KeyExtractor::canonical_address) the form in its keys, an IPv6 one needs the number of bits in them, `"2001:db8::7/64"` |
/// | `{"unattributed": "10.0.0.1"}` | requests that this trusted proxy sent without saying for whom |
/// | `{"header": {"name": "x-user", "value": "alice"}}` | [`Header`](crate::Header) |
/// | `{"user": "alice"}`, `{"user": 7}` | [`Extension`](crate::Extension), [`Key::user`](crate::Key::user), `key = "user"` in a file; a number and its digits are the same user |
/// | `{"text": "+49 30 1234567"}`, `{"number": 7}` | a text or a number alone, as a closure returns it or [`Limiter::check`] is given it; of [`Host`](crate::Host) the host, as `"acme.example.com"` |
/// | `"missing"` | the bucket that requests without a key share |
/// | `[…, …]` | several extractors together |
/// | `{"hash": "9d15…"}` | a [`Subject`](crate::Subject), as logs and stored keys show it |
///
/// What goes wrong is answered with a problem document (RFC 9457). A `POST` needs
/// `content-type: application/json`. It is refused with 403 if its `Origin` is not its `Host`, or if
/// `Sec-Fetch-Site` names another site: a page elsewhere cannot press the buttons of an operator who is
/// logged in.
///
/// # What if there are several processes
///
/// The counts, the modes, the switch, the blocks and the list of changes are those of this process;
/// what a subject has used is the store's, and so the same in all of them. Mount one in each process.
/// To refuse a client in all processes, use the [deny list](crate::Rules::deny), in code or in the
/// configuration file.
///
/// # A limiter without this observer
///
/// An `Operator` counts what it sees as an [`Observer`]. Of a limiter that was built without
/// [`observe`](crate::LimiterBuilder::observe), all works but the counts.
#[derive(Clone)]
#[cfg_attr(docsrs, doc(cfg(feature = "operator")))]
pub struct Operator {
    counters: Arc<Counters>,
    audit: Arc<AuditLog>,
    clock: Arc<dyn Clock>,
    top: Option<TopDenied>,
    hosts: AllowedHosts,
    client_address: Option<Arc<dyn AddressExtractor>>,
    actor: Option<ReadActor>,
}

impl Operator {
    /// One that has counted nothing yet.
    pub fn new() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Self {
            counters: Arc::new(Counters::new(Arc::clone(&clock))),
            audit: Arc::new(AuditLog::new(Arc::clone(&clock))),
            clock,
            top: None,
            hosts: AllowedHosts::default(),
            client_address: None,
            actor: None,
        }
    }

    /// Replaces the system's clock, for tests. The clock decides when a block ends and in which minute a
    /// request counts, and dates the changes. Call this first: all counts start again.
    #[must_use]
    pub fn clock(self, clock: impl Clock) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        Self {
            counters: Arc::new(Counters::new(Arc::clone(&clock))),
            audit: Arc::new(AuditLog::new(Arc::clone(&clock))),
            clock,
            ..self
        }
    }

    /// Shows this list of who is denied most, which the limiter must have as an
    /// [observer](crate::LimiterBuilder::observe) of its own.
    #[must_use]
    pub fn top_denied(mut self, top: TopDenied) -> Self {
        self.top = Some(top);
        self
    }

    /// Answers only requests for these hosts (`limits.internal`, or `127.0.0.1:9000` for that port
    /// alone), and refuses others with 403. Pages of these hosts may press the buttons. Without a list
    /// any host will do, and a page may press them if its origin is the request's own host.
    ///
    /// Where a proxy in front changes the host, name both: the one that browsers see, and the one that
    /// the proxy asks for.
    ///
    /// ```
    /// use tower_throttle::Operator;
    ///
    /// let operator = Operator::new().allowed_hosts(["limits.internal", "127.0.0.1:9000"])?;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Names what is no host, such as a URL; and a list without a host.
    pub fn allowed_hosts(
        mut self,
        hosts: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        self.hosts = AllowedHosts::new(hosts)?;
        Ok(self)
    }

    /// Lets operators block addresses and networks. `by` reads the client's address from a request:
    /// use the same [`ClientAddr`](crate::ClientAddr) or [`PeerAddr`](crate::PeerAddr) as in your
    /// policies. Without it, operators can block only the subject of a policy.
    ///
    /// Try it before you need it: if the server does not provide what `by` needs, every request is
    /// answered with 500 while an address is blocked, as under a [deny list](crate::Rules::deny).
    ///
    /// # Errors
    ///
    /// Says what is wrong with `by`.
    pub fn client_address(mut self, by: impl AddressExtractor) -> Result<Self, ConfigError> {
        by.validate()?;
        self.client_address = Some(Arc::new(by));
        Ok(self)
    }

    /// Names the operator who sends a request, for the list of changes and for the blocks. Read a header
    /// or an extension that your authentication sets. A header that clients can set proves nothing.
    ///
    /// ```
    /// use tower_throttle::{Operator, extractor};
    ///
    /// let operator = Operator::new().actor(extractor(|request| {
    ///     let user = request.headers.get("x-forwarded-user")?;
    ///     Some(user.to_str().ok()?.to_owned())
    /// }));
    /// ```
    #[must_use]
    pub fn actor(
        mut self,
        by: impl Fn(&RequestHead<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.actor = Some(Arc::new(by));
        self
    }

    /// The page and its endpoints, about this limiter. It has no authentication of its own.
    ///
    /// Mounted by `nest_service("/limits", …)`, the page is at `/limits` and at `/limits/`.
    pub fn router(&self, limiter: Limiter) -> Router {
        let api = Api {
            limiter,
            counters: Arc::clone(&self.counters),
            top: self.top.clone(),
            audit: Arc::clone(&self.audit),
            clock: Arc::clone(&self.clock),
            client_address: self.client_address.clone(),
            actor: self.actor.clone(),
        };
        router::router(api, self.hosts.clone())
    }
}

impl Default for Operator {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Operator {
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        let is_prefetched = event.decision.is_prefetched();
        self.counters
            .count(event.policy, event.result(), is_prefetched);
    }

    fn on_refusal(&self, event: &RefusalEvent<'_>) {
        self.counters.count_refusal(event.mode, event.reason);
    }

    fn on_store_answer(&self, elapsed: Duration, failure: Option<StoreErrorKind>) {
        self.counters.count_answer(elapsed, failure);
    }

    fn on_change(&self, event: &ChangeEvent) {
        if let ChangeEvent::ConfigRead { error } = event {
            self.counters.note_config_read(error.clone());
        }
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").finish_non_exhaustive()
    }
}
