//! `on` and `exempt`: routes.

use super::FileError;
use super::field::Field;
use crate::error::ConfigError;
use crate::http::Route;

/// The requests that no policy is about.
pub(super) fn exempt(field: &Field<'_>) -> Result<Vec<Route>, FileError> {
    read(field, "nothing is exempt; leave the field out")
}

/// The requests that a policy is about.
pub(super) fn of_policy(field: &Field<'_>) -> Result<Vec<Route>, FileError> {
    let nothing = "the policy would be about nothing; leave the field out for every request";
    read(field, nothing)
}

fn read(field: &Field<'_>, if_none: &str) -> Result<Vec<Route>, FileError> {
    let expected = "a route, as \"POST /login\" or \"/api/{*rest}\", or a list of routes";
    let route = |item: &Field<'_>| {
        let route: Route = item
            .text(expected)?
            .parse()
            .map_err(|error: ConfigError| item.refuse(error))?;
        Ok(route)
    };
    field.one_or_more(route, if_none)
}
