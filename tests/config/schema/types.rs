//! The format as types, from which the schema is generated. The crate itself reads the format by hand,
//! so that its errors can name the line and the remedy.
#![allow(dead_code)]

use schemars::JsonSchema;
use serde::Deserialize;

/// The limits of a service, for the crate tower-throttle.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Rate limits")]
pub(super) struct File {
    /// "memory" to count in this process alone, or the address of a server. Put an address with a
    /// password into an environment variable.
    store: Address,
    /// TLS settings of the store.
    tls: Option<Tls>,
    /// The start of every key in Redis. Services with different prefixes count separately. Default:
    /// "throttle".
    prefix: Option<String>,
    /// The secret for hashing subjects, so that the store does not reveal clients.
    secret: Option<Variable>,
    /// The quota headers of responses. "denials" in a list sends the others on denials only. Default:
    /// "draft-11".
    headers: Option<OneOrMore<Headers>>,
    /// The body of rejections. Default: "problem-json".
    rejection: Option<Body>,
    /// The longest time for a decision, 1 ms to 60 s; then the failure modes decide. Default: "50ms".
    timeout: Option<Time>,
    /// What policies without their own on_store_failure decide when the store gives no answer.
    /// Default: "allow".
    on_store_failure: Option<FailureMode>,
    /// The addresses and ranges of your proxies. Default: none, so the peer is the client.
    trusted_proxies: Option<Vec<String>>,
    /// The one header in which your proxies write the client's address. Default: "x-forwarded-for".
    client_address: Option<AddressHeader>,
    /// The number of proxies in front, if their addresses are unknown.
    #[schemars(range(min = 1, max = 64))]
    trusted_hops: Option<u32>,
    /// IPv6 addresses that share this many leading bits are one client. Default: 64.
    #[schemars(range(min = 32, max = 128))]
    ipv6_prefix: Option<u8>,
    /// Requests that are not limited.
    exempt: Option<OneOrMore<Route>>,
    /// Whether CORS preflights pass without being limited. Default: false.
    skip_preflights: Option<bool>,
    /// Clients that are refused with 403. An address is refused for every request, a key only for
    /// requests to which a policy with this key applies that is not off.
    deny: Option<Vec<Client>>,
    /// Clients that are neither limited nor counted. An address skips all policies, a key those with
    /// this key.
    allow: Option<Vec<Client>>,
    /// The policies. All that apply to a request are decided together, all or nothing. Write [] for
    /// none.
    policy: Vec<Policy>,
}

/// TLS settings. Files are in PEM.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Tls {
    /// The certificates of the authorities to trust. Default: the system's.
    ca_file: Option<String>,
    /// The client certificate with its chain, for servers that ask for one.
    certificate_file: Option<String>,
    /// The private key of the client certificate.
    key_file: Option<String>,
    /// The name in the certificates of all servers. Default: the address of each server.
    server_name: Option<String>,
    /// Dangerous: whether every server certificate is accepted, also an attacker's. Default: false.
    danger_accept_invalid_certs: Option<bool>,
}

/// A named limit for a key, on certain requests.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend(
    "if" = { "properties": { "on": { "const": "none" } }, "required": ["on"] },
    "then" = { "properties": {
        "tiers": false,
        "key": false,
        "cost": { "type": "integer" },
        "count_status": false,
        "count_grpc_status": false,
        "settle": false,
        "max_wait": false,
        "on_missing_key": false,
    } },
    "else" = { "required": ["key"] },
))]
pub(super) struct Policy {
    /// The name in headers, responses and stored keys: 1 to 64 printable ASCII characters. Renaming a
    /// policy resets its usage.
    #[schemars(regex(pattern = r"^[ -~]{1,64}$"))]
    name: String,
    /// The algorithm.
    algorithm: Algorithm,
    /// Permits in a period, such as "100/min" or "5/15min", or a list of up to four rates, all of
    /// which must hold. calendar: permits in a month, week or day, such as "1000000/month". concurrency: requests at the same time, such as 20. "0/s", or 0, admits
    /// nothing.
    limit: Limit,
    /// gcra: the most permits at once; a list with a number for each rate if limit is a list. Default:
    /// as many as the limit.
    burst: Option<OneOrMore<Permits>>,
    /// token-bucket, leaky-bucket: permits that the bucket holds. Default: as many as the limit.
    capacity: Option<Permits>,
    /// leaky-bucket: whether requests are delayed, so that they are spaced evenly. Default: true.
    delay: Option<bool>,
    /// fixed-window: whether windows begin at full minutes, hours or days in UTC. Default: false.
    aligned: Option<bool>,
    /// calendar: the time zone, by its name in the IANA time-zone database, such as "Europe/Berlin".
    /// Default: UTC.
    zone: Option<String>,
    /// calendar, a month: the day on which it begins. A shorter month begins on its last day.
    /// Default: 1.
    #[schemars(range(min = 1, max = 31))]
    anchor: Option<u8>,
    /// calendar, a week: the day on which it begins. Default: "monday".
    first_day: Option<Weekday>,
    /// sliding-window: counts for each window. Default: 10.
    #[schemars(range(min = 1, max = 1000))]
    slices: Option<u32>,
    /// concurrency: how long a request counts after its server was killed. Default: "30s".
    lease: Option<Time>,
    /// Other limits for requests with certain key values. The first tier that matches a request sets
    /// its limit.
    #[schemars(length(min = 1))]
    tiers: Option<Vec<Tier>>,
    /// Whose quota is used. A list combines several into one key. With on = "none", handlers supply
    /// the key.
    key: Option<OneOrMore<Key>>,
    /// The requests to which the policy applies. "none": handlers check it themselves. Default: every
    /// request.
    on: Option<On>,
    /// Permits for each request, or the header to read their number from. Default: 1.
    cost: Option<Cost>,
    /// Count only requests whose response has this HTTP status. Default: every request counts.
    count_status: Option<OneOrMore<Status>>,
    /// Only gRPC calls that end with this status count, as 16 for UNAUTHENTICATED; all unless said.
    /// Beside count_status, either.
    count_grpc_status: Option<OneOrMore<GrpcStatus>>,
    /// What the service's meter has counted when the body has ended is the cost, in place of the
    /// estimate in `cost`: "meter", or "meter:<name>" for the meter of a name. Not beside
    /// count_status or count_grpc_status.
    #[schemars(regex(pattern = r"^meter(:.+)?$"))]
    settle: Option<String>,
    /// "shadow" counts and never denies, "off" does nothing; "enforce" unless said.
    mode: Option<Mode>,
    /// The share of the keys for which the policy is enforced, as "5%"; it is in shadow for the others.
    /// All unless said.
    #[schemars(regex(pattern = r"^(100|[0-9]{1,2})%$"))]
    enforce: Option<String>,
    /// gcra, token-bucket, leaky-bucket: a request that does not fit yet waits for up to so long,
    /// 1 ms to 24 h, instead of being denied.
    max_wait: Option<Time>,
    /// gcra, token-bucket, leaky-bucket: policies of one group share a stored key for each subject.
    /// Default: a stored key for each policy.
    #[schemars(regex(pattern = r"^[ -~]{1,64}$"))]
    group: Option<String>,
    /// Bans a subject that is denied too often. Default: no bans.
    penalty: Option<Penalty>,
    /// gcra, token-bucket, fixed-window, calendar, leaky-bucket without delay: takes permits of busy subjects in
    /// batches. Default: false.
    prefetch: Option<Prefetch>,
    /// For requests without the header, the host or the user in key. Default: "shared"; without a
    /// user, 500.
    on_missing_key: Option<OnMissingKey>,
    /// What the policy decides when the store gives no answer. Default: the file's on_store_failure.
    on_store_failure: Option<FailureMode>,
    /// Whether the log, observers and the list of most denied subjects show the keys of denied
    /// subjects. Only for keys that are not secret. Default: false, they show a hash.
    show_subject: Option<bool>,
}

/// Another limit for requests with one of these key values.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Tier {
    /// The key: "header:<name>", "host" or "user". Default: the policy's key, if it is one of these.
    #[schemars(regex(pattern = r"^(host|user|header:.+)$"))]
    key: Option<String>,
    /// The values of the key.
    values: OneOrMore<String>,
    /// As in the policy, with as many rates.
    limit: Limit,
    /// gcra: the most permits at once. Default: as many as the limit.
    burst: Option<OneOrMore<Permits>>,
    /// token-bucket, leaky-bucket: permits that the bucket holds. Default: as many as the limit.
    capacity: Option<Permits>,
}

/// A ban of subjects that are denied too often.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Penalty {
    /// The number of denials that cause a ban.
    #[schemars(range(min = 1, max = 100))]
    denials: u32,
    /// The time within which they count.
    within: Time,
    /// The length of a ban.
    ban: Time,
    /// Each further ban is twice as long, up to this length. Default: all bans are equally long.
    longest: Option<Time>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Prefetch {
    Switch(bool),
    Terms(PrefetchTerms),
}

/// How many permits a process takes in advance, and for how long.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PrefetchTerms {
    /// The most that a process holds, as a share of the limit: above 0, at most 1. Default: 0.1.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    share: Option<f64>,
    /// How long permits may be handed out after they were taken, 10 ms to 60 s. Default: "1s".
    max_age: Option<Time>,
}

/// An environment variable.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Variable {
    /// The name of the variable.
    #[schemars(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    env: String,
}

/// Clients with one of these key values.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Values {
    /// The key of a policy: "header:<name>", "host" or "user".
    #[schemars(regex(pattern = r"^(host|user|header:.+)$"))]
    key: String,
    /// The values of the key.
    values: OneOrMore<String>,
}

/// The process decides with a share of the limit, counted in its own memory.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Local {
    /// The share of the limit: above 0, at most 1.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    local: f64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Address {
    InFile(
        #[schemars(regex(
            pattern = r"^(memory$|(redis|valkey)s?(-cluster|-sentinel)?://|((redis|valkey)\+)?unix://)"
        ))]
        String,
    ),
    InVariable(Variable),
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Client {
    /// An address or a range.
    Address(#[schemars(regex(pattern = r"^[0-9a-fA-F.:]+(/[0-9]+)?$"))] String),
    Values(Values),
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum OneOrMore<T> {
    One(T),
    More(#[schemars(length(min = 1))] Vec<T>),
}

/// A whole number with its unit, such as "50ms", "2s", "15min", "1h" or "1day".
#[derive(Deserialize, JsonSchema)]
struct Time(#[schemars(regex(pattern = r"^[0-9]+(ms|s|min|h|day)$"))] String);

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Limit {
    Rate(Rate),
    Rates(#[schemars(length(min = 1, max = 4))] Vec<Rate>),
    Number(#[schemars(range(max = 999_999_999_999_999_u64))] u64),
}

#[derive(Deserialize, JsonSchema)]
struct Rate(#[schemars(regex(pattern = r"^[0-9]+/([0-9]*(ms|s|min|h|day)|week|month)$"))] String);

#[derive(Deserialize, JsonSchema)]
struct Permits(#[schemars(range(min = 1, max = 999_999_999_999_999_u64))] u64);

#[derive(Deserialize, JsonSchema)]
struct Status(#[schemars(range(min = 100, max = 599))] u16);

#[derive(Deserialize, JsonSchema)]
struct GrpcStatus(#[schemars(range(min = 1, max = 16))] u32);

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Cost {
    Permits(Permits),
    Header(#[schemars(regex(pattern = r"^header:.+$"))] String),
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum On {
    Routes(OneOrMore<Route>),
    Word(OnWord),
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum OnWord {
    None,
}

/// A path, or a method and a path, such as "/api/{*rest}" or "POST /login".
#[derive(Deserialize, JsonSchema)]
struct Route(#[schemars(regex(pattern = r"^([^ ]+ +)?/.*$"))] String);

/// "client-addr", "peer", "host", "user", "everybody" or "header:<name>".
#[derive(Deserialize, JsonSchema)]
struct Key(
    #[schemars(regex(pattern = r"^(client-addr|peer|host|user|everybody|header:.+)$"))] String,
);

/// "x-forwarded-for", "forwarded" or "header:<name>".
#[derive(Deserialize, JsonSchema)]
struct AddressHeader(
    #[schemars(regex(pattern = r"^(x-forwarded-for|forwarded|header:.+)$"))] String,
);

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Algorithm {
    Gcra,
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    Calendar,
    SlidingCounter,
    SlidingWindow,
    SlidingLog,
    Concurrency,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

#[derive(Deserialize, JsonSchema)]
enum Headers {
    #[serde(rename = "draft-11")]
    Draft11,
    #[serde(rename = "draft-6")]
    Draft6,
    #[serde(rename = "x-ratelimit-delta")]
    XRateLimitDelta,
    #[serde(rename = "x-ratelimit-epoch")]
    XRateLimitEpoch,
    #[serde(rename = "denials")]
    Denials,
    #[serde(rename = "none")]
    None,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Body {
    ProblemJson,
    PlainText,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum FailureMode {
    Word(FailureWord),
    Local(Local),
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum FailureWord {
    Allow,
    Deny,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    Enforce,
    Shadow,
    Off,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum OnMissingKey {
    Shared,
    Reject,
    Skip,
}
