//! Clients that are blocked for a time: the endpoints, and the list.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::api::{Actor, Api, read};
use super::response::{Problem, json, millis};
use super::subject;
use crate::address::read_range;
use crate::key::Key;
use crate::limit::Words;
use crate::limiter::{Block, BlockedClient, MOST_BLOCKS, TooManyBlocks, of_clients};
use crate::one_line::OneLine;
use crate::time::{Clock, DAY};
use crate::trace;

/// What is to hold for longer belongs on the deny list.
const LONGEST: Duration = DAY.saturating_mul(7);

const LONGEST_REASON: usize = 200;

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = r#"{"policy": "api", "subject": {"user": "mallory"}, "for_secs": 3600, "reason": "scraping"}, or with "address" instead of "policy" and "subject""#
)]
struct Wanted {
    policy: Option<String>,
    subject: Option<Value>,
    address: Option<String>,
    for_secs: u64,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = r#"{"id": 7}"#)]
struct Id {
    id: u64,
}

/// A block in force, of either an address or a subject.
#[derive(Serialize)]
pub(super) struct BlockState {
    id: u64,
    address: Option<String>,
    policy: Option<String>,
    /// Hashed, as in stored keys and logs.
    subject: Option<String>,
    reason: String,
    by: Option<String>,
    left_ms: u64,
}

impl BlockState {
    pub(super) fn all(api: &Api) -> Vec<Self> {
        let blocks = api.limiter.blocks().into_iter();
        blocks.map(|block| Self::of(block, &*api.clock)).collect()
    }

    fn of(block: Block, clock: &dyn Clock) -> Self {
        let left = block.until.saturating_sub(clock.now());
        let (address, policy, subject) = match block.client {
            BlockedClient::Addresses { text, .. } => (Some(text), None, None),
            BlockedClient::Key { policy, subject } => {
                (None, Some(policy), Some(subject.to_string()))
            }
        };
        Self {
            id: block.id,
            address,
            policy,
            subject,
            reason: block.reason,
            by: block.by,
            left_ms: millis(left.to_duration()),
        }
    }
}

pub(super) async fn block(
    State(api): State<Api>,
    Actor(by): Actor,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let wanted: Wanted = read(body)?;
    let client = client(&api, wanted.policy, wanted.subject, wanted.address)?;
    let time = time(wanted.for_secs)?;
    let block = Block {
        // The limiter numbers it.
        id: 0,
        client,
        reason: reason(&wanted.reason)?,
        by: by.clone(),
        until: api.clock.now().saturating_add(time.into()),
    };
    let blocked = api.limiter.block(block, &api.clock);
    let (block, before) = blocked.map_err(|TooManyBlocks| {
        Problem::new(
            StatusCode::CONFLICT,
            format!("there are {MOST_BLOCKS} blocks already: lift one, or use the deny list"),
        )
    })?;
    let of = name(&block.client);
    let from = before.map_or_else(unblocked, |before| in_words(&before, &*api.clock));
    let to = in_words(&block, &*api.clock);
    trace::info!(
        client = %of,
        from = %from,
        to = %to,
        by = by.as_deref(),
        "client blocked by an operator"
    );
    api.audit.note(by, "block", Some(of), [from, to]);
    Ok(json(&BlockState::of(block, &*api.clock)))
}

pub(super) async fn unblock(
    State(api): State<Api>,
    Actor(by): Actor,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let Id { id } = read(body)?;
    let block = api.limiter.unblock(id).ok_or_else(|| {
        let detail = format!("id: there is no block {id}; it may be over");
        Problem::new(StatusCode::NOT_FOUND, detail)
    })?;
    let (of, from) = (name(&block.client), in_words(&block, &*api.clock));
    trace::info!(
        client = %of,
        from = %from,
        by = by.as_deref(),
        "block lifted by an operator"
    );
    api.audit.note(by, "unblock", Some(of), [from, unblocked()]);
    Ok(json(&BlockState::of(block, &*api.clock)))
}

fn client(
    api: &Api,
    policy: Option<String>,
    subject: Option<Value>,
    address: Option<String>,
) -> Result<BlockedClient, Problem> {
    match (policy, subject, address) {
        (Some(policy), Some(subject), None) => {
            let policy = api.limiter.summary(&policy)?;
            let subject = subject::read(&api.limiter, &policy, subject)?;
            if subject == api.limiter.subject_of(Key::everybody()) {
                return Err(Problem::bad_request(
                    "subject: everybody would be blocked, by each policy that counts all requests \
                     together; expected one client",
                ));
            }
            let policy = policy.name;
            Ok(BlockedClient::Key { policy, subject })
        }
        (None, None, Some(text)) => {
            let by = api.client_address.as_ref().ok_or_else(|| {
                Problem::bad_request(
                    "address: the router does not know which address of a request is the client's; \
                     name it with `Operator::client_address`, or block a subject of a policy",
                )
            })?;
            let text = text.trim().to_owned();
            let range = read_range("address", &text)?;
            let range = of_clients("address", by, &text, range)?;
            let by = Arc::clone(by);
            Ok(BlockedClient::Addresses { by, range, text })
        }
        _ => Err(Problem::bad_request(
            "address: expected either an address, or a policy and a subject",
        )),
    }
}

fn time(secs: u64) -> Result<Duration, Problem> {
    let longest = LONGEST.as_secs();
    if !(1..=longest).contains(&secs) {
        return Err(Problem::bad_request(format!(
            "for_secs: got {secs}, expected 1 to {longest} (7 days); for longer, use the deny list"
        )));
    }
    Ok(Duration::from_secs(secs))
}

fn reason(text: &str) -> Result<String, Problem> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > LONGEST_REASON {
        return Err(Problem::bad_request(format!(
            "reason: got {} characters, expected 1 to {LONGEST_REASON} that say why",
            text.chars().count()
        )));
    }
    Ok(OneLine(text).to_string())
}

fn name(client: &BlockedClient) -> String {
    match client {
        BlockedClient::Addresses { text, .. } => text.clone(),
        BlockedClient::Key { policy, subject } => format!("{policy}: {subject}"),
    }
}

fn in_words(block: &Block, clock: &dyn Clock) -> String {
    let secs = block.until.saturating_sub(clock.now()).ceil_secs();
    // In seconds only shortly before its end.
    let secs = if secs > 120 {
        secs.div_ceil(60) * 60
    } else {
        secs
    };
    let left = Words(Duration::from_secs(secs));
    format!("blocked for {left}: {}", block.reason)
}

fn unblocked() -> String {
    "not blocked".to_owned()
}
