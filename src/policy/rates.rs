//! The rates of a policy's limit. Each is decided by itself and stored under its own key.

use crate::algorithm::Algorithm;
use crate::error::ConfigError;
use crate::limit::Limit;
use crate::store::PolicyId;

/// A rate of a policy's limit after the first.
pub(super) struct ExtraRate {
    id: PolicyId,
    algorithm: Algorithm,
}

/// The algorithms that decide a request, one for each rate.
#[derive(Clone, Debug)]
pub(crate) struct RateSet {
    /// For the first rate, which is the only one of most limits.
    pub(crate) first: Algorithm,
    /// For the further rates; `None` if these are the policy's own.
    further: Option<Box<[Algorithm]>>,
}

impl RateSet {
    /// For a limit that was chosen for one request; `None` if it admits nothing.
    pub(super) fn of(limit: &Limit) -> Result<Option<Self>, ConfigError> {
        let each = Algorithm::of_each_rate(limit)?;
        Ok(each.split_first().map(|(first, further)| Self {
            first: *first,
            further: Some(further.into()),
        }))
    }

    /// For the policy's own limit, by the algorithm of its first rate.
    pub(super) fn own(first: Algorithm) -> Self {
        Self {
            first,
            further: None,
        }
    }

    /// The algorithms of a limit that was chosen for one request.
    pub(super) fn chosen(&self) -> impl Iterator<Item = &Algorithm> {
        std::iter::once(&self.first).chain(self.further.iter().flatten())
    }

    /// Each algorithm with the identity that its state is stored under. The rates of a chosen limit
    /// replace the policy's own in their order, whatever their periods.
    pub(super) fn each<'p>(
        &self,
        first: &'p PolicyId,
        own: &'p [ExtraRate],
    ) -> impl Iterator<Item = (&'p PolicyId, Algorithm)> {
        let chosen = self.further.as_deref().unwrap_or_default();
        let further = own.iter().enumerate().map(move |(position, rate)| {
            let chosen = chosen.get(position).copied();
            (&rate.id, chosen.unwrap_or(rate.algorithm))
        });
        std::iter::once((first, self.first)).chain(further)
    }
}

impl ExtraRate {
    /// One that this algorithm decides, of the policy with this identity.
    pub(super) fn of(id: &PolicyId, algorithm: &Algorithm) -> Self {
        let (_, period) = algorithm.quota();
        Self {
            id: id.with_extra_rate(period),
            algorithm: *algorithm,
        }
    }

    pub(super) fn id(&self) -> &PolicyId {
        &self.id
    }

    pub(super) fn capacity(&self) -> u64 {
        self.algorithm.capacity()
    }
}

/// What fits every rate.
pub(super) fn least_capacity(first: &Algorithm, further: &[ExtraRate]) -> u64 {
    let further = further.iter().map(ExtraRate::capacity);
    further.fold(first.capacity(), u64::min)
}
