//! `algorithm`, `limit` and the options: the `Limit` of a policy or of a tier.

use std::time::Duration;

use super::fields::{Field, Fields};
use super::units::{rate, time};
use super::{FileError, invalid};
use crate::algorithm::Algorithm;
use crate::limit::{ANY_COST, Limit, MOST_PERMITS, Rate};

type Make = fn(u64, Duration) -> Limit;
type Read = fn(&LimitFields<'_, '_>) -> Result<Limit, FileError>;

/// The algorithms by their names in the file.
const ALGORITHMS: [(&str, Read); 9] = [
    ("gcra", gcra),
    ("token-bucket", |fields| bucket(fields, Limit::token_bucket)),
    ("leaky-bucket", leaky_bucket),
    ("fixed-window", fixed_window),
    ("calendar", calendar),
    ("sliding-counter", |fields| {
        in_time(fields, Limit::sliding_counter)
    }),
    ("sliding-window", sliding_window),
    ("sliding-log", |fields| in_time(fields, Limit::sliding_log)),
    ("concurrency", concurrency),
];

/// Fields that only some algorithms have, and those algorithms.
const OPTIONS: [(&str, &[&str]); 9] = [
    ("burst", &["gcra"]),
    ("capacity", &["token-bucket", "leaky-bucket"]),
    ("delay", &["leaky-bucket"]),
    ("aligned", &["fixed-window"]),
    ("zone", &["calendar"]),
    ("anchor", &["calendar"]),
    ("first_day", &["calendar"]),
    ("slices", &["sliding-window"]),
    ("lease", &["concurrency"]),
];

/// The ones that are booleans.
const SWITCHES: [&str; 2] = ["delay", "aligned"];

pub(super) const A_RATE: &str = "limit = \"100/min\"";

/// The fields that make up a limit.
struct LimitFields<'a, 't> {
    /// The table with the numbers of permits: the tier, or the policy.
    amounts: &'a Fields<'t>,
    /// The table with the other options: the policy, as tiers have none.
    ways: &'a Fields<'t>,
}

/// The limit of a policy.
pub(super) fn read(policy: &Fields<'_>) -> Result<Limit, FileError> {
    of_tier(policy, policy)
}

/// The limit of a tier. It has the algorithm of its policy.
pub(super) fn of_tier(tier: &Fields<'_>, policy: &Fields<'_>) -> Result<Limit, FileError> {
    let algorithm = policy.need("algorithm", "algorithm = \"gcra\"")?;
    let read = algorithm.choice(&ALGORITHMS)?;
    refuse_options_of_others(tier, algorithm.text("a string")?)?;
    let limit = read(&LimitFields {
        amounts: tier,
        ways: policy,
    })?;
    // "0/s" admits nothing. The other options stay checked, for a later higher limit.
    Ok(match limit.has_no_permits() {
        true => Limit::nothing(),
        false => limit,
    })
}

fn refuse_options_of_others(fields: &Fields<'_>, algorithm: &str) -> Result<(), FileError> {
    for (option, algorithms) in OPTIONS {
        let Some(field) = fields.get(option) else {
            continue;
        };
        // An option that is switched off does what other algorithms do anyway.
        let is_off = SWITCHES.contains(&option) && field.as_boolean() == Some(false);
        if !algorithms.contains(&algorithm) && !is_off {
            let algorithms = algorithms.join(" and ");
            return Err(field.refuse(format_args!("is an option of {algorithms}")));
        }
    }
    Ok(())
}

fn gcra(fields: &LimitFields<'_, '_>) -> Result<Limit, FileError> {
    let Some(burst) = fields.amounts.get("burst") else {
        return in_time(fields, Limit::gcra);
    };
    let limit = fields.amounts.need("limit", A_RATE)?;
    let rates = one_or_more_rates(&limit, Limit::gcra)?;
    let expected = match rates.len() {
        1 => ANY_COST.to_owned(),
        rates => format!("a list of {rates} numbers, one for each rate of the limit"),
    };
    let number = |burst: &Field<'_>| burst.number(ANY_COST);
    let bursts = match burst.items() {
        Some(bursts) => bursts.iter().map(number).collect::<Result<_, _>>()?,
        None => vec![burst.number(&expected)?],
    };
    if bursts.len() != rates.len() {
        return Err(burst.expected(expected));
    }
    let each = rates.into_iter().zip(bursts);
    let each = each.map(|((permits, period), burst)| (permits, period, Some(burst)));
    Ok(all_of(Limit::gcra, each))
}

fn leaky_bucket(fields: &LimitFields<'_, '_>) -> Result<Limit, FileError> {
    let limit = bucket(fields, Limit::leaky_bucket)?;
    Ok(match fields.ways.get("delay") {
        Some(delay) if !delay.boolean()? => limit.without_delay(),
        _ => limit,
    })
}

fn fixed_window(fields: &LimitFields<'_, '_>) -> Result<Limit, FileError> {
    let limit = in_time(fields, Limit::fixed_window)?;
    Ok(match fields.ways.get("aligned") {
        Some(aligned) if aligned.boolean()? => limit.aligned(),
        _ => limit,
    })
}

#[cfg(feature = "calendar")]
fn calendar(fields: &LimitFields<'_, '_>) -> Result<Limit, FileError> {
    super::calendar::limit(fields.amounts, fields.ways)
}

#[cfg(not(feature = "calendar"))]
fn calendar(fields: &LimitFields<'_, '_>) -> Result<Limit, FileError> {
    let algorithm = fields.ways.need("algorithm", "algorithm = \"gcra\"")?;
    Err(algorithm.refuse("needs the feature \"calendar\" of tower-throttle"))
}

fn sliding_window(fields: &LimitFields<'_, '_>) -> Result<Limit, FileError> {
    let limit = in_time(fields, Limit::sliding_window)?;
    Ok(match fields.ways.get("slices") {
        Some(slices) => limit.slices(slices.number("1 to 1000")?),
        None => limit,
    })
}

fn concurrency(fields: &LimitFields<'_, '_>) -> Result<Limit, FileError> {
    let at_once = fields.amounts.need("limit", "limit = 20")?;
    let at_once = at_once.number(format_args!(
        "0 to {MOST_PERMITS} requests at the same time, such as 20"
    ))?;
    let limit = Limit::concurrency(at_once);
    Ok(match fields.ways.get("lease") {
        Some(lease) => limit.lease(time(&lease)?),
        None => limit,
    })
}

/// A limit of one or more rates, each a number of permits in a time.
fn in_time(fields: &LimitFields<'_, '_>, make: Make) -> Result<Limit, FileError> {
    let rates = one_or_more_rates(&fields.amounts.need("limit", A_RATE)?, make)?;
    let each = rates.into_iter();
    Ok(all_of(
        make,
        each.map(|(permits, period)| (permits, period, None)),
    ))
}

fn one_or_more_rates(limit: &Field<'_>, make: Make) -> Result<Vec<(u64, Duration)>, FileError> {
    let one = |rate: &Field<'_>| {
        let (permits, period) = self::rate(rate)?;
        if permits == 0 {
            return Err(rate.refuse(
                "a rate that admits nothing needs no others, write limit = \"0/s\" for all of them",
            ));
        }
        // Each rate is checked alone, so that an error has its place.
        let limit_of_one = Algorithm::try_from(&make(permits, period));
        limit_of_one.map_err(|error| invalid::value(rate, error))?;
        Ok((permits, period))
    };
    match limit.items() {
        Some(_) => limit.one_or_more(
            one,
            "it has no rate; write at least one, such as \"100/min\"",
        ),
        None => Ok(vec![self::rate(limit)?]),
    }
}

/// A limit of these rates with their bursts. There must be at least one.
fn all_of(make: Make, mut rates: impl Iterator<Item = (u64, Duration, Option<u64>)>) -> Limit {
    let with_burst = |limit: Limit, burst: Option<u64>| match burst {
        Some(burst) => limit.burst(burst),
        None => limit,
    };
    let (permits, period, burst) = rates.next().unwrap_or_default();
    let first = with_burst(make(permits, period), burst);
    rates.fold(first, |limit, (permits, period, burst)| {
        with_burst(limit.and(permits, period), burst)
    })
}

/// A limit whose `limit` is a rate. Its capacity is the number of permits in the rate, unless the
/// file says otherwise.
fn bucket(fields: &LimitFields<'_, '_>, make: fn(u64, Rate) -> Limit) -> Result<Limit, FileError> {
    let (permits, period) = rate(&fields.amounts.need("limit", A_RATE)?)?;
    let capacity = match fields.amounts.get("capacity") {
        Some(capacity) => capacity.number(ANY_COST)?,
        None => permits,
    };
    Ok(make(capacity, Rate::new(permits, period)))
}
