//! `[[policy]]`: one table of the file as a `Policy`.

use std::time::Duration;

use http::StatusCode;

use super::client_address::Proxies;
use super::fields::{Field, Fields, KnownNames};
use super::invalid::{COUNT_GRPC_STATUS, COUNT_STATUS, SETTLE};
use super::tiers::{Tiers, refuse_invalid_policy};
use super::units::time;
use super::{FileError, invalid, key, limit, units};
use crate::algorithm::{Algorithm, Penalty};
use crate::error::ConfigError;
use crate::http::{HeaderCost, Route};
use crate::limit::ANY_COST;
use crate::mode::Mode;
use crate::policy::{OnMissingKey, Policy};
use crate::request::{CostExtractor, NoRequest};
use crate::store::{FailureMode, Prefetch};

pub(super) const FIELDS: KnownNames = &[
    "name",
    "algorithm",
    "limit",
    "burst",
    "capacity",
    "delay",
    "aligned",
    "zone",
    "anchor",
    "first_day",
    "slices",
    "lease",
    "tiers",
    "key",
    "on",
    "cost",
    COUNT_STATUS,
    COUNT_GRPC_STATUS,
    SETTLE,
    "mode",
    ENFORCE,
    "max_wait",
    "group",
    "penalty",
    "prefetch",
    "on_missing_key",
    "on_store_failure",
    "show_subject",
];

/// Fields about requests that a layer decides.
const OF_REQUESTS: KnownNames = &[
    "tiers",
    "key",
    COUNT_STATUS,
    COUNT_GRPC_STATUS,
    SETTLE,
    "max_wait",
    "on_missing_key",
];

const ENFORCE: &str = "enforce";

const LOCAL_FIELDS: KnownNames = &["local"];

/// `timeout` is how long a decision may take.
pub(super) fn read(
    fields: &Fields<'_>,
    proxies: &Proxies,
    timeout: Duration,
) -> Result<Policy, FileError> {
    let name = fields.need("name", "name = \"client\"")?;
    let name = name.text("a string, such as \"client\"")?;
    let policy = Policy::new(name, limit::read(fields)?);
    let on = fields.get("on");
    let mut policy = match on.filter(are_none) {
        Some(_) => of_no_request(policy, fields)?,
        None => of_requests(policy, on, fields, proxies)?,
    };
    if let Some(field) = fields.get("cost") {
        policy = cost(policy, &field)?;
    }
    let counted = Counted::read(fields)?;
    if let Some(field) = fields.get(SETTLE) {
        if counted.is_some() {
            return Err(field.refuse(
                "a policy counts by the status of its responses or by a meter, leave one of them out",
            ));
        }
        policy = settle(policy, &field)?;
    }
    if let Some(counted) = counted {
        policy = counted.set(policy);
    }
    if let Some(field) = fields.get("mode") {
        let modes = Mode::ALL.iter().map(|mode| (mode.as_str(), *mode));
        policy = policy.mode(field.choice(&modes.collect::<Vec<_>>())?);
    }
    if let Some(field) = fields.get(ENFORCE) {
        let expected = "a share of the keys, \"0%\" to \"100%\"";
        let share = field.text(expected)?.parse();
        policy = policy.enforce_for(share.map_err(|_: ConfigError| field.expected(expected))?);
    }
    if let Some(field) = fields.get("max_wait") {
        policy = policy.max_wait(units::time(&field)?);
    }
    if let Some(field) = fields.get("group") {
        policy = policy.group(field.text("a string, such as \"client\"")?);
    }
    if let Some(field) = fields.get("penalty") {
        policy = policy.penalty(penalty(&field)?);
    }
    if let Some(field) = fields.get("prefetch")
        && let Some(prefetch) = prefetch(&field)?
    {
        policy = policy.prefetch(prefetch);
    }
    if let Some(field) = fields.get("on_missing_key") {
        let choices = [
            ("shared", OnMissingKey::Shared),
            ("reject", OnMissingKey::Reject),
            ("skip", OnMissingKey::Skip),
        ];
        policy = policy.on_missing_key(field.choice(&choices)?);
    }
    if let Some(field) = fields.get("on_store_failure") {
        policy = policy.on_store_failure(failure_mode(&field)?);
    }
    if let Some(field) = fields.get("show_subject")
        && field.boolean()?
    {
        policy = policy.show_subject();
    }
    refuse_invalid_policy(fields, policy.clone(), timeout)?;
    let Some(tiers) = fields.get("tiers") else {
        return Ok(policy);
    };
    let tiers = Tiers::read(&tiers, &policy, fields, proxies, timeout)?;
    Ok(policy.limit_by(move |request, _| tiers.limit(request)))
}

/// The requests to which a policy applies, and their keys.
fn of_requests(
    policy: Policy,
    on: Option<Field<'_>>,
    fields: &Fields<'_>,
    proxies: &Proxies,
) -> Result<Policy, FileError> {
    let subject = fields.need("key", proxies.missing_key())?;
    let policy = policy.by(key::read(&subject, proxies)?);
    Ok(match on {
        Some(on) => policy.on(routes_of_policy(&on)?),
        None => policy,
    })
}

/// A policy for handlers, which bring their own keys.
fn of_no_request(policy: Policy, fields: &Fields<'_>) -> Result<Policy, FileError> {
    let of_requests = OF_REQUESTS.iter().find_map(|name| fields.get(name));
    let by_header = || fields.get("cost").filter(|cost| cost.as_text().is_some());
    match of_requests.or_else(by_header) {
        Some(field) => Err(field.refuse(
            "applies to requests that a layer decides, and with on = \"none\" there are none; \
             leave it out",
        )),
        None => Ok(policy.on(NoRequest)),
    }
}

fn cost(policy: Policy, field: &Field<'_>) -> Result<Policy, FileError> {
    let expected = format!("{ANY_COST} permits, or \"header:<name>\"");
    let Some(text) = field.as_text() else {
        return Ok(policy.cost(field.number(&expected)?));
    };
    let name = text.strip_prefix("header:");
    let cost = HeaderCost::new(name.ok_or_else(|| field.expected(expected))?);
    cost.validate().map_err(|error| field.refuse(error))?;
    Ok(policy.cost_by(cost))
}

/// `on_store_failure`, of a policy or of the whole file.
pub(super) fn failure_mode(field: &Field<'_>) -> Result<FailureMode, FileError> {
    let expected =
        "\"allow\", \"deny\", or a share of the limit for this process, such as { local = 0.25 }";
    if field.is_table() {
        let fields = field.table(LOCAL_FIELDS, expected)?;
        return local(&fields.need("local", "local = 0.25")?);
    }
    match field.text(expected)? {
        "allow" => Ok(FailureMode::Allow),
        "deny" => Ok(FailureMode::Deny),
        _ => Err(field.expected(expected)),
    }
}

fn local(share: &Field<'_>) -> Result<FailureMode, FileError> {
    let expected = "a share of the limit, above 0 and at most 1";
    let mode = FailureMode::Local {
        share: share.fraction(expected)?,
    };
    mode.valid().map_err(|_| share.expected(expected))
}

/// The answers that count, by either kind of status.
pub(super) struct Counted {
    statuses: Vec<StatusCode>,
    grpc_statuses: Vec<u32>,
}

impl Counted {
    /// `None` if all answers count.
    pub(super) fn read(fields: &Fields<'_>) -> Result<Option<Self>, FileError> {
        let (status, grpc_status) = (fields.get(COUNT_STATUS), fields.get(COUNT_GRPC_STATUS));
        if status.is_none() && grpc_status.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            statuses: one_or_more(status, self::status)?,
            grpc_statuses: one_or_more(grpc_status, self::grpc_status)?,
        }))
    }

    /// A gRPC status may come as late as the end of a stream.
    fn set(self, policy: Policy) -> Policy {
        match self.grpc_statuses.is_empty() {
            true => policy.count_if(move |response| self.has(response.status, None)),
            false => policy.count_if_at_end(move |end| self.has(end.status, end.grpc_status())),
        }
    }

    fn has(&self, status: StatusCode, grpc_status: Option<u32>) -> bool {
        self.statuses.contains(&status)
            || grpc_status.is_some_and(|status| self.grpc_statuses.contains(&status))
    }
}

/// `settle`: what the request's meter has counted is the cost.
fn settle(policy: Policy, field: &Field<'_>) -> Result<Policy, FileError> {
    let expected = "\"meter\", or \"meter:<name>\" for the meter of a name";
    let text = field.text(expected)?;
    if text == "meter" {
        return Ok(policy.settle_at_end(|end| end.used()));
    }
    let name = text.strip_prefix("meter:").filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| field.expected(expected))?.to_owned();
    Ok(policy.settle_at_end(move |end| end.used_of(&name)))
}

fn one_or_more<T>(
    field: Option<Field<'_>>,
    one: impl Fn(&Field<'_>) -> Result<T, FileError>,
) -> Result<Vec<T>, FileError> {
    let if_none = "no request would count; leave the field out for every request";
    field.map_or(Ok(Vec::new()), |field| field.one_or_more(one, if_none))
}

fn status(field: &Field<'_>) -> Result<StatusCode, FileError> {
    let expected = "a status from 100 to 599, such as 401, or a list of statuses";
    let status = Some(field.number(expected)?).filter(|status| (100..600).contains(status));
    let status = status.and_then(|status| StatusCode::from_u16(status).ok());
    status.ok_or_else(|| field.expected(expected))
}

/// Not 0: calls that succeed are no failures, and all calls count without this field.
fn grpc_status(field: &Field<'_>) -> Result<u32, FileError> {
    let expected = "a gRPC status from 1 to 16, such as 16 for UNAUTHENTICATED, or a list of \
                    statuses";
    let status = Some(field.number(expected)?).filter(|status| (1..=16).contains(status));
    status.ok_or_else(|| field.expected(expected))
}

const PENALTY_FIELDS: KnownNames = &["denials", "within", "ban", "longest"];

/// `penalty = { ... }`: the file's words for a `Penalty`.
fn penalty(field: &Field<'_>) -> Result<Penalty, FileError> {
    let expected = "a table, such as { denials = 10, within = \"15min\", ban = \"1h\" }";
    let fields = field.table(PENALTY_FIELDS, expected)?;
    let denials = fields.need("denials", "denials = 10")?;
    let within = fields.need("within", "within = \"15min\"")?;
    let ban = fields.need("ban", "ban = \"1h\"")?;
    let mut penalty = Penalty::after(denials.number("1 to 100")?, time(&within)?, time(&ban)?);
    if let Some(longest) = fields.get("longest") {
        penalty = penalty.doubling_up_to(time(&longest)?);
    }
    // The limiter's own check, here so that the error has its place.
    Algorithm::try_from(&penalty).map_err(|error| invalid::table(&fields, error))?;
    Ok(penalty)
}

const PREFETCH_FIELDS: KnownNames = &["share", "max_age"];

/// `prefetch = true`, or `{ ... }`: the file's words for a `Prefetch`; `None` if it is switched off.
fn prefetch(field: &Field<'_>) -> Result<Option<Prefetch>, FileError> {
    if let Some(is_on) = field.as_boolean() {
        return Ok(is_on.then(Prefetch::new));
    }
    let expected = "true, or a table, such as { share = 0.1, max_age = \"1s\" }";
    let fields = field.table(PREFETCH_FIELDS, expected)?;
    let mut prefetch = Prefetch::new();
    if let Some(share) = fields.get("share") {
        prefetch = prefetch.share(share.fraction("a share of the limit, above 0 and at most 1")?);
    }
    if let Some(age) = fields.get("max_age") {
        prefetch = prefetch.max_age(time(&age)?);
    }
    // The limiter's own check, here so that the error has its place.
    let valid = prefetch.valid();
    let valid = valid.map_err(|error| invalid::table(&fields, error))?;
    Ok(Some(valid))
}

const ROUTES: &str = "a route, such as \"POST /login\" or \"/api/{*rest}\", or a list of routes";

/// The requests to which no policy applies.
pub(super) fn exempt_routes(field: &Field<'_>) -> Result<Vec<Route>, FileError> {
    routes(field, ROUTES, "nothing is exempt; leave the field out")
}

/// The requests to which a policy applies.
fn routes_of_policy(field: &Field<'_>) -> Result<Vec<Route>, FileError> {
    let expected = format!("{ROUTES}, or \"none\" if only handlers ask it");
    let nothing = "the policy would apply to no request; leave the field out for every request, \
                   or write \"none\" if only handlers ask it";
    routes(field, &expected, nothing)
}

/// Whether the policy applies to no request, so that layers leave it to handlers.
fn are_none(field: &Field<'_>) -> bool {
    field.as_text() == Some("none")
}

fn routes(field: &Field<'_>, expected: &str, if_none: &str) -> Result<Vec<Route>, FileError> {
    let route = |item: &Field<'_>| {
        let route: Route = item
            .text(expected)?
            .parse()
            .map_err(|error: ConfigError| item.refuse(error))?;
        Ok(route)
    };
    field.one_or_more(route, if_none)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use toml::de::DeTable;

    use super::*;
    use crate::algorithm::{Algorithm, Penalty, Wait};
    use crate::config::client_address::Proxies;
    use crate::config::fields::Fields;
    use crate::policy::CompiledPolicy;
    use crate::store::{DEFAULT_TIMEOUT, FailureMode, Prefetch};
    use crate::time::{HOUR, MINUTE};

    fn policy_with(field: &str) -> CompiledPolicy {
        let text = format!(
            "store = \"memory\"\n[[policy]]\nname = \"client\"\nalgorithm = \"gcra\"\n\
             limit = \"100/min\"\nkey = \"peer\"\n{field}\n"
        );
        let table = DeTable::parse(&text).unwrap();
        let file = Fields::of_file(&text, table.get_ref(), &["store", "policy"]).unwrap();
        let proxies = Proxies::read(&file).unwrap();
        let tables = file.policies("policy", super::FIELDS).unwrap();
        let policy = super::read(&tables[0], &proxies, DEFAULT_TIMEOUT).unwrap();
        policy.ready(FailureMode::Allow, DEFAULT_TIMEOUT).unwrap()
    }

    #[test]
    fn a_request_waits_for_as_long_as_the_file_says() {
        let longest = Duration::from_secs(2).into();
        assert_eq!(policy_with("max_wait = \"2s\"").wait, Wait::Strict(longest));
        assert_eq!(policy_with("").wait, Wait::None);
    }

    #[test]
    fn a_subject_is_banned_as_the_file_says() {
        let steady = Penalty::after(10, 15 * MINUTE, HOUR);
        for (longest, penalty) in [
            ("", steady),
            (", longest = \"24h\"", steady.doubling_up_to(24 * HOUR)),
        ] {
            let times = "denials = 10, within = \"15min\", ban = \"1h\"";
            let policy = policy_with(&format!("penalty = {{ {times}{longest} }}"));
            // `Debug` shows all of a penalty: it consists of times and numbers.
            assert_eq!(
                format!("{:?}", policy.penalty),
                format!("{:?}", Some(Algorithm::try_from(&penalty).unwrap()))
            );
        }
        assert!(policy_with("").penalty.is_none());
    }

    #[test]
    fn permits_are_prefetched_as_the_file_says() {
        let (half, quarter) = (Prefetch::new().share(0.5), Duration::from_millis(250));
        for (field, prefetch) in [
            ("", None),
            ("prefetch = false", None),
            ("prefetch = true", Some(Prefetch::new())),
            ("prefetch = {}", Some(Prefetch::new())),
            ("prefetch = { share = 0.5 }", Some(half)),
            (
                "prefetch = { max_age = \"250ms\" }",
                Some(Prefetch::new().max_age(quarter)),
            ),
        ] {
            assert_eq!(policy_with(field).id.prefetch(), prefetch, "{field}");
        }
    }

    /// Whether an answer counts according to the file.
    fn counts(field: &str, status: u16, grpc_status: Option<u32>) -> bool {
        let table = DeTable::parse(field).unwrap();
        let known = &[COUNT_STATUS, COUNT_GRPC_STATUS];
        let fields = Fields::of_file(field, table.get_ref(), known).unwrap();
        let counted = Counted::read(&fields).unwrap();
        let status = StatusCode::from_u16(status).unwrap();
        counted.is_none_or(|counted| counted.has(status, grpc_status))
    }

    #[test]
    fn only_the_answers_that_the_file_names_count() {
        let both = "count_status = 401\ncount_grpc_status = 16";
        for (field, status, grpc_status, expected) in [
            ("count_status = 401", 401, None, true),
            ("count_status = 401", 403, None, false),
            ("count_status = [401, 403]", 403, None, true),
            ("count_status = [401, 403]", 402, None, false),
            ("count_status = 401", 200, Some(16), false),
            ("count_grpc_status = 16", 200, Some(16), true),
            ("count_grpc_status = 16", 200, Some(5), false),
            ("count_grpc_status = [5, 16]", 200, Some(5), true),
            ("count_grpc_status = 16", 200, Some(0), false),
            ("count_grpc_status = 16", 200, None, false),
            ("count_grpc_status = 16", 401, None, false),
            (both, 401, None, true),
            (both, 200, Some(16), true),
            (both, 200, None, false),
            ("", 200, None, true),
        ] {
            let found = counts(field, status, grpc_status);
            assert_eq!(found, expected, "{field}: {status}, {grpc_status:?}");
        }
    }
}
