//! `rejection`: the body of the responses to denied requests.

use bytes::Bytes;
use http::Response;

use super::FileError;
use super::fields::Fields;
use crate::http::{OnRejection, PlainText, ProblemJson, Rejection};
use crate::request::RequestHead;

/// The response builders that the file has a word for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RejectionChoice {
    #[default]
    ProblemJson,
    PlainText,
}

const WORDS: [(&str, RejectionChoice); 2] = [
    ("problem-json", RejectionChoice::ProblemJson),
    ("plain-text", RejectionChoice::PlainText),
];

impl RejectionChoice {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, FileError> {
        let field = fields.get("rejection");
        field.map_or(Ok(Self::default()), |field| field.choice(&WORDS))
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
