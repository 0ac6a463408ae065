//! `[[policy]]`: one table of the file as a `Policy`.

use std::time::Duration;

use super::fields::{Field, Fields, Known};
use super::proxies::Proxies;
use super::rate::rate;
use super::{FileError, key};
use crate::error::ConfigError;
use crate::http::{HeaderCost, Route};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::policy::{OnMissingKey, Policy};
use crate::request::CostExtractor;
use crate::store::{Answer, Check, FailureMode, Store};

pub(super) const FIELDS: Known = Known {
    now: &[
        "name",
        "algorithm",
        "limit",
        "burst",
        "aligned",
        "key",
        "on",
        "cost",
        "mode",
        "on_missing_key",
        "on_store_failure",
    ],
    later: &["capacity", "slices", "max_wait"],
};

type MakeLimit = fn(u32, Duration) -> Limit;

/// Algorithms by the names that the file has for them.
const ALGORITHMS: [(&str, MakeLimit); 4] = [
    ("gcra", Limit::gcra),
    ("fixed-window", Limit::fixed_window),
    ("sliding-log", Limit::sliding_log),
    ("sliding-counter", Limit::sliding_counter),
];

/// Algorithms that a later version will have.
const LATER_ALGORITHMS: [&str; 4] = [
    "sliding-window",
    "token-bucket",
    "leaky-bucket",
    "concurrency",
];

pub(super) fn read(fields: &Fields<'_>, proxies: &Proxies) -> Result<Policy, FileError> {
    let name = fields.need("name", "name = \"client\"")?;
    let name = name.text("a text, as \"client\"")?;
    let subject = fields.need(
        "key",
        "key = \"peer\", or \"everybody\" for one quota for all",
    )?;
    let mut policy = Policy::new(name, limit(fields)?).by(key::read(&subject, proxies)?);
    if let Some(on) = fields.get("on") {
        policy = policy.on(routes(&on)?);
    }
    if let Some(field) = fields.get("cost") {
        policy = cost(policy, &field)?;
    }
    if let Some(field) = fields.get("mode") {
        field.choice(&[("enforce", ())], &["shadow"])?;
    }
    if let Some(field) = fields.get("on_missing_key") {
        let choices = [
            ("shared", OnMissingKey::Shared),
            ("reject", OnMissingKey::Reject),
            ("skip", OnMissingKey::Skip),
        ];
        policy = policy.on_missing_key(field.choice(&choices, &[])?);
    }
    if let Some(field) = fields.get("on_store_failure") {
        policy = policy.on_store_failure(failure_mode(&field)?);
    }
    // The limiter's own checks, so that what they refuse is refused with its place.
    Limiter::new(NoStore, [policy.clone()]).map_err(|error| in_place(fields, error))?;
    Ok(policy)
}

fn limit(fields: &Fields<'_>) -> Result<Limit, FileError> {
    let algorithm = fields.need("algorithm", "algorithm = \"gcra\"")?;
    let algorithm = algorithm.choice(&ALGORITHMS, &LATER_ALGORITHMS)?;
    let (permits, period) = rate(&fields.need("limit", "limit = \"100/min\"")?)?;
    let mut limit = algorithm(permits, period);
    if let Some(burst) = fields.get("burst") {
        limit = limit.burst(burst.number("1 to 4294967295")?);
    }
    if let Some(aligned) = fields.get("aligned")
        && aligned.boolean()?
    {
        limit = limit.aligned();
    }
    Ok(limit)
}

fn routes(field: &Field<'_>) -> Result<Vec<Route>, FileError> {
    let expected = "a route, as \"POST /login\" or \"/api/{*rest}\", or a list of routes";
    let items = field.items();
    let route = |item: &Field<'_>| {
        let route: Route = item
            .text(expected)?
            .parse()
            .map_err(|error: ConfigError| item.refuse(error))?;
        Ok(route)
    };
    match items {
        Some(items) if items.is_empty() => Err(field.refuse(
            "the list is empty, so the policy would be about nothing; leave the field out for \
             every request",
        )),
        Some(items) => items.iter().map(route).collect(),
        None => Ok(vec![route(field)?]),
    }
}

fn cost(policy: Policy, field: &Field<'_>) -> Result<Policy, FileError> {
    let expected = "1 to 4294967295 permits, or \"header:<name>\"";
    if !field.is_text() {
        return Ok(policy.cost(field.number(expected)?));
    }
    let name = field.text(expected)?.strip_prefix("header:");
    let cost = HeaderCost::new(name.ok_or_else(|| field.expected(expected))?);
    cost.validate().map_err(|error| field.refuse(error))?;
    Ok(policy.cost_by(cost))
}

/// `on_store_failure`, of a policy or of the whole file.
pub(super) fn failure_mode(field: &Field<'_>) -> Result<FailureMode, FileError> {
    let choices = [("allow", FailureMode::Allow), ("deny", FailureMode::Deny)];
    if field.is_table() {
        return Err(field.not_yet("\"allow\" or \"deny\""));
    }
    field.choice(&choices, &[])
}

/// The line of the field that the error is about.
fn in_place(fields: &Fields<'_>, error: ConfigError) -> FileError {
    let error = match error {
        ConfigError::InPolicy { source, .. } => *source,
        error => error,
    };
    let field = match &error {
        ConfigError::OutOfRange { field, .. }
        | ConfigError::NotForThisAlgorithm { field, .. }
        | ConfigError::Malformed { field, .. } => *field,
        _ => "name",
    };
    match (field, fields.get(field)) {
        (_, Some(field)) => field.here(error),
        // The file states them in its `limit`.
        ("period" | "window", None) => match fields.get("limit") {
            Some(limit) => limit.refuse(error),
            None => fields.refuse(error),
        },
        (_, None) => fields.refuse(error),
    }
}

/// Stands where a limiter is only checked and never asked.
pub(super) struct NoStore;

impl Store for NoStore {
    fn ask(&self, _: &[Check<'_>]) -> Answer {
        Answer::Ready(Ok([].into_iter().collect()))
    }
}
