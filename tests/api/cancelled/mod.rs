//! Ten thousand requests that nobody waits for any more leave nothing behind: no task, no
//! connection, no place among the questions in flight, no lease.
#![cfg(all(feature = "memory", feature = "redis"))]

mod answers;
mod checks;
mod costs;
mod left;
mod requests;
mod runtimes;
