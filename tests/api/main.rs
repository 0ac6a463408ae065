//! What a limiter and its layer do with a request or an operation, on every store.

mod cancelled;
mod consistent_answers;
mod dynamic_limits;
mod operations;
mod panics;
mod penalty;
mod permits;
mod rules;
mod settle;
mod settle_at_end;
mod throttle;
mod up_to;
mod waiting;
