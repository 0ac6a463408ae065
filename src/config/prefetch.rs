//! `prefetch = true`, or `{ ... }`: the file's words for a `Prefetch`.

use super::fields::{Field, KnownNames};
use super::units::time;
use super::{FileError, invalid};
use crate::store::Prefetch;

const FIELDS: KnownNames = &["share", "max_age"];

/// `None` if it is switched off.
pub(super) fn read(field: &Field<'_>) -> Result<Option<Prefetch>, FileError> {
    if let Some(is_on) = field.as_boolean() {
        return Ok(is_on.then(Prefetch::new));
    }
    let expected = "true, or a table, such as { share = 0.1, max_age = \"1s\" }";
    let fields = field.table(FIELDS, expected)?;
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
