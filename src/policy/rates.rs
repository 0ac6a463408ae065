//! The rates of a policy's limit. Each is judged by itself and stored under its own key.

use super::ready::ReadyPolicy;
use crate::algorithm::Algorithm;
use crate::error::ConfigError;
use crate::limit::Limit;
use crate::store::PolicyId;

/// A rate of a policy's limit after the first.
pub(super) struct FurtherRate {
    id: PolicyId,
    algorithm: Algorithm,
}

/// The algorithms that judge a request, one for each rate.
#[derive(Clone, Debug)]
pub(crate) struct Judges {
    /// For the first rate, which is the only one of most limits.
    pub(crate) first: Algorithm,
    /// For the further rates; `None` if these are the policy's own.
    further: Option<Box<[Algorithm]>>,
}

impl Judges {
    /// For a limit that was chosen for one request.
    pub(super) fn of(limit: &Limit) -> Result<Self, ConfigError> {
        let each = Algorithm::of_each_rate(limit)?;
        let (first, further) = split(&each);
        Ok(Self {
            first,
            further: Some(further.into()),
        })
    }

    /// For the policy's own limit.
    pub(super) fn own(policy: &ReadyPolicy) -> Self {
        Self {
            first: policy.algorithm,
            further: None,
        }
    }

    /// Each algorithm with the identity that its state is stored under. The rates of a chosen limit
    /// replace the policy's own in their order, whatever their periods.
    pub(super) fn each<'p>(
        &self,
        first: &'p PolicyId,
        own: &'p [FurtherRate],
    ) -> impl Iterator<Item = (&'p PolicyId, Algorithm)> {
        let chosen = self.further.as_deref().unwrap_or_default();
        let further = own.iter().enumerate().map(move |(position, rate)| {
            let chosen = chosen.get(position).copied();
            (&rate.id, chosen.unwrap_or(rate.algorithm))
        });
        std::iter::once((first, self.first)).chain(further)
    }
}

/// The algorithm of a limit's first rate, and the further rates.
pub(super) fn of_policy(
    id: &PolicyId,
    limit: &Limit,
) -> Result<(Algorithm, Box<[FurtherRate]>), ConfigError> {
    let each = Algorithm::of_each_rate(limit)?;
    let (first, further) = split(&each);
    let further = further.iter().map(|algorithm| {
        let (_, period) = algorithm.quota();
        FurtherRate {
            id: id.with_further_rate(period),
            algorithm: *algorithm,
        }
    });
    Ok((first, further.collect()))
}

fn split(each: &[Algorithm]) -> (Algorithm, &[Algorithm]) {
    let (first, further) = each.split_first().expect("a limit has a rate");
    (*first, further)
}

impl FurtherRate {
    pub(super) fn id(&self) -> &PolicyId {
        &self.id
    }

    pub(super) fn capacity(&self) -> u32 {
        self.algorithm.capacity()
    }
}
