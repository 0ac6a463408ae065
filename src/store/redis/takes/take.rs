//! `Take`: a question that may share a trip with others, and `TakeBatch`: several of them.

use redis::{Cmd, Value};

use super::plain::{self, Alone};
use super::plain_batch::PlainBatch;
use super::queue::Queue;
use super::{MOST_TRIPS_IF_PLAIN, WEIGHT_IF_SCALED, WEIGHT_UNLESS_PLAIN};
use crate::algorithm::{Action, Reading, ScaledTake, decide_alone};
use crate::decision::Decision;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Subject;
use crate::store::Check;
use crate::store::deny_cache::noted::Noted;
use crate::store::owned::OwnedCheck;
use crate::store::redis::keys::{Prefix, fingerprint_of_state, shares_its_key};
use crate::store::redis::reply::bad;
use crate::store::redis::script::{Script, Scripted};
use crate::store::redis::server::{Server, told};
use crate::store::redis::trips::{
    Batch, FEW_TRIPS, Passenger, Readings, SharedTrips, Sharing, StopId, Told,
};
use crate::time::Micros;

/// A take by one check. Whether it is in shadow makes no difference, as there is no other check
/// beside it.
pub(in crate::store::redis) struct Take {
    /// Identifies its state in this process.
    pub(super) fingerprint: u128,
    check: OwnedCheck,
    /// Its form if one integer is its whole state, in microseconds or in parts of them.
    pub(super) scaled: Option<ScaledTake>,
    /// Zero asks the server's clock.
    pub(super) now: Micros,
    noted: Option<Noted>,
}

impl Take {
    /// `None` if the checks ask for something else.
    pub(in crate::store::redis) fn of(checks: &[Check<'_>], now: Micros) -> Option<Box<Self>> {
        let [check] = checks else { return None };
        let Action::Take(take) = &check.action else {
            return None;
        };
        let may_share = take.cost > 0
            && take.lease.is_none()
            && check.algorithm.lease().is_none()
            && !check.algorithm.is_penalty();
        let scaled = ScaledTake::of(&check.algorithm, &check.action);
        let shares_its_key = shares_its_key(check);
        // If it shares its key with others, a pack of one is leaner.
        let is_pack = shares_its_key && scaled.and_then(ScaledTake::plain).is_some();
        (may_share && !is_pack).then(|| {
            Box::new(Self {
                fingerprint: fingerprint_of_state(check),
                check: OwnedCheck::of(check),
                scaled: scaled.filter(|_| !shares_its_key),
                now,
                noted: None,
            })
        })
    }

    /// What it asks.
    pub(super) fn check(&self) -> Check<'_> {
        self.check.check()
    }
}

impl Passenger for Take {
    fn key(&self) -> Option<u128> {
        Some(self.fingerprint)
    }

    fn weight(&self) -> usize {
        match self.scaled {
            Some(ScaledTake { scale: 1, .. }) => 1,
            Some(_) => WEIGHT_IF_SCALED,
            None => WEIGHT_UNLESS_PLAIN,
        }
    }
}

impl Sharing for Take {
    type Batch = TakeBatch;
    type Read = Reading;
    type Decided = Decision;

    fn trips(server: &Server) -> &SharedTrips<Self> {
        &server.trips().of_takes
    }

    fn stop(&self) -> StopId {
        StopId(self.fingerprint)
    }

    /// One for each algorithm, unless the take is plain or would be: a script for several
    /// algorithms would be longer than any of theirs.
    fn stop_of_all_keys(&self) -> StopId {
        StopId::of_all_keys(match self.scaled {
            Some(ScaledTake { scale: 1, .. }) => 0,
            Some(_) => 1,
            None => 2 + u16::from(self.check.algorithm.number()),
        })
    }

    fn most_trips_of_all_keys(&self) -> usize {
        match self.weight() {
            1 => MOST_TRIPS_IF_PLAIN,
            _ => FEW_TRIPS,
        }
    }

    fn noted(&mut self) -> &mut Option<Noted> {
        &mut self.noted
    }

    /// A foreign value does not fail a question in shadow, and the composed script knows that. In a
    /// queue, a key for which there is no memory fails with all its takes, though those that are
    /// denied need none.
    fn goes_on_after(&self, failure: StoreErrorKind) -> bool {
        match failure {
            StoreErrorKind::ForeignValue => self.check.is_shadow,
            StoreErrorKind::Full => self.scaled.is_none(),
            _ => false,
        }
    }

    fn batch(takes: &[&Self], prefix: &Prefix) -> Option<TakeBatch> {
        let scaled = takes.iter().map(|take| Some((*take, take.scaled?)));
        match scaled.collect::<Option<Vec<_>>>() {
            Some(scaled) => PlainBatch::of(&scaled, prefix).map(TakeBatch::Plain),
            None => Queue::of(takes, prefix).map(TakeBatch::Any),
        }
    }

    async fn ask_alone(mut self: Box<Self>, server: &Server) -> Result<Told<Self>, StoreError> {
        // Other questions are boxed, as the futures of plain takes, the most frequent ones, would
        // otherwise need room for them.
        let Some(scaled) = self.scaled else {
            let decision = Box::pin(self.ask_composed(server)).await?;
            return Ok(Told::Decided(decision, self));
        };
        let Some(plain) = scaled.plain() else {
            let alone = PlainBatch::of(&[(&self, scaled)], server.prefix());
            let read = Box::pin(server.ask_one(alone)).await?;
            return Ok(Told::by(self, read));
        };
        let question = Alone::of(&self, plain, server.prefix());
        let debt = match server.send(&question, self.check().subject).await {
            Ok(reply) => Some(plain::debt(&reply)?),
            Err(failed) if failed.is_other_form() => None,
            Err(failed) => return Err(failed.into()),
        };
        Ok(Told::by(self, debt.map(|debt| plain.read(debt))))
    }

    async fn ask_composed(&mut self, server: &Server) -> Result<Decision, StoreError> {
        let answer = server.ask_composed(&[self.check()]).await;
        let decisions = told(self.noted.take(), answer)?;
        decisions.first().copied().ok_or_else(|| bad("no row"))
    }

    fn decided(&mut self, reading: Reading) -> Decision {
        let decision = decide_alone(self.check().ask(), &reading);
        if let Some(noted) = self.noted.take() {
            noted.decided(&[decision]);
        }
        decision
    }

    fn has_changed_its_key(&self, decision: &Decision) -> bool {
        decision.is_allowed()
    }
}

/// Takes that share a trip, with the leanest script that can ask them.
pub(in crate::store::redis) enum TakeBatch {
    Plain(PlainBatch),
    Any(Queue),
}

impl Scripted for TakeBatch {
    fn script(&self) -> &Script {
        match self {
            Self::Plain(batch) => batch.script(),
            Self::Any(queue) => queue.script(),
        }
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        match self {
            Self::Plain(batch) => batch.command(verb, script),
            Self::Any(queue) => queue.command(verb, script),
        }
    }
}

impl Batch for TakeBatch {
    type Read = Reading;

    fn subject(&self) -> Subject {
        match self {
            Self::Plain(batch) => batch.subject(),
            Self::Any(queue) => queue.subject(),
        }
    }

    fn read(&self, reply: &Value) -> Result<Readings<Reading>, StoreError> {
        match self {
            Self::Plain(batch) => batch.read(reply),
            Self::Any(queue) => queue.read(reply),
        }
    }
}
