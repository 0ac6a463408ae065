//! Trips to the server: how many questions are under way, and which of them go together.

mod fingerprints;
mod places;
mod shared_trips;
mod sharing;
mod stop;

pub(super) use fingerprints::{ByFingerprint, FingerprintMap};
pub(super) use places::Places;
pub(super) use shared_trips::{SharedTrips, Told, Turn};
pub(super) use sharing::{AskedTogether, Readings, Sharing};
pub(super) use stop::{Passenger, StopId};
