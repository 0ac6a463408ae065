//! The README says which versions a service needs of the crates that show in the API.

use std::fs;
use std::path::Path;

#[test]
fn the_readme_names_the_versions_that_are_depended_on() {
    let root = Path::new(support::ROOT);
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (_, behind) = readme.split_once("whose types are in the API").unwrap();
    let (paragraph, _) = behind.split_once("\n\n").unwrap();
    let (_, behind) = manifest.split_once("[dependencies]\n").unwrap();
    let (dependencies, _) = behind.split_once("[dev-dependencies]").unwrap();

    let named = named(paragraph);
    assert!(named.len() >= 11, "found only {named:?}");
    for (name, version) in named {
        let needed = needed(dependencies, name).unwrap_or_else(|| panic!("{name} is not needed"));
        let is_same = needed == version || needed.starts_with(&format!("{version}."));
        assert!(is_same, "{name} {version} in the README, {needed} needed");
    }
}

/// Each name in backquotes that a version follows.
fn named(text: &str) -> Vec<(&str, &str)> {
    let parts: Vec<_> = text.split('`').collect();
    let pairs = parts.windows(2).skip(1).step_by(2);
    let each = pairs.filter_map(|pair| {
        let version = pair[1].strip_prefix(' ')?;
        let end = version.find(|c: char| c != '.' && !c.is_ascii_digit());
        let version = version[..end.unwrap_or(version.len())].trim_end_matches('.');
        (!version.is_empty()).then_some((pair[0], version))
    });
    each.collect()
}

/// The version of this crate that the manifest asks for.
fn needed<'a>(dependencies: &'a str, name: &str) -> Option<&'a str> {
    let line = dependencies.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.strip_prefix(" = ")
    })?;
    line.split('"').nth(1)
}
