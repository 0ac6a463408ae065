//! `[[policy]]`: one table of the file as a `Policy`.

use std::time::Duration;

use super::client_address::Proxies;
use super::counted::{self, Counted};
use super::fields::{Field, Fields, KnownNames};
use super::tiers::{Tiers, refuse_invalid_policy};
use super::{FileError, key, limit, penalty, prefetch, routes, units};
use crate::http::HeaderCost;
use crate::limit::ANY_COST;
use crate::mode::Mode;
use crate::policy::{OnMissingKey, Policy};
use crate::request::{CostExtractor, NoRequest};
use crate::store::FailureMode;

pub(super) const FIELDS: KnownNames = &[
    "name",
    "algorithm",
    "limit",
    "burst",
    "capacity",
    "delay",
    "aligned",
    "slices",
    "lease",
    "tiers",
    "key",
    "on",
    "cost",
    counted::STATUS,
    counted::GRPC_STATUS,
    "mode",
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
    counted::STATUS,
    counted::GRPC_STATUS,
    "max_wait",
    "on_missing_key",
];

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
    let mut policy = match on.filter(routes::are_none) {
        Some(_) => of_no_request(policy, fields)?,
        None => of_requests(policy, on, fields, proxies)?,
    };
    if let Some(field) = fields.get("cost") {
        policy = cost(policy, &field)?;
    }
    if let Some(counted) = Counted::read(fields)? {
        policy = policy.count_if(move |response| counted.has(response));
    }
    if let Some(field) = fields.get("mode") {
        let modes = Mode::ALL.iter().map(|mode| (mode.as_str(), *mode));
        policy = policy.mode(field.choice(&modes.collect::<Vec<_>>())?);
    }
    if let Some(field) = fields.get("max_wait") {
        policy = policy.max_wait(units::time(&field)?);
    }
    if let Some(field) = fields.get("group") {
        policy = policy.group(field.text("a string, such as \"client\"")?);
    }
    if let Some(field) = fields.get("penalty") {
        policy = policy.penalty(penalty::read(&field)?);
    }
    if let Some(field) = fields.get("prefetch")
        && let Some(prefetch) = prefetch::read(&field)?
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
        Some(on) => policy.on(routes::of_policy(&on)?),
        None => policy,
    })
}

/// A policy that handlers ask, with keys of their own.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use toml::de::DeTable;

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
    fn permits_are_taken_in_batches_as_the_file_says() {
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
}
