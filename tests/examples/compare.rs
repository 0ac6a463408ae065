//! The example `compare` draws the picture in the README, and what it shows is true.
#![cfg(feature = "memory")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

const ALGORITHMS: [&str; 8] = [
    "fixed_window",
    "sliding_counter",
    "sliding_window",
    "sliding_log",
    "token_bucket",
    "gcra",
    "leaky_bucket",
    "concurrency",
];

/// The limit of every algorithm that counts by the second.
const LIMIT: u64 = 10;

struct Drawn {
    picture: String,
    printed: String,
}

fn drawn() -> &'static Drawn {
    static DRAWN: OnceLock<Drawn> = OnceLock::new();
    DRAWN.get_or_init(|| {
        let program = support::example::program("compare");
        let directory = tempfile::tempdir().unwrap();
        // In a directory that does not exist yet.
        let file = directory.path().join("pictures/algorithms.svg");
        let ran = Command::new(program).arg(&file).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let printed = String::from_utf8(ran.stdout).unwrap();
        assert!(
            printed.contains(&format!("written to {}", file.display())),
            "{printed}"
        );
        Drawn {
            picture: fs::read_to_string(&file).unwrap(),
            printed,
        }
    })
}

/// The most requests that an algorithm admitted in any second.
fn most_in_any_second(algorithm: &str) -> u64 {
    let printed = &drawn().printed;
    let row = printed.lines().find_map(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        (cells.get(1) == Some(&algorithm)).then(|| cells[cells.len() - 2].parse().unwrap())
    });
    row.unwrap_or_else(|| panic!("{algorithm} is not in the table:\n{printed}"))
}

#[test]
fn the_committed_picture_is_the_one_that_is_drawn() {
    let root = Path::new(support::ROOT);
    let committed = fs::read_to_string(root.join("docs/algorithms.svg")).unwrap();
    assert!(
        committed == drawn().picture,
        "docs/algorithms.svg is out of date: cargo run --example compare"
    );
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    assert!(readme.contains("](docs/algorithms.svg)"));
    assert!(readme.contains("cargo run --example compare"));
}

#[test]
fn the_picture_names_every_algorithm_and_what_is_most_of_it() {
    let texts = texts(&drawn().picture);
    for algorithm in ALGORITHMS {
        let position = texts.iter().position(|text| text == algorithm);
        let position = position.unwrap_or_else(|| panic!("{algorithm} is not in the picture"));
        // Its settings, how many it admitted, and the most in any second follow.
        let most = texts[position + 3].parse();
        assert_eq!(most, Ok(most_in_any_second(algorithm)), "{algorithm}");
    }
}

#[test]
fn around_a_boundary_a_fixed_window_admits_twice_its_limit() {
    assert_eq!(most_in_any_second("fixed_window"), 2 * LIMIT);
}

#[test]
fn exact_sliding_algorithms_never_exceed_the_limit() {
    for exact in ["sliding_log", "sliding_window"] {
        assert_eq!(most_in_any_second(exact), LIMIT, "{exact}");
    }
}

/// The sliding counter's estimate exceeds the limit, but less than a fixed window does at worst.
/// The buckets give what they hold and what runs in; the queue lets out what the rate says.
#[test]
fn the_other_algorithms_keep_to_their_documented_bounds() {
    let within = [
        ("sliding_counter", LIMIT + 1..=2 * LIMIT - 1),
        ("token_bucket", LIMIT + 1..=LIMIT + LIMIT),
        ("gcra", LIMIT + 1..=5 + LIMIT),
        ("leaky_bucket", LIMIT..=LIMIT),
        // Five at once, two rounds of which begin within a second.
        ("concurrency", 5..=2 * 5),
    ];
    for (algorithm, within) in within {
        let most = most_in_any_second(algorithm);
        assert!(within.contains(&most), "{algorithm}: {most}");
    }
}

#[test]
fn the_picture_is_well_formed_and_needs_no_other_file() {
    let picture = &drawn().picture;
    assert_eq!(faults(picture), Vec::<String>::new());
    for corrupt in ["<script", "<image", "href", "url(", "@import", "animat"] {
        assert!(!picture.contains(corrupt), "{corrupt}");
    }
}

#[test]
fn malformed_pictures_are_found() {
    for broken in [
        "<svg>",
        "</svg>",
        "<svg><g></svg></g>",
        "<svg>a & b</svg>",
        "<svg width=1></svg>",
        "<svg width='1></svg>",
        "<svg></svg><svg></svg>",
        "<svg a='1' a='2'/>",
        "text",
    ] {
        assert!(!faults(broken).is_empty(), "{broken}");
    }
    assert!(faults("<svg a='>' b=\"&lt;\"><g/>text &amp; more</svg>\n").is_empty());
}

/// Nothing is scaled at the width of a README, so this is what a reader sees.
#[test]
fn the_texts_of_the_picture_are_at_least_twelve_pixels_high() {
    let picture = &drawn().picture;
    assert!(picture.contains(r#"viewBox="0 0 830 "#));
    let sizes = picture.match_indices("px").map(|(end, _)| {
        let digits = picture[..end].rsplit(|c: char| !c.is_ascii_digit()).next();
        digits.unwrap().parse::<u64>().unwrap()
    });
    let sizes: Vec<_> = sizes.collect();
    assert!(sizes.len() >= 3, "{sizes:?}");
    assert!(sizes.iter().all(|&size| size >= 12), "{sizes:?}");
}

/// The texts of all `text` elements, in their order.
fn texts(picture: &str) -> Vec<String> {
    let elements = picture.split("<text ").skip(1);
    let content = |element: &str| {
        let (content, _) = element.split_once("</text>")?;
        content.split_once('>').map(|(_, text)| text.to_owned())
    };
    elements.map(|element| content(element).unwrap()).collect()
}

/// Errors in elements, attributes and entities. For a file without comments, declarations and
/// CDATA, which the picture does not use.
pub(super) fn faults(xml: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut open: Vec<&str> = Vec::new();
    let mut roots = 0;
    let mut rest = xml;
    while let Some((text, tag_and_rest)) = rest.split_once('<') {
        faults.extend(bad_entities(text));
        if open.is_empty() && !text.trim().is_empty() {
            faults.push(format!("text outside of the root: {text:?}"));
        }
        let Some(end) = end_of_tag(tag_and_rest) else {
            faults.push(format!("a tag that does not end: {tag_and_rest:?}"));
            return faults;
        };
        let tag = &tag_and_rest[..end];
        rest = &tag_and_rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                faults.push(format!("</{name}> closes another element"));
            }
            continue;
        }
        roots += usize::from(open.is_empty());
        let (content, is_empty) = match tag.strip_suffix('/') {
            Some(content) => (content, true),
            None => (tag, false),
        };
        let (name, attributes) = content.split_once(' ').unwrap_or((content, ""));
        faults.extend(bad_attributes(attributes));
        if !is_empty {
            open.push(name);
        }
    }
    if !rest.trim().is_empty() || roots != 1 || !open.is_empty() {
        faults.push(format!("{roots} roots, open: {open:?}, then {rest:?}"));
    }
    faults
}

/// The first `>` outside of quotes.
fn end_of_tag(text: &str) -> Option<usize> {
    let mut quote = None;
    text.char_indices().find_map(|(position, c)| {
        match (quote, c) {
            (None, '>') => return Some(position),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
        None
    })
}

fn bad_attributes(mut text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut names = Vec::new();
    while !text.trim().is_empty() {
        let fault = format!("an attribute that is none: {text:?}");
        let Some((name, quoted)) = text.trim_start().split_once('=') else {
            return vec![fault];
        };
        let quote = quoted.chars().next().filter(|c| "\"'".contains(*c));
        let Some((value, rest)) = quote.and_then(|quote| quoted[1..].split_once(quote)) else {
            return vec![fault];
        };
        if names.contains(&name) {
            faults.push(format!("{name} stands there twice"));
        }
        names.push(name);
        faults.extend(bad_entities(value));
        text = rest;
    }
    faults
}

fn bad_entities(text: &str) -> Option<String> {
    let known = ["lt;", "gt;", "amp;", "quot;", "apos;"];
    let mut after = text.split('&').skip(1);
    let is_known = |rest: &&str| known.iter().any(|entity| rest.starts_with(entity));
    let bad = after.find(|rest| !is_known(rest))?;
    Some(format!("an entity that nobody knows: &{bad}"))
}
