//! What cannot change while a service runs.

use super::fields::Fields;
use super::{Config, FileError};

/// Refuses changes that need other connections, other keys or another layer around the store.
/// Writing out a default is no change.
pub(super) fn hold(fields: &Fields<'_>, before: &Config, after: &Config) -> Result<(), FileError> {
    let same = [
        ("store", before.store.url == after.store.url),
        ("prefix", before.store.prefix == after.store.prefix),
        ("secret", before.secret == after.secret),
        ("timeout", before.timeout == after.timeout),
    ];
    for (name, is_same) in same {
        if !is_same {
            let problem = format!(
                "{name}: cannot change while the service runs, restart it or restore the old value"
            );
            return Err(fields.refuse_at(name, problem));
        }
    }
    Ok(())
}
