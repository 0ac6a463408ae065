//! The crate's own source files, for tests that read them.

use std::fs;
use std::path::{Path, PathBuf};

pub fn src() -> PathBuf {
    Path::new(super::ROOT).join("src")
}

/// All files of Rust and Lua in this directory and below.
pub fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let files = entries.flat_map(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files_in(&path),
            false => vec![path],
        }
    });
    let is_code = |file: &PathBuf| {
        file.extension()
            .is_some_and(|extension| extension == "rs" || extension == "lua")
    };
    files.filter(is_code).collect()
}
