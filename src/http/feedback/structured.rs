//! As much of Structured Fields (RFC 9651) as quota headers need. Tolerant: what cannot be read is
//! left out.

use http::HeaderMap;

use super::wait::integer;

/// A member of a list or a dictionary: `name;r=0;t=5`, or `name=0`.
pub(super) struct Member<'a>(&'a str);

/// The members of a field, in all its lines.
pub(super) fn members<'a>(
    headers: &'a HeaderMap,
    name: &'a str,
) -> impl Iterator<Item = Member<'a>> + use<'a> {
    let lines = headers.get_all(name).into_iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| parts(line, b',')).map(Member)
}

impl<'a> Member<'a> {
    /// What stands in front of the parameters.
    pub(super) fn item(&self) -> &'a str {
        parts(self.0, b';').next().unwrap_or_default()
    }

    /// A parameter that is an integer. Of several with this key the last one counts, as in Structured
    /// Fields.
    pub(super) fn parameter(&self, key: &str) -> Option<u64> {
        let parameters = parts(self.0, b';').skip(1);
        parameters
            .filter_map(|it| value_of(it, key))
            .last()
            .flatten()
    }

    /// The value of this member of a dictionary, if it has this key; `Some(None)` if that is no integer.
    pub(super) fn value(&self, key: &str) -> Option<Option<u64>> {
        value_of(self.item(), key)
    }
}

fn value_of(entry: &str, key: &str) -> Option<Option<u64>> {
    let (of, value) = entry.split_once('=').unwrap_or((entry, ""));
    (of.trim() == key).then(|| integer(value.trim()))
}

/// What stands between separators that are not in a quoted string.
fn parts(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let (mut is_quoted, mut is_escaped) = (false, false);
        let end = text.bytes().position(|byte| {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = is_quoted,
                b'"' => is_quoted = !is_quoted,
                _ => return byte == separator && !is_quoted,
            }
            false
        });
        let (part, behind) = match end {
            Some(end) => (&text[..end], Some(&text[end + 1..])),
            None => (text, None),
        };
        rest = behind;
        Some(part.trim())
    })
}
