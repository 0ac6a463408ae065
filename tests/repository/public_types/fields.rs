//! A struct that users can build field by field can get no further field. So every public struct
//! with public fields is `non_exhaustive`, and is made by a function; clippy checks this for enums.

use std::fs;

use support::sources::{files_in, src};

#[test]
fn a_public_struct_that_shows_fields_can_get_more_of_them() {
    let mut shown = 0;
    let mut wrong = Vec::new();
    for file in files_in(&src()) {
        for shows in those_that_show_fields(&fs::read_to_string(&file).unwrap()) {
            shown += 1;
            if !shows.is_non_exhaustive {
                wrong.push(format!("{}: {}", file.display(), shows.name));
            }
        }
    }
    assert!(shown >= 9, "found only {shown}");
    assert!(
        wrong.is_empty(),
        "not non_exhaustive:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn structs_that_show_no_field_need_no_attribute() {
    let found = |text| {
        let found = those_that_show_fields(text).into_iter();
        let found = found.map(|shows| (shows.name.to_owned(), shows.is_non_exhaustive));
        found.collect::<Vec<_>>()
    };
    let shows = [("Head".to_owned(), false)];
    assert_eq!(
        found("#[derive(Debug)]\npub struct Head<'a> {\n    pub uri: &'a Uri,\n}\n"),
        shows
    );
    let shows = [("Head".to_owned(), true)];
    assert_eq!(
        found("#[non_exhaustive]\npub struct Head {\n    /// Where.\n    pub uri: Uri,\n}\n"),
        shows
    );
    for text in [
        "pub struct Head {\n    uri: Uri,\n    pub(crate) at: u64,\n}\n",
        "pub(crate) struct Head {\n    pub uri: Uri,\n}\n",
        "pub struct Host;\n\nimpl Host {\n    pub fn new() -> Self {\n",
    ] {
        assert_eq!(found(text), [], "{text:?}");
    }
}

struct Shows<'a> {
    name: &'a str,
    is_non_exhaustive: bool,
}

fn those_that_show_fields(text: &str) -> Vec<Shows<'_>> {
    let lines: Vec<_> = text.lines().collect();
    let opens = |line: &str| line.starts_with("pub struct ") && line.ends_with('{');
    let starts = (0..lines.len()).filter(|&at| opens(lines[at]));
    let shows = starts.filter_map(|at| {
        let mut body = lines[at + 1..].iter().take_while(|line| **line != "}");
        body.find(|line| line.starts_with("    pub "))?;
        let above = lines[..at].iter().rev().take_while(|line| !line.is_empty());
        let name = lines[at].strip_prefix("pub struct ")?;
        Some(Shows {
            name: name.split([' ', '<']).next()?,
            is_non_exhaustive: above.into_iter().any(|line| *line == "#[non_exhaustive]"),
        })
    });
    shows.collect()
}
