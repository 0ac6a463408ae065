//! The bytes of a file as text.

use super::FileError;
use super::place::line_of;

pub(super) fn of(bytes: &[u8]) -> Result<&str, FileError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let line = line_of(bytes, error.valid_up_to());
        FileError::at(line, "the text is no UTF-8, save the file as UTF-8")
    })
}
