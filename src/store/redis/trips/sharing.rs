//! `Sharing`: questions that may share a trip with others of their kind.

use redis::Value;

use super::shared_trips::{SharedTrips, Told};
use super::stop::{FEW_TRIPS, Passenger, StopId};
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Subject;
use crate::store::deny_cache::noted::Noted;
use crate::store::redis::keys::Prefix;
use crate::store::redis::script::Scripted;
use crate::store::redis::server::Server;

/// What was read of each of some questions; `None` of one whose key has another form, and of one that failed
/// alone, why.
pub(in crate::store::redis) type Readings<R> = Vec<Result<Option<R>, StoreError>>;

/// A question that may share a trip with others. It is handed from who asks to who goes on the trip, and may
/// come back: so it stays in one place.
pub(in crate::store::redis) trait Sharing:
    Passenger + Send + Sync + Sized + 'static
{
    /// Several of them, as one question.
    type Batch: Batch<Read = Self::Read>;
    /// What is read of one.
    type Read: Send;
    /// What that decides.
    type Decided: Send;

    fn trips(server: &Server) -> &SharedTrips<Self>;

    /// The stop from which it goes when it shares scripts with others about its keys only.
    fn stop(&self) -> StopId;

    /// That from which it goes where one script reaches all keys: with all others that the same one is for.
    fn stop_of_all_keys(&self) -> StopId {
        StopId::of_all_keys(0)
    }

    /// So many trips there may be at once from there: no more than [`FEW_TRIPS`] of questions whose trips may have
    /// keys in common. Of those that begin the first is sent at once, and each other one when its task comes to it,
    /// be it behind a later one.
    fn most_trips_of_all_keys(&self) -> usize {
        FEW_TRIPS
    }

    /// Who is to be told of its answer, for the memory of denials.
    fn noted(&mut self) -> &mut Option<Noted>;

    /// Whether it is to be asked by the composed script where its trip failed so.
    fn goes_on_after(&self, _failure: StoreErrorKind) -> bool {
        false
    }

    /// `None` of none.
    fn batch(questions: &[&Self], prefix: &Prefix) -> Option<Self::Batch>;

    /// Asks this one on a trip of its own.
    fn ask_alone(
        self: Box<Self>,
        server: &Server,
    ) -> impl Future<Output = Result<Told<Self>, StoreError>> + Send;

    /// Asks it by the composed script.
    fn ask_composed(
        &mut self,
        server: &Server,
    ) -> impl Future<Output = Result<Self::Decided, StoreError>> + Send;

    /// What it is answered, when this was read. Tells the memory of denials.
    fn decided(&mut self, read: Self::Read) -> Self::Decided;

    /// Whether that memory was told of a change of its key, once. What those behind it on the same trip are answered
    /// was decided after it, and may be remembered.
    fn has_changed_its_key(&self, _decided: &Self::Decided) -> bool {
        false
    }
}

/// Several questions as one.
pub(in crate::store::redis) trait Batch: Scripted {
    /// What is read of one of them.
    type Read: Send;

    /// Of the first of them. All have the same one where it matters, which is in a cluster.
    fn subject(&self) -> Subject;

    /// What is read of each, in their order.
    ///
    /// # Errors
    ///
    /// A reply of any other shape.
    fn read(&self, reply: &Value) -> Result<Readings<Self::Read>, StoreError>;
}
