//! `grpc-status-details-bin`: a machine-readable rejection, as a `google.rpc.Status` with a
//! `RetryInfo` and a `QuotaFailure`.
//!
//! A few fields of a few messages, encoded by hand: a crate for it would come with every build,
//! with or without gRPC. The fields are those of
//! <https://github.com/googleapis/googleapis/blob/master/google/rpc/status.proto> and of
//! `error_details.proto` beside it.

use std::time::Duration;

use super::protobuf::Message;
use super::{Class, Rejection, wait};

/// In bytes; less than 1 KiB as base64. Clients drop answers whose headers are too large in total,
/// and other layers add theirs.
const LARGEST: usize = 767;

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
const QUOTA_FAILURE: &str = "type.googleapis.com/google.rpc.QuotaFailure";

/// `None` if there is nothing to say beyond the code and the message.
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
        // Around it come its type, one more byte for its length, and the tag and length of the
        // whole.
        let around = any(QUOTA_FAILURE, &Message::default()).len() + 1 + 3;
        let room = LARGEST.saturating_sub(status.len() + around);
        let failure = quota_failure(&rejection.policies, room);
        status.bytes(DETAILS, &any(QUOTA_FAILURE, &failure));
    }
    Some(status)
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

/// A violation for each policy, as many as there is room for.
///
/// Its `quota_id` is the policy's name. Its `subject` stays empty: the client knows whose quota it
/// is, and nobody else has to.
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
