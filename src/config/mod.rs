//! Policies from a configuration file: [`Config`] reads it once, [`ConfigFile`] also reloads it
//! when it changes.
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
//! | `store` | `"memory"`, a server such as `"redis://127.0.0.1:6379"` (see [`RedisStore`](crate::RedisStore) for all addresses), or an environment variable with one of these, see below | an error |
//! | `tls` | TLS settings of the store, see below | servers are checked against the system's certificates |
//! | `prefix` | the start of every key in Redis | `"throttle"` |
//! | `secret` | an environment variable with the secret for hashing subjects, see [`key_secret`] | subjects are hashed without a secret |
//! | `headers` | quota headers: a word or a list of words, see below | `"draft-11"` |
//! | `rejection` | the body of rejections: `"problem-json"`, `"plain-text"` | `"problem-json"` |
//! | `timeout` | the longest time for a decision, 1 ms to 60 s | `"50ms"` |
//! | `on_store_failure` | what policies decide when the store gives no answer: `"allow"`, `"deny"`, or a share of the limit for this process, such as `{ local = 0.25 }`, see [`FailureMode`]; a policy may have its own | `"allow"` |
//! | `trusted_proxies` | the addresses and ranges of your proxies; all addresses only with `trusted_hops` | none: the peer is the client |
//! | `client_address` | the one header that your proxies write: `"x-forwarded-for"`, `"forwarded"`, `"header:<name>"` | `"x-forwarded-for"` |
//! | `trusted_hops` | the number of proxies in front, 1 to 64, if their addresses are unknown; headers are read only from `trusted_proxies`, see [`ClientAddr::trusted_hops`] | proxies are recognised by their addresses |
//! | `ipv6_prefix` | IPv6 addresses that share this many leading bits are one client, 32 to 128 | `64` |
//! | `exempt` | requests that are not limited: a route or a list, as in `on` of a policy | none |
//! | `skip_preflights` | `true`: CORS preflights are not limited; they must [reach only the middleware that answers them](crate::RateLimitLayer::skip_preflights) | `false` |
//! | `deny` | clients that are refused with 403, see below | none |
//! | `allow` | clients that are neither limited nor counted, see below | none |
//! | `[[policy]]` | one policy; repeat it for each. `policy = []` for a file without policies | an error, since the file may be cut short |
//!
//! # Secrets
//!
//! ```toml
//! store = { env = "REDIS_URL" }
//! secret = { env = "LIMITS_SECRET" }
//! ```
//!
//! Environment variables are read together with the file. A variable that is not set, empty or not
//! UTF-8 is an error. No error, log or `Debug` shows its value; only the host and the port of an
//! unreachable server are shown. The file may contain an address without a password. It must not
//! contain the secret.
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
//! | `ca_file` | the certificates of the authorities to trust | the system's |
//! | `certificate_file`, `key_file` | the client certificate with its chain, and its private key, for servers that ask for one | none |
//! | `server_name` | the name in the certificates of all servers, if it differs from their addresses, as in some clusters | the address of each server |
//! | `danger_accept_invalid_certs` | **dangerous**: `true` accepts every certificate, also an attacker's; needs the feature `redis-tls-insecure` | certificates are checked |
//!
//! Files are in PEM. Their paths are relative to the working directory of the process. They are read
//! together with the configuration: restart the service after you replace one.
//!
//! # `headers`
//!
//! | word | means |
//! |---|---|
//! | `"draft-11"` | [`QuotaHeaders::DRAFT_11`] |
//! | `"draft-6"` | [`QuotaHeaders::DRAFT_6`] |
//! | `"x-ratelimit-delta"` | [`QuotaHeaders::X_RATELIMIT_DELTA`] |
//! | `"x-ratelimit-epoch"` | [`QuotaHeaders::X_RATELIMIT_EPOCH`] |
//! | `"denials"` | in a list: sends the other headers of the list on denials only; alone: `"draft-11"` on denials only |
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
//! An address or a range is the client's, as `key = "client-addr"` reads it. Addresses within
//! `trusted_proxies` are refused unless `trusted_hops` is set, because no client has them. `key` must
//! be the key of a policy: `"header:<name>"`, `"host"` or `"user"`. Its values are compared only for
//! requests to which that policy applies, and not while the policy is off. [`Rules::deny`] and
//! [`Rules::allow`] describe what happens to these clients.
//!
//! # Each `[[policy]]`
//!
//! | field | means | absent |
//! |---|---|---|
//! | `name` | its name in headers, responses and stored keys | an error |
//! | `algorithm` | `"gcra"`, `"token-bucket"`, `"leaky-bucket"`, `"fixed-window"`, `"sliding-counter"`, `"sliding-window"`, `"sliding-log"`, `"concurrency"`: see [`Limit`](crate::Limit) | an error |
//! | `limit` | permits in a period: `"10/s"`, `"100/min"`, `"5/15min"`, `"20/250ms"`, also `h`, `day`; token-bucket, leaky-bucket: the rate; concurrency: requests at the same time, as `20`; the others: also a list of up to four rates, as `["10/s", "1000/h"]`, see [`Limit::and`] | an error |
//! | `burst` | gcra: the most permits at once; a list if `limit` is one | as many as the limit |
//! | `capacity` | token-bucket, leaky-bucket: permits that the bucket holds | as many as the limit |
//! | `delay` | leaky-bucket: `true` spaces requests evenly, `false` admits each request that fits at once | `true` |
//! | `aligned` | fixed-window: windows begin at full minutes, hours or days in UTC, see [`Limit::aligned`] | `false` |
//! | `slices` | sliding-window: counts for each window, 1 to 1000 | `10` |
//! | `lease` | concurrency: how long a request counts after its server was killed | `"30s"` |
//! | `tiers` | other limits for requests with certain key values, see below | one limit for all |
//! | `key` | whose quota: `"client-addr"`, `"peer"`, `"host"` (see [`Host`](crate::Host)), `"header:<name>"`, `"user"` (a [`UserId`] extension), `"everybody"`; a list combines several into one key | an error, unless `on = "none"` |
//! | `on` | a route or a list: `"POST /login"`, `"/api/{*rest}"`; a gRPC method is written without an HTTP method, `"/package.Service/Method"`, see [`Route`](crate::Route). `"none"`: no layer applies the policy, handlers check it themselves, see [`NoRequest`](crate::NoRequest) | every request |
//! | `cost` | permits for each request, or `"header:<name>"` to read their number from a header | `1` |
//! | `count_status` | count only requests whose response has this HTTP status: `401`, or a list | every request counts |
//! | `count_grpc_status` | count only gRPC calls whose method returns this status: `16`, or a list; a call that fails later, while its response streams, does not count, see [`ResponseHead::grpc_status`](crate::ResponseHead::grpc_status). With `count_status`, either status counts | every request counts |
//! | `mode` | `"enforce"`; `"shadow"` counts and never denies; `"off"`: see [`Mode`](crate::Mode) | `"enforce"` |
//! | `max_wait` | gcra, token-bucket, leaky-bucket: the longest delay of a request until it fits, 1 ms to 24 h | requests over the limit are denied |
//! | `group` | gcra, token-bucket, leaky-bucket: policies of one group share a stored key for each subject, so that checking several costs little more than one, see [`Policy::group`](crate::Policy::group) | a stored key for each policy |
//! | `penalty` | bans a subject that is denied too often, see below | no bans |
//! | `prefetch` | gcra, token-bucket, fixed-window, leaky-bucket without delay: `true`, or `{ share = 0.1, max_age = "1s" }` takes permits of busy subjects in batches, see [`Prefetch`](crate::Prefetch); not with several rates, `max_wait`, `penalty`, `count_status` or `count_grpc_status` | the store decides each request |
//! | `on_missing_key` | for requests without the header, the host or the [`UserId`] in `key`: `"shared"`, `"reject"`, `"skip"`, see [`OnMissingKey`](crate::OnMissingKey) | `"shared"`; without a `UserId`, 500 |
//! | `on_store_failure` | as above, for this policy | the file's choice |
//! | `show_subject` | `true`: the log, observers and the list of most denied subjects show the key of a denied subject, see [`Policy::show_subject`](crate::Policy::show_subject) | they show a hash |
//!
//! What needs a closure, such as [`Policy::settle`] or a key of your own, is a [`Policy`] in code.
//! Add it with [`Config::policy`] or [`ConfigFile::policy`].
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
//! | `key` | the key whose value decides: `"header:<name>"`, `"host"` or `"user"` | the policy's `key`, if it is one of these |
//! | `values` | its values: one, or a list | an error |
//! | `limit`, `burst`, `capacity` | as in the policy, for its algorithm; as many rates as the policy has | `limit`: an error; the others: as many as the limit |
//!
//! The first tier that matches a request sets its limit. The policy's `key` still decides whose quota
//! is used, and moving to another tier does not reset usage. Tiers are [`Policy::limit_by`] in a
//! file: operations without a request, such as [`Limiter::check`](crate::Limiter::check), use the
//! policy's own limit.
//!
//! # Each `penalty`
//!
//! ```toml
//! penalty = { denials = 10, within = "15min", ban = "1h", longest = "24h" }
//! ```
//!
//! | field | means | absent |
//! |---|---|---|
//! | `denials` | the number of denials that cause a ban, 1 to 100 | an error |
//! | `within` | the time within which they count | an error |
//! | `ban` | the length of a ban | an error |
//! | `longest` | each further ban is twice as long, up to this length | all bans are equally long |
//!
//! # Times
//!
//! A time is a whole number with `ms`, `s`, `min`, `h` or `day`: `"50ms"`, `"2s"`, `"15min"`.
//!
//! # Errors
//!
//! An error about a field or a value gives the line, the policy and what to write instead.
//!
//! # Other formats
//!
//! serde deserialises [`Config`] from any format with the same fields and words, so it can be part of
//! your own configuration. `docs/limits.schema.json` in the repository is its JSON Schema. Editors
//! find it by `#:schema limits.schema.json` in the first line of a file.
//!
//! # Reload
//!
//! [`ConfigFile`] watches its file. It checks a changed file as a whole and applies it atomically:
//! each request is decided by either the old or the new policies.
//!
//! | field | when it changes |
//! |---|---|
//! | policies | are replaced, except for those in code. Usage is kept unless the name or the algorithm changes; at a higher rate with the same burst or capacity, [a key that has used everything waits longer](crate::Limiter::replace) |
//! | `mode` | is replaced. A mode set by [`Limiter::set_mode`] stays until the file's mode changes |
//! | `exempt`, `skip_preflights`, `deny`, `allow` | are replaced, also those set at run time |
//! | `trusted_proxies`, `client_address`, `trusted_hops`, `ipv6_prefix`, `on_store_failure` | are replaced |
//! | `headers`, `rejection` | change in all layers that were made from the file, unless the layer sets its own |
//! | the user and the password in `store` | apply to new connections; open ones log in again, see [`RedisCredentials`](crate::RedisCredentials) |
//! | the rest of `store`, `tls`, `prefix`, `secret`, `timeout` | cannot change: the file is refused |
//!
//! If the new file is refused or missing, or if it is not a regular file, the old configuration
//! stays in force. The error goes to [`ConfigFile::on_reload`], to [`WatchedConfig::last_error`] and,
//! with the feature `tracing`, to the log. The next change is tried again. A file without any policy
//! is refused, because it may be cut short; write `policy = []` if you mean it.
//!
//! Every change of the content is noticed: a file written in place, a file replaced by a rename, or a
//! symbolic link on the path that changes, as in a Kubernetes volume. It takes a fraction of a second,
//! or up to ten seconds where the operating system does not report changes, as on network file
//! systems. A file that is written in place may be read half written: write a new file and rename it.
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
