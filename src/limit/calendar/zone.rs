//! `Zone`: a time zone that a calendar has named. Kept as long as the process lives, so that a
//! calendar can be copied: there are a few hundred at most.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;
use std::sync::{PoisonError, RwLock};

use jiff::tz::TimeZone;

use crate::error::ConfigError;

pub(super) struct Zone {
    name: Box<str>,
    pub(super) rules: TimeZone,
}

static ZONES: RwLock<Vec<&'static Zone>> = RwLock::new(Vec::new());

impl Zone {
    pub(super) fn named(name: &str) -> Result<&'static Self, ConfigError> {
        let known = ZONES.read().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().find(|zone| &*zone.name == name).copied();
        drop(known);
        if let Some(zone) = found {
            return Ok(zone);
        }
        let rules = TimeZone::get(name).map_err(|_| {
            let reason =
                "expected a name of the IANA time-zone database, such as \"Europe/Berlin\"";
            ConfigError::malformed("zone", name, reason)
        })?;
        // As the database writes it, so that there is one of each.
        let name = rules.iana_name().unwrap_or("UTC");
        let mut known = ZONES.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(zone) = known.iter().find(|zone| &*zone.name == name) {
            return Ok(zone);
        }
        let zone = Box::leak(Box::new(Self {
            name: name.into(),
            rules: rules.clone(),
        }));
        known.push(zone);
        Ok(zone)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// There is one of each name.
impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

impl Eq for Zone {}

impl Hash for Zone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ptr::hash(self, state);
    }
}
