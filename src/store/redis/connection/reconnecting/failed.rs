//! `Failed`: why a question has no answer, and whether it was asked.

use redis::RedisError;

use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::error::{kind, of_question};

/// Why a question has no answer.
pub(in crate::store::redis) enum Failed {
    /// There is no connection.
    NotAsked(StoreError),
    /// The server or the connection reported an error.
    Answer(RedisError),
    /// The same, from the node of a cluster at this address.
    AnswerOf(Box<(RedisError, String)>),
    /// The runtime that served the connection is gone, and the answer with it.
    WithItsRuntime(RedisError),
}

impl Failed {
    pub(in crate::store::redis) fn kind(&self) -> StoreErrorKind {
        match self {
            Self::NotAsked(error) => error.kind(),
            Self::Answer(error) | Self::WithItsRuntime(error) => kind(error),
            Self::AnswerOf(answer) => kind(&answer.0),
        }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::NotAsked(error)
    }
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::NotAsked(error) => error,
            Failed::Answer(error) => of_question(error),
            Failed::AnswerOf(answer) => of_question(answer.0).of_server(answer.1),
            Failed::WithItsRuntime(error) => of_question(error).of_this_process(),
        }
    }
}
