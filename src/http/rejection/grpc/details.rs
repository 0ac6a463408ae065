//! `grpc-status-details-bin`: a machine-readable rejection, as a `google.rpc.Status` with a
//! `RetryInfo` and a `QuotaFailure`.
//!
//! The few messages are encoded by hand: a protobuf crate would be a dependency of every build,
//! even without gRPC. The fields are those of
//! <https://github.com/googleapis/googleapis/blob/master/google/rpc/status.proto> and of
//! `error_details.proto` in the same folder.

use std::time::Duration;

use super::super::{Class, Rejection};

/// The largest message in bytes; less than 1 KiB as base64. Clients drop responses whose headers
/// are too large in total, and other layers add their own.
const LARGEST: usize = 767;

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
const QUOTA_FAILURE: &str = "type.googleapis.com/google.rpc.QuotaFailure";

/// The details; `None` if there are none beyond the code and the message.
///
/// Code and message are repeated because clients compare the two.
pub(super) fn status(rejection: &Rejection, code: u16, message: &str) -> Option<Message> {
    let is_about_quota = rejection.kind.class() == Class::Quota;
    let wait = wait(rejection);
    if wait.is_none() && !is_about_quota {
        return None;
    }
    const CODE: u64 = 1;
    const MESSAGE: u64 = 2;
    const DETAILS: u64 = 3;
    let mut status = Message::default();
    status.integer(CODE, code.into());
    status.bytes(MESSAGE, &message);
    if let Some(wait) = wait {
        status.bytes(DETAILS, &any(RETRY_INFO, &retry_info(wait)));
    }
    if is_about_quota {
        // Added around it: its type, one more byte for its length, and the tag and length of the
        // whole.
        let around = any(QUOTA_FAILURE, &Message::default()).len() + 1 + 3;
        let room = LARGEST.saturating_sub(status.len() + around);
        let failure = quota_failure(&rejection.policies, room);
        status.bytes(DETAILS, &any(QUOTA_FAILURE, &failure));
    }
    Some(status)
}

/// How long the client should wait; `None` if waiting does not help.
///
/// The exact time, or the whole seconds where those are less. They are less under a concurrency
/// limit: they then say when to try again, while the exact time is when leases would expire.
pub(super) fn wait(rejection: &Rejection) -> Option<Duration> {
    let secs = Duration::from_secs(rejection.retry_after_secs?);
    Some(rejection.retry_after?.min(secs))
}

fn retry_info(wait: Duration) -> Message {
    const SECONDS: u64 = 1;
    const NANOS: u64 = 2;
    const RETRY_DELAY: u64 = 1;
    let mut delay = Message::default();
    delay.integer(SECONDS, wait.as_secs());
    delay.integer(NANOS, wait.subsec_nanos().into());
    let mut info = Message::default();
    info.bytes(RETRY_DELAY, &delay);
    info
}

/// A violation for each policy, as many as fit.
///
/// Its `quota_id` is the policy's name. Its `subject` stays empty, so that the response contains no
/// key.
fn quota_failure(policies: &[String], room: usize) -> Message {
    const VIOLATIONS: u64 = 1;
    const QUOTA_ID: u64 = 5;
    let mut failure = Message::default();
    for policy in policies {
        let mut violation = Message::default();
        violation.bytes(QUOTA_ID, policy);
        let before = failure.len();
        failure.bytes(VIOLATIONS, &violation);
        if failure.len() > room {
            failure.truncate(before);
            break;
        }
    }
    failure
}

/// A `google.protobuf.Any`.
fn any(type_url: &str, value: &Message) -> Message {
    const TYPE_URL: u64 = 1;
    const VALUE: u64 = 2;
    let mut any = Message::default();
    any.bytes(TYPE_URL, &type_url);
    any.bytes(VALUE, value);
    any
}

/// A message being built, field by field.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    const INTEGER: u64 = 0;
    const BYTES: u64 = 2;

    pub(super) fn integer(&mut self, field: u64, value: u64) {
        // Zero is the default of an absent field.
        if value != 0 {
            self.tag(field, Self::INTEGER);
            self.varint(value);
        }
    }

    pub(super) fn bytes(&mut self, field: u64, value: &impl AsRef<[u8]>) {
        let value = value.as_ref();
        self.tag(field, Self::BYTES);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Drops what was added since the message had this length.
    pub(super) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    fn tag(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    /// Seven bits in each byte, the lowest first. All bytes but the last have the high bit set.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(super) fn unpadded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        // One, two or three bytes become two, three or four characters.
        for character in 0..=group.len() {
            let index = (bits >> (18 - 6 * character)) & 0b11_1111;
            text.push(char::from(ALPHABET[index as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_rfc_come_out_without_their_padding() {
        for (bytes, expected) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(unpadded(bytes.as_bytes()), expected, "{bytes:?}");
        }
        assert_eq!(unpadded(&[0xfb, 0xff, 0xfe]), "+//+");
    }
}
