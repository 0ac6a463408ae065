//! Trips to the server: which questions go alone, which wait for others, and which go together.
//!
//! A *trip* is one script call and its reply. Questions that may share one wait for it at a *stop*,
//! as its *passengers*. Each kind of question in [`takes`](super::takes) has stops of its own. On a
//! single server there is one stop for each script, for all keys, with several trips in flight; in
//! a cluster one for each key or subject, with one trip.
//!
//! 1. A question *enters* ([`SharedTrips::enter`]). If one more trip is allowed, and its key is on
//!    none, it *goes alone*, at once and as its caller's future, so without load nothing waits. Up
//!    to eight plain takes, or groups of them, go alone as long as nobody waits. Otherwise the
//!    question *waits* to be *told*.
//! 2. As soon as a trip is allowed again, waiting questions *depart*
//!    ([`Stop::depart`](stop::Stop::depart)) in order, except those whose key is on a trip: up to
//!    256, and no more than a script should be busy with. If several trips are allowed, each takes
//!    an equal share of all questions, including those in flight. There are two trips, so that one
//!    is prepared while the server carries out the other, and more if enough questions wait to make
//!    it worthwhile. All questions that went alone count as one trip.
//! 3. The trip *runs* (`Trip::run`), in the task of the trip before it or in one of its own, on a
//!    runtime where one of its questions waits. Its questions are asked as one
//!    ([`Sharing::batch`]).
//! 4. It *arrives* with the reply, and each question is told its part ([`Told`]): before the next
//!    trip departs or after that, whichever keeps the server busy.
//! 5. It *ends*, even if it is given up or dropped, and others depart.
//!
//! No key is on two trips, so a hot key is one step of each, whatever its load. But the keys of
//! questions about several keys may be: see [`Stop`](stop::Stop).
//!
//! A trip is *late* if it has not arrived, or has not ended once it has, within the time that
//! others [wait](super::waits::Waits) for it. It is then *left behind*: others depart as if it had
//! ended, even with its keys. It still tells its own passengers when it comes back, and its number
//! keeps it from ending another trip.
//!
//! Whoever notices that a trip is late needs a timer for it. For a trip that went alone, every waiting
//! question does. A shared trip does it itself.

mod fingerprints;
mod shared_trips;
mod sharing;
mod stop;

pub(super) use fingerprints::{ByFingerprint, FingerprintMap};
pub(super) use shared_trips::{SharedTrips, Told, Turn};
pub(super) use sharing::{Batch, Readings, Sharing};
pub(super) use stop::{FEW_TRIPS, Passenger, StopId};
