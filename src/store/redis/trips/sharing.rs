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

/// The reading of each question; `None` if its key has another form, and an error if it failed
/// alone.
pub(in crate::store::redis) type Readings<R> = Vec<Result<Option<R>, StoreError>>;

/// A question that may share a trip with others. It is passed from its caller to the trip, and may
/// come back, so it stays in one place.
pub(in crate::store::redis) trait Sharing:
    Passenger + Send + Sync + Sized + 'static
{
    /// Several of these questions, as one.
    type Batch: Batch<Read = Self::Read>;
    /// The reading of one question.
    type Read: Send;
    /// The decision by a reading.
    type Decided: Send;

    fn trips(server: &Server) -> &SharedTrips<Self>;

    /// The stop of questions that share scripts only with others about their keys.
    fn stop(&self) -> StopId;

    /// The stop of questions where one script can use all keys: shared with all others of the same
    /// script.
    fn stop_of_all_keys(&self) -> StopId {
        StopId::of_all_keys(0)
    }

    /// How many trips there may be at once from there: at most [`FEW_TRIPS`] for questions whose
    /// trips may have keys in common. The first trip that begins is sent at once, and each other
    /// one when its task runs, possibly after a later one.
    fn most_trips_of_all_keys(&self) -> usize {
        FEW_TRIPS
    }

    /// The note for the deny cache, which learns the answer.
    fn noted(&mut self) -> &mut Option<Noted>;

    /// Whether it should be asked by the composed script after its trip failed so.
    fn goes_on_after(&self, _failure: StoreErrorKind) -> bool {
        false
    }

    /// `None` if there are no questions.
    fn batch(questions: &[&Self], prefix: &Prefix) -> Option<Self::Batch>;

    /// Asks this question on a trip of its own.
    fn ask_alone(
        self: Box<Self>,
        server: &Server,
    ) -> impl Future<Output = Result<Told<Self>, StoreError>> + Send;

    /// Asks this question by the composed script.
    fn ask_composed(
        &mut self,
        server: &Server,
    ) -> impl Future<Output = Result<Self::Decided, StoreError>> + Send;

    /// The decision by this reading, which the deny cache learns as well.
    fn decided(&mut self, read: Self::Read) -> Self::Decided;

    /// Whether the deny cache learned of a change of its key, once. Decisions about later questions
    /// on the same trip were made after it, and may be remembered.
    fn has_changed_its_key(&self, _decided: &Self::Decided) -> bool {
        false
    }
}

/// Several questions as one.
pub(in crate::store::redis) trait Batch: Scripted {
    /// The reading of one of them.
    type Read: Send;

    /// The subject of the first question. In a cluster, where it matters, all have the same one.
    fn subject(&self) -> Subject;

    /// The reading of each question, in order.
    ///
    /// # Errors
    ///
    /// A reply of any other shape.
    fn read(&self, reply: &Value) -> Result<Readings<Self::Read>, StoreError>;
}
