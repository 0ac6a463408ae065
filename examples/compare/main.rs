//! The same traffic through every algorithm, as a table and as the picture in the README:
//! `cargo run --example compare`.
//!
//! The clock is moved by hand, so that the picture is the same on every machine, byte for byte. An
//! argument names another file for the picture.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use self::row::Row;
use self::run::busiest_second;

mod layout;
mod limits;
mod picture;
mod row;
mod run;
mod svg;
mod traffic;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let offered = traffic::offered();
    let mut rows = Vec::new();
    for limit in limits::LIMITS {
        let run = run::through(&limit, &offered).await?;
        let (name, setting) = (limit.name, limit.setting);
        rows.push(Row { name, setting, run });
    }

    println!("| algorithm | setting | admitted | most in any second |");
    println!("|---|---|---|---|");
    for Row { name, setting, run } in &rows {
        let (admitted, (_, most)) = (run.admitted.len(), busiest_second(&run.admitted));
        println!(
            "| {name} | {setting} | {admitted} of {} | {most} |",
            offered.len()
        );
    }

    let file = file();
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(&file, picture::draw(&offered, &rows))?;
    println!("\nwritten to {}", file.display());
    Ok(())
}

fn file() -> PathBuf {
    let given = env::args_os().nth(1).map(PathBuf::from);
    given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/algorithms.svg"))
}
