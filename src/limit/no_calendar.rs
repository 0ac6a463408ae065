//! In place of `calendar` without its feature: there is no calendar, so nothing is ever asked of one.

use std::fmt;

use crate::error::ConfigError;
use crate::time::Micros;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calendar {}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Schedule {}

impl Calendar {
    pub(super) fn schedule(&self) -> Result<&'static Schedule, ConfigError> {
        match *self {}
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl Schedule {
    pub(crate) fn around(&self, _: Micros) -> [Micros; 3] {
        match *self {}
    }

    pub(crate) fn latest(&self) -> [Micros; 3] {
        match *self {}
    }
}
