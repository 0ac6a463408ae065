//! Waiting for permits: what the stores answer to those who will, `acquire` and `try_acquire`, and
//! the layer that holds requests up instead of denying them.

#[path = "../support/mod.rs"]
mod support;

mod acquire;
mod deadlines;
mod giving_up;
mod held_up;
mod in_turn;
mod places;
mod shadow;
mod stores;
