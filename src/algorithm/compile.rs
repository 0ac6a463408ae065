//! Builds the algorithms of valid limits and penalties.

use smallvec::SmallVec;

use super::debt::Debt;
use super::dispatch::{Algorithm, Which};
use super::{
    Penalty, concurrency, fixed_window, penalty, sliding_counter, sliding_log, sliding_window,
};
use crate::error::ConfigError;
use crate::limit::{Kind, Limit, ValidLimit};

impl Algorithm {
    /// One algorithm for each rate of a limit, in their order; none for a limit that admits nothing.
    ///
    /// # Errors
    ///
    /// If a rate is invalid, or the rates are invalid together.
    pub(crate) fn of_each_rate(limit: &Limit) -> Result<SmallVec<[Self; 1]>, ConfigError> {
        limit.refuse_rates_together()?;
        if limit.is_nothing() {
            limit.refuse_options_of_others()?;
            return Ok(SmallVec::new());
        }
        let each = limit.rates();
        each.map(|rate| Self::try_from(&rate)).collect()
    }

    /// One algorithm for each kind of limit, with any numbers, for uses of which only the name matters.
    pub(crate) fn one_of_each_name() -> impl Iterator<Item = Self> {
        let valid = Kind::ALL.map(ValidLimit::smallest);
        valid.into_iter().map(|valid| Self::of(&valid))
    }

    /// Keeps the end of a hold: as the debt of a single permit, which is all that there is.
    pub(crate) fn of_holds() -> Self {
        Self::of(&ValidLimit::smallest(Kind::Gcra))
    }

    fn of(valid: &ValidLimit) -> Self {
        Self(match valid.kind {
            Kind::Gcra => Which::Gcra(Debt::new(valid)),
            Kind::TokenBucket => Which::TokenBucket(Debt::new(valid)),
            Kind::LeakyBucket => Which::LeakyBucket(Debt::leaky_bucket(valid)),
            Kind::FixedWindow => Which::FixedWindow(fixed_window::FixedWindow::new(valid)),
            Kind::SlidingLog => Which::SlidingLog(sliding_log::SlidingLog::new(valid)),
            Kind::SlidingWindow => Which::SlidingWindow(sliding_window::SlidingWindow::new(valid)),
            Kind::SlidingCounter => {
                Which::SlidingCounter(sliding_counter::SlidingCounter::new(valid))
            }
            Kind::Concurrency => Which::Concurrency(concurrency::Concurrency::new(valid)),
        })
    }
}

impl TryFrom<&Limit> for Algorithm {
    type Error = ConfigError;

    /// For a limit of one rate. Use [`Limit::rates`] for limits of several rates. Not for
    /// [`Limit::nothing`], which is decided without the store.
    ///
    /// # Errors
    ///
    /// If a field of the limit is out of range, or belongs to another algorithm.
    fn try_from(limit: &Limit) -> Result<Self, ConfigError> {
        limit.valid().map(|valid| Self::of(&valid))
    }
}

impl TryFrom<&Penalty> for Algorithm {
    type Error = ConfigError;

    /// # Errors
    ///
    /// If a field of the penalty is out of range.
    fn try_from(penalty: &Penalty) -> Result<Self, ConfigError> {
        penalty::PenaltyBox::new(penalty).map(|penalty| Self(Which::Penalty(penalty)))
    }
}
