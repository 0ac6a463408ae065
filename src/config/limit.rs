//! `algorithm`, `limit` and the options: the file's words for a `Limit`.

use std::time::Duration;

use super::FileError;
use super::fields::Fields;
use super::rate::{rate, time};
use crate::limit::{Limit, Rate};

type Read = fn(&Fields<'_>) -> Result<Limit, FileError>;

/// Algorithms by the names that the file has for them.
const ALGORITHMS: [(&str, Read); 8] = [
    ("gcra", gcra),
    ("token-bucket", |fields| bucket(fields, Limit::token_bucket)),
    ("leaky-bucket", leaky_bucket),
    ("fixed-window", fixed_window),
    ("sliding-counter", |fields| {
        in_time(fields, Limit::sliding_counter)
    }),
    ("sliding-window", sliding_window),
    ("sliding-log", |fields| in_time(fields, Limit::sliding_log)),
    ("concurrency", concurrency),
];

/// Fields that only some algorithms have, and those.
const OPTIONS: [(&str, &[&str]); 6] = [
    ("burst", &["gcra"]),
    ("capacity", &["token-bucket", "leaky-bucket"]),
    ("delay", &["leaky-bucket"]),
    ("aligned", &["fixed-window"]),
    ("slices", &["sliding-window"]),
    ("lease", &["concurrency"]),
];

const PERMITS: &str = "1 to 4294967295";

pub(super) fn read(fields: &Fields<'_>) -> Result<Limit, FileError> {
    let algorithm = fields.need("algorithm", "algorithm = \"gcra\"")?;
    let read = algorithm.choice(&ALGORITHMS)?;
    refuse_options_of_others(fields, algorithm.text("a text")?)?;
    read(fields)
}

fn refuse_options_of_others(fields: &Fields<'_>, algorithm: &str) -> Result<(), FileError> {
    for (option, algorithms) in OPTIONS {
        let Some(field) = fields.get(option) else {
            continue;
        };
        // What is switched off is what the other algorithms do anyway.
        if !algorithms.contains(&algorithm) && !field.is_false() {
            let algorithms = algorithms.join(" and ");
            return Err(field.refuse(format_args!("is an option of {algorithms}")));
        }
    }
    Ok(())
}

fn gcra(fields: &Fields<'_>) -> Result<Limit, FileError> {
    let limit = in_time(fields, Limit::gcra)?;
    Ok(match fields.get("burst") {
        Some(burst) => limit.burst(burst.number(PERMITS)?),
        None => limit,
    })
}

fn leaky_bucket(fields: &Fields<'_>) -> Result<Limit, FileError> {
    let limit = bucket(fields, Limit::leaky_bucket)?;
    Ok(match fields.get("delay") {
        Some(delay) if !delay.boolean()? => limit.without_delay(),
        _ => limit,
    })
}

fn fixed_window(fields: &Fields<'_>) -> Result<Limit, FileError> {
    let limit = in_time(fields, Limit::fixed_window)?;
    Ok(match fields.get("aligned") {
        Some(aligned) if aligned.boolean()? => limit.aligned(),
        _ => limit,
    })
}

fn sliding_window(fields: &Fields<'_>) -> Result<Limit, FileError> {
    let limit = in_time(fields, Limit::sliding_window)?;
    Ok(match fields.get("slices") {
        Some(slices) => limit.slices(slices.number("1 to 1000")?),
        None => limit,
    })
}

fn concurrency(fields: &Fields<'_>) -> Result<Limit, FileError> {
    let at_once = fields.need("limit", "limit = 20")?;
    let at_once = at_once.number("1 to 4294967295 requests at the same time, as 20")?;
    let limit = Limit::concurrency(at_once);
    Ok(match fields.get("lease") {
        Some(lease) => limit.lease(time(&lease)?),
        None => limit,
    })
}

/// A limit of so many permits in so much time.
fn in_time(fields: &Fields<'_>, make: fn(u32, Duration) -> Limit) -> Result<Limit, FileError> {
    let (permits, period) = stated_rate(fields)?;
    Ok(make(permits, period))
}

/// A limit whose `limit` is a rate, and that holds as many permits as come with it in its time
/// unless the file says how many.
fn bucket(fields: &Fields<'_>, make: fn(u32, Rate) -> Limit) -> Result<Limit, FileError> {
    let (permits, period) = stated_rate(fields)?;
    let capacity = match fields.get("capacity") {
        Some(capacity) => capacity.number(PERMITS)?,
        None => permits,
    };
    Ok(make(capacity, Rate::new(permits, period)))
}

fn stated_rate(fields: &Fields<'_>) -> Result<(u32, Duration), FileError> {
    rate(&fields.need("limit", "limit = \"100/min\"")?)
}
