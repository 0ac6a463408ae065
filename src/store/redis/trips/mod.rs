//! Trips to the server: which questions go alone, which wait for others, and which of those go together.
//!
//! A *trip* is one script and its reply. Questions that may share one wait for it at a *stop*, whose *passengers*
//! they are. Each of the kinds in [`takes`](super::takes) has stops of its own: on one server one for each script,
//! for all keys, from which several trips may be under way; in a cluster one for each key or subject, with one trip.
//!
//! 1. A question *enters* ([`SharedTrips::enter`]). Where there may be one more trip, and its key is on none, it
//!    *goes alone*, at once and as its caller's future: without load nothing waits. Of plain takes, and of groups of
//!    them, up to eight do, as long as nobody waits. Else it *waits* to be *told*.
//! 2. As soon as there may be a trip again, those who wait *depart* ([`Stop::depart`](stop::Stop::depart)), in their
//!    order, up to 256 and no more than a script may be busy with, but for those whose key is on a trip. Where there
//!    may be several trips, an equal share of all goes, those under way counted: two trips, so that one is got ready
//!    while the server carries out the other, and further ones where that many wait that it is worth while. All who
//!    went alone are one of them.
//! 3. The trip *runs* (`Trip::run`), in the task of the trip before it or in one of its own, on a runtime where one of
//!    them waits. Its questions are asked as one ([`Sharing::batch`]).
//! 4. It *arrives* with the reply, of which each is told its part ([`Told`]): before the next one departs or after
//!    it, by what keeps the server busy.
//! 5. It *ends*, also when it is given up or dropped, and others depart.
//!
//! No key is on two trips, so that a hot one is one step of each, whatever its load; but those of questions that have
//! several may be, see [`Stop`](stop::Stop).
//!
//! A trip is *late* when it has not arrived, or not ended once it has, within the time that others
//! [wait](super::waits::Waits) for it. Then it is *left behind*: others depart as if it had ended, also with its keys.
//! It still tells its own passengers when it comes back, and its number keeps it from ending another trip.
//!
//! Somebody has to see that it is late who goes on while it stands still, and has a timer for it. Of one that went
//! alone each does who waits. A shared trip does it itself, as its task goes on whenever those do who wait: unless
//! one of them is on a runtime that may stand still while another goes on, from when each does who waits.

mod fingerprints;
mod shared_trips;
mod sharing;
mod stop;

pub(super) use fingerprints::{ByFingerprint, FingerprintMap};
pub(super) use shared_trips::{SharedTrips, Told, Turn};
pub(super) use sharing::{Batch, Readings, Sharing};
pub(super) use stop::{FEW_TRIPS, Passenger, StopId};
