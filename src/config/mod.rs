//! The same policies from a file: [`Config`], and [`ConfigFile`], which reads it again when it
//! changes.
//!
//! ```
//! use tower_throttle::{Config, RateLimitLayer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config: Config = r#"
//!     store = "memory"
//!
//!     [[policy]]
//!     name = "client"
//!     algorithm = "gcra"
//!     limit = "100/min"
//!     burst = 20
//!     key = "peer"
//! "#
//! .parse()?;
//! let limiter = config.connect().await?;
//! assert_eq!(limiter.peek("client", "somebody").await?.remaining(), 20);
//! let layer: RateLimitLayer = config.layer(limiter);
//! # Ok(())
//! # }
//! ```
//!
//! # The whole file
//!
//! | field | means | absent |
//! |---|---|---|
//! | `store` | `"memory"`, or a server as `"redis://127.0.0.1:6379"` (see [`RedisStore`](crate::RedisStore) for all addresses), or a variable that holds one, see below | an error |
//! | `tls` | over TLS, how the servers of the store are known, see below | by the certificates that the system trusts |
//! | `prefix` | the start of every key in Redis | `"throttle"` |
//! | `secret` | a variable that holds what subjects are hashed with, see [`key_secret`] | they are hashed without |
//! | `headers` | quota headers: a word or a list of words, see below | `"draft-11"` |
//! | `rejection` | the body of rejections: `"problem-json"`, `"plain-text"` | `"problem-json"` |
//! | `timeout` | the time that a decision may take, 1 ms to 60 s | `"50ms"` |
//! | `on_store_failure` | `"allow"`, `"deny"` or a share of the limit for this process, such as `{ local = 0.25 }`: see [`FailureMode`]; a policy may have its own | `"allow"` |
//! | `trusted_proxies` | the addresses and ranges of your proxies; all addresses only with `trusted_hops` | none: the peer is the client |
//! | `client_address` | the one header they write: `"x-forwarded-for"`, `"forwarded"`, `"header:<name>"` | `"x-forwarded-for"` |
//! | `trusted_hops` | how many proxies are in front, where their addresses are unknown, 1 to 64; `trusted_proxies` still says from where a header is believed at all: see [`ClientAddr::trusted_hops`] | told by their addresses |
//! | `ipv6_prefix` | the bits by which IPv6 clients and peers are told apart, 32 to 128 | `64` |
//! | `exempt` | requests that are not limited: a route or a list, as `on` of a policy | none |
//! | `skip_preflights` | CORS preflights are not limited: `true`; they must [reach nothing but what answers them](crate::RateLimitLayer::skip_preflights) | `false` |
//! | `deny` | clients that are refused with 403, see below | nobody |
//! | `allow` | clients that are let through uncounted, see below | nobody |
//! | `[[policy]]` | one policy, as often as needed; `policy = []` if there are to be none | an error: the rest of the file may be lost |
//!
//! # Secrets
//!
//! ```toml
//! store = { env = "REDIS_URL" }
//! secret = { env = "LIMITS_SECRET" }
//! ```
//!
//! The variables of the environment are read together with the file. One that is not set, empty or
//! not UTF-8 is an error. No error, log or `Debug` shows a value, except for the host and the port of
//! a server that cannot be reached. An address without a password may stand in the file; the secret
//! may not.
//!
//! # `tls`
//!
//! ```toml
//! store = { env = "REDIS_URL" }    # rediss://, rediss-cluster:// or rediss-sentinel://
//! tls = { ca_file = "/etc/ssl/redis-ca.pem", server_name = "cache.example.com" }
//! ```
//!
//! | field | means | absent |
//! |---|---|---|
//! | `ca_file` | the certificates of the authorities to trust | those that the system trusts |
//! | `certificate_file`, `key_file` | the certificate of this process, with its chain, and its private key, for servers that ask for one | it shows none |
//! | `server_name` | what the certificates of all servers are for, if these announce other addresses, as nodes of a cluster may | the address by which each is reached |
//! | `danger_accept_invalid_certs` | **dangerous**: `true` accepts every certificate, and so everybody in between; needs the feature `redis-tls-insecure` | certificates are checked |
//!
//! Files are in PEM, and their paths are relative to the directory in which the process runs. They are
//! read together with the configuration; who replaces one of them restarts the service.
//!
//! # `headers`
//!
//! | word | means |
//! |---|---|
//! | `"draft-11"` | [`QuotaHeaders::DRAFT_11`] |
//! | `"draft-6"` | [`QuotaHeaders::DRAFT_6`] |
//! | `"x-ratelimit-delta"` | [`QuotaHeaders::X_RATELIMIT_DELTA`] |
//! | `"x-ratelimit-epoch"` | [`QuotaHeaders::X_RATELIMIT_EPOCH`] |
//! | `"denials"` | in a list, all its others on denials only; alone, `"draft-11"` on denials only |
//! | `"none"` | none |
//!
//! `headers = ["draft-11", "x-ratelimit-epoch"]` sends both; the two formats of `X-RateLimit`
//! cannot be combined.
//!
//! # `deny` and `allow`
//!
//! ```toml
//! deny = ["203.0.113.0/24", "2001:db8::1", { key = "header:x-user", values = ["mallory"] }]
//! ```
//!
//! An address or a range is that of the client, as `key = "client-addr"` reads it: one within the
//! `trusted_proxies` is refused without `trusted_hops`, since no client has it. Values are those
//! of a key that a policy has, `"header:<name>"`, `"host"` or `"user"`. They are looked up only for
//! requests to which this policy applies, and not while it is off. [`Rules::deny`] and
//! [`Rules::allow`] say what becomes of these clients.
//!
//! # Each `[[policy]]`
//!
//! | field | means | absent |
//! |---|---|---|
//! | `name` | its name in headers, answers and stored keys | an error |
//! | `algorithm` | `"gcra"`, `"token-bucket"`, `"leaky-bucket"`, `"fixed-window"`, `"calendar"` (feature `calendar`), `"sliding-counter"`, `"sliding-window"`, `"sliding-log"`, `"concurrency"`: see [`Limit`](crate::Limit) | an error |
//! | `limit` | permits in a period: `"10/s"`, `"100/min"`, `"5/15min"`, `"20/250ms"`, also `h`, `day`; token-bucket, leaky-bucket: the rate; calendar: permits in a `month`, `week` or `day`, as `"1000000/month"`; concurrency: requests at the same time, as `20`; the others: also a list of up to four rates, as `["10/s", "1000/h"]`, see [`Limit::and`] | an error |
//! | `burst` | gcra: permits that can be taken at once; a list if `limit` is one | as many as the limit |
//! | `capacity` | token-bucket, leaky-bucket: permits that the bucket holds | as many as the limit |
//! | `delay` | leaky-bucket: requests leave one after the other; `false`: each request that fits passes at once | `true` |
//! | `aligned` | fixed-window: windows begin at full minutes, hours, days in UTC, see [`Limit::aligned`] | `false` |
//! | `zone` | calendar: the time zone, by its name in the IANA time-zone database, as `"Europe/Berlin"`: see `Calendar` | `"UTC"` |
//! | `anchor` | calendar, a month: the day on which it begins, `1` to `31`; a shorter month begins with its last day | `1` |
//! | `first_day` | calendar, a week: the day on which it begins: `"monday"`, `"tuesday"`, `"wednesday"`, `"thursday"`, `"friday"`, `"saturday"` or `"sunday"` | `"monday"` |
//! | `slices` | sliding-window: counts for each window, 1 to 1000 | `10` |
//! | `lease` | concurrency: how long a request counts after its server was killed | `"30s"` |
//! | `tiers` | other limits for requests in which a key has certain values, see below | all have the policy's |
//! | `key` | whose quota: `"client-addr"`, `"peer"`, `"host"` (see [`Host`](crate::Host)), `"header:<name>"`, `"user"` (a [`UserId`] extension), `"everybody"`; a list makes one key of all | an error, unless the policy is on `"none"` |
//! | `on` | a route or a list: `"POST /login"`, `"/api/{*rest}"`; a gRPC method is written without an HTTP method, `"/package.Service/Method"`, see [`Route`](crate::Route). `"none"`: no layer applies it, and handlers ask it themselves, see [`NoRequest`](crate::NoRequest) | every request |
//! | `cost` | permits for each request, or `"header:<name>"` to read them | `1` |
//! | `count_status` | only requests that are answered with this HTTP status count: `401`, or a list | every request counts |
//! | `count_grpc_status` | only gRPC calls whose method returns this status count, not those that fail in the stream of an answer, see [`ResponseHead::grpc_status`](crate::ResponseHead::grpc_status): `16`, or a list; beside `count_status`, either | every request counts |
//! | `mode` | `"enforce"`; `"shadow"` counts and denies nobody; `"off"`: see [`Mode`](crate::Mode) | `"enforce"` |
//! | `max_wait` | gcra, token-bucket, leaky-bucket: how long a request may be delayed until it fits, 1 ms to 24 h | it is denied |
//! | `group` | policies of one group share a key for each subject, if their algorithm is gcra, token-bucket or leaky-bucket, so that several of them cost a request little more than one: see [`Policy::group`](crate::Policy::group) | a key of its own |
//! | `penalty` | a subject that is denied too often is banned, see below | nobody is banned |
//! | `prefetch` | gcra, token-bucket, fixed-window, calendar, leaky-bucket without delay: `true`, or `{ share = 0.1, max_age = "1s" }`; permits of busy subjects are taken in batches: see [`Prefetch`](crate::Prefetch); not with several rates, `max_wait`, `penalty`, `count_status` or `count_grpc_status` | each request is a question |
//! | `on_missing_key` | what becomes of a request without the header, the host or the [`UserId`] in `key`: `"shared"`, `"reject"`, `"skip"`, see [`OnMissingKey`](crate::OnMissingKey) | `"shared"`; without a `UserId`, 500 |
//! | `on_store_failure` | as above, for this policy | the file's choice |
//! | `show_subject` | `true`: the log, observers and the list of who is denied most show whom it denies, see [`Policy::show_subject`](crate::Policy::show_subject) | they show a hash |
//!
//! Whatever needs a closure, such as [`Policy::settle`] and keys of your own, needs a [`Policy`] in
//! code, which [`Config::policy`] and [`ConfigFile::policy`] put beside those of the file.
//!
//! # `tiers`
//!
//! ```toml
//! tiers = [
//!     { values = ["a-partner"], limit = "1000/min", burst = 200 },
//!     { key = "header:x-plan", values = ["gold", "platinum"], limit = "500/min" },
//! ]
//! ```
//!
//! | field | means | absent |
//! |---|---|---|
//! | `key` | what tells that a request belongs to the tier: `"header:<name>"`, `"host"` or `"user"` | the policy's own, if that is one of these |
//! | `values` | its values: one, or a list | an error |
//! | `limit`, `burst`, `capacity` | as in the policy, for its algorithm; as many rates as the policy has | `limit`: an error; the others: as many as the limit |
//!
//! A request that belongs to several tiers has the limit of the first. The policy's key still
//! decides whose quota is used, and a limit that changes forgets nothing. Tiers are
//! [`Policy::limit_by`] in a file: operations without a request, such as
//! [`Limiter::check`](crate::Limiter::check), use the policy's own limit.
//!
//! # Each `penalty`
//!
//! ```toml
//! penalty = { denials = 10, within = "15min", ban = "1h", longest = "24h" }
//! ```
//!
//! | field | means | absent |
//! |---|---|---|
//! | `denials` | this many denials cause a ban, 1 to 100 | an error |
//! | `within` | if they come within this time | an error |
//! | `ban` | how long the ban is | an error |
//! | `longest` | each ban is twice as long as the one before, up to this | each is as long as the first |
//!
//! # Times
//!
//! A time is a whole number with `ms`, `s`, `min`, `h` or `day`: `"50ms"`, `"2s"`, `"15min"`.
//!
//! # Errors
//!
//! An invalid field or value is refused with its line, its policy and what would be right.
//!
//! # Other formats
//!
//! [`Config`] can be deserialised by serde from any format with the same fields and words, so it
//! can be part of your own configuration. `docs/limits.schema.json` in the repository is a JSON
//! Schema of it, for editors: `#:schema limits.schema.json` in the first line of a file.
//!
//! # Reload
//!
//! [`ConfigFile`] watches its file. When the file has changed, all of it is checked, and then takes
//! effect at once: a request is decided by the old file or by the new one, and never by none.
//!
//! | field | when it changes |
//! |---|---|
//! | policies | are replaced, except for those in code. What was used stays used, unless the name or the algorithm changes; at a higher rate with the same burst or capacity, [a key that has used everything waits longer](crate::Limiter::replace) |
//! | `mode` | changes. One that was set by [`Limiter::set_mode`] stays as long as the file's mode does |
//! | `exempt`, `skip_preflights`, `deny`, `allow` | are replaced, even those that were set at run time |
//! | `trusted_proxies`, `client_address`, `trusted_hops`, `ipv6_prefix`, `on_store_failure` | are replaced |
//! | `headers`, `rejection` | change in all layers of the file, except in layers with their own |
//! | the user and the password in `store` | are used by new connections, and open ones log in again: see [`RedisCredentials`](crate::RedisCredentials) |
//! | all else of `store`, `tls`, `prefix`, `secret`, `timeout` | cannot change: the file is refused |
//!
//! A file that is refused, gone or no regular file changes nothing: what was in force stays, and the
//! error goes to [`ConfigFile::on_reload`], to [`WatchedConfig::last_error`] and, with the feature
//! `tracing`, to the log. The next change is looked at as any other. A file of which only the
//! beginning is left is refused, too, if no policy is left: having none takes `policy = []`.
//!
//! Any change of the text is noticed, however it was made: in place, by another file that takes its
//! place, or by a link on its path that leads elsewhere, as in a volume of Kubernetes. That takes a
//! fraction of a second, or ten seconds where the operating system does not report changes, as on a
//! network file system. A file that is written in place may be read half written: write another one
//! and rename it.
//!
//! [`FailureMode`]: crate::FailureMode
//! [`ClientAddr::trusted_hops`]: crate::ClientAddr::trusted_hops
//! [`Policy`]: crate::Policy
//! [`Policy::settle`]: crate::Policy::settle
//! [`Policy::limit_by`]: crate::Policy::limit_by
//! [`Limit::aligned`]: crate::Limit::aligned
//! [`Limit::and`]: crate::Limit::and
//! [`QuotaHeaders::DRAFT_11`]: crate::QuotaHeaders::DRAFT_11
//! [`QuotaHeaders::DRAFT_6`]: crate::QuotaHeaders::DRAFT_6
//! [`QuotaHeaders::X_RATELIMIT_DELTA`]: crate::QuotaHeaders::X_RATELIMIT_DELTA
//! [`QuotaHeaders::X_RATELIMIT_EPOCH`]: crate::QuotaHeaders::X_RATELIMIT_EPOCH
//! [`key_secret`]: crate::LimiterBuilder::key_secret
//! [`Rules::deny`]: crate::Rules::deny
//! [`Rules::allow`]: crate::Rules::allow
//! [`Limiter::set_mode`]: crate::Limiter::set_mode

mod access;
#[cfg(feature = "calendar")]
mod calendar;
mod client_address;
mod configuration;
mod error;
mod fields;
mod invalid;
mod key;
mod limit;
mod policy;
mod read;
mod regular_file;
mod response;
mod secret;
mod store;
mod tiers;
mod units;
mod value;
mod watch;

pub use self::configuration::Config;
pub use self::error::FileError;
pub use self::key::UserId;
pub use self::watch::{ConfigFile, OpenError, WatchedConfig};

#[cfg(test)]
mod tests;
