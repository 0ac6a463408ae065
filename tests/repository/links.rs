//! The pages for people lead to files that exist, and docs.rs shows every page of the guide.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Pages that are read on GitHub.
const PAGES: [&str; 5] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "comparison/README.md",
];

fn root() -> &'static Path {
    Path::new(support::ROOT)
}

/// The pages of the guide.
fn guide() -> Vec<PathBuf> {
    let files = fs::read_dir(root().join("docs")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut pages: Vec<_> = files
        .filter(|file| file.extension().is_some_and(|is| is == "md"))
        .collect();
    pages.sort();
    pages
}

#[test]
fn every_link_leads_to_a_file_that_exists() {
    let mut pages = guide();
    assert!(pages.len() > 10, "found only {pages:?}");
    pages.extend(PAGES.map(|page| root().join(page)));
    let mut found = 0;
    let mut broken = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for link in links_in(&text) {
            found += 1;
            if !leads_somewhere(&page, &text, link) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(found > 50, "found only {found}");
    assert!(broken.is_empty(), "broken:\n{}", broken.join("\n"));
}

/// Elsewhere in the web, on this page or to a file beside it, with its anchor.
fn leads_somewhere(page: &Path, text: &str, link: &str) -> bool {
    if link.contains("://") {
        return true;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let other;
    let target = if file.is_empty() {
        text
    } else {
        let file = page.parent().unwrap().join(file);
        if !file.exists() {
            return false;
        }
        other = fs::read_to_string(file).unwrap_or_default();
        &other
    };
    anchor.is_empty() || anchors_in(target).any(|is| is == anchor)
}

/// Where `[text](target)` and `[label]: target` lead.
fn links_in(text: &str) -> Vec<&str> {
    let prose = || prose_lines(text);
    let inline = prose().flat_map(|line| line.split("](").skip(1));
    let inline = inline.filter_map(|behind| behind.split([')', ' ']).next());
    let defined = prose().filter_map(|line| {
        let (label, target) = line.strip_prefix('[')?.split_once("]: ")?;
        (!label.contains(']')).then_some(target)
    });
    inline.chain(defined).collect()
}

/// The labels of `[text][label]`, each of which needs a definition.
fn labels_in(text: &str) -> impl Iterator<Item = &str> {
    let behind = prose_lines(text).flat_map(|line| line.split("][").skip(1));
    behind.filter_map(|behind| Some(behind.split_once(']')?.0))
}

/// The lines outside of code blocks, without what is in backquotes.
fn prose_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchors that GitHub and rustdoc give headings.
fn anchors_in(text: &str) -> impl Iterator<Item = String> {
    let headings = prose_lines(text).filter(|line| line.starts_with('#'));
    headings.map(|line| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter_map(|letter| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            _ => letter.is_alphanumeric().then_some(letter),
        });
        kept.collect()
    })
}

#[test]
fn every_label_of_a_guide_page_is_defined_on_it() {
    let mut missing = Vec::new();
    for page in guide() {
        let text = fs::read_to_string(&page).unwrap();
        let defined: BTreeSet<_> = prose_lines(&text)
            .filter_map(|line| Some(line.strip_prefix('[')?.split_once("]: ")?.0))
            .collect();
        let used = labels_in(&text).filter(|label| !defined.contains(label));
        missing.extend(used.map(|label| format!("{}: {label}", page.display())));
    }
    assert!(missing.is_empty(), "not defined:\n{}", missing.join("\n"));
}

/// A link to another page that is no label works on GitHub alone.
#[test]
fn guide_pages_lead_to_each_other_by_labels_that_rustdoc_knows() {
    let shown = fs::read_to_string(root().join("src/guide.rs")).unwrap();
    let mut wrong = Vec::new();
    for page in guide() {
        let text = fs::read_to_string(&page).unwrap();
        for line in prose_lines(&text) {
            let inline = line.split("](").skip(1);
            let inline = inline.filter(|link| !link.starts_with(['#', 'h']));
            wrong.extend(inline.map(|link| format!("{}: ]({link}", page.display())));
            let Some((label, target)) = line.strip_prefix('[').and_then(|l| l.split_once("]: "))
            else {
                continue;
            };
            let is_known = shown.contains(&format!("\"[{label}]: "))
                || shown.contains(&format!("image!(\"{label}\")"));
            let is_page = target == label && is_known;
            if !is_page && !target.contains("://") {
                wrong.push(format!("{}: {line}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn every_guide_page_is_shown_by_docs_rs() {
    let shown = fs::read_to_string(root().join("src/guide.rs")).unwrap();
    for page in guide() {
        let name = page.file_name().unwrap().to_str().unwrap();
        let module = name.strip_suffix(".md").unwrap().replace('-', "_");
        for part in [
            format!("include_str!(\"../docs/{name}\")]\npub mod {module} {{}}"),
            format!("\"[{name}]: crate::guide::{module}\\n\""),
            format!("//! | [`{module}`] |"),
        ] {
            assert!(shown.contains(&part), "{part}");
        }
    }
}

#[test]
fn links_are_read_from_prose() {
    let text =
        "# A title, of `two`\n[a](b.md#c) and [d][e.md]\n```sh\n[no](code)\n```\n[e.md]: e.md\n";
    assert_eq!(links_in(text), ["b.md#c", "e.md"]);
    assert_eq!(labels_in(text).collect::<Vec<_>>(), ["e.md"]);
    assert_eq!(anchors_in(text).collect::<Vec<_>>(), ["a-title-of-two"]);
}
