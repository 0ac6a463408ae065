//! `penalty = { ... }`: the file's words for a `Penalty`.

use super::fields::{Field, KnownNames};
use super::units::time;
use super::{FileError, invalid};
use crate::algorithm::{Algorithm, Penalty};

const FIELDS: KnownNames = &["denials", "within", "ban", "longest"];

pub(super) fn read(field: &Field<'_>) -> Result<Penalty, FileError> {
    let expected = "a table, such as { denials = 10, within = \"15min\", ban = \"1h\" }";
    let fields = field.table(FIELDS, expected)?;
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
