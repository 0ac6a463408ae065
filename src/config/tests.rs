//! The files shown in the documentation.

use std::ffi::OsString;

use super::configuration::InCode;
use super::read;

const PAGE: &str = include_str!("../../docs/configuration.md");

fn environment(name: &str) -> Option<OsString> {
    let value = match name {
        "REDIS_URL" => "redis://127.0.0.1:6379",
        "LIMITS_SECRET" => "32 random characters",
        _ => return None,
    };
    Some(value.into())
}

/// A block that shows other fields, as a whole file.
fn whole(block: &str) -> String {
    match block.contains("policy") {
        true => block.to_owned(),
        false => format!("{block}policy = []\n"),
    }
}

/// The code blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let blocks = PAGE.split(&fence).skip(1);
    let blocks = blocks.map(|block| block.split_once("```").unwrap().0);
    blocks.collect()
}

#[test]
fn the_files_in_the_documentation_are_accepted() {
    let blocks = blocks("toml");
    assert!(blocks.len() >= 3, "{blocks:?}");
    for block in blocks {
        read::read(&whole(block), &environment, InCode::default(), None).unwrap();
    }
}

#[test]
fn the_documented_error_is_the_one_that_its_file_gives() {
    let wrong = blocks("toml")[0].replacen("100/min", "100/minute", 1);
    let refused = read::read(&wrong, &environment, InCode::default(), None).unwrap_err();
    let refused = refused.in_file("limits.toml".as_ref());
    assert_eq!(format!("{refused}\n"), blocks("text")[0]);
}
