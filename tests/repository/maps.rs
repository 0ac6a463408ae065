//! The pages for people who change the crate name files that exist.

use std::path::Path;

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
    for page in [
        include_str!("../../ARCHITECTURE.md"),
        include_str!("../../CONTRIBUTING.md"),
    ] {
        let missing: Vec<_> = files_in(page)
            .filter(|file| !bases.iter().any(|base| root.join(base).join(file).exists()))
            .collect();
        assert!(missing.is_empty(), "no such files: {missing:?}");
    }
}

#[test]
fn a_map_names_files_in_backquotes() {
    let page = "see `a/b.rs` and `call()`, the `lua/x.lua`, not c.rs";
    assert_eq!(files_in(page).collect::<Vec<_>>(), ["a/b.rs", "lua/x.lua"]);
}

fn files_in(page: &str) -> impl Iterator<Item = &str> {
    let quoted = page.split('`').skip(1).step_by(2);
    quoted.filter(|text| {
        let is_file = [".rs", ".lua", ".toml"]
            .iter()
            .any(|end| text.ends_with(end));
        is_file && !text.contains([' ', '*', '<', '{'])
    })
}
