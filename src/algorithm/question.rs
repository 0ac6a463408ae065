//! Several checks of one question: which of them are carried out, and the answers to all of them.

use smallvec::SmallVec;

use super::action::Action;
use super::dispatch::Algorithm;
use super::reading::Reading;
use crate::decision::Decisions;

/// A check without its key: see [`Check::ask`](crate::store::Check::ask).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Ask<'a> {
    /// The algorithm with the parameters of the limit.
    pub algorithm: &'a Algorithm,
    /// What to do.
    pub action: &'a Action,
    /// Whether it only counts, and never denies the question.
    pub is_shadow: bool,
    /// Whether it is for a further rate of the limit of the check before it.
    pub is_extra_rate: bool,
}

impl<'a> Ask<'a> {
    /// An enforced check for a first or only rate.
    pub fn enforced(algorithm: &'a Algorithm, action: &'a Action) -> Self {
        Self {
            algorithm,
            action,
            is_shadow: false,
            is_extra_rate: false,
        }
    }

    /// Whether it counts the denials of the limit before it. A reset of the penalty does not.
    fn is_penalty(&self) -> bool {
        self.algorithm.is_penalty() && *self.action != Action::Reset
    }
}

/// How many permits a question takes that [takes fewer](super::Acquire::takes_fewer) if not all
/// fit, by what was read of each check; `None` of any other question.
///
/// It is what the rate with the fewest has left, and 1 if nothing is left. A store reads the checks
/// once more, [granting](crate::store::Check::granting) so many, and goes on as with any acquire:
/// that fits, unless there is not even one.
pub fn granted<'a>(asks: impl Iterator<Item = Ask<'a>>, readings: &[Reading]) -> Option<u64> {
    let of_rates = asks.zip(readings).filter_map(|(ask, reading)| {
        let is_place = ask.algorithm.lease().is_some();
        let takes_fewer = ask.action.takes_fewer() && !is_place && !ask.is_penalty();
        takes_fewer.then(|| {
            let left = ask.algorithm.remaining(reading);
            left.max(1).min(ask.action.acquires())
        })
    });
    of_rates.min()
}

/// Computes from the readings which checks of a question are carried out.
///
/// - Enforced checks: all if all of them fit, otherwise none.
/// - Shadow checks: if all enforced checks fit, and all rates of their limit and its
///   [`Penalty`](super::Penalty) fit.
/// - A penalty, which then counts a denial: if a rate of the limit before it is denied and no ban is in
///   force.
pub fn committed<'a, I>(asks: I, readings: &[Reading]) -> impl Iterator<Item = bool> + use<'a, I>
where
    I: Iterator<Item = Ask<'a>> + Clone,
{
    committed_if(all_enforced_fit(asks.clone(), readings), asks, readings).into_iter()
}

/// The same, given whether all enforced checks fit.
pub(crate) fn committed_if<'a>(
    all_fit: bool,
    asks: impl Iterator<Item = Ask<'a>>,
    readings: &[Reading],
) -> SmallVec<[bool; 4]> {
    let mut each = asks.zip(readings).peekable();
    let mut committed = SmallVec::new();
    while let Some((first, reading)) = each.next() {
        let (mut limit_fits, mut rates) = (reading.fits, 1);
        while let Some((_, reading)) = each.next_if(|(ask, _)| ask.is_extra_rate) {
            limit_fits &= reading.fits;
            rates += 1;
        }
        let penalty = each.next_if(|(ask, _)| ask.is_penalty());
        let is_banned = penalty.is_some_and(|(_, reading)| !reading.fits);
        let is_committed = if first.is_penalty() {
            // No check stands before it.
            false
        } else {
            all_fit && (!first.is_shadow || (limit_fits && !is_banned))
        };
        committed.extend(std::iter::repeat_n(is_committed, rates));
        committed.extend(penalty.map(|(_, reading)| !limit_fits && reading.fits));
    }
    committed
}

/// Whether no enforced check denies.
pub(crate) fn all_enforced_fit<'a>(
    asks: impl Iterator<Item = Ask<'a>>,
    readings: &[Reading],
) -> bool {
    asks.zip(readings)
        .all(|(ask, reading)| reading.fits || ask.is_shadow)
}

/// Computes the decisions on all checks of a question from their readings.
pub fn decide<'a>(asks: impl Iterator<Item = Ask<'a>> + Clone, readings: &[Reading]) -> Decisions {
    let all_fit = all_enforced_fit(asks.clone(), readings);
    decide_if(all_fit, asks, readings)
}

/// The decisions on the checks of one node while another node denies the question: only the
/// counting of denials by penalties is carried out.
#[cfg(feature = "redis")]
pub(crate) fn decide_denied<'a>(
    asks: impl Iterator<Item = Ask<'a>> + Clone,
    readings: &[Reading],
) -> Decisions {
    decide_if(false, asks, readings)
}

fn decide_if<'a>(
    all_fit: bool,
    asks: impl Iterator<Item = Ask<'a>> + Clone,
    readings: &[Reading],
) -> Decisions {
    let committed = committed_if(all_fit, asks.clone(), readings);
    let each = asks.zip(readings.iter().zip(committed));
    each.map(|(ask, (reading, committed))| ask.algorithm.decide(reading, ask.action, committed))
        .collect()
}
