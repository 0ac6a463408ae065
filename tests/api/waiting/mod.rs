//! Waiting for permits: the stores' answers to callers that will wait, `acquire` and `admit`,
//! and the layer that holds requests up instead of denying them.

mod acquire;
mod admit;
mod deadlines;
mod giving_up;
mod held_up;
mod in_turn;
mod places;
mod shadow;
mod stores;
