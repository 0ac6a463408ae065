//! The README says which versions an app needs of the crates that show in the API, and which compiler.

use std::fs;
use std::path::Path;

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(support::ROOT).join(name)).unwrap()
}

#[test]
fn the_readme_names_the_versions_that_are_depended_on() {
    let (readme, manifest) = (file("README.md"), file("Cargo.toml"));
    let (_, behind) = readme
        .split_once("Your app must use these versions:\n\n")
        .unwrap();
    let (table, _) = behind.split_once("\n\n").unwrap();
    let (_, behind) = manifest.split_once("[dependencies]\n").unwrap();
    let (dependencies, _) = behind.split_once("[dev-dependencies]").unwrap();

    let named = named(table);
    assert!(named.len() >= 11, "found only {named:?}");
    for (name, version) in named {
        let needed = needed(dependencies, name).unwrap_or_else(|| panic!("{name} is not needed"));
        let is_same = needed == version || needed.starts_with(&format!("{version}."));
        assert!(is_same, "{name} {version} in the README, {needed} needed");
    }
}

#[test]
fn the_readme_names_the_oldest_compiler_that_is_supported() {
    let (readme, manifest) = (file("README.md"), file("Cargo.toml"));
    let oldest = manifest.lines().find_map(|line| {
        let version = line.strip_prefix("rust-version = \"")?;
        version.strip_suffix('"')
    });
    let oldest = oldest.unwrap();
    for place in [
        format!("/badge/rust-{oldest}%2B-"),
        format!("minimum Rust version is {oldest}."),
    ] {
        assert!(readme.contains(&place), "{place}");
    }
}

/// The crate and the version in each row.
fn named(table: &str) -> Vec<(&str, &str)> {
    let rows = table.lines().filter_map(|row| {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        Some((name, cells.next()?))
    });
    rows.collect()
}

/// The version of this crate that the manifest asks for.
fn needed<'a>(dependencies: &'a str, name: &str) -> Option<&'a str> {
    let line = dependencies.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.strip_prefix(" = ")
    })?;
    line.split('"').nth(1)
}
