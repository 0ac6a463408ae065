//! The fuzz targets over their seeds and over mutations of these: they build, and they hold.
//!
//! `scripts/fuzz` lets libFuzzer search for more. The target `redis_reply`, which looks inside the
//! crate, is run by the tests next to the decoder.

use std::path::Path;

#[path = "../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "the fuzz crate's interface")]
mod targets;

/// How many mutations each target gets.
const MUTATIONS: usize = 3_000;

/// Words that have a meaning for one of the targets.
const WORDS: [&[u8]; 20] = [
    b",",
    b";",
    b"\"",
    b"\\\"",
    b"\\",
    b"\n",
    b" ",
    b"\t",
    b"=",
    b"\xff",
    b"for=",
    b"for=203.0.113.9",
    b"10.0.0.7,",
    b"203.0.113.9",
    b"[2001:db8:1::7]:443",
    b"::ffff:",
    b"unknown",
    b"x=\"",
    b"[[policy]]\n",
    b"-web",
];

#[test]
fn client_addresses_are_read_as_a_second_reading_has_them() {
    holds("client_address", targets::client_address::run);
}

#[test]
fn forwarded_is_read_as_a_second_reading_has_it() {
    holds("forwarded", targets::forwarded::run);
}

#[test]
fn quota_headers_keep_their_promises_after_any_history() {
    holds("quota_headers", targets::quota_headers::run);
}

#[test]
fn different_subjects_are_different_keys() {
    holds("key_encoding", targets::key_encoding::run);
}

#[test]
fn a_file_is_accepted_or_refused_without_its_password() {
    holds("config_file", targets::config_file::run);
}

#[test]
fn grpc_is_answered_as_grpc_and_nothing_else_is() {
    holds("grpc_content_type", targets::grpc_content_type::run);
}

#[test]
fn what_an_upstream_sends_is_read_as_a_second_reading_has_it() {
    holds("feedback", targets::feedback::run);
}

/// Runs a target over its seeds, then over mutations of them, always the same ones.
fn holds(target: &str, run: fn(&[u8])) {
    let folder = Path::new(support::ROOT).join("fuzz/seeds").join(target);
    let seeds = std::fs::read_dir(folder).expect("the target has seeds");
    let mut seeds: Vec<_> = seeds.map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    let seeds: Vec<_> = seeds
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    assert!(seeds.len() >= 4, "{target} has too few seeds");
    let mut random = Random(0x005e_ed5e_ed5e_ed5e);
    let mutations = (0..MUTATIONS).map(|_| mutation(&seeds, &mut random));
    for input in seeds.iter().cloned().chain(mutations) {
        let _shown = ShownInPanic(&input);
        run(&input);
    }
}

struct ShownInPanic<'a>(&'a [u8]);

impl Drop for ShownInPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input: b\"{}\"", self.0.escape_ascii());
        }
    }
}

/// A seed after one to eight edits.
fn mutation(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(8) {
        let place = random.below(input.len() + 1);
        let end = place + random.below(input.len() - place + 1);
        match random.below(7) {
            0 => input.truncate(place),
            1 => drop(input.drain(place..end)),
            2 => drop(input.splice(
                place..place,
                WORDS[random.below(WORDS.len())].iter().copied(),
            )),
            3 => {
                let twice = input[place..end].to_vec();
                input.splice(place..place, twice);
            }
            4 => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len() + 1);
                input.splice(place.., other[from..].iter().copied());
            }
            _ if place < input.len() => input[place] = random.next() as u8,
            _ => input.push(random.next() as u8),
        }
    }
    input
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}
