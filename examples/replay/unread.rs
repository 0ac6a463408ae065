//! `Unread`: lines that cannot be read.

use crate::input::Input;

/// As many are told one by one.
const TOLD: usize = 5;

/// How many there are, and why the first of them cannot be read.
#[derive(Default)]
pub(crate) struct Unread {
    pub(crate) lines: u64,
    pub(crate) first: Vec<String>,
}

impl Unread {
    pub(crate) fn add(&mut self, input: &Input, why: &str) {
        self.lines += 1;
        if self.first.len() < TOLD {
            self.first
                .push(format!("{}:{} {why}", input.name, input.line));
        }
    }
}
