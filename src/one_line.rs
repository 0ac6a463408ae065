//! `OneLine`: shows foreign text on one line, so that it cannot forge or hide a log line. Files,
//! servers and clients may send line breaks, terminal escape sequences and marks that reverse the
//! direction of writing.

use std::error::Error;
use std::fmt::{self, Write as _};

/// Shows the text with escapes such as `\n` and `\u{1b}` for all that is not printable. Quotation
/// marks and backslashes stay, so it can wrap a whole sentence and can be nested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneLine<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

/// Has no source, because a source would be shown unescaped. The wrapped errors include
/// the text of their sources in their own.
impl<T: Error> Error for OneLine<T> {}

struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, hidden)) = rest.char_indices().find(|(_, c)| !is_shown(*c)) {
            self.0.write_str(&rest[..at])?;
            write!(self.0, "{}", hidden.escape_debug())?;
            rest = &rest[at + hidden.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

fn is_shown(c: char) -> bool {
    matches!(c, ' '..='~') || (!c.is_control() && c.escape_debug().eq([c]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_be_seen_is_escaped() {
        for (text, shown) in [
            ("a \"b\" 'c' \\d", "a \"b\" 'c' \\d"),
            ("größer als 100 €, 日本", "größer als 100 €, 日本"),
            ("a\nERROR b", "a\\nERROR b"),
            ("\u{1b}[2K\r\0", "\\u{1b}[2K\\r\\0"),
            // Right to left, and a separator that some viewers take for the end of a line.
            ("a\u{202e}b\u{2028}c", "a\\u{202e}b\\u{2028}c"),
        ] {
            assert_eq!(OneLine(text).to_string(), shown);
            assert_eq!(OneLine(OneLine(text)).to_string(), shown);
        }
    }
}
