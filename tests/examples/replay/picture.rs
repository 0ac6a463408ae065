//! The picture over time.

use std::fs;
use std::path::Path;

use super::super::compare::faults;
use super::{ONE, committed, common, file, run};

/// The picture of a log.
fn drawn(limits: &str, arguments: &[&str], log: &str) -> String {
    let picture = tempfile::NamedTempFile::new().unwrap();
    let arguments = [arguments, &["--svg", picture.path().to_str().unwrap()]].concat();
    let output = run(limits, &arguments, log.as_bytes());
    assert!(output.status.success(), "{output:?}");
    let picture = fs::read_to_string(picture.path()).unwrap();
    assert_eq!(faults(&picture), Vec::<String>::new(), "{picture}");
    picture
}

/// How many bars of this class there are.
fn bars(picture: &str, class: &str) -> Vec<usize> {
    let start = format!("<path class=\"{class}\" d=\"");
    // The first is the sample in the legend.
    let paths = picture.split(&start).skip(2);
    let paths = paths.map(|path| path.split('"').next().unwrap());
    paths.map(|path| path.matches('M').count()).collect()
}

#[test]
fn the_committed_picture_is_the_one_of_the_sample() {
    let limits = fs::read_to_string(committed("limits.toml")).unwrap();
    let log = fs::read_to_string(committed("sample.log")).unwrap();
    let root = Path::new(support::ROOT);
    let picture = fs::read_to_string(root.join("docs/replay.svg")).unwrap();
    assert!(
        drawn(&limits, &[], &log) == picture,
        "docs/replay.svg is out of date, see docs/replay.md"
    );
    let page = fs::read_to_string(root.join("docs/replay.md")).unwrap();
    assert!(page.contains("][replay.svg]"));
    assert!(picture.contains("prefers-color-scheme: dark"));
    for policy in ["client", "login", "search"] {
        assert!(picture.contains(&format!(">{policy}</text>")), "{policy}");
    }
}

#[test]
fn a_bar_shows_what_was_denied_of_its_time() {
    // Two minutes with a denial, one without, in one bar for every two seconds at most.
    let log = [0, 1, 59, 120, 180, 181].map(|secs| common(secs, "203.0.113.9", "GET /", 200));
    let picture = drawn(ONE, &[], &log.concat());
    assert_eq!(bars(&picture, "denied"), [3]);
    assert_eq!(bars(&picture, "allowed"), [3]);
    assert!(picture.contains(": 3 (50.0 %) of 6 denied<"), "{picture}");
    assert!(picture.contains(">2026-03-02 09:00<"), "{picture}");
    let shadow = format!("{ONE}mode = \"shadow\"\n");
    assert_eq!(bars(&drawn(&shadow, &[], &log.concat()), "shadow"), [3]);
}

#[test]
fn a_long_log_has_bars_for_longer_times() {
    let year: String = (1..=12)
        .flat_map(|month| (1..=28).map(move |day| (month, day)))
        .map(|(month, day)| {
            format!(
                r#"{{"time":"2026-{month:02}-{day:02}T00:00:00Z","remote_addr":"203.0.113.9","request_method":"GET","request_uri":"/","status":200}}"#
            ) + "\n"
        })
        .collect();
    let picture = drawn(ONE, &[], &year);
    let [allowed] = bars(&picture, "allowed")[..] else {
        panic!("{picture}");
    };
    assert!((30..=120).contains(&allowed), "{allowed}");
}

#[test]
fn two_files_have_panels_beside_each_other() {
    let other = format!(
        "{}\n[[policy]]\nname = \"a & b\"\nalgorithm = \"gcra\"\nlimit = \"1/h\"\nkey = \"peer\"\nmode = \"shadow\"\n",
        ONE.replace("1/min", "2/min")
    );
    let other = file(other);
    let log = [0, 1, 2].map(|secs| common(secs, "203.0.113.9", "GET /", 200));
    let picture = drawn(
        ONE,
        &["--compare", other.path().to_str().unwrap()],
        &log.concat(),
    );
    assert!(picture.contains(": 2 (66.6 %) of 3 denied<"), "{picture}");
    assert!(picture.contains(": 1 (33.3 %) of 3 denied<"), "{picture}");
    assert!(picture.contains(">not in this file<"), "{picture}");
    assert!(picture.contains(">a &amp; b in "), "{picture}");
}

#[test]
fn a_log_without_requests_has_a_picture_without_bars() {
    let picture = drawn(ONE, &[], "");
    assert_eq!(bars(&picture, "allowed"), [0; 0]);
}
