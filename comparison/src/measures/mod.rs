//! What is measured: one file for each question.

use crate::round::Effort;
use crate::table::Table;

mod attack;
mod hot_key;
mod in_turns;
mod latency;
mod limits;
mod many_keys;
mod memory;
mod network;
mod others;
mod policies;
mod remembered;
mod runtimes;
mod throughput;
mod web;

pub struct Measure {
    pub name: &'static str,
    pub about: &'static str,
    /// Skipped unless asked for.
    pub is_long: bool,
    pub run: fn(Effort) -> Table,
}

const fn measure(name: &'static str, about: &'static str, run: fn(Effort) -> Table) -> Measure {
    Measure {
        name,
        about,
        is_long: false,
        run,
    }
}

pub const ALL: [Measure; 13] = [
    measure(
        "throughput",
        "decisions a second and processor time over Redis, beside bare clients",
        throughput::run,
    ),
    measure(
        "limits",
        "every limit over Redis, beside a bare client",
        limits::run,
    ),
    measure("others", "other limiters over the same Redis", others::run),
    measure(
        "hot-key",
        "one key that all ask about, all allowed",
        hot_key::run,
    ),
    measure(
        "policies",
        "five policies on one subject beside one",
        policies::run,
    ),
    measure(
        "latency",
        "the time of one decision when nobody else asks",
        latency::run,
    ),
    measure(
        "network",
        "questions at a fixed rate, some way from Redis",
        network::run,
    ),
    measure(
        "runtimes",
        "one store that is asked from two runtimes",
        runtimes::run,
    ),
    measure(
        "attack",
        "commands to Redis while one subject attacks",
        attack::run,
    ),
    measure(
        "remembered",
        "a denial answered from memory",
        remembered::run,
    ),
    measure("memory", "the memory store beside governor", memory::run),
    measure(
        "web",
        "an axum server under load, with and without the layer",
        web::run,
    ),
    Measure {
        is_long: true,
        ..measure("many-keys", "10 million keys beside 1 000", many_keys::run)
    },
];
