//! Waiting for permits: what the stores answer to those who will, `acquire` and `try_acquire`, and
//! the layer that holds requests up instead of denying them.

mod support;

#[path = "waiting/acquire.rs"]
mod acquire;
#[path = "waiting/held_up.rs"]
mod held_up;
#[path = "waiting/places.rs"]
mod places;
#[path = "waiting/shadow.rs"]
mod shadow;
#[path = "waiting/stores.rs"]
mod stores;
