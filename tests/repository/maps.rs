//! What the pages for people who change the crate name exists, and the map of the tests is complete.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use support::sources::files_in;

const CONTRIBUTING: &str = include_str!("../../CONTRIBUTING.md");
const PAGES: [&str; 2] = [include_str!("../../ARCHITECTURE.md"), CONTRIBUTING];

#[test]
fn every_file_that_a_map_names_exists() {
    let root = Path::new(support::ROOT);
    // Where the pages say that paths begin.
    let bases = [
        "",
        "src",
        "src/store",
        "src/store/redis",
        "tests",
        "lua",
        "docs",
    ];
    for page in PAGES {
        let missing: Vec<_> = files_named_in(page)
            .filter(|file| !bases.iter().any(|base| root.join(base).join(file).exists()))
            .collect();
        assert!(missing.is_empty(), "no such files: {missing:?}");
    }
}

#[test]
fn every_name_that_a_map_has_stands_in_the_code() {
    let directories = ["src", "lua", "tests", "fuzz/src"];
    let files = directories.map(|directory| files_in(&Path::new(support::ROOT).join(directory)));
    // Names of files and folders count, too.
    let texts = files.iter().flatten().flat_map(|file| {
        let path = file.display().to_string();
        [path, fs::read_to_string(file).unwrap()]
    });
    let texts: Vec<_> = texts.collect();
    let words = texts
        .iter()
        .flat_map(|text| text.split(|letter| !is_of_name(letter)));
    let words: HashSet<_> = words.collect();
    for page in PAGES {
        let missing: Vec<_> = names_in(page)
            .filter(|name| !words.contains(name))
            .collect();
        assert!(missing.is_empty(), "no such names: {missing:?}");
    }
}

#[test]
fn the_map_of_the_tests_names_each_program_and_what_is_in_it() {
    let tests = Path::new(support::ROOT).join("tests");
    let map = map_of_tests(CONTRIBUTING);
    for program in entries_of(&tests) {
        if ["Cargo", "support"].contains(&&*program) {
            continue;
        }
        let of_program = |has: &dyn Fn(&str) -> bool| {
            let mut rows = map.iter().filter(|(name, _)| *name == program);
            rows.any(|(_, part)| has(part))
        };
        assert!(of_program(&|_| true), "{program} is not on the map");
        let directory = tests.join(&program);
        if of_program(&str::is_empty) || !directory.is_dir() {
            continue;
        }
        for part in entries_of(&directory).filter(|part| part != "main") {
            let is_named = of_program(&|named| named == part);
            assert!(is_named, "{program}: {part} is not on the map");
        }
    }
}

#[test]
fn a_map_names_files_and_code_in_backquotes() {
    let page = "see `a/b.rs` and `Call::one_of()`, the `lua/x.lua`, not c.rs or `_us` or `a/b`";
    assert_eq!(
        files_named_in(page).collect::<Vec<_>>(),
        ["a/b.rs", "lua/x.lua"]
    );
    assert_eq!(names_in(page).collect::<Vec<_>>(), ["Call", "one_of"]);
    let table = "| program | in it |\n|---|---|\n| `api` | `a`, `b` | c |\n| | `d` | `e` |\n\
                 | `grpc` | | f |\n\n| `no` | | |";
    let map = [("api", "a"), ("api", "b"), ("api", "d"), ("grpc", "")];
    assert_eq!(map_of_tests(table), map);
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn files_named_in(page: &str) -> impl Iterator<Item = &str> {
    quoted(page).filter(|text| {
        let is_file = [".rs", ".lua", ".toml"]
            .iter()
            .any(|end| text.ends_with(end));
        is_file && !text.contains([' ', '*', '<', '{'])
    })
}

/// The names of code, without paths of files, commands and patterns.
fn names_in(page: &str) -> impl Iterator<Item = &str> {
    let paths = quoted(page).map(|text| text.trim_end_matches("()"));
    let paths = paths.filter(|text| {
        text.chars()
            .all(|letter| is_of_name(letter) || letter == ':')
    });
    let names = paths.flat_map(|path| path.split("::"));
    names.filter(|name| !name.is_empty() && !name.starts_with('_') && !name.ends_with('_'))
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Each program with the parts that its rows name; a row for all of it has an empty part.
fn map_of_tests(page: &str) -> Vec<(&str, &str)> {
    let (_, table) = page.split_once("| program | in it |").unwrap();
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    let mut program = "";
    let mut map = Vec::new();
    for row in rows {
        let cells: Vec<_> = row.split('|').collect();
        program = quoted(cells[1]).next().unwrap_or(program);
        map.extend(quoted(cells[2]).map(|part| (program, part)));
        if cells[2].trim().is_empty() {
            map.push((program, ""));
        }
    }
    map
}

/// The files and folders in this directory, without endings.
fn entries_of(directory: &Path) -> impl Iterator<Item = String> {
    fs::read_dir(directory).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        path.file_stem().unwrap().to_str().unwrap().to_owned()
    })
}
