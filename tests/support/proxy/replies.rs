//! Splits what a server sends into replies, and forges replies.

use std::collections::VecDeque;
use std::sync::Mutex;

/// For each command that is not answered yet, the reply that its sender gets in place of the
/// server's, if any. Decided when the command passes, so that none is answered twice or with
/// another's reply.
#[derive(Default)]
pub(super) struct Forgeries(Mutex<VecDeque<Option<&'static [u8]>>>);

impl Forgeries {
    /// This many commands are about to be sent.
    pub(super) fn expect(&self, commands: u64, forgery: Option<&'static [u8]>) {
        let mut expected = self.0.lock().unwrap();
        expected.extend((0..commands).map(|_| forgery));
    }

    /// What the client gets in place of these bytes, which come next in this stream.
    pub(super) fn forge(&self, stream: &mut Replies, mut bytes: &[u8]) -> Vec<u8> {
        let mut told = Vec::new();
        let mut expected = self.0.lock().unwrap();
        while !bytes.is_empty() {
            let (length, is_whole) = stream.next(bytes);
            let (of_reply, rest) = bytes.split_at(length);
            bytes = rest;
            let forgery = expected.front().copied().flatten();
            match forgery {
                None => told.extend_from_slice(of_reply),
                Some(forgery) if is_whole => told.extend_from_slice(forgery),
                Some(_) => {}
            }
            if is_whole {
                expected.pop_front();
            }
        }
        told
    }
}

/// Finds the ends of replies: each is a line, `$<length>` and as many bytes, or `*<count>` and as
/// many of these three.
#[derive(Default)]
pub(super) struct Replies {
    line: Vec<u8>,
    /// How many bytes of a text, including the end of its line, are still to come.
    of_text: usize,
    /// How many values of each unfinished array are still to come, the innermost last.
    within: Vec<usize>,
}

impl Replies {
    /// How many of these bytes belong to the unfinished reply, and whether they complete it.
    fn next(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut read = 0;
        while read < bytes.len() {
            let is_value = if self.of_text > 0 {
                let taken = self.of_text.min(bytes.len() - read);
                read += taken;
                self.of_text -= taken;
                self.of_text == 0
            } else {
                read += 1;
                self.line.push(bytes[read - 1]);
                self.line.ends_with(b"\r\n") && self.read_line()
            };
            if is_value && self.ends_reply() {
                return (read, true);
            }
        }
        (read, false)
    }

    /// Whether the line is a whole value.
    fn read_line(&mut self) -> bool {
        let line = std::mem::take(&mut self.line);
        let number = || -> i64 {
            let digits = str::from_utf8(&line[1..line.len() - 2]);
            digits.unwrap().parse().unwrap()
        };
        match line[0] {
            b'+' | b'-' | b':' => true,
            // A negative length: there is no value.
            b'$' => match usize::try_from(number()) {
                Ok(length) => {
                    self.of_text = length + 2;
                    false
                }
                Err(_) => true,
            },
            b'*' => match usize::try_from(number()) {
                Ok(0) | Err(_) => true,
                Ok(count) => {
                    self.within.push(count);
                    false
                }
            },
            other => panic!("{:?} begins no reply", char::from(other)),
        }
    }

    /// A value has ended. Returns whether the whole reply has.
    fn ends_reply(&mut self) -> bool {
        while let Some(to_come) = self.within.last_mut() {
            *to_come -= 1;
            if *to_come > 0 {
                return false;
            }
            self.within.pop();
        }
        true
    }
}
