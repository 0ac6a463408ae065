//! The format as types, of which the schema is made. They are never read: the crate reads by hand,
//! so that its errors can name the line and what would be right.
#![allow(dead_code)]

use schemars::JsonSchema;
use serde::Deserialize;

/// The limits of a service, for the crate tower-throttle.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Rate limits")]
pub(super) struct File {
    /// Where requests are counted: "memory" for this process alone, or the address of a server.
    /// An address with a password belongs in a variable of the environment.
    store: Address,
    /// How the servers of the store are known over TLS, and this process by them.
    tls: Option<Tls>,
    /// What every key in Redis begins with. Services with different prefixes count apart.
    prefix: Option<String>,
    /// Hashes clients with a secret, so that who reads the store cannot find out who they are.
    secret: Option<Variable>,
    /// The quota headers of responses; "draft-11" unless said. In a list, "denials" puts all its
    /// others on denials only.
    headers: Option<OneOrMore<Headers>>,
    /// The body of the responses to rejected requests; "problem-json" unless said.
    rejection: Option<Body>,
    /// The time that a decision may take, 1 ms to 60 s, before the failure modes decide; "50ms"
    /// unless said.
    timeout: Option<Time>,
    /// What policies that do not say it themselves decide when the store gives no answer; "allow"
    /// unless said.
    on_store_failure: Option<FailureMode>,
    /// The addresses and ranges of the proxies in front. Unless said nobody is trusted, and the peer
    /// is the client.
    trusted_proxies: Option<Vec<String>>,
    /// The one header in which the proxies tell the client's address; "x-forwarded-for" unless said.
    client_address: Option<AddressHeader>,
    /// How many proxies are in front, where their addresses are unknown.
    #[schemars(range(min = 1, max = 64))]
    trusted_hops: Option<u32>,
    /// The bits by which IPv6 clients and peers are told apart; 64 unless said.
    #[schemars(range(min = 32, max = 128))]
    ipv6_prefix: Option<u8>,
    /// Requests that are not limited, whatever the policies say.
    exempt: Option<OneOrMore<Route>>,
    /// Whether CORS preflights pass without being limited; not so unless said.
    skip_preflights: Option<bool>,
    /// Clients that are refused with 403: by address whatever they ask for, by key only what a policy
    /// with this key is about that is not off.
    deny: Option<Vec<Client>>,
    /// Clients that are let through uncounted: by address past all policies, by key past those with
    /// this key.
    allow: Option<Vec<Client>>,
    /// The policies. All that apply to a request are decided together, all or nothing. [] if there
    /// are to be none.
    policy: Vec<Policy>,
}

/// Paths are those of files in PEM.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Tls {
    /// The certificates of the authorities to trust; those that the system trusts unless said.
    ca_file: Option<String>,
    /// The certificate of this process, for servers that ask for one, with its chain.
    certificate_file: Option<String>,
    /// The private key of this certificate.
    key_file: Option<String>,
    /// What the certificates of all servers are for; the addresses by which they are reached unless
    /// said.
    server_name: Option<String>,
    /// Dangerous: whether any certificate of a server is accepted, whoever has signed it.
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
    /// Its name in headers, answers and stored keys: 1 to 64 printable ASCII characters. Another
    /// name starts its counts anew.
    #[schemars(regex(pattern = r"^[ -~]{1,64}$"))]
    name: String,
    /// How it counts.
    algorithm: Algorithm,
    /// Permits in a time, as "100/min" or "5/15min", or a list of up to four of these, which all have
    /// to hold; of calendar, permits in a month, week or day, as "1000000/month"; of concurrency, requests at the same time, as 20. "0/s", or 0, admits nothing.
    limit: Limit,
    /// gcra: permits that can be taken at once; as many as the limit unless said. A list, when the
    /// limit is one: a number for each rate.
    burst: Option<OneOrMore<Permits>>,
    /// token-bucket, leaky-bucket: permits that the bucket holds; as many as the limit unless said.
    capacity: Option<Permits>,
    /// leaky-bucket: whether requests leave one after the other; so unless said.
    delay: Option<bool>,
    /// fixed-window: whether windows begin at full minutes, hours, days in UTC; not so unless said.
    aligned: Option<bool>,
    /// calendar: the time zone, by its name in the IANA time-zone database, as "Europe/Berlin"; "UTC"
    /// unless said.
    zone: Option<String>,
    /// calendar, a month: the day on which it begins, the last one of a shorter month; 1 unless said.
    #[schemars(range(min = 1, max = 31))]
    anchor: Option<u8>,
    /// calendar, a week: the day on which it begins; "monday" unless said.
    first_day: Option<Weekday>,
    /// sliding-window: counts for each window; 10 unless said.
    #[schemars(range(min = 1, max = 1000))]
    slices: Option<u32>,
    /// concurrency: how long a request counts whose server was killed; "30s" unless said.
    lease: Option<Time>,
    /// Other limits for requests in which a key has certain values; the first that is about a request
    /// holds. All have the limit of the policy unless said.
    #[schemars(length(min = 1))]
    tiers: Option<Vec<Tier>>,
    /// Whose quota it is. A list makes one key of all. Of a policy that is on "none" handlers say it.
    key: Option<OneOrMore<Key>>,
    /// The requests that it is about; every request unless said. "none": only handlers ask by it.
    on: Option<On>,
    /// Permits for each request, or the header to read them from; 1 unless said.
    cost: Option<Cost>,
    /// Only requests that are answered with this HTTP status count; all unless said.
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
    /// gcra, token-bucket, leaky-bucket: a request that does not fit yet waits for up to so long,
    /// 1 ms to 24 h, instead of being denied.
    max_wait: Option<Time>,
    /// Policies of the same group keep what they know of a subject in one place; none unless said.
    #[schemars(regex(pattern = r"^[ -~]{1,64}$"))]
    group: Option<String>,
    /// Bans who is denied too often.
    penalty: Option<Penalty>,
    /// gcra, token-bucket, fixed-window, calendar, leaky-bucket without delay: takes permits of subjects that
    /// are often asked for in batches; false unless said.
    prefetch: Option<Prefetch>,
    /// What becomes of a request that does not say whose it is; unless said "shared", and 500 without a
    /// user.
    on_missing_key: Option<OnMissingKey>,
    /// What it decides when the store gives no answer; what the file says for all unless said.
    on_store_failure: Option<FailureMode>,
    /// Whether the log, observers and the list of who is denied most show in clear whom it denies;
    /// not so unless said. For keys that are no secret.
    show_subject: Option<bool>,
}

/// Another limit for requests in which a key has one of these values.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Tier {
    /// The key: "header:<name>", "host" or "user"; that of the policy, if it is one of these, unless said.
    #[schemars(regex(pattern = r"^(host|user|header:.+)$"))]
    key: Option<String>,
    /// The values of the key.
    values: OneOrMore<String>,
    /// As that of the policy, and as many rates.
    limit: Limit,
    /// gcra: permits that can be taken at once; as many as the limit unless said.
    burst: Option<OneOrMore<Permits>>,
    /// token-bucket, leaky-bucket: permits that the bucket holds; as many as the limit unless said.
    capacity: Option<Permits>,
}

/// A ban for who is denied too often.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Penalty {
    /// So many denials bring a ban.
    #[schemars(range(min = 1, max = 100))]
    denials: u32,
    /// When they come in a time of this length.
    within: Time,
    /// How long the ban is.
    ban: Time,
    /// Each ban is twice as long as the one before, up to this; each is as long as the first unless
    /// said.
    longest: Option<Time>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Prefetch {
    Switch(bool),
    Terms(PrefetchTerms),
}

/// How much of a limit a process holds in advance, and for how long.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PrefetchTerms {
    /// The most that a process holds, as a share of the limit: above 0, at most 1; 0.1 unless said.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    share: Option<f64>,
    /// How long it hands permits out after they were taken, 10 ms to 60 s; "1s" unless said.
    max_age: Option<Time>,
}

/// A variable of the environment.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Variable {
    /// The name of the variable.
    #[schemars(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    env: String,
}

/// Clients whose key has one of these values.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Values {
    /// The key, as a policy has it: "header:<name>", "host" or "user".
    #[schemars(regex(pattern = r"^(host|user|header:.+)$"))]
    key: String,
    /// The values of the key.
    values: OneOrMore<String>,
}

/// This process decides by itself, with a share of the limit.
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

/// A whole number with its unit, as "50ms", "2s", "15min", "1h" or "1day".
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

/// A path, or a method and a path, as "/api/{*rest}" or "POST /login".
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
