//! The Redis store with servers and networks that fail, and what the failover makes of it.

mod answers;
mod faults;
mod outage;
