//! `on` and `exempt`: routes.

use super::FileError;
use super::fields::Field;
use crate::error::ConfigError;
use crate::http::Route;

const EXPECTED: &str = "a route, such as \"POST /login\" or \"/api/{*rest}\", or a list of routes";

/// The requests to which no policy applies.
pub(super) fn exempt(field: &Field<'_>) -> Result<Vec<Route>, FileError> {
    read(field, EXPECTED, "nothing is exempt; leave the field out")
}

/// The requests to which a policy applies.
pub(super) fn of_policy(field: &Field<'_>) -> Result<Vec<Route>, FileError> {
    let expected = format!("{EXPECTED}, or \"none\" if only handlers ask it");
    let nothing = "the policy would apply to no request; leave the field out for every request, \
                   or write \"none\" if only handlers ask it";
    read(field, &expected, nothing)
}

/// Whether the policy applies to no request, so that layers leave it to handlers.
pub(super) fn are_none(field: &Field<'_>) -> bool {
    field.as_text() == Some("none")
}

fn read(field: &Field<'_>, expected: &str, if_none: &str) -> Result<Vec<Route>, FileError> {
    let route = |item: &Field<'_>| {
        let route: Route = item
            .text(expected)?
            .parse()
            .map_err(|error: ConfigError| item.refuse(error))?;
        Ok(route)
    };
    field.one_or_more(route, if_none)
}
