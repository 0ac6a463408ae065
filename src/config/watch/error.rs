//! `OpenError`: why a file cannot be watched.

use std::error::Error;
use std::fmt;
use std::io;

use crate::config::FileError;
use crate::error::{StoreError, debug_as_display};
use crate::one_line::OneLine;

/// Why a [`ConfigFile`](super::ConfigFile) cannot be opened. `Display` and `Debug` are one line for
/// people that tells every cause, so that there is no [`source`](Error::source).
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be read, or makes no sense.
    File(FileError),
    /// The store cannot be reached, or refuses.
    Store(StoreError),
    /// There can be no thread that watches the file.
    Thread(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Thread(error) => write!(
                f,
                "the thread that watches the file cannot be started: {}",
                OneLine(error)
            ),
        }
    }
}

debug_as_display!(OpenError);

impl Error for OpenError {}

impl From<FileError> for OpenError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
