//! `scripts/prose`: how many words the pages have, and which passages stand twice.
#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::Command;

use support::programs::printed;

/// What the script prints of this directory.
fn report(directory: &Path) -> String {
    let mut script = Command::new(Path::new(support::ROOT).join("scripts/prose"));
    let report = script.arg(directory).output();
    let report = report.expect("Python 3, which scripts/test installs");
    let (stdout, stderr) = printed(&report);
    assert!(report.status.success(), "{stderr}");
    stdout
}

/// The words of prose and those in tables.
fn counted(report: &str, page: &str) -> (u32, u32) {
    let line = report
        .lines()
        .find(|line| line.ends_with(&format!("  {page}")));
    let mut numbers = line
        .unwrap()
        .split_whitespace()
        .map_while(|word| word.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

fn written<const N: usize>(files: [(&str, &str); N]) -> String {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = directory.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    report(directory.path())
}

#[test]
fn words_of_prose_are_counted_and_code_is_not() {
    let page = "\
# Two words

Four [words](and/no/url.md) in
here: `code`, https://example.com/a.

```rust
let no = word;
```

- an item

| a | table |
|---|---|
| of | five words |

[keys.md]: keys.md
";
    let report = written([("README.md", page), ("docs/empty.md", "")]);
    assert_eq!(counted(&report, "README.md"), (9, 5));
    assert_eq!(counted(&report, "docs/empty.md"), (0, 0));
}

const TWELVE: &str = "one two three four five six seven eight nine ten eleven twelve";

#[test]
fn a_passage_that_stands_twice_is_found_in_pages_and_rustdoc() {
    let rust = format!(
        "/// Other words, {}\n/// {}.\nfn f() {{}}\n",
        &TWELVE[..13],
        &TWELVE[14..]
    );
    let report = written([
        ("docs/a.md", &format!("Before. {TWELVE}, after\n")),
        ("docs/b.md", &format!("| cell | **{TWELVE}** |\n")),
        ("src/lib.rs", &rust),
    ]);
    let found = format!("12 words: docs/a.md:1, docs/b.md:1, src/lib.rs:1\n       {TWELVE}\n");
    assert!(report.contains("\n1 passages of 12"), "{report}");
    assert!(report.contains(&found), "{report}");
}

#[test]
fn what_is_shorter_or_code_or_parted_by_a_paragraph_does_not_stand_twice() {
    let (eleven, last) = TWELVE.rsplit_once(' ').unwrap();
    let report = written([
        ("docs/a.md", &format!("{TWELVE}\n")),
        (
            "docs/b.md",
            &format!("{eleven}\n\n{last}\n\n```text\n{TWELVE}\n```\n"),
        ),
        ("src/lib.rs", &format!("// {TWELVE}\n")),
    ]);
    assert!(report.contains("\n0 passages of 12"), "{report}");
}

#[test]
fn the_readme_is_one_page() {
    let (prose, in_tables) = counted(&report(Path::new(support::ROOT)), "README.md");
    assert!(prose + in_tables <= 900, "{prose} and {in_tables}");
}
