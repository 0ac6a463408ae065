//! `grpc-status-details-bin`: a rejection for programs, as a `google.rpc.Status` that holds a
//! `RetryInfo` and a `QuotaFailure`.
//!
//! A few fields of four messages, encoded by hand: a crate for protocol buffers would be one more
//! for everybody, and its generated types many more. The fields are those of
//! <https://github.com/googleapis/googleapis/blob/master/google/rpc/status.proto> and
//! `error_details.proto` beside it, the encoding is <https://protobuf.dev/programming-guides/encoding>.

use std::time::Duration;

use super::{Rejection, RejectionKind, wait};

/// In bytes: as base64 less than 1 KiB. Clients drop answers whose headers are too large together,
/// and the details come on top of whatever other layers tell.
const LARGEST: usize = 767;

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
const QUOTA_FAILURE: &str = "type.googleapis.com/google.rpc.QuotaFailure";

/// `None` when there is nothing to tell beyond the code and the message.
///
/// Code and message are told again because clients hold the two against each other.
pub(super) fn status(rejection: &Rejection, code: u16, message: &str) -> Option<Vec<u8>> {
    let is_about_quota = matches!(
        rejection.kind,
        RejectionKind::QuotaExceeded | RejectionKind::NeverFits | RejectionKind::Banned
    );
    let wait = wait(rejection);
    if wait.is_none() && !is_about_quota {
        return None;
    }
    let mut status = Message::default();
    status.integer(1, code.into());
    status.bytes(2, &message);
    if let Some(wait) = wait {
        status.bytes(3, &any(RETRY_INFO, &retry_info(wait)));
    }
    if is_about_quota {
        // Around it are its type, another byte of its length, and the tag and length of the whole.
        let around = any(QUOTA_FAILURE, &Message::default()).0.len() + 1 + 3;
        let room = LARGEST.saturating_sub(status.0.len() + around);
        let failure = quota_failure(&rejection.policies, room);
        status.bytes(3, &any(QUOTA_FAILURE, &failure));
    }
    Some(status.0)
}

fn retry_info(wait: Duration) -> Message {
    let mut delay = Message::default();
    delay.integer(1, wait.as_secs());
    delay.integer(2, wait.subsec_nanos().into());
    let mut info = Message::default();
    info.bytes(1, &delay);
    info
}

/// A violation for each policy, as many as there is room for.
///
/// Its `quota_id` is the policy's name. Its `subject` stays empty: whose quota it is, the client
/// knows, and nobody else has to.
fn quota_failure(policies: &[String], room: usize) -> Message {
    let mut failure = Message::default();
    for policy in policies {
        let mut violation = Message::default();
        violation.bytes(5, policy);
        let before = failure.0.len();
        failure.bytes(1, &violation);
        if failure.0.len() > room {
            failure.0.truncate(before);
            break;
        }
    }
    failure
}

/// A `google.protobuf.Any`.
fn any(type_url: &str, value: &Message) -> Message {
    let mut any = Message::default();
    any.bytes(1, &type_url);
    any.bytes(2, value);
    any
}

/// A message in the making, field by field.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    const INTEGER: u64 = 0;
    const BYTES: u64 = 2;

    fn integer(&mut self, field: u64, value: u64) {
        // What is not there is zero.
        if value != 0 {
            self.tag(field, Self::INTEGER);
            self.varint(value);
        }
    }

    fn bytes(&mut self, field: u64, value: &impl AsRef<[u8]>) {
        let value = value.as_ref();
        self.tag(field, Self::BYTES);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    fn tag(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    /// Seven bits in each byte, the lowest first, and a mark on all bytes but the last.
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
