//! `headers` and `rejection`: what clients are shown.

use bytes::Bytes;
use http::Response;

use super::FileError;
use super::fields::{Field, Fields};
use crate::http::{OnRejection, PlainText, ProblemJson, QuotaHeaders, Rejection};
use crate::request::RequestHead;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Draft11,
    Draft6,
    XRateLimitDelta,
    XRateLimitEpoch,
    Denials,
    None,
}

const HEADERS: [(&str, Word); 6] = [
    ("draft-11", Word::Draft11),
    ("draft-6", Word::Draft6),
    ("x-ratelimit-delta", Word::XRateLimitDelta),
    ("x-ratelimit-epoch", Word::XRateLimitEpoch),
    ("denials", Word::Denials),
    ("none", Word::None),
];

impl Word {
    /// The headers that the word names; `None` for a word about those that others name.
    fn headers(self) -> Option<QuotaHeaders> {
        match self {
            Self::Draft11 => Some(QuotaHeaders::DRAFT_11),
            Self::Draft6 => Some(QuotaHeaders::DRAFT_6),
            Self::XRateLimitDelta => Some(QuotaHeaders::X_RATELIMIT_DELTA),
            Self::XRateLimitEpoch => Some(QuotaHeaders::X_RATELIMIT_EPOCH),
            Self::Denials | Self::None => None,
        }
    }
}

pub(super) fn headers(fields: &Fields<'_>) -> Result<QuotaHeaders, FileError> {
    let Some(field) = fields.get("headers") else {
        return Ok(QuotaHeaders::default());
    };
    let words = field.one_or_more(
        |item| item.choice(&HEADERS),
        "it names none; write \"none\" for no quota headers",
    )?;
    if let Some(items) = field.items() {
        agree(&items, &words)?;
    }
    let named = words.iter().filter_map(|word| word.headers());
    let headers = match named.reduce(QuotaHeaders::and) {
        Some(headers) => headers,
        None if words.contains(&Word::None) => QuotaHeaders::NONE,
        None => QuotaHeaders::default(),
    };
    Ok(match words.contains(&Word::Denials) {
        true => headers.on_denials(),
        false => headers,
    })
}

/// Refuses the first item that does not go with those before it.
fn agree(items: &[Field<'_>], words: &[Word]) -> Result<(), FileError> {
    for (position, (item, word)) in items.iter().zip(words).enumerate() {
        for before in &words[..position] {
            match (before, word) {
                (before, word) if before == word => {
                    let word = item.text("a word")?;
                    return Err(item.refuse(format_args!("{word:?} is named twice, leave one out")));
                }
                (Word::None, _) | (_, Word::None) => {
                    return Err(item.refuse("\"none\" excludes the others, leave it or them out"));
                }
                (Word::XRateLimitDelta, Word::XRateLimitEpoch)
                | (Word::XRateLimitEpoch, Word::XRateLimitDelta) => {
                    return Err(item.refuse(
                        "\"x-ratelimit-delta\" and \"x-ratelimit-epoch\" are the same headers, \
                         leave one out",
                    ));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The response builders that the file has a word for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RejectionChoice {
    #[default]
    ProblemJson,
    PlainText,
}

const REJECTIONS: [(&str, RejectionChoice); 2] = [
    ("problem-json", RejectionChoice::ProblemJson),
    ("plain-text", RejectionChoice::PlainText),
];

impl RejectionChoice {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, FileError> {
        let field = fields.get("rejection");
        field.map_or(Ok(Self::default()), |field| field.choice(&REJECTIONS))
    }
}

impl OnRejection for RejectionChoice {
    fn respond(&self, request: &RequestHead<'_>, rejection: &Rejection) -> Response<Bytes> {
        match self {
            Self::ProblemJson => ProblemJson.respond(request, rejection),
            Self::PlainText => PlainText.respond(request, rejection),
        }
    }
}
