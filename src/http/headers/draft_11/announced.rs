//! Caches the field `RateLimit-Policy` of a single policy, which is the same on response after
//! response.

use std::cell::RefCell;

use http::HeaderValue;

use super::{SHORT, Text};
use crate::decision::Decision;
use crate::time::Micros;

/// Room for the policies of a server's routes.
const PLACES: usize = 16;

thread_local! {
    static RECENT: RefCell<[Option<Announced>; PLACES]> = const { RefCell::new([const { None }; PLACES]) };
}

/// A field that this thread has written lately. Each thread has its own: threads that shared a
/// value would contend for its reference count.
struct Announced {
    name: Box<str>,
    limit: u64,
    window: Micros,
    field: HeaderValue,
}

/// The field of a policy, from a decision of its own.
pub(super) fn policy(name: &str, decision: &Decision) -> Option<HeaderValue> {
    let recent = RECENT.try_with(|recent| {
        let place = &mut recent.borrow_mut()[place_of(name, decision.limit)];
        match place {
            Some(known) if known.is_of(name, decision) => Some(known.field.clone()),
            _ => Some(
                place
                    .insert(Announced::write(name, decision)?)
                    .field
                    .clone(),
            ),
        }
    });
    // A thread that is about to end has no cache any more.
    recent.unwrap_or_else(|_| field(name, decision))
}

impl Announced {
    fn write(name: &str, decision: &Decision) -> Option<Self> {
        Some(Self {
            name: name.into(),
            limit: decision.limit,
            window: decision.window,
            field: field(name, decision)?,
        })
    }

    fn is_of(&self, name: &str, decision: &Decision) -> bool {
        self.limit == decision.limit && self.window == decision.window && *self.name == *name
    }
}

fn field(name: &str, decision: &Decision) -> Option<HeaderValue> {
    let mut text = Text::<SHORT>::default();
    text.push_policy(name, decision)?;
    text.value()
}

/// Fast rather than even: policies that share a place are written anew in turn.
fn place_of(name: &str, limit: u64) -> usize {
    let last = name.bytes().last().map_or(0, usize::from);
    (name.len() + last).wrapping_add(limit as usize) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Outcome;

    #[test]
    fn the_cached_field_is_the_one_that_the_decision_makes() {
        let names = ["api", "apj", "bpi", "a \"quoted\" one"];
        // More than there are places, so that they evict each other.
        for turn in 0..1_000 {
            let (name, limit) = (names[turn % names.len()], 1 + (turn * turn % 40) as u64);
            let window = Micros::new([0, 1_000_000, 60_000_000][turn % 3]);
            let decision = Decision::unasked(Outcome::Allowed, (limit, window));
            for _ in 0..2 {
                assert_eq!(policy(name, &decision), field(name, &decision));
            }
        }
    }
}
