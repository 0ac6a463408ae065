//! The memory of a key, in Redis and in the process: the table of `docs/memory.md`.
//!
//! ```sh
//! cargo run --release --example memory_per_key
//! ```
//!
//! It needs an empty Redis or Valkey server without other clients: the one at `REDIS_URL`, or at
//! redis://127.0.0.1:6379. It removes what it writes. An argument sets the number of keys, a thousand by
//! default.
// Counting is the job of a global allocator, and that trait is unsafe to implement.
#![allow(unsafe_code)]

use std::env;
use std::error::Error;
use std::process::ExitCode;

use self::limits::{LIMITS, Use};
use self::server::Server;

mod fill;
mod limits;
mod process;
mod server;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match measure().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("memory_per_key: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure() -> Result<(), Box<dyn Error>> {
    let keys = match env::args().nth(1) {
        None => 1_000,
        Some(keys) => match keys.parse() {
            Ok(keys @ 1..=1_000_000) => keys,
            _ => return Err(format!("keys: got {keys:?}, expected 1 to 1000000").into()),
        },
    };
    let mut server = Server::connect()?;
    server.warm_up().await?;
    println!("{keys} keys, {}\n", server.version()?);
    println!(
        "| algorithm | permits in use | `MEMORY USAGE` | in Redis, in total | in the process |"
    );
    println!("|---|---|---|---|---|");
    for limit in LIMITS {
        for used in limit.uses() {
            let in_redis = server.bytes_per_key(&limit, used, keys).await?;
            let in_process = process::bytes_per_key(&limit, used, keys).await?;
            let (name, Use { says, .. }) = (limit.name, used);
            let (usage, all) = (in_redis.usage, in_redis.all);
            println!("| {name} | {says} | {usage} | {all} | {in_process} |");
        }
    }
    Ok(())
}
