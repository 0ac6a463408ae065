//! `X-Forwarded-For`, and headers that hold one address.
//!
//! Two bytes of settings, one that chooses the header, then lines: the first is written left of
//! the others.

use http::HeaderValue;
use tower_throttle::ClientAddr;

use super::proxies::{self, Entry, Scene, TRUSTED};
use super::source::Source;

/// The key is that of a second reading, and text left of what settles it never changes it.
pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let mut scene = Scene::choose(&mut source);
    let is_single = source.byte() % 4 == 3;
    let lines = proxies::lines(source.rest());
    let Some((left, lines)) = lines.split_first() else {
        return;
    };
    let header = "x-client";
    let plain = if is_single {
        scene.hops = scene.hops.map(|_| 1);
        ClientAddr::header(header, TRUSTED)
    } else {
        ClientAddr::x_forwarded_for(TRUSTED)
    };
    let header = if is_single { header } else { "x-forwarded-for" };
    let extractor = scene.extractor(plain.expect("sound ranges"));
    let key = |lines: &[HeaderValue]| proxies::key(&extractor, &scene.request(header, lines));
    let found = key(lines);

    if is_single {
        let entries = match lines {
            [line] => vec![entry(line.as_bytes())],
            _ => Vec::new(),
        };
        assert!(found == scene.expected(entries), "{scene:?} {lines:?}");
        return;
    }
    let entries = lines
        .iter()
        .flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
    let entries = entries.map(entry).collect();
    assert!(found == scene.expected(entries), "{scene:?} {lines:?}");

    if proxies::is_settled(key, lines) {
        assert!(
            key(&proxies::after(left, lines)) == found,
            "{left:?} before {lines:?}"
        );
        if let Some((first, others)) = lines.split_first() {
            let joined = [left.as_bytes(), first.as_bytes()].join(&b',');
            let joined = HeaderValue::from_bytes(&joined).expect("both are values");
            assert!(
                key(&proxies::after(&joined, others)) == found,
                "{joined:?} {others:?}"
            );
        }
    }
}

fn entry(text: &[u8]) -> Entry {
    let text = text.trim_ascii();
    match text.is_empty() {
        true => Entry::Empty,
        false => Entry::of(proxies::address(text, false)),
    }
}
