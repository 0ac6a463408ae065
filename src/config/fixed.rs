//! What cannot change while a service runs.

use super::fields::Fields;
use super::{Config, FileError};

/// Refuses changes that need other servers, other keys or another layer around the store. Writing
/// out a default is no change, and neither is another login on the same servers.
pub(super) fn hold(fields: &Fields<'_>, before: &Config, after: &Config) -> Result<(), FileError> {
    let same = [
        ("store", after.store.has_servers_of(&before.store)),
        ("tls", after.store.has_tls_of(&before.store)),
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
