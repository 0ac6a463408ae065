//! `OpenError`: why a file cannot be watched.

use std::error::Error;
use std::fmt;
use std::io;

use crate::config::FileError;
use crate::error::StoreError;

/// Why a [`ConfigFile`](super::ConfigFile) cannot be opened.
#[derive(Debug)]
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
            Self::Thread(_) => f.write_str("the thread that watches the file cannot be started"),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::File(error) => error.source(),
            Self::Store(error) => error.source(),
            Self::Thread(error) => Some(error),
        }
    }
}

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
