//! `grpc-message`: a rejection in one sentence.

use std::fmt::Write;

use super::Rejection;

/// In bytes, before encoding. Clients drop an answer with more than 8 KiB of headers or so, and a
/// rejection can name a hundred policies.
pub(super) const LONGEST: usize = 256;

/// The end of a sentence that was cut off.
const CUT: &str = "...";

pub(super) fn of(rejection: &Rejection) -> String {
    let mut sentence = rejection.to_string();
    if sentence.len() > LONGEST {
        let mut end = LONGEST - CUT.len();
        while !sentence.is_char_boundary(end) {
            end -= 1;
        }
        sentence.truncate(end);
        sentence.push_str(CUT);
    }
    sentence
}

pub(super) fn percent_encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            // Writing to a `String` cannot fail.
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_percent_encoded_outside_of_printable_ascii() {
        assert_eq!(percent_encoded("50% \"a\"\n ü"), "50%25 \"a\"%0A %C3%BC");
    }
}
