//! What a limiter and its layer do with a request or an operation, on every store.

mod cancelled;
mod dynamic_limits;
mod operations;
mod panics;
mod penalty;
mod permits;
mod rules;
mod settle;
mod settle_at_end;
mod throttle;
mod told;
mod up_to;
mod waiting;
